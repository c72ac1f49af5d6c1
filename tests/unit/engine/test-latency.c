/* SPDX-License-Identifier: BSD-3-Clause */
/* What is made of how long reads took. */
#include "tests/harness.h"

#include "engine/latency.h"

enum { US = 1000, KIB = 1024 };

static struct qm_latency latency;

static int make(void **state)
{
    qm_latency_init(&latency);
    return 0;
}

static int unmake(void **state)
{
    qm_latency_destroy(&latency);
    return 0;
}

/* Reads of several sizes by a device that needs begin_us, and byte_ns for each byte. */
static void reads(unsigned n, double begin_us, double byte_ns)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t bytes = (uint64_t)(16 * KIB) << i % 5;
        double noise = i % 3 * 0.1 + 0.9;

        qm_latency_took(&latency, QM_PLACE_BACKEND, bytes,
                        (uint64_t)((begin_us * US + byte_ns * (double)bytes) * noise));
    }
}

static void expect(double begin_us, double byte_ns)
{
    double begin, byte;

    assert_true(qm_latency_get(&latency, QM_PLACE_BACKEND, &begin, &byte));
    assert_true(begin >= begin_us * US * 0.8 && begin <= begin_us * US * 1.2 + 1);
    assert_true(byte >= byte_ns * 0.8 && byte <= byte_ns * 1.2);
}

TEST_WITH(test_line, make, unmake)
{
    double begin, byte;

    reads(QM_LATENCY_LEAST - 1, 5000, 10);
    assert_false(qm_latency_get(&latency, QM_PLACE_BACKEND, &begin, &byte));
    reads(400, 5000, 10);
    expect(5000, 10);
    assert_false(qm_latency_get(&latency, QM_PLACE_TIER, &begin, &byte));
    reads(1500, 200, 2); /* another disk */
    expect(200, 2);
}

/* From reads of one size nothing can be said of the rate. */
TEST_WITH(test_one_size, make, unmake)
{
    double begin, byte;

    for (unsigned i = 0; i < 100; i++)
        qm_latency_took(&latency, QM_PLACE_BACKEND, 16 * KIB, 300 * US);
    assert_true(qm_latency_get(&latency, QM_PLACE_BACKEND, &begin, &byte));
    assert_true(byte == 0);
    assert_true(begin > 299 * US && begin < 301 * US);
}

static bool is_last(const void *last, unsigned i)
{
    return i == *(const unsigned *)last;
}

/* The longest gap between two blocks that are read by one call. */
static unsigned gap(enum qm_place place, uint32_t block_size)
{
    unsigned last = 1;

    while (last < 100 && qm_latency_run(&latency, place, block_size, last + 1, is_last,
                                        &last) == last + 1)
        last++;
    return last - 2;
}

/* A gap takes at most half of the time in which a read begins. */
TEST_WITH(test_gap, make, unmake)
{
    assert_int_equal(gap(QM_PLACE_BACKEND, 16 * KIB), 0); /* nothing is known */
    for (unsigned i = 0; i < 100; i++)
        qm_latency_took(&latency, QM_PLACE_BACKEND, 16 * KIB, 300 * US);
    assert_int_equal(gap(QM_PLACE_BACKEND, 16 * KIB), 0); /* nor of the rate */
    for (unsigned i = 0; i < 2000; i++) /* 1100 us, and 100 us a block */
        qm_latency_took(&latency, QM_PLACE_BACKEND, (i % 8 + 1) * 16 * KIB,
                        (1100 + (i % 8 + 1) * 100) * US);
    assert_int_equal(gap(QM_PLACE_BACKEND, 16 * KIB), 5);
    assert_int_equal(gap(QM_PLACE_BACKEND, 64 * KIB), 1);
    assert_int_equal(gap(QM_PLACE_TIER, 16 * KIB), 0);
}

static bool is_in(const void *wanted, unsigned i)
{
    return *(const unsigned *)wanted >> i & 1;
}

/* Each gap counts for itself; a run ends with a block that is wanted. */
TEST_WITH(test_runs, make, unmake)
{
    static const struct {
        unsigned wanted, max, run; /* wanted: a bit for each block */
    } cases[] = {{0x1, 1, 1},   {0x1, 9, 1},   {0x7, 9, 3},    {0x7, 2, 2},
                 {0x75, 9, 7},  {0x75, 4, 3},  {0x249, 12, 1}, {0x25, 12, 3},
                 {0xa5, 12, 3}, {0x155, 12, 9}};

    for (unsigned i = 0; i < 400; i++) /* a gap of one block, not of two */
        qm_latency_took(&latency, QM_PLACE_BACKEND, (i % 8 + 1) * 16 * KIB,
                        (300 + (i % 8 + 1) * 100) * US);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(qm_latency_run(&latency, QM_PLACE_BACKEND, 16 * KIB,
                                        cases[i].max, is_in, &cases[i].wanted),
                         cases[i].run);
}

/* Neither part is below zero, whatever comes. */
TEST_WITH(test_bounds, make, unmake)
{
    double begin, byte;

    for (unsigned i = 0; i < 200; i++) { /* larger ones are faster */
        qm_latency_took(&latency, QM_PLACE_BACKEND, 16 * KIB, 500 * US);
        qm_latency_took(&latency, QM_PLACE_BACKEND, 64 * KIB, 100 * US);
    }
    assert_true(qm_latency_get(&latency, QM_PLACE_BACKEND, &begin, &byte));
    assert_true(byte == 0 && begin > 0);
    for (unsigned i = 0; i < 2000; i++) { /* more than in proportion */
        qm_latency_took(&latency, QM_PLACE_BACKEND, 16 * KIB, 100 * US);
        qm_latency_took(&latency, QM_PLACE_BACKEND, 64 * KIB, 800 * US);
    }
    assert_true(qm_latency_get(&latency, QM_PLACE_BACKEND, &begin, &byte));
    assert_true(begin == 0 && byte > 0);
}
