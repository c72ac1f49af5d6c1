/* SPDX-License-Identifier: BSD-3-Clause */
/* test-bound.c - prefetching that does not pay is given up, and taken up again. */
#include <pthread.h>

#include "tests/harness.h"

#include "engine/bound.h"
#include "proof.h"

enum { BLOCKS = 200, BLOCK = 4096, ROUNDS = 200000 };

static struct qm_cache *make_of(uint64_t blocks, unsigned shards, const char *eviction)
{
    struct qm_cache_config config = {
        .block_size = BLOCK,
        .blocks = blocks,
        .prefetch_blocks = blocks / 2,
        .prefetch_adapts = true,
        .shards = shards,
        .eviction = eviction,
        .shadow = true,
    };
    struct qm_cache *cache;

    assert_int_equal(qm_cache_new(&config, &cache), 0);
    return cache;
}

static struct qm_cache *cache;
static struct qm_bound b;

/* What either kind of candidates is worth is proven. */
static void begin(void)
{
    qm_bound_init(&b);
    prove(&b.watch);
}

static struct qm_cache *make(unsigned shards)
{
    return make_of((uint64_t)BLOCKS * shards, shards, "lru");
}

static int set_up(void **state)
{
    cache = make(1);
    begin();
    return 0;
}

static int set_up_adaptive(void **state)
{
    cache = make_of(2000, 1, "adaptive");
    begin();
    return 0;
}

static int tear_down(void **state)
{
    qm_cache_free(cache);
    return 0;
}

static void demand(uint64_t block)
{
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(cache, block, NULL, 0, BLOCK, &found), 0);
    if (found.todo == QM_FETCH)
        qm_cache_fill(cache, found.fill, NULL);
}

static void prefetch(uint64_t block)
{
    struct qm_fill *fill;

    if (qm_cache_prefetch(cache, block, 0, &fill) == 0)
        qm_cache_fill(cache, fill, NULL);
}

/* A block in `every` that is missed, each of them new, is prefetched before, and
 * `unused` others with it.  Returns how many of ROUNDS candidates were admitted. */
static unsigned run(unsigned every, unsigned unused, bool stream)
{
    static uint64_t next = 1000;
    unsigned admitted = 0;

    for (unsigned i = 0; i < ROUNDS; i++, next++) {
        const bool may = qm_bound_admits(&b, cache, stream);

        admitted += may;
        if (may && i % every == 0)
            prefetch(next);
        for (unsigned n = 0; may && n < unused; n++)
            prefetch((UINT64_C(1) << 32) + next * 8 + n);
        demand(next);
    }
    return admitted;
}

TEST_WITH(test_pays, set_up, tear_down)
{
    assert_int_equal(run(2, 0, false), ROUNDS); /* half are used */
}

/* Nothing that is prefetched is demanded: a few are let through, and with these it is
 * noticed that they pay again. */
TEST_WITH(test_useless, set_up, tear_down)
{
    assert_in_range(run(ROUNDS, 1, false), ROUNDS / 100, ROUNDS / 16);
    assert_in_range(run(1, 0, false), ROUNDS * 3 / 4, ROUNDS);
}

/* Half of what streams prefetch is unused: as much is let through as keeps the device's
 * reads near those of a plain cache; of what follows rules, all, which has a bound of
 * its own. */
TEST_WITH(test_spare, set_up, tear_down)
{
    struct qm_cache_reads reads;

    (void)run(1, 1, true);
    qm_cache_get_reads(cache, &reads);
    assert_in_range(reads.device, reads.lru, reads.lru + reads.lru / 3);
    begin();
    assert_int_equal(run(1, 1, false), ROUNDS);
}

/* Each miss that streams save costs one more read of the device.  Where it costs two,
 * or three, far fewer are let through, of streams, for as long as that is so. */
TEST_WITH(test_dear, set_up, tear_down)
{
    assert_false(qm_bound_is_dear(&b));
    assert_in_range(run(1, 1, true), ROUNDS / 5, ROUNDS / 3);
    assert_false(qm_bound_is_dear(&b));
    for (unsigned unused = 2; unused <= 3; unused++) {
        assert_in_range(run(1, unused, true), ROUNDS / 25, ROUNDS / 10);
        assert_true(qm_bound_is_dear(&b));
    }
    assert_in_range(run(1, 0, true), ROUNDS * 3 / 4, ROUNDS);
    assert_false(qm_bound_is_dear(&b));
    for (uint64_t i = 0; i < ROUNDS / 10; i++) { /* few are read in vain */
        (void)qm_bound_admits(&b, cache, true);
        if (i % 25 == 0)
            prefetch((UINT64_C(1) << 34) + i);
        demand((UINT64_C(1) << 35) + i);
    }
    assert_false(qm_bound_is_dear(&b));
    begin();
    assert_int_equal(run(1, 3, false), ROUNDS);
}

/* A stream that has as much read ahead of it as many times what it has read so far, and
 * uses all of it, is not held back. */
TEST_WITH(test_far_ahead, set_up, tear_down)
{
    for (uint64_t i = 0, next = 0; i < ROUNDS / 10; i++) {
        assert_true(qm_bound_admits(&b, cache, true));
        for (; next < i + 90; next++)
            prefetch(next);
        demand(i);
    }
}

/* Makes `reads` random reads of blocks 0 to blocks - 1.  One in `every` is followed by
 * the next read of a stream, of which `ahead` blocks are prefetched before its reader.
 */
static void read_beside(uint64_t blocks, uint64_t every, uint64_t ahead, uint64_t reads)
{
    static uint64_t stream = UINT64_C(1) << 32, x = 1;

    stream += 1000000; /* another */
    for (uint64_t i = 0, next = stream; i < reads; i++) {
        (void)qm_bound_admits(&b, cache, false);
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        demand((x >> 33) % blocks);
        if (i % every != 0)
            continue;
        for (; next <= stream + ahead; next++)
            prefetch(next);
        demand(stream++);
    }
}

static void read_beside_stream(uint64_t ahead, uint64_t reads)
{
    read_beside(1900, 10, ahead, reads);
}

/* What is prefetched far ahead is used as well as what is near, and takes the places of
 * blocks that would have been hit meanwhile.  Each used block counts as a saved miss
 * only where it saves one.  With LRU nobody knows, and it counts in full. */
TEST_WITH(test_value, set_up_adaptive, tear_down)
{
    assert_true(qm_bound_value(&b) >= 1);
    read_beside_stream(300, 200000);
    assert_true(qm_bound_value(&b) < 0.3F);
    read_beside_stream(2, 200000);
    assert_true(qm_bound_value(&b) > 0.7F);
    qm_cache_free(cache);
    cache = make_of(2000, 1, "lru");
    begin();
    read_beside_stream(300, 50000);
    assert_true(qm_bound_value(&b) >= 1);
}

/* Where few of the blocks that are read had been prefetched, and all of these save a
 * miss, the estimate's error is as large as what they save: it is counted in their
 * favour. */
TEST_WITH(test_value_of_few, set_up_adaptive, tear_down)
{
    read_beside(4000, 20, 10, 400000);
    assert_true(qm_bound_value(&b) > 0.5F);
}

/* Nothing is let through until its kind is proven: it is watched.  While prefetching
 * rests, it is watched only where qm_bound_watch() says it is. */
TEST_WITH(test_unproven, set_up, tear_down)
{
    qm_bound_init(&b);
    for (int stream = 0; stream <= 1; stream++) {
        assert_int_equal(run(2, 0, stream), 0);
        assert_true(qm_bound_watches(&b, stream));
    }
    begin(); /* what was missed meanwhile does not count */
    for (int stream = 0; stream <= 1; stream++) {
        assert_true(qm_bound_admits(&b, cache, stream));
        assert_false(qm_bound_watches(&b, stream));
        qm_bound_rest(&b, true);
        assert_false(qm_bound_watches(&b, stream));
        qm_bound_watch(&b, true);
        assert_true(qm_bound_watches(&b, stream));
        assert_false(qm_bound_admits(&b, cache, stream));
        qm_bound_watch(&b, false);
        qm_bound_rest(&b, false);
    }
    qm_bound_destroy(&b);
}

/* While it rests nothing is let through, and after that what pays. */
TEST_WITH(test_rests, set_up, tear_down)
{
    qm_bound_rest(&b, true);
    assert_int_equal(run(2, 0, false), 0);
    assert_int_equal(run(2, 0, true), 0);
    qm_bound_rest(&b, false);
    assert_in_range(run(2, 0, false), ROUNDS * 3 / 4, ROUNDS);
}

struct crowd {
    _Atomic uint64_t next;
    _Atomic unsigned refused;
};

static void *ask_often(void *opaque)
{
    struct crowd *c = opaque;

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t block = c->next++;

        for (unsigned n = 0; n < 16; n++)
            c->refused += !qm_bound_admits(&b, cache, false);
        if (block % 2 == 0)
            prefetch(block);
        demand(block);
    }
    return NULL;
}

/* Several threads that decide at once do not see counts go back, which would look like
 * more misses than there ever were. */
TEST_WITH(test_threads, NULL, tear_down)
{
    struct crowd c = {0};
    pthread_t threads[8];

    cache = make(16);
    begin();
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &c), 0);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c.refused, 0); /* half of the misses are saved */
}
