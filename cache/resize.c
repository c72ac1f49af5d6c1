/* SPDX-License-Identifier: BSD-3-Clause */
/* resize.c - a cache that grows and shrinks while it is used.
 *
 * To grow, each shard takes the memory that its policies need beside the blocks, and
 * its limits are raised; slabs are made when blocks come.
 *
 * To shrink, its limits are lowered and blocks evicted, as if others came; then slabs
 * are given back (trim.c).
 *
 * All of this goes in steps of QM_STEP blocks, with the shard's mutex held for each;
 * hits do not take it.  Only the policies' memory is made anew in one step, some ten
 * nanoseconds a block of the shard: when the capacity leaves what they have memory for,
 * of which an eighth may go unused, or a sixteenth be in reserve.
 */
#include <errno.h>
#include <sched.h>

#include "cache/internal.h"

#define SLACK  16 /* part of the blocks that policies have memory for beyond, grown */
#define UNUSED 8  /* part of what they have memory for that may go unused */

/* ---- What a shard of another capacity is like. */

static uint64_t share_of(const struct qm_cache *cache, uint64_t blocks, unsigned i)
{
    return blocks / cache->shard_count + (i < blocks % cache->shard_count);
}

/* The number of a shard's `blocks` blocks that are for prefetching; if the share
 * adapts, at first. */
static uint64_t prefetch_of(const struct qm_cache *cache, uint64_t blocks)
{
    const struct qm_cache_config *c = &cache->config;
    uint64_t n =
        (uint64_t)((double)blocks * (double)c->prefetch_blocks / (double)c->blocks);

    if (c->prefetch_blocks == 0)
        return 0;
    return n < 1 ? 1 : n < blocks ? n : blocks - 1;
}

/* How many blocks the policies have memory for afterwards. */
static uint64_t made_for(const struct qm_shard *shard, uint64_t blocks)
{
    if (blocks > shard->made)
        return blocks + blocks / SLACK;
    return blocks < shard->made - shard->made / UNUSED ? blocks : shard->made;
}

static size_t beside_of(const struct qm_shard *shard, uint64_t made)
{
    const struct qm_cache *cache = shard->cache;

    return qm_budget_beside(made, made * cache->shard_count, shard->balance.adapts,
                            cache->config.shadow);
}

static void limits_of(const struct qm_shard *shard, uint64_t blocks, uint64_t made,
                      struct qm_limits *limits)
{
    const struct qm_cache *cache = shard->cache;
    uint64_t buckets;

    qm_limits_get(limits, blocks, cache->config.block_size, cache->config.data,
                  cache->stripes, qm_evict_bytes(shard->main_ops, made),
                  beside_of(shard, made));
    if (cache->config.evicted)
        limits->batch = qm_limits_batch(blocks);
    buckets =
        limits->buckets < shard->most_buckets ? limits->buckets : shard->most_buckets;
    limits->bytes -= (limits->buckets - buckets) * sizeof(struct cds_lfht_node);
    limits->buckets = buckets;
    limits->bufs_a_slab = shard->limits.bufs_a_slab; /* that slabs have already */
    /* Slabs are made as a whole, and some are smaller than others. */
    limits->bytes += qm_budget_block_slab(QM_BLOCKS_A_SLAB) +
                     (shard->odd_slabs + 2) * qm_budget_buf_slab(0, 0) +
                     limits->bufs_a_slab * sizeof(struct qm_buf);
}

/* ---- Steps. */

/* Of made blocks, the most that the main policy has memory for. */
static uint64_t main_of(const struct qm_shard *shard, uint64_t made)
{
    return shard->balance.adapts ? made : made - prefetch_of(shard->cache, made);
}

static int reserve(struct qm_shard *shard, uint64_t made)
{
    uint64_t most = main_of(shard, made);
    const struct qm_evict_ops *ops = shard->main_ops;

    if (!ops->reserve && qm_evict_bytes(ops, made) > qm_evict_bytes(ops, shard->made))
        return ENOTSUP;
    if ((ops->reserve && ops->reserve(shard->main, most) != 0) ||
        qm_balance_reserve(&shard->balance, made) != 0 ||
        qm_shadow_reserve(&shard->shadow, made, made * shard->cache->shard_count) != 0)
        return ENOMEM;
    return 0;
}

/* What the policies have memory for changes; mutex held.  When memory is out in the
 * midst of it, some have it for as many as before, and others do not: so it is for the
 * fewer, and what is counted is for the more. */
static int change_made(struct qm_shard *shard, uint64_t made)
{
    size_t bytes = qm_evict_bytes(shard->main_ops, made) + beside_of(shard, made);
    int error;

    qm_shard_drain(shard);
    error = reserve(shard, made);
    if (error == ENOTSUP)
        return error;
    if (error == 0 || made < shard->made) {
        shard->made = made;
        shard->main_made = main_of(shard, made);
    }
    if (error == 0 || bytes > shard->made_bytes) {
        shard->bytes = shard->bytes - shard->made_bytes + bytes;
        shard->made_bytes = bytes;
    }
    return error;
}

/* Before it grows. */
static int grow_policies(struct qm_shard *shard, uint64_t blocks)
{
    uint64_t made;
    int error = 0;

    pthread_mutex_lock(&shard->lock);
    made = made_for(shard, blocks);
    if (made > shard->made)
        error = change_made(shard, made);
    pthread_mutex_unlock(&shard->lock);
    return error;
}

/* When it has shrunk. */
static int shrink_policies(struct qm_shard *shard, uint64_t blocks)
{
    uint64_t made;
    int error = 0;

    pthread_mutex_lock(&shard->lock);
    made = made_for(shard, blocks);
    if (made < shard->made)
        error = change_made(shard, made);
    pthread_mutex_unlock(&shard->lock);
    return error == ENOTSUP ? 0 : error;
}

/* At first the shards share what is for prefetching, and prefetch_of() may be a block
 * less than that. */
static void set_capacity(struct qm_shard *shard, uint64_t blocks)
{
    uint64_t prefetch = prefetch_of(shard->cache, blocks);

    pthread_mutex_lock(&shard->lock);
    qm_shard_drain(shard);
    shard->resized = true;
    limits_of(shard, blocks, shard->made, &shard->limits);
    atomic_store_explicit(&shard->batch, shard->limits.batch, memory_order_relaxed);
    if (blocks > shard->main_made && prefetch < blocks - shard->main_made)
        prefetch = blocks - shard->main_made;
    qm_balance_resize(&shard->balance, blocks, prefetch);
    qm_shadow_resize(&shard->shadow, blocks,
                     shard->cache->compared / shard->cache->shard_count);
    qm_shard_resize_main(shard);
    pthread_mutex_unlock(&shard->lock);
}

/* A step of evicting.  Returns whether there is more to evict. */
static bool evict_some(struct qm_shard *shard)
{
    enum qm_part part = QM_PART_NONE;
    bool reclaim;

    pthread_mutex_lock(&shard->lock);
    qm_shard_drain(shard);
    for (int i = 0; i < QM_STEP; i++) {
        part = qm_balance_excess(&shard->balance, &shard->held);
        if (part == QM_PART_NONE)
            break;
        qm_shard_evict(shard, part, QM_EVICT_NOBODY);
    }
    reclaim = shard->limbo >= shard->limits.batch;
    pthread_mutex_unlock(&shard->lock);
    if (reclaim)
        qm_slab_reclaim(shard, true);
    return part != QM_PART_NONE;
}

static void shrink_table(struct qm_shard *shard)
{
    uint64_t buckets = 0;

    pthread_mutex_lock(&shard->lock);
    while (shard->growing) { /* by another thread, for a moment */
        pthread_mutex_unlock(&shard->lock);
        sched_yield();
        pthread_mutex_lock(&shard->lock);
    }
    if (shard->buckets > shard->limits.buckets) {
        buckets = shard->limits.buckets;
        shard->growing = true;
    }
    pthread_mutex_unlock(&shard->lock);
    if (buckets == 0)
        return;
    cds_lfht_resize(shard->table, buckets);
    pthread_mutex_lock(&shard->lock);
    shard->bytes -= (shard->buckets - buckets) * sizeof(struct cds_lfht_node);
    shard->buckets = buckets;
    shard->growing = false;
    pthread_mutex_unlock(&shard->lock);
}

/* ---- The interface. */

uint64_t qm_cache_capacity(struct qm_cache *cache)
{
    return atomic_load_explicit(&cache->blocks, memory_order_relaxed);
}

/* resize_lock held: nobody else changes what is looked at here. */
static uint64_t bound(struct qm_cache *cache, uint64_t blocks)
{
    uint64_t bytes = sizeof(*cache);

    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];
        struct qm_limits limits;

        pthread_mutex_lock(&shard->lock);
        limits_of(shard, share_of(cache, blocks, i),
                  made_for(shard, share_of(cache, blocks, i)), &limits);
        pthread_mutex_unlock(&shard->lock);
        bytes += limits.bytes;
    }
    return bytes;
}

/* Of each shard, a block of either part. */
static uint64_t least(const struct qm_cache *cache)
{
    return (cache->config.prefetch_blocks > 0 ? 2 : 1) * (uint64_t)cache->shard_count;
}

uint64_t qm_cache_resize_within(struct qm_cache *cache, uint64_t bytes)
{
    uint64_t low = least(cache) - 1, high;

    bytes = bytes < INT64_MAX ? bytes : INT64_MAX;
    high = bytes / cache->config.block_size;
    if (high > QM_MAX_BLOCKS)
        high = QM_MAX_BLOCKS;
    pthread_mutex_lock(&cache->resize_lock);
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;

        if (bound(cache, middle) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    pthread_mutex_unlock(&cache->resize_lock);
    return low < least(cache) ? 0 : low;
}

static int resize(struct qm_cache *cache, uint64_t blocks)
{
    int error = 0, e;

    for (unsigned i = 0; i < cache->shard_count && error == 0; i++)
        error = grow_policies(&cache->shards[i], share_of(cache, blocks, i));
    if (error != 0)
        return error;
    atomic_store_explicit(&cache->blocks, blocks, memory_order_relaxed);
    for (unsigned i = 0; i < cache->shard_count; i++)
        set_capacity(&cache->shards[i], share_of(cache, blocks, i));
    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];

        while (evict_some(shard))
            ;
        shrink_table(shard);
        e = qm_shard_trim(shard);
        error = error == 0 ? e : error;
        e = shrink_policies(shard, share_of(cache, blocks, i));
        error = error == 0 ? e : error;
    }
    return error;
}

int qm_cache_resize(struct qm_cache *cache, uint64_t blocks)
{
    int error;

    if (blocks < least(cache) || blocks > QM_MAX_BLOCKS)
        return EINVAL;
    pthread_mutex_lock(&cache->resize_lock);
    error = resize(cache, blocks);
    pthread_mutex_unlock(&cache->resize_lock);
    return error;
}

void qm_cache_compare(struct qm_cache *cache, uint64_t blocks)
{
    pthread_mutex_lock(&cache->resize_lock);
    cache->compared = blocks;
    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];
        const uint64_t share = share_of(cache, qm_cache_capacity(cache), i);

        pthread_mutex_lock(&shard->lock);
        qm_shard_drain(shard);
        qm_shadow_resize(&shard->shadow, share, blocks / cache->shard_count);
        pthread_mutex_unlock(&shard->lock);
    }
    pthread_mutex_unlock(&cache->resize_lock);
}
