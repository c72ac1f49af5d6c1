/* SPDX-License-Identifier: BSD-3-Clause */
/* test-crowds.c - threads that meet in one place of the cache: at a block that one of
 * them reads for all, at few buffers, at the same hits. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "testing.h"

#define SECTOR 512
#define BLOCK  2048

#define THREADS 8

/* Several demand one block: one reads it, the others get its bytes, or all get EAGAIN.
 */
struct crowd {
    struct qm_cache *cache;
    pthread_barrier_t demanded;
    _Atomic unsigned fetches, waits, served, refused, failures;
    bool fail;
    uint64_t block;
};

static void *one_of_crowd(void *opaque)
{
    struct crowd *c = opaque;
    unsigned char buf[BLOCK] = {0}, data[BLOCK];
    struct qm_lookup found;
    int err;

    memset(data, (int)c->block + 1, BLOCK);
    err = qm_cache_demand(c->cache, c->block, buf, 0, BLOCK, &found);
    if (err != 0)
        atomic_fetch_add(&c->failures, 1);
    pthread_barrier_wait(&c->demanded);
    if (found.todo == QM_FETCH) {
        atomic_fetch_add(&c->fetches, 1);
        sched_yield();
        if (c->fail)
            qm_cache_fail(c->cache, found.fill);
        else
            qm_cache_fill(c->cache, found.fill, data);
        return NULL;
    }
    atomic_fetch_add(&c->waits, found.todo == QM_WAIT);
    err = qm_cache_wait(c->cache, found.fill, buf, 0, BLOCK);
    if (err == EAGAIN)
        atomic_fetch_add(&c->refused, 1);
    else if (err == 0 && !memcmp(buf, data, BLOCK))
        atomic_fetch_add(&c->served, 1);
    else
        atomic_fetch_add(&c->failures, 1);
    return NULL;
}

TEST(test_one_read_for_all)
{
    struct crowd c = {0};
    pthread_t threads[THREADS];

    c.cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                  .blocks = 8,
                                                  .shards = 1,
                                                  .eviction = "lru",
                                                  .data = true});
    pthread_barrier_init(&c.demanded, NULL, THREADS);
    for (unsigned round = 0; round < 60; round++) {
        c.block = round;
        c.fail = round % 3 == 0;
        c.fetches = c.waits = c.served = c.refused = 0;
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, one_of_crowd, &c), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(c.failures, 0);
        assert_int_equal(c.fetches, 1);
        assert_int_equal(c.waits, THREADS - 1);
        assert_int_equal(c.served, c.fail ? 0 : THREADS - 1);
        assert_int_equal(c.refused, c.fail ? THREADS - 1 : 0);
    }
    assert_int_equal(stats_of(c.cache).misses, 60);
    assert_int_equal(stats_of(c.cache).hits, 60 * (THREADS - 1));
    pthread_barrier_destroy(&c.demanded);
    qm_cache_free(c.cache);
}

/* Waiters copy while writes replace the block again and again: few buffers, which are
 * used anew as soon as may be, and blocks so large that copies take their time. */
#define LARGE (1 << 20)

struct churn {
    struct qm_cache *cache;
    pthread_barrier_t start;
    _Atomic unsigned turn, failures, waits;
    unsigned char *buf[4];
};

static void *wait_and_copy(void *opaque)
{
    struct churn *c = opaque;
    unsigned char *buf = c->buf[atomic_fetch_add(&c->turn, 1)];

    for (uint64_t round = 0; round < 40; round++) {
        struct qm_lookup found;

        pthread_barrier_wait(&c->start); /* the block is being filled */
        if (qm_cache_demand(c->cache, round, buf, 0, LARGE, &found) != 0)
            atomic_fetch_add(&c->failures, 1);
        pthread_barrier_wait(&c->start); /* all have demanded it; now it is filled */
        if (found.todo == QM_WAIT) {
            atomic_fetch_add(&c->waits, 1);
            if (qm_cache_wait(c->cache, found.fill, buf, 0, LARGE) == 0 &&
                memcmp(buf, buf + 1, LARGE - 1) != 0)
                atomic_fetch_add(&c->failures, 1);
        }
    }
    return NULL;
}

TEST(test_waiters_while_writing)
{
    struct churn c = {0};
    pthread_t threads[4];
    unsigned char *data = malloc(LARGE);

    assert_non_null(data);
    c.cache = new_cache(&(struct qm_cache_config){.block_size = LARGE,
                                                  .blocks = 2,
                                                  .shards = 1,
                                                  .eviction = "lru",
                                                  .data = true});
    pthread_barrier_init(&c.start, NULL, 5);
    for (int i = 0; i < 4; i++) {
        c.buf[i] = malloc(LARGE);
        assert_non_null(c.buf[i]);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_and_copy, &c), 0);
    for (uint64_t round = 0; round < 40; round++) {
        struct qm_lookup found;

        assert_int_equal(qm_cache_demand(c.cache, round, data, 0, LARGE, &found), 0);
        assert_int_equal(found.todo, QM_FETCH);
        memset(data, 0, LARGE);
        pthread_barrier_wait(&c.start);
        pthread_barrier_wait(&c.start);
        qm_cache_fill(c.cache, found.fill, data);
        for (int i = 1; i < 30; i++) {
            struct qm_cache_write w;

            memset(data, i, LARGE);
            qm_cache_write_begin(c.cache, &w, round * LARGE, LARGE);
            qm_cache_write_end(c.cache, &w, QM_WRITE_DATA, data);
        }
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        free(c.buf[i]);
    assert_int_equal(c.failures, 0);
    assert_int_equal(c.waits, 4 * 40);
    pthread_barrier_destroy(&c.start);
    qm_cache_free(c.cache);
    free(data);
}

/* Hits of many threads at once are all counted, though not all are noted. */
static void *hit_often(void *opaque)
{
    struct crowd *c = opaque;
    unsigned char buf[SECTOR];
    struct qm_lookup found;

    for (unsigned i = 0; i < 20000; i++)
        if (qm_cache_demand(c->cache, i % 4, buf, 0, SECTOR, &found) != 0 ||
            found.todo != QM_DONE || found.outcome != QM_HIT)
            atomic_fetch_add(&c->failures, 1);
    return NULL;
}

TEST(test_hits_are_counted)
{
    for (unsigned shards = 1; shards <= 4; shards *= 4) {
        struct crowd c = {0};
        pthread_t threads[THREADS];
        unsigned char data[BLOCK] = {0};

        c.cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                      .blocks = 4096,
                                                      .shards = shards,
                                                      .eviction = "lru",
                                                      .data = true});
        for (uint64_t b = 0; b < 4; b++) {
            struct qm_lookup found;

            assert_int_equal(qm_cache_demand(c.cache, b, data, 0, 1, &found), 0);
            qm_cache_fill(c.cache, found.fill, data);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, hit_often, &c), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(c.failures, 0);
        assert_int_equal(stats_of(c.cache).hits, THREADS * 20000);
        qm_cache_free(c.cache);
    }
}
