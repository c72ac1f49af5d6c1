/* perfect.h - a bound: a prefetcher that knows what each context will read.
 *
 * Its candidates are the next blocks that the context will read: the next `degree`
 * distinct ones other than the one just read, among the next QM_PERFECT_WINDOW
 * accesses.  No prefetcher can have it; it says how much there is to be gained by
 * prefetching what the same context reads next, with the same cache and the same
 * triggers.  It is no bound for everything: it prefetches what is used soon, not what
 * the cache as a whole could use best.
 */
#ifndef QM_BENCH_PERFECT_H
#define QM_BENCH_PERFECT_H

#include "sim/future.h"
#include "mining/core/prefetcher.h"

#define QM_PERFECT        "perfect"
#define QM_PERFECT_WINDOW 1024

/* One for the accesses of a trace in their order, with contexts at that level; future,
 * which must outlive it, has the sequences.  NULL if memory is out. */
struct qm_prefetcher *qm_perfect_new(const struct qm_future *future,
                                     enum qm_level level, unsigned degree);

#endif
