/* SPDX-License-Identifier: BSD-3-Clause */
/* params.c - see params.h. */
#include "engine/params.h"

#include <string.h>

#include "engine/memory.h"
#include "mining/core/parameters.h"

/* Smaller caches leave all memory to blocks, and rules have theirs beside it: the least
 * that a table takes would be much of it. */
#define RULES_WITHIN (UINT64_C(1) << 20)

/* Of a cache's memory, one part of RULES_PART is for rules where it does not follow
 * what they earn: with the rest, they have the eighth of it that
 * qm_mining_rules_memory() says. */
#define RULES_PART 9

bool qm_params_read_prefetch_on(const char *value, bool *on_prefetch_hit)
{
    *on_prefetch_hit =
        strcmp(value, "prefetch-hit") == 0 || strcmp(value, "promote") == 0;
    return *on_prefetch_hit || strcmp(value, "miss") == 0;
}

void qm_params_defaults(struct qm_params *params)
{
    *params = (struct qm_params){
        .policy = "auto",
        .eviction = "adaptive",
        .level = QM_LEVEL_INNERMOST,
        .on_prefetch_hit = true,
        .throttle = true,
        .admission = true,
        .share_adapts = true,
        .prefetch_share = 4000,
    };
    qm_mining_defaults(&params->mining);
}

void qm_params_paper(struct qm_params *params)
{
    qm_params_defaults(params);
    params->policy = "quickmine";
    params->eviction = "lru";
    params->on_prefetch_hit = false;
    params->throttle = false;
    params->admission = false;
    params->share_adapts = false;
    qm_mining_paper(&params->mining);
}

bool qm_params_prefetch(const struct qm_params *params)
{
    return strcmp(params->policy, "none") != 0;
}

void qm_params_bound_segment(struct qm_mining_config *mining, enum qm_level level)
{
    struct qm_mining_config defaults;

    if (level != QM_LEVEL_NONE || mining->segment > 0)
        return;
    qm_mining_defaults(&defaults);
    mining->segment = defaults.segment;
}

uint64_t qm_params_rules_bytes(const struct qm_params *params,
                               const struct qm_prefetcher_ops *ops, uint64_t bytes)
{
    if (!(ops->flags & QM_BOUNDED_RULES) || params->mining.rules_memory > 0 ||
        bytes < RULES_WITHIN)
        return 0;
    if (!(ops->parameters & QM_HEEDS(QM_RULES_MEMORY)))
        return 0; /* readahead's table has one size, far below a part of a cache */
    if (qm_params_trades(params, ops))
        return qm_memory_first_rules(bytes);
    return bytes - bytes / RULES_PART * (RULES_PART - 1);
}

bool qm_params_trades(const struct qm_params *params,
                      const struct qm_prefetcher_ops *ops)
{
    return params->share_adapts && strcmp(params->eviction, "adaptive") == 0 &&
           ops->set_memory;
}

void qm_params_complete(struct qm_params *params, uint64_t block_size,
                        uint64_t cache_bytes, uint64_t rules_bytes)
{
    qm_params_bound_segment(&params->mining, params->level);
    params->mining.block_size = block_size;
    params->mining.cache_blocks = cache_bytes / block_size;
    if (rules_bytes > 0) {
        params->mining.rules_memory = rules_bytes;
        params->mining.rules_most = qm_memory_most_rules(cache_bytes + rules_bytes);
    } else if (params->mining.rules_memory == 0) {
        params->mining.rules_memory = qm_mining_rules_memory(cache_bytes);
    }
}

uint64_t qm_params_prefetch_blocks(const struct qm_params *params, uint64_t blocks)
{
    uint64_t share = params->prefetch_share, n;

    if (!qm_params_prefetch(params))
        return 0;
    n = blocks / QM_SHARE_ALL * share + blocks % QM_SHARE_ALL * share / QM_SHARE_ALL;
    return n > 0 ? n : 1;
}

uint64_t qm_params_prefetch_most(const struct qm_params *params, uint64_t blocks)
{
    uint64_t n = qm_params_prefetch_blocks(params, blocks);

    return n > 0 && params->share_adapts ? blocks / 2 : n;
}

unsigned qm_params_batch(uint64_t blocks, uint64_t most)
{
    uint64_t n = blocks / 4 < (blocks - most) / 2 ? blocks / 4 : (blocks - most) / 2;

    return n < 1 ? 1 : n > QM_BATCH_MAX ? QM_BATCH_MAX : (unsigned)n;
}

struct qm_cache_config qm_params_cache(const struct qm_params *params,
                                       const struct qm_prefetcher_ops *ops,
                                       uint64_t block_size, uint64_t blocks)
{
    return (struct qm_cache_config){
        .block_size = (uint32_t)block_size,
        .blocks = blocks,
        .prefetch_blocks = qm_params_prefetch_blocks(params, blocks),
        .prefetch_adapts = params->share_adapts,
        .shadow = ops->flags & QM_WEIGHS_READS,
        .eviction = params->eviction,
    };
}
