/* SPDX-License-Identifier: BSD-3-Clause */
/* test-memory.c - how memory is divided between blocks and rules. */
#include <errno.h>

#include "engine/memory-counts.h"
#include "memory-world.h"

/* What the cache says of a larger one may be turned round. */
static double gain_sign = 1;

void __wrap_qm_cache_get_reads(struct qm_cache *cache, struct qm_cache_reads *reads);
void __real_qm_cache_get_reads(struct qm_cache *cache, struct qm_cache_reads *reads);

void __wrap_qm_cache_get_reads(struct qm_cache *of, struct qm_cache_reads *reads)
{
    __real_qm_cache_get_reads(of, reads);
    reads->gain *= gain_sign;
}

TEST_WITH(test_follows_what_is_earned, NULL, tear_down)
{
    uint64_t total = 32 * MIB;

    begin(total, true);
    assert_int_equal(get().rules, total / 32);
    live(6000, 3000, 200);
    assert_int_equal(get().rules, total / 4);
    assert_int_equal(live_of(6000, 1, 0, 200), 0);
    assert_int_equal(get().rules, 64 << 10);
    assert_true(get().traded > 10);
    assert_false(get().resting);
    live(6000, 0, 10); /* those of no use at all are not kept */
    assert_true(get().resting);
}

/* What rules do not fill is the blocks', however much each byte of them earns. */
TEST_WITH(test_unused_is_not_kept, NULL, tear_down)
{
    begin(32 * MIB, true);
    live(6000, 3000, 200);
    rules.used = 1 * MIB;
    live(6000, 3000, 50);
    assert_in_range(get().rules, 1 * MIB, 2 * MIB);
}

/* Nothing to decide by, nothing is done. */
TEST_WITH(test_needs_evidence, NULL, tear_down)
{
    begin(32 * MIB, true);
    for (unsigned i = 0; i < 1008; i++) /* a multiple of QUIET */
        qm_memory_tick(&memory);
    assert_int_equal(get().traded, 0);
    demand(100, 100000); /* all of it fits */
    for (unsigned i = 0; i < 15; i++)
        qm_memory_tick(&memory);
    assert_int_equal(get().rules, 1 * MIB);
    for (unsigned i = 0; i < 16; i++)
        qm_memory_tick(&memory);
    assert_int_equal(get().rules, MIB / 2);
    for (unsigned i = 0; i < 1000; i++) /* and then nobody reads */
        qm_memory_tick(&memory);
    assert_int_equal(get().rules, MIB / 2);
    end();
    begin(32 * MIB, false); /* nor where rules have a fixed part */
    live(6000, 3000, 50);
    assert_int_equal(get().traded, 0);
}

/* Readers who were busy, and have gone, are no evidence that nothing is to be earned.
 */
TEST_WITH(test_nobody_reads, NULL, tear_down)
{
    uint64_t traded;

    begin(32 * MIB, true);
    live(6000, 3000, 200);
    assert_int_equal(get().rules, 8 * MIB);
    traded = get().traded;
    for (unsigned i = 0; i < 1000; i++)
        qm_memory_tick(&memory);
    assert_int_equal(get().rules, 8 * MIB);
    assert_int_equal(get().traded, traded);
}

/* A hot set that fits if rules have next to nothing: they give back what they have, and
 * the cache comes to miss nothing.  When more is missed they have the least again, and
 * if that is in vain they sleep longer. */
TEST_WITH(test_sleeps, NULL, tear_down)
{
    const uint64_t total = 32 * MIB, least = 64 << 10;
    const uint64_t fits = qm_cache_blocks_within(total - ASLEEP, BLOCK) - 1;
    struct qm_cache_stats before, after;
    unsigned asleep = 0, awake = 0;

    begin_with(total, true, true);
    live(fits, 0, 20);
    assert_int_equal(get().rules, ASLEEP);
    qm_cache_get_stats(cache, &before);
    live(fits, 0, 100);
    qm_cache_get_stats(cache, &after);
    assert_int_equal(get().rules, ASLEEP);
    assert_true(after.misses - before.misses < 20);
    /* A tenth more does not fit at all. */
    for (unsigned i = 0; i < 1000; i++) {
        live(fits * 11 / 10, 0, 1);
        asleep += get().rules == ASLEEP;
        awake += get().rules == least;
    }
    assert_true(awake > 100);
    for (unsigned i = 0; i < 100; i++) { /* and where they are of use, they grow */
        live_of(20000, 1, 0, 1);
        rules.marginal += 1000;
    }
    assert_true(get().rules > least);
    end();
    begin(total, true); /* without a shadow nobody knows */
    live(fits, 0, 100);
    assert_true(get().rules >= least);
}

/* What is hot moves again and again, but all of it would fit twice.  For a time that
 * makes plainly more misses than LRU has; but not since rules took a block, so they do
 * not give way for it. */
TEST_WITH(test_eviction_is_to_blame, NULL, tear_down)
{
    const uint64_t total = 32 * MIB;
    struct qm_cache_reads reads = {.device = 0};
    unsigned worse = 0;

    begin_with(total, true, true);
    live(20000, 0, 3); /* so that something was decided before */
    qm_cache_get_reads(cache, &reads);
    for (uint64_t hot = 1; hot < 40; hot++) {
        const uint64_t misses = reads.misses, plain = reads.plain;

        demand_from(hot << 32, qm_cache_capacity(cache) / 2, 3000);
        qm_memory_tick(&memory);
        qm_cache_get_reads(cache, &reads);
        worse += reads.misses - misses > (reads.plain - plain) * 9 / 8 + 32;
        assert_true(get().rules >= grown(total) / 2);
    }
    assert_true(worse > 0);
}

/* Where a plain cache misses much, too, either what rules took or what was prefetched
 * must be why ours misses more. */
TEST(test_vain_for_a_reason)
{
    struct qm_memory_counts c = {
        .misses = 1200,
        .plain = 1000,
        .lru = 1000,
        .compared = true,
        .demands = 4000,
    };

    assert_false(qm_memory_is_vain(&c, 8, 32));
    c.lru = 1099;
    assert_false(qm_memory_is_vain(&c, 8, 32));
    c.placed = 1;
    assert_true(qm_memory_is_vain(&c, 8, 32));
    c.misses = 1150; /* too few more to say anything */
    assert_false(qm_memory_is_vain(&c, 8, 32));
    c.misses = 1200;
    c.lru = c.plain - 1; /* what a sample says is rounded */
    c.placed = 100;
    assert_false(qm_memory_is_vain(&c, 8, 32));
    c.demands = 4004; /* it misses less than a quarter */
    assert_true(qm_memory_is_vain(&c, 8, 32));
}

/* What is taken from the cache is known: a plain cache of what is left misses more, and
 * prefetched blocks take places. */
TEST_WITH(test_what_is_taken, NULL, tear_down)
{
    struct qm_memory_counts c;
    uint64_t loop;

    begin_with(32 * MIB, true, true);
    loop = qm_cache_capacity(cache) * 65 / 64;
    for (uint64_t i = 0; i < 2 * loop; i++)
        demand_from(i % loop, 1, 1);
    c = qm_memory_count(&memory);
    assert_int_equal(c.plain, loop);
    assert_int_equal(c.lru, 2 * loop);
    assert_int_equal(c.placed, 0);
    for (uint64_t i = 1; i <= 100; i++) /* the first half leaves, the other is read */
        prefetch(i << 32);
    for (uint64_t i = 100; i > 0; i--)
        demand_from(i << 32, 1, 1);
    c = qm_memory_count(&memory);
    assert_true(c.wasted > 0 && c.hits > 0);
    assert_int_equal(c.placed, c.wasted + c.hits);
    memory.watching = true; /* what is watched took no place */
    assert_int_equal(qm_memory_count(&memory).wasted, 0);
    assert_int_equal(qm_memory_count(&memory).placed, c.placed);
    memory.watching = false;
}

/* Rules that take more than they are given when they wake: what they take counts, as
 * get() sees after each tick.  Where another prefetcher takes over while they sleep, it
 * gets what rules get at first. */
TEST_WITH(test_takes_more, NULL, tear_down)
{
    const uint64_t total = 32 * MIB;
    const uint64_t fits = qm_cache_blocks_within(total - ASLEEP, BLOCK) - 1;
    unsigned changes = 0;

    begin_with(total, true, true);
    rules.takes = 200 << 10;
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t before = get().rules;

        live(fits * 11 / 10, 0, 1);
        changes += before == ASLEEP && get().rules == rules.takes;
    }
    assert_true(changes > 1);
    live(fits, 0, 300);
    assert_int_equal(get().rules, ASLEEP);
    qm_memory_use(&memory, &rules.base);
    assert_int_equal(get().rules, qm_memory_first_rules(total));
    assert_false(memory.asleep);
}

/* Rules begin with about the least that their table takes, and fill more as long as
 * much is missed, or would be without prefetching. */
TEST_WITH(test_young_rules_fill, NULL, tear_down)
{
    const uint64_t total = 32 * MIB, first = qm_memory_first_rules(total);
    uint64_t then;

    begin_at(total, first, true, true);
    assert_in_range(first, total / 128, total / 64);
    rules.used = first / 2; /* they do not fill it */
    live(20000, 0, 2);
    assert_int_equal(get().rules, first);
    rules.used = 0;
    live(20000, 0, 1);
    assert_true(get().rules > first);
    live(20000, 0, 3);
    assert_int_equal(get().rules, total / 32);
    end();
    begin_at(total, first, true, true);
    demand(1800, 100000);
    qm_memory_tick(&memory);
    live(1800, 0, 2); /* next to nothing is missed */
    assert_true(get().rules <= first);
    end();
    begin_at(total, first, true, true);
    prove(&bound.watch); /* nor are they worth it then */
    demand(1000, 100000);
    live(1000, 0, 4);
    assert_int_equal(get().rules, first);
    assert_int_equal(live_of(1000, 1, 0, 1), 0); /* a read in eleven was prefetched, */
    assert_int_equal(get().rules, first);
    assert_int_equal(live_of(1000, 2, 0, 1), 0); /* and one in six */
    then = get().rules;
    assert_in_range(then, first + 1, total / 32 - 1);
    live(1000, 0, 2); /* which is over */
    assert_int_equal(get().rules, then);
    assert_int_equal(live_of(1000, 2, 0, 4), 0);
    assert_int_equal(get().rules, total / 32);
}

/* If next to nothing is missed when the cache is full, and rules are not known to be
 * worth it, they sleep at once; until as many are missed as show that it does not fit.
 * After that they do not sleep for this again. */
TEST_WITH(test_young_rules_give_way, NULL, tear_down)
{
    const uint64_t total = 32 * MIB, first = qm_memory_first_rules(total);
    const uint64_t fits = qm_cache_blocks_within(total - ASLEEP, BLOCK) - 1;
    struct qm_cache_stats then;

    begin_at(total, first, true, true);
    rules.used = first / 2;
    live(fits, 0, 12);
    assert_int_equal(get().rules, ASLEEP);
    live(fits, 0, 100);
    assert_int_equal(get().rules, ASLEEP);
    qm_cache_get_stats(cache, &then);
    assert_in_range(then.misses, fits, fits + fits / 32);
    live(fits * 6 / 5, 0, 1);
    assert_int_equal(get().rules, first);
    live(fits, 0, 8);
    assert_true(get().rules > ASLEEP);
    end();
    begin_at(total, first, true, true); /* known to be worth it */
    prove(&bound.watch);
    rules.used = first / 2;
    live(fits, 0, 12);
    assert_true(get().rules >= first);
}

TEST_WITH(test_resize, NULL, tear_down)
{
    begin(32 * MIB, true);
    live(6000, 3000, 200);
    assert_int_equal(qm_memory_resize(&memory, 8 * MIB), 0);
    assert_int_equal(get().total, 8 * MIB);
    assert_int_equal(get().rules, 2 * MIB);
    assert_int_equal(qm_memory_resize(&memory, 64 * MIB), 0);
    assert_int_equal(get().rules, 16 * MIB);
    assert_int_equal(qm_memory_resize(&memory, 1000), EINVAL);
    assert_int_equal(get().total, 64 * MIB);
    live(6000, 0, 100);
    assert_true(get().rules < 12 * MIB);
}

TEST_WITH(test_another_prefetcher, NULL, tear_down)
{
    static const struct qm_prefetcher_ops fixed = {.stats = stats};
    struct qm_prefetcher other = {&fixed};

    begin(32 * MIB, true);
    qm_memory_use(&memory, &other);
    live(6000, 3000, 50);
    assert_int_equal(get().traded, 0);
    rules.limit = 0;
    qm_memory_use(&memory, &rules.base);
    assert_int_equal(get().rules, MIB);
    live(6000, 3000, 200);
    assert_int_equal(get().rules, 8 * MIB);
}

/* One decision, for which there are events enough. */
static void decide_once(unsigned earn)
{
    demand(6000, 60000);
    rules.marginal += earn;
    qm_memory_tick(&memory);
}

/* Another prefetcher has brought nothing yet: two decisions, and its rules give way.
 * What the one before had brought is no part of that. */
TEST_WITH(test_another_counts_anew, NULL, tear_down)
{
    uint64_t before;

    begin(32 * MIB, true);
    for (unsigned i = 0; i < 6; i++)
        decide_once(100000);
    assert_true(get().rules > MIB);
    rules.marginal = 0;
    rules.limit = 0;
    qm_memory_use(&memory, &rules.base);
    before = get().rules;
    decide_once(0);
    decide_once(0);
    assert_true(get().rules < before);
    assert_int_equal(get().rules, rules.limit);
    assert_int_equal(get().traded, 6);
}

/* One decision, where a byte of the rules is worth `ratio` times one of the cache, a
 * third of whose misses prefetching saves.  What either is worth: decide_busy(). */
static void decide_at(double ratio)
{
    static uint64_t next = UINT64_C(1) << 40;
    struct qm_cache_reads before, after;
    double misses, hits, of_blocks;

    qm_cache_get_reads(cache, &before);
    for (unsigned i = 0; i < 4000; i++, next++) {
        struct qm_lookup found;

        prefetch(next);
        assert_int_equal(qm_cache_demand(cache, next, NULL, 0, BLOCK, &found), 0);
        demand(6000, 3);
    }
    qm_cache_get_reads(cache, &after);
    misses = (double)(after.misses - before.misses);
    hits = (double)(after.prefetch_hits - before.prefetch_hits);
    of_blocks = (after.gain - before.gain) * misses / (misses + hits) *
                QM_CACHE_GAIN_PART / ((double)qm_cache_capacity(cache) * BLOCK);
    rules.marginal += (uint64_t)(ratio * of_blocks * (double)rules.limit / (8 * .3));
    qm_memory_tick(&memory);
}

/* Memory changes hands where a byte is worth a quarter more on the other side, twice in
 * a row. */
TEST_WITH(test_margin, NULL, tear_down)
{
    begin(32 * MIB, true);
    for (unsigned i = 0; i < 4; i++) {
        decide_at(1.2);
        decide_at(1 / 1.2);
    }
    assert_int_equal(get().traded, 0);
    for (unsigned i = 0; i < 3; i++) {
        decide_at(1.3);
        decide_at(1 / 1.3);
    }
    assert_int_equal(get().traded, 0);
    decide_at(1.3);
    decide_at(1.3);
    assert_int_equal(get().traded, 1);
    assert_int_equal(get().rules, MIB + MIB / 8);
    decide_at(1 / 1.3);
    decide_at(1 / 1.3);
    assert_int_equal(get().traded, 2);
    assert_true(get().rules < MIB);
}

/* With another size, what was seen before does not decide: neither its counts nor that
 * rules were worth more the last time. */
TEST_WITH(test_resize_counts_anew, NULL, tear_down)
{
    const uint64_t total = 40 * MIB;
    uint64_t rules_then;

    begin(32 * MIB, true);
    decide_once(100000);
    demand(6000, 60000);
    rules.marginal += 100000;
    assert_int_equal(qm_memory_resize(&memory, total), 0);
    rules_then = get().rules;
    qm_memory_tick(&memory);
    assert_int_equal(get().rules, rules_then);
    decide_once(100000);
    assert_int_equal(get().rules, rules_then);
    decide_once(100000);
    assert_true(get().rules > rules_then);
}

/* A sample of demands by which a larger cache would have hit less says so by chance,
 * and rules that earn nothing get no memory by that. */
TEST_WITH(test_nothing_is_not_earned, NULL, tear_down)
{
    gain_sign = -1;
    begin(32 * MIB, true);
    live(6000, 0, 50);
    gain_sign = 1;
    assert_int_equal(get().rules, MIB);
    end();
    begin(32 * MIB, true);
    live(6000, 0, 50);
    assert_true(get().rules < MIB);
}
