/* SPDX-License-Identifier: BSD-3-Clause */
/* test-watched.c - rows that are watched: each once, judged in the order of entry,
 * known for late reads, and bounded; and how many an arm has room for. */
#include "testing.h"

#include "rowcache/readahead/watcher.h"

static struct qm_numbers numbers;

TEST(test_rows)
{
    struct qm_watched *w = qm_watched_new(4, &numbers);
    struct qm_watched_row row;

    assert_non_null(w);
    assert_false(qm_watched_may_have(w, 7));
    assert_false(qm_watched_expire(w, 1000, &row));
    assert_false(qm_watched_take_any(w, &row));
    assert_true(qm_watched_add(w, item(1, 7), 4096, 100));
    assert_false(qm_watched_add(w, item(1, 7), 2, 200)); /* it is watched */
    assert_true(qm_watched_add(w, item(2, 7), 3, 300));
    assert_true(qm_watched_may_have(w, 7));
    assert_true(qm_watched_take(w, item(2, 7), &row));
    assert_true(row.arm == 3 && row.since_ms == 300 && !row.judged);
    assert_false(qm_watched_take(w, item(2, 7), &row));
    assert_false(qm_watched_expire(w, 99, &row));
    assert_true(qm_watched_expire(w, 100, &row));
    assert_true(row.arm == 4096 && row.since_ms == 100 && row.item.row == 7);
    assert_false(qm_watched_expire(w, 100, &row));
    assert_true(qm_watched_take(w, item(1, 7), &row)); /* late */
    assert_true(row.judged && row.arm == 4096 && row.since_ms == 100);
    assert_false(qm_watched_may_have(w, 7));
    /* One that is judged may be watched anew. */
    qm_watched_add(w, item(1, 8), 1, 100);
    qm_watched_expire(w, 100, &row);
    assert_true(qm_watched_add(w, item(1, 8), 5, 400));
    assert_true(qm_watched_take_any(w, &row));
    assert_true(row.arm == 5 && !row.judged);
    assert_false(qm_watched_take_any(w, &row));
    assert_false(qm_watched_may_have(w, 8));
    qm_watched_free(w);
}

/* A count that is at its most stays there: nothing is missed then. */
TEST(test_numbers)
{
    static struct qm_numbers of;

    assert_false(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 5));
    qm_numbers_add(&of, QM_NUMBERS_OUT, 5);
    assert_true(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 5));
    assert_false(qm_numbers_may_have(&of, QM_NUMBERS_WATCHED, 5));
    assert_false(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 6));
    qm_numbers_remove(&of, QM_NUMBERS_OUT, 5);
    assert_false(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 5));
    for (unsigned i = 0; i <= UINT16_MAX; i++)
        qm_numbers_add(&of, QM_NUMBERS_OUT, 5);
    assert_true(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 5));
    for (unsigned i = 0; i < UINT16_MAX; i++)
        qm_numbers_remove(&of, QM_NUMBERS_OUT, 5);
    assert_true(qm_numbers_may_have(&of, QM_NUMBERS_OUT, 5));
}

TEST(test_bounds)
{
    struct qm_watched *w = qm_watched_new(4, &numbers);
    struct qm_watched_row row;
    unsigned n = 0;

    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(qm_watched_is_full(w), i == 4);
        assert_int_equal(qm_watched_add(w, item(1, i), 1, 10), i < 4);
    }
    for (int64_t i = 0; i < 4; i++) {
        assert_true(qm_watched_expire(w, 10, &row));
        assert_int_equal(row.item.row, i);
    }
    /* The oldest that are judged leave for others. */
    for (int64_t i = 10; i < 12; i++) {
        qm_watched_add(w, item(1, i), 1, 20);
        assert_true(qm_watched_expire(w, 20, &row));
    }
    assert_false(qm_watched_may_have(w, 0));
    assert_false(qm_watched_take(w, item(1, 1), &row));
    while (qm_watched_take_any(w, &row))
        n++;
    assert_int_equal(n, 4);
    for (int64_t i = 0; i < 12; i++)
        assert_false(qm_watched_may_have(w, i));
    qm_watched_free(w);
}

static void ignore(void *opaque, struct qm_item item, unsigned arm, bool used)
{
}

/* An arm that is watched has no room when all arms together watch as many as they may;
 * one that fetches has. */
TEST(test_room)
{
    const struct qm_watcher_calls calls = {.judged = ignore};
    struct qm_rule_yield *yield = qm_rule_yield_new(5000, true);
    struct qm_watcher *w = qm_watcher_new(64, 5000, yield, &numbers, &calls);
    unsigned on = qm_rule_yield_find(yield, 1, 0, 0);
    unsigned watched = qm_rule_yield_find(yield, 2, 0, 0);
    int64_t rows[64];

    assert_non_null(w);
    for (int64_t i = 0; i < 64; i++)
        rows[i] = i;
    qm_rule_yield_read(yield, 1000);
    assert_int_equal(qm_watcher_room(w, 1, 0), 0);
    assert_int_equal(qm_watcher_room(w, 1, on), QM_RULE_YIELD_WATCH_ROWS);
    qm_watcher_note(w, 1, on, 1, rows, 64);
    assert_int_equal(qm_rule_yield_get(yield, on)->watched, 64);
    assert_int_equal(qm_watcher_room(w, 1, on), 0);
    assert_int_equal(qm_watcher_room(w, 1, watched), 0);
    for (int64_t i = 0; i < 48; i++)
        qm_watcher_read(w, 100, item(1, i), false);
    assert_int_equal(qm_watcher_room(w, 100, watched), QM_RULE_YIELD_WATCH_ROWS);
    qm_watcher_note(w, 100, watched, 2, rows, 64);
    assert_int_equal(qm_rule_yield_get(yield, watched)->watched, 48);
    assert_int_equal(qm_watcher_room(w, 100, watched), 0);
    assert_int_equal(qm_watcher_room(w, 100, on), 96);
    qm_watcher_free(w);
    qm_rule_yield_free(yield);
}
