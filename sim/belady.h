/* SPDX-License-Identifier: BSD-3-Clause */
/* belady.h - a bound: evicts the block whose next demand is farthest in the future.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
 * Systems Journal 5(2), 1966: MIN, here for a cache that must admit each missed block.
 * Without prefetching, no policy of such a cache misses less.  With prefetching, it is
 * optimal for the sequence of demands only: it does not know which blocks will be
 * prefetched.
 */
#ifndef QM_SIM_BELADY_H
#define QM_SIM_BELADY_H

#include "sim/future.h"
#include "cache/eviction.h"

#define QM_BELADY "belady"

/* Input of qm_evict_belady. */
struct qm_belady {
    const struct qm_future *future; /* has the next uses */
    uint32_t now; /* set by the caller: number of the access being simulated */
};

/* Its create_for() takes a struct qm_belady, which must outlive it. */
extern const struct qm_evict_ops qm_evict_belady;

#endif
