/* SPDX-License-Identifier: BSD-3-Clause */
/* test-memory-rest.c - prefetching rests where it costs more than it saves. */
#include <errno.h>

#include "engine/memory-counts.h"
#include "memory-world.h"

/* A cache of 278 blocks, if rules have none, whose readers read 350 by chance: a block
 * more or less shows, so that the four that rules have are dear. */
#define SMALL (300 * (uint64_t)BLOCK)
enum { HOT = 350 };

static unsigned live_beside(unsigned used, unsigned waste, unsigned times)
{
    return live_of(HOT, used, waste, times);
}

static void live_until(bool resting)
{
    for (unsigned i = 0; i < 2000 && get().resting != resting; i++) {
        live(HOT, 0, 1);
        if (!resting && memory.watching)
            show_uses(&bound.watch, 100);
    }
    assert_true(get().resting == resting);
}

static bool admits(void)
{
    return qm_bound_admits(&bound, cache, true) ||
           qm_bound_admits(&bound, cache, false);
}

/* Nothing that is prefetched is used, and the rules' blocks would be: nothing is
 * prefetched any more, for longer and longer, but it is tried again.  When much more is
 * missed that is soon. */
TEST_WITH(test_rests, NULL, tear_down)
{
    unsigned asleep;

    begin(SMALL, true);
    for (unsigned i = 0; i < 100 && get().rules >= 128 << 10; i++)
        live(HOT, 0, 1);
    live(HOT, 0, 16); /* once is not enough */
    assert_true(admits());
    live(HOT, 0, 16);
    assert_false(admits());
    asleep = live_beside(0, 0, 1000);
    assert_in_range(asleep, 850, 985);
    live_until(false);
    assert_true(admits());
    live(HOT, 0, 16); /* this time it is */
    assert_false(admits());
    assert_true(memory.patience > 8);
    for (unsigned i = 0; i < 6 && !memory.watching; i++)
        live(20000, 0, 1);
    assert_true(get().rules > ASLEEP);
    assert_false(admits());
    live_until(false);
    assert_true(admits());
}

/* A try that reads in vain ends early; not the first bad time, nor a try that saves at
 * least half of what it costs. */
TEST_WITH(test_vain_try_ends_early, NULL, tear_down)
{
    begin(SMALL, true);
    atomic_store(&admission.thresholds[0], .9F);
    for (unsigned i = 0; i < 100 && get().rules >= 128 << 10; i++)
        live(HOT, 0, 1);
    assert_int_equal(live_beside(0, 1, 8), 0);
    live_until(true);
    live_until(false);
    assert_int_equal(live_beside(1, 1, 5), 0);
    assert_true(live_beside(1, 1, 12) > 0);
    live_until(false);
    assert_int_equal(live_beside(0, 50, 6), 0); /* little is read in vain */
    live_until(true);
    live_until(false);
    assert_int_equal(live_beside(0, 1, 4), 3);
}

/* A cache in the middle of a try, whose useless reads cost as much as a miss. */
static void begin_try(void)
{
    begin(SMALL, true);
    atomic_store(&admission.thresholds[0], .9F);
    live_until(true);
    live_until(false);
}

/* A try that ended early saw so few demands that they say nothing of how much is missed
 * at other times: that it was less is no reason to try again at once. */
TEST_WITH(test_short_try_says_little, NULL, tear_down)
{
    unsigned patience;

    begin_try();
    assert_true(live_of(HOT * 6 / 7, 0, 1, 4) > 0);
    patience = memory.patience;
    assert_true(patience >= 4);
    live(HOT, 0, 32);
    assert_true(get().resting);
    assert_int_equal(memory.patience, patience);
    /* More than before the try is one, and each time more is. */
    live(20000, 0, 4);
    assert_true(memory.watching);
}

/* The more that is missed from now on is a reason to try again once, not for ever. */
TEST_WITH(test_tries_once_of_what_grew, NULL, tear_down)
{
    unsigned asleep;

    begin_try();
    assert_true(live_beside(0, 1, 4) > 0);
    live_of(HOT * 5 / 4, 0, 1, 150); /* a third more is missed than so far */
    live_until(true);
    asleep = live_of(HOT * 5 / 4, 0, 1, 200);
    assert_true(asleep > 150);
    assert_true(memory.patience > 4);
}

/* Another prefetcher or another size in the middle of a try: what was seen before is
 * not what is judged, and a short time is not enough. */
TEST_WITH(test_another_try_begins_anew, NULL, tear_down)
{
    begin_try();
    live_beside(0, 1, 1);
    qm_memory_use(&memory, &rules.base);
    assert_int_equal(live_beside(0, 1, 8), 0);
    end();
    begin_try();
    live_beside(0, 1, 1);
    assert_int_equal(qm_memory_resize(&memory, SMALL + 2 * BLOCK), 0);
    assert_int_equal(live_beside(0, 1, 8), 0);
    end();
    begin_try();
    live_beside(0, 1, 1);
    assert_int_equal(qm_memory_resize(&memory, 1000), EINVAL); /* changes nothing */
    assert_true(live_beside(0, 1, 2) > 0);
}

/* That a plain cache would miss less, as where a hot set just fits without rules, is no
 * first bad time of what prefetching costs. */
TEST_WITH(test_bad_of_another_kind, NULL, tear_down)
{
    const uint64_t fits = qm_cache_blocks_within(SMALL - ASLEEP, BLOCK) - 1;

    begin_with(SMALL, true, true);
    atomic_store(&admission.thresholds[0], .9F);
    for (unsigned i = 0; i < 100 && !memory.vain; i++) {
        memory.dear = false; /* if it was before */
        live(fits, 0, 1);
    }
    assert_true(memory.vain);
    assert_false(memory.asleep);
    /* Until it decides.  With a working set this large a plain cache would miss about
     * as much, so this is no second vain time. */
    for (unsigned i = 0; i == 0 || memory.ticks > 0; i++) {
        assert_int_equal(live_of(2 * HOT, 0, 1, 1), 0);
        assert_true(i < 50);
    }
    assert_true(memory.dear);
    assert_true(live_of(2 * HOT, 0, 1, 20) > 0);
}

/* A good time between two bad ones: the later is a first one. */
TEST_WITH(test_good_time_between, NULL, tear_down)
{
    begin(SMALL, true);
    atomic_store(&admission.thresholds[0], .9F);
    for (unsigned i = 0; i < 100 && !memory.dear; i++)
        assert_int_equal(live_beside(0, 1, 1), 0);
    assert_true(memory.dear);
    assert_int_equal(live_beside(3, 0, 60), 0);
    assert_int_equal(live_beside(0, 1, 5), 0);
}

/* Whether it should be tried again is watched, without a read: if what is watched would
 * not have paid, or no more than it costs, rules sleep on, soon if that is plain; else
 * it is tried. */
TEST_WITH(test_watches_before_a_try, NULL, tear_down)
{
    const uint32_t horizons[2] = {1, 1};
    struct qm_watch_end ends[QM_WATCH_ENDS];
    unsigned watched = 0;

    begin(SMALL, true);
    atomic_store(&admission.thresholds[0], .9F);
    live_until(true);
    for (unsigned i = 0; i < 2000 && !memory.watching; i++)
        live(HOT, 0, 1);
    assert_true(memory.watching && get().resting);
    assert_false(admits());
    assert_true(qm_bound_watches(&bound, true) && qm_bound_watches(&bound, false));
    for (; memory.watching; watched++) {
        for (uint64_t i = 0; i < 40; i++) { /* of no use */
            qm_watch_add(&bound.watch, i, 0, false);
            (void)qm_watch_missed(&bound.watch, 1000, 0, horizons, ends);
        }
        live(HOT, 0, 1);
    }
    assert_true(watched <= 3);
    assert_true(get().resting);
    assert_int_equal(get().rules, ASLEEP);
    assert_false(qm_bound_watches(&bound, true));
    for (unsigned i = 0; i < 2000 && !memory.watching; i++)
        live(HOT, 0, 1);
    for (watched = 0; memory.watching; watched++) {
        show_uses(&bound.watch, 1);
        live(HOT, 0, 1);
    }
    assert_true(watched > 8); /* not plainly of no use */
    assert_true(get().resting);
    for (unsigned i = 0; i < 2000 && !memory.watching; i++)
        live(HOT, 0, 1);
    show_uses(&bound.watch, 100);
    live(HOT, 0, 2);
    assert_false(get().resting);
    assert_true(admits());
}

/* Another prefetcher takes over while nothing is prefetched: it begins anew. */
TEST_WITH(test_rests_with_another, NULL, tear_down)
{
    begin(SMALL, true);
    live_until(true);
    qm_memory_use(&memory, &rules.base);
    assert_int_equal(get().rules, qm_memory_first_rules(SMALL));
    assert_true(admits());
    live_until(true);
    for (unsigned i = 0; i < 2000 && !memory.watching; i++)
        live(HOT, 0, 1);
    qm_memory_use(&memory, &rules.base);
    assert_false(memory.watching);
    assert_true(admits());
}

/* Blocks that are used pay for the rules' places; not where they save next to nothing
 * of a read's time, and not if useless reads cost as much on a busy device: one costs a
 * saved miss at most. */
TEST_WITH(test_rests_by_what_it_saves, NULL, tear_down)
{
    begin(SMALL, true);
    assert_int_equal(live_beside(1, 0, 150), 0);
    atomic_store(&admission.saved, .02F);
    assert_true(live_beside(1, 0, 150) > 50);
    end();
    begin(SMALL, true);
    assert_int_equal(live_beside(1, 1, 150), 0);
    atomic_store(&admission.thresholds[0], .9F);
    assert_int_equal(live_beside(1, 4, 150), 0);
    assert_true(live_beside(1, 1, 150) > 50);
}

/* Places that seem to earn less than nothing do not pay for useless reads. */
TEST(test_places_pay_for_nothing)
{
    const struct qm_memory m = {
        .config.block_size = BLOCK, .held = 8, .price = 1, .ticks = 1};
    struct qm_memory_counts c = {
        .gain = -100, .wasted = 10, .saved = 5, .rules_bytes = 1 << 20};

    assert_true(qm_memory_is_dear(&m, &c, 1000, 1));
    c.saved = 20;
    assert_false(qm_memory_is_dear(&m, &c, 1000, 1));
    c.gain = 100;
    assert_true(qm_memory_is_dear(&m, &c, 1000, 1));
}

/* Blocks that are prefetched and wait take places, too. */
TEST_WITH(test_rests_by_what_waits, NULL, tear_down)
{
    begin(SMALL, true);
    rules.used = 1;
    atomic_store(&admission.saved, .1F);
    assert_int_equal(live_beside(1, 0, 150), 0);
    assert_true(live_beside(1, 1, 150) > 50);
}

/* Of a larger cache, rules that have more are few, too: their table may not be able to
 * have less. */
TEST_WITH(test_few_of_many_rest, NULL, tear_down)
{
    begin(64 * MIB, true);
    rules.takes = 300 << 10;
    live(20000, 0, 100);
    assert_true(get().resting);
}

/* Rules that have earned more than the least are cut step by step first. */
TEST_WITH(test_many_rules_do_not_rest, NULL, tear_down)
{
    begin(SMALL, true);
    rules.takes = 130 << 10;
    assert_true(live_beside(0, 0, 150) == 0);
}
