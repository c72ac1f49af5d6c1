/* SPDX-License-Identifier: BSD-3-Clause */
/* test-inflight.c - how many prefetches may be in flight, of backends that are known.
 */
#include "tests/harness.h"

#include "engine/inflight.h"

enum { ROUNDS = 4000 };

/* A backend that serves `servers` reads at a time, and lets others wait in turn. */
static double slowness(unsigned reads, unsigned servers)
{
    return reads > servers ? (double)reads / servers : 1;
}

/* Prefetches that wait are sent as far as they may be, in bursts of any length, beside
 * `demands` others.  Returns how many may be in flight in the end. */
static unsigned settle(struct qm_inflight *f, unsigned servers, unsigned demands)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned most = qm_inflight_allowed(f, demands);

        qm_inflight_waits(f);
        for (unsigned n = 0; n < most; n++)
            qm_inflight_ended(f, demands + n, slowness(demands + n + 1, servers));
    }
    return qm_inflight_allowed(f, demands);
}

TEST(test_follows_servers)
{
    static const unsigned servers[] = {1, 4, 15, 64, 150};

    for (unsigned i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct qm_inflight f;
        unsigned n;

        qm_inflight_init(&f, 0);
        assert_int_equal(qm_inflight_allowed(&f, 0), QM_INFLIGHT_FIRST);
        n = settle(&f, servers[i], 0);
        if (n < servers[i] || n > servers[i] + servers[i] / 3 + 1)
            fail_msg("%u in flight with %u servers", n, servers[i]);
        qm_inflight_destroy(&f);
    }
}

TEST(test_wide)
{
    struct qm_inflight f;

    qm_inflight_init(&f, 0);
    assert_int_equal(settle(&f, 1000000, 0), QM_INFLIGHT_MOST);
    qm_inflight_destroy(&f);
}

/* Demands are served first: what they leave is for prefetches. */
TEST(test_demands_first)
{
    struct qm_inflight f;

    qm_inflight_init(&f, 0);
    assert_in_range(settle(&f, 64, 24), 64 - 24, 64 + 22 - 24);
    assert_int_equal(qm_inflight_allowed(&f, 200), 1);
    qm_inflight_destroy(&f);
}

/* Without prefetches that wait, it does not grow; and when the backend serves fewer, it
 * shrinks. */
TEST(test_moves)
{
    struct qm_inflight f;

    qm_inflight_init(&f, 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        qm_inflight_ended(&f, i % QM_INFLIGHT_FIRST, 1);
    assert_int_equal(qm_inflight_allowed(&f, 0), QM_INFLIGHT_FIRST);
    assert_int_equal(qm_inflight_queue(&f, 0), 8 * QM_INFLIGHT_FIRST);
    assert_in_range(settle(&f, 64, 0), 64, 86);
    assert_in_range(qm_inflight_queue(&f, 0), 512, 1024);
    assert_in_range(settle(&f, 8, 0), 8, 11);
    qm_inflight_destroy(&f);
}

/* The more demands are in flight, the fewer prefetches may wait: none beside twice as
 * many as the backend serves. */
TEST(test_queue_beside_demands)
{
    struct qm_inflight f;
    unsigned aim;

    qm_inflight_init(&f, 0);
    aim = settle(&f, 8, 0);
    assert_int_equal(qm_inflight_queue(&f, 0), 8 * aim);
    assert_int_equal(qm_inflight_queue(&f, aim), 4 * aim);
    assert_int_equal(qm_inflight_queue(&f, 2 * aim - 1), 4);
    assert_int_equal(qm_inflight_queue(&f, 2 * aim), 0);
    assert_int_equal(qm_inflight_queue(&f, 2 * aim + 1), 0);
    qm_inflight_destroy(&f);
    qm_inflight_init(&f, 100); /* what is configured holds whatever the demands */
    assert_int_equal(qm_inflight_queue(&f, 1000), 800);
    qm_inflight_destroy(&f);
    qm_inflight_init(&f, 7);
    assert_int_equal(qm_inflight_queue(&f, 1000), 128);
    qm_inflight_destroy(&f);
}

TEST(test_given)
{
    struct qm_inflight f;

    qm_inflight_init(&f, 7);
    assert_int_equal(settle(&f, 1, 0), 7);
    assert_int_equal(qm_inflight_allowed(&f, 100), 7);
    qm_inflight_ended(&f, 3, 0); /* its time is not known */
    qm_inflight_destroy(&f);
}
