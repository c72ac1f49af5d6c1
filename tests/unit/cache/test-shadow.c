/* SPDX-License-Identifier: BSD-3-Clause */
/* test-shadow.c - the misses that plain LRU would have had, while the cache does
 * something else: against a cache that does just that. */
#include "cache/evict-ghosts.h"
#include "cache/internal.h"
#include "testing.h"

static struct qm_cache *make(uint64_t blocks, unsigned shards, const char *eviction,
                             uint64_t prefetch)
{
    return new_cache(&(struct qm_cache_config){.block_size = 4096,
                                               .blocks = blocks,
                                               .prefetch_blocks = prefetch,
                                               .prefetch_adapts = prefetch > 0,
                                               .shadow = true,
                                               .shards = shards,
                                               .eviction = eviction});
}

static void demand(struct qm_cache *cache, uint64_t block)
{
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(cache, block, NULL, 0, 1, &found), 0);
    if (found.todo == QM_FETCH)
        qm_cache_fill(cache, found.fill, NULL);
}

static void prefetch(struct qm_cache *cache, uint64_t block)
{
    struct qm_fill *fill;

    if (qm_cache_prefetch(cache, block, 0, &fill) == 0)
        qm_cache_fill(cache, fill, NULL);
}

/* A shard of 3136 of 12543 blocks has a directory of 1025, and what is reserved before
 * it grows is for 1024, as all of its like, and a 32nd: from then on it holds no more.
 */
TEST(test_rounding)
{
    struct qm_shadow s;
    const uint64_t made = 5323;

    assert_int_equal(qm_shadow_init(&s, 3136, 12543), 0);
    assert_int_equal(s.capacity, 1025);
    for (uint64_t block = 0; block < 20000; block++)
        qm_shadow_demand(&s, block);
    assert_int_equal(qm_shadow_reserve(&s, made, 4 * made), 0);
    assert_int_equal(qm_shadow_bytes(made, 4 * made), 1056 * QM_GHOST_BYTES + 128);
    for (uint64_t block = 20000; block < 40000; block++)
        qm_shadow_demand(&s, block);
    assert_int_equal(qm_ghosts_count(s.ghosts, 0), 1025);
    qm_shadow_resize(&s, 2 * made, 0);
    assert_int_equal(s.capacity, 1056);
    qm_shadow_destroy(&s);
}

/* A few blocks are wanted often, and many seldom. */
static uint64_t skewed(uint64_t *seed, uint64_t n)
{
    return rnd_below(seed, 1 + rnd_below(seed, 1 + rnd_below(seed, n)));
}

/* Where all blocks are in the sample it is exact, whatever the policy, and whatever is
 * prefetched meanwhile. */
TEST(test_exact)
{
    static const char *const some[] = {"lru", "mru", "arc", "wtinylfu"};

    for (size_t p = 0; p < sizeof(some) / sizeof(some[0]); p++)
        for (uint64_t blocks = 2; blocks <= 400; blocks *= 3) {
            struct qm_cache *lru = make(blocks, 1, "lru", 0);
            struct qm_cache *cache = make(blocks, 1, some[p], 1);
            uint64_t seed = blocks;

            for (uint64_t i = 0; i < 20000; i++) {
                uint64_t block = skewed(&seed, 4 * blocks);

                demand(lru, block);
                demand(cache, block);
                if (rnd_below(&seed, 3) == 0)
                    prefetch(cache, rnd_below(&seed, 4 * blocks));
            }
            /* Hits are told of at the next miss. */
            demand(lru, 1000000);
            demand(cache, 1000000);
            assert_int_equal(stats_of(cache).lru_misses, stats_of(lru).misses);
            assert_int_equal(stats_of(lru).lru_misses, stats_of(lru).misses);
            assert_true(stats_of(lru).hits > 0);
            qm_cache_free(lru);
            qm_cache_free(cache);
        }
}

/* Of a large cache a sample must do. */
TEST(test_sample)
{
    for (unsigned shards = 1; shards <= 16; shards *= 16)
        for (uint64_t most = 30000; most <= 300000; most *= 10) {
            struct qm_cache *cache = make(20000, shards, "lru", 0);
            struct qm_cache_stats s;
            uint64_t seed = most;

            for (uint64_t i = 0; i < 300000; i++)
                demand(cache, skewed(&seed, most));
            s = stats_of(cache);
            assert_in_range(s.lru_misses, s.misses * 97 / 100, s.misses * 103 / 100);
            qm_cache_free(cache);
        }
}

/* The same for less. */
TEST(test_reads)
{
    struct qm_cache *cache = make(1000, 1, "lru", 10);
    struct qm_cache_reads reads;
    struct qm_cache_stats s;
    uint64_t seed = 1;

    for (uint64_t i = 0; i < 10000; i++) {
        demand(cache, skewed(&seed, 5000));
        prefetch(cache, rnd_below(&seed, 5000));
    }
    s = stats_of(cache);
    qm_cache_get_reads(cache, &reads);
    assert_int_equal(reads.device, s.misses + s.prefetches);
    assert_int_equal(reads.lru, s.lru_misses);
    assert_true(reads.lru > 0);
    qm_cache_free(cache);
}

/* A cache that is compared with a larger one also knows the misses of that one: of a
 * loop that just fits there, next to none.  It is larger by a 32nd at most. */
TEST(test_larger)
{
    struct qm_cache *cache = make(1000, 1, "lru", 10);
    struct qm_cache_reads reads;

    qm_cache_compare(cache, 1020);
    for (uint64_t i = 0; i < 10200; i++)
        demand(cache, i % 1020);
    demand(cache, 1000000);
    qm_cache_get_reads(cache, &reads);
    assert_int_equal(reads.lru, 10201);
    assert_int_equal(reads.plain, 1021);
    qm_cache_compare(cache, 2000);
    for (uint64_t i = 0; i < 10310; i++)
        demand(cache, i % 1031);
    qm_cache_get_reads(cache, &reads);
    assert_in_range(reads.plain, 1021 + 11, 1021 + 1031);
    for (uint64_t i = 0; i < 10330; i++) /* one more than fits */
        demand(cache, i % 1033);
    qm_cache_get_reads(cache, &reads);
    assert_true(reads.plain > 10000);
    assert_int_equal(stats_of(cache).lru_misses, reads.lru);
    qm_cache_compare(cache, 0);
    for (uint64_t i = 0; i < 10; i++)
        demand(cache, 2000000 + i);
    assert_int_equal(stats_of(cache).lru_misses, reads.lru + 10);
    qm_cache_free(cache);
}

/* When the sample becomes a smaller one, what was estimated stays. */
TEST(test_larger_keeps_its_misses)
{
    struct qm_shadow s;

    assert_int_equal(qm_shadow_init(&s, 1000, 1000), 0);
    qm_shadow_resize(&s, 1000, 1020);
    for (uint64_t i = 0; i < 10200; i++)
        qm_shadow_demand(&s, i % 1020);
    assert_int_equal(qm_shadow_misses(&s), 10200);
    assert_int_equal(qm_shadow_larger_misses(&s), 1020);
    assert_int_equal(qm_shadow_reserve(&s, 100000, 100000), 0);
    assert_int_equal(qm_shadow_misses(&s), 10200);
    assert_int_equal(qm_shadow_larger_misses(&s), 1020);
    qm_shadow_destroy(&s);
}

/* Who waited in vain and asks again wanted the block once. */
TEST(test_again_counts_once)
{
    struct qm_cache *cache = make(4, 1, "lru", 0);
    struct qm_lookup found;

    for (uint64_t block = 0; block < 100; block++) {
        demand(cache, block);
        demand(cache, block); /* it is there */
        assert_int_equal(qm_cache_demand_again(cache, 1000 + block, NULL, 0, 1, &found),
                         0);
        qm_cache_fail(cache, found.fill);
    }
    demand(cache, 5000);
    assert_int_equal(stats_of(cache).lru_misses, 101);
    qm_cache_free(cache);
}

TEST(test_none)
{
    struct qm_cache_config c = {
        .block_size = 4096, .blocks = 100, .shards = 1, .eviction = "lru"};
    struct qm_cache *cache = new_cache(&c);

    for (uint64_t i = 0; i < 1000; i++)
        demand(cache, i);
    assert_int_equal(stats_of(cache).lru_misses, 0);
    qm_cache_free(cache);
}

/* It counts as memory, and does not grow with the cache for long. */
TEST(test_bytes)
{
    struct qm_cache_config c = {
        .block_size = 4096, .blocks = 2000, .shards = 1, .eviction = "lru"};
    struct qm_cache *without = new_cache(&c), *with;

    c.shadow = true;
    with = new_cache(&c);
    assert_int_equal(stats_of(with).bytes - stats_of(without).bytes,
                     qm_shadow_bytes(2000, 2000));
    assert_true(qm_shadow_bytes(2000, 2000) >= (size_t)2000 * 24);
    assert_true(qm_shadow_bytes(100000, 100000) < (size_t)5000 * QM_GHOST_BYTES);
    assert_true(qm_shadow_bytes(UINT64_C(1) << 32, UINT64_C(1) << 32) <
                (UINT64_C(1) << 26) * (QM_GHOST_BYTES + 1));
    qm_cache_free(without);
    qm_cache_free(with);
}
