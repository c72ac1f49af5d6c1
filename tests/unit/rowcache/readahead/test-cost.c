/* SPDX-License-Identifier: BSD-3-Clause */
/* test-cost.c - what a row of an arm costs is told by many SELECTs, not by the last. */
#include "testing.h"

FIXTURE(yield, new_yield(false), qm_rule_yield_free(it))

/* What a SELECT of a few rows cost, which waited for a processor, says less than what
 * many others did; if all cost that, the arm goes off. */
TEST_ON(test_slow_once, yield, struct qm_rule_yield *w)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);
    unsigned rows = 0;

    fetch(w, 0, arm, 96, 100, 50);
    for (unsigned i = 0; i < 32; i++)
        fetch(w, 0, arm, 1, 6000, 100); /* .5 * 1000 < 6000 * .25 */
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON);
    for (; state_of(w, arm) == QM_RULE_YIELD_ON; rows++) {
        assert_true(rows < 256);
        fetch(w, 0, arm, 1, 6000, 50);
    }
}

/* However long it was cheap, a cost that stays high soon counts: when it is that of 100
 * of the last 256 rows, or about. */
TEST_ON(test_slow_at_last, yield, struct qm_rule_yield *w)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0), rows = 0;

    fetch(w, 0, arm, 96, 100, 50);
    for (unsigned i = 0; i < 10000; i++)
        fetch(w, 0, arm, 1, 100, i % 2 * 100);
    for (; state_of(w, arm) == QM_RULE_YIELD_ON; rows++) {
        assert_true(rows < 256);
        fetch(w, 0, arm, 1, 6000, rows % 2 * 100);
    }
    assert_in_range(rows, 75, 125);
}

/* Watches 96 rows, of which half would be used. */
static void watch(struct qm_rule_yield *w, uint64_t now, unsigned arm)
{
    unsigned n = qm_rule_yield_to_watch(w, now, arm, 96);

    for (unsigned i = 0; i < n; i++)
        qm_rule_yield_watch(w, now, arm);
    for (unsigned i = 0; i < n; i++)
        qm_rule_yield_judge_watched(w, now, arm, now,
                                    i % 2 ? QM_RULE_YIELD_USED : QM_RULE_YIELD_UNUSED);
}

static void be_dear_once(double us, double work_us)
{
    struct qm_rule_yield *w = qm_rule_yield_new(5000, true);
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0), times = 0;
    uint64_t now = 1000;

    for (int i = 0; i < 200; i++)
        qm_rule_yield_read(w, 1000);
    qm_rule_yield_work(w, 1000);
    for (unsigned i = 0; i < 2; i++) {
        for (times = 0; state_of(w, arm) != QM_RULE_YIELD_ON; times++) {
            assert_true(times < 8);
            now += QM_RULE_YIELD_RETRY_MOST_MS;
            watch(w, now, arm);
        }
        assert_int_equal(times, i == 0 ? 1 : 3); /* 500 < 8000 / 4 * .25 * 1.25 */
        if (i == 1)
            break;
        assert_int_equal(qm_rule_yield_allow(w, now, arm, 96), 96);
        qm_rule_yield_paid(w, arm, 96, 96 * us, 96 * work_us);
        for (unsigned j = 0; j < 96; j++)
            qm_rule_yield_judge(w, now, arm, j % 2);
        assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
    }
    assert_int_equal(qm_rule_yield_allow(w, now, arm, 96), 96);
    qm_rule_yield_paid(w, arm, 48, 48 * 20., 48 * 30.);
    assert_true(qm_rule_yield_get(w, arm)->cost_us == 20);
    assert_true(qm_rule_yield_get(w, arm)->work_us == 30);
    qm_rule_yield_free(w);
}

/* An arm that was too dear comes back when it is watched again and again; what its rows
 * take then is what counts. */
TEST(test_dear_once)
{
    be_dear_once(100, 8000);
    be_dear_once(8000, 100);
}

/* So it is for the work of rows. */
TEST_ON(test_much_work_once, yield, struct qm_rule_yield *w)
{
    unsigned arm = qm_rule_yield_find(w, 1, 0, 0);

    qm_rule_yield_work(w, 100);
    for (unsigned i = 0; i < 128; i++) {
        qm_rule_yield_allow(w, 0, arm, 1);
        qm_rule_yield_paid(w, arm, 1, 1, i < 96 ? 10 : 300);
        qm_rule_yield_judge(w, 0, arm, i % 2);
    }
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_ON); /* 50 > 82 * .25 */
    for (unsigned i = 0; i < 256; i++) {
        qm_rule_yield_allow(w, 0, arm, 1);
        qm_rule_yield_paid(w, arm, 1, 1, 300);
        qm_rule_yield_judge(w, 0, arm, i % 2);
    }
    assert_int_equal(state_of(w, arm), QM_RULE_YIELD_OFF);
}
