/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - how a cache's memory is divided between blocks and rules, and changes.
 *
 * Blocks, their metadata and the rules of the prefetcher have a number of bytes
 * together, which may be changed at any time.  If they trade, the rules' part follows
 * what the last bytes of each have earned of late, and where prefetching costs more
 * than it saves, all of it rests: see memory.c.  It reads no clock and is
 * deterministic: the server and the simulator call it now and then.
 *
 * Threads: qm_memory_tick(), qm_memory_resize() and qm_memory_get_stats() may be called
 * by any at any time, while the cache and the prefetcher are used; they wait for each
 * other.
 */
#ifndef QM_ENGINE_MEMORY_H
#define QM_ENGINE_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/admission.h"
#include "engine/bound.h"
#include "mining/core/prefetcher.h"

struct qm_memory_config {
    struct qm_cache *cache;
    struct qm_prefetcher *prefetcher;
    const struct qm_admission *admission; /* what reads ahead cost; NULL: nothing */
    struct qm_bound *bound;               /* told to rest; NULL: nobody is */
    uint32_t block_size;
    uint64_t total; /* bytes for blocks, metadata and rules */
    uint64_t rules; /* of these, the rules' at first; 0: they are not of it, and have
                       memory of their own */
    bool trades;    /* rules may come to have more or less */
    bool simulated; /* the cache has no data: it has as many blocks as one with data
                       that was made for as many bytes */
};

struct qm_memory {
    struct qm_memory_config config;
    pthread_mutex_t lock; /* of what follows */
    uint64_t total, rules;
    uint64_t given; /* of rules, what they have: less while the cache has not given it
                       back */
    bool pending;   /* the cache has not given back all that it should */

    /* Of the time since the last decision: what was counted when it began. */
    uint64_t misses, hits, plain, lru, marginal, demands, wasted;
    double gain;
    double held, price; /* sums, of each call of qm_memory_tick(): prefetched blocks
                           that wait; cost of a read ahead, in misses */
    unsigned ticks;
    unsigned quiet; /* calls of qm_memory_tick() since then */
    int trend;      /* how often in a row the same was better; below 0: less */
    bool young;     /* rules have yet to fill what they may have before they earn; */
    bool fits;      /* of these: they sleep as what is read may just fit, */
    bool fitted;    /* or did so before */
    /* All, when that was last looked at. */
    uint64_t ticked_misses, ticked_hits, ticked_demands;
    uint64_t fit_misses; /* while they slept for that */
    bool vain;           /* the last decision was that a plain cache misses less; */
    bool dear;           /* that prefetching costs more than it saves: see memory.c */
    bool asleep;         /* rules have next to nothing; */
    bool resting;        /* and nothing is prefetched: */
    bool watching;       /* ... but rules are awake, and what they want is watched */
    struct qm_watch_counts watched; /* then: when the last decision was made */
    double missed;     /* the part of the demands that missed in the last whole period
                          before that, or before the last try */
    unsigned slept;    /* decisions since then at which they might have woken, */
    unsigned patience; /* and how many of these it takes */
    uint64_t traded;   /* changes, ever */
};

void qm_memory_init(struct qm_memory *m, const struct qm_memory_config *config);
void qm_memory_destroy(struct qm_memory *m);

/* From now on that is the prefetcher; the one before is not used any more when this
 * returns.  One that cannot have more or less memory has what it has. */
void qm_memory_use(struct qm_memory *m, struct qm_prefetcher *prefetcher);

/* The bytes that rules have at first of a cache of `total` bytes, which is about the
 * least that their table can take, and may come to have at most. */
uint64_t qm_memory_first_rules(uint64_t total);
uint64_t qm_memory_most_rules(uint64_t total);

/* From now on there are `total` bytes in all; the rules keep their share of it.
 * Returns 0; EINVAL: the cache cannot be so small (or large); ENOMEM; or EAGAIN: it is
 * done, but reads in flight keep some memory, which a later qm_memory_tick() gives
 * back.  After EINVAL and ENOMEM the cache is as it was. */
int qm_memory_resize(struct qm_memory *m, uint64_t total);

/* Decides whether rules should have more or less, if there is enough to decide by, and
 * has it so.  To be called now and then: every thousand reads or every second, say.
 * Takes some microseconds when nothing changes. */
void qm_memory_tick(struct qm_memory *m);

struct qm_memory_stats {
    uint64_t total;  /* bytes for blocks, metadata and rules */
    uint64_t rules;  /* of these, the rules'; 0: they are not of it */
    uint64_t blocks; /* capacity of the cache */
    uint64_t traded; /* how often the division changed */
    bool resting;    /* nothing is prefetched, as it costs more than it saves */
};

void qm_memory_get_stats(struct qm_memory *m, struct qm_memory_stats *stats);

#endif
