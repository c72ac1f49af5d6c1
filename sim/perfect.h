/* SPDX-License-Identifier: BSD-3-Clause */
/* perfect.h - a bound: a prefetcher that knows the future reads of each context.
 *
 * Its candidates are the next blocks that the context will read: the next `degree`
 * distinct ones other than the present one, among the next QM_PERFECT_WINDOW accesses.
 * No server can have it.  It shows the gain of prefetching what the same context reads
 * next, with the same cache and the same triggers.  It is not a strict bound: it
 * prefetches what is used soonest, not what the cache as a whole could use best.
 */
#ifndef QM_SIM_PERFECT_H
#define QM_SIM_PERFECT_H

#include "sim/future.h"
#include "mining/core/prefetcher.h"

#define QM_PERFECT        "perfect"
#define QM_PERFECT_WINDOW 1024

/* Makes one, for contexts at that level.  future must outlive it, and have the
 * sequences.  The accesses must follow in the trace's order.  NULL without memory. */
struct qm_prefetcher *qm_perfect_new(const struct qm_future *future,
                                     enum qm_level level, unsigned degree);

/* Sequences are numbered in the order of the trace.  If contexts do not begin in that
 * order, the number of the one that begins next has to be said: an order counts them,
 * as the prefetcher of a feed (qm_feed_context() only) that sees the trace's. */
void qm_perfect_next(struct qm_prefetcher *perfect, uint32_t sequence);
struct qm_prefetcher *qm_perfect_order_new(void); /* NULL: no memory */
uint32_t qm_perfect_order_begun(const struct qm_prefetcher *order);
void qm_perfect_order_free(struct qm_prefetcher *order);

#endif
