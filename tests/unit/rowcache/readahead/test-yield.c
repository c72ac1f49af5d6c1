/* SPDX-License-Identifier: BSD-3-Clause */
/* test-yield.c - which arms are on, in virtual time: what is used, what it costs, how
 * busy the database is, and that what is off is tried again, seldom. */
#include <limits.h>

#include "testing.h"

static struct qm_rule_yield *w; /* the test's */

static int begin(void **state)
{
    w = new_yield(false);
    return 0;
}

static int begin_watching(void **state)
{
    w = new_yield(true);
    return 0;
}

static int end(void **state)
{
    qm_rule_yield_free(w);
    return 0;
}

TEST_WITH(test_trial, begin, end)
{
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
}

/* One in four that are used soon is enough; one that has not been used tells nothing.
 */
TEST_WITH(test_soon, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    assert_false(qm_rule_yield_is_soon(w, arm));
    assert_false(qm_rule_yield_is_soon(w, 0));
    for (int i = 0; i < 400; i++)
        qm_rule_yield_lead(w, arm, i % 4 ? 3000 : QM_RULE_YIELD_SOON_MS - 1);
    assert_true(qm_rule_yield_is_soon(w, arm));
    for (int i = 0; i < 400; i++)
        qm_rule_yield_lead(w, arm, i % 100 ? QM_RULE_YIELD_SOON_MS : 0);
    assert_false(qm_rule_yield_is_soon(w, arm));
}

/* The work of one that was on becomes another: off, and on trial later, each time
 * twice as late. */
TEST_WITH(test_changes, begin, end)
{
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
}

/* The price rises with the connections that are busy, and with the database's time. */
TEST_WITH(test_price, begin, end)
{
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
}

/* What takes work off the database stays on, however busy it is. */
TEST_WITH(test_cheap, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    for (int i = 0; i < 200; i++)
        qm_rule_yield_busy(w, 1);
    fetch(w, 0, arm, 96, 20, 10); /* .1 * 1000 > 20 * 1.25 */
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
}

/* Where processors are scarce, what earns little goes off; what earns much stays on. */
TEST_WITH(test_processors, begin, end)
{
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
}

TEST_WITH(test_processors_at_first, begin, end)
{
    double idle = qm_rule_yield_price(w);

    qm_rule_yield_processors(w, 1);
    assert_true(qm_rule_yield_price(w) == idle + 3);
}

/* How many rows an arm may fetch, or watch, at most is known before they are looked
 * for.
 */
TEST_WITH(test_room, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0), other;

    assert_int_equal(qm_rule_yield_room(w, 0, arm), 96);
    assert_int_equal(qm_rule_yield_room(w, 0, 0), 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 96);
    assert_int_equal(qm_rule_yield_room(w, 0, arm), 0); /* as many are out */
    qm_rule_yield_give_back(w, arm, 1);
    assert_int_equal(qm_rule_yield_room(w, 0, arm), 1);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 1);
    qm_rule_yield_paid(w, arm, 96, 9600, 0);
    for (int i = 0; i < 96; i++)
        qm_rule_yield_judge(w, 0, arm, false);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    assert_int_equal(qm_rule_yield_room(w, QM_RULE_YIELD_RETRY_MS - 1, arm), 0);
    assert_int_equal(qm_rule_yield_room(w, QM_RULE_YIELD_RETRY_MS, arm), 96);
    other = qm_rule_yield_find(w, 2, 0, 0);
    fetch(w, 0, other, 96, 100, 90);
    assert_int_equal(qm_rule_yield_room(w, 0, other), UINT_MAX); /* is on */
    qm_rule_yield_foresee(w, arm, .5);
    assert_int_equal(qm_rule_yield_room(w, QM_RULE_YIELD_RETRY_MS, arm), UINT_MAX);
}

/* Rows that are used after they were judged bring the arm back at once. */
TEST_WITH(test_late, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    fetch(w, 0, arm, 96, 100, 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    for (int i = 0; i < 20; i++)
        qm_rule_yield_late(w, 0, arm);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
}

/* What is foreseen needs no trial but of the cost, and what is judged does not count.
 */
TEST_WITH(test_foreseen, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    qm_rule_yield_foresee(w, arm, 0);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    qm_rule_yield_foresee(w, arm, .002); /* less than a row can cost */
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    qm_rule_yield_foresee(w, arm, .05);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), QM_RULE_YIELD_COST_ROWS);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 0);
    /* .05 * 1000 > 20 * .25 */
    qm_rule_yield_paid(w, arm, QM_RULE_YIELD_COST_ROWS, 20 * QM_RULE_YIELD_COST_ROWS,
                       0);
    for (unsigned i = 0; i < QM_RULE_YIELD_COST_ROWS; i++)
        qm_rule_yield_judge(w, 0, arm, false);
    assert_int_equal(qm_rule_yield_allow(w, 0, arm, 200), 200);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    /* .004 * 1000 < 20 * .25, and then .04 */
    qm_rule_yield_foresee(w, arm, .004);
    assert_int_equal(qm_rule_yield_allow(w, 1, arm, 200), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    qm_rule_yield_foresee(w, arm, .04);
    assert_int_equal(qm_rule_yield_allow(w, 2, arm, 200), 200);
}

/* A cost that was too high is found out anew after a while; one SELECT that took long
 * says little where others did not. */
TEST_WITH(test_foreseen_cost, begin, end)
{
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
}

static void came(unsigned arm, unsigned rows, uint64_t now)
{
    while (rows-- > 0)
        qm_rule_yield_came(w, arm, now);
}

/* Rows that came then are judged. */
static void judge(uint64_t now, unsigned arm, unsigned rows, uint64_t since, bool used)
{
    while (rows-- > 0) {
        qm_rule_yield_left(w, arm, since);
        qm_rule_yield_judge(w, now, arm, used);
    }
}

/* Rows that are out count by their age: an arm is off before they have had their time,
 * and back when they are used in the rest of it. */
TEST_WITH(test_age, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t retry_ms;

    assert_int_equal(qm_rule_yield_allow(w, 1000, arm, 96), 96);
    qm_rule_yield_paid(w, arm, 96, 9600, 0);
    came(arm, 96, 1000);
    assert_int_equal(qm_rule_yield_allow(w, 3400, arm, 10), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_TRIAL);
    assert_int_equal(qm_rule_yield_allow(w, 3500, arm, 10), 0);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    retry_ms = qm_rule_yield_get(w, arm)->retry_ms;
    judge(3600, arm, 6, 1000, true); /* 6 of 6 + 90 * .52 */
    assert_true(qm_rule_yield_judged(w, 3600, arm) > 52.7);
    assert_true(qm_rule_yield_judged(w, 3600, arm) < 52.9);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    assert_true(qm_rule_yield_get(w, arm)->retry_ms < retry_ms);
    judge(6000, arm, 80, 1000, false);
    assert_true(qm_rule_yield_judged(w, 6000, arm) == 86 + 10);
    assert_true(qm_rule_yield_judged(w, 11000, arm) == 86); /* it is not young */
    judge(11000, arm, 10, 1000, false);
    judge(11000, arm, 10, 1000, false); /* there are none */
    came(arm, 1, 11000);
    assert_true(qm_rule_yield_judged(w, 11000, arm) == 106);
}

/* The first that are judged are those that are used: that does not turn an arm on whose
 * other rows are not. */
TEST_WITH(test_first_are_used, begin, end)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t now = 1000;

    assert_int_equal(qm_rule_yield_allow(w, now, arm, 96), 96);
    qm_rule_yield_paid(w, arm, 96, 96 * 2500, 0); /* .79 would earn */
    came(arm, 96, now);
    for (now += 100; state_of(w, arm) == QM_RULE_YIELD_TRIAL && now < 6000;
         now += 100) {
        judge(now, arm, 4, now - 100, true);
        came(arm, qm_rule_yield_allow(w, now, arm, 4), now);
    }
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    assert_true(qm_rule_yield_get(w, arm)->used >= 20);
}

/* A row may earn the time of its read and not the processors' work: the busier these
 * are, the less work may it be. */
TEST_WITH(test_work, begin, end)
{
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
    assert_false(qm_rule_yield_is_scarce(w));
    for (int i = 0; i < 9; i++)
        qm_rule_yield_processors(w, .4);
    assert_true(qm_rule_yield_is_scarce(w));
    assert_true(qm_rule_yield_price(w) > idle + .5);
    assert_true(qm_rule_yield_price(w) < idle + .7);
    for (int i = 0; i < 20; i++)
        qm_rule_yield_processors(w, 1); /* no further than from .5 on */
    assert_true(qm_rule_yield_price(w) == idle + 1.25);
    for (int i = 0; i < 2; i++)
        qm_rule_yield_judge(w, 0, *arms[i], true);
    assert_int_equal(state_of(w, much), QM_RULE_YIELD_OFF);
    assert_int_equal(state_of(w, little), QM_RULE_YIELD_ON);
}

/* n rows are watched from now on. */
static void watch(uint64_t now, unsigned arm, unsigned n)
{
    while (n-- > 0)
        qm_rule_yield_watch(w, now, arm);
}

static void judge_watched(uint64_t now, unsigned arm, unsigned n, uint64_t since,
                          enum qm_rule_yield_outcome outcome)
{
    while (n-- > 0)
        qm_rule_yield_judge_watched(w, now, arm, since, outcome);
}

/* An arm fetches nothing until rows that it would have fetched are read. */
TEST_WITH(test_watched, begin_watching, end)
{
    unsigned good = qm_rule_yield_find(w, 1, 0, 0),
             bad = qm_rule_yield_find(w, 1, 0, 1);
    const struct qm_rule_yield_arm *a = qm_rule_yield_get(w, good);
    double used;

    assert_int_equal(state_of(w, good), QM_RULE_YIELD_WATCHED);
    assert_int_equal(qm_rule_yield_allow(w, 1000, good, 10), 0);
    assert_int_equal(qm_rule_yield_to_watch(w, 1000, good, 10), 10);
    assert_int_equal(qm_rule_yield_to_watch(w, 1000, good, 5000),
                     QM_RULE_YIELD_WATCH_ROWS);
    watch(1000, good, 10);
    assert_int_equal(qm_rule_yield_room(w, 1000, good), QM_RULE_YIELD_WATCH_ROWS - 10);
    watch(1000, good, QM_RULE_YIELD_WATCH_ROWS - 10);
    assert_int_equal(qm_rule_yield_room(w, 1000, good), 0);
    assert_int_equal(qm_rule_yield_to_watch(w, 1000, good, 10), 0);
    /* What is not known says nothing, and makes room. */
    judge_watched(1100, good, 184, 1000, QM_RULE_YIELD_UNKNOWN);
    assert_true(a->judged == 0 && a->watched == 200);
    judge_watched(1100, good, 43, 1000, QM_RULE_YIELD_USED); /* and 3 of 157 */
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_WATCHED);
    judge_watched(1100, good, 2, 1000, QM_RULE_YIELD_USED);
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_ON);
    assert_int_equal(qm_rule_yield_to_watch(w, 1100, good, 10), 0);
    /* What is still watched says nothing any more. */
    assert_true(a->used > 44 && a->judged == QM_RULE_YIELD_TRIAL_ROWS);
    used = a->used;
    judge_watched(1200, good, 155, 1000, QM_RULE_YIELD_UNUSED);
    assert_true(a->judged == QM_RULE_YIELD_TRIAL_ROWS);
    assert_true(a->watched == 0 && a->watched_ms == 0);
    qm_rule_yield_late_watched(w, 1200, good);
    assert_true(a->used == used);
    judge_watched(1200, good, 1, 1000, QM_RULE_YIELD_UNUSED); /* there is none */
    assert_true(a->watched == 0 && a->watched_ms == 0);
    /* Few are out until it is known what they cost, of which the first says little. */
    assert_int_equal(qm_rule_yield_room(w, 1200, good), 96);
    assert_int_equal(qm_rule_yield_allow(w, 1200, good, 500), 96);
    qm_rule_yield_paid(w, good, 1, 10000, 0);
    qm_rule_yield_judge(w, 1200, good, true);
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_ON);
    for (int i = 1; i < QM_RULE_YIELD_TRIAL_ROWS; i++) {
        assert_int_equal(qm_rule_yield_allow(w, 1200, good, 500), i == 1);
        qm_rule_yield_paid(w, good, 1, 100, 0);
    }
    assert_int_equal(qm_rule_yield_allow(w, 1200, good, 500), 500);
    for (int i = 0; i < 100; i++)
        qm_rule_yield_paid(w, good, 1, 100, 0);
    /* Time tells of what nobody reads: 48 of 96 after half of it. */
    assert_int_equal(qm_rule_yield_to_watch(w, 2000, bad, 96), 96);
    watch(2000, bad, 96);
    assert_int_equal(qm_rule_yield_to_watch(w, 4400, bad, 1), 1);
    assert_int_equal(qm_rule_yield_to_watch(w, 4500, bad, 1), 0);
    assert_int_equal(state_of(w, bad), QM_RULE_YIELD_OFF);
    assert_int_equal(qm_rule_yield_allow(w, 4500, bad, 1), 0);
    /* And reads that come late: .05 * 1000 > 100 * .25 * 1.25 */
    judge_watched(7000, bad, 96, 2000, QM_RULE_YIELD_UNUSED);
    for (int i = 0; i < 3; i++)
        qm_rule_yield_late_watched(w, 7000, bad);
    assert_int_equal(state_of(w, bad), QM_RULE_YIELD_OFF);
    for (int i = 0; i < 3; i++)
        qm_rule_yield_late_watched(w, 7000, bad);
    assert_int_equal(state_of(w, bad), QM_RULE_YIELD_ON);
    /* All that was learned of the table is forgotten, but for what is watched. */
    watch(8000, good, 2);
    qm_rule_yield_forget(w, 1);
    assert_int_equal(state_of(w, good), QM_RULE_YIELD_WATCHED);
    assert_int_equal(state_of(w, bad), QM_RULE_YIELD_WATCHED);
    assert_true(a->judged == 0 && a->cost_us == 0 && a->watched == 2 && a->unpaid == 0);
    judge_watched(8001, good, 2, 8000, QM_RULE_YIELD_USED);
    assert_true(a->judged == 2 && a->watched == 0 && a->watched_ms == 0);
}

/* What would be used is not fetched where it would cost more than it saves: as others'
 * rows do, and, once that is known, as its own. */
TEST_WITH(test_watched_cost, begin_watching, end)
{
    unsigned others = qm_rule_yield_find(w, 9, 0, 0),
             arm = qm_rule_yield_find(w, 1, 0, 0);
    uint64_t now = 1000;

    qm_rule_yield_work(w, 100);
    qm_rule_yield_paid(w, others, 10, 10 * 10., 10 * 90.); /* work */
    watch(now, arm, 96);
    judge_watched(now, arm, 10, now, QM_RULE_YIELD_USED);
    judge_watched(now, arm, 86, now, QM_RULE_YIELD_UNUSED);
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF); /* .1 * 100 < 90 * .25 */
    for (int i = 0; i < 100; i++)
        qm_rule_yield_paid(w, others, 10, 10 * 10., 10 * 10.);
    assert_int_equal(qm_rule_yield_room(w, now + QM_RULE_YIELD_RETRY_MS - 1, arm), 0);
    now += QM_RULE_YIELD_RETRY_MS;
    assert_int_equal(qm_rule_yield_room(w, now, arm), QM_RULE_YIELD_WATCH_ROWS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qm_rule_yield_to_watch(w, now, arm, 96), 96);
        qm_rule_yield_judge(w, now, arm, true); /* one that it fetched before */
        assert_true(qm_rule_yield_get(w, arm)->judged == 0);
        watch(now, arm, 96);
        judge_watched(now, arm, 10, now, QM_RULE_YIELD_USED);
        judge_watched(now, arm, 86, now, QM_RULE_YIELD_UNUSED);
        if (i == 0) { /* and its rows cost far more than others' */
            assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
            assert_int_equal(qm_rule_yield_allow(w, now, arm, 50), 50);
            qm_rule_yield_paid(w, arm, 50, 50 * 2000., 0);
            qm_rule_yield_judge(w, now, arm, false);
            assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
            now += 2 * QM_RULE_YIELD_RETRY_MS;
        }
    }
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
}

TEST_WITH(test_bound, begin, end)
{
    for (unsigned i = 0; i < QM_RULE_YIELD_ARMS; i++)
        assert_int_equal(qm_rule_yield_find(w, i, 3, 9), i + 1);
    assert_int_equal(qm_rule_yield_find(w, QM_RULE_YIELD_ARMS, 3, 9), 0);
    assert_int_equal(qm_rule_yield_find(w, 7, 3, 9), 8);
    assert_int_equal(qm_rule_yield_allow(w, 0, 0, 10), 0);
    qm_rule_yield_judge(w, 0, 0, true);
    qm_rule_yield_late(w, 0, QM_RULE_YIELD_ARMS + 1);
    assert_null(qm_rule_yield_get(w, 0));
}
