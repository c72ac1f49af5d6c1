/* SPDX-License-Identifier: BSD-3-Clause */
/* bound.h - prefetching is given up where it does not pay.
 *
 * Nothing is prefetched before candidates of its kind, of rules or of streams, have
 * been proven worth it: until then they are watched (watch.h).
 *
 * The cache knows what a plain LRU cache of its size would have missed (its shadow).
 * It is compared with the recent misses and the recent reads of the device:
 *
 *   pays    misses are fewer than the shadow's by PAYS.  Otherwise prefetches displace
 *           blocks that are as good, as where the working set just fits.  Then only one
 *           candidate in PROBE is admitted, which shows when prefetches pay again.
 *   spare   the device is read for at most SPARE times as many blocks.  Otherwise
 *           only one stream's candidate in PROBE_OVER is admitted, which bounds the
 *           useless prefetches of many short streams.
 *   dear    ... and each miss that is saved costs more than DEAR reads beyond the
 *           shadow's: prefetched blocks wait long for their use, and drive out others,
 *           as where reads are random within a region that nearly fits.  Then it is
 *           only one in PROBE, and no place is reserved for streams.
 *
 * And the cache knows, about, what would have been missed without prefetching, by the
 * eviction in use:
 *
 *   value   misses that a prefetched block has saved if it was used: those without
 *           prefetching, less those there were, by the blocks used; as much as the
 *           estimate's error allows.  Where memory is
 *           short it is far below 1: what is prefetched takes the place of what would
 *           have been hit.
 *
 * The load of the device is not considered here: see admission.h.  Where the places of
 * rules and prefetched blocks cost more than these save, memory.h has prefetching rest.
 *
 * Any thread may call any of these at any time.
 */
#ifndef QM_ENGINE_BOUND_H
#define QM_ENGINE_BOUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/watch.h"

struct qm_bound {
    _Atomic uint32_t calls;
    _Atomic bool useless, over, dear;
    atomic_flag deciding;         /* by a thread, whose all that follows is meanwhile */
    uint64_t device, lru, misses; /* counts when it was last decided */
    float more, less;             /* of late: blocks of the device, misses; they fade */
    float weight;                 /* ... and misses of LRU */
    uint64_t used; /* the same: prefetch hits; and misses without, about */
    double alone;
    float by_alone, by_misses, by_used; /* of late, for longer */
    float bias;                         /* misses for each of by_alone */
    _Atomic float value;
    _Atomic bool resting, watching;
    struct qm_watch watch; /* of what is not read */
};

void qm_bound_init(struct qm_bound *b);
void qm_bound_destroy(struct qm_bound *b);

/* Whether a candidate may be prefetched, as far as this goes.  Now and then asks the
 * cache. */
bool qm_bound_admits(struct qm_bound *b, struct qm_cache *cache, bool stream);

/* Whether a candidate that may not be prefetched is to be watched instead. */
static inline bool qm_bound_watches(const struct qm_bound *b, bool stream)
{
    if (atomic_load_explicit(&b->resting, memory_order_relaxed))
        return atomic_load_explicit(&b->watching, memory_order_relaxed);
    return !qm_watch_is_proven(&b->watch, stream);
}

/* Whether any candidate is being watched, so that misses matter. */
static inline bool qm_bound_is_watching(const struct qm_bound *b)
{
    return qm_watch_is_on(&b->watch);
}

/* true stops all prefetching, false lets it go on.  memory.c calls it. */
static inline void qm_bound_rest(struct qm_bound *b, bool resting)
{
    atomic_store_explicit(&b->resting, resting, memory_order_relaxed);
}

/* While it rests: whether candidates are watched. */
static inline void qm_bound_watch(struct qm_bound *b, bool watching)
{
    atomic_store_explicit(&b->watching, watching, memory_order_relaxed);
}

/* Whether streams cost more reads of the device than they are worth. */
static inline bool qm_bound_is_dear(const struct qm_bound *b)
{
    return atomic_load_explicit(&b->dear, memory_order_relaxed);
}

/* The value, above 0 and at most 1: what is not known is 1. */
static inline float qm_bound_value(const struct qm_bound *b)
{
    return atomic_load_explicit(&b->value, memory_order_relaxed);
}

#endif
