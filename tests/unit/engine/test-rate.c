/* SPDX-License-Identifier: BSD-3-Clause */
/* test-rate.c - the budget of reads ahead: never above it, and not far below. */
#include <pthread.h>

#include "tests/harness.h"

#include "engine/rate.h"

#define SECOND UINT64_C(1000000000)

TEST(test_texts)
{
    static const char *const good[] = {"off", "1/s", "7/min", "250/h", "1000000/day"};
    static const char *const bad[] = {
        "",     "0/s",  "on",        "1",    "1/",
        "1/d",  "/s",   "1000001/s", "-1/s", "1.5/s",
        "1 /s", "1/s ", "OFF",       "1K/s", "99999999999999999999/s"};
    struct qm_budget budget = {5, 6};
    char text[16];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(qm_budget_parse(bad[i], &budget));
    assert_int_equal(budget.reads, 5);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(qm_budget_parse(good[i], &budget));
        qm_budget_format(&budget, text, sizeof text);
        assert_string_equal(text, good[i]);
    }
    assert_int_equal(budget.period, 86400 * SECOND);
}

static void make(struct qm_rate *rate, const char *text)
{
    struct qm_budget budget;

    assert_true(qm_budget_parse(text, &budget));
    qm_rate_init(rate);
    qm_rate_set(rate, &budget);
}

TEST(test_off)
{
    struct qm_rate rate;

    make(&rate, "off");
    for (int i = 0; i < 1000; i++) {
        assert_true(qm_rate_take(&rate, 1, false));
        assert_true(qm_rate_read(&rate, 1, i % 3));
        qm_rate_return(&rate);
    }
    assert_false(qm_rate_is_on(&rate));
    qm_rate_destroy(&rate);
}

/* It begins empty; a burst is what it says; of that, a quarter is for the dear. */
TEST(test_burst)
{
    struct qm_rate rate;
    unsigned n = 0;

    make(&rate, "100/s"); /* 10 at once, 91 a second */
    assert_false(qm_rate_take(&rate, 50 * SECOND, true));
    assert_false(qm_rate_take(&rate, 50 * SECOND + SECOND / 92, true));
    assert_true(qm_rate_take(&rate, 50 * SECOND + SECOND / 90, true));
    assert_false(qm_rate_take(&rate, 50 * SECOND + SECOND / 90, true));
    qm_rate_return(&rate);
    while (qm_rate_take(&rate, 60 * SECOND, false))
        n++;
    assert_int_equal(n, 8);
    while (qm_rate_take(&rate, 60 * SECOND, true))
        n++;
    assert_int_equal(n, 10);
    /* These have not been read, however long it takes. */
    assert_false(qm_rate_take(&rate, 90 * SECOND, true));
    assert_true(qm_rate_read(&rate, 90 * SECOND, 1));
    assert_false(qm_rate_take(&rate, 90 * SECOND, true));
    assert_true(qm_rate_take(&rate, 90 * SECOND + SECOND / 90, true));
    qm_rate_destroy(&rate);
}

/* Joined reads give promises back; a read without one needs a token of its own. */
TEST(test_reads)
{
    struct qm_rate rate;

    make(&rate, "100/s");
    assert_false(qm_rate_take(&rate, SECOND, true));
    for (int i = 0; i < 10; i++)
        assert_true(qm_rate_take(&rate, 2 * SECOND, true));
    assert_true(qm_rate_read(&rate, 2 * SECOND, 4));
    for (int i = 0; i < 3; i++)
        assert_true(qm_rate_read(&rate, 2 * SECOND, 0));
    assert_false(qm_rate_read(&rate, 2 * SECOND, 0));
    for (int i = 0; i < 6; i++)
        assert_true(qm_rate_read(&rate, 2 * SECOND, 1));
    assert_false(qm_rate_read(&rate, 2 * SECOND, 1)); /* it was nobody's promise */
    qm_rate_destroy(&rate);
}

/* Reads are counted in every interval of a period's length, whatever happens between a
 * promise and its read, and over restarts. */
static void check_intervals(const char *text, uint64_t reads, uint64_t period,
                            unsigned seed, double least)
{
    enum { MOST = 60000 };
    static uint64_t times[MOST];
    struct qm_rate rate;
    uint64_t now = 12345, begin = now;
    unsigned n = 0, waiting = 0, first = 0;

    make(&rate, text);
    srandom(seed);
    while (n < MOST && now - begin < 40 * period) {
        unsigned what = (unsigned)random() % 1000;

        now += (uint64_t)random() % (period / reads + 1) / 2;
        if (what == 0) { /* everybody pauses */
            now += (uint64_t)random() % (period / 4);
        } else if (what == 1) { /* another server */
            qm_rate_destroy(&rate);
            make(&rate, text);
            waiting = 0;
        } else if (what < 500) {
            waiting += qm_rate_take(&rate, now, what & 1);
        } else if (what < 550 && waiting > 0) {
            qm_rate_return(&rate);
            waiting--;
        } else {
            unsigned joined = (unsigned)random() % 3;

            if (joined > waiting)
                joined = waiting;
            waiting -= joined;
            if (qm_rate_read(&rate, now, joined))
                times[n++] = now;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        while (times[i] - times[first] >= period)
            first++;
        assert_true(i - first + 1 <= reads);
    }
    /* It is used, too. */
    assert_true((double)n >=
                least * (double)reads * (double)(now - begin) / (double)period);
    qm_rate_destroy(&rate);
}

TEST(test_intervals)
{
    for (unsigned seed = 0; seed < 5; seed++) {
        check_intervals("1/s", 1, SECOND, seed, 0.3);
        check_intervals("2/s", 2, SECOND, seed, 0.3);
        check_intervals("10/min", 10, 60 * SECOND, seed, 0.3);
        check_intervals("100/s", 100, SECOND, seed, 0.5);
        check_intervals("1000/day", 1000, 86400 * SECOND, seed, 0.6);
    }
}

/* A change keeps to the new budget. */
TEST(test_change)
{
    struct qm_rate rate;
    struct qm_budget budget;
    unsigned n = 0;

    make(&rate, "1000/s");
    assert_false(qm_rate_take(&rate, SECOND, true));
    for (int i = 0; i < 5; i++)
        assert_true(qm_rate_take(&rate, 5 * SECOND, true));
    assert_true(qm_budget_parse("20/s", &budget)); /* 8 at once */
    qm_rate_set(&rate, &budget);
    while (qm_rate_take(&rate, 5 * SECOND, true))
        n++;
    assert_int_equal(n, 3);
    assert_true(qm_budget_parse("off", &budget));
    qm_rate_set(&rate, &budget);
    for (int i = 0; i < 100; i++)
        assert_true(qm_rate_take(&rate, 5 * SECOND, false));
    assert_true(qm_budget_parse("20/s", &budget));
    qm_rate_set(&rate, &budget); /* it begins empty; those promises were none of it */
    assert_false(qm_rate_take(&rate, 5 * SECOND, true));
    qm_rate_return(&rate);
    assert_false(qm_rate_read(&rate, 5 * SECOND, 1));
    qm_rate_destroy(&rate);
}

#define THREADS 4

static struct qm_rate shared;
static _Atomic uint64_t clock_now;
static _Atomic unsigned sent;

static void *use(void *opaque)
{
    (void)opaque;
    for (int i = 0; i < 20000; i++) {
        uint64_t now = atomic_fetch_add(&clock_now, 1000) + 1;

        if (!qm_rate_take(&shared, now, i & 1))
            continue;
        if (i % 5 == 0)
            qm_rate_return(&shared);
        else if (qm_rate_read(&shared, now, 1))
            atomic_fetch_add(&sent, 1);
    }
    return NULL;
}

TEST(test_threads)
{
    pthread_t threads[THREADS];

    make(&shared, "100000/s"); /* of 80 ms: at most 10,000 + 7,201 */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&sent) > 0 && atomic_load(&sent) <= 17201);
    assert_int_equal(shared.promised, 0);
    qm_rate_destroy(&shared);
}
