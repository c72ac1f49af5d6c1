/* SPDX-License-Identifier: BSD-3-Clause */
/* basic.h - a small tier in a file of a temporary directory, which each test finds
 * gone; what test-basic.c, test-identity.c and test-killed.c share. */
#ifndef QM_TESTS_TIER_BASIC_H
#define QM_TESTS_TIER_BASIC_H

#include "testing.h"

#define BLOCK  4096u
#define VOLUME (UINT64_C(64) << 20)
#define SIZE   (UINT64_C(4) << 20)

static char dir[] = "/tmp/tier-test.XXXXXX", path[64], witness[64];
static bool ring;
static struct told told;
static _Alignas(4096) char buf[BLOCK];

static inline struct qm_tier_config config(void)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"a-volume", VOLUME, BLOCK, 7};
    c.path = path;
    c.size = SIZE;
    c.admit = QM_TIER_ADMIT_ALL;
    c.ring = ring;
    c.warn = keep_warning;
    c.opaque = &told;
    return c;
}

static inline int setup(void **state)
{
    unlink(path);
    unlink(witness);
    memset(&told, 0, sizeof told);
    return 0;
}

static inline int put(struct qm_tier *t, uint64_t block, uint64_t version)
{
    return insert_version(t, buf, BLOCK, block, version);
}

static inline uint64_t get(struct qm_tier *t, uint64_t block)
{
    return read_version(t, buf, BLOCK, block);
}

static inline void change(struct qm_tier *t, uint64_t block, uint64_t blocks)
{
    struct qm_tier_write w;

    qm_tier_write_begin(t, &w, block * BLOCK, blocks * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
}

static inline void fill(const struct qm_tier_config *c)
{
    struct qm_tier *t = open_ok(c);

    if (!qm_tier_contains(t, 1))
        assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    memset(&told, 0, sizeof told);
}

static inline void expect_emptied(const struct qm_tier_config *c, const char *why)
{
    struct qm_tier *t = open_ok(c);

    if (told.n != 1 || !strstr(told.text, why))
        fail_msg("warned %u times: %s", told.n, told.text);
    assert_int_equal(stats(t).blocks, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
}

/* With an argument, several blocks are read by threads, not by io_uring. */
static inline bool begin(int argc)
{
    ring = argc < 2;
    if (!mkdtemp(dir))
        return false;
    snprintf(path, sizeof path, "%s/tier", dir);
    snprintf(witness, sizeof witness, "%s/witness", dir);
    return true;
}

static inline int end(int failed)
{
    setup(NULL);
    rmdir(dir);
    return failed;
}

#endif
