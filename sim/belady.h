/* belady.h - a bound: evict what will not be demanded for the longest time.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
 * Systems Journal 5(2), 1966: MIN, here for a cache that must take in each block that
 * is missed.  No policy of such a cache misses less when nothing is prefetched.  With
 * prefetching it is the optimum for the string of demands only: it does not know which
 * demands find their block prefetched.
 */
#ifndef QM_BENCH_BELADY_H
#define QM_BENCH_BELADY_H

#include "sim/future.h"
#include "cache/eviction.h"

#define QM_BELADY "belady"

/* What qm_evict_belady needs to be told. */
struct qm_belady {
    const struct qm_future *future; /* has the next uses */
    uint32_t now; /* the number of the access that is being simulated; the caller's */
};

/* Its create_for() takes a struct qm_belady, which must outlive it. */
extern const struct qm_evict_ops qm_evict_belady;

#endif
