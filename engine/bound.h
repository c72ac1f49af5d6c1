/* SPDX-License-Identifier: BSD-3-Clause */
/* bound.h - prefetching is given up where it does not pay.
 *
 * The cache knows what a plain LRU cache of its size would have missed (its shadow).
 * It is compared with the recent misses and the recent reads of the device:
 *
 *   pays    misses are fewer than the shadow's by PAYS.  Otherwise prefetches displace
 *           blocks that are as good, as where the working set just fits.  Then only one
 *           candidate in PROBE is admitted, which shows when prefetches pay again.
 *   spare   the device is read for at most SPARE times as many blocks.  Otherwise
 *           streams must be more probable than usual, which bounds the useless
 *           prefetches of many short streams.
 *
 * The load of the device is not considered here: see admission.h.
 *
 * Any thread may call any of these at any time.
 */
#ifndef QM_ENGINE_BOUND_H
#define QM_ENGINE_BOUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"

struct qm_bound {
    _Atomic uint32_t calls;
    _Atomic bool useless, over;
    atomic_flag deciding;         /* by a thread, whose all that follows is meanwhile */
    uint64_t device, lru, misses; /* counts when it was last decided */
    float more, less;             /* of late: blocks of the device, misses; they fade */
    float weight;                 /* ... and misses of LRU */
};

void qm_bound_init(struct qm_bound *b);

/* Whether a candidate may be prefetched, as far as this goes.  Now and then asks the
 * cache. */
bool qm_bound_admits(struct qm_bound *b, struct qm_cache *cache, bool stream);

#endif
