/* SPDX-License-Identifier: BSD-3-Clause */
/* test-throttle.c - who may prefetch: useless classes stop and cost little, useful ones
 * come back, and classes that feed each other are judged together. */
#include "testing.h"

#include "mining/core/throttle.h"

enum { DEGREE = 4, SEARCH = 3, NEW_PRODUCTS = 7, USELESS = 9 };

static struct qm_throttle *t;

static int set_up(void **state)
{
    t = qm_throttle_new();
    return t ? 0 : -1;
}

static int tear_down(void **state)
{
    qm_throttle_free(t);
    return 0;
}

/* klass reads: what it may prefetch is issued, and percent of it are used by user.
 * Returns how many were issued. */
static unsigned access_as(uint32_t klass, uint32_t user, unsigned percent)
{
    static unsigned turn;
    unsigned n = qm_throttle_allow(t, klass, DEGREE);

    for (unsigned i = 0; i < n; i++) {
        qm_throttle_issued(t, klass, 1);
        turn = (turn + 61) % 100;
        if (turn < percent)
            qm_throttle_used(t, klass, user);
    }
    return n;
}

static enum qm_throttle_state state_of(uint32_t klass)
{
    uint32_t set;

    return qm_throttle_get(t, klass, &set);
}

static uint32_t set_of(uint32_t klass)
{
    uint32_t set;

    qm_throttle_get(t, klass, &set);
    return set;
}

TEST_WITH(test_useless_stops_and_costs_little, set_up, tear_down)
{
    unsigned accesses = 0, issued = 0;

    for (; state_of(USELESS) != QM_THROTTLE_OFF; accesses++) {
        assert_true(accesses < 200);
        access_as(USELESS, USELESS, 0);
    }
    for (accesses = 0; accesses < 100000; accesses++)
        issued += access_as(USELESS, USELESS, 0);
    assert_int_equal(state_of(USELESS), QM_THROTTLE_OFF);
    assert_true(issued > 0);
    assert_true(issued < accesses / 100);
}

TEST_WITH(test_useful_comes_back, set_up, tear_down)
{
    unsigned accesses = 0;

    for (unsigned i = 0; i < 50000; i++)
        access_as(USELESS, USELESS, 1);
    assert_int_equal(state_of(USELESS), QM_THROTTLE_OFF);
    for (; state_of(USELESS) != QM_THROTTLE_ON; accesses++) {
        assert_true(accesses < 10000);
        access_as(USELESS, USELESS, 80);
    }
    assert_int_equal(qm_throttle_allow(t, USELESS, DEGREE), DEGREE);
}

/* A class that is off probes, and one of n blocks that it probes with is used.  Returns
 * whether that brings it back. */
static bool comes_back(unsigned n)
{
    unsigned issued = 0;

    while (issued < 20 * n && state_of(USELESS) == QM_THROTTLE_OFF)
        for (unsigned i = qm_throttle_allow(t, USELESS, DEGREE); i > 0; i--) {
            qm_throttle_issued(t, USELESS, 1);
            if (++issued % n == 0)
                qm_throttle_used(t, USELESS, USELESS);
        }
    return state_of(USELESS) != QM_THROTTLE_OFF;
}

/* What would not stop a class that is on, 10 to 19 %, does not bring one back that is
 * off. */
TEST_WITH(test_comes_back_from_20_percent, set_up, tear_down)
{
    while (state_of(USELESS) != QM_THROTTLE_OFF)
        access_as(USELESS, USELESS, 0);
    assert_false(comes_back(6));
    assert_true(comes_back(4));
    assert_int_equal(state_of(USELESS), QM_THROTTLE_REDUCED);
}

TEST_WITH(test_middling_is_reduced_and_restored, set_up, tear_down)
{
    for (unsigned i = 0; i < 5000; i++)
        access_as(1, 1, 15);
    assert_int_equal(state_of(1), QM_THROTTLE_REDUCED);
    assert_int_equal(qm_throttle_allow(t, 1, DEGREE), 1);
    assert_int_equal(qm_throttle_allow(t, 1, 0), 0);
    for (unsigned i = 0; i < 5000; i++)
        access_as(1, 1, 60);
    assert_int_equal(state_of(1), QM_THROTTLE_ON);
}

/* Search prefetches what NewProducts reads; what NewProducts prefetches for itself is
 * seldom used.  By itself NewProducts would stop; with Search it goes on. */
TEST_WITH(test_symbiotic, set_up, tear_down)
{
    for (unsigned i = 0; i < 20000; i++) {
        access_as(SEARCH, NEW_PRODUCTS, 70);
        access_as(NEW_PRODUCTS, NEW_PRODUCTS, 5);
        access_as(USELESS, USELESS, 5);
    }
    assert_int_equal(set_of(SEARCH), SEARCH);
    assert_int_equal(set_of(NEW_PRODUCTS), SEARCH);
    assert_int_equal(set_of(USELESS), USELESS);
    assert_int_equal(state_of(SEARCH), QM_THROTTLE_ON);
    assert_int_equal(state_of(NEW_PRODUCTS), QM_THROTTLE_ON);
    assert_int_equal(state_of(USELESS), QM_THROTTLE_OFF);

    /* They stop feeding each other. */
    for (unsigned i = 0; i < 20000; i++) {
        access_as(SEARCH, SEARCH, 70);
        access_as(NEW_PRODUCTS, NEW_PRODUCTS, 5);
    }
    assert_int_equal(set_of(NEW_PRODUCTS), NEW_PRODUCTS);
    assert_int_equal(state_of(SEARCH), QM_THROTTLE_ON);
    assert_int_equal(state_of(NEW_PRODUCTS), QM_THROTTLE_OFF);
}

TEST_WITH(test_chain_is_one_set, set_up, tear_down)
{
    for (unsigned i = 0; i < 5000; i++)
        for (uint32_t c = 10; c < 20; c++)
            access_as(c, c + 1, 90);
    for (uint32_t c = 10; c <= 20; c++)
        assert_int_equal(set_of(c), 10);
}

/* A few uses by many others make no set. */
TEST_WITH(test_many_users_are_no_set, set_up, tear_down)
{
    for (unsigned i = 0; i < 20000; i++)
        access_as(1, i % 5 ? 1 : 100 + i % 100, 60);
    for (uint32_t c = 100; c < 200; c++)
        assert_int_equal(set_of(c), c);
}

TEST_WITH(test_large_numbers, set_up, tear_down)
{
    for (unsigned i = 0; i < 1000; i++)
        access_as(UINT32_MAX, UINT32_MAX - 1, 0);
    assert_int_equal(state_of(UINT32_MAX), QM_THROTTLE_OFF);
    assert_int_equal(state_of(QM_THROTTLE_CLASSES - 1), QM_THROTTLE_OFF);
    assert_int_equal(state_of(0), QM_THROTTLE_ON);
}
