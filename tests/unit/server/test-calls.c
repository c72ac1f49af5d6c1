/* SPDX-License-Identifier: BSD-3-Clause */
/* test-calls.c - which of the threads that prefetch are called, by hand: a call does
 * not arrive before the test lets it, threads lose patience when it says so, and cannot
 * be made. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/prefetch.h"

#define BLOCK  4096
#define BLOCKS 100
#define SLICE  5000000 /* ns */

enum { THREADS = 3, CALLS = 8 };

#define WAIT_UNTIL(condition)                                                          \
    for (struct timespec pause = {.tv_nsec = 1000000}; !(condition);)                  \
    nanosleep(&pause, NULL)

struct pool {
    pthread_mutex_t gate; /* held by the test: reads wait */
    atomic_uint begun;
    atomic_int last; /* thread that has begun a read */
    struct qm_admission admission;
    struct qm_cache *cache;
    struct qms_stats *stats;
    struct qms_prefetch *prefetch;
};

static void issue(struct pool *p, uint64_t block)
{
    assert_int_equal(qms_prefetch_issue(p->prefetch, block, 1, 0, 0), 1);
}

static void demand(struct pool *p, uint64_t block)
{
    struct qm_lookup found;
    char buf[BLOCK];

    assert_int_equal(qm_cache_demand(p->cache, block, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.outcome, QM_PREFETCH_HIT);
    if (found.todo == QM_WAIT)
        assert_int_equal(qm_cache_wait(p->cache, found.fill, buf, 0, BLOCK), 0);
}

/* --- what is wrapped --- */

int __wrap_sem_post(sem_t *sem);
int __real_sem_post(sem_t *sem);
int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until);
int __real_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*start)(void *), void *opaque);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*start)(void *), void *opaque);

/* Calls are kept back.  Nobody but the test's thread makes any meanwhile. */
static atomic_bool keep;
static sem_t *kept[CALLS];
static unsigned calls;

static atomic_bool impatient, refuse;
static atomic_uint waiting;  /* threads that wait to be called */
static atomic_uint timeouts; /* how often patience has ended */
static _Atomic(struct pool *) meanwhile;

int __wrap_sem_post(sem_t *sem)
{
    if (!keep)
        return __real_sem_post(sem);
    assert_in_range(calls, 0, CALLS - 1);
    kept[calls++] = sem;
    return 0;
}

static void let_go(void)
{
    keep = false;
    while (calls > 0)
        __real_sem_post(kept[--calls]);
}

int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    struct timespec soon;
    int r;

    (void)until;
    atomic_fetch_add(&waiting, 1);
    do {
        clock_gettime(clock, &soon);
        soon.tv_nsec += SLICE;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        r = __real_sem_clockwait(sem, clock, &soon);
    } while (r == -1 && !atomic_load(&impatient));
    timeouts += r == -1;
    atomic_fetch_sub(&waiting, 1);
    return r;
}

/* A thread is about to be made, and has been counted on: meanwhile another one becomes
 * idle, and a job comes. */
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    struct pool *p = atomic_exchange(&meanwhile, NULL);

    if (p) {
        pthread_mutex_unlock(&p->gate);
        demand(p, 10);
        demand(p, 20);
        WAIT_UNTIL(waiting == 1);
        issue(p, 30);
    }
    return __real_pthread_sigmask(how, set, old);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*start)(void *), void *opaque)
{
    if (atomic_load(&refuse))
        return EAGAIN;
    return __real_pthread_create(thread, attr, start, opaque);
}

/* --- */

static int read_zeros(void *opaque, unsigned worker, void *buf, uint32_t count,
                      uint64_t offset)
{
    struct pool *p = opaque;

    (void)worker;
    (void)offset;
    atomic_store(&p->last, gettid());
    atomic_fetch_add(&p->begun, 1);
    pthread_mutex_lock(&p->gate);
    pthread_mutex_unlock(&p->gate);
    memset(buf, 0, count);
    return 0;
}

/* With THREADS threads, which all wait. */
static struct pool *make(void)
{
    struct pool *p = calloc(1, sizeof *p);
    struct qm_cache_config cache = {
        .block_size = BLOCK,
        .blocks = 64,
        .prefetch_blocks = 32,
        .shards = 1,
        .eviction = "lru",
        .data = true,
    };
    struct qms_prefetch_config config = {
        .size = BLOCKS * BLOCK,
        .block_size = BLOCK,
        .max_bytes = 1 << 20,
        .threads = THREADS,
        .queue = 16,
        .follows = true,
        .read = read_zeros,
        .opaque = p,
    };

    pthread_mutex_init(&p->gate, NULL);
    qm_admission_init(&p->admission);
    atomic_store(&p->admission.inflight.aim, THREADS);
    assert_int_equal(qm_cache_new(&cache, &p->cache), 0);
    p->stats = qms_stats_new();
    config.cache = p->cache;
    config.stats = p->stats;
    config.admission = &p->admission;
    atomic_store(&refuse, true); /* without any thread it does not start */
    assert_null(qms_prefetch_start(&config));
    atomic_store(&refuse, false);
    p->prefetch = qms_prefetch_start(&config);
    assert_non_null(p->prefetch);
    pthread_mutex_lock(&p->gate);
    for (unsigned i = 0; i < THREADS; i++)
        issue(p, 90 + 2 * i);
    WAIT_UNTIL(p->begun == THREADS);
    pthread_mutex_unlock(&p->gate);
    WAIT_UNTIL(waiting == THREADS);
    return p;
}

/* Also after an assertion has failed anywhere. */
static void undo(struct pool *p)
{
    atomic_store(&impatient, false);
    atomic_store(&refuse, false);
    let_go();
    pthread_mutex_trylock(&p->gate);
    pthread_mutex_unlock(&p->gate);
    qms_prefetch_stop(p->prefetch);
    qm_cache_free(p->cache);
    qms_stats_free(p->stats);
    qm_admission_destroy(&p->admission);
    pthread_mutex_destroy(&p->gate);
    free(p);
}

static unsigned threads(struct pool *p)
{
    struct qms_prefetch_stats stats;

    qms_prefetch_get_stats(p->prefetch, &stats);
    return stats.threads;
}

/* The others' patience ends. */
static void leave_one(struct pool *p)
{
    atomic_store(&impatient, true);
    WAIT_UNTIL(threads(p) == 1);
    atomic_store(&impatient, false);
}

FIXTURE(pool, make(), undo(it))

/* A thread for each job, at once; but not one more where those on their way will do. */
TEST_ON(test_a_call_for_each_job, pool, struct pool *p)
{
    struct qm_lookup found;
    char buf[BLOCK];

    keep = true;
    issue(p, 10);
    assert_int_equal(calls, 1);
    issue(p, 20);
    assert_int_equal(calls, 2);
    assert_int_equal(qm_cache_demand(p->cache, 10, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_WAIT);
    assert_true(qms_prefetch_take(p->prefetch, 10, found.fill)); /* no job any more */
    issue(p, 30);
    assert_int_equal(calls, 2);
    issue(p, 40);
    assert_int_equal(calls, 3);
    qm_cache_fail(p->cache, found.fill);
    qm_cache_wait(p->cache, found.fill, buf, 0, BLOCK);
    let_go();
    demand(p, 20);
    demand(p, 30);
    demand(p, 40);
}

/* Threads that nobody called for long end, but for one; others are made when needed. */
TEST_ON(test_patience_ends, pool, struct pool *p)
{
    leave_one(p);
    pthread_mutex_lock(&p->gate);
    for (unsigned i = 0; i < THREADS; i++)
        issue(p, 10 + 2 * i);
    WAIT_UNTIL(p->begun == 2 * THREADS);
    pthread_mutex_unlock(&p->gate);
    for (unsigned i = 0; i < THREADS; i++)
        demand(p, 10 + 2 * i);
}

/* Those that are called at the moment at which their patience ends have been called:
 * they wait for the call to arrive, and then as before. */
TEST_ON(test_called_at_the_last_moment, pool, struct pool *p)
{
    unsigned before;

    pthread_mutex_lock(&p->gate);
    issue(p, 30);
    WAIT_UNTIL(p->begun == THREADS + 1 && waiting == 2);
    keep = true;
    issue(p, 10);
    issue(p, 20);
    before = timeouts;
    atomic_store(&impatient, true);
    WAIT_UNTIL(timeouts - before >= 4 || p->begun > THREADS + 1);
    atomic_store(&impatient, false);
    assert_int_equal(p->begun, THREADS + 1);
    let_go();
    pthread_mutex_unlock(&p->gate);
    for (uint64_t b = 10; b <= 30; b += 10)
        demand(p, b);
    WAIT_UNTIL(waiting == THREADS);
    assert_int_equal(threads(p), THREADS);
}

/* The one that waits the shortest is called, so that others may end. */
TEST_ON(test_the_last_is_called_first, pool, struct pool *p)
{
    int thread;

    issue(p, 10);
    demand(p, 10);
    WAIT_UNTIL(waiting == THREADS);
    thread = atomic_load(&p->last);
    for (uint64_t b = 20; b < 60; b += 10) {
        issue(p, b);
        demand(p, b);
        WAIT_UNTIL(waiting == THREADS);
        assert_int_equal(atomic_load(&p->last), thread);
    }
}

/* Two that are called for jobs are not called again where no more may be in flight. */
TEST_ON(test_a_call_for_each_in_flight, pool, struct pool *p)
{
    atomic_store(&p->admission.inflight.aim, 2);
    keep = true;
    issue(p, 10);
    issue(p, 20);
    issue(p, 30);
    assert_int_equal(calls, 2);
    let_go();
    for (uint64_t b = 10; b <= 30; b += 10)
        demand(p, b);
}

/* A thread that could not be made is not waited for. */
TEST_ON(test_no_thread_can_be_made, pool, struct pool *p)
{
    leave_one(p);
    atomic_store(&refuse, true);
    pthread_mutex_lock(&p->gate);
    issue(p, 10);
    WAIT_UNTIL(p->begun == THREADS + 1);
    issue(p, 20); /* would be for another thread */
    pthread_mutex_unlock(&p->gate);
    demand(p, 10);
    demand(p, 20);
    WAIT_UNTIL(waiting == 1);
    issue(p, 30);
    demand(p, 30);
}

/* Nor is a job left for it that came before this was known, and when another thread had
 * become idle. */
TEST_ON(test_a_job_before_none_can_be_made, pool, struct pool *p)
{
    leave_one(p);
    pthread_mutex_lock(&p->gate);
    issue(p, 10);
    WAIT_UNTIL(p->begun == THREADS + 1);
    atomic_store(&refuse, true);
    meanwhile = p;
    issue(p, 20);
    assert_null(meanwhile);
    demand(p, 30);
}

/* One that waits because of how many are in flight says so, which may raise that
 * number; and then a demand that ends sends it. */
TEST_ON(test_held_back, pool, struct pool *p)
{
    atomic_store(&p->admission.inflight.aim, 2);
    pthread_mutex_lock(&p->gate);
    issue(p, 10);
    issue(p, 20);
    WAIT_UNTIL(p->begun == THREADS + 2);
    atomic_store(&p->admission.inflight.waited, false);
    issue(p, 30);
    assert_true(atomic_load(&p->admission.inflight.waited));
    atomic_store(&p->admission.inflight.aim, THREADS);
    qms_prefetch_kick(p->prefetch);
    WAIT_UNTIL(p->begun == THREADS + 3);
    pthread_mutex_unlock(&p->gate);
    for (uint64_t b = 10; b <= 30; b += 10)
        demand(p, b);
}
