/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - a simulation, for the files that it consists of. */
#ifndef QM_SIM_INTERNAL_H
#define QM_SIM_INTERNAL_H

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "sim/explain.h"
#include "sim/feed.h"
#include "sim/sim.h"
#include "sim/tier.h"

/* In the issuer of a prefetched block, beside its class: it was issued after the
 * warm-up.  What became of the others is no result of the part that counts, else more
 * could be used there than was issued. */
#define QM_SIM_MEASURED (UINT32_C(1) << 31)

/* Requests between two ticks of memory.h. */
#define QM_SIM_TICK 512

struct qm_sim {
    struct qm_sim_config config;
    struct qm_engine engine;
    struct qm_device_load load; /* without virtual time, of no device, which is idle */
    struct qm_latency latency;  /* the same; nothing is known of it */
    struct qm_bound bound;
    struct qm_admission admission;
    struct qm_rate rate; /* by the clock of the trace, or by virtual time */
    struct qm_cache *cache;
    struct qm_memory memory; /* of the cache and the rules */
    struct qm_feed feed;
    struct qm_belady belady;
    struct qm_sim_tier *tier;   /* NULL: none */
    struct qm_explain *explain; /* owned by the engine, its prefetcher; NULL: none */
    uint64_t warm_explained[QM_REASON_COUNT];
    struct qm_sim_class *classes; /* by number; with config.by_class */
    uint32_t class_count;
    struct qm_virtual *timed; /* NULL: nothing takes time */
    uint64_t blocks;          /* present capacity */
    uint64_t requests, writes;
    uint64_t ahead_reads; /* of the device */
    uint64_t now;         /* ns of the trace's clock, not 0; without virtual time */
    bool measuring;       /* the warm-up has ended */
    uint64_t warm_requests, warm_writes; /* when it did */
    uint64_t warm_ahead_reads, warm_over;
    struct qm_cache_stats warm;
    struct qm_sim_tier_counts warm_tier;
    /* Of prefetches issued before it ended, since then. */
    uint64_t late_used, late_wasted;
    uint64_t past; /* blocks for which the cache had no room: misses */
};

/* A request has begun (in virtual time) or ended: now and then, memory is divided anew.
 */
void qm_sim_tick(struct qm_sim *sim);

/* The warm-up ends here. */
void qm_sim_measure(struct qm_sim *sim);

/* The issuer of a prefetch on behalf of a class. */
static inline uint32_t qm_sim_issuer(const struct qm_sim *sim, uint32_t klass)
{
    return sim->measuring ? klass | QM_SIM_MEASURED : klass;
}

/* The counts of a class; NULL: there are none, or memory is out. */
struct qm_sim_class *qm_sim_class_at(struct qm_sim *sim, uint32_t klass);

/* With config.by_class: a block was found so for a class. */
void qm_sim_class_found(struct qm_sim *sim, uint32_t klass, enum qm_access access);

/* A block was found so; makes the issuer what the engine knows. */
void qm_sim_found(struct qm_sim *sim, uint64_t block, struct qm_lookup *found);

#endif
