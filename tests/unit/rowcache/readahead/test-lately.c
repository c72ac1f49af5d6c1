/* SPDX-License-Identifier: BSD-3-Clause */
/* test-lately.c - rows that were read or asked for lately are told from others, one by
 * one and in ranges, and are bounded. */
#include "rowcache/readahead/lately.h"
#include "testing.h"

/* A step is a millisecond. */
enum { AGAIN_MS = QM_LATELY_STEPS, BLOCKS = 4 };

static struct qm_lately *new_of(unsigned blocks)
{
    struct qm_lately *lately = qm_lately_new(blocks, AGAIN_MS);

    assert_non_null(lately);
    return lately;
}

static struct qm_lately *new_lately(void)
{
    return new_of(64 * BLOCKS);
}

FIXTURE(lately, new_lately(), qm_lately_free(it))

TEST_ON(test_time, lately, struct qm_lately *l)
{
    assert_false(qm_lately_has(l, 0, item(1, 5)));
    qm_lately_note(l, 0, item(1, 5));
    assert_true(qm_lately_has(l, 0, item(1, 5)));
    assert_false(qm_lately_has(l, 0, item(1, 6))); /* of the same block */
    assert_false(qm_lately_has(l, 0, item(2, 5)));
    assert_true(qm_lately_has(l, AGAIN_MS - 1, item(1, 5)));
    assert_false(qm_lately_has(l, AGAIN_MS, item(1, 5)));
    qm_lately_note(l, AGAIN_MS, item(1, 5));
    assert_true(qm_lately_has(l, 2 * AGAIN_MS - 1, item(1, 5)));
}

/* Tables have rows of the same numbers: their blocks do not share the places of one. */
TEST(test_tables)
{
    for (uint32_t apart = 1; apart <= 512; apart *= 2) {
        struct qm_lately *l = new_of(32768); /* as auto has */

        for (uint32_t i = 1; i <= 16; i++)
            qm_lately_note(l, 0, item(i * apart, 5));
        for (uint32_t i = 1; i <= 16; i++)
            assert_true(qm_lately_has(l, 0, item(i * apart, 5)));
        qm_lately_free(l);
    }
}

TEST_ON(test_forget, lately, struct qm_lately *l)
{
    qm_lately_note(l, 0, item(1, 5));
    qm_lately_note(l, 0, item(1, 6));
    qm_lately_note(l, 0, item(2, 5));
    qm_lately_forget(l, item(1, 5));
    qm_lately_forget(l, item(3, 5)); /* it is not there */
    assert_false(qm_lately_has(l, 0, item(1, 5)));
    assert_true(qm_lately_has(l, 0, item(1, 6)));
    assert_true(qm_lately_has(l, 0, item(2, 5)));
    qm_lately_forget_table(l, 1);
    assert_false(qm_lately_has(l, 0, item(1, 6)));
    assert_true(qm_lately_has(l, 0, item(2, 5)));
    qm_lately_clear(l);
    assert_false(qm_lately_has(l, 0, item(2, 5)));
    qm_lately_note(l, 0, item(2, 6)); /* its place is empty */
    assert_false(qm_lately_has(l, 0, item(2, 5)));
}

/* Across blocks and around 0, in both directions. */
TEST_ON(test_others, lately, struct qm_lately *l)
{
    int64_t rows[64];
    unsigned n;

    qm_lately_note(l, 0, item(1, -1));
    qm_lately_note(l, 0, item(1, 2));
    qm_lately_note(l, 0, item(1, 16));
    qm_lately_note(l, 0, item(2, 3));
    n = qm_lately_others(l, 1, 1, -18, 18, false, rows, 64);
    assert_int_equal(n, 37 - 3);
    for (unsigned i = 0, j = 0; i < 37; i++) {
        int64_t row = (int64_t)i - 18;

        if (row != -1 && row != 2 && row != 16)
            assert_int_equal(rows[j++], row);
    }
    n = qm_lately_others(l, 1, 1, -18, 18, true, rows, 4);
    assert_int_equal(n, 4);
    assert_int_equal(rows[0], 18);
    assert_int_equal(rows[1], 17);
    assert_int_equal(rows[2], 15);
    assert_int_equal(rows[3], 14);
    assert_int_equal(qm_lately_others(l, AGAIN_MS, 1, 0, 3, false, rows, 64), 4);
    assert_int_equal(qm_lately_others(l, 1, 1, 0, 3, false, rows, 0), 0);
    assert_int_equal(qm_lately_others(l, 1, 1, 3, 2, false, rows, 64), 0);
}

TEST_ON(test_extremes, lately, struct qm_lately *l)
{
    int64_t rows[4];

    qm_lately_note(l, 0, item(1, INT64_MIN));
    qm_lately_note(l, 0, item(1, INT64_MAX));
    assert_true(qm_lately_has(l, 0, item(1, INT64_MIN)));
    assert_true(qm_lately_has(l, 0, item(1, INT64_MAX)));
    assert_false(qm_lately_has(l, 0, item(1, INT64_MIN + 1)));
    assert_int_equal(
        qm_lately_others(l, 0, 1, INT64_MAX - 1, INT64_MAX, false, rows, 4), 1);
    assert_true(rows[0] == INT64_MAX - 1);
}

/* Of the two that could be there, the block that was noted longest ago makes room, and
 * nothing of it is left in its place. */
TEST(test_bounds)
{
    struct qm_lately *l = new_of(BLOCKS);
    unsigned kept = 0;

    for (int64_t block = 0; block < 100; block++) {
        int64_t row = block * QM_LATELY_BLOCK + block % QM_LATELY_BLOCK;

        qm_lately_note(l, (uint64_t)block / 4, item(1, row));
        for (int64_t i = 0; i < QM_LATELY_BLOCK; i++)
            assert_int_equal(qm_lately_has(l, (uint64_t)block / 4,
                                           item(1, block * QM_LATELY_BLOCK + i)),
                             i == block % QM_LATELY_BLOCK);
        if (block > 0) /* that is not the one that was noted longest ago */
            assert_true(qm_lately_has(
                l, (uint64_t)block / 4,
                item(1, row - QM_LATELY_BLOCK -
                            (block % QM_LATELY_BLOCK > 0 ? 1 : 1 - QM_LATELY_BLOCK))));
    }
    for (int64_t row = 0; row < 100 * QM_LATELY_BLOCK; row++)
        kept += qm_lately_has(l, 25, item(1, row));
    assert_int_equal(kept, BLOCKS);
    qm_lately_free(l);
}

/* Times begin anew after some hours, and what was noted before is told from what was
 * not; more time is told in steps. */
TEST(test_long)
{
    struct qm_lately *l = qm_lately_new(BLOCKS, 10000);
    uint64_t step = 10000 / QM_LATELY_STEPS, around = step * UINT16_MAX;

    assert_non_null(l);
    for (uint64_t now = around - 10000; now < around + 20000; now += 777) {
        qm_lately_clear(l);
        qm_lately_note(l, now, item(1, 5));
        assert_true(qm_lately_has(l, now + 10000 - step, item(1, 5)));
        assert_false(qm_lately_has(l, now + 10000 + step, item(1, 5)));
        assert_false(qm_lately_has(l, now + around / 2, item(1, 5)));
        assert_false(qm_lately_has(l, now, item(1, 6)));
    }
    qm_lately_free(l);
}

/* Nor do blocks that have rows which were not noted look younger then: the one that was
 * noted longest ago makes room. */
TEST(test_long_ago)
{
    struct qm_lately *l = qm_lately_new(2, AGAIN_MS); /* one set */
    const uint64_t around = UINT16_MAX;

    assert_non_null(l);
    qm_lately_note(l, around - 30, item(1, 0));
    qm_lately_note(l, around - 20, item(2, 0));
    qm_lately_note(l, around - 10, item(1, 0)); /* the younger one */
    qm_lately_note(l, around + 2, item(3, 0));
    assert_true(qm_lately_has(l, around + 2, item(1, 0)));
    assert_false(qm_lately_has(l, around + 2, item(2, 0)));
    assert_true(qm_lately_has(l, around + 2, item(3, 0)));
    qm_lately_free(l);
}
