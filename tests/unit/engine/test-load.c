/* SPDX-License-Identifier: BSD-3-Clause */
/* test-load.c - how much may be prefetched while the device is busy: a device that is
 * made up, and a clock that goes by what it takes.
 */
#include "tests/harness.h"

#include "engine/load.h"

#define MS UINT64_C(1000000)

static struct qm_device_load load;
static uint64_t now;

static int set_up(void **state)
{
    qm_device_load_init(&load);
    now = 1000 * MS;
    return 0;
}

static int tear_down(void **state)
{
    qm_device_load_destroy(&load);
    return 0;
}

/* A read of `blocks` blocks that takes ns, four at a time. */
static void took(uint64_t ns, unsigned blocks, unsigned queued)
{
    now += ns / 4;
    qm_device_load_took(&load, now, ns, blocks, queued);
}

static void run(unsigned reads, uint64_t ns, unsigned queued)
{
    for (unsigned i = 0; i < reads; i++)
        took(ns, 1, queued);
}

static unsigned share(void)
{
    return atomic_load(&load.share);
}

/* How many of n candidates pass, one every microsecond. */
static unsigned admitted(unsigned n)
{
    unsigned passed = 0;

    for (unsigned i = 0; i < n; i++) {
        now += 1000;
        passed += qm_device_load_is_low(&load) || qm_device_load_admit(&load, now);
    }
    return passed;
}

static void idle_for_a_while(void)
{
    run(200, 5 * MS, 0);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    assert_true(qm_device_load_is_low(&load));
}

TEST_WITH(test_reduced_then_stopped, set_up, tear_down)
{
    unsigned shares[6], n = 0, last = QM_DEVICE_LOAD_ALL;

    idle_for_a_while();
    assert_int_equal(admitted(1000), 1000);
    qm_device_load_demand(&load, 1);
    for (int i = 0; i < 1000 && share() > 0; i++) {
        took(40 * MS, 1, 10);
        if (share() != last)
            shares[n++] = last = share();
    }
    assert_int_equal(n, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(shares[i], QM_DEVICE_LOAD_ALL >> (i + 1));
    assert_true(qm_device_load_slowness(&load) > 7.9 &&
                qm_device_load_slowness(&load) < 8.1);
    /* Only probes pass: one in ten milliseconds. */
    assert_in_range(admitted(100000), 9, 11);
}

TEST_WITH(test_share, set_up, tear_down)
{
    for (unsigned s = 1; s <= QM_DEVICE_LOAD_ALL; s++) {
        atomic_store(&load.share, s);
        assert_in_range(admitted(1600), 100 * s - 1, 100 * s + 1);
    }
}

TEST_WITH(test_comes_back, set_up, tear_down)
{
    unsigned last = 0;

    idle_for_a_while();
    qm_device_load_demand(&load, 1);
    run(500, 40 * MS, 10);
    assert_int_equal(share(), 0);
    /* Still slow, if with nothing queued any more: it stays. */
    run(100, 40 * MS, 0);
    assert_int_equal(share(), 0);
    /* Neither slow nor as fast as before: it stays. */
    run(100, 11 * MS, 0);
    assert_int_equal(share(), 0);
    for (int i = 0; i < 2000 && share() < QM_DEVICE_LOAD_ALL; i++) {
        took(6 * MS, 1, 0);
        assert_in_range(share(), last, last + 1);
        last = share();
    }
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
}

/* Prefetches that are in nobody's way. */
TEST_WITH(test_without_demands, set_up, tear_down)
{
    idle_for_a_while();
    run(500, 40 * MS, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    qm_device_load_demand(&load, 1);
    run(500, 40 * MS, 10);
    assert_int_equal(share(), 0);
    qm_device_load_demand(&load, -1);
    run(2000, 40 * MS, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
}

TEST_WITH(test_what_is_not_busy, set_up, tear_down)
{
    idle_for_a_while();
    qm_device_load_demand(&load, 1);
    /* A queue that is emptied now and then. */
    for (int i = 0; i < 500; i++)
        took(40 * MS, 1, i % 7 ? 10 : 0);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    /* A queue that is never empty, of reads that take twice as long. */
    run(500, 10 * MS, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    /* One slow read now and then: a mean that is not. */
    for (int i = 0; i < 500; i++)
        took(i % 50 ? 5 * MS : 60 * MS, 1, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
}

/* On memory, a thread that waits for the processor is not a device that is busy. */
TEST_WITH(test_fast_device, set_up, tear_down)
{
    qm_device_load_demand(&load, 1);
    run(10000, 5000, 0);
    run(100000, 100000, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    run(10000, 500000, 10);
    assert_int_equal(share(), 0);
}

/* Larger reads take longer on an idle device, too. */
TEST_WITH(test_sizes, set_up, tear_down)
{
    qm_device_load_demand(&load, 1);
    for (int i = 0; i < 500; i++)
        took(i % 2 ? 1 * MS : 10 * MS, i % 2 ? 1 : 16, 0);
    run(100, 1 * MS, 10);
    for (int i = 0; i < 500; i++)
        took(10 * MS, 16, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    for (int i = 0; i < 500; i++)
        took(40 * MS, 16, 10);
    assert_int_equal(share(), 0);
    for (int i = 0; i < 2000; i++)
        took(10 * MS, 16, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
}

/* Reads of a size that come first while the device is busy. */
TEST_WITH(test_new_sizes, set_up, tear_down)
{
    static const unsigned known[] = {8, 8, 1, 4, 16}, first[] = {1, 4, 2, 8, 4};

    for (unsigned i = 0; i < 5; i++) {
        tear_down(state);
        set_up(state);
        qm_device_load_demand(&load, 1);
        for (int k = 0; k < 500; k++)
            took(4 * MS, known[i], 10);
        assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
        for (int k = 0; k < 20; k++) /* as it is throttled, they become others */
            took(80 * MS, known[i], 10);
        assert_in_range(share(), 1, 8);
        for (int k = 0; k < 500; k++)
            took(80 * MS, first[i], 10);
        assert_int_equal(share(), 0);
    }
}

/* A size that does take longer: at once as much as its blocks, more after two periods.
 */
TEST_WITH(test_slow_sizes, set_up, tear_down)
{
    uint64_t began;

    qm_device_load_demand(&load, 1);
    run(500, 4 * MS, 10);
    for (int k = 0; k < 500; k++)
        took(32 * MS, 8, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
    began = now;
    while (share() > 0 && now - began < 300000 * MS)
        took(200 * MS, 2, 10);
    assert_int_equal(share(), 0);
    while (share() < QM_DEVICE_LOAD_ALL && now - began < 300000 * MS)
        took(200 * MS, 2, 10);
    assert_in_range(now - began, 30000 * MS, 100000 * MS);
}

/* What was long ago does not count: a device that is slow now. */
TEST_WITH(test_forgets, set_up, tear_down)
{
    uint64_t began;

    /* Two thirds of a period, so that the next one begins soon. */
    while (now < 21000 * MS)
        idle_for_a_while();
    qm_device_load_demand(&load, 1);
    began = now;
    run(400, 40 * MS, 10);
    assert_int_equal(share(), 0);
    while (share() == 0 && now - began < 300000 * MS)
        took(40 * MS, 1, 0);
    assert_in_range(now - began, 25000 * MS, 65000 * MS);
    run(2000, 40 * MS, 10);
    assert_int_equal(share(), QM_DEVICE_LOAD_ALL);
}
