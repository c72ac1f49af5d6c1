/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - for the tests of the device model. */
#ifndef DEVICE_TESTING_H
#define DEVICE_TESTING_H

#include <errno.h>
#include <math.h>
#include "tests/harness.h"

#include "plugins/device/profile.h"

#define assert_near(value, expected, tolerance)                                        \
    do {                                                                               \
        double v_ = (value), e_ = (expected);                                          \
        if (!(fabs(v_ - e_) <= (tolerance)))                                           \
            fail_msg("%s is %.6g, not %.6g", #value, v_, e_);                          \
    } while (0)

/* A small generator for what tests need at random. */
static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static inline double next_unit(uint64_t *state)
{
    return ((double)next_random(state) + 0.5) / (double)(UINT64_C(1) << 31);
}

static inline struct qm_device_config config_of(const char *profile)
{
    const struct qm_device_profile *p = qm_device_profile_find(profile);

    assert_non_null(p);
    return p->config;
}

static inline struct qm_device *make(const struct qm_device_config *config,
                                     uint64_t size)
{
    struct qm_device *device;

    assert_int_equal(qm_device_new(config, size, &device), 0);
    return device;
}

static inline struct qm_device_request *submit(struct qm_device *device, int64_t now,
                                               uint64_t offset, uint64_t length)
{
    struct qm_device_request *request;

    assert_int_equal(
        qm_device_submit(device, now, false, false, offset, length, NULL, &request), 0);
    return request;
}

/* Lets everything happen that is to happen. */
static inline void finish(struct qm_device *device)
{
    qm_device_advance(device, QM_DEVICE_NEVER);
    assert_int_equal(qm_device_next(device), QM_DEVICE_NEVER);
}

#endif
