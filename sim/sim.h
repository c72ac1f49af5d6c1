/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.h - a storage cache simulated on a trace.
 *
 * It drives the server's engine/, and with it cache/ and mining/: one shard, no data,
 * no threads, events in the order of the file, and a prefetched block is there at once.
 * A figure of it is a figure about that code.  It may have a second tier (sim/tier.h).
 * Or, with a device, clients make the
 * requests and reads take time (virtual.h).
 */
#ifndef QM_BENCH_SIM_H
#define QM_BENCH_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/belady.h"
#include "sim/explain.h"
#include "sim/perfect.h"
#include "sim/tier.h"
#include "sim/virtual.h"
#include "engine/params.h"
#include "trace/trace.h"

struct qm_sim;

struct qm_sim_config {
    struct qm_params params; /* the policy may be QM_PERFECT, too, and the eviction
                                QM_BELADY */
    const struct qm_future *future; /* of the same trace and block size, with what these
                                       two need; else NULL */
    bool paper;            /* --preset paper: capacity is cache_size / block_size */
    uint64_t block_size;   /* bytes */
    uint64_t cache_size;   /* bytes, metadata included unless paper */
    bool total_memory;     /* cache_size is also of rules whose memory is said; only for
                              prefetchers that are bounded, or none */
    uint64_t cache_blocks; /* capacity in blocks; 0: from cache_size */
    uint64_t warmup;       /* read requests at the start that are not counted */
    bool explain;          /* say why reads were missed */
    struct qm_sim_tier_config tier; /* size 0: none */
    bool by_class;                  /* count for each class, too (qm_sim_class()) */
    const struct qm_bytes *extents; /* told at the start; of length 0: a file ends */
    size_t extent_count;
    const struct qm_virtual_config *timed; /* copied; NULL: nothing takes time */
};

/* The defaults, which are the server's, and those of --preset paper.  What depends on
 * the trace or the user stays 0. */
void qm_sim_defaults(struct qm_sim_config *config);
void qm_sim_paper(struct qm_sim_config *config);

struct qm_sim_result {
    uint64_t cache_blocks;    /* capacity of main and prefetch cache together */
    uint64_t prefetch_blocks; /* of these, the prefetch cache's, as it is now */
    uint64_t metadata_bytes;  /* most that a server's cache of as many blocks takes
                                 beside their bytes */
    bool warming; /* the warm-up has not ended; counts are since the start */
    /* Since the warm-up: */
    uint64_t requests; /* reads */
    uint64_t writes;   /* requests; they change nothing here */
    uint64_t reads;    /* blocks: hits + prefetch_hits + misses */
    uint64_t hits, prefetch_hits, misses;
    uint64_t prefetches, used, wasted; /* the last two: of those prefetches */
    uint64_t ahead_reads; /* of the device: runs of adjacent blocks, or with virtual
                             time what was read at once */
    uint64_t over_rate;   /* blocks not read ahead for want of budget */
    uint64_t lru_misses; /* that an LRU cache of as many blocks would have had, about; 0
                            if that is not reckoned */
    uint64_t missed[QM_REASON_COUNT]; /* with config.explain: the misses by reason */
    struct qm_mining_stats mining;    /* since the start */
    struct qm_sim_tier_counts tier;   /* since the warm-up; all zeros without a tier */
    struct qm_virtual_result timed;   /* with config.timed */
};

/* What was counted of one class since the warm-up: of reads for which a context of it
 * was the innermost. */
struct qm_sim_class {
    uint64_t hits, prefetch_hits, misses; /* blocks */
    uint64_t requests;                    /* with config.timed: that were answered */
    double us;                            /* and their time in all */
};

/* Makes a simulation; strings in config, and the future, must outlive it.  Returns NULL
 * with a sentence in err that says what is wrong and what is allowed. */
struct qm_sim *qm_sim_new(const struct qm_sim_config *config, char *err, size_t len);

/* The trace's events, in its order.  Returns 0 or an errno value: no memory, or an
 * error of the rule cache. */
int qm_sim_event(struct qm_sim *sim, const struct qm_event *event);

/* No more events.  Returns as qm_sim_event(). */
int qm_sim_finish(struct qm_sim *sim);

const struct qm_sim_config *qm_sim_config(const struct qm_sim *sim);
/* What was counted so far. */
void qm_sim_result(struct qm_sim *sim, struct qm_sim_result *result);
/* With config.by_class: the counts of class `number` and its name, which are the
 * simulation's, until its next event.  Numbers are from 0 to the result less 1, in the
 * order of the trace; 0 is what has no class, and 1 those beyond QM_CLASSES_MAX: both
 * have no name.  Each may be called at any time; at level none all is in 0. */
uint32_t qm_sim_class_count(const struct qm_sim *sim);
const struct qm_sim_class *qm_sim_class(const struct qm_sim *sim, uint32_t number,
                                        const char **name);
void qm_sim_free(struct qm_sim *sim); /* NULL is fine */

#endif
