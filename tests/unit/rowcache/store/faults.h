/* SPDX-License-Identifier: BSD-3-Clause */
/* faults.h - what the tests of the store's faults share: a store in the test's
 * directory that tells its warnings, and keys of it. */
#ifndef QM_TESTS_STORE_FAULTS_H
#define QM_TESTS_STORE_FAULTS_H

#include "testing.h"

static char message[600]; /* the last warning */

static void warn(void *opaque, const char *text)
{
    snprintf(message, sizeof message, "%s", text);
}

static inline struct qmstore_config config(void)
{
    struct qmstore_config c = small_config();

    c.log_buffer = 16 << 10;
    c.warn = warn;
    return c;
}

static char big[2000];

static inline void fill(struct qmstore *s, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        assert_int_equal(qmstore_put(s, &i, sizeof i, big, sizeof big, 0), 0);
}

static inline unsigned count(struct qmstore *s, unsigned to)
{
    unsigned n = 0;

    for (unsigned i = 0; i < to; i++)
        n += qmstore_get(s, &i, sizeof i, NULL, NULL, NULL) == 0;
    return n;
}

static inline bool exists(const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    return access(path, F_OK) == 0;
}

#endif
