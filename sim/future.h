/* future.h - what a trace holds, for the bounds that know it beforehand.
 *
 * The accesses of a trace (one a block read, in the order in which the simulator sees
 * them) are numbered from 0.  Made in a first pass over the trace, with the same block
 * size and the same contexts as the simulations that follow; then it does not change,
 * and any number of simulations, also in child processes, may share it.
 *
 * Memory is 4 bytes an access for the next uses; for the sequences of contexts 4 bytes
 * an access, 4 more for each level, 4 a sequence and 8 a distinct block.  During the
 * first pass there is a hash table of the distinct blocks besides.
 */
#ifndef QM_BENCH_FUTURE_H
#define QM_BENCH_FUTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/context.h"
#include "trace/trace.h"

#define QM_FUTURE_NEVER UINT32_MAX /* no such access */

struct qm_future;

/* Begins the first pass; NULL if memory is out. */
struct qm_future *qm_future_new(uint64_t block_size);
/* What to learn of the trace; to be said before the first event.  Returns 0 or ENOMEM.
 */
void qm_future_want_next_uses(struct qm_future *future);
int qm_future_want_sequences(struct qm_future *future, enum qm_level level);

/* The trace's events, in its order.  Returns 0, ENOMEM, or EOVERFLOW: more than 2^32 -
 * 2 accesses. */
int qm_future_event(struct qm_future *future, const struct qm_event *event);
/* No more events: frees what is needed in the first pass only.  Returns 0 or ENOMEM. */
int qm_future_finish(struct qm_future *future);
void qm_future_free(struct qm_future *future); /* NULL is fine */

/* What it knows: whether that was wanted, and the rest only if it was.  Of what is not
 * in the trace they return QM_FUTURE_NEVER. */
bool qm_future_has_next_uses(const struct qm_future *future);
bool qm_future_has_sequences(const struct qm_future *future, enum qm_level level);

/* The next access to the block of that access. */
uint32_t qm_future_next_use(const struct qm_future *future, uint32_t access);

/* The first access of a sequence, by its number in the order in which prefetchers are
 * told of their beginnings; the access that follows one in its sequence, immediate
 * repeats included; and the block of an access, which must exist. */
uint32_t qm_future_first(const struct qm_future *future, enum qm_level level,
                         uint32_t sequence);
uint32_t qm_future_following(const struct qm_future *future, enum qm_level level,
                             uint32_t access);
uint64_t qm_future_block(const struct qm_future *future, uint32_t access);

#endif
