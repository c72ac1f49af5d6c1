/* SPDX-License-Identifier: BSD-3-Clause */
/* memory-counts.h - what was counted since memory was last decided about, and what that
 * says: for memory.c, with the lock of struct qm_memory held.
 */
#ifndef QM_ENGINE_MEMORY_COUNTS_H
#define QM_ENGINE_MEMORY_COUNTS_H

#include "engine/memory.h"

struct qm_memory_counts {
    uint64_t misses, hits; /* of these, what had been prefetched */
    uint64_t plain; /* misses of a plain LRU cache that has the rules' memory, too,
                       or as much of it as qm_cache_compare() can; */
    uint64_t lru;   /* of one that has not; */
    bool compared;  /* unless nobody knows these */
    uint64_t demands;
    uint64_t wasted; /* prefetched blocks that left unused */
    uint64_t placed; /* prefetched blocks that were used or left: each took a place */
    double saved;    /* misses, by what was prefetched */
    double held;     /* prefetched blocks that wait: now, or, of what is watched, on the
                        average */
    uint64_t marginal; /* see struct qm_mining_stats */
    double gain;       /* see struct qm_cache_reads */
    uint64_t rules_bytes;
    bool full; /* the cache has evicted blocks, ever */
};

/* While m->watching, `wasted`, `saved` and `held` are of what is watched. */
struct qm_memory_counts qm_memory_count(const struct qm_memory *m);

/* The next decision is made of what is counted from now on. */
void qm_memory_count_anew(struct qm_memory *m, const struct qm_memory_counts *c);

/* Whether a plain cache would have missed less, by one of `part` and `least` misses,
 * and rules or prefetched blocks may be why. */
bool qm_memory_is_vain(const struct qm_memory_counts *c, unsigned part, unsigned least);

/* The part of the demands that missed, or would have without prefetching. */
double qm_memory_missed(const struct qm_memory_counts *c);

/* What a read ahead costs at the moment, in misses. */
double qm_memory_price(const struct qm_memory *m);

/* What a cache that is larger by a part of its blocks would have hit.  A sample that
 * says less than nothing does so by chance: that rules earn nothing is no reason, then,
 * to give them blocks. */
double qm_memory_places(const struct qm_memory_counts *c, double part);

/* Whether `times` what prefetching saves is less than the places of rules and
 * prefetched blocks cost, and its useless reads. */
bool qm_memory_is_dear(const struct qm_memory *m, const struct qm_memory_counts *c,
                       uint64_t blocks, double times);

#endif
