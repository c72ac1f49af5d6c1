/* sim.c - a storage cache simulated on a trace.
 *
 * For each block of a read, in ascending order: the cache is asked; a miss enters it;
 * the prefetcher is told, and asked for candidates; those not cached enter the prefetch
 * cache.
 */
#include "sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feed.h"
#include "cache/cache.h"
#include "mining/core/throttle.h"

#define SHARE_UNIT 100000 /* of 100 % */

/* In the issuer of a prefetched block, beside its class: it was issued after the
 * warm-up.  What became of the others is no result of the part that counts, else more
 * could be used there than was issued. */
#define MEASURED (UINT32_C(1) << 31)

struct qm_sim {
    struct qm_sim_config config;
    struct qm_prefetcher *prefetcher;
    struct qm_throttle *throttle; /* NULL: none */
    struct qm_cache *cache;
    struct qm_feed feed;
    struct qm_belady belady;
    uint64_t blocks, prefetch_blocks; /* capacity */
    uint64_t requests, writes;
    uint64_t warm_requests, warm_writes; /* when the warm-up ended */
    struct qm_cache_stats warm;
    /* Of prefetches issued before it ended, since then. */
    uint64_t late_used, late_wasted;
};

void qm_sim_defaults(struct qm_sim_config *config)
{
    *config = (struct qm_sim_config){
        .policy = "ppm",
        .eviction = "wtinylfu",
        .level = QM_LEVEL_INNERMOST,
        .on_promote = true,
        .throttle = true,
        .prefetch_share = 4000,
        .share_adapts = true,
    };
    qm_mining_defaults(&config->mining);
}

void qm_sim_paper(struct qm_sim_config *config)
{
    qm_sim_defaults(config);
    config->paper = true;
    config->eviction = "lru";
    config->policy = "quickmine";
    config->share_adapts = false;
    config->on_promote = false;
    config->throttle = false;
    qm_mining_paper(&config->mining);
}

static bool prefetches(const struct qm_sim_config *config)
{
    return strcmp(config->policy, "none") != 0;
}

/* Takes the rules' part off the cache's.  Returns 0 or EINVAL. */
static int leave_rules(struct qm_sim *sim, char *err, size_t len)
{
    struct qm_sim_config *c = &sim->config;

    if (!c->total_memory || !prefetches(c))
        return 0;
    if (!sim->prefetcher->ops->bounded) {
        snprintf(err, len,
                 "the rules of policy '%s' may take any memory, so the memory in all "
                 "can be said for policy none or ppm only",
                 c->policy);
        return EINVAL;
    }
    if (c->rules_part == 0)
        c->rules_part = c->mining.rules_memory;
    if (c->rules_part >= c->cache_size) {
        snprintf(err, len, "rules of %llu bytes leave nothing of %llu for blocks",
                 (unsigned long long)c->rules_part, (unsigned long long)c->cache_size);
        return EINVAL;
    }
    c->cache_size -= c->rules_part;
    return 0;
}

/* How many blocks the cache has, and its prefetch part.  Returns 0 or EINVAL. */
static int set_capacity(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_sim_config *c = &sim->config;

    if (c->cache_blocks > 0)
        sim->blocks = c->cache_blocks;
    else if (c->paper && !c->total_memory)
        sim->blocks = c->cache_size / c->block_size;
    else
        sim->blocks = qm_cache_blocks_within(c->cache_size, (uint32_t)c->block_size);
    if (sim->blocks == 0) {
        snprintf(err, len, "cache size %llu holds no block of %llu bytes%s",
                 (unsigned long long)c->cache_size, (unsigned long long)c->block_size,
                 c->paper && !c->total_memory ? "" : " with its metadata");
        return EINVAL;
    }
    if (!prefetches(c))
        return 0;
    if (c->prefetch_share < 1 || c->prefetch_share >= SHARE_UNIT) {
        snprintf(err, len, "the prefetch share must be above 0 and below 100 percent");
        return EINVAL;
    }
    if (sim->blocks < 2) {
        snprintf(err, len, "a cache that prefetches needs at least 2 blocks, not %llu",
                 (unsigned long long)sim->blocks);
        return EINVAL;
    }
    sim->prefetch_blocks = sim->blocks / SHARE_UNIT * c->prefetch_share +
                           sim->blocks % SHARE_UNIT * c->prefetch_share / SHARE_UNIT;
    if (sim->prefetch_blocks == 0)
        sim->prefetch_blocks = 1;
    return 0;
}

static bool is_measuring(const struct qm_sim *sim)
{
    return sim->requests >= sim->config.warmup;
}

static void wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct qm_sim *sim = opaque;

    if (is_measuring(sim) && !(issuer & MEASURED))
        sim->late_wasted++;
    sim->prefetcher->ops->ended(sim->prefetcher, block, issuer & ~MEASURED, 0,
                                QM_FATE_UNUSED);
}

static int no_future(char *err, size_t len, const char *name)
{
    snprintf(err, len, "%s needs to know what the trace holds", name);
    return EINVAL;
}

static int make_cache(struct qm_sim *sim, char *err, size_t len)
{
    struct qm_cache_config config = {
        .block_size = (uint32_t)sim->config.block_size,
        .blocks = sim->blocks,
        .prefetch_blocks = sim->prefetch_blocks,
        .prefetch_adapts = sim->config.share_adapts,
        .shadow = sim->prefetcher->ops->weighs_reads,
        .shards = 1,
        .eviction = sim->config.eviction,
        .data = false,
        .wasted = wasted,
        .opaque = sim,
    };

    if (strcmp(sim->config.eviction, QM_BELADY) == 0) {
        sim->belady.future = sim->config.future;
        if (!sim->config.future || !qm_future_has_next_uses(sim->config.future))
            return no_future(err, len, QM_BELADY);
        config.own_eviction = &qm_evict_belady;
        config.own_opaque = &sim->belady;
    }
    if (qm_cache_check(&config, err, len) != 0)
        return EINVAL;
    if (qm_cache_new(&config, &sim->cache) == 0)
        return 0;
    snprintf(err, len, "out of memory for a cache of %llu blocks",
             (unsigned long long)sim->blocks);
    return ENOMEM;
}

static int make_perfect(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_sim_config *c = &sim->config;

    if (!c->future || !qm_future_has_sequences(c->future, c->level))
        return no_future(err, len, QM_PERFECT);
    sim->prefetcher = qm_perfect_new(c->future, c->level, c->mining.degree);
    if (sim->prefetcher)
        return 0;
    snprintf(err, len, "out of memory");
    return ENOMEM;
}

static int make_by_name(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find(sim->config.policy);
    char why[256] = "";
    int error;

    if (!ops) {
        snprintf(err, len, "there is no policy '%s'; there are: %s, %s",
                 sim->config.policy, qm_prefetcher_names(), QM_PERFECT);
        return EINVAL;
    }
    error = ops->create(&sim->config.mining, &sim->prefetcher, why, sizeof why);
    if (error)
        snprintf(err, len, "%s", why[0] ? why : strerror(error));
    return error;
}

static int make_prefetcher(struct qm_sim *sim, char *err, size_t len)
{
    bool perfect = strcmp(sim->config.policy, QM_PERFECT) == 0;
    int error;

    if (qm_mining_check(&sim->config.mining, err, len) != 0)
        return EINVAL;
    error = perfect ? make_perfect(sim, err, len) : make_by_name(sim, err, len);
    if (error)
        return error;
    error = qm_feed_init(&sim->feed, sim->prefetcher, sim->config.level);
    if (error)
        snprintf(err, len, "out of memory");
    return error;
}

static int make_throttle(struct qm_sim *sim, char *err, size_t len)
{
    if (!sim->config.throttle || !prefetches(&sim->config))
        return 0;
    sim->throttle = qm_throttle_new();
    if (!sim->throttle)
        snprintf(err, len, "out of memory");
    return sim->throttle ? 0 : ENOMEM;
}

static bool is_cached(void *opaque, uint64_t block)
{
    struct qm_sim *sim = opaque;

    return qm_cache_contains(sim->cache, block);
}

/* For how many blocks the device is read, and would be by plain LRU. */
static void count_reads(void *opaque, uint64_t *device, uint64_t *lru)
{
    struct qm_sim *sim = opaque;
    struct qm_cache_reads reads;

    qm_cache_get_reads(sim->cache, &reads);
    *device = reads.device;
    *lru = reads.lru;
}

/* The cache's part of the memory, beside which rules take their usual part of it. */
static uint64_t part_of_total(const struct qm_sim_config *config)
{
    uint64_t size = config->cache_size;

    return config->total_memory ? size / 9 * 8 : size;
}

struct qm_sim *qm_sim_new(const struct qm_sim_config *config, char *err, size_t len)
{
    struct qm_sim *sim = calloc(1, sizeof *sim);

    if (!sim) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    sim->config = *config;
    qm_feed_adjust(&sim->config.mining, config->level);
    sim->config.mining.block_size = config->block_size;
    if (sim->config.mining.rules_memory == 0)
        sim->config.mining.rules_memory = qm_mining_rules_memory(
            config->cache_blocks > 0 ? config->cache_blocks * config->block_size
                                     : part_of_total(config));
    sim->config.mining.cached = is_cached;
    sim->config.mining.reads = count_reads;
    sim->config.mining.opaque = sim;
    if (make_prefetcher(sim, err, len) == 0 && leave_rules(sim, err, len) == 0 &&
        set_capacity(sim, err, len) == 0 && make_cache(sim, err, len) == 0 &&
        make_throttle(sim, err, len) == 0)
        return sim;
    qm_sim_free(sim);
    return NULL;
}

/* Prefetches what target's sequence calls for. */
static int prefetch(struct qm_sim *sim, struct qm_context *target, uint32_t klass)
{
    unsigned most = sim->throttle
                        ? qm_throttle_allow(sim->throttle, klass, QM_CANDIDATES_MAX)
                        : QM_CANDIDATES_MAX;
    uint64_t blocks[QM_CANDIDATES_MAX];
    uint32_t issuer = is_measuring(sim) ? klass | MEASURED : klass;
    struct qm_load *load;
    unsigned n;

    if (most == 0)
        return 0;
    n = sim->prefetcher->ops->candidates(sim->prefetcher, target->stream, blocks, most);
    for (unsigned i = 0; i < n; i++) {
        int error = qm_cache_prefetch(sim->cache, blocks[i], issuer, &load);

        if (error == 0)
            qm_cache_fill(sim->cache, load, NULL);
        if (error == 0 && sim->throttle)
            qm_throttle_issued(sim->throttle, klass);
        if (error != 0 && error != EEXIST && error != ENOSPC)
            return error;
    }
    return 0;
}

/* A block that was prefetched for issuer is read by a context of class klass. */
static void used(struct qm_sim *sim, uint64_t block, uint32_t issuer, uint32_t klass)
{
    if (is_measuring(sim) && !(issuer & MEASURED))
        sim->late_used++;
    issuer &= ~MEASURED;
    sim->prefetcher->ops->ended(sim->prefetcher, block, issuer, klass, QM_FATE_USED);
    if (sim->throttle)
        qm_throttle_used(sim->throttle, issuer, klass);
}

static int read_block(struct qm_sim *sim, struct qm_context *target, uint32_t klass,
                      uint64_t block)
{
    static const enum qm_access as_access[] = {
        [QM_HIT] = QM_ACCESS_HIT,
        [QM_PROMOTE] = QM_ACCESS_PROMOTE,
        [QM_MISS] = QM_ACCESS_MISS,
    };
    struct qm_lookup found;
    int error = qm_cache_demand(sim->cache, block, NULL, 0,
                                (uint32_t)sim->config.block_size, &found);

    if (error)
        return error;
    if (found.todo == QM_FETCH)
        qm_cache_fill(sim->cache, found.load, NULL);
    if (found.outcome == QM_PROMOTE)
        used(sim, block, found.issuer, klass);
    sim->belady.now++; /* hits are told of late, and need no clock */
    error = qm_feed_access(&sim->feed, target, block, as_access[found.outcome]);
    if (error || !target || !target->stream)
        return error;
    if (sim->prefetcher->ops->every_access || found.outcome == QM_MISS ||
        (found.outcome == QM_PROMOTE && sim->config.on_promote))
        error = prefetch(sim, target, klass);
    return error;
}

static int read_blocks(struct qm_sim *sim, const struct qm_event *event)
{
    struct qm_context *target = qm_feed_target(&sim->feed, event);
    uint32_t klass = qm_feed_class(&sim->feed, event);
    uint64_t block = event->offset / sim->config.block_size;
    uint64_t last = (event->offset + event->length - 1) / sim->config.block_size;
    int error = 0;

    for (; block <= last && !error; block++)
        error = read_block(sim, target, klass, block);
    if (++sim->requests == sim->config.warmup) {
        sim->warm_requests = sim->requests;
        sim->warm_writes = sim->writes;
        qm_cache_get_stats(sim->cache, &sim->warm);
    }
    return error;
}

int qm_sim_event(struct qm_sim *sim, const struct qm_event *event)
{
    switch (event->type) {
    case QM_TRACE_READ:
        return read_blocks(sim, event);
    case QM_TRACE_WRITE:
        /* Written through: it neither allocates a block nor makes it more recent. */
        sim->writes++;
        return 0;
    default:
        return qm_feed_context(&sim->feed, event);
    }
}

const struct qm_sim_config *qm_sim_config(const struct qm_sim *sim)
{
    return &sim->config;
}

void qm_sim_result(struct qm_sim *sim, struct qm_sim_result *result)
{
    struct qm_cache_stats now;

    qm_cache_get_stats(sim->cache, &now);
    *result = (struct qm_sim_result){
        .cache_blocks = sim->blocks,
        .prefetch_blocks = now.prefetch_share,
        .metadata_bytes =
            qm_cache_footprint(sim->blocks, (uint32_t)sim->config.block_size) -
            sim->blocks * sim->config.block_size,
        .warming = sim->requests < sim->config.warmup,
        .requests = sim->requests - sim->warm_requests,
        .writes = sim->writes - sim->warm_writes,
        .hits = now.hits - sim->warm.hits,
        .promotes = now.promotes - sim->warm.promotes,
        .misses = now.misses - sim->warm.misses,
        .prefetches = now.prefetches - sim->warm.prefetches,
        .used = now.used - sim->warm.used - sim->late_used,
        .wasted = now.wasted - sim->warm.wasted - sim->late_wasted,
        .lru_misses = now.lru_misses - sim->warm.lru_misses,
    };
    result->reads = result->hits + result->promotes + result->misses;
    sim->prefetcher->ops->stats(sim->prefetcher, &result->mining);
}

void qm_sim_free(struct qm_sim *sim)
{
    if (!sim)
        return;
    /* The cache first: it tells the prefetcher of blocks that go unused. */
    if (sim->cache)
        qm_cache_free(sim->cache);
    if (sim->prefetcher) {
        qm_feed_finish(&sim->feed, false);
        sim->prefetcher->ops->destroy(sim->prefetcher);
    }
    qm_throttle_free(sim->throttle);
    free(sim);
}
