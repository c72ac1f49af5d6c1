/* SPDX-License-Identifier: BSD-3-Clause */
/* test-memory.c - how memory is divided between blocks and rules: a real cache, and a
 * prefetcher that says what its last rules brought. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/memory.h"

#define MIB   (UINT64_C(1) << 20)
#define BLOCK 16384

enum { ASLEEP = 256 }; /* what rules are given while they sleep */

static struct {
    struct qm_prefetcher base;
    uint64_t limit, used, marginal;
    uint64_t takes; /* at least, unless it is given next to nothing */
} rules;

static void set_memory(struct qm_prefetcher *p, uint64_t bytes)
{
    rules.limit = bytes >= 64 << 10 && bytes < rules.takes ? rules.takes : bytes;
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *out)
{
    *out = (struct qm_mining_stats){
        .rules_bytes =
            rules.used > 0 && rules.used < rules.limit ? rules.used : rules.limit,
        .marginal = rules.marginal,
        .rules_limit = rules.limit,
    };
}

static const struct qm_prefetcher_ops ops = {.set_memory = set_memory, .stats = stats};

static struct qm_cache *cache;
static struct qm_memory memory;
static struct qm_admission admission;
static struct qm_bound bound;

static void begin_with(uint64_t total, bool trades, bool shadow)
{
    const struct qm_cache_config config = {
        .block_size = BLOCK,
        .blocks = qm_cache_blocks_within(total - qm_memory_first_rules(total), BLOCK),
        .prefetch_blocks = 4,
        .prefetch_adapts = true,
        .shards = 1,
        .eviction = "adaptive",
        .shadow = shadow,
    };

    assert_int_equal(qm_cache_new(&config, &cache), 0);
    rules.base.ops = &ops;
    rules.limit = qm_memory_first_rules(total);
    rules.used = rules.marginal = rules.takes = 0;
    qm_admission_init(&admission);
    qm_bound_init(&bound);
    qm_memory_init(&memory, &(struct qm_memory_config){
                                .cache = cache,
                                .prefetcher = &rules.base,
                                .admission = &admission,
                                .bound = &bound,
                                .block_size = BLOCK,
                                .total = total,
                                .rules = qm_memory_first_rules(total),
                                .trades = trades,
                                .simulated = true,
                            });
}

static void begin(uint64_t total, bool trades)
{
    begin_with(total, trades, false);
}

static void end(void)
{
    qm_memory_destroy(&memory);
    qm_admission_destroy(&admission);
    qm_cache_free(cache);
}

static struct qm_memory_stats get(void)
{
    struct qm_memory_stats s;

    qm_memory_get_stats(&memory, &s);
    assert_int_equal(s.rules, rules.limit);
    assert_int_equal(s.blocks, qm_cache_blocks_within(s.total - s.rules, BLOCK));
    assert_int_equal(s.blocks, qm_cache_capacity(cache));
    return s;
}

/* Demands of blocks 0 to `working` by chance, all of them misses or hits. */
static void demand(uint64_t working, unsigned n)
{
    static uint64_t x = 88172645463325252;

    for (unsigned i = 0; i < n; i++) {
        struct qm_lookup found;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        assert_int_equal(qm_cache_demand(cache, x % working, NULL, 0, BLOCK, &found),
                         0);
        if (found.todo == QM_FETCH)
            qm_cache_fill(cache, found.fill, NULL);
    }
}

/* The cache never holds the working set, and each time rules earn `earn` prefetch hits.
 */
static void live(uint64_t working, unsigned earn, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        demand(working, 2000);
        rules.marginal += earn;
        qm_memory_tick(&memory);
        get();
    }
}

static void prefetch(uint64_t block)
{
    struct qm_fill *fill;

    if (qm_cache_prefetch(cache, block, 0, &fill) == 0)
        qm_cache_fill(cache, fill, NULL);
}

/* Times as live() of `hot` blocks; before one read of these in ten, `used` blocks that
 * are prefetched are read, and in one of `waste` (0: never) a block is prefetched that
 * nobody reads.  Returns how often rules were asleep after that. */
static unsigned live_of(uint64_t hot, unsigned used, unsigned waste, unsigned times)
{
    static uint64_t next = UINT64_C(1) << 32;
    unsigned asleep = 0;

    for (unsigned i = 0; i < times; i++) {
        for (unsigned n = 0; n < 200; n++) {
            struct qm_lookup found;

            for (unsigned k = 0; k < used; k++, next++) {
                prefetch(next);
                assert_int_equal(qm_cache_demand(cache, next, NULL, 0, BLOCK, &found),
                                 0);
            }
            if (waste > 0 && n % waste == 0)
                prefetch(next++);
            demand(hot, 10);
        }
        qm_memory_tick(&memory);
        asleep += get().rules == ASLEEP;
    }
    return asleep;
}

static void test_follows_what_is_earned(void **state)
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
    live(6000, 0, 8); /* those of no use at all are not kept */
    assert_true(get().resting);
    end();
}

/* What rules do not fill is the blocks', however much each byte of them earns. */
static void test_unused_is_not_kept(void **state)
{
    begin(32 * MIB, true);
    live(6000, 3000, 200);
    rules.used = 1 * MIB;
    live(6000, 3000, 50);
    assert_in_range(get().rules, 1 * MIB, 2 * MIB);
    end();
}

/* Nothing to decide by, nothing is done. */
static void test_needs_evidence(void **state)
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
    end();
}

/* Readers who were busy, and have gone, are no evidence that nothing is to be earned.
 */
static void test_nobody_reads(void **state)
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
    end();
}

/* A hot set that fits if rules have next to nothing: they give back what they have, and
 * the cache comes to miss nothing.  When more is missed they have the least again, and
 * if that is in vain they sleep longer. */
static void test_sleeps(void **state)
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
    end();
}

/* Rules that take more than they are given when they wake: what they take counts, as
 * get() sees after each tick.  Where another prefetcher takes over while they sleep, it
 * gets what rules get at first. */
static void test_takes_more(void **state)
{
    const uint64_t total = 32 * MIB;
    const uint64_t fits = qm_cache_blocks_within(total - ASLEEP, BLOCK) - 1;
    unsigned changes = 0;

    begin_with(total, true, true);
    rules.takes = 300 << 10;
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
    end();
}

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
    for (unsigned i = 0; i < 2000 && get().resting != resting; i++)
        live(HOT, 0, 1);
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
static void test_rests(void **state)
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
    for (unsigned i = 0; i < 6 && get().resting; i++)
        live(20000, 0, 1);
    assert_true(get().rules > ASLEEP);
    assert_true(admits());
    end();
}

/* A try that reads in vain ends early; not the first bad time, nor a try that saves at
 * least half of what it costs. */
static void test_vain_try_ends_early(void **state)
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
    end();
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
static void test_short_try_says_little(void **state)
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
    assert_false(get().resting);
    end();
}

/* The more that is missed from now on is a reason to try again once, not for ever. */
static void test_tries_once_of_what_grew(void **state)
{
    unsigned asleep;

    begin_try();
    assert_true(live_beside(0, 1, 4) > 0);
    live_of(HOT * 5 / 4, 0, 1, 150); /* a third more is missed than so far */
    live_until(true);
    asleep = live_of(HOT * 5 / 4, 0, 1, 200);
    assert_true(asleep > 150);
    assert_true(memory.patience > 4);
    end();
}

/* Another prefetcher or another size in the middle of a try: what was seen before is
 * not what is judged, and a short time is not enough. */
static void test_another_try_begins_anew(void **state)
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
    end();
}

/* That a plain cache would miss less, as where a hot set just fits without rules, is no
 * first bad time of what prefetching costs. */
static void test_bad_of_another_kind(void **state)
{
    const uint64_t fits = qm_cache_blocks_within(SMALL - ASLEEP, BLOCK) - 1;

    begin_with(SMALL, true, true);
    atomic_store(&admission.thresholds[0], .9F);
    for (unsigned i = 0; i < 100 && !memory.vain; i++)
        live(fits, 0, 1);
    assert_true(memory.vain);
    assert_false(memory.asleep);
    memory.dear = false; /* if it was before */
    assert_int_equal(live_beside(0, 1, 8), 0);
    end();
}

/* A good time between two bad ones: the later is a first one. */
static void test_good_time_between(void **state)
{
    begin(SMALL, true);
    atomic_store(&admission.thresholds[0], .9F);
    for (unsigned i = 0; i < 100 && !memory.dear; i++)
        assert_int_equal(live_beside(0, 1, 1), 0);
    assert_true(memory.dear);
    assert_int_equal(live_beside(3, 0, 60), 0);
    assert_int_equal(live_beside(0, 1, 5), 0);
    end();
}

/* Another prefetcher takes over while nothing is prefetched: it begins anew. */
static void test_rests_with_another(void **state)
{
    begin(SMALL, true);
    live_until(true);
    qm_memory_use(&memory, &rules.base);
    assert_int_equal(get().rules, qm_memory_first_rules(SMALL));
    assert_true(admits());
    end();
}

/* Blocks that are used pay for the rules' places; not where they save next to nothing
 * of a read's time, and not if useless reads cost as much on a busy device: one costs a
 * saved miss at most. */
static void test_rests_by_what_it_saves(void **state)
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
    end();
}

/* Blocks that are prefetched and wait take places, too. */
static void test_rests_by_what_waits(void **state)
{
    begin(SMALL, true);
    rules.used = 1;
    atomic_store(&admission.saved, .1F);
    assert_int_equal(live_beside(1, 0, 150), 0);
    assert_true(live_beside(1, 1, 150) > 50);
    end();
}

/* Of a larger cache, rules that have more are few, too: their table may not be able to
 * have less. */
static void test_few_of_many_rest(void **state)
{
    begin(64 * MIB, true);
    rules.takes = 300 << 10;
    live(20000, 0, 100);
    assert_true(get().resting);
    end();
}

/* Rules that have earned more than the least are cut step by step first. */
static void test_many_rules_do_not_rest(void **state)
{
    begin(SMALL, true);
    rules.takes = 130 << 10;
    assert_true(live_beside(0, 0, 150) == 0);
    end();
}

static void test_resize(void **state)
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
    end();
}

static void test_another_prefetcher(void **state)
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
    end();
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
static void test_another_counts_anew(void **state)
{
    begin(32 * MIB, true);
    for (unsigned i = 0; i < 6; i++)
        decide_once(100000);
    assert_true(get().rules > MIB);
    rules.marginal = 0;
    rules.limit = 0;
    qm_memory_use(&memory, &rules.base);
    decide_once(0);
    decide_once(0);
    assert_int_equal(get().rules, rules.limit);
    assert_int_equal(get().traded, 6);
    end();
}

/* With another size, what was seen before does not decide: neither its counts nor that
 * rules were worth more the last time. */
static void test_resize_counts_anew(void **state)
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
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_what_is_earned),
        cmocka_unit_test(test_unused_is_not_kept),
        cmocka_unit_test(test_needs_evidence),
        cmocka_unit_test(test_nobody_reads),
        cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_takes_more),
        cmocka_unit_test(test_rests),
        cmocka_unit_test(test_vain_try_ends_early),
        cmocka_unit_test(test_short_try_says_little),
        cmocka_unit_test(test_tries_once_of_what_grew),
        cmocka_unit_test(test_another_try_begins_anew),
        cmocka_unit_test(test_bad_of_another_kind),
        cmocka_unit_test(test_good_time_between),
        cmocka_unit_test(test_rests_with_another),
        cmocka_unit_test(test_rests_by_what_it_saves),
        cmocka_unit_test(test_rests_by_what_waits),
        cmocka_unit_test(test_few_of_many_rest),
        cmocka_unit_test(test_many_rules_do_not_rest),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_another_prefetcher),
        cmocka_unit_test(test_another_counts_anew),
        cmocka_unit_test(test_resize_counts_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
