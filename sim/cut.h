/* SPDX-License-Identifier: BSD-3-Clause */
/* cut.h - a part of a trace, as a trace of its own.
 *
 * Parts are cut between read requests.  Part [skip, skip + count) begins with read
 * number skip (from 0), or at the start of the trace if skip is 0, and ends before read
 * number skip + count.  So consecutive parts contain every event once.  Contexts that
 * are open where it begins are begun again, parents first, with their numbers and the
 * time of its first event.
 *
 * Memory grows with the number of open contexts.
 */
#ifndef QM_SIM_CUT_H
#define QM_SIM_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/trace.h"

struct qm_cut;

/* count: at least 1; UINT64_MAX: no limit.  NULL without memory. */
struct qm_cut *qm_cut_new(uint64_t skip, uint64_t count);

/* Takes the trace's events, in order, and writes those of the part to writer.  Returns
 * 0; -1 if the part is complete; or an errno value: ENOMEM, or of the writer. */
int qm_cut_event(struct qm_cut *cut, const struct qm_event *event,
                 struct qm_trace_writer *writer);

/* Whether the part has begun; the number of reads up to its end. */
bool qm_cut_begun(const struct qm_cut *cut);
uint64_t qm_cut_reads(const struct qm_cut *cut);
void qm_cut_free(struct qm_cut *cut); /* NULL is fine */

#endif
