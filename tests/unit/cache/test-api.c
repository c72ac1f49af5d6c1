/* SPDX-License-Identifier: BSD-3-Clause */
/* test-api.c - configuration, the registry of policies, budget and limits. */
#include <pthread.h>

#include "cache/eviction.h"
#include "cache/internal.h"
#include "blocks.h"

static void expect_wrong(struct qm_cache_config c, const char *what)
{
    char err[256] = "untouched", small[8];
    struct qm_cache *cache = NULL;

    assert_int_equal(qm_cache_check(&c, err, sizeof(err)), EINVAL);
    if (!strstr(err, what))
        fail_msg("\"%s\" does not say \"%s\"", err, what);
    assert_int_equal(qm_cache_check(&c, small, sizeof(small)), EINVAL);
    assert_true(memchr(small, '\0', sizeof(small)) != NULL);
    assert_int_equal(qm_cache_check(&c, NULL, 0), EINVAL);
    assert_int_equal(qm_cache_new(&c, &cache), EINVAL);
    assert_null(cache);
}

TEST(test_config)
{
    char err[64] = "untouched";

    assert_int_equal(qm_cache_check(&base, err, sizeof(err)), 0);
    assert_string_equal(err, "");
    expect_wrong(WITH(block_size, 0), "power of two from 512 to 16777216");
    expect_wrong(WITH(block_size, 256), "not 256");
    expect_wrong(WITH(block_size, 5000), "not 5000");
    expect_wrong(WITH(block_size, 32u << 20), "not 33554432");
    expect_wrong(WITH(blocks, 0), "from 1 to ");
    expect_wrong(WITH(blocks, UINT64_MAX), "not 18446744073709551615");
    expect_wrong(WITH(prefetch_blocks, 16), "from 0 to 15, not 16");
    expect_wrong(WITH(prefetch_blocks, UINT64_MAX), "from 0 to 15");
    expect_wrong(WITH(shards, 0), "power of two from 1 to 1024, not 0");
    expect_wrong(WITH(shards, 3), "not 3");
    expect_wrong(WITH(shards, 2048), "not 2048");
    expect_wrong(WITH(eviction, "fifo"), ", wtinylfu, adaptive, not \"fifo\"");
    expect_wrong(WITH(eviction, NULL), "must be one of lru");
    qm_cache_free(NULL);
}

TEST(test_registry)
{
    char all[128] = "";

    for (size_t i = 0; i < POLICIES; i++) {
        const struct qm_evict_ops *ops = qm_evict_find(policies[i]);

        assert_non_null(ops);
        assert_string_equal(ops->name, policies[i]);
        strcat(strcat(all, i ? ", " : ""), policies[i]);
    }
    assert_string_equal(qm_evict_names(), all);
    assert_null(qm_evict_find(""));
    assert_null(qm_evict_find("LRU"));
}

static bool is_early(struct qm_cache *cache, uint64_t block)
{
    struct qm_lookup foreseen, found;

    qm_cache_foresee(cache, block, &foreseen);
    found = demand(cache, block);
    assert_int_equal(found.outcome, QM_HIT);
    assert_int_equal(foreseen.outcome, QM_HIT);
    assert_int_equal(foreseen.early, found.early);
    return found.early;
}

/* The first QM_CACHE_EARLY_HITS hits of a block are early.  It makes no difference if a
 * miss or a prefetch brought it, and when it comes again, the count begins anew. */
TEST(test_early_hits)
{
    struct qm_cache *cache = new_cache(&base);
    struct qm_lookup found;
    struct qm_fill *fill;

    for (int round = 0; round < 20; round++) { /* their memory is used again */
        assert_int_equal(qm_cache_prefetch(cache, 2, 0, &fill), 0);
        qm_cache_foresee(cache, 2, &found);
        assert_int_equal(found.outcome, QM_PREFETCH_HIT);
        assert_false(found.early);
        qm_cache_fill(cache, fill, block_data(2));
        found = demand(cache, 1);
        assert_int_equal(found.outcome, QM_MISS);
        assert_false(found.early);
        qm_cache_fill(cache, found.fill, block_data(1));
        found = demand(cache, 2);
        assert_int_equal(found.outcome, QM_PREFETCH_HIT);
        assert_false(found.early);
        for (unsigned i = 0; i < QM_CACHE_EARLY_HITS; i++) {
            assert_true(is_early(cache, 1));
            assert_true(is_early(cache, 2));
        }
        for (unsigned i = 0; i < 300; i++) {
            assert_false(is_early(cache, 1));
            assert_false(is_early(cache, 2));
        }
        for (uint64_t b = 100; b < 120; b++)
            assert_int_equal(get(cache, b), QM_MISS);
    }
    qm_cache_foresee(cache, 1, &found);
    assert_int_equal(found.outcome, QM_MISS);
    assert_false(found.early);
    qm_cache_free(cache);
}

/* A hit that waits for another reader's fill is one, too; the same demand again is not
 * another. */
TEST(test_early_hit_waits)
{
    struct qm_cache *cache = new_cache(&base);
    struct qm_lookup miss = demand(cache, 1), hit, again;
    unsigned char buf[BLOCK];

    qm_cache_foresee(cache, 1, &hit);
    assert_int_equal(hit.outcome, QM_HIT);
    assert_true(hit.early);
    hit = demand(cache, 1);
    assert_int_equal(hit.todo, QM_WAIT);
    assert_true(hit.early);
    assert_int_equal(qm_cache_demand_again(cache, 1, buf, 0, BLOCK, &again), 0);
    assert_int_equal(again.todo, QM_WAIT);
    assert_false(again.early);
    qm_cache_fail(cache, miss.fill);
    assert_int_equal(qm_cache_wait(cache, hit.fill, buf, 0, BLOCK), EAGAIN);
    assert_int_equal(qm_cache_wait(cache, again.fill, buf, 0, BLOCK), EAGAIN);
    assert_int_equal(get(cache, 1), QM_MISS);
    assert_int_equal(qm_cache_demand_again(cache, 1, buf, 0, BLOCK, &again), 0);
    assert_int_equal(again.outcome, QM_HIT);
    assert_false(again.early);
    for (unsigned i = 0; i < QM_CACHE_EARLY_HITS; i++)
        assert_true(is_early(cache, 1));
    assert_false(is_early(cache, 1));
    qm_cache_free(cache);
}

/* A large cache costs nothing until it is used. */
TEST(test_memory_as_needed)
{
    struct qm_cache_config c = WITH(blocks, UINT64_C(1) << 24);
    struct qm_cache *cache;

    c.shards = 64;
    cache = new_cache(&c);
    assert_true(stats_of(cache).bytes < 4 << 20);
    for (uint64_t b = 0; b < 1000; b++)
        assert_int_equal(get(cache, b), QM_MISS);
    for (uint64_t b = 0; b < 1000; b++)
        assert_int_equal(get(cache, b), QM_HIT);
    assert_true(stats_of(cache).bytes < 192 << 20); /* a huge page a shard */
    qm_cache_free(cache);
}

TEST(test_blocks_within)
{
    uint64_t last = 0;

    assert_int_equal(qm_cache_blocks_within(0, BLOCK), 0);
    assert_int_equal(qm_cache_blocks_within(BLOCK - 1, BLOCK), 0);
    assert_int_equal(qm_cache_blocks_within(BLOCK, BLOCK), 0);
    assert_int_equal(qm_cache_blocks_within(1 << 30, 0), 0);
    assert_int_equal(qm_cache_blocks_within(1 << 30, 64 << 20), 0);
    for (uint64_t bytes = 1 << 16; bytes < UINT64_C(1) << 40; bytes += bytes / 3) {
        uint64_t blocks = qm_cache_blocks_within(bytes, 16384);

        assert_true(blocks >= last);
        assert_true(blocks <= bytes / 16384);
        last = blocks;
    }
    /* What is not data: a tenth at 16 MiB, less later. */
    for (uint64_t blocks = 1; blocks < 100000; blocks += 1 + blocks / 7) {
        uint64_t bytes = qm_cache_footprint(blocks, 4096);
        uint64_t fit = qm_cache_blocks_within(bytes, 4096);

        /* What shards round up to may be more. */
        assert_in_range(fit, blocks, blocks + QM_MAX_SHARDS);
        assert_true(qm_cache_footprint(fit, 4096) <= bytes);
    }
    assert_true(qm_cache_blocks_within(16 << 20, 16384) >= 1024 * 90 / 100);
    assert_true(qm_cache_blocks_within(1 << 30, 16384) >= 65536 * 94 / 100);
    assert_true(qm_cache_blocks_within(UINT64_MAX, 16384) > 0);
}

/* The budget holds for every way to divide the blocks, with all of them in use,
 * whatever comes and goes. */
TEST(test_budget)
{
    static const uint32_t sizes[] = {512, 4096, 16384, 1 << 20};
    static unsigned char data[1 << 20];
    uint64_t seed = 5;

    for (int round = 0; round < 96; round++) {
        uint32_t size = sizes[round / 6 % 4];
        uint64_t budget = (UINT64_C(1) << 20) + rnd_below(&seed, 15 << 20);
        uint64_t blocks = qm_cache_blocks_within(budget, size);

        if (blocks < 1)
            continue;
        struct qm_cache_config c = {
            .block_size = size,
            .blocks = blocks,
            .prefetch_blocks = rnd_below(&seed, 2) ? rnd_below(&seed, blocks) : 0,
            .prefetch_adapts = rnd_below(&seed, 2),
            .shadow = rnd_below(&seed, 2),
            .shards = 1 << rnd_below(&seed, 11),
            .eviction = policies[round % 6],
            .data = true};
        struct qm_cache *cache = new_cache(&c);
        struct qm_fill *held[600];
        size_t n = 0;

        for (uint64_t i = 0; i < blocks * 3 + 2000; i++) {
            uint64_t b = rnd_below(&seed, blocks * 4 + 4);
            struct qm_lookup found = {.todo = QM_DONE};
            struct qm_fill *fill = NULL;
            struct qm_cache_write w;

            switch (rnd_below(&seed, 8)) {
            case 0:
                qm_cache_write_begin(cache, &w, b * size + 10, 2 * (uint64_t)size);
                qm_cache_write_end(cache, &w, QM_WRITE_ZEROS, NULL);
                break;
            case 1:
            case 2:
                (void)qm_cache_prefetch(cache, b, 0, &fill);
                break;
            default:
                if (qm_cache_demand(cache, b, data, 0, 1, &found) == 0)
                    fill = found.fill;
            }
            /* Those who wait for a fill keep its buffer busy. */
            if (fill)
                held[n++] = fill;
            if (found.todo == QM_WAIT) {
                for (size_t k = 0; k < n - 1; k++)
                    qm_cache_fill(cache, held[k], data);
                (void)qm_cache_wait(cache, held[n - 1], data, 0, 1);
                n = 0;
            }
            if (n == 600)
                while (n > 0)
                    qm_cache_fill(cache, held[--n], data);
            if (i % 64 == 0)
                check_identities(cache, budget);
        }
        while (n > 0)
            qm_cache_fill(cache, held[--n], data);
        check_identities(cache, budget);
        qm_cache_free(cache);
    }
}

/* Everything that a budget allows is made, and that is within it: the sum of limits. */
TEST(test_limits_are_exact)
{
    struct qm_cache_config c = WITH(blocks, qm_cache_blocks_within(8 << 20, BLOCK));
    struct qm_cache *cache;
    struct qm_shard *shard;

    c.prefetch_blocks = 0;
    cache = new_cache(&c);
    shard = &cache->shards[0];
    for (uint64_t b = 0; b < 3 * c.blocks; b++)
        get(cache, b);
    pthread_mutex_lock(&shard->lock);
    while (qm_slab_block(shard))
        ;
    for (struct qm_buf *buf; (buf = qm_slab_buf(shard));)
        assert_int_equal((uintptr_t)buf->bytes % 4096, 0);
    pthread_mutex_unlock(&shard->lock);
    assert_int_equal(shard->blocks_made, shard->limits.blocks);
    assert_int_equal(shard->bufs_made, shard->limits.bufs);
    assert_int_equal(shard->buckets, shard->limits.buckets);
    assert_int_equal(shard->bytes, shard->limits.bytes);
    assert_true(stats_of(cache).bytes <= 8 << 20);
    qm_cache_free(cache);
}

/* What a policy keeps beside the blocks counts, whether or not any is there. */
TEST(test_policies_count)
{
    struct qm_cache_config c = WITH(blocks, 4096);
    struct qm_cache *lru = new_cache(&c), *arc;

    c.eviction = "arc";
    arc = new_cache(&c);
    assert_true(qm_evict_find("arc")->bytes_per_block >= 16);
    assert_int_equal(stats_of(arc).bytes - stats_of(lru).bytes,
                     4096 * qm_evict_find("arc")->bytes_per_block);
    qm_cache_free(lru);
    qm_cache_free(arc);
}

/* So does what a share that adapts remembers. */
TEST(test_ghosts_count)
{
    struct qm_cache_config c = WITH(blocks, 4096);
    struct qm_cache *fixed = new_cache(&c), *adapts;

    c.prefetch_adapts = true;
    adapts = new_cache(&c);
    assert_true(qm_balance_bytes(4096) >= (size_t)4096 * 24);
    assert_int_equal(stats_of(adapts).bytes - stats_of(fixed).bytes,
                     qm_balance_bytes(4096));
    qm_cache_free(fixed);
    qm_cache_free(adapts);
}

TEST(test_shards_are_clamped)
{
    assert_int_equal(qm_budget_shards(16, 4, 1024), 1);
    assert_int_equal(qm_budget_shards(1024, 0, 1024), 2);
    assert_int_equal(qm_budget_shards(1 << 20, 0, 64), 64);
    assert_int_equal(qm_budget_shards(1 << 20, 31, 64), 1);
    assert_int_equal(qm_budget_shards(1 << 20, 64, 64), 2);

    struct qm_cache_config c = WITH(blocks, 5000);
    struct qm_cache *cache;
    uint64_t main_capacity = 0, prefetch_capacity = 0;

    c.prefetch_blocks = 201;
    c.shards = 1024;
    cache = new_cache(&c);
    assert_int_equal(cache->shard_count, 4);
    for (unsigned i = 0; i < cache->shard_count; i++) {
        const struct qm_balance *balance = &cache->shards[i].balance;

        main_capacity += balance->blocks - balance->prefetch;
        prefetch_capacity += balance->prefetch;
    }
    assert_int_equal(main_capacity, 4799);
    assert_int_equal(prefetch_capacity, 201);
    for (uint64_t b = 0; b < 30000; b++) {
        struct qm_fill *fill;

        if (b % 3)
            get(cache, b);
        else if (qm_cache_prefetch(cache, b, 0, &fill) == 0)
            qm_cache_fill(cache, fill, block_data(b));
    }
    assert_int_equal(stats_of(cache).main_blocks, 4799);
    assert_int_equal(stats_of(cache).prefetch_blocks, 201);
    check_identities(cache, 0);
    qm_cache_free(cache);
}

TEST(test_parts_of_blocks)
{
    struct qm_cache *cache = new_cache(&base);
    unsigned char data[BLOCK], buf[BLOCK];
    struct qm_lookup found;

    for (int i = 0; i < BLOCK; i++)
        data[i] = i * 31 >> 3;
    assert_int_equal(qm_cache_demand(cache, 3, buf, 100, 10, &found), 0);
    qm_cache_fill(cache, found.fill, data);
    for (int i = 0; i < BLOCK; i += 97) {
        memset(buf, 0xee, BLOCK);
        assert_int_equal(qm_cache_demand(cache, 3, buf, i, BLOCK - i, &found), 0);
        assert_int_equal(found.todo, QM_DONE);
        assert_memory_equal(buf, data + i, BLOCK - i);
        if (i > 0)
            assert_int_equal(buf[BLOCK - i], 0xee);
    }
    qm_cache_free(cache);
}

/* The extremes of block numbers are numbers like others. */
TEST(test_block_numbers)
{
    static const uint64_t numbers[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
                                       UINT64_C(1) << 63};
    struct qm_cache *cache = new_cache(&base);

    for (int i = 0; i < 5; i++) {
        assert_false(qm_cache_contains(cache, numbers[i]));
        assert_int_equal(get(cache, numbers[i]), QM_MISS);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(get(cache, numbers[i]), QM_HIT);
    qm_cache_free(cache);
}
