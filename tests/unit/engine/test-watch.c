/* SPDX-License-Identifier: BSD-3-Clause */
/* test-watch.c - what would have become of candidates that are not read. */
#include <pthread.h>

#include "tests/harness.h"

#include "engine/watch.h"

enum { RULES, STREAMS };

static struct qm_watch w;
static struct qm_watch_end ends[QM_WATCH_ENDS];
static uint64_t now;

static uint64_t get_time(void *opaque)
{
    (void)opaque;
    return now;
}

static int make(void **state)
{
    now = 1000;
    qm_watch_init(&w);
    return 0;
}

static int undo(void **state)
{
    qm_watch_destroy(&w);
    return 0;
}

/* Rules are watched for 10 misses, streams for 30. */
static unsigned miss(uint64_t block, double took)
{
    static const uint32_t horizons[2] = {10, 30};

    return qm_watch_missed(&w, block, took, horizons, ends);
}

static struct qm_watch_counts get(void)
{
    struct qm_watch_counts counts;

    qm_watch_get(&w, &counts);
    return counts;
}

/* A block that is missed would have been used, once; of others nothing is known. */
TEST_WITH(test_used, make, undo)
{
    assert_false(qm_watch_is_on(&w));
    qm_watch_add(&w, 5, 3, RULES);
    qm_watch_add(&w, 6, 4, STREAMS);
    assert_true(qm_watch_is_on(&w));
    assert_int_equal(miss(7, 0), 0);
    assert_int_equal(miss(5, 0), 1);
    assert_int_equal(ends[0].block, 5);
    assert_int_equal(ends[0].klass, 3);
    assert_int_equal(ends[0].fate, QM_FATE_USED);
    assert_int_equal(miss(5, 0), 0);
    assert_int_equal(miss(6, 0), 1);
    assert_int_equal(ends[0].klass, 4);
    assert_false(qm_watch_is_on(&w));
    assert_int_equal(get().uses, 2);
    assert_int_equal(get().waited, 2 + 4);
    assert_int_equal(get().unused, 0);
    assert_true(get().used > 1.99);
}

/* Each kind has its horizon, and a candidate that comes again does not wait anew. */
TEST_WITH(test_unused, make, undo)
{
    qm_watch_add(&w, 5, 3, RULES);
    qm_watch_add(&w, 6, 3, STREAMS);
    for (unsigned i = 0; i < 10; i++) {
        qm_watch_add(&w, 5, 3, RULES);
        assert_int_equal(miss(100, 0), 0);
    }
    assert_int_equal(miss(100, 0), 1);
    assert_int_equal(ends[0].block, 5);
    assert_int_equal(ends[0].fate, QM_FATE_UNUSED);
    for (unsigned i = 0; i < 19; i++)
        assert_int_equal(miss(100, 0), 0);
    assert_int_equal(miss(100, 0), 1);
    assert_int_equal(ends[0].block, 6);
    assert_int_equal(get().unused, 2);
    assert_int_equal(get().uses, 0);
    assert_false(qm_watch_is_on(&w));
}

/* A read that would have begun too late saves what time it had. */
TEST_WITH(test_late, make, undo)
{
    w.clock = get_time;
    for (uint64_t block = 1; block <= 4; block++)
        qm_watch_add(&w, block, 0, RULES);
    now += 250;
    assert_int_equal(miss(1, 1000), 1);
    assert_int_equal(ends[0].fate, QM_FATE_LATE);
    assert_true(get().used > .24 && get().used < .26);
    assert_int_equal(miss(2, 0), 1); /* nobody knows how long a read takes */
    assert_int_equal(ends[0].fate, QM_FATE_USED);
    now += 750;
    assert_int_equal(miss(3, 1000), 1);
    assert_int_equal(ends[0].fate, QM_FATE_USED);
    now = 1000;
    assert_int_equal(miss(4, 1000), 1);
    assert_true(get().used > 2.24 && get().used < 2.26);
    assert_int_equal(get().uses, 4);
}

/* A kind is proven by some blocks that would have been used, if these are not few of
 * those that were noted; for good.  The other is not. */
TEST_WITH(test_proof, make, undo)
{
    for (uint64_t i = 0; i < 3; i++) {
        qm_watch_add(&w, i, 0, STREAMS);
        miss(i, 0);
    }
    assert_false(qm_watch_is_proven(&w, STREAMS));
    qm_watch_add(&w, 4, 0, STREAMS);
    miss(4, 0);
    assert_true(qm_watch_is_proven(&w, STREAMS));
    assert_false(qm_watch_is_proven(&w, RULES));
    for (uint64_t i = 0; i < 200; i++) {
        qm_watch_add(&w, 1000 + i, 0, STREAMS);
        miss(1, 0);
    }
    assert_true(qm_watch_is_proven(&w, STREAMS));
    qm_watch_reset(&w);
    assert_false(qm_watch_is_proven(&w, STREAMS));
    assert_false(qm_watch_is_on(&w));
    assert_int_equal(miss(1199, 0), 0);
}

/* One in four is too few, whether or not it is known what becomes of the others; one in
 * two is enough, also after many that were too few. */
TEST_WITH(test_proof_by_part, make, undo)
{
    for (uint64_t i = 0; i < 2000; i++) {
        qm_watch_add(&w, i, 0, RULES);
        if (i % 4 == 0)
            miss(i, 0);
    }
    assert_false(qm_watch_is_proven(&w, RULES));
    for (uint64_t i = 10000; i < 14000 && !qm_watch_is_proven(&w, RULES); i++) {
        qm_watch_add(&w, i, 0, RULES);
        miss(i % 2 ? i : 1, 0);
        assert_true(i < 11000);
    }
    assert_true(qm_watch_is_proven(&w, RULES));
}

/* There are QM_WATCH_PLACES places; one that becomes free is used again. */
TEST_WITH(test_places, make, undo)
{
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < QM_WATCH_PLACES + 20; i++) {
            qm_watch_add(&w, i, 0, RULES);
            qm_watch_add(&w, 10000 + i, 0, STREAMS);
        }
        for (uint64_t i = 0; i < QM_WATCH_PLACES; i++) {
            assert_int_equal(miss(i, 0) > 0 && ends[0].block == i, i < 11 || round < 3);
            if (i == 5) /* before they expire */
                break;
        }
        for (unsigned i = 0; i < 3 * QM_WATCH_PLACES; i++)
            miss(5000, 0);
        assert_false(qm_watch_is_on(&w));
    }
    assert_int_equal(get().uses + get().unused, 3 * 2 * QM_WATCH_PLACES);
}

static void *run(void *opaque)
{
    const uint64_t first = (uint64_t)(uintptr_t)opaque * 1000000;
    struct qm_watch_end mine[QM_WATCH_ENDS];
    static const uint32_t horizons[2] = {50, 50};

    for (uint64_t i = 0; i < 20000; i++) {
        qm_watch_add(&w, first + i, 0, i % 2);
        (void)qm_watch_missed(&w, first + i - i % 3, 0, horizons, mine);
    }
    return NULL;
}

TEST_WITH(test_threads, make, undo)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 1000; i++)
        miss(1, 0);
    assert_false(qm_watch_is_on(&w));
    assert_true(get().uses > 0 && get().unused > 0);
}
