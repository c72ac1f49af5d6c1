/* SPDX-License-Identifier: BSD-3-Clause */
/* params.h - the parameters of caching and prefetching, and their defaults.
 *
 * This is the only table of defaults: the server's parameters, the simulator's options
 * and the preset start from it.  It has neither parameters of only one of the two
 * (threads, files, the warm-up), nor sizes, which have no common default.
 */
#ifndef QM_ENGINE_PARAMS_H
#define QM_ENGINE_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/rate.h"
#include "mining/core/context.h"
#include "mining/core/prefetcher.h"

/* Of prefetch_share: 100 %. */
#define QM_SHARE_ALL 100000

/* prefetch-threads and prefetch-queue: as engine/inflight.h decides. */
#define QM_PREFETCH_AUTO 0

struct qm_params {
    const char *policy;   /* a prefetcher's name; the simulator also has "perfect" */
    const char *eviction; /* of the main cache; the simulator also has "belady" */
    enum qm_level level;
    bool on_prefetch_hit; /* ask for candidates on prefetch hits (and early hits, see
                             QM_EARLY_HITS), too, not only on misses */
    bool throttle;  /* prefetch less for classes that do not benefit, and while the
                       device is busy */
    bool admission; /* prefetch by probability and the load of the device: see
                       admission.h */
    struct qm_budget budget; /* of reads ahead */
    bool share_adapts;       /* prefetch_share is the initial share */
    uint64_t prefetch_share; /* the prefetch partition's share of the cache's blocks:
                                thousandths of a percent, above 0 and below 100 % */
    struct qm_mining_config mining;
};

/* Reads the value of the parameter prefetch-on: "miss", or "prefetch-hit" for misses
 * and prefetch hits ("promote", its old name, is accepted for one release).  Returns
 * whether it is one of these. */
bool qm_params_read_prefetch_on(const char *value, bool *on_prefetch_hit);

/* The defaults, and those of the preset "paper". */
void qm_params_defaults(struct qm_params *params);
void qm_params_paper(struct qm_params *params);

/* Whether the policy prefetches: it is not "none". */
bool qm_params_prefetch(const struct qm_params *params);

/* How many of a cache's bytes are for rules at first, of a policy with a bounded table;
 * the others are for blocks and their metadata.  0: the table is beside the cache, as
 * its size was given (mining.rules_memory), or cannot be (policy readahead), or the
 * cache has less than 1 MiB.  Before
 * qm_params_complete(), for which the result is. */
uint64_t qm_params_rules_bytes(const struct qm_params *params,
                               const struct qm_prefetcher_ops *ops, uint64_t bytes);

/* Whether the rules' part follows what they earn (memory.h), if they have one: the
 * eviction adapts, and so knows what blocks would earn; the prefetch partition adapts;
 * and the policy can have more or less.  Else it is a ninth. */
bool qm_params_trades(const struct qm_params *params,
                      const struct qm_prefetcher_ops *ops);

/* Derives the remaining parameters from the others and from the cache, which has so
 * many bytes for blocks, and beside them for rules (0: beside the cache): the memory
 * for rules, unless it was given; the block size; and the segments, see
 * qm_params_bound_segment(). */
void qm_params_complete(struct qm_params *params, uint64_t block_size,
                        uint64_t cache_bytes, uint64_t rules_bytes);

/* At level none, the single sequence does not end while anything is read.  It is
 * therefore mined in segments of the default length, even if sequences are mined at
 * their end only. */
void qm_params_bound_segment(struct qm_mining_config *mining, enum qm_level level);

/* Initial size of the prefetch partition of a cache of `blocks` blocks; 0 if the policy
 * does not prefetch, else at least 1. */
uint64_t qm_params_prefetch_blocks(const struct qm_params *params, uint64_t blocks);

/* How many blocks the prefetch partition may come to have. */
uint64_t qm_params_prefetch_most(const struct qm_params *params, uint64_t blocks);

/* How many blocks of a request are looked up before the first of them is read, and then
 * at most by one read of the device.  They have places in a cache of `blocks` blocks
 * meanwhile: at most a quarter of all, and half of what remains of them with the most
 * that prefetches may come to have. */
unsigned qm_params_batch(uint64_t blocks, uint64_t most);
#define QM_BATCH_MAX 256

/* The configuration of a cache of `blocks` blocks for a prefetcher with these
 * operations.  The caller adds shards, data and wasted(). */
struct qm_cache_config qm_params_cache(const struct qm_params *params,
                                       const struct qm_prefetcher_ops *ops,
                                       uint64_t block_size, uint64_t blocks);

#endif
