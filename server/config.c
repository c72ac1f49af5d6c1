/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - puts the filter's parameters together, and checks the whole.
 *
 * A preset is a set of defaults, wherever on the command line it stands.  So values are
 * only kept as they come (parameters.c), and parsed when all are known.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nbdkit-filter.h>

#include "cache/cache.h"
#include "mining/core/idle.h"
#include "mining/core/parameters.h"
#include "server/config.h"
#include "server/parameters.h"
#include "server/values.h"

#define DEFAULT_SIZE (UINT64_C(256) << 20)

void qms_config_defaults(struct qms_config *c)
{
    *c = (struct qms_config){
        .cache_size = DEFAULT_SIZE,
        .block_size = 16384,
        .prefetch_threads = QM_PREFETCH_AUTO,
        .prefetch_queue = QM_PREFETCH_AUTO,
        .prefetch_priority = QMS_PRIORITY_LOW,
        .miner_queue = UINT64_C(64) << 20,
        .rules_save = 60,
        .parallel = QMS_PARALLEL_ALLOWED,
        .prefetching = true,
        .log_level = QMS_NOTE,
    };
    qm_params_defaults(&c->params);
}

/* How many blocks, and how many of them for prefetching. */
static int size_cache(struct qms_config *c)
{
    const char *whose;
    uint64_t memory = qms_value_most_memory(&whose);
    uint64_t least = qm_params_prefetch(&c->params) ? 2 : 1;

    c->blocks = c->cache_blocks;
    if (c->cache_blocks == 0) {
        if (qms_value_check_memory("cache-size", c->cache_size) == -1)
            return -1;
        c->rules_bytes = qm_params_rules_bytes(&c->params, c->policy, c->cache_size);
        c->blocks =
            qm_cache_blocks_within(c->cache_size - c->rules_bytes, c->block_size);
    } else if (c->cache_blocks > memory / c->block_size) {
        qms_value_complain("cache-blocks must not exceed %s, that is %" PRIu64
                           " blocks of %" PRIu64 " bytes; it is %" PRIu64,
                           whose, memory / c->block_size, c->block_size,
                           c->cache_blocks);
        return -1;
    }
    if (c->blocks < least) {
        qms_value_complain(
            "the cache must have room for %s of %" PRIu64
            " bytes and its metadata: give a larger cache-size than %" PRIu64
            ", or a smaller block-size",
            least == 1 ? "a block" : "two blocks (one for prefetching)", c->block_size,
            c->cache_blocks == 0 ? c->cache_size : c->cache_blocks * c->block_size);
        return -1;
    }
    c->prefetch_blocks = qm_params_prefetch_blocks(&c->params, c->blocks);
    c->prefetch_most = qm_params_prefetch_most(&c->params, c->blocks);
    return 0;
}

static unsigned automatic_shards(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned shards = 4;

    while ((long)shards < 4 * cpus && shards < 64)
        shards *= 2;
    return shards;
}

static bool has_effect(enum qms_effect effect, const char *key,
                       const struct qm_prefetcher_ops *policy)
{
    bool prefetches = strcmp(policy->name, "none") != 0;

    switch (effect) {
    case QMS_ALWAYS:
        return true;
    case QMS_IF_PREFETCHING:
        return prefetches;
    case QMS_IF_ASKED:
        return prefetches && !(policy->flags & QM_ASK_ALWAYS);
    case QMS_IF_LEARNING:
        return policy->learn != qm_idle_learn;
    case QMS_IF_SAVING:
        return qm_parameter_heeded(qm_parameter(QM_RULES), policy);
    case QMS_IF_HEEDED:
        return qm_parameter_heeded(qm_parameter_find(key), policy);
    }
    return false;
}

bool qms_config_heeds(const struct qms_config *c, const char *key)
{
    for (size_t i = 0; i < qms_key_count; i++)
        if (strcmp(qms_keys[i].key, key) == 0)
            return has_effect(qms_keys[i].effect, key, c->policy);
    return false;
}

static bool is_given(const char *key)
{
    for (size_t i = 0; i < qms_key_count; i++)
        if (strcmp(qms_keys[i].key, key) == 0)
            return qms_key_value(i) != NULL;
    return false;
}

/* Names what was given and has no effect. */
static void warn_of_ignored(const struct qms_config *c)
{
    static const char *const of_rules[] = {"rules-for", "rules-save"};
    static const char *const of_tier[] = {"tier-size",       "tier-admit",
                                          "tier-verify",     "tier-witness",
                                          "tier-write-rate", "tier-volume"};
    char ignored[512] = "";

    for (size_t i = 0; i < qms_key_count; i++) {
        size_t n = strlen(ignored);

        if (qms_key_value(i) && !qms_config_heeds(c, qms_keys[i].key))
            snprintf(ignored + n, sizeof ignored - n, "%s%s", n ? ", " : "",
                     qms_keys[i].key);
    }
    if (ignored[0] != '\0')
        nbdkit_error("warning: policy=%s ignores %s", c->policy->name, ignored);
    if (c->cache_blocks != 0 && is_given("cache-size"))
        nbdkit_error("warning: cache-size is ignored where cache-blocks is given");
    for (size_t i = 0; i < 2 && !c->rules; i++)
        if (is_given(of_rules[i]))
            nbdkit_error("warning: %s is ignored without rules", of_rules[i]);
    for (size_t i = 0; i < sizeof of_tier / sizeof *of_tier && !c->tier; i++)
        if (is_given(of_tier[i]))
            nbdkit_error("warning: %s is ignored without tier", of_tier[i]);
    if (c->params.mining.max_suffix == 0 && is_given("grace"))
        nbdkit_error("warning: grace is ignored where max-suffix is 0");
}

int qms_config_derive(struct qms_config *c)
{
    struct qm_cache_config cache;
    char err[256];

    /* More than threads would be of no use. */
    if (c->prefetch_threads != QM_PREFETCH_AUTO &&
        (c->prefetch_connections == 0 || c->prefetch_connections > c->prefetch_threads))
        c->prefetch_connections = c->prefetch_threads;
    c->params.mining.rules_dir = c->rules;
    c->params.mining.rules_for = c->rules_for;
    c->params.mining.trained = c->trained;
    c->rules_purge = c->params.mining.purge_after; /* the miner's clock: seconds */
    if (c->shards == 0)
        c->shards = automatic_shards();
    c->policy = qm_prefetcher_find(c->params.policy);
    if (!c->policy) { /* the preset's: others were looked for */
        qms_value_complain("this filter was built without policy %s", c->params.policy);
        return -1;
    }
    c->params.policy = c->policy->name; /* which stays, whatever becomes of the value */
    if (qm_mining_check(&c->params.mining, err, sizeof err) != 0) {
        qms_value_complain("%s", err);
        return -1;
    }
    if (size_cache(c) == -1)
        return -1;
    qm_params_complete(&c->params, c->block_size,
                       c->cache_blocks > 0 ? c->cache_blocks * c->block_size
                                           : c->cache_size - c->rules_bytes,
                       c->rules_bytes);
    cache = qm_params_cache(&c->params, c->policy, c->block_size, c->blocks);
    cache.shards = c->shards;
    cache.data = true;
    if (qm_cache_check(&cache, err, sizeof err) != 0) {
        qms_value_complain("%s", err);
        return -1;
    }
    return 0;
}

int qms_config_complete(struct qms_config *c)
{
    qms_config_defaults(c);
    for (size_t i = 0; i < qms_key_count; i++)
        if (qms_key_value(i) && qms_key_set(i, qms_key_value(i), c) == -1)
            return -1;
    if (qms_config_derive(c) == -1)
        return -1;
    warn_of_ignored(c);
    return 0;
}

void qms_config_free(struct qms_config *c)
{
    free(c->rules);
    free(c->trained);
    free(c->tier);
    free(c->tier_witness);
    free(c->record);
    free(c->stats);
    free(c->stats_http);
    free(c->control);
    qms_key_free_kept();
}
