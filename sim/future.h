/* SPDX-License-Identifier: BSD-3-Clause */
/* future.h - the future accesses of a trace, for the bounds (belady.h, perfect.h).
 *
 * The accesses of a trace (one for each block read, in the simulator's order) are
 * numbered from 0.  A first pass over the trace collects them, with the block size and
 * the contexts of the simulations that follow.  After that the object is constant, and
 * any number of simulations, also in child processes, may share it.
 *
 * Memory: 4 bytes an access for the next uses; for the sequences of contexts 4 bytes an
 * access, 4 more for each level, 4 a sequence and 8 a distinct block.  The first pass
 * needs a hash table of the distinct blocks in addition.
 */
#ifndef QM_SIM_FUTURE_H
#define QM_SIM_FUTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/context.h"
#include "trace/trace.h"

#define QM_FUTURE_NEVER UINT32_MAX /* no such access */

struct qm_future;

/* Begins the first pass; NULL if memory is out. */
struct qm_future *qm_future_new(uint64_t block_size);
/* Choose what the first pass collects; before the first event.  Returns 0 or ENOMEM. */
void qm_future_want_next_uses(struct qm_future *future);
int qm_future_want_sequences(struct qm_future *future, enum qm_level level);

/* The trace's events, in its order.  Returns 0, ENOMEM, or EOVERFLOW: more than 2^32 -
 * 2 accesses. */
int qm_future_event(struct qm_future *future, const struct qm_event *event);
/* No more events: frees what is needed in the first pass only.  Returns 0 or ENOMEM. */
int qm_future_finish(struct qm_future *future);
void qm_future_free(struct qm_future *future); /* NULL is fine */

/* Whether these were collected.  If so, the functions below may be called; they return
 * QM_FUTURE_NEVER for what is not in the trace. */
bool qm_future_has_next_uses(const struct qm_future *future);
bool qm_future_has_sequences(const struct qm_future *future, enum qm_level level);

/* The next access to the block of that access. */
uint32_t qm_future_next_use(const struct qm_future *future, uint32_t access);

/* The first access of a sequence, which is numbered in the order in which prefetchers
 * see sequences begin; the access after one in its sequence, immediate repeats
 * included; the block of an existing access. */
uint32_t qm_future_first(const struct qm_future *future, enum qm_level level,
                         uint32_t sequence);
uint32_t qm_future_following(const struct qm_future *future, enum qm_level level,
                             uint32_t access);
uint64_t qm_future_block(const struct qm_future *future, uint32_t access);

#endif
