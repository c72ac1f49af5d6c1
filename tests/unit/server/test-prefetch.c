/* SPDX-License-Identifier: BSD-3-Clause */
/* test-prefetch.c - the queue of prefetches over a real cache and a device of ours. */
#include <errno.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/prefetch.h"

#define BLOCK  4096
#define BLOCKS 100
#define TAIL   100 /* bytes of the last block */

struct device {
    pthread_mutex_t gate; /* held by the test: reads wait */
    pthread_mutex_t lock;
    pthread_cond_t begins;
    unsigned begun, reads, blocks;
    uint64_t order[64]; /* where the first reads began */
    bool broken;
    int ioprio; /* of the last read */
    struct qm_cache *cache;
    struct qms_stats *stats;
    struct qms_prefetch *prefetch;
};

static int read_device(void *opaque, unsigned worker, void *buf, uint32_t count,
                       uint64_t offset)
{
    struct device *d = opaque;
    bool broken;

    pthread_mutex_lock(&d->lock);
    d->begun++;
    d->ioprio = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    pthread_cond_signal(&d->begins);
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_lock(&d->gate);
    pthread_mutex_unlock(&d->gate);
    assert_true(offset + count <= (BLOCKS - 1) * BLOCK + TAIL);
    pthread_mutex_lock(&d->lock);
    if (d->reads < 64)
        d->order[d->reads] = offset / BLOCK;
    d->reads++;
    d->blocks += (count + BLOCK - 1) / BLOCK;
    broken = d->broken;
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < count; i++)
        ((char *)buf)[i] = 1 + (offset + i) / BLOCK % 100;
    return broken ? EIO : 0;
}

/* Block was among the first n reads. */
static bool is_among(struct device *d, uint64_t block, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (d->order[i] == block)
            return true;
    return false;
}

static struct qm_device_load *next_load;    /* of the next device; NULL: none */
static enum qms_priority next_priority;     /* the same */
static struct qm_admission *next_admission; /* the same; threads are made as needed */
static unsigned (*next_lanes)(void *opaque, unsigned n);

static struct device *make(unsigned threads, unsigned queue, unsigned prefetch_blocks)
{
    struct device *d = calloc(1, sizeof *d);
    struct qm_cache_config cache = {
        .block_size = BLOCK,
        .blocks = 64,
        .prefetch_blocks = prefetch_blocks,
        .shards = 1,
        .eviction = "lru",
        .data = true,
    };
    struct qms_prefetch_config config = {
        .size = (BLOCKS - 1) * BLOCK + TAIL,
        .block_size = BLOCK,
        .max_bytes = 1 << 20,
        .threads = threads,
        .queue = queue,
        .read = read_device,
        .opaque = d,
    };

    pthread_mutex_init(&d->gate, NULL);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->begins, NULL);
    assert_int_equal(qm_cache_new(&cache, &d->cache), 0);
    d->stats = qms_stats_new();
    config.cache = d->cache;
    config.stats = d->stats;
    config.load = next_load;
    config.priority = next_priority;
    config.admission = next_admission;
    config.follows = next_admission != NULL;
    config.lanes = next_lanes;
    d->prefetch = qms_prefetch_start(&config);
    assert_non_null(d->prefetch);
    return d;
}

static void undo(struct device *d)
{
    struct qm_cache_stats stats;

    qms_prefetch_stop(d->prefetch);
    qm_cache_get_stats(d->cache, &stats);
    assert_int_equal(stats.prefetches,
                     stats.used + stats.wasted + stats.prefetch_blocks);
    qm_cache_free(d->cache);
    qms_stats_free(d->stats);
    pthread_mutex_destroy(&d->gate);
    pthread_cond_destroy(&d->begins);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Asks for a block that was prefetched; it comes with the right bytes. */
static void demand(struct device *d, uint64_t block)
{
    char buf[BLOCK], expected[BLOCK];
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(d->cache, block, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.outcome, QM_PREFETCH_HIT);
    if (found.todo == QM_WAIT)
        assert_int_equal(qm_cache_wait(d->cache, found.fill, buf, 0, BLOCK), 0);
    memset(expected, 1 + block % 100, BLOCK);
    if (block == BLOCKS - 1)
        memset(expected + TAIL, 0, BLOCK - TAIL);
    assert_memory_equal(buf, expected, BLOCK);
}

static void wait_for_begun(struct device *d, unsigned n)
{
    pthread_mutex_lock(&d->lock);
    while (d->begun < n)
        pthread_cond_wait(&d->begins, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static unsigned two_lanes(void *opaque, unsigned n)
{
    (void)opaque;
    return n < 2 ? n : 2;
}

/* So many prefetches are in flight as engine/inflight.h says: threads are made for
 * them, and not for more; demands take of them; a layer below that takes fewer is
 * heeded. */
TEST(test_in_flight)
{
    enum { QUEUED = 24 };
    static struct qm_admission admission;
    struct qms_prefetch_stats stats;

    for (unsigned demands = 0, most = 12; most > 0; most = most == 12  ? 8
                                                           : most == 8 ? 2
                                                                       : 0) {
        struct device *d;

        qm_admission_init(&admission);
        atomic_store(&admission.inflight.aim, 12);
        next_admission = &admission;
        next_lanes = most == 2 ? two_lanes : NULL;
        demands = most == 8 ? 4 : 0;
        for (unsigned i = 0; i < demands; i++)
            qm_admission_begin(&admission, false);
        d = make(32, QUEUED, 50);
        pthread_mutex_lock(&d->gate);
        for (uint64_t b = 0; b < QUEUED; b++)
            qms_prefetch_issue(d->prefetch, b * 3, 1, 0, 0);
        wait_for_begun(d, most);
        qms_prefetch_get_stats(d->prefetch, &stats);
        assert_int_equal(stats.busy, most);
        assert_int_equal(stats.allowed, demands > 0 ? 8 : 12);
        assert_in_range(stats.threads, most, most + 1);
        /* Demands end, and leave theirs. */
        for (unsigned i = 0; i < demands; i++)
            qm_admission_end(&admission, false, 0, 1, 1, 0);
        for (unsigned i = 0; i < demands; i++)
            qms_prefetch_kick(d->prefetch);
        wait_for_begun(d, most + demands);
        pthread_mutex_unlock(&d->gate);
        wait_for_begun(d, QUEUED);
        qms_prefetch_get_stats(d->prefetch, &stats);
        assert_int_equal(stats.most, most + demands);
        undo(d);
        qm_admission_destroy(&admission);
    }
    next_admission = NULL;
    next_lanes = NULL;
}

FIXTURE(two_threads, make(2, 32, 32), undo(it))

TEST_ON(test_blocks_arrive, two_threads, struct device *d)
{
    for (uint64_t b = 0; b < 20; b++)
        assert_int_equal(qms_prefetch_issue(d->prefetch, b * 3, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 3, 1, 1, 7), 0);
    assert_int_equal(qms_prefetch_issue(d->prefetch, BLOCKS - 1, 1, 1, 7), 1);
    for (uint64_t b = 0; b < 20; b++)
        demand(d, b * 3);
    demand(d, BLOCKS - 1); /* not whole */
    assert_int_equal(qms_stats_get(d->stats, QMS_DEVICE_BLOCKS), 21);
}

TEST(test_priority)
{
    const int mine = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    const int expected[] = {
        [QMS_PRIORITY_NORMAL] = mine,
        [QMS_PRIORITY_LOW] = IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT | 7,
        [QMS_PRIORITY_IDLE] = IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT};

    for (next_priority = QMS_PRIORITY_NORMAL; next_priority <= QMS_PRIORITY_IDLE;
         next_priority++) {
        struct device *d = make(2, 32, 32);

        assert_int_equal(qms_prefetch_issue(d->prefetch, 3, 1, 1, 7), 1);
        demand(d, 3);
        assert_int_equal(d->ioprio, expected[next_priority]);
        undo(d);
    }
    next_priority = QMS_PRIORITY_NORMAL;
    assert_int_equal(syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0), mine);
}

FIXTURE(one_thread, make(1, 32, 32), undo(it))

TEST_ON(test_neighbours_are_joined, one_thread, struct device *d)
{
    pthread_mutex_lock(&d->gate);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 50, 1, 1, 7), 1);
    for (uint64_t b = 10; b < 20; b++)
        assert_int_equal(qms_prefetch_issue(d->prefetch, b, 1, 1, 7), 1);
    pthread_mutex_unlock(&d->gate);
    for (uint64_t b = 10; b < 20; b++)
        demand(d, b);
    demand(d, 50);
    /* 50 by itself, perhaps with the queue still empty; the others in one read, or in
     * two if the worker had not begun when they came. */
    assert_in_range(d->reads, 2, 3);
}

/* A run is queued as a whole, so that it is one read. */
TEST(test_a_run_is_one_read)
{
    struct device *d = make(2, 64, 50);

    assert_int_equal(qms_prefetch_issue(d->prefetch, 10, 40, 1, 7), 40);
    for (uint64_t b = 10; b < 50; b++)
        demand(d, b);
    assert_int_equal(d->reads, 1);
    /* What is cached is left out; the device's last block need not be whole. */
    assert_int_equal(qms_prefetch_issue(d->prefetch, 45, 10, 1, 7), 5);
    assert_int_equal(qms_prefetch_issue(d->prefetch, BLOCKS - 3, 3, 1, 7), 3);
    for (uint64_t b = 50; b < 55; b++)
        demand(d, b);
    for (uint64_t b = BLOCKS - 3; b < BLOCKS; b++)
        demand(d, b);
    assert_int_equal(d->reads, 3);
    assert_int_equal(d->blocks, 48);
    undo(d);
}

/* The runs of one call are read at once: each thread that begins calls the next. */
TEST(test_runs_at_once)
{
    static struct qm_admission admission;

    for (unsigned follows = 0; follows < 2; follows++) {
        struct device *d;

        qm_admission_init(&admission);
        atomic_store(&admission.inflight.aim, 12);
        next_admission = follows ? &admission : NULL;
        d = make(4, 64, 50);
        for (uint64_t b = 5; b < 20; b += 5)
            assert_int_equal(qms_prefetch_issue(d->prefetch, b, 1, 1, 7), 1);
        for (uint64_t b = 5; b < 20; b += 5)
            demand(d, b);
        pthread_mutex_lock(&d->gate);
        assert_int_equal(qms_prefetch_issue(d->prefetch, 1, 19, 1, 7), 16);
        wait_for_begun(d, 3 + 4);
        pthread_mutex_unlock(&d->gate);
        undo(d);
        qm_admission_destroy(&admission);
    }
    next_admission = NULL;
}

/* Of a run for which the queue has no place, the rest is dropped. */
TEST(test_a_run_and_a_full_queue)
{
    struct device *d = make(1, 1, 32);

    pthread_mutex_lock(&d->gate);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 10, 20, 1, 7), QM_AHEAD_UNIT);
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_DROPPED), 20 - QM_AHEAD_UNIT);
    assert_true(qm_cache_contains(d->cache, 10 + QM_AHEAD_UNIT - 1));
    assert_false(qm_cache_contains(d->cache, 10 + QM_AHEAD_UNIT));
    pthread_mutex_unlock(&d->gate);
    undo(d);
}

/* The one worker waits in a read of block, and nothing is queued; until the gate is
 * unlocked. */
static void occupy(struct device *d, uint64_t block)
{
    pthread_mutex_lock(&d->gate);
    assert_int_equal(qms_prefetch_issue(d->prefetch, block, 1, QMS_CLIENT_NONE, 7), 1);
    pthread_mutex_lock(&d->lock);
    while (d->begun == 0)
        pthread_cond_wait(&d->begins, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

TEST(test_full_queue_drops)
{
    struct device *d = make(1, 4, 32);
    unsigned issued = 0;

    occupy(d, 60);
    for (uint64_t b = 0; b < 20; b++)
        issued += qms_prefetch_issue(d->prefetch, b * 2, 1, 1, 7);
    assert_int_equal(issued, 4);
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_DROPPED), 20 - 4);
    /* What is dropped is not in the cache: a demand misses, and reads it itself. */
    for (uint64_t b = 0; b < 20; b++)
        assert_int_equal(qm_cache_contains(d->cache, b * 2), b < 4);
    pthread_mutex_unlock(&d->gate);
    undo(d);
}

/* Issues each of the blocks from 1 on that is not cached; returns how many were let in.
 */
static unsigned issue_all(struct device *d)
{
    unsigned issued = 0;

    for (uint64_t b = 1; b < BLOCKS; b++)
        issued += qms_prefetch_issue(d->prefetch, b, 1, QMS_CLIENT_NONE, 7);
    return issued;
}

/* The cache has become smaller or larger: as many may wait as it has room for, and no
 * more than was configured. */
TEST(test_bound_follows)
{
    struct device *d = make(1, 80, 63);

    occupy(d, 0);
    qms_prefetch_bound(d->prefetch, 70);
    assert_int_equal(issue_all(d), 70);
    qms_prefetch_bound(d->prefetch, 1000);
    for (uint64_t b = BLOCKS - 1; b > BLOCKS - 11; b--)
        assert_int_equal(qms_prefetch_issue(d->prefetch, b, 1, QMS_CLIENT_NONE, 7), 1);
    assert_int_equal(
        qms_prefetch_issue(d->prefetch, BLOCKS - 11, 1, QMS_CLIENT_NONE, 7), 0);
    qms_prefetch_bound(d->prefetch, 70); /* ten more wait than may */
    assert_int_equal(
        qms_prefetch_issue(d->prefetch, BLOCKS - 11, 1, QMS_CLIENT_NONE, 7), 0);
    assert_true(qms_prefetch_waits(d->prefetch));
    pthread_mutex_unlock(&d->gate);
    undo(d);
}

/* If no number is configured, the more demands are in flight the fewer prefetches may
 * wait: as many as engine/inflight.h says.  One who is refused shows that it waits. */
TEST(test_queue_follows_demands)
{
    static struct qm_admission admission;
    struct device *d;

    qm_admission_init(&admission);
    atomic_store(&admission.inflight.aim, 1);
    next_admission = &admission;
    d = make(1, 0, 63);
    qms_prefetch_bound(d->prefetch, 1000);
    occupy(d, 0); /* the one that may be in flight */
    qm_admission_begin(&admission, false);
    qm_admission_begin(&admission, false);
    atomic_store(&admission.inflight.waited, false);
    assert_int_equal(issue_all(d), 0);
    assert_true(atomic_load(&admission.inflight.waited));
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_DROPPED), BLOCKS - 1);
    qm_admission_end(&admission, false, 0, 1, 1, 0);
    assert_int_equal(issue_all(d), 4);
    qm_admission_end(&admission, false, 0, 1, 1, 0);
    assert_int_equal(issue_all(d), 4);
    pthread_mutex_unlock(&d->gate);
    undo(d);
    next_admission = NULL;
    qm_admission_destroy(&admission);
}

/* Issues every second block from first on; returns how many were let in. */
static unsigned issue(struct device *d, unsigned client, uint64_t first, unsigned n)
{
    unsigned issued = 0;

    for (uint64_t b = first; b < first + 2 * n; b += 2) {
        issued += qms_prefetch_issue(d->prefetch, b, 1, client, 7);
    }
    return issued;
}

/* One who fills the queue leaves others their share of it: with n, an n-th. */
TEST(test_queue_is_shared)
{
    struct device *d = make(1, 8, 32);
    struct qm_lookup found;
    char buf[BLOCK];

    occupy(d, 98);
    assert_int_equal(issue(d, 1, 0, 20), 8);
    assert_int_equal(issue(d, 2, 41, 20), 4); /* half */
    assert_int_equal(issue(d, 1, 0, 20), 0);
    assert_int_equal(issue(d, 3, 81, 8), 2);
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_DROPPED),
                     12 + (4 + 16) + 20 + (2 + 6));
    /* What had to go were the newest of those who had most, and without a trace. */
    for (uint64_t b = 0; b < 8; b++)
        assert_int_equal(qm_cache_contains(d->cache, 2 * b), b < 3);
    for (uint64_t b = 0; b < 4; b++)
        assert_int_equal(qm_cache_contains(d->cache, 41 + 2 * b), b < 3);
    /* Room that was given up is anybody's. */
    assert_int_equal(qm_cache_demand(d->cache, 81, buf, 0, BLOCK, &found), 0);
    assert_true(qms_prefetch_take(d->prefetch, 81, found.fill));
    qm_cache_fail(d->cache, found.fill);
    assert_int_equal(qm_cache_wait(d->cache, found.fill, buf, 0, BLOCK), EAGAIN);
    assert_int_equal(issue(d, 1, 60, 20), 1);
    pthread_mutex_unlock(&d->gate);
    demand(d, 0);
    demand(d, 41);
    demand(d, 83);
    undo(d);
}

/* The worker serves clients in turn, however many prefetches one has queued before. */
TEST_ON(test_turns, one_thread, struct device *d)
{
    occupy(d, 98);
    assert_int_equal(issue(d, 1, 0, 20), 20);
    assert_int_equal(issue(d, 2, 50, 4), 4);
    assert_int_equal(issue(d, 3, 70, 2), 2);
    pthread_mutex_unlock(&d->gate);
    demand(d, 38); /* the last one of all */
    for (unsigned i = 0; i < 4; i++)
        assert_true(is_among(d, 50 + 2 * i, 1 + 3 * (i + 1)));
    for (unsigned i = 0; i < 2; i++)
        assert_true(is_among(d, 70 + 2 * i, 1 + 3 * (i + 1)));
    assert_true(is_among(d, 0, 1 + 3));
}

/* A run of neighbours is one read, but its blocks count. */
TEST(test_turns_by_blocks)
{
    struct device *d = make(1, 40, 40);

    occupy(d, 98);
    for (uint64_t b = 0; b < 20; b++)
        assert_int_equal(qms_prefetch_issue(d->prefetch, b, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 24, 1, 1, 7), 1);
    assert_int_equal(issue(d, 2, 30, 16), 16);
    pthread_mutex_unlock(&d->gate);
    demand(d, 60);
    demand(d, 24);
    /* 98; 20 blocks of the first's; 16 of the second's; the first's last. */
    assert_int_equal(d->reads, 1 + 1 + 16 + 1);
    assert_int_equal(d->order[1], 0);
    assert_int_equal(d->order[18], 24);
    undo(d);
}

TEST_ON(test_taking_over, one_thread, struct device *d)
{
    struct qm_lookup one, five;
    char buf[BLOCK];

    pthread_mutex_lock(&d->gate);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 1, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 3, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 5, 1, 1, 7), 1);
    assert_int_equal(qm_cache_demand(d->cache, 3, buf, 0, BLOCK, &one), 0);
    assert_int_equal(qm_cache_demand(d->cache, 5, buf, 0, BLOCK, &five), 0);
    assert_false(qms_prefetch_take(d->prefetch, 5, one.fill));
    assert_true(qms_prefetch_take(d->prefetch, 5, five.fill));
    assert_false(qms_prefetch_take(d->prefetch, 5, five.fill));
    memset(buf, 6, BLOCK);
    qm_cache_fill(d->cache, five.fill, buf);
    assert_int_equal(qm_cache_wait(d->cache, five.fill, buf, 0, BLOCK), 0);
    assert_int_equal(buf[7], 6);
    pthread_mutex_unlock(&d->gate);
    assert_int_equal(qm_cache_wait(d->cache, one.fill, buf, 0, BLOCK), 0);
    demand(d, 1);
    assert_int_equal(d->blocks, 2);
}

TEST_ON(test_failing_is_silent, two_threads, struct device *d)
{
    d->broken = true;
    assert_int_equal(qms_prefetch_issue(d->prefetch, 1, 1, 1, 7), 1);
    for (int i = 0; i < 6000 && qm_cache_contains(d->cache, 1); i++)
        usleep(10000);
    assert_false(qm_cache_contains(d->cache, 1));
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_FAILED), 1);
}

/* How long a read takes that fails says nothing of the device. */
TEST(test_failing_is_not_fast)
{
    struct qm_device_load load;
    struct device *d;

    qm_device_load_init(&load);
    next_load = &load;
    d = make(1, 32, 32);
    next_load = NULL;
    d->broken = true;
    for (uint64_t b = 0; b < 20; b++)
        assert_int_equal(qms_prefetch_issue(d->prefetch, 2 * b, 1, 1, 7), 1);
    for (int i = 0; i < 6000 && qms_stats_get(d->stats, QMS_PREFETCH_FAILED) < 20; i++)
        usleep(10000);
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_FAILED), 20);
    pthread_mutex_lock(&load.lock);
    assert_int_equal(load.reads, 0);
    pthread_mutex_unlock(&load.lock);
    pthread_mutex_lock(&d->lock);
    d->broken = false;
    pthread_mutex_unlock(&d->lock);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 50, 1, 1, 7), 1);
    demand(d, 50);
    undo(d); /* the thread has ended, and counted */
    assert_int_equal(load.reads, 1);
    qm_device_load_destroy(&load);
}

/* A block that is written while its prefetch is queued is not read for it any more. */
TEST_ON(test_cancelled, one_thread, struct device *d)
{
    struct qm_cache_write w;
    char buf[BLOCK] = {0};

    pthread_mutex_lock(&d->gate);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 1, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 3, 1, 1, 7), 1);
    assert_int_equal(qms_prefetch_issue(d->prefetch, 5, 1, 1, 7), 1);
    qm_cache_write_begin(d->cache, &w, 3 * BLOCK, BLOCK);
    qm_cache_write_end(d->cache, &w, QM_WRITE_DATA, buf);
    pthread_mutex_unlock(&d->gate);
    demand(d, 5);
    demand(d, 1);
    assert_false(qm_cache_contains(d->cache, 3));
    for (int i = 0; i < 6000 && qms_stats_get(d->stats, QMS_PREFETCH_CANCELLED) == 0;
         i++)
        usleep(10000);
    assert_int_equal(qms_stats_get(d->stats, QMS_PREFETCH_CANCELLED), 1);
}

TEST_ON(test_stop_with_a_full_queue, one_thread, struct device *d)
{
    for (uint64_t b = 0; b < 32; b++)
        qms_prefetch_issue(d->prefetch, b * 2, 1, 1, 7);
}

#define THREADS 3

static void *storm(void *opaque)
{
    struct device *d = opaque;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    char buf[BLOCK];

    for (int i = 0; i < 5000; i++) {
        uint64_t block = rand_r(&seed) % BLOCKS;
        struct qm_lookup found;

        if (i % 2 == 0) {
            unsigned count = 1 + i / 2 % 4;

            if (count > BLOCKS - block)
                count = BLOCKS - block;
            qms_prefetch_issue(d->prefetch, block, count, i / 2 % 3, i);
            continue;
        }
        if (qm_cache_demand(d->cache, block, buf, 0, BLOCK, &found) != 0)
            continue;
        if (found.todo == QM_FETCH) {
            memset(buf, 1 + block % 100, BLOCK);
            qm_cache_fill(d->cache, found.fill, buf);
        } else if (found.todo == QM_WAIT) {
            if (qms_prefetch_take(d->prefetch, block, found.fill)) {
                memset(buf, 1 + block % 100, BLOCK);
                qm_cache_fill(d->cache, found.fill, buf);
            }
            if (qm_cache_wait(d->cache, found.fill, buf, 0, BLOCK) == EAGAIN)
                continue;
        }
        if (buf[0] != (char)(1 + block % 100))
            abort();
    }
    return NULL;
}

TEST(test_storm)
{
    struct device *d = make(2, 8, 16);
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, storm, d), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    undo(d);
}
