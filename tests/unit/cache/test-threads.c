/* SPDX-License-Identifier: BSD-3-Clause */
/* test-threads.c - many threads at once: readers, prefetchers, writers over a device in
 * memory whose every sector carries its number and a version.
 *
 * A writer acknowledges a version after qm_cache_write_end().  A reader notes what was
 * acknowledged before it begins; what it reads must be whole, of the right sector, and
 * not older than that.  Versions of a sector only grow, in the order in which they
 * reach the device, also when writes to it overlap in time.
 *
 * Threads do a fixed number of steps and report what went wrong through `failures`:
 * cmocka's assertions belong to the main thread.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "testing.h"

#define SECTOR    512
#define BLOCK     2048
#define PER_BLOCK (BLOCK / SECTOR)
#define BLOCKS    192
#define MOST      1280 /* where the cache is resized */
#define SECTORS   (MOST * PER_BLOCK)
#define WORDS     (SECTOR / sizeof(uint64_t))

/* A step takes some ten times as long with a sanitizer.  run() sees to it that threads
 * meet. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 1000
#else
#define STEPS 10000
#endif

struct world {
    struct qm_cache *cache;
    uint64_t blocks; /* of the device */
    uint64_t budget;
    pthread_mutex_t lock[MOST]; /* of a block of the device */
    uint64_t device[SECTORS][WORDS];
    _Atomic uint64_t acknowledged[SECTORS];
    unsigned steps;
    bool large_writes;   /* some, of all blocks */
    bool writes_collide; /* else each writer has sectors of its own */
    _Atomic unsigned turn, wasted;
    _Atomic unsigned failures;
    _Atomic unsigned running;
};

static void wrong(struct world *w, const char *what)
{
    if (atomic_fetch_add(&w->failures, 1) < 5)
        fprintf(stderr, "wrong: %s\n", what);
}

static void on_wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct world *w = opaque;

    atomic_fetch_add(&w->wasted, 1);
    if (issuer != block % 77)
        wrong(w, "issuer of a wasted prefetch");
}

static void read_device(struct world *w, uint64_t block, void *buf)
{
    pthread_mutex_lock(&w->lock[block]);
    memcpy(buf, w->device[block * PER_BLOCK], BLOCK);
    pthread_mutex_unlock(&w->lock[block]);
}

/* Some fills fail, as devices do. */
static void end_fill(struct world *w, struct qm_fill *fill, uint64_t block, void *buf,
                     bool ok)
{
    read_device(w, block, buf);
    if (ok)
        qm_cache_fill(w->cache, fill, buf);
    else
        qm_cache_fail(w->cache, fill);
}

static void check_sectors(struct world *w, const unsigned char *buf, uint64_t first,
                          unsigned count, const uint64_t *oldest)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t words[WORDS];

        memcpy(words, buf + i * SECTOR, SECTOR);
        for (unsigned k = 2; k < WORDS; k++)
            if (words[k] != words[1]) {
                wrong(w, "a torn sector");
                break;
            }
        if (words[0] != first + i)
            wrong(w, "another sector's bytes");
        if (words[1] < oldest[i])
            wrong(w, "older than what was acknowledged");
    }
}

static void read_some(struct world *w, uint64_t *seed)
{
    uint64_t block = rnd_below(seed, 3) ? rnd_below(seed, w->blocks)
                                        : rnd_below(seed, w->blocks / 8);
    unsigned sector = rnd_below(seed, PER_BLOCK);
    unsigned count = 1 + rnd_below(seed, PER_BLOCK - sector);
    uint64_t first = block * PER_BLOCK + sector, oldest[PER_BLOCK];
    unsigned char buf[BLOCK], whole[BLOCK];
    struct qm_lookup found;
    int err;

    for (unsigned i = 0; i < count; i++)
        oldest[i] = atomic_load(&w->acknowledged[first + i]);
    err =
        qm_cache_demand(w->cache, block, buf, sector * SECTOR, count * SECTOR, &found);
    for (;;) {
        if (err == ENOMEM) {
            read_device(w, block, whole);
            memcpy(buf, whole + sector * SECTOR, count * SECTOR);
            break;
        }
        if (err != 0) {
            wrong(w, "an error of a demand");
            return;
        }
        if (found.todo == QM_DONE)
            break;
        if (found.todo == QM_FETCH) {
            end_fill(w, found.fill, block, whole, rnd_below(seed, 16) != 0);
            memcpy(buf, whole + sector * SECTOR, count * SECTOR);
            break;
        }
        err = qm_cache_wait(w->cache, found.fill, buf, sector * SECTOR, count * SECTOR);
        if (err == 0)
            break;
        if (err != EAGAIN)
            wrong(w, "an error of a wait");
        err = qm_cache_demand_again(w->cache, block, buf, sector * SECTOR,
                                    count * SECTOR, &found);
    }
    check_sectors(w, buf, first, count, oldest);
}

static void prefetch_some(struct world *w, uint64_t *seed)
{
    uint64_t block[4];
    struct qm_fill *fill[4];
    unsigned held = 0;
    unsigned char whole[BLOCK];

    for (int i = 0; i < 4; i++) {
        block[held] = rnd_below(seed, w->blocks);
        if (qm_cache_prefetch(w->cache, block[held], block[held] % 77, &fill[held]) ==
            0)
            held++;
    }
    if (rnd_below(seed, 4) == 0)
        sched_yield();
    while (held-- > 0)
        end_fill(w, fill[held], block[held], whole, rnd_below(seed, 8) != 0);
}

static void write_some(struct world *w, uint64_t *seed, unsigned writer)
{
    uint64_t first, count, sectors = w->blocks * PER_BLOCK;
    unsigned kind = rnd_below(seed, 32);
    uint64_t *versions, (*data)[WORDS];
    struct qm_cache_write cw;

    if (w->large_writes && rnd_below(seed, 256) == 0) {
        first = 0;
        count = sectors;
    } else if (w->writes_collide) {
        first = rnd_below(seed, sectors / 4);
        count = 1 + rnd_below(seed, 3 * PER_BLOCK);
        if (count > sectors - first)
            count = sectors - first;
    } else { /* neighbours in the same block are another writer's */
        first = rnd_below(seed, sectors / 2) * 2 + writer % 2;
        count = 1;
    }
    versions = malloc(count * sizeof(versions[0]));
    data = malloc(count * sizeof(data[0]));
    qm_cache_write_begin(w->cache, &cw, first * SECTOR, count * SECTOR);
    if (rnd_below(seed, 4) == 0)
        sched_yield();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t s = first + i;

        pthread_mutex_lock(&w->lock[s / PER_BLOCK]);
        versions[i] = w->device[s][1] + 1;
        for (unsigned k = 1; k < WORDS; k++)
            w->device[s][k] = versions[i];
        memcpy(data[i], w->device[s], SECTOR);
        pthread_mutex_unlock(&w->lock[s / PER_BLOCK]);
    }
    if (rnd_below(seed, 4) == 0)
        sched_yield();
    qm_cache_write_end(w->cache, &cw, kind ? QM_WRITE_DATA : QM_WRITE_DROP,
                       kind ? data : NULL);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t seen = atomic_load(&w->acknowledged[first + i]);

        while (seen < versions[i] &&
               !atomic_compare_exchange_weak(&w->acknowledged[first + i], &seen,
                                             versions[i]))
            ;
    }
    free(versions);
    free(data);
}

static void *worker(void *opaque)
{
    struct world *w = opaque;
    unsigned number = atomic_fetch_add(&w->turn, 1);
    uint64_t seed = number + 100;

    for (unsigned i = 0; i < w->steps; i++) {
        switch (number % 8) {
        case 0:
        case 1:
            write_some(w, &seed, number);
            break;
        case 2:
            prefetch_some(w, &seed);
            break;
        default:
            read_some(w, &seed);
        }
    }
    atomic_fetch_sub(&w->running, 1);
    return NULL;
}

#define THREADS 8

static struct world *new_world(uint64_t blocks, bool collide)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->steps = STEPS;
    w->blocks = blocks;
    w->writes_collide = collide;
    for (uint64_t i = 0; i < MOST; i++)
        pthread_mutex_init(&w->lock[i], NULL);
    for (uint64_t i = 0; i < SECTORS; i++)
        w->device[i][0] = i;
    return w;
}

/* At rest, what is cached is what is below. */
static void check_and_free(struct world *w)
{
    for (uint64_t b = 0; b < w->blocks; b++) {
        unsigned char buf[BLOCK];
        struct qm_lookup found;

        assert_int_equal(qm_cache_demand(w->cache, b, buf, 0, BLOCK, &found), 0);
        assert_int_not_equal(found.todo, QM_WAIT);
        if (found.todo == QM_FETCH)
            end_fill(w, found.fill, b, buf, true);
        assert_memory_equal(buf, w->device[b * PER_BLOCK], BLOCK);
    }
    assert_int_equal(atomic_load(&w->failures), 0);
    for (uint64_t i = 0; i < MOST; i++)
        pthread_mutex_destroy(&w->lock[i]);
    qm_cache_free(w->cache);
    free(w);
}

/* Returns whether threads met: one wrote what another was reading, and one read what
 * another had prefetched. */
static bool run_once(const char *eviction, uint64_t blocks, uint64_t prefetch_blocks,
                     bool adapts, unsigned shards, bool collide)
{
    struct world *w = new_world(BLOCKS, collide);
    pthread_t threads[THREADS];
    struct qm_cache_reads reads;
    struct qm_cache_stats s;

    w->cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                   .blocks = blocks,
                                                   .prefetch_blocks = prefetch_blocks,
                                                   .prefetch_adapts = adapts,
                                                   .shadow = adapts,
                                                   .shards = shards,
                                                   .eviction = eviction,
                                                   .data = true,
                                                   .wasted = on_wasted,
                                                   .opaque = w});
    /* The smallest budget that these blocks need. */
    w->budget = blocks * BLOCK;
    while (qm_cache_blocks_within(w->budget, BLOCK) < blocks)
        w->budget += BLOCK;
    atomic_store(&w->running, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, w), 0);
    while (atomic_load(&w->running) > 0) {
        qm_cache_get_reads(w->cache, &reads);
        s = stats_of(w->cache);
        if (reads.device > s.misses + s.prefetches || reads.lru > s.lru_misses)
            wrong(w, "fewer reads than there were");
        if (s.bytes > w->budget)
            wrong(w, "over budget");
        if (adapts ? s.main_blocks + s.prefetch_blocks > blocks
                   : s.main_blocks > blocks - prefetch_blocks ||
                         s.prefetch_blocks > prefetch_blocks)
            wrong(w, "over capacity");
        sched_yield();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_identities(w->cache, w->budget);
    s = stats_of(w->cache);
    assert_int_equal(s.wasted, atomic_load(&w->wasted));
    assert_int_equal(s.hits + s.prefetch_hits + s.misses > 0, 1);
    assert_int_equal(s.lru_misses > 0, adapts);
    check_and_free(w);
    return s.detached > 0 && (s.prefetch_hits > 0 || prefetch_blocks == 0);
}

/* Where one thread runs at a time, it may take several runs until they meet. */
static void run(const char *eviction, uint64_t blocks, uint64_t prefetch_blocks,
                bool adapts, unsigned shards, bool collide)
{
    bool met = false;

    for (int i = 0; i < 20 && !met; i++)
        met = run_once(eviction, blocks, prefetch_blocks, adapts, shards, collide);
    assert_true(met);
}

/* The main thread resizes the cache while the others use it. */
static void run_resized(const char *eviction, bool adapts, unsigned shards)
{
    struct world *w = new_world(MOST, shards > 1);
    uint64_t seed = 7, done = 0;
    pthread_t threads[THREADS];
    struct qm_cache_stats s;

    w->steps = STEPS * 2 / 5;
    w->large_writes = true;
    w->cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                   .blocks = MOST,
                                                   .prefetch_blocks = MOST / 8,
                                                   .prefetch_adapts = adapts,
                                                   .shadow = adapts,
                                                   .shards = shards,
                                                   .eviction = eviction,
                                                   .data = true,
                                                   .wasted = on_wasted,
                                                   .opaque = w});
    atomic_store(&w->running, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, w), 0);
    for (int i = 0; atomic_load(&w->running) > 0; i++) {
        uint64_t budget = (MOST / 16 + rnd_below(&seed, MOST)) * BLOCK, blocks;
        int err;

        blocks = qm_cache_resize_within(w->cache, budget);
        if (blocks == 0)
            continue;
        err = qm_cache_resize(w->cache, blocks);
        s = stats_of(w->cache);
        if (err != 0 && err != EAGAIN)
            wrong(w, "an error of resizing");
        if (s.main_blocks + s.prefetch_blocks > blocks)
            wrong(w, "over the new capacity");
        if (err == 0 && s.bytes > budget)
            wrong(w, "over the new budget");
        if (qm_cache_capacity(w->cache) != blocks)
            wrong(w, "another capacity");
        done += err == 0;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_identities(w->cache, 0);
    s = stats_of(w->cache);
    assert_int_equal(s.wasted, atomic_load(&w->wasted));
    assert_true(done > 0);
    check_and_free(w);
}

TEST(test_small_cache)
{
    for (size_t i = 0; i < POLICIES; i++)
        run(policies[i], 24, 8, i % 2, 1, true);
}

TEST(test_tiny_cache)
{
    for (size_t i = 0; i < POLICIES; i++)
        run(policies[i], 2, 1, i % 2, 1, true);
}

TEST(test_disjoint_writers)
{
    for (size_t i = 0; i < POLICIES; i++)
        run(policies[i], 96, 16, i % 2 == 0, 4, false);
}

TEST(test_resized)
{
    for (size_t i = 0; i < POLICIES; i++)
        run_resized(policies[i], i % 2 == 0, i % 3 == 0 ? 2 : 1);
}

TEST(test_everything_fits)
{
    run("lru", 2 * BLOCKS, 64, true, 2, true);
}

/* The cache grows while threads ask for ever other blocks.  Its shards' shares are not
 * all alike, and what one holds between its turn and the others' must fit in its
 * memory: an address sanitizer sees it.  No data: it is about directories. */
struct grown {
    struct qm_cache *cache;
    _Atomic uint64_t next;
    _Atomic bool stop;
    _Atomic unsigned failures;
};

static void demand_next(struct grown *g)
{
    uint64_t block = atomic_fetch_add(&g->next, 1);
    struct qm_lookup found;

    if (qm_cache_demand(g->cache, block, NULL, 0, BLOCK, &found) == 0 &&
        found.todo == QM_FETCH)
        qm_cache_fill(g->cache, found.fill, NULL);
    else
        atomic_fetch_add(&g->failures, 1);
}

static void *demand_always(void *opaque)
{
    struct grown *g = opaque;

    while (!atomic_load(&g->stop))
        demand_next(g);
    return NULL;
}

static void run_grown(const char *eviction, uint64_t blocks, bool adapts)
{
    struct grown g = {.next = 1};
    pthread_t threads[2];
    uint64_t seen;

    g.cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                  .blocks = blocks,
                                                  .prefetch_blocks = blocks / 7,
                                                  .prefetch_adapts = adapts,
                                                  .shadow = true,
                                                  .shards = 4,
                                                  .eviction = eviction});
    while (atomic_load(&g.next) < 2 * blocks)
        demand_next(&g);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, demand_always, &g), 0);
    for (uint64_t to = blocks; to < 2 * blocks; to += blocks / 6 + 1) {
        seen = atomic_load(&g.next);
        while (atomic_load(&g.next) < seen + 100)
            sched_yield();
        assert_int_equal(qm_cache_resize(g.cache, to), 0);
    }
    atomic_store(&g.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&g.failures), 0);
    check_identities(g.cache, 0);
    qm_cache_free(g.cache);
}

TEST(test_grown)
{
    for (uint64_t blocks = 5441; blocks <= 5447; blocks++)
        for (size_t i = 0; i < 2; i++)
            run_grown(policies[blocks % POLICIES], blocks, i);
    run_grown("lru", 12543, true);
}
