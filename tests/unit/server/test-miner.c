/* SPDX-License-Identifier: BSD-3-Clause */
/* test-miner.c - the miner learns what it is given, and sheds what it cannot keep. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/harness.h"

#include "fake.h"
#include "server/miner.h"

static struct fake f;
static struct qms_miner *m;

static int set_up(void **state)
{
    fake_init(&f);
    return 0;
}

static int tear_down(void **state)
{
    fake_check_and_destroy(&f);
    return 0;
}

/* A sequence of one block. */
static struct qm_work *work_of(uint64_t block)
{
    const struct qm_prefetcher_ops *ops = f.base.ops;
    struct qm_stream *s = ops->begin(&f.base, 0);
    struct qm_work *work;

    ops->access(&f.base, s, block, QM_ACCESS_MISS, &work);
    ops->end(&f.base, s, &work);
    return work;
}

static struct qm_work *some_work(void)
{
    return work_of(1);
}

TEST_WITH(test_learns_all_until_stopped, set_up, tear_down)
{
    struct qms_miner_stats stats;

    m = qms_miner_start(&f.base, 1000000, 0);
    for (int i = 0; i < 1000; i++)
        qms_miner_push(m, 1, some_work(), 10);
    qms_miner_stats(m, &stats);
    assert_int_equal(stats.shed, 0);
    qms_miner_stop(m);
    assert_int_equal(f.learned, 1000);
    assert_int_equal(f.purges, 0);
}

TEST_WITH(test_sheds_what_does_not_fit, set_up, tear_down)
{
    struct qms_miner_stats stats;

    m = qms_miner_start(&f.base, 100, 0);
    pthread_mutex_lock(&f.slow); /* the miner gets stuck with the first */
    qms_miner_push(m, 1, some_work(), 101);
    qms_miner_stats(m, &stats);
    assert_int_equal(stats.shed, 1);
    for (int i = 0; i < 20; i++)
        qms_miner_push(m, 1, some_work(), 10);
    qms_miner_stats(m, &stats);
    /* One may have left the queue and be in the miner's hands. */
    assert_in_range(stats.shed, 1 + 9, 1 + 10);
    assert_in_range(stats.queued, 10, 11);
    pthread_mutex_unlock(&f.slow);
    qms_miner_stop(m);
    assert_int_equal(f.learned + f.discarded, 21);
    assert_int_equal(f.discarded, stats.shed);
}

/* One who ends many contexts, or long ones, leaves others their share of the queue, and
 * their turns. */
TEST_WITH(test_queue_is_shared, set_up, tear_down)
{
    struct qms_miner_stats stats;
    /* Whose turn it is goes by bytes. */
    static const uint64_t expected[] = {0,   100, 200, 301, 201, 101,
                                        202, 203, 102, 204, 205, 206};

    m = qms_miner_start(&f.base, 100, 0);
    pthread_mutex_lock(&f.slow);
    qms_miner_push(m, QMS_CLIENT_NONE, work_of(0), 1);
    fake_wait_busy(&f); /* the miner is stuck with it, and nothing is queued */
    for (int i = 0; i < 20; i++)
        qms_miner_push(m, 1, work_of(100 + i), 10);
    for (int i = 0; i < 20; i++)
        qms_miner_push(m, 2, work_of(200 + i), 5);
    qms_miner_push(m, 3, work_of(300), 34); /* more than a third */
    qms_miner_push(m, 3, work_of(301), 33);
    qms_miner_stats(m, &stats);
    pthread_mutex_unlock(&f.slow);
    qms_miner_stop(m);
    /* Of the first's 20, 10 found room, of which 5 went for 10 of the second's, who had
     * half of it then; of those who had most, 2 and 3 went for the third's. */
    assert_int_equal(stats.shed, 10 + 5 + 10 + 1 + 2 + 3);
    assert_int_equal(stats.queued, 1 + 3 + 7 + 1);
    assert_int_equal(f.learned, 1 + 3 + 7 + 1);
    assert_int_equal(f.discarded, stats.shed);
    assert_memory_equal(f.order, expected, sizeof expected);
}

TEST_WITH(test_purges, set_up, tear_down)
{
    unsigned purges = 0;

    m = qms_miner_start(&f.base, 100, 1);
    for (int i = 0; i < 6000 && purges < 2; i++) {
        usleep(10000);
        pthread_mutex_lock(&f.lock);
        purges = f.purges;
        pthread_mutex_unlock(&f.lock);
    }
    assert_true(purges >= 2);
    qms_miner_stop(m);
}

struct told {
    pthread_mutex_t lock;
    unsigned calls, errors;
};

static void told(void *opaque, int error)
{
    struct told *t = opaque;

    pthread_mutex_lock(&t->lock);
    t->calls++;
    t->errors += error == ENOSPC;
    pthread_mutex_unlock(&t->lock);
}

/* It saves now and then, goes on when that fails, and says each time how it went; also
 * while there is work all the time. */
TEST_WITH(test_saves, set_up, tear_down)
{
    struct told t = {.lock = PTHREAD_MUTEX_INITIALIZER};
    unsigned calls = 0;

    f.save_error = ENOSPC;
    m = qms_miner_start(&f.base, 1000000, 0);
    qms_miner_save_every(m, 1, told, &t);
    for (int i = 0; i < 6000 && calls < 2; i++) {
        qms_miner_push(m, 0, work_of(3), 10);
        usleep(10000);
        pthread_mutex_lock(&t.lock);
        calls = t.calls;
        pthread_mutex_unlock(&t.lock);
    }
    qms_miner_stop(m);
    assert_true(t.calls >= 2);
    assert_int_equal(t.errors, t.calls);
    assert_int_equal(f.saves, t.calls);
}

TEST_WITH(test_does_not_save, set_up, tear_down)
{
    struct told t = {.lock = PTHREAD_MUTEX_INITIALIZER};

    m = qms_miner_start(&f.base, 100, 0);
    qms_miner_save_every(m, 0, told, &t);
    qms_miner_stop(m);
    assert_int_equal(f.saves, 0);
}

/* begun, ended */
static _Atomic int ticks[2];

static void slow_tick(void *opaque)
{
    assert_ptr_equal(opaque, ticks);
    ticks[0]++;
    usleep(100000);
    ticks[1]++;
}

/* What a tick looks at may be freed when the ticks have ended. */
TEST_WITH(test_ticks_end, set_up, tear_down)
{
    int tries = 0, begun;

    m = qms_miner_start(&f.base, 100, 0);
    qms_miner_tick_every(m, slow_tick, ticks);
    while (ticks[0] == 0 && tries++ < 60000)
        usleep(1000);
    qms_miner_end_ticks(m);
    begun = ticks[0]; /* more than one if this thread was kept from the processor */
    assert_true(begun >= 1);
    assert_int_equal(ticks[1], begun);
    qms_miner_stop(m);
    assert_int_equal(ticks[0], begun);
}
