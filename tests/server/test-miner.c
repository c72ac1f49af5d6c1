/* test-miner.c - the miner learns what it is given, and sheds what it cannot keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"
#include "server/miner.h"

static struct qm_work *some_work(struct fake *f)
{
    const struct qm_prefetcher_ops *ops = f->base.ops;
    struct qm_stream *s = ops->begin(&f->base, 0);
    struct qm_work *work;

    ops->access(&f->base, s, 1, QM_ACCESS_MISS, &work);
    ops->end(&f->base, s, &work);
    return work;
}

static void test_learns_all_until_stopped(void **state)
{
    struct fake f;
    struct qms_miner *m;
    struct qms_miner_stats stats;

    fake_init(&f);
    m = qms_miner_start(&f.base, 1000000, 0);
    for (int i = 0; i < 1000; i++)
        qms_miner_push(m, some_work(&f), 10);
    qms_miner_stats(m, &stats);
    assert_int_equal(stats.shed, 0);
    qms_miner_stop(m);
    assert_int_equal(f.learned, 1000);
    assert_int_equal(f.purges, 0);
    fake_check_and_destroy(&f);
}

static void test_sheds_what_does_not_fit(void **state)
{
    struct fake f;
    struct qms_miner *m;
    struct qms_miner_stats stats;

    fake_init(&f);
    m = qms_miner_start(&f.base, 100, 0);
    pthread_mutex_lock(&f.slow); /* the miner gets stuck with the first */
    qms_miner_push(m, some_work(&f), 101);
    qms_miner_stats(m, &stats);
    assert_int_equal(stats.shed, 1);
    for (int i = 0; i < 20; i++)
        qms_miner_push(m, some_work(&f), 10);
    qms_miner_stats(m, &stats);
    /* One may have left the queue and be in the miner's hands. */
    assert_in_range(stats.shed, 1 + 9, 1 + 10);
    assert_in_range(stats.queued, 10, 11);
    pthread_mutex_unlock(&f.slow);
    qms_miner_stop(m);
    assert_int_equal(f.learned + f.discarded, 21);
    assert_int_equal(f.discarded, stats.shed);
    fake_check_and_destroy(&f);
}

static void test_purges(void **state)
{
    struct fake f;
    struct qms_miner *m;
    unsigned purges = 0;

    fake_init(&f);
    m = qms_miner_start(&f.base, 100, 1);
    for (int i = 0; i < 1000 && purges < 2; i++) {
        usleep(10000);
        pthread_mutex_lock(&f.lock);
        purges = f.purges;
        pthread_mutex_unlock(&f.lock);
    }
    assert_true(purges >= 2);
    qms_miner_stop(m);
    fake_check_and_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns_all_until_stopped),
        cmocka_unit_test(test_sheds_what_does_not_fit),
        cmocka_unit_test(test_purges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
