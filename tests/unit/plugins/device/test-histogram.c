/* SPDX-License-Identifier: BSD-3-Clause */
/* test-histogram.c - numbers come back as exactly as the histogram promises. */
#include "tests/harness.h"

#include "plugins/device/histogram.h"

static struct qm_histogram h;

static int clear(void **state)
{
    memset(&h, 0, sizeof h);
    return 0;
}

TEST_WITH(empty, clear, NULL)
{
    assert_int_equal(qm_histogram_percentile(&h, 50), 0);
    assert_int_equal(qm_histogram_percentile(&h, 100), 0);
    assert_true(qm_histogram_mean(&h) == 0);
}

TEST_WITH(small_numbers_are_exact, clear, NULL)
{
    for (uint64_t i = 1; i <= 60; i++)
        qm_histogram_add(&h, i);
    assert_int_equal(h.count, 60);
    assert_int_equal(h.max, 60);
    assert_true(qm_histogram_mean(&h) == 30.5);
    assert_int_equal(qm_histogram_percentile(&h, 0), 1);
    assert_int_equal(qm_histogram_percentile(&h, 50), 30);
    assert_int_equal(qm_histogram_percentile(&h, 90), 54);
    assert_int_equal(qm_histogram_percentile(&h, 100), 60);
}

/* One number at a time, and one larger so that the maximum does not help. */
TEST_WITH(error_is_bounded, clear, NULL)
{
    for (unsigned bit = 0; bit < 63; bit++) {
        for (int64_t d = -3; d <= 3; d++) {
            uint64_t value =
                (UINT64_C(1) << bit) + (UINT64_C(1) << bit) / 3 + (uint64_t)d;
            uint64_t got;

            if ((int64_t)value < 0)
                continue;
            clear(NULL);
            qm_histogram_add(&h, value);
            qm_histogram_add(&h, UINT64_MAX);
            got = qm_histogram_percentile(&h, 50);
            assert_true(got >= value);
            assert_true(got - value <= value / 64);
        }
    }
}

TEST_WITH(limits, clear, NULL)
{
    qm_histogram_add(&h, 0);
    qm_histogram_add(&h, UINT64_MAX);
    assert_int_equal(qm_histogram_percentile(&h, 50), 0);
    assert_true(qm_histogram_percentile(&h, 51) == UINT64_MAX);
    assert_true(h.max == UINT64_MAX);
}

TEST_WITH(merge, clear, NULL)
{
    static struct qm_histogram a, b;

    for (uint64_t i = 0; i < 1000; i++) {
        qm_histogram_add(&h, i * i);
        qm_histogram_add(i % 3 ? &a : &b, i * i);
    }
    qm_histogram_merge(&a, &b);
    assert_memory_equal(a.counts, h.counts, sizeof h.counts);
    assert_int_equal(a.count, h.count);
    assert_int_equal(a.max, h.max);
    assert_true(a.sum == h.sum);
}
