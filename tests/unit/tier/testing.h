/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of the tier share. */
#ifndef QM_TESTS_TIER_TESTING_H
#define QM_TESTS_TIER_TESTING_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "tier/tier.h"
#include "tests/unit/random.h"

/* A block's data: its number and version, all over. */
static inline void make_block(void *buf, size_t size, uint64_t block, uint64_t version)
{
    uint64_t word[2] = {block, version};

    for (size_t i = 0; i < size; i += sizeof word)
        memcpy((char *)buf + i, word, sizeof word);
}

/* The version, or UINT64_MAX if it is not all of one, or another block's. */
static inline uint64_t version_of(const void *buf, size_t size, uint64_t block)
{
    uint64_t word[2];

    memcpy(word, buf, sizeof word);
    if (word[0] != block || memcmp(buf, (const char *)buf + 16, size - 16) != 0)
        return UINT64_MAX;
    return word[1];
}

/* A tier whose blocks have no data, of a volume of 1 TiB. */
static inline struct qm_tier_config dataless(uint32_t block_size, uint64_t size,
                                             enum qm_tier_admit admit)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"test", UINT64_C(1) << 40, block_size, 0};
    c.size = size;
    c.data = false;
    c.admit = admit;
    return c;
}

static inline struct qm_tier *open_ok(const struct qm_tier_config *c)
{
    struct qm_tier *t;
    char err[400] = "";
    int r = qm_tier_open(c, &t, err, sizeof err);

    if (r != 0)
        fail_msg("%d: %s", r, err);
    return t;
}

static inline struct qm_tier_stats stats(struct qm_tier *t)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(t, &s);
    return s;
}

/* A version of a block for the tier, by way of buf. */
static inline int insert_version(struct qm_tier *t, void *buf, size_t size,
                                 uint64_t block, uint64_t version)
{
    struct qm_tier_insert insert = {
        .block = block,
        .data = buf,
        .ticket = qm_tier_ticket(t),
        .frequency = QM_TIER_FREQUENCY_UNKNOWN,
    };

    make_block(buf, size, block, version);
    return qm_tier_insert(t, &insert);
}

/* The version that the tier has, or 0. */
static inline uint64_t read_version(struct qm_tier *t, void *buf, size_t size,
                                    uint64_t block)
{
    struct qm_tier_read read = {.block = block, .buf = buf};

    return qm_tier_read(t, &read, 1) ? version_of(buf, size, block) : 0;
}

/* Warnings, joined by newlines. */
struct told {
    char text[4000];
    unsigned n;
};

static inline void keep_warning(void *opaque, const char *message)
{
    struct told *told = opaque;
    size_t at = strlen(told->text);

    snprintf(told->text + at, sizeof told->text - at, "%s\n", message);
    told->n++;
}

#endif
