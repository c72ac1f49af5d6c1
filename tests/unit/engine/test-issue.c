/* SPDX-License-Identifier: BSD-3-Clause */
/* test-issue.c - what of a prefetcher's candidates is prefetched. */
#include <limits.h>

#include "engine-world.h"

/* What issue() was called for. */
static struct qm_candidate issued[8];
static unsigned issued_n;
static unsigned issue_most; /* blocks that it does prefetch */

static void forget(struct qm_prefetcher *prefetcher, uint64_t block, uint64_t count)
{
    p.forgotten = (struct qm_candidate){block, (uint32_t)count, 0, false};
}

static unsigned issue(void *opaque, uint64_t block, uint32_t count)
{
    assert_ptr_equal(opaque, &load);
    if (count > issue_most)
        count = issue_most;
    if (count > 0)
        issued[issued_n++ % 8] = (struct qm_candidate){block, count, 0, false};
    return count;
}

static int make_issue(void **state)
{
    issued_n = 0;
    issue_most = UINT_MAX;
    return make(state);
}

/* At level none, classes are not told apart: what one wastes counts for all. */
TEST_WITH(test_level_none, make_issue, undo)
{
    const struct qm_candidate block = {7, 1, 1, false};

    engine.throttle = qm_throttle_new();
    p.want_n = 1;
    for (unsigned i = 0; i < 1000; i++)
        qm_engine_issue(&engine, 9, 0, &block, 1, issue, &load);
    assert_int_equal(qm_throttle_allow(engine.throttle, 9, 4), 0);
    assert_int_equal(extend(QM_ACCESS_MISS), 1); /* class 1 */
    engine.oblivious = true;
    for (unsigned i = 0; i < 1000; i++)
        qm_engine_issue(&engine, 8, 0, &block, 1, issue, &load);
    assert_int_equal(extend(QM_ACCESS_MISS), 0);
    assert_int_equal(qm_throttle_allow(engine.throttle, 8, 4), 4);
}

/* Candidates that are cached, or beyond the end of the device, are passed over. */
TEST_WITH(test_what_is_issued, make_issue, undo)
{
    const struct qm_candidate wants[] = {
        {1, 1, 1, false}, {2, 1, 1, false}, {100, 1, 1, false}, {99, 1, 1, false}};
    struct qm_fill *fill;

    engine.device_blocks = 100;
    assert_int_equal(qm_cache_prefetch(cache, 2, 0, &fill), 0);
    qm_cache_fail(cache, fill);
    assert_int_equal(qm_cache_prefetch(cache, 1, 0, &fill), 0);
    assert_int_equal(qm_engine_issue(&engine, 1, 0, wants, 4, issue, &load).throttled,
                     0);
    assert_int_equal(issued_n, 2);
    assert_int_equal(issued[0].block, 2);
    assert_int_equal(issued[1].block, 99);
    qm_cache_fail(cache, fill);
}

static void assert_issued(unsigned i, uint64_t block, unsigned count)
{
    assert_int_equal(issued[i].block, block);
    assert_int_equal(issued[i].count, count);
}

/* Of a range, each run of blocks that are not cached is issued as one, up to the end of
 * the device. */
TEST_WITH(test_runs, make_issue, undo)
{
    const struct qm_candidate wants[] = {{0, 6, 1, false},
                                         {95, 10, 1, false},
                                         {UINT64_MAX, 1, 1, false},
                                         {100, UINT32_MAX, 1, false}};
    struct qm_fill *fill;

    engine.device_blocks = 100;
    assert_int_equal(qm_cache_prefetch(cache, 2, 0, &fill), 0);
    qm_engine_issue(&engine, 1, 0, wants, 4, issue, &load);
    assert_int_equal(issued_n, 3);
    assert_issued(0, 0, 2);
    assert_issued(1, 3, 3);
    assert_issued(2, 95, 5);
    qm_cache_fail(cache, fill);
}

/* Of trimmed blocks the prefetcher is told, if it wants to know. */
TEST_WITH(test_trimmed, make_issue, undo)
{
    qm_engine_forget(&engine, 5, 3);
    assert_int_equal(p.forgotten.count, 0);
    p.ops.forget = forget;
    qm_engine_forget(&engine, 5, 0);
    assert_int_equal(p.forgotten.count, 0);
    qm_engine_forget(&engine, 5, 3);
    assert_int_equal(p.forgotten.block, 5);
    assert_int_equal(p.forgotten.count, 3);
}

/* What has a number that prefetchers cannot keep is none of their business. */
TEST_WITH(test_large_numbers, make_issue, undo)
{
    struct qm_candidate wanted = {QM_BLOCKS_MAX - 2, 4, 1, false};

    p.want_n = 1;
    assert_int_equal(qm_engine_extend(&engine, NULL, 1, QM_BLOCKS_MAX, 1,
                                      QM_ACCESS_MISS, learn, &load, got),
                     0);
    assert_int_equal(p.accesses, 0);
    assert_int_equal(qm_engine_extend(&engine, NULL, 1, QM_BLOCKS_MAX - 1, 1,
                                      QM_ACCESS_MISS, learn, &load, got),
                     1);
    assert_int_equal(p.accesses, 1);
    qm_engine_issue(&engine, 1, 0, &wanted, 1, issue, &load);
    wanted.block = QM_BLOCKS_MAX;
    qm_engine_issue(&engine, 1, 0, &wanted, 1, issue, &load);
    assert_int_equal(issued_n, 1);
    assert_issued(0, QM_BLOCKS_MAX - 2, 2);
}

/* Of a stream's run, the prefetcher is told what was not issued: from the first block
 * on that is not cached. */
TEST_WITH(test_refused, make_issue, undo)
{
    const struct qm_candidate stream = {8, 8, 0.4f, true}, other = {40, 8, 0.4f, false};
    struct qm_lookup found;

    issue_most = 3;
    qm_engine_issue(&engine, 1, 0, &other, 1, issue, &load);
    assert_int_equal(p.refusals, 0);
    issue_most = 0;
    qm_engine_issue(&engine, 1, 0, &stream, 1, issue, &load);
    assert_int_equal(p.refusals, 1);
    assert_int_equal(p.refused.block, 8);
    assert_int_equal(p.refused.count, 8);
    for (uint64_t b = 10; b < 12; b++) {
        assert_int_equal(qm_cache_demand(cache, b, NULL, 0, 1, &found), 0);
        qm_cache_fill(cache, found.fill, NULL);
    }
    qm_engine_issue(&engine, 1, 0, &stream, 1, issue, &load); /* 8, 9; 12 to 15 */
    assert_int_equal(p.refusals, 3);
    assert_int_equal(p.refused.block, 12);
    assert_int_equal(p.refused.count, 4);
    atomic_store(&load.share, 0); /* the device is busy */
    issue_most = UINT_MAX;
    qm_engine_issue(&engine, 1, 1, &stream, 1, issue, &load);
    assert_true(p.refusals > 3);
    atomic_store(&load.share, QM_DEVICE_LOAD_ALL);
    p.refusals = 0;
    qm_engine_issue(&engine, 1, 0, &stream, 1, issue, &load);
    assert_int_equal(p.refusals, 0);
}

/* A run is admitted as a whole, and kept back as a whole. */
TEST_WITH(test_run_throttled, make_issue, undo)
{
    const struct qm_candidate wanted = {8, 8, 1, false};
    unsigned throttled = 0;

    atomic_store(&load.share, QM_DEVICE_LOAD_ALL / 2);
    for (unsigned i = 0; i < 4; i++)
        throttled += qm_engine_issue(&engine, 1, 1, &wanted, 1, issue, &load).throttled;
    assert_int_equal(throttled, 16);
    assert_int_equal(issued_n, 2);
    assert_issued(0, 8, 8);
}

/* The throttle counts blocks, those that were prefetched; and allows blocks. */
TEST_WITH(test_throttled_runs, make_issue, undo)
{
    const struct qm_candidate wanted = {8, 40, 1, false};

    engine.throttle = qm_throttle_new();
    p.wants[0] = wanted;
    p.wants[1] = (struct qm_candidate){60, 2 * QM_RANGE_MAX, 1, false};
    p.want_n = 2;
    assert_int_equal(extend(QM_ACCESS_MISS), 2);
    assert_int_equal(got[0].count, 40);
    assert_int_equal(got[1].count, QM_RANGE_MAX);
    issue_most = 1;
    for (unsigned i = 0; i < 100; i++)
        qm_engine_issue(&engine, 1, 0, &wanted, 1, issue, &load);
    assert_int_equal(extend(QM_ACCESS_MISS),
                     2); /* 100 blocks are not enough to judge */
    for (unsigned i = 0; i < 16; i++)
        qm_throttle_used(engine.throttle, 1, 1);
    issue_most = UINT_MAX;
    qm_engine_issue(&engine, 1, 0, &wanted, 1, issue, &load); /* 16 of 128 */
    assert_int_equal(qm_throttle_allow(engine.throttle, 1, 64), 1);
    assert_int_equal(extend(QM_ACCESS_MISS), 1);
    assert_int_equal(got[0].block, 8);
    assert_int_equal(got[0].count, 1);
}

/* Of a class that is off, what is ahead of a stream is prefetched all the same, and
 * says nothing of the class. */
TEST_WITH(test_throttled_streams, make_issue, undo)
{
    const struct qm_candidate stream = {8, 40, 1, true}, other = {99, 1, 1, false};
    uint32_t set;

    p.ops.flags = QM_STREAMS;
    engine.throttle = qm_throttle_new();
    qm_throttle_issued(engine.throttle, 1, 1000);
    assert_int_equal(qm_throttle_get(engine.throttle, 1, &set), QM_THROTTLE_OFF);
    p.wants[0] = other;
    p.wants[1] = stream;
    p.want_n = 2;
    assert_int_equal(extend(QM_ACCESS_MISS), 1);
    assert_int_equal(got[0].block, 8);
    assert_int_equal(got[0].count, 40);
    qm_throttle_free(engine.throttle);
    engine.throttle = qm_throttle_new();
    for (unsigned i = 0; i < 100; i++)
        qm_engine_issue(&engine, 1, 0, &stream, 1, issue, &load);
    assert_int_equal(qm_throttle_get(engine.throttle, 1, &set), QM_THROTTLE_ON);
}

/* What was not issued counts for nothing. */
TEST_WITH(test_issue_fails, make_issue, undo)
{
    const struct qm_candidate block = {7, 1, 1, false};

    engine.throttle = qm_throttle_new();
    issue_most = 0;
    for (unsigned i = 0; i < 1000; i++)
        qm_engine_issue(&engine, 9, 0, &block, 1, issue, &load);
    assert_int_equal(qm_throttle_allow(engine.throttle, 9, 4), 4);
}

/* A device that is busy: of 16 candidates one is prefetched. */
TEST_WITH(test_throttled, make_issue, undo)
{
    unsigned throttled = 0;

    assert_false(qm_engine_needs_time(&engine));
    atomic_store(&load.share, 1);
    assert_true(qm_engine_needs_time(&engine));
    for (uint64_t b = 0; b < 16; b++) {
        const struct qm_candidate wanted = qm_candidate_of(b);

        throttled += qm_engine_issue(&engine, 1, 1, &wanted, 1, issue, &load).throttled;
    }
    assert_int_equal(throttled, 15);
    assert_int_equal(issued_n, 1);
    assert_int_equal(issued[0].block, 15);
    engine.load = NULL;
    assert_false(qm_engine_needs_time(&engine));
    assert_int_equal(qm_engine_issue(&engine, 1, 1,
                                     &(struct qm_candidate){20, 1, 1, false}, 1, issue,
                                     &load)
                         .throttled,
                     0);
    assert_int_equal(issued_n, 2);
}

/* With admission, what is known to be less probable than the threshold is kept back; a
 * candidate of unknown probability is the load's to judge. */
TEST_WITH(test_probability, make_issue, undo)
{
    struct qm_candidate wants[] = {
        {.block = 10, .count = 1, .probability = 0.5F},
        {.block = 20, .count = 2, .probability = 0.25F},
        {.block = 30, .count = 1, .probability = QM_PROBABILITY_UNKNOWN},
        {.block = 40, .count = 1, .probability = 0},
    };
    struct qm_admission admission;

    qm_admission_init(&admission);
    atomic_store(&admission.thresholds[0], 0.5F);
    assert_int_equal(qm_engine_issue(&engine, 1, 0, wants, 4, issue, &load).throttled,
                     0);
    assert_int_equal(issued_n, 4);
    issued_n = 0;
    engine.admission = &admission;
    assert_int_equal(qm_engine_issue(&engine, 1, 0, wants, 4, issue, &load).throttled,
                     3);
    assert_int_equal(issued_n, 2);
    assert_int_equal(issued[0].block, 10);
    assert_int_equal(issued[1].block, 30);
    engine.admission = NULL;
    qm_admission_destroy(&admission);
}

static int issued_of(float probability, bool stream)
{
    const struct qm_candidate wanted = {
        .block = 50, .count = 2, .probability = probability, .stream = stream};

    issued_n = 0;
    (void)qm_engine_issue(&engine, 1, 0, &wanted, 1, issue, &load);
    return (int)issued_n;
}

static void assert_kept(const struct qm_candidate *c, unsigned throttled,
                        unsigned watched)
{
    const struct qm_kept_back kept = qm_engine_issue(&engine, 3, 0, c, 1, issue, &load);

    assert_int_equal(kept.throttled, throttled);
    assert_int_equal(kept.watched, watched);
}

/* What is not known to pay is watched, unless the device would be too busy for it: the
 * first block of a run, which stands for it.  The prefetcher is told what would have
 * become of it. */
TEST_WITH(test_watched, make_issue, undo)
{
    const struct qm_candidate rule = {50, 1, .6F, false}, stream = {60, 4, .6F, true};
    struct qm_admission admission;
    struct qm_bound bound;

    qm_admission_init(&admission);
    qm_bound_init(&bound);
    engine.admission = &admission;
    engine.bound = &bound;
    engine.bounded = true;
    atomic_store(&admission.thresholds[0], .7F);
    assert_kept(&rule, 1, 0);
    assert_false(qm_bound_is_watching(&bound));
    atomic_store(&admission.thresholds[0], 0);
    assert_kept(&rule, 0, 1);
    assert_kept(&stream, 0, 4);
    assert_int_equal(issued_n, 0);
    assert_int_equal(p.refused.block, 60);
    assert_int_equal(p.refused.count, 4);
    assert_true(qm_bound_is_watching(&bound));
    qm_engine_missed(&engine, 61, 4); /* of the run, not the first */
    assert_int_equal(p.ends, 0);
    qm_engine_missed(&engine, 50, 4);
    assert_int_equal(p.ends, 1);
    assert_int_equal(p.fate, QM_FATE_USED);
    assert_int_equal(p.issuer, 3);
    assert_int_equal(p.user, 4);
    for (unsigned i = 0; i < 63; i++) /* a cache's blocks, with those before */
        qm_engine_missed(&engine, 1000 + i, 4);
    assert_int_equal(p.ends, 2);
    assert_int_equal(p.fate, QM_FATE_UNUSED);
    assert_false(qm_bound_is_watching(&bound));
    /* Another prefetcher has to prove itself. */
    prove(&bound.watch);
    assert_kept(&rule, 0, 0);
    qm_engine_set_prefetcher(&engine, &p.base, &(struct qm_mining_config){.ablate = 0});
    engine.bounded = true;
    assert_kept(&rule, 0, 1);
    qm_bound_rest(&bound, true); /* nothing is watched then, unless it is to end */
    assert_kept(&rule, 1, 0);
    engine.admission = NULL;
    engine.bound = NULL;
    engine.bounded = false;
    qm_bound_destroy(&bound);
    qm_admission_destroy(&admission);
}

/* A candidate's probability counts as far as a used block saves a miss, of a stream's,
 * too. */
TEST_WITH(test_value, make_issue, undo)
{
    struct qm_admission admission;
    struct qm_bound bound;

    qm_admission_init(&admission);
    qm_bound_init(&bound);
    prove(&bound.watch);
    engine.admission = &admission;
    engine.bound = &bound;
    engine.bounded = true;
    atomic_store(&admission.thresholds[0], 0.55F);
    for (int stream = 0; stream <= 1; stream++) {
        atomic_store(&bound.value, 1);
        assert_int_equal(issued_of(0.6F, stream), 1);
        assert_int_equal(issued_of(0.5F, stream), 0);
        atomic_store(&bound.value, 0.5F);
        assert_int_equal(issued_of(0.6F, stream), 0);
        engine.bounded = false; /* of another prefetcher nothing is known */
        assert_int_equal(issued_of(0.6F, stream), 1);
        engine.bounded = true;
    }
    engine.admission = NULL;
    engine.bound = NULL;
    engine.bounded = false;
    qm_bound_destroy(&bound);
    qm_admission_destroy(&admission);
}

/* Where no price is known, a busy device is no reason to keep a probable stream back.
 */
TEST_WITH(test_no_price, make_issue, undo)
{
    struct qm_device_load busy;
    struct qm_candidate wanted = {.block = 50, .count = 2, .stream = true};

    qm_device_load_init(&busy);
    atomic_store(&busy.share, 0);
    engine.load = &busy;
    wanted.probability = 0.6F;
    assert_int_equal(qm_engine_issue(&engine, 1, 1, &wanted, 1, issue, &load).throttled,
                     0);
    wanted.probability = 0.4F;
    assert_int_equal(qm_engine_issue(&engine, 1, 1, &wanted, 1, issue, &load).throttled,
                     2);
    engine.load = NULL;
    qm_device_load_destroy(&busy);
}
