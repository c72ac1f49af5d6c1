/* engine.c - see engine.h. */
#include "engine/engine.h"

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

void qm_engine_init(struct qm_engine *e, const struct qm_params *params)
{
    *e = (struct qm_engine){
        .device_blocks = UINT64_MAX,
        .prefetches = qm_params_prefetch(params),
        .on_promote = params->on_promote,
        .oblivious = params->level == QM_LEVEL_NONE,
    };
}

void qm_engine_set_prefetcher(struct qm_engine *e, struct qm_prefetcher *prefetcher,
                              const struct qm_mining_config *mining)
{
    e->prefetcher = prefetcher;
    e->ignores_hits =
        prefetcher->ops->misses_only && !(mining->without & QM_IDEA_MISSES);
}

int qm_engine_make_prefetcher(struct qm_engine *e, const struct qm_prefetcher_ops *ops,
                              const struct qm_mining_config *mining, char *err,
                              size_t len)
{
    struct qm_mining_config config = *mining;
    struct qm_prefetcher *prefetcher;
    int error;

    config.cached = is_cached;
    config.reads = count_reads;
    config.opaque = e;
    error = ops->create(&config, &prefetcher, err, len);
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

/* Whether such an access is one to prefetch after. */
static bool wants(const struct qm_engine *e, enum qm_access access)
{
    if (!e->prefetches)
        return false;
    return access == QM_ACCESS_MISS || e->prefetcher->ops->every_access ||
           (access == QM_ACCESS_PROMOTE && e->on_promote);
}

unsigned qm_engine_extend(const struct qm_engine *e, struct qm_stream *stream,
                          uint32_t klass, uint64_t block, enum qm_access access,
                          void (*learn)(void *opaque, struct qm_work *work),
                          void *opaque, uint64_t candidates[QM_CANDIDATES_MAX])
{
    const struct qm_prefetcher_ops *ops = e->prefetcher->ops;
    unsigned most = QM_CANDIDATES_MAX;
    struct qm_work *work = NULL;

    ops->access(e->prefetcher, stream, block, access, &work);
    if (work)
        learn(opaque, work);
    if (!wants(e, access))
        return 0;
    if (e->throttle)
        most = qm_throttle_allow(e->throttle, qm_engine_class(e, klass), most);
    return most > 0 ? ops->candidates(e->prefetcher, stream, candidates, most) : 0;
}

unsigned qm_engine_issue(const struct qm_engine *e, uint32_t klass, uint64_t now,
                         const uint64_t *candidates, unsigned n,
                         int (*issue)(void *opaque, uint64_t block), void *opaque)
{
    unsigned throttled = 0;

    for (unsigned i = 0; i < n; i++) {
        /* Rules may be of a time when the device was larger. */
        if (candidates[i] >= e->device_blocks ||
            qm_cache_contains(e->cache, candidates[i]))
            continue;
        if (now > 0 && e->load && !qm_device_load_admit(e->load, now)) {
            throttled++;
            continue;
        }
        if (issue(opaque, candidates[i]) == 0 && e->throttle)
            qm_throttle_issued(e->throttle, qm_engine_class(e, klass));
    }
    return throttled;
}
