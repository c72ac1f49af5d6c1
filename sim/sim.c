/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.c - a storage cache simulated on a trace.
 *
 * For each block of a read, in ascending order: the cache is asked; a miss enters it;
 * and what the engine makes of that (engine/engine.h) is carried out at once.  With a
 * device it is virtual.h that does it, in time.
 */
#include "sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/internal.h"

void qm_sim_defaults(struct qm_sim_config *config)
{
    *config = (struct qm_sim_config){.paper = false};
    qm_params_defaults(&config->params);
}

void qm_sim_paper(struct qm_sim_config *config)
{
    *config = (struct qm_sim_config){.paper = true};
    qm_params_paper(&config->params);
}

/* Whether the memory in all can be said for a policy, and leaves something for blocks.
 * Returns 0 or EINVAL. */
static int check_total(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_sim_config *c = &sim->config;

    if (!c->total_memory || !qm_params_prefetch(&c->params))
        return 0;
    if (!(sim->engine.prefetcher->ops->flags & QM_BOUNDED_RULES)) {
        snprintf(err, len,
                 "the rules of policy '%s' may take any memory, so the memory in all "
                 "can be said for the policies none, ppm, readahead and auto only",
                 c->params.policy);
        return EINVAL;
    }
    if (c->cache_size == 0) {
        snprintf(err, len, "rules of %llu bytes leave nothing for blocks",
                 (unsigned long long)c->params.mining.rules_memory);
        return EINVAL;
    }
    return 0;
}

/* How many blocks the cache has.  Returns 0 or EINVAL. */
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
    if (!qm_params_prefetch(&c->params))
        return 0;
    if (c->params.prefetch_share < 1 || c->params.prefetch_share >= QM_SHARE_ALL) {
        snprintf(err, len, "the prefetch share must be above 0 and below 100 percent");
        return EINVAL;
    }
    if (sim->blocks < 2) {
        snprintf(err, len, "a cache that prefetches needs at least 2 blocks, not %llu",
                 (unsigned long long)sim->blocks);
        return EINVAL;
    }
    return 0;
}

static void wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct qm_sim *sim = opaque;

    if (sim->measuring && !(issuer & QM_SIM_MEASURED))
        sim->late_wasted++;
    qm_engine_wasted(&sim->engine, block, issuer & ~QM_SIM_MEASURED);
}

static uint64_t leaving(void *opaque, uint64_t block)
{
    const struct qm_sim *sim = opaque;

    (void)block;
    return qm_sim_tier_ticket(sim->tier);
}

static void evicted(void *opaque, uint64_t block, const void *data, uint64_t number)
{
    const struct qm_sim *sim = opaque;

    (void)data;
    qm_sim_tier_evicted(sim->tier, block, number);
}

static int make_tier(struct qm_sim *sim, char *err, size_t len)
{
    return sim->config.tier.size == 0
               ? 0
               : qm_sim_tier_new(&sim->config.tier, sim->config.block_size, &sim->tier,
                                 err, len);
}

static int no_future(char *err, size_t len, const char *name)
{
    snprintf(err, len, "%s needs to know what the trace holds", name);
    return EINVAL;
}

static int make_cache(struct qm_sim *sim, char *err, size_t len)
{
    struct qm_cache_config config =
        qm_params_cache(&sim->config.params, sim->engine.prefetcher->ops,
                        sim->config.block_size, sim->blocks);

    config.shards = 1;
    config.wasted = wasted;
    config.opaque = sim;
    if (strcmp(sim->config.params.eviction, QM_BELADY) == 0) {
        sim->belady.future = sim->config.future;
        if (!sim->config.future || !qm_future_has_next_uses(sim->config.future))
            return no_future(err, len, QM_BELADY);
        config.own_eviction = &qm_evict_belady;
        config.own_opaque = &sim->belady;
    }
    if (sim->config.tier.size > 0) {
        config.leaving = leaving;
        config.evicted = evicted;
    }
    if (qm_cache_check(&config, err, len) != 0)
        return EINVAL;
    if (qm_cache_new(&config, &sim->cache) == 0) {
        sim->engine.cache = sim->cache;
        return 0;
    }
    snprintf(err, len, "out of memory for a cache of %llu blocks",
             (unsigned long long)sim->blocks);
    return ENOMEM;
}

void qm_sim_measure(struct qm_sim *sim)
{
    sim->measuring = true;
    sim->warm_requests = sim->requests;
    sim->warm_writes = sim->writes;
    sim->warm_ahead_reads = sim->ahead_reads;
    sim->warm_over = atomic_load(&sim->rate.over);
    qm_cache_get_stats(sim->cache, &sim->warm);
    if (sim->tier)
        qm_sim_tier_counts(sim->tier, &sim->warm_tier);
    if (sim->explain)
        qm_explain_counts(sim->explain, sim->warm_explained);
}

void qm_sim_found(struct qm_sim *sim, uint64_t block, struct qm_lookup *found)
{
    if (found->outcome == QM_PREFETCH_HIT && sim->tier)
        qm_sim_tier_used(sim->tier, block);
    if (found->outcome == QM_PREFETCH_HIT && sim->measuring &&
        !(found->issuer & QM_SIM_MEASURED))
        sim->late_used++;
    found->issuer &= ~QM_SIM_MEASURED;
}

struct qm_sim_class *qm_sim_class_at(struct qm_sim *sim, uint32_t klass)
{
    uint32_t count = sim->class_count ? sim->class_count : 64;
    struct qm_sim_class *classes;

    if (!sim->config.by_class)
        return NULL;
    if (klass < sim->class_count)
        return &sim->classes[klass];
    while (count <= klass)
        count *= 2; /* at most QM_CLASSES_MAX + 2 are asked for */
    classes = reallocarray(sim->classes, count, sizeof *classes);
    if (!classes)
        return NULL;
    memset(classes + sim->class_count, 0, (count - sim->class_count) * sizeof *classes);
    sim->classes = classes;
    sim->class_count = count;
    return &classes[klass];
}

void qm_sim_class_found(struct qm_sim *sim, uint32_t klass, enum qm_access access)
{
    struct qm_sim_class *c = qm_sim_class_at(sim, klass);

    if (!c)
        return;
    switch (access) {
    case QM_ACCESS_HIT:
    case QM_ACCESS_EARLY_HIT:
        c->hits++;
        return;
    case QM_ACCESS_PREFETCH_HIT:
        c->prefetch_hits++;
        return;
    default:
        c->misses++;
    }
}

uint32_t qm_sim_class_count(const struct qm_sim *sim)
{
    uint32_t named = sim->feed.classes.count + 2;

    return sim->class_count < named ? sim->class_count : named;
}

const struct qm_sim_class *qm_sim_class(const struct qm_sim *sim, uint32_t number,
                                        const char **name)
{
    *name = number > 1 ? qm_classes_name(&sim->feed.classes, number - 1) : NULL;
    return &sim->classes[number];
}

static int make_perfect(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_params *p = &sim->config.params;
    struct qm_prefetcher *prefetcher;

    if (!sim->config.future || !qm_future_has_sequences(sim->config.future, p->level))
        return no_future(err, len, QM_PERFECT);
    prefetcher = qm_perfect_new(sim->config.future, p->level, p->mining.degree);
    if (prefetcher) {
        qm_engine_set_prefetcher(&sim->engine, prefetcher, &p->mining);
        return 0;
    }
    snprintf(err, len, "out of memory");
    return ENOMEM;
}

static int make_by_name(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_params *p = &sim->config.params;
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find(p->policy);
    char why[256] = "";
    int error;

    if (!ops) {
        snprintf(err, len, "there is no policy '%s'; there are: %s, %s", p->policy,
                 qm_prefetcher_names(), QM_PERFECT);
        return EINVAL;
    }
    error = qm_engine_make_prefetcher(&sim->engine, ops, &p->mining, why, sizeof why);
    if (error)
        snprintf(err, len, "%s", why[0] ? why : strerror(error));
    return error;
}

static int make_explain(struct qm_sim *sim, char *err, size_t len)
{
    sim->explain = qm_explain_new(sim->engine.prefetcher);
    sim->engine.prefetcher = NULL;
    if (!sim->explain) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    qm_engine_set_prefetcher(&sim->engine, qm_explain_prefetcher(sim->explain),
                             &sim->config.params.mining);
    return 0;
}

/* For the engine; before the tier is made, it is asked nothing. */
static bool in_tier(void *opaque, uint64_t block)
{
    const struct qm_sim *sim = opaque;

    return qm_sim_tier_has(sim->tier, block);
}

static int make_prefetcher(struct qm_sim *sim, char *err, size_t len)
{
    bool perfect = strcmp(sim->config.params.policy, QM_PERFECT) == 0;
    int error;

    if (qm_mining_check(&sim->config.params.mining, err, len) != 0)
        return EINVAL;
    error = perfect ? make_perfect(sim, err, len) : make_by_name(sim, err, len);
    if (!error && sim->config.explain)
        error = make_explain(sim, err, len);
    if (error)
        return error;
    error = qm_feed_init(&sim->feed, sim->engine.prefetcher, sim->config.params.level);
    if (error)
        snprintf(err, len, "out of memory");
    return error;
}

static int make_throttle(struct qm_sim *sim, char *err, size_t len)
{
    if (!sim->config.params.throttle || !sim->engine.prefetches)
        return 0;
    sim->engine.load = &sim->load;
    sim->engine.throttle = qm_throttle_new();
    if (!sim->engine.throttle)
        snprintf(err, len, "out of memory");
    return sim->engine.throttle ? 0 : ENOMEM;
}

static int make_timed(struct qm_sim *sim, char *err, size_t len)
{
    const struct qm_params *p = &sim->config.params;

    if (!sim->config.timed)
        return 0;
    if (strcmp(p->eviction, QM_BELADY) == 0 ||
        (strcmp(p->policy, QM_PERFECT) == 0 && p->level == QM_LEVEL_NONE)) {
        snprintf(err, len,
                 "%s knows the order of the trace, which clients and a device do not "
                 "keep",
                 strcmp(p->eviction, QM_BELADY) == 0 ? QM_BELADY
                                                     : "perfect at level none");
        return EINVAL;
    }
    sim->timed = qm_virtual_new(sim, sim->config.timed, err, len);
    return sim->timed ? 0 : EINVAL;
}

/* What the rules have of the memory at first; 0: theirs is beside it. */
static uint64_t rules_bytes(const struct qm_sim_config *config)
{
    const struct qm_prefetcher_ops *ops = qm_prefetcher_find(config->params.policy);

    if (config->cache_blocks > 0 || config->paper || !ops)
        return 0;
    return qm_params_rules_bytes(&config->params, ops, config->cache_size);
}

/* The cache's part of the memory.  Rules whose memory is said are beside it, but in the
 * memory in all. */
static uint64_t block_bytes(const struct qm_sim_config *config)
{
    uint64_t size = config->cache_size, said = config->params.mining.rules_memory;

    if (config->cache_blocks > 0)
        return config->cache_blocks * config->block_size;
    if (config->total_memory && qm_params_prefetch(&config->params))
        return said < size ? size - said - rules_bytes(config) : 0;
    return size - rules_bytes(config);
}

/* A cache whose order of eviction is known from the future cannot grow. */
static void start_trade(struct qm_sim *sim, uint64_t rules)
{
    const struct qm_prefetcher_ops *ops = sim->engine.prefetcher->ops;

    qm_memory_init(&sim->memory,
                   &(struct qm_memory_config){
                       .cache = sim->cache,
                       .prefetcher = sim->engine.prefetcher,
                       .admission = sim->engine.admission,
                       .bound = sim->engine.bound,
                       .block_size = (uint32_t)sim->config.block_size,
                       .total = sim->config.cache_size + rules,
                       .rules = rules,
                       .trades = rules > 0 &&
                                 strcmp(sim->config.params.eviction, QM_BELADY) != 0 &&
                                 qm_params_trades(&sim->config.params, ops),
                       .simulated = true,
                   });
}

/* Where files lie, as a client would say it. */
static void tell(struct qm_sim *sim)
{
    const struct qm_bytes *extents = sim->config.extents;
    const uint64_t size = sim->config.timed ? sim->config.timed->size : INT64_MAX;
    size_t from = 0, n = 0;

    for (size_t i = 0; i < sim->config.extent_count; i++) {
        const bool last =
            i + 1 == sim->config.extent_count || extents[i + 1].length == 0;

        if (extents[i].length == 0) {
            from = i + 1;
            n = 0;
            continue;
        }
        if (++n < QM_ENGINE_EXTENTS_MAX && !last)
            continue;
        qm_engine_tell(&sim->engine, (uint32_t)sim->config.block_size, size,
                       &extents[from], (unsigned)n);
        from = i; /* the last is the first again */
        n = 1;
    }
}

/* Without virtual time, none is. */
static uint64_t get_time(void *opaque)
{
    const struct qm_sim *sim = opaque;

    return sim->timed ? qm_virtual_now(sim->timed) : 0;
}

struct qm_sim *qm_sim_new(const struct qm_sim_config *config, char *err, size_t len)
{
    struct qm_sim *sim = aligned_alloc(_Alignof(struct qm_sim), sizeof *sim);
    uint64_t bytes = block_bytes(config), rules = rules_bytes(config);

    if (!sim) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    memset(sim, 0, sizeof *sim);
    sim->config = *config;
    if (config->cache_blocks == 0)
        sim->config.cache_size = bytes;
    sim->measuring = config->warmup == 0 && !config->timed;
    qm_params_complete(&sim->config.params, config->block_size, bytes, rules);
    qm_engine_init(&sim->engine, &sim->config.params);
    qm_device_load_init(&sim->load);
    qm_latency_init(&sim->latency);
    sim->engine.latency = &sim->latency;
    if (config->tier.size > 0) {
        sim->engine.in_tier = in_tier;
        sim->engine.opaque = sim;
    }
    qm_admission_init(&sim->admission);
    qm_bound_init(&sim->bound);
    sim->bound.watch.clock = get_time;
    sim->bound.watch.opaque = sim;
    sim->engine.bound = sim->config.params.throttle ? &sim->bound : NULL;
    qm_rate_init(&sim->rate);
    qm_rate_set(&sim->rate, &sim->config.params.budget);
    sim->engine.rate = &sim->rate;
    if (sim->config.params.admission && sim->config.timed)
        sim->engine.admission = &sim->admission;
    if (make_prefetcher(sim, err, len) == 0 && check_total(sim, err, len) == 0 &&
        set_capacity(sim, err, len) == 0 && make_tier(sim, err, len) == 0 &&
        make_cache(sim, err, len) == 0 && make_throttle(sim, err, len) == 0 &&
        make_timed(sim, err, len) == 0) {
        start_trade(sim, rules);
        tell(sim);
        return sim;
    }
    qm_sim_free(sim);
    return NULL;
}

void qm_sim_tick(struct qm_sim *sim)
{
    if (sim->requests % QM_SIM_TICK != 0)
        return;
    qm_memory_tick(&sim->memory);
    sim->blocks = qm_cache_capacity(sim->cache);
}

/* One block's candidates on their way into the cache. */
struct issue {
    struct qm_sim *sim;
    uint32_t issuer;
    int error;
};

static unsigned prefetch(void *opaque, uint64_t block, uint32_t count)
{
    struct issue *issue = opaque;
    struct qm_cache *cache = issue->sim->cache;
    struct qm_fill *fill;
    unsigned n = 0, beyond = 0;

    for (; count > 0; block++, count--) {
        int error = qm_cache_prefetch(cache, block, issue->issuer, &fill);

        if (error == 0) {
            if (!issue->sim->tier || !qm_sim_tier_read(issue->sim->tier, block, true))
                beyond++; /* the tier */
            qm_cache_fill(cache, fill, NULL);
            n++;
        } else if (error != EEXIST && error != ENOSPC) {
            issue->error = error;
        }
    }
    if (n > 0 && beyond == 0)
        qm_rate_return(&issue->sim->rate);
    if (beyond > 0) {
        (void)qm_rate_read(&issue->sim->rate, issue->sim->now, 1); /* as promised */
        issue->sim->ahead_reads++;
    }
    return n;
}

/* How a block was found; the issuer as the engine knows it. */
static int look_up(struct qm_sim *sim, uint64_t block, struct qm_lookup *found)
{
    int error = qm_cache_demand(sim->cache, block, NULL, 0,
                                (uint32_t)sim->config.block_size, found);

    if (error)
        return error;
    if (found->todo == QM_FETCH) {
        if (sim->tier)
            (void)qm_sim_tier_read(sim->tier, block, false);
        qm_cache_fill(sim->cache, found->fill, NULL);
    }
    qm_sim_found(sim, block, found);
    sim->belady.now++; /* hits are told of late, and need no clock */
    return 0;
}

/* left: blocks of the request from this one on. */
static int read_block(struct qm_sim *sim, struct qm_context *target, uint32_t klass,
                      uint64_t block, uint64_t left)
{
    const struct qm_engine *e = &sim->engine;
    struct issue issue = {sim, qm_sim_issuer(sim, klass), 0};
    struct qm_candidate candidates[QM_CANDIDATES_MAX];
    struct qm_lookup found;
    enum qm_access access;
    int error = look_up(sim, block, &found);
    unsigned n;

    if (error)
        return error;
    access = qm_engine_found(e, block, klass, &found);
    if (access == QM_ACCESS_MISS && qm_bound_is_watching(&sim->bound))
        qm_engine_missed(e, block, klass);
    if (sim->config.by_class && sim->measuring)
        qm_sim_class_found(sim, klass, access);
    if (!e->prefetches || qm_engine_ignores(e, access) || !target || !target->stream)
        return 0;
    n = qm_engine_extend(e, target->stream, klass, block,
                         left < UINT32_MAX ? (uint32_t)left : UINT32_MAX, access,
                         qm_feed_learn, &sim->feed, candidates);
    qm_engine_issue(e, klass, qm_engine_needs_time(e) ? sim->now : 0, candidates, n,
                    prefetch, &issue);
    return sim->feed.error ? sim->feed.error : issue.error;
}

static int read_blocks(struct qm_sim *sim, const struct qm_event *event)
{
    struct qm_context *target = qm_feed_target(&sim->feed, event);
    uint32_t klass = qm_feed_class(&sim->feed, event);
    uint64_t block = event->offset / sim->config.block_size;
    uint64_t last = (event->offset + event->length - 1) / sim->config.block_size;
    int error = 0;

    sim->now = 1000 * event->us + 1;
    for (; block <= last && !error; block++)
        error = read_block(sim, target, klass, block, last - block + 1);
    sim->requests++;
    qm_sim_tick(sim);
    if (sim->requests == sim->config.warmup)
        qm_sim_measure(sim);
    return error;
}

int qm_sim_event(struct qm_sim *sim, const struct qm_event *event)
{
    if (sim->timed)
        return qm_virtual_event(sim->timed, event);
    if (sim->tier)
        qm_sim_tier_time(sim->tier, event->us * 1000);
    switch (event->type) {
    case QM_TRACE_READ:
        return read_blocks(sim, event);
    case QM_TRACE_WRITE:
        /* Written through: it neither allocates a block nor makes it more recent. */
        sim->writes++;
        if (sim->tier)
            qm_sim_tier_changed(sim->tier, event->offset, event->length);
        return 0;
    default:
        return qm_feed_context(&sim->feed, event);
    }
}

int qm_sim_finish(struct qm_sim *sim)
{
    int error = sim->timed ? qm_virtual_finish(sim->timed) : 0;

    return !error && sim->explain ? qm_explain_error(sim->explain) : error;
}

const struct qm_sim_config *qm_sim_config(const struct qm_sim *sim)
{
    return &sim->config;
}

/* Misses that the prefetcher was not told of had no context. */
static void explain(const struct qm_sim *sim, struct qm_sim_result *result)
{
    uint64_t told = 0;

    qm_explain_counts(sim->explain, result->missed);
    for (unsigned i = 0; i < QM_REASON_COUNT; i++) {
        result->missed[i] -= sim->warm_explained[i];
        told += result->missed[i];
    }
    result->missed[QM_REASON_NO_CONTEXT] = result->misses - told;
}

static void tell_tier(const struct qm_sim *sim, struct qm_sim_result *result)
{
    struct qm_sim_tier_counts *n = &result->tier;

    qm_sim_tier_counts(sim->tier, n);
    n->lookups -= sim->warm_tier.lookups;
    n->hits -= sim->warm_tier.hits;
    n->inserted -= sim->warm_tier.inserted;
    n->kept -= sim->warm_tier.kept;
    n->refused -= sim->warm_tier.refused;
    n->invalidated -= sim->warm_tier.invalidated;
    n->bytes_written -= sim->warm_tier.bytes_written;
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
        .prefetch_hits = now.prefetch_hits - sim->warm.prefetch_hits,
        .misses = now.misses - sim->warm.misses + sim->past,
        .prefetches = now.prefetches - sim->warm.prefetches,
        .used = now.used - sim->warm.used - sim->late_used,
        .wasted = now.wasted - sim->warm.wasted - sim->late_wasted,
        .lru_misses = now.lru_misses - sim->warm.lru_misses,
        .ahead_reads = sim->ahead_reads - sim->warm_ahead_reads,
        .over_rate = atomic_load(&sim->rate.over) - sim->warm_over,
    };
    result->reads = result->hits + result->prefetch_hits + result->misses;
    sim->engine.prefetcher->ops->stats(sim->engine.prefetcher, &result->mining);
    if (sim->explain)
        explain(sim, result);
    if (sim->tier)
        tell_tier(sim, result);
    if (sim->timed)
        qm_virtual_result(sim->timed, &result->timed);
}

void qm_sim_free(struct qm_sim *sim)
{
    if (!sim)
        return;
    qm_virtual_free(sim->timed);
    if (sim->memory.config.cache)
        qm_memory_destroy(&sim->memory);
    /* The cache first: it tells the prefetcher of blocks that go unused. */
    if (sim->cache)
        qm_cache_free(sim->cache);
    qm_sim_tier_free(sim->tier);
    if (sim->engine.prefetcher) {
        qm_feed_finish(&sim->feed, false);
        sim->engine.prefetcher->ops->destroy(sim->engine.prefetcher);
    }
    qm_throttle_free(sim->engine.throttle);
    qm_device_load_destroy(&sim->load);
    qm_latency_destroy(&sim->latency);
    qm_admission_destroy(&sim->admission);
    qm_bound_destroy(&sim->bound);
    qm_rate_destroy(&sim->rate);
    free(sim->classes);
    free(sim);
}
