/* SPDX-License-Identifier: BSD-3-Clause */
/* cache.c - the interface of cache.h: look-ups, fills, waiting.
 *
 * A struct qm_fill is a struct qm_block with a reference held; callers never look
 * inside.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/internal.h"

static struct qm_fill *fill_of(struct qm_block *block)
{
    return (struct qm_fill *)block;
}

static struct qm_block *block_of(struct qm_fill *fill)
{
    return (struct qm_block *)fill;
}

int qm_cache_new(const struct qm_cache_config *config, struct qm_cache **result)
{
    uint64_t main_blocks = config->blocks - config->prefetch_blocks;
    struct qm_cache *cache;
    size_t bytes;

    if (qm_cache_check(config, NULL, 0) != 0)
        return EINVAL;
    cache = calloc(1, sizeof(*cache));
    if (!cache)
        return ENOMEM;
    cache->config = *config;
    if (!config->own_eviction)
        cache->config.eviction = qm_evict_find(config->eviction)->name;
    cache->shard_count =
        qm_budget_shards(config->blocks, config->prefetch_blocks, config->shards);
    cache->stripes = qm_budget_stripes(config->shards);
    atomic_init(&cache->blocks, config->blocks);
    pthread_mutex_init(&cache->resize_lock, NULL);
    pthread_rwlock_init(&cache->slabs_lock, NULL);
    pthread_mutex_init(&cache->writes_lock, NULL);
    pthread_mutex_init(&cache->grace_lock, NULL);
    pthread_cond_init(&cache->grace_ended, NULL);

    bytes = cache->shard_count * sizeof(struct qm_shard);
    cache->shards = aligned_alloc(__alignof__(struct qm_shard), bytes);
    if (!cache->shards) {
        cache->shard_count = 0;
        qm_cache_free(cache);
        return ENOMEM;
    }
    memset(cache->shards, 0, bytes);
    for (unsigned i = 0, n = cache->shard_count; i < n; i++) {
        uint64_t main = main_blocks / n + (i < main_blocks % n);
        uint64_t prefetch =
            config->prefetch_blocks / n + (i < config->prefetch_blocks % n);

        if (qm_shard_init(&cache->shards[i], cache, main + prefetch, prefetch) != 0) {
            cache->shard_count = i + 1;
            qm_cache_free(cache);
            return ENOMEM;
        }
    }
    *result = cache;
    return 0;
}

void qm_cache_free(struct qm_cache *cache)
{
    if (!cache)
        return;
    for (unsigned i = 0; i < cache->shard_count; i++)
        qm_shard_destroy(&cache->shards[i]);
    free(cache->shards);
    pthread_cond_destroy(&cache->grace_ended);
    pthread_mutex_destroy(&cache->grace_lock);
    pthread_mutex_destroy(&cache->writes_lock);
    pthread_rwlock_destroy(&cache->slabs_lock);
    pthread_mutex_destroy(&cache->resize_lock);
    free(cache);
}

/* Within the RCU read-side section in which block was found, or with a reference. */
static void copy_out(struct qm_cache *cache, struct qm_block *block, void *to,
                     uint32_t offset, uint32_t count)
{
    if (cache->config.data)
        memcpy(to, atomic_load_explicit(&block->bytes, memory_order_acquire) + offset,
               count);
}

/* Puts a new block, whose fill is in flight, into `part`.  Mutex held; the caller has
 * the first reference.  NULL if there is no memory. */
static struct qm_block *begin_fill(struct qm_shard *shard, uint64_t hash,
                                   uint64_t number, enum qm_part part, uint32_t issuer)
{
    struct qm_block *block = qm_slab_block(shard);

    if (!block)
        return NULL;
    block->evict.block = number;
    atomic_store_explicit(&block->hits, 0, memory_order_relaxed);
    block->issuer = issuer;
    block->refs = 1;
    qm_shard_enter(shard, block, part);
    qm_shard_publish(shard, block, hash);
    return block;
}

static bool is_crowded(const struct qm_shard *shard)
{
    return !shard->growing && shard->buckets < shard->limits.buckets &&
           shard->held.main + shard->held.prefetch > shard->buckets;
}

static bool would_be_early(struct qm_block *block)
{
    return atomic_load_explicit(&block->hits, memory_order_relaxed) <
           QM_CACHE_EARLY_HITS;
}

/* Takes note of a hit.  Returns whether it is an early one; of later ones nothing is
 * written, so that readers of a hot block share its line. */
static bool is_early(struct qm_block *block)
{
    unsigned char hits = atomic_load_explicit(&block->hits, memory_order_relaxed);

    if (hits >= QM_CACHE_EARLY_HITS)
        return false;
    atomic_store_explicit(&block->hits, (unsigned char)(hits + 1),
                          memory_order_relaxed);
    return true;
}

/* A demand that found no hittable block.  Called, and returns, with the mutex held;
 * ENOMEM asks for memory to be reclaimed.  absent: the value of shard->published at
 * which a look-up found no such block; UINT64_MAX: it found one. */
static int demand_locked(struct qm_shard *shard, uint64_t hash, uint64_t number,
                         uint64_t absent, bool again, struct qm_lookup *found)
{
    struct qm_block *block = NULL;

    qm_shard_drain(shard);
    if (atomic_load_explicit(&shard->published, memory_order_relaxed) != absent) {
        qm_rcu_read_lock();
        block = qm_shard_find(shard, hash, number);
        qm_rcu_read_unlock(); /* it stays while the mutex is held */
    }
    if (!block) {
        block = begin_fill(shard, hash, number, QM_PART_MAIN, 0);
        if (!block)
            return ENOMEM;
        if (!again)
            qm_shadow_demand(&shard->shadow, number);
        found->outcome = QM_MISS;
        found->todo = QM_FETCH;
        found->fill = fill_of(block);
        shard->stats.misses += !again;
        return 0;
    }
    if (!again)
        qm_shadow_demand(&shard->shadow, number);
    if (block->part == QM_PART_PREFETCH) {
        found->outcome = QM_PREFETCH_HIT;
        found->issuer = block->issuer;
        qm_shard_promote(shard, block);
        shard->stats.prefetch_hits += !again;
    } else {
        found->outcome = QM_HIT;
        found->early = !again && is_early(block);
        shard->main_ops->touch(shard->main, &block->evict);
        shard->stats.hits += !again;
    }
    block->refs++; /* until the bytes are copied or the fill is waited for */
    found->fill = fill_of(block);
    found->todo = block->filled ? QM_DONE : QM_WAIT;
    return 0;
}

static int demand(struct qm_cache *cache, uint64_t number, void *buf, uint32_t offset,
                  uint32_t count, struct qm_lookup *found, bool again)
{
    uint64_t hash = qm_hash(number);
    struct qm_shard *shard = qm_shard_of(cache, hash);
    uint64_t absent = atomic_load_explicit(&shard->published, memory_order_acquire);
    struct qm_block *block;
    bool crowded;
    int err;

    *found = (struct qm_lookup){.outcome = QM_HIT, .todo = QM_DONE};
    qm_rcu_read_lock();
    block = qm_shard_find(shard, hash, number);
    if (block)
        absent = UINT64_MAX;
    if (block && atomic_load_explicit(&block->hittable, memory_order_acquire)) {
        copy_out(cache, block, buf, offset, count);
        found->early = !again && is_early(block);
        qm_shard_record(shard, block, !again);
        qm_rcu_read_unlock();
        return 0;
    }
    qm_rcu_read_unlock();

    for (int tries = 0;; tries++) {
        pthread_mutex_lock(&shard->lock);
        err = demand_locked(shard, hash, number, absent, again, found);
        crowded = is_crowded(shard);
        pthread_mutex_unlock(&shard->lock);
        if (err == 0)
            break;
        if (tries == QM_RECLAIM_TRIES || !qm_slab_reclaim(shard, true))
            return err;
    }
    if (crowded)
        qm_shard_grow(shard);
    if (found->todo == QM_DONE) {
        struct qm_fill *fill = found->fill;

        found->fill = NULL;
        err = qm_cache_wait(cache, fill, buf, offset, count);
    }
    return err;
}

int qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf, uint32_t offset,
                    uint32_t count, struct qm_lookup *found)
{
    return demand(cache, block, buf, offset, count, found, false);
}

int qm_cache_demand_again(struct qm_cache *cache, uint64_t block, void *buf,
                          uint32_t offset, uint32_t count, struct qm_lookup *found)
{
    return demand(cache, block, buf, offset, count, found, true);
}

int qm_cache_wait(struct qm_cache *cache, struct qm_fill *fill, void *buf,
                  uint32_t offset, uint32_t count)
{
    struct qm_block *block = block_of(fill);
    struct qm_shard *shard = qm_shard_of(cache, qm_hash(block->evict.block));
    int err = 0;

    pthread_mutex_lock(&shard->lock);
    block->waiting++;
    while (!block->filled && block->part != QM_PART_NONE)
        pthread_cond_wait(&shard->filled, &shard->lock);
    block->waiting--;
    if (!block->filled) {
        err = EAGAIN;
    } else if (cache->config.data) {
        /* The reference keeps the block, but a write may replace its buffer. */
        qm_rcu_read_lock();
        pthread_mutex_unlock(&shard->lock);
        copy_out(cache, block, buf, offset, count);
        qm_rcu_read_unlock();
        pthread_mutex_lock(&shard->lock);
    }
    qm_shard_unref(shard, block);
    pthread_mutex_unlock(&shard->lock);
    return err;
}

/* A buffer for the data of block; NULL if the data will not be kept, or none is free.
 */
static struct qm_buf *buf_for(struct qm_shard *shard, struct qm_block *block)
{
    struct qm_buf *buf = NULL;

    for (int tries = 0; tries <= QM_RECLAIM_TRIES; tries++) {
        bool wanted;

        pthread_mutex_lock(&shard->lock);
        wanted = block->part != QM_PART_NONE;
        if (wanted)
            buf = qm_slab_buf(shard);
        pthread_mutex_unlock(&shard->lock);
        if (!wanted || buf || !qm_slab_reclaim(shard, true))
            break;
    }
    return buf;
}

bool qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill, const void *data)
{
    struct qm_block *block = block_of(fill);
    uint64_t number = block->evict.block;
    struct qm_shard *shard = qm_shard_of(cache, qm_hash(number));
    bool with_data = cache->config.data, kept, reclaim;
    struct qm_buf *buf = NULL;

    if (with_data) {
        buf = buf_for(shard, block);
        if (buf)
            memcpy(buf->bytes, data, cache->config.block_size);
    }
    pthread_mutex_lock(&shard->lock);
    kept = block->part != QM_PART_NONE && (buf || !with_data) &&
           !qm_writes_overlap(cache, number);
    if (kept) {
        qm_shard_filled(shard, block, buf);
    } else {
        shard->stats.detached++;
        if (buf)
            qm_slab_unused_buf(shard, buf);
        if (block->part != QM_PART_NONE)
            qm_shard_discard(shard, block);
    }
    qm_shard_unref(shard, block);
    reclaim = shard->limbo >= shard->limits.batch;
    pthread_mutex_unlock(&shard->lock);
    if (reclaim)
        qm_slab_reclaim(shard, false);
    return kept;
}

void qm_cache_reserve(struct qm_cache *cache, uint64_t blocks)
{
    uint64_t each = (blocks + cache->shard_count - 1) / cache->shard_count;

    if (atomic_load_explicit(&cache->reserved, memory_order_relaxed) != each)
        atomic_store_explicit(&cache->reserved, each, memory_order_relaxed);
}

bool qm_cache_peek(struct qm_cache *cache, uint64_t number, void *buf, uint32_t offset,
                   uint32_t count)
{
    uint64_t hash = qm_hash(number);
    struct qm_shard *shard = qm_shard_of(cache, hash);
    struct qm_block *block;
    bool there;

    pthread_mutex_lock(&shard->lock);
    qm_rcu_read_lock();
    block = qm_shard_find(shard, hash, number);
    there = block && block->filled;
    pthread_mutex_unlock(&shard->lock);
    if (there)
        copy_out(cache, block, buf, offset, count);
    qm_rcu_read_unlock();
    return there;
}

void qm_cache_fail(struct qm_cache *cache, struct qm_fill *fill)
{
    struct qm_block *block = block_of(fill);
    struct qm_shard *shard = qm_shard_of(cache, qm_hash(block->evict.block));

    pthread_mutex_lock(&shard->lock);
    shard->stats.failed++;
    if (block->part != QM_PART_NONE)
        qm_shard_discard(shard, block);
    qm_shard_unref(shard, block);
    pthread_mutex_unlock(&shard->lock);
}

void qm_cache_flush(struct qm_cache *cache)
{
    const struct qm_cache_config *config = &cache->config;

    if (!config->evicted)
        return;
    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];

        (void)qm_slab_reclaim(shard, true);
        for (struct qm_block_slab *slab = shard->block_slabs; slab; slab = slab->next)
            for (size_t k = 0; k < slab->count; k++) {
                struct qm_block *block = &slab->blocks[k];

                if (block->part == QM_PART_MAIN && block->filled)
                    config->evicted(
                        config->opaque, block->evict.block,
                        block->buf ? block->buf->bytes : NULL,
                        config->leaving(config->opaque, block->evict.block));
            }
    }
}

bool qm_cache_contains(struct qm_cache *cache, uint64_t block)
{
    uint64_t hash = qm_hash(block);
    bool found;

    qm_rcu_read_lock();
    found = qm_shard_find(qm_shard_of(cache, hash), hash, block) != NULL;
    qm_rcu_read_unlock();
    return found;
}

void qm_cache_foresee(struct qm_cache *cache, uint64_t number, struct qm_lookup *found)
{
    uint64_t hash = qm_hash(number);
    struct qm_shard *shard = qm_shard_of(cache, hash);
    struct qm_block *block;
    bool hittable = false;

    *found = (struct qm_lookup){.outcome = QM_MISS};
    qm_rcu_read_lock();
    block = qm_shard_find(shard, hash, number);
    if (block) {
        hittable = atomic_load_explicit(&block->hittable, memory_order_relaxed);
        found->early = would_be_early(block);
    }
    qm_rcu_read_unlock();
    if (block)
        found->outcome = QM_HIT;
    if (!block || hittable)
        return;
    /* In flight, or prefetched: which, only the lock's holder can tell. */
    *found = (struct qm_lookup){.outcome = QM_MISS};
    pthread_mutex_lock(&shard->lock);
    qm_rcu_read_lock();
    block = qm_shard_find(shard, hash, number);
    if (block && block->part == QM_PART_PREFETCH) {
        found->outcome = QM_PREFETCH_HIT;
    } else if (block) {
        found->outcome = QM_HIT;
        found->early = would_be_early(block);
    }
    qm_rcu_read_unlock();
    pthread_mutex_unlock(&shard->lock);
}

int qm_cache_prefetch(struct qm_cache *cache, uint64_t number, uint32_t issuer,
                      struct qm_fill **fill)
{
    uint64_t hash = qm_hash(number);
    struct qm_shard *shard = qm_shard_of(cache, hash);
    struct qm_block *block = NULL;
    bool crowded;

    if (cache->config.prefetch_blocks == 0)
        return ENOSPC;
    if (qm_cache_contains(cache, number))
        return EEXIST;
    for (int tries = 0;; tries++) {
        bool exists;

        pthread_mutex_lock(&shard->lock);
        exists = qm_cache_contains(cache, number);
        if (!exists)
            block = begin_fill(shard, hash, number, QM_PART_PREFETCH, issuer);
        if (block)
            shard->stats.prefetches++;
        crowded = is_crowded(shard);
        pthread_mutex_unlock(&shard->lock);
        if (exists)
            return EEXIST;
        if (block)
            break;
        if (tries == QM_RECLAIM_TRIES || !qm_slab_reclaim(shard, true))
            return ENOMEM;
    }
    *fill = fill_of(block);
    if (crowded)
        qm_shard_grow(shard);
    return 0;
}

enum qm_wanted qm_cache_wanted(struct qm_cache *cache, struct qm_fill *fill)
{
    static const enum qm_wanted wanted[] = {
        [QM_PART_NONE] = QM_UNWANTED,
        [QM_PART_PREFETCH] = QM_AHEAD,
        [QM_PART_MAIN] = QM_DEMANDED,
    };
    struct qm_block *block = block_of(fill);
    struct qm_shard *shard = qm_shard_of(cache, qm_hash(block->evict.block));
    enum qm_wanted result;

    pthread_mutex_lock(&shard->lock);
    result = wanted[block->part];
    pthread_mutex_unlock(&shard->lock);
    return result;
}

bool qm_cache_settled(struct qm_cache *cache, struct qm_fill *fill)
{
    struct qm_block *block = block_of(fill);
    struct qm_shard *shard = qm_shard_of(cache, qm_hash(block->evict.block));
    bool settled;

    pthread_mutex_lock(&shard->lock);
    settled = block->filled || block->part == QM_PART_NONE;
    pthread_mutex_unlock(&shard->lock);
    return settled;
}

void qm_cache_get_reads(struct qm_cache *cache, struct qm_cache_reads *reads)
{
    *reads = (struct qm_cache_reads){0};
    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];

        pthread_mutex_lock(&shard->lock);
        reads->device += shard->stats.misses + shard->stats.prefetches;
        reads->ahead += shard->held.prefetch;
        reads->misses += shard->stats.misses;
        reads->prefetch_hits += shard->stats.prefetch_hits;
        reads->lru += qm_shadow_misses(&shard->shadow);
        reads->plain += qm_shadow_larger_misses(&shard->shadow);
        if (shard->main_ops->gain)
            reads->gain += shard->main_ops->gain(shard->main);
        if (shard->main_ops->alone)
            reads->alone += shard->main_ops->alone(shard->main);
        pthread_mutex_unlock(&shard->lock);
    }
}

void qm_cache_get_stats(struct qm_cache *cache, struct qm_cache_stats *stats)
{
    *stats = (struct qm_cache_stats){.bytes = sizeof(*cache)};
    for (unsigned i = 0; i < cache->shard_count; i++) {
        struct qm_shard *shard = &cache->shards[i];

        for (unsigned k = 0; k < cache->stripes; k++) {
            struct qm_ring *ring = &shard->rings[k];

            stats->hits += atomic_load_explicit(&ring->hits, memory_order_relaxed) +
                           atomic_load_explicit(&ring->contended, memory_order_relaxed);
        }
        pthread_mutex_lock(&shard->lock);
        stats->hits += shard->stats.hits;
        stats->prefetch_hits += shard->stats.prefetch_hits;
        stats->misses += shard->stats.misses;
        stats->prefetches += shard->stats.prefetches;
        stats->used += shard->stats.used;
        stats->wasted += shard->stats.wasted;
        stats->evicted += shard->stats.evicted;
        stats->failed += shard->stats.failed;
        stats->detached += shard->stats.detached;
        stats->main_blocks += shard->held.main;
        stats->prefetch_blocks += shard->held.prefetch;
        stats->prefetch_share += shard->balance.prefetch;
        stats->lru_misses += qm_shadow_misses(&shard->shadow);
        stats->bytes += shard->bytes;
        pthread_mutex_unlock(&shard->lock);
    }
}
