/* SPDX-License-Identifier: BSD-3-Clause */
/* test-paths.c - reads, writes and prefetches that meet, in every order that matters.
 *
 * What cache/ promises about this has tests of its own
 * (tests/unit/cache/test-writes.c); here it is what the server makes of it, with
 * threads that really wait for each other.
 */
#include <errno.h>

#include "tests/harness.h"

#include "bare.h"
#include "tests/unit/check.h"

#define BLOCK BARE_BLOCK

static const enum bare_op changes[] = {BARE_WRITE, BARE_ZERO, BARE_TRIM};
#define CHANGES (sizeof changes / sizeof changes[0])

bool __real_qm_cache_contains(struct qm_cache *cache, uint64_t block);
bool __wrap_qm_cache_contains(struct qm_cache *cache, uint64_t block);

/* Who looks whether a block is there, looks just before it comes. */
static _Atomic bool looks_before;

/* Called, once, when somebody looks. */
static void (*_Atomic meanwhile)(struct bare *b);
static struct bare *whose;

bool __wrap_qm_cache_contains(struct qm_cache *cache, uint64_t block)
{
    void (*f)(struct bare *) = atomic_exchange(&meanwhile, NULL);

    if (f)
        f(whose);
    return !looks_before && __real_qm_cache_contains(cache, block);
}

static bool is_cached(struct bare *b, uint64_t block)
{
    return qm_cache_contains(b->s.cache, block);
}

static void read_block(struct bare *b, uint64_t block)
{
    assert_int_equal(bare_do(b, BARE_READ, block * BLOCK, BLOCK), 0);
}

static struct bare_job *start_read(struct bare *b, uint64_t block)
{
    return bare_start(b, BARE_READ, block * BLOCK, BLOCK);
}

/* A miss of block 0, which makes these likely. */
static void prefetch(struct bare *b, const uint64_t *blocks, unsigned n)
{
    memcpy(b->fake.wants, blocks, n * sizeof blocks[0]);
    b->fake.want_n = n;
    read_block(b, 0);
    b->fake.want_n = 0;
}

/* ---- what was acknowledged is what is read */

/* The prefetch has read the old bytes when the change is acknowledged. */
TEST(test_prefetch_before_a_change)
{
    for (unsigned i = 0; i < CHANGES; i++) {
        struct bare *b = bare_new(32, 8);
        struct bare_trap *reading = bare_trap(b, BARE_PREFETCH, 9, true);

        prefetch(b, &(uint64_t){9}, 1);
        bare_await(b, reading);
        assert_int_equal(bare_do(b, changes[i], 9 * BLOCK + 100, 200), 0);
        bare_open(b, reading);
        bare_await_quiet(b);
        assert_false(is_cached(b, 9));
        bare_check(b, 9 * BLOCK, BLOCK);
        assert_int_equal(bare_calls(b, BARE_READ, 9), 1);
        bare_free(b);
    }
}

/* The prefetch has read the old bytes, or begins to read, when the change is carried
 * out below and not acknowledged: it may have seen anything. */
TEST(test_prefetch_during_a_change)
{
    for (unsigned i = 0; i < 2 * CHANGES; i++) {
        struct bare *b = bare_new(32, 8);
        struct bare_trap *reading = bare_trap(b, BARE_PREFETCH, 9, true);
        struct bare_trap *changing = bare_trap(b, changes[i / 2], 9, true);
        struct bare_job *j;

        if (i % 2 == 0) {
            prefetch(b, &(uint64_t){9}, 1);
            bare_await(b, reading);
        }
        j = bare_start(b, changes[i / 2], 9 * BLOCK + 100, 200);
        bare_await(b, changing);
        if (i % 2 == 1) {
            prefetch(b, &(uint64_t){9}, 1);
            bare_await(b, reading);
        }
        bare_open(b, reading);
        bare_await_quiet(b);
        assert_false(is_cached(b, 9));
        bare_open(b, changing);
        assert_int_equal(bare_join(j, NULL), 0);
        bare_check(b, 9 * BLOCK, BLOCK);
        bare_free(b);
    }
}

/* So with a demand; and who comes after the change does not wait for what was read
 * before it. */
TEST(test_demand_before_a_change)
{
    for (unsigned i = 0; i < CHANGES; i++) {
        struct bare *b = bare_new(32, 8);
        struct bare_trap *reading = bare_trap(b, BARE_READ, 9, true);
        struct bare_job *j = start_read(b, 9), *later;

        bare_await(b, reading);
        assert_int_equal(bare_do(b, changes[i], 9 * BLOCK + 100, 200), 0);
        later = start_read(b, 9);
        bare_await_waiter(b, 9, 1, 2);
        assert_int_equal(bare_calls(b, BARE_READ, 9), 2);
        assert_int_equal(bare_join(later, b->disk + 9 * BLOCK), 0);
        bare_open(b, reading);
        assert_int_equal(bare_join(j, NULL), 0);
        bare_check(b, 9 * BLOCK, BLOCK);
        bare_free(b);
    }
}

/* In either part of the cache. */
TEST(test_change_of_what_is_cached)
{
    for (unsigned i = 0; i < CHANGES; i++) {
        struct bare *b = bare_new(32, 8);
        const uint64_t last = BARE_SIZE - 50;

        read_block(b, 9);
        bare_check(b, last, 50);
        prefetch(b, (uint64_t[]){11, 12}, 2);
        bare_await_quiet(b);
        assert_true(is_cached(b, 9) && is_cached(b, 11) && is_cached(b, 12));
        assert_int_equal(bare_do(b, changes[i], 9 * BLOCK + 5, 3 * BLOCK), 0);
        assert_int_equal(bare_do(b, changes[i], last + 7, 43), 0);
        bare_check(b, 8 * BLOCK, 6 * BLOCK);
        bare_check(b, last - 50, 100);
        bare_free(b);
    }
}

/* A change that fails may have been carried out, or in part. */
TEST(test_change_that_fails)
{
    for (unsigned i = 0; i < CHANGES; i++) {
        struct bare *b = bare_new(32, 8);

        read_block(b, 9);
        bare_fail(b, changes[i], 9);
        assert_int_equal(bare_do(b, changes[i], 9 * BLOCK + 100, 200), EIO);
        bare_check(b, 9 * BLOCK, BLOCK);
        bare_free(b);
    }
}

static struct fake successor;

/* As replace_policy() does. */
static void replace_prefetcher(struct bare *b)
{
    const struct qm_mining_config mining = {.ablate = 0};

    qms_rwlock_write(&b->s.contexts.lock);
    qms_contexts_restart(&b->s.contexts, &b->slot, &successor.base, QM_LEVEL_INNERMOST);
    qms_contexts_restart(&b->s.contexts, NULL, &successor.base, QM_LEVEL_INNERMOST);
    qm_engine_set_prefetcher(&b->s.engine, &successor.base, &mining);
    qms_rwlock_write_unlock(&b->s.contexts.lock);
    b->fake.gone = true;
}

/* What a stream wanted, and the budget has no read for, its prefetcher is told of, if
 * it is there still: the thread that tells may have been overtaken by a change of the
 * policy. */
TEST(test_refused)
{
    for (unsigned replaced = 0; replaced < 2; replaced++) {
        const struct qm_budget budget = {1, UINT64_MAX / 4};
        struct bare *b = bare_new(32, 8);
        struct qm_rate rate;

        qm_rate_init(&rate);
        qm_rate_set(&rate, &budget);
        b->s.engine.rate = &rate;
        b->fake.wants[0] = 20;
        b->fake.want_n = 1;
        b->fake.streaming = true;
        fake_init(&successor);
        whose = b;
        atomic_store(&meanwhile, replaced ? replace_prefetcher : NULL);
        read_block(b, 9);
        assert_null(atomic_load(&meanwhile));
        assert_int_equal(b->fake.asked, 1);
        assert_int_equal(atomic_load(&rate.over), 1);
        assert_int_equal(b->fake.refused, !replaced);
        assert_false(b->fake.misused);
        if (!replaced)
            assert_int_equal(b->fake.refused_at, 20);
        assert_int_equal(successor.refused, 0);
        bare_free(b);
        fake_check_and_destroy(&successor);
        qm_rate_destroy(&rate);
    }
}

static void trim_forgets(struct bare *b, uint64_t offset, uint32_t count,
                         uint64_t block, uint64_t n)
{
    b->fake.forgotten_n = 0;
    assert_int_equal(bare_do(b, BARE_TRIM, offset, count), 0);
    assert_int_equal(b->fake.forgotten_n, n);
    if (n > 0)
        assert_int_equal(b->fake.forgotten, block);
}

FIXTURE(usual, bare_new(32, 8), bare_free(it))

/* The prefetcher forgets blocks that were trimmed as a whole, if that succeeded, and
 * none that were zeroed or written. */
TEST_ON(test_what_is_forgotten, usual, struct bare *b)
{
    trim_forgets(b, 9 * BLOCK, 3 * BLOCK, 9, 3);
    trim_forgets(b, 9 * BLOCK + 100, 3 * BLOCK, 10, 2);
    trim_forgets(b, 9 * BLOCK + 100, 200, 0, 0);
    trim_forgets(b, 9 * BLOCK + 100, BLOCK, 0, 0);
    trim_forgets(b, BARE_SIZE - BARE_TAIL - BLOCK, BLOCK + BARE_TAIL, BARE_BLOCKS - 2,
                 2);
    trim_forgets(b, BARE_SIZE - BARE_TAIL, BARE_TAIL - 1, 0, 0);
    assert_int_equal(bare_do(b, BARE_ZERO, 9 * BLOCK, BLOCK), 0);
    assert_int_equal(bare_do(b, BARE_WRITE, 9 * BLOCK, BLOCK), 0);
    bare_fail(b, BARE_TRIM, 9);
    assert_int_equal(bare_do(b, BARE_TRIM, 9 * BLOCK, BLOCK), EIO);
    assert_int_equal(b->fake.forgotten_n, 0);
}

/* A write has reached the disk, and is not acknowledged: others still read what was
 * before, from the cache.  So must who reads the disk beside them, or a later reader
 * would see time go back. */
static void nobody_is_ahead(struct bare *b, struct bare_trap *reading,
                            struct bare_job *reader)
{
    struct bare_trap *writing = bare_trap(b, BARE_WRITE, 3, true);
    unsigned char before[BLOCK];
    struct bare_job *writer;

    read_block(b, 3); /* by another, and kept */
    assert_true(is_cached(b, 3));
    memcpy(before, b->disk + 3 * BLOCK, BLOCK);
    writer = bare_start(b, BARE_WRITE, 3 * BLOCK, BLOCK);
    bare_await(b, writing);
    bare_open(b, reading);
    assert_int_equal(bare_join(reader, before), 0);
    assert_int_equal(bare_join(start_read(b, 3), before), 0);
    bare_open(b, writing);
    assert_int_equal(bare_join(writer, NULL), 0);
    bare_check(b, 3 * BLOCK, BLOCK);
}

TEST(test_read_that_is_not_kept)
{
    struct bare *b = bare_new(1, 0);
    struct bare_trap *reading = bare_trap(b, BARE_READ, 3, false);
    struct bare_job *reader = start_read(b, 3);

    bare_await(b, reading);
    read_block(b, 5); /* drives it out */
    nobody_is_ahead(b, reading, reader);
    bare_free(b);
}

TEST(test_read_past_the_cache)
{
    struct bare *b = bare_new(4, 2);
    struct bare_trap *reading = bare_trap(b, BARE_READ, 3, false);
    struct bare_job *reader;
    struct qm_fill *held[4096];
    unsigned n = 0;

    while (qm_cache_prefetch(b->s.cache, 1000 + n, 0, &held[n]) == 0)
        assert_true(++n < 4096);
    reader = start_read(b, 3);
    bare_await(b, reading);
    assert_false(is_cached(b, 3));
    while (n > 0)
        qm_cache_fail(b->s.cache, held[--n]);
    nobody_is_ahead(b, reading, reader);
    bare_free(b);
}

/* NBD_CMD_CACHE of a block that a reader has just begun to read, who fails; then there
 * is no room. */
TEST(test_advice_without_room)
{
    struct bare *b = bare_new(4, 2);
    struct bare_trap *reading = bare_trap(b, BARE_READ, 3, false);
    struct bare_job *reader = start_read(b, 3), *advice;
    struct qm_fill *held[4096];
    unsigned n = 0;

    reading->error = EIO;
    bare_await(b, reading);
    looks_before = true;
    advice = bare_start(b, BARE_PREFETCH, 3 * BLOCK, BLOCK);
    bare_await_waiter(b, 3, 1, 2);
    looks_before = false;
    while (qm_cache_prefetch(b->s.cache, 1000 + n, 0, &held[n]) == 0)
        assert_true(++n < 4096);
    bare_open(b, reading);
    assert_int_equal(bare_join(reader, NULL), EIO);
    assert_int_equal(bare_join(advice, NULL), 0);
    assert_int_equal(bare_calls(b, BARE_READ, 3), 1);
    while (n > 0)
        qm_cache_fail(b->s.cache, held[--n]);
    bare_free(b);
}

/* A read of three blocks, of which any are in the cache already. */
TEST_ON(test_read_of_what_is_partly_there, usual, struct bare *b)
{
    for (unsigned there = 0; there < 8; there++) {
        const uint64_t first = 4 * there;

        for (unsigned i = 0; i < 3; i++)
            if (there >> i & 1)
                bare_check(b, (first + i) * BLOCK, BLOCK);
        bare_check(b, first * BLOCK, 3 * BLOCK);
    }
}

/* ---- errors */

/* The reader whose read fails gets the error; who waited for it tries for himself. */
TEST_ON(test_error_is_the_askers, usual, struct bare *b)
{
    struct bare_trap *reading = bare_trap(b, BARE_READ, 4, false);
    struct bare_job *first, *second;

    reading->error = EIO;
    first = bare_start(b, BARE_READ, 4 * BLOCK, 3 * BLOCK);
    bare_await(b, reading);
    second = start_read(b, 5);
    bare_await_waiter(b, 5, 1, 2);
    bare_open(b, reading);
    assert_int_equal(bare_join(first, NULL), EIO);
    assert_int_equal(bare_join(second, b->disk + 5 * BLOCK), 0);
    assert_int_equal(bare_calls(b, BARE_READ, 5), 2);
    assert_false(is_cached(b, 4) || is_cached(b, 6));
    assert_true(is_cached(b, 5));
}

TEST_ON(test_error_is_not_cached, usual, struct bare *b)
{
    bare_fail(b, BARE_READ, 4);
    assert_int_equal(bare_do(b, BARE_READ, 4 * BLOCK + 1, 2 * BLOCK), EIO);
    assert_false(is_cached(b, 4) || is_cached(b, 5) || is_cached(b, 6));
    bare_fail(b, BARE_READ, 4);
    assert_int_equal(bare_do(b, BARE_PREFETCH, 4 * BLOCK, BLOCK), EIO);
    assert_false(is_cached(b, 4));
    bare_fail(b, BARE_READ, 4)->error = BARE_UNSAID;
    assert_int_equal(bare_do(b, BARE_READ, 4 * BLOCK, BLOCK), EIO);
    bare_check(b, 4 * BLOCK, 2 * BLOCK);
}

TEST_ON(test_failed_prefetch, usual, struct bare *b)
{
    struct bare_trap *reading = bare_trap(b, BARE_PREFETCH, 9, false);
    struct bare_job *j;

    reading->error = EIO;
    prefetch(b, &(uint64_t){9}, 1);
    bare_await(b, reading);
    j = start_read(b, 9);
    bare_await_waiter(b, 9, 1, 1);
    bare_open(b, reading);
    assert_int_equal(bare_join(j, b->disk + 9 * BLOCK), 0);
    assert_int_equal(qms_stats_get(b->s.stats, QMS_PREFETCH_FAILED), 1);
}

/* ---- who reads */

static unsigned calls_for(struct bare *b, uint64_t offset, uint32_t count)
{
    unsigned before = b->call_count;

    bare_check(b, offset, count);
    return b->call_count - before;
}

FIXTURE(large, bare_new(200, 8), bare_free(it))

TEST_ON(test_adjacent_misses, large, struct bare *b)
{
    assert_int_equal(calls_for(b, 4 * BLOCK + 1, 9 * BLOCK), 1); /* 4 to 13 */
    assert_int_equal(calls_for(b, 4 * BLOCK, 10 * BLOCK), 0);
    assert_int_equal(calls_for(b, 2 * BLOCK, 16 * BLOCK), 2);  /* 2, 3; 14 to 17 */
    assert_int_equal(calls_for(b, 20 * BLOCK, 16 * BLOCK), 1); /* the disk's most */
    assert_int_equal(calls_for(b, 36 * BLOCK, 17 * BLOCK), 2);
    assert_int_equal(calls_for(b, 60 * BLOCK, BARE_SIZE - 60 * BLOCK), 1);
    assert_int_equal(bare_do(b, BARE_PREFETCH, 54 * BLOCK, 5 * BLOCK), 0);
    assert_int_equal(calls_for(b, 54 * BLOCK, 5 * BLOCK), 0);
}

TEST_ON(test_one_read_for_all, large, struct bare *b)
{
    struct bare_trap *reading = bare_trap(b, BARE_READ, 4, false);
    struct bare_job *jobs[3];

    jobs[0] = bare_start(b, BARE_READ, 4 * BLOCK, 3 * BLOCK);
    bare_await(b, reading);
    jobs[1] = start_read(b, 4);
    jobs[2] = bare_start(b, BARE_READ, 5 * BLOCK + 7, 4 * BLOCK);
    bare_await_waiter(b, 4, 1, 2);
    bare_await_waiter(b, 5, 1, 2);
    bare_open(b, reading);
    assert_int_equal(bare_join(jobs[0], b->disk + 4 * BLOCK), 0);
    assert_int_equal(bare_join(jobs[1], b->disk + 4 * BLOCK), 0);
    assert_int_equal(bare_join(jobs[2], b->disk + 5 * BLOCK + 7), 0);
    for (uint64_t block = 4; block < 10; block++)
        assert_int_equal(bare_calls(b, BARE_READ, block), 1);
}

/* Its prefetch is queued behind another, which hangs. */
TEST_ON(test_demand_goes_first, usual, struct bare *b)
{
    struct bare_trap *reading = bare_trap(b, BARE_PREFETCH, 9, false);
    struct bare_job *j;

    prefetch(b, (uint64_t[]){9, 20}, 2);
    bare_await(b, reading);
    j = start_read(b, 20);
    bare_await_waiter(b, 20, 1, 1);
    assert_int_equal(bare_calls(b, BARE_READ, 20), 1);
    assert_int_equal(bare_join(j, b->disk + 20 * BLOCK), 0);
    bare_open(b, reading);
    bare_await_quiet(b);
    assert_int_equal(bare_calls(b, BARE_PREFETCH, 20), 0);
    bare_check(b, 9 * BLOCK, BLOCK);
    assert_int_equal(bare_calls(b, BARE_READ, 9), 0);
}

/* What a miss makes likely and follows it on the device is read with it, if no worker
 * has begun; and an error there is not the miss's. */
TEST(test_joined)
{
    for (unsigned fails = 0; fails < 2; fails++) {
        struct bare *b = bare_new(64, 16);
        struct bare_trap *reading = bare_trap(b, BARE_PREFETCH, 40, false);
        unsigned before;

        prefetch(b, &(uint64_t){40}, 1);
        bare_await(b, reading);
        if (fails)
            bare_fail(b, BARE_READ, 12);
        memcpy(b->fake.wants, (uint64_t[]){11, 12, 13}, 3 * sizeof(uint64_t));
        b->fake.want_n = 3;
        before = b->call_count;
        bare_check(b, 10 * BLOCK, BLOCK);
        b->fake.want_n = 0;
        assert_int_equal(b->call_count - before, 1 + fails);
        for (uint64_t block = 11; block < 14; block++)
            assert_int_equal(is_cached(b, block), !fails);
        assert_true(is_cached(b, 10));
        bare_check(b, 10 * BLOCK, 4 * BLOCK);
        assert_int_equal(bare_calls(b, BARE_READ, 10), 1 + fails);
        bare_open(b, reading);
        bare_await_quiet(b);
        bare_free(b);
    }
}

/* A prefetch that is queued behind another, which hangs, and then driven out of its
 * part of the cache, is nobody's business any more: not of the worker, nor of those who
 * want the block, one of whom reads it. */
TEST_ON(test_driven_out_while_queued, usual, struct bare *b)
{
    struct bare_trap *prefetching = bare_trap(b, BARE_PREFETCH, 9, false), *reading;
    struct bare_job *first, *second;

    prefetch(b, (uint64_t[]){9, 20}, 2);
    bare_await(b, prefetching);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(qms_prefetch_issue(b->s.prefetch, 30 + 2 * i, 1, 0, 0), 1);
    assert_false(is_cached(b, 20));
    reading = bare_trap(b, BARE_READ, 20, false);
    first = start_read(b, 20);
    bare_await(b, reading);
    second = start_read(b, 20);
    bare_await_waiter(b, 20, 1, 2);
    bare_open(b, reading);
    assert_int_equal(bare_join(first, b->disk + 20 * BLOCK), 0);
    assert_int_equal(bare_join(second, b->disk + 20 * BLOCK), 0);
    bare_open(b, prefetching);
    bare_await_quiet(b);
    assert_int_equal(bare_calls(b, BARE_READ, 20), 1);
    assert_int_equal(bare_calls(b, BARE_PREFETCH, 20), 0);
    assert_int_equal(bare_calls(b, BARE_PREFETCH, 44), 1);
}

/* ---- between the moment when a block is prefetched and that when it is queued */

static _Thread_local struct bare *issuer;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t block;
    bool sprung, open;
} between = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

/* The first lock that the issuer takes once the block is in the cache is the queue's.
 */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct bare *b = issuer;

    if (b && is_cached(b, between.block)) {
        issuer = NULL;
        __real_pthread_mutex_lock(&between.lock);
        between.sprung = true;
        pthread_cond_broadcast(&between.changed);
        while (!between.open)
            pthread_cond_wait(&between.changed, &between.lock);
        pthread_mutex_unlock(&between.lock);
    }
    return __real_pthread_mutex_lock(mutex);
}

static void *issue(void *opaque)
{
    struct bare *b = issuer = opaque;

    check(qms_prefetch_issue(b->s.prefetch, between.block, 1, 0, 0) == 1);
    return NULL;
}

/* Who demands the block then does not find it in the queue; nor must he wait until its
 * turn has come there. */
TEST_ON(test_demanded_before_it_is_queued, usual, struct bare *b)
{
    struct bare_trap *prefetching = bare_trap(b, BARE_PREFETCH, 9, false);
    struct bare_job *j;
    pthread_t thread;

    prefetch(b, (uint64_t[]){9}, 1);
    bare_await(b, prefetching);
    between.block = 20;
    assert_int_equal(pthread_create(&thread, NULL, issue, b), 0);
    __real_pthread_mutex_lock(&between.lock);
    while (!between.sprung)
        pthread_cond_wait(&between.changed, &between.lock);
    pthread_mutex_unlock(&between.lock);
    j = start_read(b, 20);
    bare_await_waiter(b, 20, 1, 1);
    __real_pthread_mutex_lock(&between.lock);
    between.open = true;
    pthread_cond_broadcast(&between.changed);
    pthread_mutex_unlock(&between.lock);
    pthread_join(thread, NULL);
    bare_await_waiter(b, 20, 2, 1); /* it is read, though the worker hangs */
    assert_int_equal(bare_join(j, b->disk + 20 * BLOCK), 0);
    bare_open(b, prefetching);
    bare_await_quiet(b);
    assert_int_equal(bare_calls(b, BARE_PREFETCH, 20), 0);
}

/* Misses ask for what to prefetch, and prefetch hits if they are to; hits never. */
TEST_ON(test_who_asks, usual, struct bare *b)
{
    prefetch(b, (uint64_t[]){9, 20}, 2);
    assert_int_equal(b->fake.asked, 1);
    read_block(b, 0);
    assert_int_equal(b->fake.asked, 1);
    read_block(b, 9);
    assert_int_equal(b->fake.asked, 1);
    b->s.engine.on_prefetch_hit = true;
    read_block(b, 20);
    assert_int_equal(b->fake.asked, 2);
    read_block(b, 20);
    assert_int_equal(b->fake.asked, 2);
}
