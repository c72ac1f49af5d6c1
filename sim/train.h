/* SPDX-License-Identifier: BSD-3-Clause */
/* train.h - a trace as C-Miner*'s sequence database (mining/baselines/cminer.h). */
#ifndef QM_SIM_TRAIN_H
#define QM_SIM_TRAIN_H

#include <stdint.h>

#include "mining/baselines/cminer.h"
#include "mining/core/context.h"
#include "trace/trace.h"

struct qm_train_config {
    enum qm_level level; /* none: the reads as they arrived */
    uint64_t block_size; /* bytes, not 0 */
    unsigned segment;    /* accesses of a segment */
    uint64_t skip;       /* read requests skipped at the start */
    uint64_t first;      /* read requests used after these; 0: all */
    uint64_t until;      /* microseconds from the first event that are used; 0: all */
};

struct qm_train;

/* Returns NULL if memory is out. */
struct qm_train *qm_train_new(const struct qm_train_config *config);

/* The trace's events, in its order.  Returns 0, an errno value, or -1: the part of the
 * trace that is asked for has ended (it may be called again, to no effect). */
int qm_train_event(struct qm_train *train, const struct qm_event *event);

/* No more events.  Reads of contexts that are still open count as well: the trace is
 * mined as a whole, after its end.  Hands over the database, numbered; the caller frees
 * it by qm_cminer_db_free().  Returns 0 or an errno value. */
int qm_train_finish(struct qm_train *train, struct qm_cminer_db *db);

/* Read requests in the chosen part of the trace. */
uint64_t qm_train_requests(const struct qm_train *train);

void qm_train_free(struct qm_train *train); /* NULL is fine */

#endif
