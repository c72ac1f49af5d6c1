/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes a stream: runs of adjacent reads, strides; and the table of noted blocks.
 */
#include "testing.h"

#include "mining/readahead/detector.h"
#include "mining/readahead/outcomes.h"
#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/yield.h"

static struct qm_detector make_edges(uint32_t sets)
{
    struct qm_detector e = {0};

    assert_true(qm_detector_resize(&e, sets));
    return e;
}

static void expect_run(struct qm_detector *e, uint64_t block, uint32_t count,
                       unsigned reads, int step)
{
    struct qm_run run = qm_detector_read(e, block, count);

    assert_int_equal(run.reads, reads);
    if (reads > 1)
        assert_int_equal(run.step, step);
}

TEST(test_forward)
{
    struct qm_detector e = make_edges(256);

    expect_run(&e, 100, 1, 1, 0);
    expect_run(&e, 101, 1, 2, 1);
    expect_run(&e, 102, 4, 3, 1);
    expect_run(&e, 106, 4, 4, 1);
    expect_run(&e, 112, 4, 5, 1); /* near */
    expect_run(&e, 119, 4, 1, 0); /* too far */
    expect_run(&e, 117, 1, 6, 1); /* the run's edge, 116, is still there */
    qm_detector_free(&e);
}

TEST(test_backward)
{
    struct qm_detector e = make_edges(256);

    expect_run(&e, 100, 1, 1, 0);
    expect_run(&e, 99, 1, 2, -1);
    expect_run(&e, 95, 4, 3, -1);
    expect_run(&e, 90, 3, 4, -1); /* 93 and 94 are left out */
    expect_run(&e, 80, 3, 1, 0);
    assert_int_equal(qm_detector_read(&e, 0, 1).reads, 1);
    assert_int_equal(qm_detector_read(&e, 0, 1).reads, 1); /* nothing is before 0 */
    qm_detector_free(&e);
}

/* Reads that were sent in order arrive with two of them swapped. */
TEST(test_swapped)
{
    struct qm_detector e = make_edges(256);

    expect_run(&e, 10, 1, 1, 0);
    expect_run(&e, 11, 1, 2, 1);
    expect_run(&e, 13, 1, 3, 1);
    expect_run(&e, 12, 1, 1, 0);
    expect_run(&e, 14, 1, 4, 1);
    qm_detector_free(&e);
}

/* 64 runs at a time, and as many random reads between: few are lost sight of. */
TEST(test_interleaved)
{
    struct qm_detector e = make_edges(256);
    struct rng rng = {1};
    unsigned lost = 0;

    for (unsigned i = 0; i < 20; i++)
        for (uint64_t s = 0; s < 64; s++) {
            lost += qm_detector_read(&e, (s << 20) + i, 1).reads < 2;
            qm_detector_read(&e, (UINT64_C(1) << 40) + rng_below(&rng, 1u << 30), 1);
        }
    assert_in_range(lost, 64, 64 + 64);
    qm_detector_free(&e);
}

TEST(test_random_makes_none)
{
    struct qm_detector e = make_edges(256);
    struct rng rng = {2};
    unsigned runs = 0;

    for (unsigned i = 0; i < 100000; i++)
        runs += qm_detector_read(&e, rng_below(&rng, 10u << 20), 1).reads > 1;
    assert_in_range(runs, 0, 100); /* by chance, about 256 * 6 / 10 M each */
    qm_detector_free(&e);
}

/* Runs go on while the table's size changes. */
TEST(test_edges_resized)
{
    static const uint32_t sets[] = {256, 16, 64, 256, 32};
    struct qm_detector e = make_edges(128);
    unsigned lost = 0;

    for (unsigned i = 0; i < 5; i++) {
        for (uint64_t s = 0; s < 8; s++)
            qm_detector_read(&e, (s << 20) + 2 * i, 1);
        assert_true(qm_detector_resize(&e, sets[i]));
        for (uint64_t s = 0; s < 8; s++)
            lost += qm_detector_read(&e, (s << 20) + 2 * i + 1, 1).reads < 2;
    }
    assert_int_equal(lost, 0);
    qm_detector_free(&e);
}

TEST(test_strides)
{
    struct qm_strides s = {0};
    unsigned reads;

    assert_int_equal(qm_strides_read(&s, 1000, &reads), 0);
    assert_int_equal(qm_strides_read(&s, 1010, &reads), 0);
    assert_int_equal(qm_strides_read(&s, 1020, &reads), 10);
    assert_int_equal(reads, 3);
    assert_int_equal(qm_strides_read(&s, 5000, &reads), 0); /* another reads between */
    assert_int_equal(qm_strides_read(&s, 1030, &reads), 10);
    assert_int_equal(qm_strides_read(&s, 1041, &reads), 0);
    assert_int_equal(qm_strides_read(&s, 4980, &reads), 0);
    assert_int_equal(qm_strides_read(&s, 4960, &reads), -20);
    assert_int_equal(qm_strides_read(&s, 4960, &reads), 0); /* the same again */
    assert_int_equal(qm_strides_read(&s, 100000, &reads), 0);
    assert_int_equal(qm_strides_read(&s, 104000, &reads), 0); /* too far apart */
    assert_int_equal(qm_strides_read(&s, 108000, &reads), 0);
}

/* Markers stay, whatever is noted beside them, in a table of any size. */
static void check_markers(struct qm_outcomes *noted, uint16_t n)
{
    struct rng rng = {3};
    uint64_t markers[128];

    assert_false(qm_outcomes_has(noted, 0));
    assert_null(qm_outcomes_find(noted, 7));
    for (uint16_t i = 0; i < n; i++) {
        markers[i] = rng_next(&rng) >> 16;
        assert_false(qm_outcomes_has(noted, markers[i]));
        qm_outcomes_add(noted, markers[i],
                        (struct qm_note){.track = i, .marker = true});
    }
    for (unsigned i = 0; i < 100000; i++)
        qm_outcomes_add(noted, rng_next(&rng) >> 16, (struct qm_note){.marker = false});
    for (uint16_t i = 0; i < n; i++) {
        assert_true(qm_outcomes_has(noted, markers[i]));
        assert_int_equal(qm_outcomes_find(noted, markers[i])->track, i);
        if (i % 2 == 0)
            continue; /* a change of the size takes it away */
        qm_outcomes_remove(noted, markers[i]);
        assert_false(qm_outcomes_has(noted, markers[i]));
    }
    qm_outcomes_add(noted, 5, (struct qm_note){.track = 1});
    qm_outcomes_add(noted, 5, (struct qm_note){.track = 2});
    assert_int_equal(qm_outcomes_find(noted, 5)->track, 2);
    qm_outcomes_remove(noted, 5);
    assert_null(qm_outcomes_find(noted, 5));
}

TEST(test_noted)
{
    static const unsigned bits[] = {QM_OUTCOMES_MOST_BITS, 7, 9, QM_OUTCOMES_MOST_BITS,
                                    8};
    struct qm_outcomes noted = {0};

    for (unsigned i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        assert_true(qm_outcomes_resize(&noted, bits[i]));
        check_markers(&noted, (uint16_t)(1u << bits[i] >> 4));
    }
    qm_outcomes_free(&noted);
}

static void tell(struct qm_yield *w, unsigned distance, bool used)
{
    for (unsigned i = 0; i < 100; i++)
        qm_yield_learn(w, QM_YIELD_TWO, distance, used);
}

/* How often, of 1000 times, it reaches at least as far. */
static unsigned reaches(struct qm_yield *w, uint32_t blocks)
{
    unsigned n = 0;

    for (unsigned i = 0; i < 1000; i++)
        n += qm_yield_reach(w, QM_YIELD_TWO, 256) >= blocks;
    return n;
}

/* What is never used is tried less and less, but tried; and comes back. */
TEST(test_worth)
{
    struct qm_yield w;

    qm_yield_init(&w);
    assert_int_equal(qm_yield_reach(&w, QM_YIELD_TWO, 256), 256);
    assert_int_equal(qm_yield_reach(&w, QM_YIELD_TWO, 5), 5);
    tell(&w, 2, false); /* 4 to 7 blocks ahead */
    assert_true(qm_yield_get(&w, QM_YIELD_TWO, 2) < 0.05f);
    assert_int_equal(reaches(&w, 3), 1000);
    assert_in_range(reaches(&w, 4), 10, 100);
    assert_int_equal(reaches(&w, 8), 0);
    assert_int_equal(qm_yield_reach(&w, QM_YIELD_TWO, 3), 3);
    tell(&w, 0, false);
    assert_in_range(reaches(&w, 1), 10, 100);
    assert_int_equal(qm_yield_reach(&w, QM_YIELD_OWN_TWO, 256), 256);
    tell(&w, 0, true);
    tell(&w, 2, true);
    assert_int_equal(reaches(&w, 256), 1000);
}

/* Of two of which a third was used, the next block of one context's own is read ahead.
 */
TEST(test_worth_next)
{
    static const enum qm_yield_bucket own[] = {QM_YIELD_TWO, QM_YIELD_OWN_TWO};
    struct qm_yield w;
    unsigned reached;

    qm_yield_init(&w);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned k = 0; k < 900; k++)
            for (unsigned d = 0; d < 2; d++)
                qm_yield_learn(&w, own[i], d, k % 3 == 2);
        reached = 0;
        for (unsigned k = 0; k < 320; k++)
            reached += qm_yield_reach(&w, own[i], 256);
        assert_int_equal(reached, i == 0 ? 10 : 310 + 10 * 3);
    }
}

TEST(test_worth_buckets)
{
    static const uint64_t lengths[] = {3, 8, 32, 128};

    assert_int_equal(qm_yield_of_run(false, true, 2), QM_YIELD_TWO);
    assert_int_equal(qm_yield_of_run(true, true, 2), QM_YIELD_OWN_TWO);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(qm_yield_of_run(false, false, lengths[i]), QM_YIELD_RUN + i);
        assert_int_equal(qm_yield_of_run(true, false, lengths[i]),
                         QM_YIELD_OWN_RUN + i);
    }
    assert_int_equal(qm_yield_of_stride(8), QM_YIELD_STRIDE);
    assert_int_equal(qm_yield_of_stride(9), QM_YIELD_STRIDE_LONG);
    assert_int_equal(qm_yield_distance(1), 0);
    assert_int_equal(qm_yield_distance(3), 1);
    assert_int_equal(qm_yield_distance(4), 2);
    assert_int_equal(qm_yield_distance(63), 5);
    assert_int_equal(qm_yield_distance(UINT64_MAX), QM_YIELD_DISTANCES - 1);
}

static bool is_even(void *opaque, uint64_t block)
{
    return block % 2 == 0;
}

static bool is_cached(void *opaque, uint64_t block)
{
    return true;
}

/* A context's own runs: through what is cached, and with other reads between. */
TEST(test_own)
{
    struct qm_runs r = {0};
    struct qm_own own;

    own = qm_runs_read(&r, 100, 2, NULL, NULL);
    assert_int_equal(own.reads, 1);
    assert_int_equal(own.blocks, 2);
    own = qm_runs_read(&r, 102, 1, NULL, NULL);
    assert_int_equal(own.reads, 2);
    assert_int_equal(own.blocks, 3);
    own = qm_runs_read(&r, 104, 1, NULL, NULL); /* 103 was not read */
    assert_int_equal(own.reads, 1);
    own = qm_runs_read(&r, 107, 1, is_even, NULL);
    assert_int_equal(own.reads, 1); /* 105 was not read */
    own = qm_runs_read(&r, 109, 3, is_even, NULL);
    assert_int_equal(own.reads, 2);
    assert_int_equal(own.blocks, 5);
    own = qm_runs_read(&r, 112 + QM_RUNS_GAP, 1, is_cached, NULL);
    assert_int_equal(own.reads, 3);
    assert_int_equal(own.blocks, 6 + QM_RUNS_GAP);
    own = qm_runs_read(&r, 114 + 2 * QM_RUNS_GAP, 1, is_cached, NULL);
    assert_int_equal(own.reads, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        for (uint64_t k = 0; k < 20; k++) {
            own = qm_runs_read(&r, 1000000 * (i + 1) + 1000 * k, 1, NULL, NULL);
            assert_int_equal(own.reads, 1);
        }
        own = qm_runs_read(&r, 113 + QM_RUNS_GAP + i, 1, NULL, NULL);
        assert_int_equal(own.reads, 4 + i);
    }
    for (uint64_t i = 0; i < 100; i++) /* and new ones all the same */
        qm_runs_read(&r, 2000000 + 100 * (i / 2) + i % 2, 1, NULL, NULL);
    own = qm_runs_read(&r, 2000000 + 4902, 1, NULL, NULL);
    assert_int_equal(own.reads, 3);
    own = qm_runs_read(&r, 1113 + QM_RUNS_GAP, 1, NULL, NULL);
    assert_int_equal(own.reads, 1);
}
