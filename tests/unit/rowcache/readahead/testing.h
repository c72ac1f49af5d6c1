/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of read-ahead share. */
#ifndef QM_TESTS_READAHEAD_TESTING_H
#define QM_TESTS_READAHEAD_TESTING_H

#include "rowcache/readahead/items.h"
#include "rowcache/readahead/yield.h"
#include "tests/harness.h"

static inline struct qm_item item(uint32_t table, int64_t row)
{
    return (struct qm_item){table, row};
}

/* A pool that is idle, reads of 1000 us. */
static inline struct qm_rule_yield *new_yield(bool watches)
{
    struct qm_rule_yield *w = qm_rule_yield_new(5000, watches);

    assert_non_null(w);
    for (int i = 0; i < 100; i++)
        qm_rule_yield_read(w, 1000);
    return w;
}

static inline enum qm_rule_yield_state state_of(struct qm_rule_yield *w, unsigned arm)
{
    return qm_rule_yield_get(w, arm)->state;
}

/* Rows that cost us each, of which used of a hundred are used. */
static inline unsigned fetch(struct qm_rule_yield *w, uint64_t now, unsigned arm,
                             unsigned rows, double us, unsigned used)
{
    unsigned allowed = qm_rule_yield_allow(w, now, arm, rows);

    qm_rule_yield_paid(w, arm, allowed, us * allowed, 0);
    for (unsigned i = 0; i < allowed; i++)
        qm_rule_yield_judge(w, now, arm, i * 61 % 100 < used);
    return allowed;
}

#endif
