/* SPDX-License-Identifier: BSD-3-Clause */
/* test-hints.c - reads and what is said of them, in either order. */
#include <stdbool.h>

#include "tests/harness.h"

#include "server/hints.h"

#define MS       UINT64_C(1000000)
#define WINDOW   (QMS_HINT_WINDOW / MS)
#define PATIENCE (QMS_HINT_PATIENCE / MS)

/* Sources, in the order in which they enter. */
enum { SESSION, ONE, TWO, OTHER, ENTERED };

static struct qms_hints *hints;
static unsigned alone_count;
static struct {
    uint64_t block;
    enum qm_outcome outcome;
} alone[100000];

static void left_alone(void *opaque, uint64_t block, enum qm_outcome outcome)
{
    alone[alone_count].block = block;
    alone[alone_count++].outcome = outcome;
}

static int setup(void **state)
{
    alone_count = 0;
    hints = qms_hints_new(left_alone, NULL);
    for (unsigned i = 0; hints && i < ENTERED; i++)
        assert_int_equal(qms_hints_enter(hints), i);
    return hints ? 0 : -1;
}

static int teardown(void **state)
{
    qms_hints_free(hints);
    return 0;
}

static bool said_by(unsigned session, uint64_t now, uint64_t block, uint32_t klass,
                    enum qm_outcome *outcome)
{
    const struct qms_hint hint = {.klass = klass, .around = {1, {(uint16_t)klass}}};
    struct qm_lookup found = {.outcome = *outcome};
    bool counted = true, joined;

    joined = qms_hints_said(hints, now, session, block, &hint, &found, &counted);
    assert_false(joined && counted);
    assert_int_equal(found.early, joined && found.outcome == QM_HIT);
    *outcome = found.outcome;
    return joined;
}

static bool said(uint64_t now, uint64_t block, uint32_t klass, enum qm_outcome *outcome)
{
    return said_by(SESSION, now, block, klass, outcome);
}

static bool was_read(uint64_t now, unsigned connection, uint64_t block,
                     enum qm_outcome outcome, uint32_t *klass)
{
    const struct qm_lookup found = {.outcome = outcome, .early = outcome == QM_HIT};
    struct qms_hint hint;
    bool joined = qms_hints_read(hints, now, connection, block, &found, false, &hint);

    if (joined) {
        *klass = hint.klass;
        assert_int_equal(hint.around.klass[0], hint.klass);
    }
    return joined;
}

TEST_WITH(test_the_hint_comes_first, setup, teardown)
{
    enum qm_outcome outcome;
    uint32_t klass = 0;

    assert_false(said(1 * MS, 7, 3, &outcome));
    assert_true(was_read(2 * MS, 1, 7, QM_MISS, &klass));
    assert_int_equal(klass, 3);
    assert_false(was_read(2 * MS, 1, 7, QM_HIT, &klass));
}

TEST_WITH(test_the_read_comes_first, setup, teardown)
{
    enum qm_outcome outcome = QM_HIT;
    uint32_t klass;

    assert_false(was_read(1 * MS, 1, 7, QM_MISS, &klass));
    assert_true(said((1 + PATIENCE) * MS, 7, 3, &outcome));
    assert_int_equal(outcome, QM_MISS);
    qms_hints_expire(hints, 10 * PATIENCE * MS);
    assert_int_equal(alone_count, 0);
}

/* First in, first out, for each block. */
TEST_WITH(test_order, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass = 0;

    for (uint32_t i = 0; i < 5; i++) {
        said(i, 7, 10 + i, &outcome);
        said(i, 8, 20 + i, &outcome);
    }
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(was_read(9, 1, 8, QM_HIT, &klass));
        assert_int_equal(klass, 20 + i);
        assert_true(was_read(9, 1, 7, QM_HIT, &klass));
        assert_int_equal(klass, 10 + i);
    }
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.joined, 10);
    assert_int_equal(stats.waiting, 0);
}

TEST_WITH(test_what_waits_too_long, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass;

    was_read(1 * MS, 1, 7, QM_MISS, &klass);
    said(1 * MS, 8, 3, &outcome);
    qms_hints_expire(hints, (1 + PATIENCE) * MS);
    assert_int_equal(alone_count, 0);
    qms_hints_expire(hints, (2 + PATIENCE) * MS);
    assert_int_equal(alone_count, 1);
    assert_int_equal(alone[0].block, 7);
    assert_int_equal(alone[0].outcome, QM_MISS);
    assert_false(was_read((2 + PATIENCE) * MS, 1, 8, QM_MISS, &klass));
    assert_false(said((2 + PATIENCE) * MS, 7, 3, &outcome));
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.unread, 1);
    assert_int_equal(stats.unhinted, 1);
    assert_int_equal(stats.joined, 0);
    assert_int_equal(stats.blocks, 2);
}

/* While nothing that came later has met its other, all wait; then they have waited for
 * long enough. */
TEST_WITH(test_standstill, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass = 0;

    was_read(1 * MS, 1, 7, QM_MISS, &klass);
    was_read(1 * MS, 1, 8, QM_MISS, &klass);
    said(1 * MS, 17, 3, &outcome);
    said(1 * MS, 18, 3, &outcome);
    qms_hints_expire(hints, PATIENCE * MS);
    assert_int_equal(alone_count, 0);
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.waiting, 4);
    /* Those who say what is read come too late, but for one; the readers, too. */
    assert_true(said(PATIENCE * MS, 7, 3, &outcome));
    assert_true(was_read(PATIENCE * MS, 1, 17, QM_MISS, &klass));
    /* Later ones meet theirs: the other two have been passed. */
    was_read((2 + WINDOW) * MS, 1, 9, QM_MISS, &klass);
    assert_true(said((3 + WINDOW) * MS, 9, 3, &outcome));
    qms_hints_expire(hints, (4 + WINDOW) * MS);
    assert_int_equal(alone_count, 1);
    assert_int_equal(alone[0].block, 8);
    said((2 + WINDOW) * MS, 19, 3, &outcome);
    assert_true(was_read((3 + WINDOW) * MS, 1, 19, QM_MISS, &klass));
    qms_hints_expire(hints, (4 + WINDOW) * MS);
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.unread, 1);
    assert_int_equal(stats.unhinted, 1);
    assert_int_equal(stats.waiting, 0);
}

/* Whether a hit was an early one is known of the read that came first. */
TEST_WITH(test_early_hits, setup, teardown)
{
    const struct qms_hint hint = {.klass = 1};

    for (int early = 0; early < 2; early++) {
        const struct qm_lookup hit = {.outcome = QM_HIT, .early = early};
        struct qm_lookup found = {.early = !early};
        struct qms_hint of;
        bool counted;

        qms_hints_read(hints, 1 * MS, 1, 7, &hit, false, &of);
        assert_true(qms_hints_said(hints, 1 * MS, SESSION, 7, &hint, &found, &counted));
        assert_int_equal(found.outcome, QM_HIT);
        assert_int_equal(found.early, early);
    }
}

/* What its connection's own context was counted for is not handed back. */
TEST_WITH(test_counted, setup, teardown)
{
    const struct qms_hint hint = {.klass = 1};
    const struct qm_lookup miss = {.outcome = QM_MISS};
    struct qm_lookup found;
    struct qms_hint of;
    bool counted = false;

    qms_hints_read(hints, 1 * MS, 1, 7, &miss, true, &of);
    qms_hints_read(hints, 1 * MS, 1, 8, &miss, true, &of);
    assert_true(qms_hints_said(hints, 1 * MS, SESSION, 7, &hint, &found, &counted));
    assert_true(counted);
    qms_hints_expire(hints, 2 * PATIENCE * MS);
    assert_int_equal(alone_count, 0);
}

/* A clock that another thread was given a little later does not make things old. */
TEST_WITH(test_time_of_others, setup, teardown)
{
    enum qm_outcome outcome;
    uint32_t klass;

    was_read(100 * MS, 1, 7, QM_MISS, &klass);
    assert_true(said(99 * MS, 7, 3, &outcome));
    assert_int_equal(alone_count, 0);
}

/* Memory does not grow: the oldest has waited for long enough. */
TEST_WITH(test_bounded, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass;

    for (unsigned i = 0; i < 100000; i++)
        was_read(1 * MS, 1, i, QM_HIT, &klass);
    assert_in_range(alone_count, 100000 - 64 * 128, 100000 - 5000);
    assert_int_equal(alone[0].block < 100000 - 10000, true);
    for (unsigned i = 0; i < 100000; i++)
        said(2 * PATIENCE * MS, i, 1, &outcome);
    assert_int_equal(alone_count, 100000);
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.unhinted, 100000);
    assert_int_equal(stats.blocks, 100000);
    assert_in_range(stats.unread, 100000 - 64 * 128, 100000 - 5000);
}

/* Reads of a connection that meet their hints, from block on. */
static void read_hinted(uint64_t now, unsigned connection, uint64_t block, unsigned n)
{
    enum qm_outcome outcome;
    uint32_t klass;

    for (unsigned i = 0; i < n; i++) {
        was_read(now, connection, block + i, QM_MISS, &klass);
        assert_true(said(now, block + i, 3, &outcome));
    }
}

TEST_WITH(test_connections, setup, teardown)
{
    uint32_t klass;

    assert_false(qms_hints_covers(hints, 1));
    read_hinted(1 * MS, 1, 100, 15);
    assert_false(qms_hints_covers(hints, 1));
    read_hinted(2 * MS, 1, 200, 1);
    was_read(2 * MS, 2, 8, QM_MISS, &klass);
    assert_true(qms_hints_covers(hints, 1));
    assert_false(qms_hints_covers(hints, 2));
    /* Another connection may get its number. */
    qms_hints_leave(hints, 1);
    assert_int_equal(qms_hints_enter(hints), 1);
    assert_false(qms_hints_covers(hints, 1));
}

/* Those who come when all numbers are in use have one together, which tells nothing. */
TEST_WITH(test_many_connections, setup, teardown)
{
    read_hinted(1 * MS, ONE, 100, 100);
    for (unsigned i = ENTERED; i < QMS_HINTS_SHARED; i++)
        assert_int_equal(qms_hints_enter(hints), i);
    for (unsigned i = 0; i < 10000; i++) {
        assert_int_equal(qms_hints_enter(hints), QMS_HINTS_SHARED);
        qms_hints_leave(hints, QMS_HINTS_SHARED);
    }
    assert_true(qms_hints_covers(hints, ONE));
    read_hinted(1 * MS, QMS_HINTS_SHARED, 1000, 1000);
    assert_false(qms_hints_covers(hints, QMS_HINTS_SHARED));
    qms_hints_leave(hints, 2000);
    assert_int_equal(qms_hints_enter(hints), 2000);
}

/* Another tenant's connection reads, and its agent says what, all the time, while our
 * agent says nothing, and while our device stands still. */
TEST_WITH(test_standstill_beside_others, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass = 0;

    was_read(1 * MS, ONE, 7, QM_MISS, &klass);
    said(1 * MS, 8, 3, &outcome);
    for (uint64_t ms = 2; ms < 3 * WINDOW; ms += 2) {
        assert_false(was_read(ms * MS, TWO, 100 + ms % 5000, QM_MISS, &klass));
        assert_true(said_by(OTHER, (ms + 1) * MS, 100 + ms % 5000, 4, &outcome));
        qms_hints_expire(hints, (ms + 1) * MS);
    }
    assert_int_equal(alone_count, 0);
    assert_true(said(3 * WINDOW * MS, 7, 3, &outcome));
    assert_true(was_read(3 * WINDOW * MS, ONE, 8, QM_MISS, &klass));
    assert_int_equal(klass, 3);
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.unread + stats.unhinted + stats.waiting, 0);
}

/* Nor do others that fill the rings drive out what is ours. */
TEST_WITH(test_flood_of_others, setup, teardown)
{
    enum { OURS = 300, THEIRS = 100000 };
    enum qm_outcome outcome;
    uint32_t klass = 0;

    for (unsigned i = 0; i < OURS; i++) {
        was_read(1 * MS, ONE, i, QM_MISS, &klass);
        said(1 * MS, OURS + i, 3, &outcome);
    }
    for (unsigned i = 0; i < THEIRS; i++) {
        was_read(2 * MS, TWO, 2 * OURS + i, QM_MISS, &klass);
        said_by(OTHER, 2 * MS, 2 * OURS + THEIRS + i, 4, &outcome);
    }
    for (unsigned i = 0; i < alone_count; i++)
        assert_true(alone[i].block >= 2 * OURS);
    for (unsigned i = 0; i < OURS; i++) {
        assert_true(said(3 * MS, i, 3, &outcome));
        assert_true(was_read(3 * MS, ONE, OURS + i, QM_MISS, &klass));
    }
}

/* What is old behind what is not meets nothing any more. */
TEST_WITH(test_old_behind_young, setup, teardown)
{
    struct qms_hints_stats stats;
    enum qm_outcome outcome;
    uint32_t klass = 0;

    for (unsigned i = 0; i < 1000; i++) /* in all stripes */
        said_by(OTHER, 1 * MS, 1000 + i, 4, &outcome);
    said(1 * MS, 7, 3, &outcome);
    read_hinted((2 + WINDOW) * MS, ONE, 100, 1);
    assert_false(was_read((3 + WINDOW) * MS, ONE, 7, QM_MISS, &klass));
    qms_hints_expire(hints, (4 + WINDOW) * MS);
    qms_hints_get_stats(hints, &stats);
    assert_int_equal(stats.unread, 1);
    assert_int_equal(stats.waiting, 1000 + 1);
}

/* The first read after a pause is like those before it; when no hints come any more,
 * reads are in their connection's context again. */
TEST_WITH(test_pauses, setup, teardown)
{
    uint64_t now = 10 * PATIENCE * MS;
    uint32_t klass;

    read_hinted(1 * MS, 1, 100, 100);
    qms_hints_expire(hints, now);
    assert_true(qms_hints_covers(hints, 1));
    for (unsigned i = 0; i < 13; i++)
        was_read(now, 1, 1000 + i, QM_MISS, &klass);
    assert_true(qms_hints_covers(hints, 1));
    qms_hints_expire(hints, now + (PATIENCE + 1) * MS);
    assert_false(qms_hints_covers(hints, 1));
}

/* A stranger who guesses some of a connection's reads does not get it. */
TEST_WITH(test_guesses, setup, teardown)
{
    uint64_t now = 1 * MS;
    uint32_t klass;

    for (unsigned i = 0; i < 1000; i++, now += (PATIENCE + 1) * MS) {
        read_hinted(now, 1, 100 + i, 2);
        was_read(now, 1, 5000 + i, QM_MISS, &klass);
        qms_hints_expire(hints, now);
        assert_false(qms_hints_covers(hints, 1));
    }
}

TEST_WITH(test_sessions, setup, teardown)
{
    assert_false(qms_hints_active(hints));
    assert_int_equal(qms_hints_session_enter(hints), ENTERED);
    assert_int_equal(qms_hints_session_enter(hints), ENTERED + 1);
    qms_hints_session_leave(hints, ENTERED);
    assert_true(qms_hints_active(hints));
    qms_hints_session_leave(hints, ENTERED + 1);
    assert_false(qms_hints_active(hints));
}
