/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: when they grow, shrink and end, and what is never asked for. */
#include "tracks-world.h"

/* More is asked for when the reader comes to the first block of what was asked for
 * last, so that two reads are on their way while he waits. */
TEST_WITH(test_two_on_their_way, set_up, tear_down)
{
    uint64_t b = 1000, last, asks;

    for (; b < 3000; b++)
        reads(b, 1, true);
    for (; b < 5000; b++) {
        last = w->last;
        asks = w->asks;
        reads(b, 1, true);
        assert_int_equal(w->asks > asks, b == last);
    }
}

/* What was asked for and not issued is asked for again, and is no loss. */
TEST_WITH(test_refused, NULL, tear_down)
{
    uint64_t b = 1000;

    make(4 * MOST);
    for (; b < 3000; b++)
        reads(b, 1, false);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t end = b;

        while (w->ahead[end])
            end++;
        for (uint64_t k = end - 4; k < end; k++)
            w->ahead[k] = w->cached[k] = false;
        w->unread -= 4;
        w->misses = 0;
        qm_tracks_refused(w->tracks, end - 4, 4);
        for (; b < end; b++)
            reads(b, 1, false);
        assert_in_range(w->misses, 0, 1);
    }
    w->longest = 0;
    for (uint64_t end = b + 1000; b < end; b++)
        reads(b, 1, false);
    assert_true(w->longest >= GOOD / 2);
    for (b = 900000; b > 899000; b--) /* backward */
        reads(b, 1, false);
    for (uint64_t k = b; w->ahead[k]; k--) {
        w->ahead[k] = w->cached[k] = false;
        w->unread--;
        qm_tracks_refused(w->tracks, k, 1);
    }
    w->misses = 0;
    for (; b > 898000; b--)
        reads(b, 1, false);
    assert_int_equal(w->misses, 1);
}

/* Place is kept for the windows of streams that are read, and no longer. */
TEST_WITH(test_reserved, NULL, tear_down)
{
    struct rng rng = {1};

    make(16 * MOST);
    for (uint64_t b = 1000; b < 3000; b++)
        reads(b, 1, false);
    assert_in_range(w->reserved, GOOD, GOOD + GOOD / 2);
    for (uint64_t b = 0; b < 1000; b++) {
        reads(5000 + b, 1, false);
        reads(400000 + b, 1, false);
    }
    assert_in_range(w->reserved, 3 * GOOD, 3 * GOOD + 3 * GOOD / 2);
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t b = rng_below(&rng, DEVICE / 4) * 4;

        reads(b, 1, false);
        w->cached[b] = false;
    }
    assert_in_range(w->reserved, 0, GOOD);
}

/* Takes back what is ahead of a reader, from `block` on. */
static void refuse_from(uint64_t block)
{
    uint64_t end = block;

    for (; w->ahead[end]; end++)
        w->ahead[end] = w->cached[end] = false;
    w->unread -= (unsigned)(end - block);
    if (end > block)
        qm_tracks_refused(w->tracks, block, (uint32_t)(end - block));
}

/* No place is kept for a window of which nothing is issued, until some of it is. */
TEST_WITH(test_refused_is_not_reserved, NULL, tear_down)
{
    make(16 * MOST);
    for (uint64_t b = 1000; b < 2000; b++)
        reads(b, 1, false);
    for (uint64_t b = 2000; b < 2400; b++) {
        reads(b, 1, false);
        refuse_from(b + 1);
    }
    for (uint64_t b = 0; b < 1000; b++)
        reads(5000 + b, 1, false);
    assert_in_range(w->reserved, GOOD, GOOD + GOOD / 2); /* for the other one */
    reads(2400, 1, false);
    refuse_from(2410); /* a part remains */
    for (uint64_t b = 0; b < 500; b++)
        reads(6000 + b, 1, false);
    assert_in_range(w->reserved, 2 * GOOD, 3 * GOOD);
}

/* The window follows bandwidth times latency; late blocks make it twice that. */
TEST_WITH(test_target, set_up, tear_down)
{
    w->efficient = 40;
    for (uint64_t b = 0; b < 4000; b++) {
        reads(b, 1, false);
        assert_in_range(w->unread, 0, 80);
    }
    assert_in_range(w->unread, 39, 80);
    for (uint64_t b = 4000; b < 8000; b++) {
        reads(b, 1, true);
        assert_in_range(w->unread, 0, 160);
    }
    assert_in_range(w->unread, 80 - 1, 160);
}

/* The reader goes on by n blocks, of those ahead all but the next few are gone. */
static uint64_t lose(uint64_t b, unsigned n)
{
    for (; n > 0; n--, b++) {
        reads(b, 1, false);
        for (uint64_t i = b + 3; i < b + MOST; i++)
            if (w->ahead[i]) {
                w->unread -= w->ahead[i];
                w->ahead[i] = w->cached[i] = false;
                qm_tracks_ended(w->tracks, i, QM_FATE_UNUSED);
            }
    }
    return b;
}

/* Where blocks are gone when the reader comes, windows shrink; and they grow again. */
TEST_WITH(test_lost, NULL, tear_down)
{
    uint64_t b;

    make(4 * MOST);
    for (b = 0; b < 1000; b++)
        reads(b, 1, false);
    assert_int_equal(w->misses, 2);
    b = lose(b, 2000);
    w->asks = w->asked = 0;
    b = lose(b, 200);
    assert_true(w->asked <= w->asks * 16);
    w->longest = 0;
    for (uint64_t end = b + 5000; b < end; b++)
        reads(b, 1, false);
    assert_true(w->longest > GOOD / 2);
}

/* All windows together have at most 44 % of the cache. */
TEST_WITH(test_share, NULL, tear_down)
{
    enum { STREAMS = 16 };

    make(4 * 128);
    w->efficient = 1000;
    for (uint64_t i = 0; i < 2000; i++)
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * (DEVICE / STREAMS) + i, 1, true);
    assert_in_range(w->unread, 1, 4 * 128 * 44 / 100);
}

/* And of a cache that has become smaller, or larger, they have that part. */
TEST_WITH(test_resized, NULL, tear_down)
{
    enum { STREAMS = 8, PART = DEVICE / STREAMS };
    uint64_t at = 0;

    make(4 * 128);
    w->efficient = 1000;
    for (; at < 1000; at++)
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * PART + at, 1, true);
    assert_in_range(w->unread, 128 * 44 / 100 + 1, 4 * 128 * 44 / 100);
    w->capacity = 128;
    for (; at < 2000; at++)
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * PART + at, 1, true);
    assert_in_range(w->unread, 1, 128 * 44 / 100);
    w->capacity = 8 * 128;
    for (; at < 5000; at++)
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * PART + at, 1, true);
    assert_in_range(w->unread, 4 * 128 * 44 / 100 + 1, 8 * 128 * 44 / 100);
}

/* Cached blocks are left out, and a stream goes on behind them. */
TEST_WITH(test_cached, set_up, tear_down)
{
    for (uint64_t b = 0; b < 2000; b++)
        w->cached[b] = b % 16 == 5;
    for (uint64_t b = 3000; b < 3600; b++)
        w->cached[b] = true;
    for (uint64_t b = 0; b < 5000; b++)
        reads(b, 1, false);
    assert_in_range(w->misses, 2, 3);
}

/* Where cached() is true of all, nothing is asked for, and the search has an end. */
TEST_WITH(test_all_cached, set_up, tear_down)
{
    reads(10, 1, false);
    memset(w->cached, true, sizeof w->cached);
    w->cached[11] = false;
    reads(11, 1, false);
    assert_int_equal(w->asked, 0);
}

/* A stream that is asked again only now and then, as a throttled one, recovers. */
TEST_WITH(test_not_asked, set_up, tear_down)
{
    struct qm_candidate ranges[4];
    const struct qm_own alone = {1, 1};
    struct qm_turn turn;

    qm_tracks_miss(w->tracks, &w->strides, alone, 50, 1);
    turn = qm_tracks_miss(w->tracks, &w->strides, alone, 51, 1);
    assert_true(turn.wanted);
    turn = qm_tracks_miss(w->tracks, &w->strides, alone, 52, 1);
    assert_true(turn.wanted);
    assert_int_equal(qm_tracks_ask(w->tracks, turn, ranges, 4), 1);
    assert_int_equal(ranges[0].block, 53);
    assert_int_equal(ranges[0].count, FIRST);
    turn = qm_tracks_miss(w->tracks, &w->strides, alone, 53,
                          1); /* it was missed, though asked for */
    assert_true(turn.wanted);
    turn.wanted = false;
    assert_int_equal(qm_tracks_ask(w->tracks, turn, ranges, 4), 0);
}

/* A small window of a stride is noted by its own blocks: nothing is taken for one that
 * lies behind the ranges. */
TEST_WITH(test_small_stride, set_up, tear_down)
{
    struct qm_candidate ranges[QM_TRACKS_RANGES];
    const uint64_t other = 777777;
    struct qm_turn turn;
    unsigned n = 0;

    for (uint64_t b = 1000; b < 1400; b += 10) {
        turn = qm_tracks_miss(w->tracks, &w->strides, (struct qm_own){1, 1}, b, 1);
        for (unsigned i = 0; i < QM_TRACKS_RANGES; i++)
            ranges[i] = (struct qm_candidate){.block = other};
        n += qm_tracks_ask(w->tracks, turn, ranges, QM_TRACKS_RANGES);
        assert_false(qm_tracks_has_note(w->tracks, other));
    }
    assert_true(n > 0);
}

/* A window that is larger than it may be now is used up; its stream goes on behind it.
 */
TEST_WITH(test_smaller, NULL, tear_down)
{
    unsigned misses;

    make(1 << 16);
    for (uint64_t b = 0; b < 1000; b++)
        reads(b, 1, false);
    assert_true(w->unread >= GOOD / 2);
    misses = w->misses;
    w->capacity = 16;
    for (uint64_t b = 1000; b < 2000; b++)
        reads(b, 1, false);
    assert_int_equal(w->misses, misses);
    assert_in_range(w->unread, 1, FIRST);
}

/* What was asked for there leaves the cache. */
static void leave_unread(uint64_t from, uint64_t to)
{
    for (uint64_t b = from; b < to; b++)
        if (w->ahead[b]) {
            w->unread--;
            w->ahead[b] = w->cached[b] = false;
            qm_tracks_ended(w->tracks, b, QM_FATE_UNUSED);
        }
}

/* Where a run begins: no strides. */
static uint64_t run_at(uint64_t run)
{
    return 500 * run + run * run % 97;
}

/* Runs of two reads, again and again: soon hardly anything is read ahead.  Of three:
 * the third, and nothing behind it. */
TEST(test_short_runs)
{
    for (unsigned length = 2; length <= 3; length++) {
        unsigned unread = 0;

        make(0);
        for (uint64_t run = 0; run < 2000; run++) {
            for (uint64_t b = 0; b < length; b++)
                reads(run_at(run) + b, 1, false);
            unread += run >= 1000 ? w->unread : 0;
            w->misses = run == 999 ? 0 : w->misses;
            leave_unread(run_at(run), run_at(run) + MOST);
        }
        assert_in_range(unread, 1, 1000 / 4);
        assert_in_range(w->misses, 2000 - 1000 / 4, 2000 + 1000 / 10);
        unmake();
    }
}

/* Reads that adjoin others' by chance, and are not read on, say nothing of a context
 * that reads on and on. */
TEST_WITH(test_chance_beside, set_up, tear_down)
{
    struct rng rng = {5};
    uint64_t at = 0;

    for (unsigned i = 0; i < 2000; i++) {
        read_pairs(&rng, 10);
        leave_unread(DEVICE / 2, DEVICE);
        if (i < 1000)
            continue;
        memset(&w->runs, 0, sizeof w->runs); /* one that reads 40 blocks */
        w->misses = 0;
        for (unsigned k = 0; k < 40; k++)
            reads(at + k, 1, false);
        at += 400;
        if (i >= 1500)
            assert_in_range(w->misses, 1, 2);
    }
}

/* What was asked for counts as unused when that is told, though its stream is forgotten
 * by then: there were many others. */
TEST_WITH(test_told_late, set_up, tear_down)
{
    unsigned before = 0;

    for (uint64_t run = 0; run < 2000; run++) {
        if (run == 1000)
            before = w->asked;
        reads(run_at(run), 1, false);
        reads(run_at(run) + 1, 1, false);
        if (run >= 300)
            leave_unread(run_at(run - 300), run_at(run - 300) + MOST);
    }
    assert_in_range(w->asked - before, 1, 1000 / 8);
}

/* Any calls in any order: nothing is asked for twice, nor beyond the bounds. */
TEST_WITH(test_wild, NULL, tear_down)
{
    struct rng rng = {7};
    uint64_t at[8] = {0};

    make(1000);
    for (unsigned i = 0; i < 200000; i++) {
        unsigned s = (unsigned)rng_below(&rng, 8);
        uint32_t count = 1 + (uint32_t)rng_below(&rng, 5);

        if (rng_below(&rng, 50) == 0)
            at[s] = rng_below(&rng, DEVICE - 2000) + 1000;
        w->efficient = rng_below(&rng, 300);
        reads(at[s], count, rng_below(&rng, 2));
        at[s] += s % 3 == 0 ? count : s % 3 == 1 ? -count : 40;
        if (at[s] < 100 || at[s] >= DEVICE - 100)
            at[s] = DEVICE / 2;
        if (rng_below(&rng, 4) == 0) {
            uint64_t b = rng_below(&rng, DEVICE);

            if (w->ahead[b])
                qm_tracks_ended(w->tracks, b, QM_FATE_UNUSED);
            w->unread -= w->ahead[b];
            w->ahead[b] = w->cached[b] = false;
        }
    }
}
