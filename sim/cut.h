/* cut.h - a piece of a trace, as a trace of its own.
 *
 * Pieces lie between read requests: piece [skip, skip + count) begins with read number
 * skip (from 0), or with the trace if that is 0, and has everything up to the read
 * after its last.  So pieces that follow each other have every event once.  Contexts
 * that are open where it begins are begun again, parents first, with the numbers that
 * they have and the time of its first event.
 *
 * Memory is that of the contexts which are open.
 */
#ifndef QM_BENCH_CUT_H
#define QM_BENCH_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/trace.h"

struct qm_cut;

/* count is at least 1; UINT64_MAX: all the rest.  NULL if memory is out. */
struct qm_cut *qm_cut_new(uint64_t skip, uint64_t count);

/* The trace's events, in its order, of which those of the piece go to writer.  Returns
 * 0; -1 if the piece is complete; or an errno value: no memory, or of the writer. */
int qm_cut_event(struct qm_cut *cut, const struct qm_event *event,
                 struct qm_trace_writer *writer);

/* Whether there was anything of the piece; how many reads there were up to its end. */
bool qm_cut_begun(const struct qm_cut *cut);
uint64_t qm_cut_reads(const struct qm_cut *cut);
void qm_cut_free(struct qm_cut *cut); /* NULL is fine */

#endif
