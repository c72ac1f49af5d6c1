/* SPDX-License-Identifier: BSD-3-Clause */
/* survey.h - what has to be known of a trace before it is simulated: how long it is,
 * how much of the device it reads, of which contexts, and for how many clients.
 *
 * Memory grows with the footprint (sim/footprint.h) and the number of open contexts.
 */
#ifndef QM_SIM_SURVEY_H
#define QM_SIM_SURVEY_H

#include <stdint.h>

#include "mining/core/context.h"
#include "sim/footprint.h"
#include "trace/trace.h"

struct qm_survey_root;

struct qm_survey {
    uint64_t block_size;
    uint64_t reads, writes, untagged; /* requests; untagged: reads of no context */
    uint64_t blocks;                  /* read, each time counted */
    uint64_t most_blocks;             /* of a request */
    uint64_t end;                     /* of what was read or written, in bytes */
    uint64_t first_us, last_us;
    uint64_t contexts[QM_QUERY + 1]; /* by enum qm_kind */
    struct qm_footprint footprint;

    /* Roots (contexts in no other) by the slot of each context in them. */
    uint32_t *root_of;
    struct qm_survey_root *roots;
    uint32_t room;
    /* Of roots that are open and have read within the last second, that which has not
     * for longest, and that which has last; 0: none. */
    uint32_t oldest, newest;
    uint64_t active, active_sum; /* how many they are; the sum of that over reads */
};

/* Begins; block_size: bytes, not 0. */
void qm_survey_init(struct qm_survey *survey, uint64_t block_size);
/* The trace's events, in its order.  Returns 0 or ENOMEM. */
int qm_survey_event(struct qm_survey *survey, const struct qm_event *event);
/* How many clients read at a time, from 1 to `most`: the mean, over reads, of the roots
 * that are open and have read within the last second. */
unsigned qm_survey_clients(const struct qm_survey *survey, unsigned most);
double qm_survey_seconds(const struct qm_survey *survey);
void qm_survey_clear(struct qm_survey *survey);

#endif
