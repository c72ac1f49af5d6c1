/* SPDX-License-Identifier: BSD-3-Clause */
/* test-resize.c - a tier becomes much smaller, and larger again. */
#include "testing.h"
#include "tier/internal.h"

#define BLOCK 16384
#define LARGE                                                                          \
    (UINT64_C(2) << 30) /* as many shards as there can be are from 4 GiB on            \
                         */
#define WHOLE (UINT64_C(8) << 30)
#define SMALL (UINT64_C(40) << 20)

static void fill(struct qm_tier *t, uint64_t first, uint64_t n)
{
    struct qm_tier_insert insert = {.frequency = QM_TIER_FREQUENCY_UNKNOWN};

    for (uint64_t i = first; i < first + n; i++) {
        insert.block = i;
        insert.ticket = qm_tier_ticket(t);
        while (qm_tier_insert(t, &insert) == EAGAIN)
            qm_tier_drain(t);
    }
    qm_tier_drain(t);
}

/* All that the tier counts is found, and the rest is not. */
static void count(struct qm_tier *t, uint64_t blocks)
{
    uint64_t found = 0;

    for (uint64_t i = 0; i < blocks; i++)
        found += qm_tier_contains(t, i);
    assert_int_equal(found, stats(t).blocks);
}

/* The shards of a large tier get very different shares of the blocks of a small one:
 * each has a place all the same.  The hash has another seed in each tier. */
TEST(test_much_smaller)
{
    for (unsigned seed = 0; seed < 4; seed++) {
        struct qm_tier_config c = dataless(BLOCK, WHOLE, QM_TIER_ADMIT_ALL);
        struct qm_tier *t = open_ok(&c);
        struct qm_tier_stats s;
        uint64_t kept;

        /* It keeps its first segments, so those are filled. */
        fill(t, 0, 4 * SMALL / BLOCK);
        assert_int_equal(qm_tier_resize(t, SMALL), 0);
        s = stats(t);
        assert_true(s.blocks > SMALL / BLOCK / 2);
        assert_true(s.blocks <= SMALL / BLOCK);
        count(t, 4 * SMALL / BLOCK);
        /* Nothing is lost by a table that is too small for what comes next. */
        kept = s.blocks;
        fill(t, 4 * SMALL / BLOCK, 4 * SMALL / BLOCK);
        assert_true(stats(t).blocks >= kept);
        count(t, 8 * SMALL / BLOCK);
        qm_tier_close(t, QM_TIER_FORGET);
    }
}

/* Whatever it is told, a table has what it holds. */
TEST(test_table)
{
    struct qm_tier_config c = dataless(BLOCK, WHOLE, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);

    fill(t, 0, 20000);
    assert_int_equal(index_resize(t, 64), 0);
    count(t, 20000);
    assert_int_equal(stats(t).blocks, 20000);
    qm_tier_close(t, QM_TIER_FORGET);
}

TEST(test_to_and_fro)
{
    static const uint64_t sizes[] = {SMALL, WHOLE,     2 * SMALL, LARGE, SMALL,
                                     LARGE, 3 * SMALL, SMALL,     WHOLE, SMALL};
    struct qm_tier_config c = dataless(BLOCK, WHOLE, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);
    uint64_t next = 0;

    for (unsigned i = 0; i < 5 * sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t size = sizes[i % (sizeof sizes / sizeof sizes[0])];

        fill(t, next, 6000);
        next += 6000;
        assert_int_equal(qm_tier_resize(t, size), 0);
        assert_true(stats(t).size <= size);
        assert_true(stats(t).blocks <= size / BLOCK);
        count(t, next);
    }
    qm_tier_close(t, QM_TIER_FORGET);
}

/* To have a place for each block costs no more than the manual says. */
TEST(test_memory)
{
    struct qm_tier_config c = dataless(BLOCK, WHOLE, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);
    uint64_t large = stats(t).memory, small;

    assert_int_equal(qm_tier_resize(t, SMALL), 0);
    small = stats(t).memory;
    assert_true(small < large);
    assert_int_equal(qm_tier_resize(t, WHOLE), 0);
    assert_true(stats(t).memory <= large + (UINT64_C(64) << 10));
    qm_tier_close(t, QM_TIER_FORGET);
}
