/* SPDX-License-Identifier: BSD-3-Clause */
/* test-yield.c - which arms are on, in virtual time: what is used, what it costs, how
 * busy the database is, and that what is off is tried again, seldom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rowcache/readahead/yield.h"

/* A pool that is idle, reads of 1000 us. */
static struct qm_rule_yield *new_yield(void)
{
    struct qm_rule_yield *w = qm_rule_yield_new(5000);

    assert_non_null(w);
    for (int i = 0; i < 100; i++)
        qm_rule_yield_read(w, 1000);
    return w;
}

static enum qm_rule_yield_state state_of(struct qm_rule_yield *w, unsigned arm)
{
    return qm_rule_yield_get(w, arm)->state;
}

/* Rows that cost us each, of which used of a hundred are used. */
static unsigned fetch(struct qm_rule_yield *w, uint64_t now, unsigned arm,
                      unsigned rows, double us, unsigned used)
{
    unsigned allowed = qm_rule_yield_allow(w, now, arm, rows);

    qm_rule_yield_paid(w, arm, allowed, us * allowed, 0);
    for (unsigned i = 0; i < allowed; i++)
        qm_rule_yield_judge(w, now, arm, i * 61 % 100 < used);
    return allowed;
}

static void test_trial(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned good = qm_rule_yield_find(w, 1, 0, 0),
             bad = qm_rule_yield_find(w, 1, 0, 1);

    assert_int_equal(qm_rule_yield_find(w, 1, 0, 0), good);
    assert_int_not_equal(good, bad);
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_TRIAL);
    fetch(w, 0, good, 96, 100, 50); /* .5 * 1000 > 100 * .25 */
    fetch(w, 0, bad, 96, 100, 1);   /* .01 * 1000 < 100 * .25 */
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_ON);
    assert_int_equal(state_of(w, bad), QM_RULE_YIELD_OFF);
    assert_int_equal(qm_rule_yield_allow(w, 1, bad, 10), 0);
    /* On, there is no bound. */
    assert_int_equal(qm_rule_yield_allow(w, 1, good, 5000), 5000);
    qm_rule_yield_free(w);
}

/* As many as are out on trial. */
static void test_few_are_out(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 60), 60);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 60), 36);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 60), 0);
    qm_rule_yield_give_back(w, arm, 10);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 60), 10);
    qm_rule_yield_free(w);
}

/* The work of one that was on becomes another: off, and on trial later, each time
 * twice as late. */
static void test_changes(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t now = 0, last = 0, tried[6];
    unsigned n = 0;

    fetch(w, now, arm, 96, 100, 90);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    for (unsigned rows = 0; state_of(w, arm) == QM_RULE_YIELD_ON; rows += 50) {
        assert_true(rows < 5000);
        fetch(w, now, arm, 50, 100, 0);
    }
    for (last = now; n < 6; now += 100) {
        qm_rule_yield_read(w, 1000);
        if (fetch(w, now, arm, 96, 100, 0) > 0) {
            while (state_of(w, arm) == QM_RULE_YIELD_TRIAL)
                fetch(w, now, arm, 96, 100, 0);
            tried[n++] = now - last;
            last = now;
        }
    }
    assert_int_equal(tried[0], QM_RULE_YIELD_RETRY_MS);
    assert_int_equal(tried[1], 2 * QM_RULE_YIELD_RETRY_MS);
    assert_int_equal(tried[5], QM_RULE_YIELD_RETRY_MOST_MS);
    /* And on again. */
    now += QM_RULE_YIELD_RETRY_MOST_MS;
    fetch(w, now, arm, 96, 100, 90);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    qm_rule_yield_free(w);
}

/* The price rises with the connections that are busy, and with the database's time. */
static void test_price(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    double idle = qm_rule_yield_price(w);

    fetch(w, 0, arm, 96, 500, 30); /* .3 * 1000 > 500 * .25 */
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    for (int i = 0; i < 200; i++)
        qm_rule_yield_busy(w, 1);
    assert_true(qm_rule_yield_price(w) > idle + .9);
    fetch(w, 0, arm, 96, 500, 30); /* .3 * 1000 < 500 * 1.25 */
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    for (int i = 0; i < 400; i++)
        qm_rule_yield_busy(w, 0);
    assert_true(qm_rule_yield_price(w) < idle + .01);
    for (int i = 0; i < 100; i++)
        qm_rule_yield_read(w, 5000);
    assert_true(qm_rule_yield_price(w) > idle + .5);
    qm_rule_yield_free(w);
}

/* What takes work off the database stays on, however busy it is. */
static void test_cheap(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    for (int i = 0; i < 200; i++)
        qm_rule_yield_busy(w, 1);
    fetch(w, 0, arm, 96, 20, 10); /* .1 * 1000 > 20 * 1.25 */
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    qm_rule_yield_free(w);
}

/* Where processors are scarce, what earns little goes off; what earns much stays on. */
static void test_processors(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned little = qm_rule_yield_find(w, 1, 0, 0),
             much = qm_rule_yield_find(w, 1, 0, 1);
    double idle = qm_rule_yield_price(w);

    qm_rule_yield_processors(w, .7); /* that much is not scarce */
    assert_true(qm_rule_yield_price(w) == idle);
    for (int i = 0; i < 9; i++)
        qm_rule_yield_processors(w, 0);
    for (int i = 0; i < 2; i++)
        qm_rule_yield_processors(w, 1); /* nor is half a second */
    assert_true(qm_rule_yield_price(w) < idle + .1);
    fetch(w, 0, little, 96, 50, 10); /* .1 * 1000 > 50 * .25 */
    fetch(w, 0, much, 96, 50, 50);   /* .5 * 1000 > 50 * 3.25 */
    assert_int_equal(state_of(w, little), QM_RULE_YIELD_ON);
    for (int i = 0; i < 9; i++)
        qm_rule_yield_processors(w, 0);
    for (int i = 0; i < 6; i++) /* one and a half seconds are enough to rise */
        qm_rule_yield_processors(w, .95);
    assert_true(qm_rule_yield_price(w) > idle + 2);
    for (int i = 0; i < 3; i++)
        qm_rule_yield_processors(w, .95);
    assert_true(qm_rule_yield_price(w) == idle + 3);
    fetch(w, 0, little, 96, 50, 10);
    fetch(w, 0, much, 96, 50, 50);
    assert_int_equal(state_of(w, little), QM_RULE_YIELD_OFF);
    assert_int_equal(state_of(w, much), QM_RULE_YIELD_ON);
    for (int i = 0; i < 9; i++)
        qm_rule_yield_processors(w, 0);
    assert_true(qm_rule_yield_price(w) == idle);
    qm_rule_yield_free(w);

    w = new_yield();
    qm_rule_yield_processors(w, 1); /* from the first second on */
    assert_true(qm_rule_yield_price(w) == idle + 3);
    qm_rule_yield_free(w);
}

/* Whether an arm may fetch any row is known without asking for one. */
static void test_may(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0), other;

    assert_true(qm_rule_yield_may(w, 0, arm));
    assert_false(qm_rule_yield_may(w, 0, 0));
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 96);
    assert_false(qm_rule_yield_may(w, 0, arm)); /* as many are out */
    qm_rule_yield_give_back(w, arm, 1);
    assert_true(qm_rule_yield_may(w, 0, arm));
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 1);
    qm_rule_yield_paid(w, arm, 96, 9600, 0);
    for (int i = 0; i < 96; i++)
        qm_rule_yield_judge(w, 0, arm, false);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    assert_false(qm_rule_yield_may(w, QM_RULE_YIELD_RETRY_MS - 1, arm));
    assert_true(qm_rule_yield_may(w, QM_RULE_YIELD_RETRY_MS, arm));
    other = qm_rule_yield_find(w, 2, 0, 0);
    fetch(w, 0, other, 96, 100, 90);
    for (uint32_t table = 10; table < 20; table++) /* the budget is used up */
        qm_rule_yield_allow(w, 0, qm_rule_yield_find(w, table, 0, 0), 96);
    assert_false(qm_rule_yield_may(w, QM_RULE_YIELD_RETRY_MS, arm));
    assert_false(qm_rule_yield_may(w, 0, qm_rule_yield_find(w, 30, 0, 0)));
    assert_true(qm_rule_yield_may(w, 0, other)); /* is on */
    qm_rule_yield_foresee(w, arm, .5);
    assert_true(qm_rule_yield_may(w, QM_RULE_YIELD_RETRY_MS, arm));
    qm_rule_yield_free(w);
}

/* All trials together: BUDGET rows, and one for each SHARE misses. */
static void test_budget(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned rows = 0;

    for (unsigned table = 0; table < 1000; table++)
        rows += qm_rule_yield_allow(w, 0, qm_rule_yield_find(w, table, 0, 0), 34);
    assert_int_equal(rows, QM_RULE_YIELD_BUDGET);
    for (int i = 0; i < 80; i++)
        qm_rule_yield_read(w, 1000);
    for (unsigned table = 1000; table < 2000; table++)
        rows += qm_rule_yield_allow(w, 0, qm_rule_yield_find(w, table, 0, 0), 34);
    assert_int_equal(rows, QM_RULE_YIELD_BUDGET + 80 / QM_RULE_YIELD_SHARE);
    qm_rule_yield_free(w);
}

/* Where trials find nothing, there are fewer of them; where they find much, as many as
 * there may be. */
static void test_fewer_trials(void **state)
{
    for (unsigned used = 0; used <= 100; used += 50) {
        struct qm_rule_yield *w = new_yield();
        unsigned rows = 0,
                 share = used ? QM_RULE_YIELD_SHARE : QM_RULE_YIELD_LEAST_SHARE;

        for (uint32_t table = 0; table < 100; table++) /* all of the budget */
            fetch(w, 0, qm_rule_yield_find(w, table, 0, 0), 20, 100, used);
        for (int i = 0; i < 3200; i++) {
            qm_rule_yield_read(w, 1000);
            if (i % 320 == 319)
                rows += qm_rule_yield_allow(
                    w, 0, qm_rule_yield_find(w, 1000 + (unsigned)i, 0, 0), 96);
        }
        assert_in_range(rows, 3200 / share - 2, 3200 / share + 2);
        qm_rule_yield_free(w);
    }
}

/* How many trials there are depends on what trials found: not on what arms find that
 * are on, nor on what is foreseen. */
static void test_trials_alone(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned on = qm_rule_yield_find(w, 1, 0, 0),
             foreseen = qm_rule_yield_find(w, 1, 0, 1),
             late = qm_rule_yield_find(w, 1, 0, 2), rows = 0;

    fetch(w, 0, on, 48, 100, 50); /* 25 of the trials' 512 rows are used */
    for (uint32_t table = 10; table < 50; table++)
        fetch(w, 0, qm_rule_yield_find(w, table, 0, 0), 20, 100, 0);
    fetch(w, 0, on, 5000, 100, 50);
    for (unsigned i = 0; i < 48; i++)
        qm_rule_yield_late(w, 0, on);
    qm_rule_yield_foresee(w, foreseen, .5);
    fetch(w, 0, foreseen, 96, 10, 100);
    qm_rule_yield_foresee(w, late, .5);
    assert_int_equal(fetch(w, 0, late, 96, 10, 0), 96);
    qm_rule_yield_foresee(w, late, 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, late, 96), 0);
    for (unsigned i = 0; i < 48; i++)
        qm_rule_yield_late(w, 0, late);
    for (int i = 0; i < 3200; i++) {
        qm_rule_yield_read(w, 1000);
        if (i % 320 == 319)
            rows += qm_rule_yield_allow(
                w, 0, qm_rule_yield_find(w, 1000 + (unsigned)i, 0, 0), 96);
    }
    assert_in_range(rows, 3200 * 4 * 25 / 512 - 2, 3200 * 4 * 25 / 512 + 2);
    qm_rule_yield_free(w);
}

/* Rows that are used after they were judged bring the arm back at once. */
static void test_late(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    fetch(w, 0, arm, 96, 100, 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    for (int i = 0; i < 20; i++)
        qm_rule_yield_late(w, 0, arm);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    qm_rule_yield_free(w);
}

/* What is foreseen needs no trial but of the cost, and what is judged does not count.
 */
static void test_foreseen(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    for (uint32_t table = 100; table < 400; table++) /* the budget is used up */
        qm_rule_yield_allow(w, 0, qm_rule_yield_find(w, table, 0, 0), 34);
    qm_rule_yield_foresee(w, arm, 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    qm_rule_yield_foresee(w, arm, .002); /* less than a row can cost */
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    qm_rule_yield_foresee(w, arm, .05);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 96);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    /* .05 * 1000 > 20 * .25 */
    qm_rule_yield_paid(w, arm, 96, 20 * 96, 0);
    for (unsigned i = 0; i < 96; i++)
        qm_rule_yield_judge(w, 0, arm, false);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 200);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    /* .004 * 1000 < 20 * .25, and then .04 */
    qm_rule_yield_foresee(w, arm, .004);
    assert_int_equal(qm_rule_yield_allow(w, 1, arm, 200), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    qm_rule_yield_foresee(w, arm, .04);
    assert_int_equal(qm_rule_yield_allow(w, 2, arm, 200), 200);
    qm_rule_yield_free(w);
}

/* A cost that was too high is found out anew after a while; one SELECT that took long
 * says little where others did not. */
static void test_foreseen_cost(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0), other;

    qm_rule_yield_foresee(w, arm, .05);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 10), 10);
    qm_rule_yield_paid(w, arm, 10, 10000, 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 10), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    assert_int_equal(qm_rule_yield_allow(w, QM_RULE_YIELD_RETRY_MS - 1, arm, 10), 0);
    assert_int_equal(qm_rule_yield_allow(w, QM_RULE_YIELD_RETRY_MS, arm, 10), 10);
    for (uint32_t table = 2; table < 100; table++) {
        other = qm_rule_yield_find(w, table, 0, 0);
        qm_rule_yield_foresee(w, other, .05);
        assert_int_equal(qm_rule_yield_allow(w, 0, other, 10), 10);
        qm_rule_yield_paid(w, other, 10, 100, 0);
    }
    qm_rule_yield_paid(w, arm, 10, 3000, 0);
    assert_int_equal(qm_rule_yield_allow(w, QM_RULE_YIELD_RETRY_MS, arm, 500), 500);
    /* A table whose rows cost more. */
    for (int i = 0; i < 100; i++)
        qm_rule_yield_paid(w, arm, 10, 3000, 0);
    assert_int_equal(qm_rule_yield_allow(w, QM_RULE_YIELD_RETRY_MS, arm, 500), 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, other, 500), 500);
    qm_rule_yield_free(w);
}

static void came(struct qm_rule_yield *w, unsigned arm, unsigned rows, uint64_t now)
{
    while (rows-- > 0)
        qm_rule_yield_came(w, arm, now);
}

/* Rows that came then are judged. */
static void judge(struct qm_rule_yield *w, uint64_t now, unsigned arm, unsigned rows,
                  uint64_t since, bool used)
{
    while (rows-- > 0) {
        qm_rule_yield_left(w, arm, since);
        qm_rule_yield_judge(w, now, arm, used);
    }
}

/* Rows that are out count by their age: an arm is off before they have had their time,
 * and back when they are used in the rest of it. */
static void test_age(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t retry_ms;

    assert_int_equal(qm_rule_yield_allow(w, 1000, arm, 96), 96);
    qm_rule_yield_paid(w, arm, 96, 9600, 0);
    came(w, arm, 96, 1000);
    assert_int_equal(qm_rule_yield_allow(w, 3400, arm, 10), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_TRIAL);
    assert_int_equal(qm_rule_yield_allow(w, 3500, arm, 10), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    retry_ms = qm_rule_yield_get(w, arm)->retry_ms;
    judge(w, 3600, arm, 6, 1000, true); /* 6 of 6 + 90 * .52 */
    assert_true(qm_rule_yield_judged(w, 3600, arm) > 52.7);
    assert_true(qm_rule_yield_judged(w, 3600, arm) < 52.9);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    assert_true(qm_rule_yield_get(w, arm)->retry_ms < retry_ms);
    judge(w, 6000, arm, 80, 1000, false);
    assert_true(qm_rule_yield_judged(w, 6000, arm) == 86 + 10);
    assert_true(qm_rule_yield_judged(w, 11000, arm) == 86); /* it is not young */
    judge(w, 11000, arm, 10, 1000, false);
    judge(w, 11000, arm, 10, 1000, false); /* there are none */
    came(w, arm, 1, 11000);
    assert_true(qm_rule_yield_judged(w, 11000, arm) == 106);
    qm_rule_yield_free(w);
}

/* The first that are judged are those that are used: that does not turn an arm on whose
 * other rows are not. */
static void test_first_are_used(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t now = 1000;

    assert_int_equal(qm_rule_yield_allow(w, now, arm, 96), 96);
    qm_rule_yield_paid(w, arm, 96, 96 * 2500, 0); /* .79 would earn */
    came(w, arm, 96, now);
    for (now += 100; state_of(w, arm) == QM_RULE_YIELD_TRIAL && now < 6000;
         now += 100) {
        judge(w, now, arm, 4, now - 100, true);
        came(w, arm, qm_rule_yield_allow(w, now, arm, 4), now);
    }
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    assert_true(qm_rule_yield_get(w, arm)->used >= 20);
    qm_rule_yield_free(w);
}

/* When the budget is used up, trials wait until there is a lump of rows, and may then
 * fetch them one by one. */
static void test_lumps(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    for (uint32_t table = 10; table < 30; table++)
        qm_rule_yield_allow(w, 0, qm_rule_yield_find(w, table, 0, 0), 96);
    for (int i = 1; i < QM_RULE_YIELD_LUMP * QM_RULE_YIELD_SHARE; i++) {
        qm_rule_yield_read(w, 1000);
        assert_false(qm_rule_yield_may(w, 0, arm));
        assert_int_equal(qm_rule_yield_allow(w, 0, arm, 4), 0);
    }
    qm_rule_yield_read(w, 1000);
    for (int i = 0; i < QM_RULE_YIELD_LUMP; i++) {
        assert_true(qm_rule_yield_may(w, 0, arm));
        assert_int_equal(qm_rule_yield_allow(w, 0, arm, 1), 1);
    }
    for (int i = 0; i < QM_RULE_YIELD_SHARE; i++)
        qm_rule_yield_read(w, 1000);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 1), 0);
    qm_rule_yield_free(w);
}

/* A row may earn the time of its read and not the processors' work: the busier these
 * are, the less work may it be. */
static void test_work(void **state)
{
    struct qm_rule_yield *w = new_yield();
    unsigned much = qm_rule_yield_find(w, 1, 0, 0),
             little = qm_rule_yield_find(w, 1, 0, 1), *arms[] = {&much, &little};
    double idle = qm_rule_yield_price(w);

    qm_rule_yield_work(w, 100);
    for (int i = 0; i < 2; i++) {
        unsigned allowed = qm_rule_yield_allow(w, 0, *arms[i], 96);

        /* of 10: .1 * 100 > 10 * .25, but not > 10 * 1.5; of 5: more than that */
        qm_rule_yield_paid(w, *arms[i], allowed, 10. * allowed,
                           (i == 0 ? 10. : 5.) * allowed);
        for (unsigned j = 0; j < allowed; j++)
            qm_rule_yield_judge(w, 0, *arms[i], j * 61 % 100 < 10);
        assert_int_equal(state_of(w, *arms[i]), QM_RULE_YIELD_ON);
    }
    qm_rule_yield_processors(w, .3);
    assert_true(qm_rule_yield_price(w) == idle);
    for (int i = 0; i < 9; i++)
        qm_rule_yield_processors(w, .4);
    assert_true(qm_rule_yield_price(w) > idle + .5);
    assert_true(qm_rule_yield_price(w) < idle + .7);
    for (int i = 0; i < 20; i++)
        qm_rule_yield_processors(w, 1); /* no further than from .5 on */
    assert_true(qm_rule_yield_price(w) == idle + 1.25);
    for (int i = 0; i < 2; i++)
        qm_rule_yield_judge(w, 0, *arms[i], true);
    assert_int_equal(state_of(w, much), QM_RULE_YIELD_OFF);
    assert_int_equal(state_of(w, little), QM_RULE_YIELD_ON);
    qm_rule_yield_free(w);
}

static void test_bound(void **state)
{
    struct qm_rule_yield *w = new_yield();

    for (unsigned i = 0; i < QM_RULE_YIELD_ARMS; i++)
        assert_int_equal(qm_rule_yield_find(w, i, 3, 9), i + 1);
    assert_int_equal(qm_rule_yield_find(w, QM_RULE_YIELD_ARMS, 3, 9), 0);
    assert_int_equal(qm_rule_yield_find(w, 7, 3, 9), 8);
    assert_int_equal(qm_rule_yield_allow(w, 0, 0, 10), 0);
    qm_rule_yield_judge(w, 0, 0, true);
    qm_rule_yield_late(w, 0, QM_RULE_YIELD_ARMS + 1);
    assert_null(qm_rule_yield_get(w, 0));
    qm_rule_yield_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trial),         cmocka_unit_test(test_few_are_out),
        cmocka_unit_test(test_changes),       cmocka_unit_test(test_price),
        cmocka_unit_test(test_cheap),         cmocka_unit_test(test_budget),
        cmocka_unit_test(test_late),          cmocka_unit_test(test_foreseen),
        cmocka_unit_test(test_fewer_trials),  cmocka_unit_test(test_bound),
        cmocka_unit_test(test_foreseen_cost), cmocka_unit_test(test_processors),
        cmocka_unit_test(test_may),           cmocka_unit_test(test_trials_alone),
        cmocka_unit_test(test_age),           cmocka_unit_test(test_first_are_used),
        cmocka_unit_test(test_lumps),         cmocka_unit_test(test_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
