/* SPDX-License-Identifier: BSD-3-Clause */
/* test-resize.c - a cache that grows and shrinks, one thread at a time: what stays,
 * what it takes, what is given back.  test-threads.c does it with many. */
#include <stdio.h>
#include <unistd.h>

#include "testing.h"
#include "tests/resident.h"

#define BLOCK 16384

/* A sanitizer keeps memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QM_SANITIZED true
#else
#define QM_SANITIZED false
#endif

static const struct qm_cache_config config = {
    .block_size = BLOCK,
    .blocks = 2000,
    .shards = 1,
    .eviction = "lru",
    .data = true,
};

static void fill_with(unsigned char *buf, uint64_t block)
{
    memset(buf, (int)(block * 7 % 251), BLOCK);
}

/* Returns whether it was there; its bytes must be right. */
static bool demand_of(struct qm_cache *cache, uint64_t block, bool with_data)
{
    static unsigned char buf[BLOCK], data[BLOCK];
    struct qm_lookup found;

    if (with_data)
        fill_with(data, block);
    assert_int_equal(qm_cache_demand(cache, block, buf, 0, BLOCK, &found), 0);
    if (found.todo == QM_FETCH) {
        assert_true(qm_cache_fill(cache, found.fill, data));
        return false;
    }
    assert_int_equal(found.todo, QM_DONE);
    if (with_data)
        assert_memory_equal(buf, data, BLOCK);
    return true;
}

static bool demand(struct qm_cache *cache, uint64_t block)
{
    return demand_of(cache, block, true);
}

static void resize(struct qm_cache *cache, uint64_t blocks)
{
    assert_int_equal(qm_cache_resize(cache, blocks), 0);
    assert_int_equal(qm_cache_capacity(cache), blocks);
}

/* The last that were used stay, with their bytes, wherever in memory they were; and the
 * order among them is what it was. */
TEST(test_the_latest_stay)
{
    struct qm_cache *cache = new_cache(&config);
    uint64_t seed = 1, order[2000];

    for (uint64_t b = 0; b < 2000; b++)
        order[b] = b;
    for (uint64_t i = 1999; i > 0; i--) {
        uint64_t k = rnd_below(&seed, i + 1), was = order[i];

        order[i] = order[k];
        order[k] = was;
    }
    for (uint64_t b = 0; b < 2000; b++)
        demand(cache, b);
    for (uint64_t i = 0; i < 2000; i++)
        assert_true(demand(cache, order[i]));
    resize(cache, 700);
    for (uint64_t i = 0; i < 2000; i++)
        assert_int_equal(qm_cache_contains(cache, order[i]), i >= 1300);
    for (uint64_t b = 5000; b < 5100; b++)
        assert_false(demand(cache, b));
    for (uint64_t i = 1300; i < 2000; i++)
        assert_int_equal(qm_cache_contains(cache, order[i]), i >= 1400);
    for (uint64_t i = 1400; i < 2000; i++)
        assert_true(demand(cache, order[i]));
    resize(cache, 1000);
    for (uint64_t b = 6000; b < 6300; b++)
        assert_false(demand(cache, b));
    assert_int_equal(stats_of(cache).main_blocks, 1000);
    for (uint64_t i = 1400; i < 2000; i++)
        assert_true(demand(cache, order[i]));
    qm_cache_free(cache);
}

/* 64 MiB, then 8, then 64, then 2: within the budget each time, and the memory is the
 * system's again. */
TEST(test_memory_is_given_back)
{
    static const uint64_t budgets[] = {64, 8, 64, 2};
    uint64_t full = 0, budget = 64 << 20;
    struct qm_cache_config c = config;
    struct qm_cache *cache;

    c.blocks = qm_cache_blocks_within(budget, BLOCK);
    c.prefetch_blocks = c.blocks / 16;
    c.prefetch_adapts = true;
    c.shadow = true;
    c.eviction = "adaptive";
    cache = new_cache(&c);
    for (size_t i = 0; i < 4; i++) {
        budget = budgets[i] << 20;
        if (i > 0) {
            uint64_t blocks = qm_cache_resize_within(cache, budget);

            assert_in_range(blocks, budget / BLOCK * 8 / 10, budget / BLOCK);
            resize(cache, blocks);
            assert_true(stats_of(cache).bytes <= budget);
        }
        if (i % 2 == 1 && !QM_SANITIZED)
            assert_true(resident() + ((56 << 20) * UINT64_C(9) / 10) < full);
        for (uint64_t b = 0; b < 6000; b++)
            demand(cache, b * 7 % 6000);
        assert_true(stats_of(cache).bytes <= budget);
        assert_true(stats_of(cache).bytes >= budget * 8 / 10);
        full = resident();
    }
    check_identities(cache, budget);
    qm_cache_free(cache);
}

/* Sizes up and down in small steps, as when rules and blocks trade memory: within the
 * budget at every step, and nothing is lost to fragments. */
TEST(test_small_steps)
{
    for (size_t i = 0; i < POLICIES; i++) {
        struct qm_cache_config c = config;
        struct qm_cache *cache;
        uint64_t seed = i + 1, n = 0;

        c.eviction = policies[i];
        c.prefetch_blocks = 100;
        c.prefetch_adapts = i % 2;
        c.shadow = true;
        c.shards = i % 3 ? 2 : 1;
        cache = new_cache(&c);
        for (unsigned step = 0; step < 120; step++) {
            uint64_t budget = (16 + rnd_below(&seed, 16)) << 20;
            uint64_t blocks = qm_cache_resize_within(cache, budget);

            assert_true(blocks > 0);
            resize(cache, blocks);
            for (unsigned k = 0; k < 400; k++) {
                struct qm_fill *fill;
                static unsigned char data[BLOCK];
                uint64_t b = n++ % 2500;

                if (k % 8 == 0 && qm_cache_prefetch(cache, b, 0, &fill) == 0) {
                    fill_with(data, b);
                    qm_cache_fill(cache, fill, data);
                }
                demand(cache, b);
            }
            assert_true(stats_of(cache).bytes <= budget);
            assert_true(stats_of(cache).main_blocks <= blocks);
        }
        /* It can be as full as ever. */
        resize(cache, 2000);
        for (uint64_t b = 0; b < 20000; b++)
            demand(cache, b);
        assert_true(stats_of(cache).main_blocks + stats_of(cache).prefetch_blocks >=
                    (c.prefetch_adapts ? 2000 : 1890));
        assert_int_equal(stats_of(cache).detached, 0);
        check_identities(cache, 0);
        qm_cache_free(cache);
    }
}

/* A fill that was in flight when the cache shrank ends as any other; its header stays
 * where it is, and later can go. */
TEST(test_fills_in_flight)
{
    struct qm_cache *cache = new_cache(&config);
    static unsigned char data[BLOCK], buf[BLOCK];
    struct qm_lookup found[2], waiter;
    uint64_t budget = 6 << 20, blocks;
    int err;

    for (uint64_t b = 0; b < 1998; b++)
        demand(cache, b);
    for (uint64_t b = 0; b < 2; b++)
        assert_int_equal(qm_cache_demand(cache, 3000 + b, buf, 0, BLOCK, &found[b]), 0);
    assert_int_equal(qm_cache_demand(cache, 3001, buf, 0, BLOCK, &waiter), 0);
    blocks = qm_cache_resize_within(cache, budget);
    err = qm_cache_resize(cache, blocks);
    assert_int_equal(err, EAGAIN);
    assert_int_equal(qm_cache_capacity(cache), blocks);
    for (uint64_t b = 0; b < 2; b++) {
        fill_with(data, 3000 + b);
        assert_true(qm_cache_fill(cache, found[b].fill, data));
    }
    assert_int_equal(waiter.todo, QM_WAIT);
    assert_int_equal(qm_cache_wait(cache, waiter.fill, buf, 0, BLOCK), 0);
    assert_memory_equal(buf, data, BLOCK);
    resize(cache, blocks);
    assert_true(stats_of(cache).bytes <= budget);
    assert_true(demand(cache, 3000) && demand(cache, 3001));
    qm_cache_free(cache);
}

/* What policies remember beside the blocks is kept: the hot set survives both ways. */
TEST(test_what_is_known_stays)
{
    static const char *const that_learn[] = {"arc", "s3fifo", "wtinylfu", "adaptive"};

    for (size_t i = 0; i < 4; i++) {
        struct qm_cache_config c = config;
        struct qm_cache *cache;
        uint64_t seed = 5, missed = 0;

        c.eviction = that_learn[i];
        c.data = false;
        cache = new_cache(&c);
        for (unsigned k = 0; k < 60000; k++)
            demand_of(cache,
                      rnd_below(&seed, 2) ? rnd_below(&seed, 300)
                                          : 1000 + rnd_below(&seed, 20000),
                      false);
        for (unsigned round = 0; round < 3; round++) {
            resize(cache, round == 1 ? 9000 : 900);
            for (unsigned k = 0; k < 300; k++)
                missed += !demand_of(cache, k, false);
        }
        assert_in_range(missed, 0, 60);
        qm_cache_free(cache);
    }
}

TEST(test_limits)
{
    struct qm_cache_config c = config;
    struct qm_cache *cache;

    c.prefetch_blocks = 400;
    c.blocks = 4000;
    c.shards = 4;
    cache = new_cache(&c);
    assert_int_equal(qm_cache_resize(cache, 7), EINVAL);
    assert_int_equal(qm_cache_resize(cache, (UINT64_C(1) << 32) + 1), EINVAL);
    assert_int_equal(qm_cache_capacity(cache), 4000);
    resize(cache, 8);
    assert_int_equal(stats_of(cache).prefetch_share, 4);
    for (uint64_t b = 0; b < 100; b++)
        demand(cache, b);
    assert_int_equal(qm_cache_resize_within(cache, 1000), 0);
    resize(cache, 40000);
    assert_int_equal(stats_of(cache).prefetch_share, 4000);
    qm_cache_free(cache);
}
