/* SPDX-License-Identifier: BSD-3-Clause */
/* test-fills.c - waiting and failing, fills without room, hits, fork: one thread at a
 * time, or threads that take turns. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/internal.h"
#include "blocks.h"

/* A fill that fails: a waiting reader gets EAGAIN, and its next demand is not counted.
 */
TEST(test_fail)
{
    struct qm_cache *cache = new_cache(&base);
    struct qm_lookup first = demand(cache, 1), second = demand(cache, 1), third;
    unsigned char buf[BLOCK];

    assert_int_equal(first.outcome, QM_MISS);
    assert_int_equal(first.todo, QM_FETCH);
    assert_int_equal(second.outcome, QM_HIT);
    assert_int_equal(second.todo, QM_WAIT);
    assert_true(qm_cache_contains(cache, 1));
    assert_false(qm_cache_settled(cache, second.fill));
    qm_cache_fail(cache, first.fill);
    assert_true(qm_cache_settled(cache, second.fill));
    assert_false(qm_cache_contains(cache, 1));
    assert_int_equal(qm_cache_wait(cache, second.fill, buf, 0, BLOCK), EAGAIN);
    assert_int_equal(qm_cache_demand_again(cache, 1, buf, 0, BLOCK, &third), 0);
    assert_int_equal(third.outcome, QM_MISS);
    assert_int_equal(third.todo, QM_FETCH);
    qm_cache_fill(cache, third.fill, block_data(1));
    assert_int_equal(qm_cache_demand_again(cache, 1, buf, 0, BLOCK, &third), 0);
    assert_int_equal(third.todo, QM_DONE);

    struct qm_cache_stats s = stats_of(cache);

    assert_int_equal(s.hits, 1);
    assert_int_equal(s.misses, 1);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.main_blocks, 1);
    qm_cache_free(cache);
}

/* A prefetch that fails is wasted, unless it was promoted before it did. */
TEST(test_failed_prefetch)
{
    struct qm_cache *cache = new_cache(&base);
    struct qm_fill *fill;
    struct qm_lookup found;
    unsigned char buf[BLOCK];

    assert_int_equal(qm_cache_prefetch(cache, 1, 7, &fill), 0);
    assert_int_equal(qm_cache_prefetch(cache, 1, 7, &(struct qm_fill *){NULL}), EEXIST);
    qm_cache_fail(cache, fill);
    assert_false(qm_cache_contains(cache, 1));
    assert_int_equal(stats_of(cache).wasted, 1);

    assert_int_equal(qm_cache_prefetch(cache, 1, 8, &fill), 0);
    found = demand(cache, 1);
    assert_int_equal(found.outcome, QM_PREFETCH_HIT);
    assert_int_equal(found.todo, QM_WAIT);
    assert_int_equal(found.issuer, 8);
    qm_cache_fail(cache, fill);
    assert_int_equal(qm_cache_wait(cache, found.fill, buf, 0, BLOCK), EAGAIN);
    assert_int_equal(stats_of(cache).wasted, 1);
    assert_int_equal(stats_of(cache).used, 1);
    assert_int_equal(stats_of(cache).failed, 2);
    assert_int_equal(stats_of(cache).main_blocks, 0);

    /* Demanded again after it was prefetched again: used, though no prefetch hit. */
    assert_int_equal(qm_cache_prefetch(cache, 1, 9, &fill), 0);
    qm_cache_fill(cache, fill, block_data(1));
    assert_int_equal(qm_cache_demand_again(cache, 1, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.outcome, QM_PREFETCH_HIT);
    assert_int_equal(found.todo, QM_DONE);
    assert_memory_equal(buf, block_data(1), BLOCK);
    assert_int_equal(stats_of(cache).prefetch_hits, 1);
    assert_int_equal(stats_of(cache).used, 2);
    check_identities(cache, 0);
    qm_cache_free(cache);
}

/* A block evicted while it is filled: its filler fills for nobody, and another demand
 * meanwhile is a fill of its own. */
TEST(test_detached_by_eviction)
{
    struct qm_cache_config c = WITH(blocks, 1);
    struct qm_lookup first, waiter, other, second;
    struct qm_cache *cache;
    unsigned char buf[BLOCK];

    c.prefetch_blocks = 0;
    cache = new_cache(&c);
    first = demand(cache, 1);
    waiter = demand(cache, 1);
    assert_false(qm_cache_settled(cache, waiter.fill));
    other = demand(cache, 2);
    assert_int_equal(other.todo, QM_FETCH);
    assert_false(qm_cache_contains(cache, 1));
    assert_true(qm_cache_settled(cache, waiter.fill));
    /* At once: not when the fill ends. */
    assert_int_equal(qm_cache_wait(cache, waiter.fill, buf, 0, BLOCK), EAGAIN);
    second = demand(cache, 1);
    assert_int_equal(second.todo, QM_FETCH);
    assert_ptr_not_equal(second.fill, first.fill);
    qm_cache_fill(cache, first.fill, block_data(99));
    waiter = demand(cache, 1);
    assert_int_equal(waiter.todo, QM_WAIT);
    qm_cache_fill(cache, other.fill, block_data(2));
    assert_false(qm_cache_settled(cache, waiter.fill));
    qm_cache_fill(cache, second.fill, block_data(1));
    assert_true(qm_cache_settled(cache, waiter.fill));
    assert_int_equal(qm_cache_wait(cache, waiter.fill, buf, 0, BLOCK), 0);
    assert_memory_equal(buf, block_data(1), BLOCK);
    assert_int_equal(demand(cache, 1).todo, QM_DONE);
    assert_int_equal(stats_of(cache).detached, 2);
    assert_int_equal(stats_of(cache).main_blocks, 1);
    assert_int_equal(qm_cache_prefetch(cache, 5, 0, &first.fill), ENOSPC);
    qm_cache_free(cache);
}

/* Those who were told to wait but do not yet keep buffers busy; when all are, what is
 * filled is not kept, what is written is dropped, and nobody loses his data. */
TEST(test_no_buffer)
{
    struct qm_cache_config c = WITH(blocks, 1);
    struct qm_fill *pinned[16];
    struct qm_cache *cache;
    struct qm_lookup found;
    unsigned char buf[BLOCK];
    size_t n = 0;

    c.prefetch_blocks = 0;
    cache = new_cache(&c);
    for (uint64_t b = 0; b < cache->shards[0].limits.bufs; b++) {
        found = demand(cache, b);
        assert_int_equal(found.todo, QM_FETCH);
        pinned[n++] = demand(cache, b).fill;
        qm_cache_fill(cache, found.fill, block_data(b));
        assert_true(qm_cache_contains(cache, b));
    }
    assert_int_equal(n, 5);

    struct qm_cache_write w;

    qm_cache_write_begin(cache, &w, 4 * BLOCK, BLOCK);
    qm_cache_write_end(cache, &w, QM_WRITE_ZEROS, NULL);
    assert_false(qm_cache_contains(cache, 4));

    found = demand(cache, 100);
    qm_cache_fill(cache, found.fill, block_data(100));
    assert_false(qm_cache_contains(cache, 100));
    assert_int_equal(stats_of(cache).detached, 1);
    for (uint64_t b = 0; b < n; b++) {
        assert_int_equal(qm_cache_wait(cache, pinned[b], buf, 0, BLOCK), 0);
        assert_memory_equal(buf, block_data(b), BLOCK);
    }
    assert_int_equal(get(cache, 100), QM_MISS);
    assert_int_equal(get(cache, 100), QM_HIT);
    qm_cache_free(cache);
}

/* More fills than headers: ENOMEM, and nothing has changed. */
TEST(test_too_many_fills)
{
    struct qm_cache_config c = WITH(blocks, 2);
    struct qm_fill *fills[256], *fill;
    struct qm_cache *cache;
    struct qm_lookup found;
    struct qm_cache_stats before, after;
    unsigned char buf[BLOCK];
    size_t n = 0;

    c.prefetch_blocks = 1;
    cache = new_cache(&c);
    while (qm_cache_demand(cache, n, buf, 0, 1, &found) == 0) {
        assert_int_equal(found.todo, QM_FETCH);
        fills[n++] = found.fill;
        assert_true(n < 256);
    }
    assert_int_equal(n, cache->shards[0].limits.blocks);
    before = stats_of(cache);
    assert_int_equal(qm_cache_demand(cache, n, buf, 0, 1, &found), ENOMEM);
    assert_int_equal(qm_cache_prefetch(cache, n, 0, &fill), ENOMEM);
    after = stats_of(cache);
    assert_memory_equal(&before, &after, sizeof(before));
    qm_cache_fail(cache, fills[--n]);
    assert_int_equal(get(cache, 1000), QM_MISS);
    while (n > 0)
        qm_cache_fill(cache, fills[--n], block_data(0));
    assert_int_equal(get(cache, 1001), QM_MISS);
    qm_cache_free(cache);
}

/* Hits count and order also when there are far more of them than a ring holds. */
TEST(test_many_hits)
{
    struct qm_cache_config c = WITH(blocks, 3);
    struct qm_cache *cache;

    c.prefetch_blocks = 0;
    cache = new_cache(&c);
    for (uint64_t b = 0; b < 3; b++)
        get(cache, b);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(get(cache, 1), QM_HIT);
        assert_int_equal(get(cache, 0), QM_HIT);
    }
    assert_int_equal(get(cache, 3), QM_MISS); /* evicts 2 */
    assert_false(qm_cache_contains(cache, 2));
    assert_int_equal(get(cache, 4), QM_MISS); /* evicts 1 */
    assert_false(qm_cache_contains(cache, 1));
    assert_true(qm_cache_contains(cache, 0));
    assert_int_equal(stats_of(cache).hits, 2000);
    qm_cache_free(cache);
}

TEST(test_fork)
{
    struct qm_cache_config c = WITH(shards, 4);
    struct qm_cache *cache;
    int status;
    pid_t pid;

    c.blocks = 4000;
    cache = new_cache(&c);
    get(cache, 1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct qm_lookup found;
        unsigned char buf[BLOCK];
        bool ok = true;

        for (uint64_t b = 0; b < 20000 && ok; b++) {
            ok = qm_cache_demand(cache, b, buf, 0, 1, &found) == 0;
            if (ok && found.todo == QM_FETCH)
                qm_cache_fill(cache, found.fill, buf);
        }
        ok = ok && stats_of(cache).main_blocks == 3996;
        qm_cache_free(cache);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(get(cache, 1), QM_HIT);
    qm_cache_free(cache);
}

/* ---- hits take no lock */

struct second {
    struct qm_cache *cache;
    struct qm_lookup found;
    int error;
};

static void *demand_again(void *opaque)
{
    struct second *s = opaque;
    char buf[512];

    s->error = qm_cache_demand(s->cache, 5, buf, 0, sizeof buf, &s->found);
    return NULL;
}

/* Demands block 5 while somebody has the lock of its shard.  A minute is for ever. */
static void check_hit_without_lock(struct qm_cache *cache)
{
    struct second s = {.cache = cache};
    struct timespec until;
    pthread_t thread;
    int late;

    pthread_mutex_lock(&cache->shards[0].lock);
    assert_int_equal(pthread_create(&thread, NULL, demand_again, &s), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    late = pthread_timedjoin_np(thread, NULL, &until);
    pthread_mutex_unlock(&cache->shards[0].lock);
    if (late)
        pthread_join(thread, NULL);
    assert_int_equal(late, 0);
    assert_int_equal(s.error, 0);
    assert_int_equal(s.found.outcome, QM_HIT);
    assert_int_equal(s.found.todo, QM_DONE);
}

/* However a block has come to the main cache, the next demand of it takes no lock. */
TEST(test_second_demand_takes_no_lock)
{
    const struct qm_cache_config config = {.block_size = 512,
                                           .blocks = 32,
                                           .prefetch_blocks = 8,
                                           .shards = 1,
                                           .eviction = "lru",
                                           .data = true};
    enum { DEMANDED, ARRIVED, AWAITED } how;

    for (how = DEMANDED; how <= AWAITED; how++) {
        struct qm_cache *cache = new_cache(&config);
        struct qm_lookup found;
        struct qm_fill *fill;
        char buf[512] = "bytes";

        if (how != DEMANDED)
            assert_int_equal(qm_cache_prefetch(cache, 5, 1, &fill), 0);
        if (how == ARRIVED)
            assert_true(qm_cache_fill(cache, fill, buf));
        assert_int_equal(qm_cache_demand(cache, 5, buf, 0, sizeof buf, &found), 0);
        if (how == DEMANDED) {
            assert_int_equal(found.todo, QM_FETCH);
            assert_true(qm_cache_fill(cache, found.fill, buf));
        } else if (how == AWAITED) {
            assert_int_equal(found.todo, QM_WAIT);
            assert_true(qm_cache_fill(cache, fill, buf));
            assert_int_equal(qm_cache_wait(cache, found.fill, buf, 0, sizeof buf), 0);
        } else {
            assert_int_equal(found.outcome, QM_PREFETCH_HIT);
            assert_int_equal(found.todo, QM_DONE);
        }
        check_hit_without_lock(cache);
        qm_cache_free(cache);
    }
}
