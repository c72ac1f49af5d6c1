/* SPDX-License-Identifier: BSD-3-Clause */
/* shard.c - one shard: the table, the two eviction orders, and what moves blocks.
 *
 * internal.h says what is locked.  A block that leaves the table while references to it
 * exist is detached; it is retired with its last reference.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/internal.h"

/* Of a block of the prefetch part, whose policy is LRU: qm_balance_came(). */
#define CAME(node) ((node)->aux[0])

/* The table of a cache that grows can have as many times its first number of buckets;
 * then look-ups take longer.  It costs addresses, not memory. */
#define GROWTH 8

char qm_rcu_readers;

/* Threads are spread over the rings of a shard in the order of their first access. */
static _Atomic unsigned stripes_given;
static _Thread_local QM_TLS_FAST unsigned own_stripe; /* plus one; 0: none yet */

static struct qm_ring *own_ring(struct qm_shard *shard)
{
    if (own_stripe == 0)
        own_stripe =
            1 + atomic_fetch_add_explicit(&stripes_given, 1, memory_order_relaxed) %
                    QM_MAX_STRIPES;
    return &shard->rings[(own_stripe - 1) & (shard->cache->stripes - 1)];
}

void qm_shard_resize_main(struct qm_shard *shard)
{
    const struct qm_balance *b = &shard->balance;

    if (shard->main_ops->resize)
        shard->main_ops->resize(shard->main, qm_balance_main(b));
    if (shard->main_ops->assured)
        shard->main_ops->assured(shard->main, b->blocks - b->prefetch);
}

int qm_shard_init(struct qm_shard *shard, struct qm_cache *cache, uint64_t blocks,
                  uint64_t prefetch_blocks)
{
    bool adapts = cache->config.prefetch_adapts && prefetch_blocks > 0;
    size_t beside =
        qm_budget_beside(blocks, cache->config.blocks, adapts, cache->config.shadow);
    uint64_t main_most = adapts ? blocks : blocks - prefetch_blocks;
    const struct qm_evict_ops *own = cache->config.own_eviction;
    const struct qm_evict_ops *ops = own ? own : qm_evict_find(cache->config.eviction);
    size_t policy_bytes = qm_evict_bytes(ops, blocks);

    pthread_mutex_init(&shard->lock, NULL);
    pthread_cond_init(&shard->filled, NULL);
    shard->cache = cache;
    shard->main_ops = ops;
    shard->prefetch_ops = qm_evict_find("lru"); /* whatever the main cache uses */
    shard->bytes = qm_budget_shard_bytes(blocks, cache->stripes, policy_bytes, beside);
    qm_limits_get(&shard->limits, blocks, cache->config.block_size, cache->config.data,
                  cache->stripes, policy_bytes, beside);
    /* A simulated second tier gets what leaves as soon as a real one. */
    if (cache->config.evicted)
        shard->limits.batch = qm_limits_batch(blocks);
    atomic_init(&shard->batch, shard->limits.batch);
    shard->made = blocks;
    shard->main_made = main_most;
    shard->made_bytes = policy_bytes + beside;
    shard->most_buckets = shard->limits.buckets * GROWTH;

    shard->rings =
        aligned_alloc(QM_CACHE_LINE, cache->stripes * sizeof(struct qm_ring));
    if (!shard->rings)
        return ENOMEM;
    for (unsigned i = 0; i < cache->stripes; i++) {
        struct qm_ring *ring = &shard->rings[i];

        atomic_flag_clear(&ring->busy);
        atomic_init(&ring->used, 0);
        atomic_init(&ring->hits, 0);
        atomic_init(&ring->contended, 0);
    }
    shard->main = own ? own->create_for(main_most, cache->config.own_opaque)
                      : ops->create(main_most);
    shard->prefetch = shard->prefetch_ops->create(prefetch_blocks);
    if (!shard->main || !shard->prefetch ||
        qm_balance_init(&shard->balance, blocks, prefetch_blocks, adapts) != 0 ||
        (cache->config.shadow &&
         qm_shadow_init(&shard->shadow, blocks, cache->config.blocks) != 0))
        return ENOMEM;
    if (adapts)
        qm_shard_resize_main(shard);
    shard->buckets = QM_MIN_BUCKETS;
    shard->table =
        cds_lfht_new(QM_MIN_BUCKETS, QM_MIN_BUCKETS, shard->most_buckets, 0, NULL);
    return shard->table ? 0 : ENOMEM;
}

/* Also of a shard whose init failed. */
void qm_shard_destroy(struct qm_shard *shard)
{
    if (shard->table) {
        for (struct qm_block_slab *slab = shard->block_slabs; slab; slab = slab->next)
            for (size_t i = 0; i < slab->count; i++)
                if (slab->blocks[i].part != QM_PART_NONE) {
                    qm_rcu_read_lock();
                    cds_lfht_del(shard->table, &slab->blocks[i].node);
                    qm_rcu_read_unlock();
                }
        cds_lfht_destroy(shard->table, NULL);
    }
    if (shard->main)
        shard->main_ops->destroy(shard->main);
    if (shard->prefetch)
        shard->prefetch_ops->destroy(shard->prefetch);
    qm_balance_destroy(&shard->balance);
    qm_shadow_destroy(&shard->shadow);
    qm_slab_destroy(shard);
    free(shard->rings);
    pthread_cond_destroy(&shard->filled);
    pthread_mutex_destroy(&shard->lock);
}

static int match(struct cds_lfht_node *node, const void *key)
{
    const struct qm_block *block = caa_container_of(node, struct qm_block, node);

    qm_rcu_happens_after(node);
    return block->evict.block == *(const uint64_t *)key;
}

struct qm_block *qm_shard_find(struct qm_shard *shard, uint64_t hash, uint64_t number)
{
    struct cds_lfht_iter iter;
    struct cds_lfht_node *node;

    cds_lfht_lookup(shard->table, hash, match, &number, &iter);
    node = cds_lfht_iter_get_node(&iter);
    return node ? caa_container_of(node, struct qm_block, node) : NULL;
}

/* A block in a ring may have been evicted since, or its header may belong to another
 * block by now: noted accesses are hints, and a ring in use is left for the next time.
 * But the accesses that this thread noted are always there, and in order. */
bool qm_shard_drain(struct qm_shard *shard)
{
    bool all = true;

    for (unsigned i = 0; i < shard->cache->stripes; i++) {
        struct qm_ring *ring = &shard->rings[i];
        uint32_t used, hits = 0;

        if (atomic_load_explicit(&ring->used, memory_order_relaxed) == 0)
            continue;
        if (atomic_flag_test_and_set_explicit(&ring->busy, memory_order_acquire)) {
            all = false;
            continue;
        }
        used = atomic_load_explicit(&ring->used, memory_order_relaxed);
        for (uint32_t k = 0; k < used; k++)
            if (ring->slot[k]->part == QM_PART_MAIN) {
                hits++;
                shard->main_ops->touch(shard->main, &ring->slot[k]->evict);
                qm_shadow_demand(&shard->shadow, ring->slot[k]->evict.block);
            }
        qm_balance_hits(&shard->balance, hits);
        atomic_store_explicit(&ring->used, 0, memory_order_relaxed);
        atomic_flag_clear_explicit(&ring->busy, memory_order_release);
    }
    return all;
}

void qm_shard_record(struct qm_shard *shard, struct qm_block *block, bool count)
{
    struct qm_ring *ring = own_ring(shard);
    uint32_t used;

    if (atomic_flag_test_and_set_explicit(&ring->busy, memory_order_acquire)) {
        if (count)
            atomic_fetch_add_explicit(&ring->contended, 1, memory_order_relaxed);
        return;
    }
    if (count) {
        uint64_t hits = atomic_load_explicit(&ring->hits, memory_order_relaxed);

        atomic_store_explicit(&ring->hits, hits + 1, memory_order_relaxed);
    }
    used = atomic_load_explicit(&ring->used, memory_order_relaxed);
    if (used < QM_RING_SLOTS) { /* else no thread could drain it: lost */
        ring->slot[used++] = block;
        atomic_store_explicit(&ring->used, used, memory_order_relaxed);
    }
    atomic_flag_clear_explicit(&ring->busy, memory_order_release);

    if (used == QM_RING_SLOTS && pthread_mutex_trylock(&shard->lock) == 0) {
        qm_shard_drain(shard);
        pthread_mutex_unlock(&shard->lock);
    }
}

void qm_shard_publish(struct qm_shard *shard, struct qm_block *block, uint64_t hash)
{
    cds_lfht_node_init(&block->node);
    qm_rcu_happens_before(&block->node);
    qm_rcu_read_lock();
    cds_lfht_add(shard->table, hash, &block->node);
    qm_rcu_read_unlock();
    atomic_store_explicit(
        &shard->published,
        atomic_load_explicit(&shard->published, memory_order_relaxed) + 1,
        memory_order_release);
}

/* Removes block, which is in no eviction order any more, from the table. */
static void forget(struct qm_shard *shard, struct qm_block *block)
{
    block->part = QM_PART_NONE;
    atomic_store_explicit(&block->hittable, false, memory_order_relaxed);
    qm_rcu_read_lock();
    cds_lfht_del(shard->table, &block->node);
    qm_rcu_read_unlock();
    if (block->waiting > 0)
        pthread_cond_broadcast(&shard->filled);
    if (block->refs == 0)
        qm_slab_retire_block(shard, block);
}

static void waste(struct qm_shard *shard, struct qm_block *block)
{
    const struct qm_cache_config *config = &shard->cache->config;

    shard->stats.wasted++;
    if (config->wasted)
        config->wasted(config->opaque, block->evict.block, block->issuer);
}

/* Adds `change` (1 or -1) to the count of blocks of block's part. */
static void count(struct qm_shard *shard, const struct qm_block *block,
                  enum qm_part part, int64_t change)
{
    if (part == QM_PART_MAIN) {
        shard->held.main += change;
        return;
    }
    shard->held.prefetch += change;
    if (!block->filled)
        shard->held.filling += change;
}

static struct qm_block *evict_from(struct qm_shard *shard, enum qm_part from,
                                   uint64_t incoming)
{
    struct qm_evict_node *node =
        from == QM_PART_MAIN ? shard->main_ops->evict(shard->main, incoming)
                             : shard->prefetch_ops->evict(shard->prefetch, incoming);

    return node ? caa_container_of(node, struct qm_block, evict) : NULL;
}

/* The block that a part, which is not empty, evicts.  What is being read is spared if
 * readers wait for it: they would have to read it again. */
static struct qm_block *choose(struct qm_shard *shard, enum qm_part from,
                               uint64_t incoming)
{
    struct qm_block *victim = evict_from(shard, from, incoming), *spared, *other;

    if (from != QM_PART_MAIN || victim->filled || victim->refs < 2)
        return victim;
    spared = victim;
    other = evict_from(shard, from, incoming);
    if (!other)
        return victim;
    shard->main_ops->insert(shard->main, &spared->evict);
    return other;
}

/* Block, which no policy has any more, will be handed over from limbo.  It is asked for
 * its number while it is in the table and locked: a write that begins later finds
 * nothing to change here, but has a later number; one that has ended has changed the
 * block. */
static void take_leave(struct qm_shard *shard, struct qm_block *block)
{
    const struct qm_cache_config *config = &shard->cache->config;
    uint64_t number = config->leaving(config->opaque, block->evict.block);

    block->evict.aux[0] = (uint32_t)number;
    block->evict.aux[1] = (uint32_t)(number >> 32);
    block->leaving = true;
}

void qm_shard_evict(struct qm_shard *shard, enum qm_part from, uint64_t incoming)
{
    struct qm_block *victim = choose(shard, from, incoming);

    count(shard, victim, from, -1);
    qm_balance_evicted(&shard->balance, from, victim->evict.block);
    if (from == QM_PART_PREFETCH) {
        waste(shard, victim);
    } else {
        shard->stats.evicted++;
        if (shard->cache->config.leaving && victim->filled)
            take_leave(shard, victim);
    }
    forget(shard, victim);
}

/* Whether the oldest block of the prefetch part will probably not be used any more. */
static bool has_stale(const struct qm_shard *shard)
{
    const struct qm_evict_node *oldest = qm_evict_lru_oldest(shard->prefetch);

    return oldest && caa_container_of(oldest, struct qm_block, evict)->filled &&
           qm_balance_is_stale(&shard->balance, CAME(oldest));
}

/* Evicts a block if the one that enters `part` needs its place. */
static void make_room(struct qm_shard *shard, enum qm_part part, uint64_t incoming)
{
    enum qm_part from;

    if (qm_balance_arrival(&shard->balance, part, incoming, &shard->held))
        qm_shard_resize_main(shard);
    from = qm_balance_victim(
        &shard->balance, part, &shard->held,
        atomic_load_explicit(&shard->cache->reserved, memory_order_relaxed));
    if (from == QM_PART_NONE)
        return;
    if (from == QM_PART_MAIN && has_stale(shard))
        from = QM_PART_PREFETCH;
    if (from == QM_PART_MAIN && part != QM_PART_MAIN) {
        qm_shard_drain(shard);
        incoming = QM_EVICT_NOBODY;
    }
    qm_shard_evict(shard, from, incoming);
}

static void enter_prefetch(struct qm_shard *shard, struct qm_evict_node *node)
{
    shard->prefetch_ops->insert(shard->prefetch, node);
    CAME(node) = qm_balance_came(&shard->balance);
}

void qm_shard_enter(struct qm_shard *shard, struct qm_block *block, enum qm_part part)
{
    make_room(shard, part, block->evict.block);
    if (part == QM_PART_MAIN)
        shard->main_ops->insert(shard->main, &block->evict);
    else
        enter_prefetch(shard, &block->evict);
    block->part = part;
    count(shard, block, part, 1);
}

/* Removes block from the eviction order of its part. */
static void leave(struct qm_shard *shard, struct qm_block *block)
{
    if (block->part == QM_PART_MAIN)
        shard->main_ops->remove(shard->main, &block->evict);
    else
        shard->prefetch_ops->remove(shard->prefetch, &block->evict);
    count(shard, block, block->part, -1);
}

void qm_shard_promote(struct qm_shard *shard, struct qm_block *block)
{
    leave(shard, block);
    qm_balance_used(&shard->balance, CAME(&block->evict));
    shard->stats.used++;
    qm_shard_enter(shard, block, QM_PART_MAIN);
    if (block->filled)
        atomic_store_explicit(&block->hittable, true, memory_order_release);
}

/* Noted accesses are applied first: a policy may remember a hit on block after it left,
 * and its handling of a hit on another block may depend on whether block is there. */
void qm_shard_discard(struct qm_shard *shard, struct qm_block *block)
{
    if (block->part == QM_PART_MAIN)
        qm_shard_drain(shard);
    leave(shard, block);
    if (block->part == QM_PART_PREFETCH)
        waste(shard, block);
    forget(shard, block);
}

void qm_shard_filled(struct qm_shard *shard, struct qm_block *block, struct qm_buf *buf)
{
    qm_block_set_buf(block, buf);
    if (block->part == QM_PART_PREFETCH)
        shard->held.filling--;
    block->filled = true;
    if (block->part == QM_PART_MAIN)
        atomic_store_explicit(&block->hittable, true, memory_order_release);
    if (block->waiting > 0)
        pthread_cond_broadcast(&shard->filled);
}

void qm_shard_unref(struct qm_shard *shard, struct qm_block *block)
{
    if (--block->refs == 0 && block->part == QM_PART_NONE)
        qm_slab_retire_block(shard, block);
}

/* One thread grows a table, with the others still using it.  The bytes are counted
 * before they are taken. */
void qm_shard_grow(struct qm_shard *shard)
{
    uint64_t buckets = 0;

    pthread_mutex_lock(&shard->lock);
    if (!shard->growing && shard->buckets < shard->limits.buckets &&
        shard->held.main + shard->held.prefetch > shard->buckets) {
        shard->growing = true;
        shard->bytes += shard->buckets * sizeof(struct cds_lfht_node);
        shard->buckets *= 2;
        buckets = shard->buckets;
    }
    pthread_mutex_unlock(&shard->lock);
    if (buckets == 0)
        return;
    cds_lfht_resize(shard->table, buckets);
    pthread_mutex_lock(&shard->lock);
    shard->growing = false;
    pthread_mutex_unlock(&shard->lock);
}

/* Readers find the one or the other, and both have the same bytes; a reader that found
 * the former may note a hit on it, which is lost. */
void qm_shard_move(struct qm_shard *shard, struct qm_block *from, struct qm_block *to)
{
    const struct qm_evict_ops *ops =
        from->part == QM_PART_MAIN ? shard->main_ops : shard->prefetch_ops;
    uint64_t number = from->evict.block, hash = qm_hash(number);
    struct cds_lfht_iter iter;

    to->evict.block = number;
    to->evict.aux[0] = from->evict.aux[0];
    to->evict.aux[1] = from->evict.aux[1];
    cds_list_replace(&from->evict.list, &to->evict.list);
    if (ops->moved)
        ops->moved(from->part == QM_PART_MAIN ? shard->main : shard->prefetch,
                   &from->evict, &to->evict);
    to->filled = from->filled;
    atomic_store_explicit(&to->hits,
                          atomic_load_explicit(&from->hits, memory_order_relaxed),
                          memory_order_relaxed);
    to->part = from->part;
    to->issuer = from->issuer;
    qm_block_set_buf(to, from->buf);
    atomic_store_explicit(&to->hittable,
                          atomic_load_explicit(&from->hittable, memory_order_relaxed),
                          memory_order_release);
    cds_lfht_node_init(&to->node);
    qm_rcu_happens_before(&to->node);
    qm_rcu_read_lock();
    cds_lfht_lookup(shard->table, hash, match, &number, &iter);
    cds_lfht_replace(shard->table, &iter, hash, match, &number, &to->node);
    qm_rcu_read_unlock();
    from->part = QM_PART_NONE;
    from->buf = NULL; /* bytes stay what they were: a reader may be about to look */
    atomic_store_explicit(&from->hittable, false, memory_order_relaxed);
    qm_slab_retire_block(shard, from);
}
