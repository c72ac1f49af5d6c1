/* SPDX-License-Identifier: BSD-3-Clause */
/* test-load.c - how much may be prefetched while the device is busy: a device that is
 * made up, and a clock that goes by what it takes.
 */

#include "tests/harness.h"

#include "engine/load.h"

#define MS UINT64_C(1000000)

struct device {
    struct qm_device_load load;
    uint64_t now;
};

static int set_up(void **state)
{
    static struct device d;

    qm_device_load_init(&d.load);
    d.now = 1000 * MS;
    *state = &d;
    return 0;
}

static int tear_down(void **state)
{
    struct device *d = *state;

    qm_device_load_destroy(&d->load);
    return 0;
}

/* A read of `blocks` blocks that takes ns, four at a time. */
static void took(struct device *d, uint64_t ns, unsigned blocks, unsigned queued)
{
    d->now += ns / 4;
    qm_device_load_took(&d->load, d->now, ns, blocks, queued);
}

static void run(struct device *d, unsigned reads, uint64_t ns, unsigned queued)
{
    for (unsigned i = 0; i < reads; i++)
        took(d, ns, 1, queued);
}

static unsigned share(struct device *d)
{
    return atomic_load(&d->load.share);
}

/* How many of n candidates pass, one every microsecond. */
static unsigned admitted(struct device *d, unsigned n)
{
    unsigned passed = 0;

    for (unsigned i = 0; i < n; i++) {
        d->now += 1000;
        passed +=
            qm_device_load_is_low(&d->load) || qm_device_load_admit(&d->load, d->now);
    }
    return passed;
}

static void idle_for_a_while(struct device *d)
{
    run(d, 200, 5 * MS, 0);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    assert_true(qm_device_load_is_low(&d->load));
}

TEST_WITH(test_reduced_then_stopped, set_up, tear_down)
{
    struct device *d = *state;
    unsigned shares[6], n = 0, last = QM_DEVICE_LOAD_ALL;

    idle_for_a_while(d);
    assert_int_equal(admitted(d, 1000), 1000);
    qm_device_load_demand(&d->load, 1);
    for (int i = 0; i < 1000 && share(d) > 0; i++) {
        took(d, 40 * MS, 1, 10);
        if (share(d) != last)
            shares[n++] = last = share(d);
    }
    assert_int_equal(n, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(shares[i], QM_DEVICE_LOAD_ALL >> (i + 1));
    assert_true(qm_device_load_slowness(&d->load) > 7.9 &&
                qm_device_load_slowness(&d->load) < 8.1);
    /* Only probes pass: one in ten milliseconds. */
    assert_in_range(admitted(d, 100000), 9, 11);
}

TEST_WITH(test_share, set_up, tear_down)
{
    struct device *d = *state;

    for (unsigned s = 1; s <= QM_DEVICE_LOAD_ALL; s++) {
        atomic_store(&d->load.share, s);
        assert_in_range(admitted(d, 1600), 100 * s - 1, 100 * s + 1);
    }
}

TEST_WITH(test_comes_back, set_up, tear_down)
{
    struct device *d = *state;
    unsigned last = 0;

    idle_for_a_while(d);
    qm_device_load_demand(&d->load, 1);
    run(d, 500, 40 * MS, 10);
    assert_int_equal(share(d), 0);
    /* Still slow, if with nothing queued any more: it stays. */
    run(d, 100, 40 * MS, 0);
    assert_int_equal(share(d), 0);
    /* Neither slow nor as fast as before: it stays. */
    run(d, 100, 11 * MS, 0);
    assert_int_equal(share(d), 0);
    for (int i = 0; i < 2000 && share(d) < QM_DEVICE_LOAD_ALL; i++) {
        took(d, 6 * MS, 1, 0);
        assert_in_range(share(d), last, last + 1);
        last = share(d);
    }
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
}

/* Prefetches that are in nobody's way. */
TEST_WITH(test_without_demands, set_up, tear_down)
{
    struct device *d = *state;

    idle_for_a_while(d);
    run(d, 500, 40 * MS, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    qm_device_load_demand(&d->load, 1);
    run(d, 500, 40 * MS, 10);
    assert_int_equal(share(d), 0);
    qm_device_load_demand(&d->load, -1);
    run(d, 2000, 40 * MS, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
}

TEST_WITH(test_what_is_not_busy, set_up, tear_down)
{
    struct device *d = *state;

    idle_for_a_while(d);
    qm_device_load_demand(&d->load, 1);
    /* A queue that is emptied now and then. */
    for (int i = 0; i < 500; i++)
        took(d, 40 * MS, 1, i % 7 ? 10 : 0);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    /* A queue that is never empty, of reads that take twice as long. */
    run(d, 500, 10 * MS, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    /* One slow read now and then: a mean that is not. */
    for (int i = 0; i < 500; i++)
        took(d, i % 50 ? 5 * MS : 60 * MS, 1, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
}

/* On memory, a thread that waits for the processor is not a device that is busy. */
TEST_WITH(test_fast_device, set_up, tear_down)
{
    struct device *d = *state;

    qm_device_load_demand(&d->load, 1);
    run(d, 10000, 5000, 0);
    run(d, 100000, 100000, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    run(d, 10000, 500000, 10);
    assert_int_equal(share(d), 0);
}

/* Larger reads take longer on an idle device, too. */
TEST_WITH(test_sizes, set_up, tear_down)
{
    struct device *d = *state;

    qm_device_load_demand(&d->load, 1);
    for (int i = 0; i < 500; i++)
        took(d, i % 2 ? 1 * MS : 10 * MS, i % 2 ? 1 : 16, 0);
    run(d, 100, 1 * MS, 10);
    for (int i = 0; i < 500; i++)
        took(d, 10 * MS, 16, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    for (int i = 0; i < 500; i++)
        took(d, 40 * MS, 16, 10);
    assert_int_equal(share(d), 0);
    for (int i = 0; i < 2000; i++)
        took(d, 10 * MS, 16, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
}

/* Reads of a size that come first while the device is busy. */
TEST_WITH(test_new_sizes, set_up, tear_down)
{
    static const unsigned known[] = {8, 8, 1, 4, 16}, first[] = {1, 4, 2, 8, 4};
    struct device *d = *state;

    for (unsigned i = 0; i < 5; i++) {
        tear_down(state);
        set_up(state);
        qm_device_load_demand(&d->load, 1);
        for (int k = 0; k < 500; k++)
            took(d, 4 * MS, known[i], 10);
        assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
        for (int k = 0; k < 20; k++) /* as it is throttled, they become others */
            took(d, 80 * MS, known[i], 10);
        assert_in_range(share(d), 1, 8);
        for (int k = 0; k < 500; k++)
            took(d, 80 * MS, first[i], 10);
        assert_int_equal(share(d), 0);
    }
}

/* A size that does take longer: at once as much as its blocks, more after two periods.
 */
TEST_WITH(test_slow_sizes, set_up, tear_down)
{
    struct device *d = *state;
    uint64_t began;

    qm_device_load_demand(&d->load, 1);
    run(d, 500, 4 * MS, 10);
    for (int k = 0; k < 500; k++)
        took(d, 32 * MS, 8, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
    began = d->now;
    while (share(d) > 0 && d->now - began < 300000 * MS)
        took(d, 200 * MS, 2, 10);
    assert_int_equal(share(d), 0);
    while (share(d) < QM_DEVICE_LOAD_ALL && d->now - began < 300000 * MS)
        took(d, 200 * MS, 2, 10);
    assert_in_range(d->now - began, 30000 * MS, 100000 * MS);
}

/* What was long ago does not count: a device that is slow now. */
TEST_WITH(test_forgets, set_up, tear_down)
{
    struct device *d = *state;
    uint64_t began;

    /* Two thirds of a period, so that the next one begins soon. */
    while (d->now < 21000 * MS)
        idle_for_a_while(d);
    qm_device_load_demand(&d->load, 1);
    began = d->now;
    run(d, 400, 40 * MS, 10);
    assert_int_equal(share(d), 0);
    while (share(d) == 0 && d->now - began < 300000 * MS)
        took(d, 40 * MS, 1, 0);
    assert_in_range(d->now - began, 25000 * MS, 65000 * MS);
    run(d, 2000, 40 * MS, 10);
    assert_int_equal(share(d), QM_DEVICE_LOAD_ALL);
}
