/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c - see engine.h. */
#include "engine/engine.h"

#include "engine/ahead.h"

/* How probable a stream's blocks must be to save reads: to be read on a busy device
 * whose price is not known, and by the last of a budget. */
#define DEMANDED 0.5f

static bool is_cached(void *opaque, uint64_t block)
{
    struct qm_engine *e = opaque;

    return qm_cache_contains(e->cache, block);
}

static void count_reads(void *opaque, uint64_t *device, uint64_t *lru)
{
    struct qm_engine *e = opaque;
    struct qm_cache_reads reads;

    qm_cache_get_reads(e->cache, &reads);
    *device = reads.device;
    *lru = reads.lru;
}

static enum qm_place get_place(void *opaque, uint64_t block)
{
    struct qm_engine *e = opaque;

    if (qm_cache_contains(e->cache, block))
        return QM_PLACE_MEMORY;
    return e->in_tier && e->in_tier(e->opaque, block) ? QM_PLACE_TIER
                                                      : QM_PLACE_BACKEND;
}

static bool get_speed(void *opaque, enum qm_place place, double *begin_ns,
                      double *byte_ns)
{
    const struct qm_engine *e = opaque;

    return e->latency && qm_latency_get(e->latency, place, begin_ns, byte_ns);
}

#define THRESHOLD_MOST 0.95f /* so that something shows when less would do */

/* Misses that a prefetched block saves if it is used. */
static float value(const struct qm_engine *e)
{
    return e->bound && e->bounded ? qm_bound_value(e->bound) : 1;
}

static float threshold(void *opaque)
{
    const struct qm_engine *e = opaque;

    float t;

    if (!e->admission)
        return QM_PRICE_UNKNOWN;
    t = qm_admission_threshold(e->admission) / value(e);
    return t < THRESHOLD_MOST ? t : THRESHOLD_MOST;
}

static void reserve(void *opaque, uint64_t blocks)
{
    struct qm_engine *e = opaque;
    const bool dear = e->bound && e->bounded && qm_bound_is_dear(e->bound);

    qm_cache_reserve(e->cache, dear ? 0 : blocks);
}

static uint64_t capacity(void *opaque)
{
    struct qm_engine *e = opaque;

    return qm_cache_capacity(e->cache);
}

void qm_engine_init(struct qm_engine *e, const struct qm_params *params)
{
    *e = (struct qm_engine){
        .device_blocks = UINT64_MAX,
        .prefetches = qm_params_prefetch(params),
        .on_prefetch_hit = params->on_prefetch_hit,
        .oblivious = params->level == QM_LEVEL_NONE,
    };
}

void qm_engine_set_prefetcher(struct qm_engine *e, struct qm_prefetcher *prefetcher,
                              const struct qm_mining_config *mining)
{
    const unsigned flags = prefetcher->ops->flags;
    const bool all = mining->ablate & QM_ABLATE_MISSES;

    e->prefetcher = prefetcher;
    e->number++;
    if (e->bound)
        qm_watch_reset(&e->bound->watch);
    e->block_size = mining->block_size;
    e->bounded = flags & QM_WEIGHS_READS && !e->blind;
    atomic_store_explicit(&e->ignores_hits,
                          (flags & (QM_NO_HITS | QM_EARLY_HITS)) && !all,
                          memory_order_relaxed);
    atomic_store_explicit(&e->ignores_early_hits, (flags & QM_NO_HITS) && !all,
                          memory_order_relaxed);
}

int qm_engine_create_prefetcher(struct qm_engine *e,
                                const struct qm_prefetcher_ops *ops,
                                const struct qm_mining_config *mining,
                                struct qm_prefetcher **prefetcher, char *err,
                                size_t len)
{
    struct qm_mining_config config = *mining;

    config.cached = is_cached;
    config.reads = e->blind ? NULL : count_reads;
    config.place = get_place;
    config.speed = get_speed;
    config.threshold = threshold;
    config.reserve = reserve;
    config.capacity = capacity;
    config.opaque = e;
    return ops->create(&config, prefetcher, err, len);
}

int qm_engine_make_prefetcher(struct qm_engine *e, const struct qm_prefetcher_ops *ops,
                              const struct qm_mining_config *mining, char *err,
                              size_t len)
{
    struct qm_prefetcher *prefetcher;
    int error = qm_engine_create_prefetcher(e, ops, mining, &prefetcher, err, len);

    if (error == 0)
        qm_engine_set_prefetcher(e, prefetcher, mining);
    return error;
}

void qm_engine_used(const struct qm_engine *e, uint64_t block, uint32_t issuer,
                    uint32_t klass, bool late)
{
    issuer = qm_engine_class(e, issuer);
    klass = qm_engine_class(e, klass);
    e->prefetcher->ops->ended(e->prefetcher, block, issuer, klass,
                              late ? QM_FATE_LATE : QM_FATE_USED);
    if (e->throttle)
        qm_throttle_used(e->throttle, issuer, klass);
}

void qm_engine_wasted(const struct qm_engine *e, uint64_t block, uint32_t issuer)
{
    e->prefetcher->ops->ended(e->prefetcher, block, qm_engine_class(e, issuer), 0,
                              QM_FATE_UNUSED);
}

/* Misses for which a block is watched: a part of the cache's blocks, at least.  The
 * next of a stream may take long to come, where many are read by turns. */
#define HORIZON_RULES   8
#define HORIZON_STREAMS 1
#define HORIZON_LEAST   16

static uint32_t horizon(uint64_t misses)
{
    if (misses < HORIZON_LEAST)
        return HORIZON_LEAST;
    return misses < UINT32_MAX ? (uint32_t)misses : UINT32_MAX;
}

void qm_engine_missed(const struct qm_engine *e, uint64_t block, uint32_t klass)
{
    const uint64_t blocks = qm_cache_capacity(e->cache);
    const uint32_t horizons[2] = {horizon(blocks / HORIZON_RULES),
                                  horizon(blocks / HORIZON_STREAMS)};
    struct qm_watch_end ends[QM_WATCH_ENDS];
    const double took = e->admission ? qm_admission_took(e->admission) : 0;
    unsigned n = 0;

    if (e->bound)
        n = qm_watch_missed(&e->bound->watch, block, took, horizons, ends);
    for (unsigned i = 0; i < n; i++)
        e->prefetcher->ops->ended(e->prefetcher, ends[i].block,
                                  qm_engine_class(e, ends[i].klass),
                                  qm_engine_class(e, klass), ends[i].fate);
}

/* Whether such an access is one to prefetch after. */
static bool wants(const struct qm_engine *e, enum qm_access access)
{
    if (!e->prefetches)
        return false;
    return access == QM_ACCESS_MISS || e->prefetcher->ops->flags & QM_ASK_ALWAYS ||
           (e->on_prefetch_hit && (access == QM_ACCESS_PREFETCH_HIT ||
                                   (access == QM_ACCESS_EARLY_HIT &&
                                    e->prefetcher->ops->flags & QM_EARLY_HITS)));
}

/* Takes the blocks from block on, count of them, out of n candidates.  Of one that
 * begins before them the blocks up to them remain.  Returns how many candidates remain.
 */
static unsigned leave_out(uint64_t block, uint32_t count,
                          struct qm_candidate *candidates, unsigned n)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < n; i++) {
        struct qm_candidate c = candidates[i];

        if (c.block < block && c.count > block - c.block)
            c.count = (uint32_t)(block - c.block);
        if (c.block >= block && c.block - block < count) {
            uint32_t out = count - (uint32_t)(c.block - block);

            if (c.count <= out)
                continue;
            c.block += out;
            c.count -= out;
        }
        candidates[kept++] = c;
    }
    return kept;
}

/* Cuts n candidates, but not those of streams, to `most` blocks; returns how many
 * candidates remain. */
static unsigned cut(struct qm_candidate *candidates, unsigned n, unsigned most)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < n; i++) {
        struct qm_candidate c = candidates[i];

        if (!c.stream && most == 0)
            continue;
        if (c.count > QM_RANGE_MAX)
            c.count = QM_RANGE_MAX;
        if (!c.stream && c.count > most)
            c.count = most;
        if (!c.stream)
            most -= c.count;
        candidates[kept++] = c;
    }
    return kept;
}

void qm_engine_tell(const struct qm_engine *e, uint32_t block_size, uint64_t size,
                    const struct qm_bytes *bytes, unsigned n)
{
    struct qm_extent extents[QM_ENGINE_EXTENTS_MAX];

    if (!e->prefetcher || !e->prefetcher->ops->extents)
        return;
    if (n > QM_ENGINE_EXTENTS_MAX)
        n = QM_ENGINE_EXTENTS_MAX;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t offset = bytes[i].offset, length = bytes[i].length;
        const uint64_t first = offset / block_size;
        const bool within = length > 0 && offset < size && length <= size - offset;

        extents[i] = (struct qm_extent){first, 0};
        if (within)
            extents[i].count = (offset + length - 1) / block_size - first + 1;
    }
    e->prefetcher->ops->extents(e->prefetcher, extents, n);
}

void qm_engine_forget(const struct qm_engine *e, uint64_t block, uint64_t count)
{
    if (count > 0 && e->prefetcher && e->prefetcher->ops->forget)
        e->prefetcher->ops->forget(e->prefetcher, block, count);
}

void qm_engine_refused(const struct qm_engine *e, uint64_t block, uint32_t count)
{
    if (e->prefetcher->ops->refused)
        e->prefetcher->ops->refused(e->prefetcher, block, count);
}

unsigned qm_engine_extend(const struct qm_engine *e, struct qm_stream *stream,
                          uint32_t klass, uint64_t block, uint32_t blocks,
                          enum qm_access access,
                          void (*learn)(void *opaque, struct qm_work *work),
                          void *opaque,
                          struct qm_candidate candidates[QM_CANDIDATES_MAX])
{
    const struct qm_prefetcher_ops *ops = e->prefetcher->ops;
    unsigned most = QM_CANDIDATES_MAX * QM_RANGE_MAX, asked = QM_CANDIDATES_MAX;
    struct qm_work *work = NULL;
    unsigned n;

    if (block >= QM_BLOCKS_MAX)
        return 0;
    if (ops->request)
        ops->request(stream, blocks);
    ops->access(e->prefetcher, stream, block, access, &work);
    if (work)
        learn(opaque, work);
    if (!wants(e, access))
        return 0;
    if (e->throttle)
        most = qm_throttle_allow(e->throttle, qm_engine_class(e, klass), most);
    if (most < asked && !(ops->flags & QM_STREAMS))
        asked = most;
    if (asked == 0)
        return 0;
    n = ops->candidates(e->prefetcher, stream, candidates, asked);
    if (blocks > 1 && !(ops->flags & QM_BLOCK_BY_BLOCK))
        n = leave_out(block, blocks, candidates, n);
    return cut(candidates, n, most);
}

/* How many blocks from block on, at most most, are not cached. */
static uint32_t run_length(const struct qm_engine *e, uint64_t block, uint64_t most)
{
    uint32_t n = 0;

    while (n < most && !qm_cache_contains(e->cache, block + n))
        n++;
    return n;
}

/* What lies ahead of such a stream is read sooner or later, and by far smaller reads.
 */
static bool is_demanded(const struct qm_candidate *c)
{
    return c->stream && c->probability >= DEMANDED;
}

/* Tells the prefetcher of a stream's run that was not issued, or not all of it. */
static void refuse(const struct qm_engine *e, const struct qm_candidate *c,
                   uint64_t block, uint64_t count)
{
    if (!c->stream)
        return;
    for (; count > 0 && qm_cache_contains(e->cache, block); count--)
        block++;
    if (count == 0)
        return;
    if (e->refused)
        e->refused(e->opaque, e->number, block, (uint32_t)count);
    else
        qm_engine_refused(e, block, (uint32_t)count);
}

/* Whether prefetching has paid of late, for such a candidate. */
static bool pays(const struct qm_engine *e, const struct qm_candidate *c)
{
    return !e->bound || !e->bounded || qm_bound_admits(e->bound, e->cache, c->stream);
}

/* Whether the load of the device admits a candidate. */
static bool is_admitted(const struct qm_engine *e, const struct qm_candidate *c,
                        uint64_t now)
{
    if (e->admission && c->probability >= 0)
        return qm_admission_admits(e->admission, c->probability * value(e));
    return is_demanded(c) || now == 0 || !e->load || qm_device_load_admit(e->load, now);
}

/* Whether such a candidate's run of blocks from block on is prefetched.  If it is not,
 * but would be if it were known that this pays, its first block is watched: if that is
 * used, so is the read.  Counts what is not. */
static bool passes(const struct qm_engine *e, uint32_t klass, uint64_t now,
                   const struct qm_candidate *c, uint64_t block, uint64_t run,
                   struct qm_kept_back *kept)
{
    const bool paying = pays(e, c);

    if ((!paying && !qm_bound_watches(e->bound, c->stream)) ||
        !is_admitted(e, c, now)) {
        kept->throttled += (unsigned)run;
        return false;
    }
    if (!paying) {
        kept->watched += (unsigned)run;
        qm_watch_add(&e->bound->watch, block, klass, c->stream);
    }
    return paying;
}

/* Has a run prefetched, if the budget has a read for it. */
static void issue_run(const struct qm_engine *e, uint32_t klass, uint64_t now,
                      const struct qm_candidate *c, uint64_t block, uint64_t run,
                      qm_issue_fn *issue, void *opaque)
{
    unsigned issued;

    if (e->rate && !qm_rate_take(e->rate, now, is_demanded(c))) {
        qm_rate_over(e->rate, run);
        refuse(e, c, block, run);
        return;
    }
    issued = issue(opaque, block, (uint32_t)run);
    if (issued == 0 && e->rate)
        qm_rate_return(e->rate);
    if (issued < run)
        refuse(e, c, block, run);
    if (issued > 0 && e->throttle && !c->stream)
        qm_throttle_issued(e->throttle, qm_engine_class(e, klass), issued);
}

struct qm_kept_back qm_engine_issue(const struct qm_engine *e, uint32_t klass,
                                    uint64_t now, const struct qm_candidate *candidates,
                                    unsigned n, qm_issue_fn *issue, void *opaque)
{
    const uint64_t device_end =
        e->device_blocks < QM_BLOCKS_MAX ? e->device_blocks : QM_BLOCKS_MAX;
    const bool budget = e->rate && qm_rate_is_on(e->rate);
    struct qm_kept_back kept = {.throttled = 0};

    for (unsigned i = 0; i < n; i++) {
        uint64_t block = candidates[i].block, left = candidates[i].count, run;

        /* Rules may be of a time when the device was larger. */
        if (block >= device_end)
            continue;
        if (left > device_end - block)
            left = device_end - block;
        /* The block behind a run is looked for again: it may have left for the run. */
        for (; left > 0; block += run, left -= run) {
            /* With a budget, what is one read. */
            run = run_length(e, block,
                             budget && left > QM_AHEAD_JOIN_MAX ? QM_AHEAD_JOIN_MAX
                                                                : left);
            if (run == 0) {
                run = 1;
            } else if (!passes(e, klass, now, &candidates[i], block, run, &kept)) {
                refuse(e, &candidates[i], block, run);
            } else {
                issue_run(e, klass, now, &candidates[i], block, run, issue, opaque);
            }
        }
    }
    return kept;
}
