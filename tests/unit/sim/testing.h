/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of simulations share. */
#ifndef QM_TESTS_SIM_TESTING_H
#define QM_TESTS_SIM_TESTING_H

#include "sim/sim.h"
#include "tests/harness.h"

static inline struct qm_sim *new_sim(const struct qm_sim_config *config)
{
    char err[256] = "";
    struct qm_sim *sim = qm_sim_new(config, err, sizeof err);

    if (!sim)
        fail_msg("%s", err);
    return sim;
}

/* A transaction, or a query in the parent. */
static inline struct qm_event begins(uint32_t slot, uint32_t parent)
{
    return (struct qm_event){.type = QM_TRACE_BEGIN,
                             .ctx = slot,
                             .slot = slot,
                             .parent_slot = parent,
                             .kind = parent ? QM_QUERY : QM_TRANSACTION,
                             .klass = "t"};
}

static inline struct qm_event ends(uint32_t slot)
{
    return (struct qm_event){.type = QM_TRACE_END, .ctx = slot, .slot = slot};
}

static inline void event(struct qm_sim *sim, struct qm_event e)
{
    assert_int_equal(qm_sim_event(sim, &e), 0);
}

static inline void assert_us(double us, double expected)
{
    if (us < expected - 0.01 || us > expected + 0.01)
        fail_msg("%.3f us, not %.3f", us, expected);
}

#endif
