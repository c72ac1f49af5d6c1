/* SPDX-License-Identifier: BSD-3-Clause */
/* memory-world.h - for tests of how memory is divided: a real cache, and a prefetcher
 * that says what its last rules brought. */
#ifndef QM_TESTS_ENGINE_MEMORY_WORLD_H
#define QM_TESTS_ENGINE_MEMORY_WORLD_H

#include <errno.h>

#include "tests/harness.h"

#include "engine/memory.h"
#include "proof.h"

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

/* What rules are given that are known to be worth it, and have filled all that they can
 * before they have earned more. */
static uint64_t grown(uint64_t total)
{
    return total / 32 > 64 << 10 ? total / 32 : 64 << 10;
}

static void begin_at(uint64_t total, uint64_t first, bool trades, bool shadow)
{
    const struct qm_cache_config config = {
        .block_size = BLOCK,
        .blocks = qm_cache_blocks_within(total - first, BLOCK),
        .prefetch_blocks = 4,
        .prefetch_adapts = true,
        .shards = 1,
        .eviction = "adaptive",
        .shadow = shadow,
    };

    assert_int_equal(qm_cache_new(&config, &cache), 0);
    rules.base.ops = &ops;
    rules.limit = first;
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
                                .rules = first,
                                .trades = trades,
                                .simulated = true,
                            });
}

static void begin_with(uint64_t total, bool trades, bool shadow)
{
    begin_at(total, grown(total), trades, shadow);
    prove(&bound.watch);
}

static void begin(uint64_t total, bool trades)
{
    begin_with(total, trades, false);
}

static void end(void)
{
    qm_bound_destroy(&bound);
    qm_memory_destroy(&memory);
    qm_admission_destroy(&admission);
    qm_cache_free(cache);
}

static int tear_down(void **state)
{
    end();
    return 0;
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

/* Demands of `working` blocks from `first` on by chance, all of them misses or hits. */
static void demand_from(uint64_t first, uint64_t working, unsigned n)
{
    static uint64_t x = 88172645463325252;

    for (unsigned i = 0; i < n; i++) {
        struct qm_lookup found;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        assert_int_equal(
            qm_cache_demand(cache, first + x % working, NULL, 0, BLOCK, &found), 0);
        if (found.todo == QM_FETCH)
            qm_cache_fill(cache, found.fill, NULL);
    }
}

static void demand(uint64_t working, unsigned n)
{
    demand_from(0, working, n);
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

#endif
