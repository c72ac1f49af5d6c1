/* SPDX-License-Identifier: BSD-3-Clause */
/* slab.c - the memory of a shard: headers and buffers, free, in use, or in limbo.
 *
 * Slabs are made when needed, up to the shard's limits, and freed with the cache or
 * when it shrinks (trim.c), so an idle cache is small and a busy one does not
 * fragment.  A block in limbo keeps its buffer with it; a buffer that a write replaced
 * is there on its own.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/internal.h"

#define PAGE UINT64_C(4096)

static bool more_blocks(struct qm_shard *shard)
{
    uint64_t made = shard->blocks_made, most = shard->limits.blocks;
    uint64_t count = most > made ? most - made : 0;
    struct qm_block_slab *slab;

    if (count == 0)
        return false;
    /* A shard that grows in small steps would come to have slabs of a few. */
    if (count > QM_BLOCKS_A_SLAB || shard->resized)
        count = QM_BLOCKS_A_SLAB;
    slab = calloc(1, sizeof(*slab) + count * sizeof(slab->blocks[0]));
    if (!slab)
        return false;
    slab->count = count;
    slab->next = shard->block_slabs;
    shard->block_slabs = slab;
    shard->blocks_made += count;
    shard->bytes += qm_budget_block_slab(count);
    for (size_t i = count; i-- > 0;) {
        slab->blocks[i].next = shard->free_blocks;
        shard->free_blocks = &slab->blocks[i];
    }
    return true;
}

/* Maps bytes, a multiple of a huge page, so that they begin with one: a block is copied
 * from end to end, and with pages of 4 KiB that takes as many misses in the TLB as it
 * has pages, which cost more than all else that a hit takes.  The end of what the
 * kernel offers is kept: it maps downwards, so slabs adjoin and count as one against
 * its limit of 65,530 mappings. NULL: no memory. */
static unsigned char *map_huge(size_t bytes)
{
    size_t all = bytes + QM_HUGE_PAGE;
    unsigned char *start =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t after = (uintptr_t)(start + all) % QM_HUGE_PAGE;

    if (start == MAP_FAILED)
        return NULL;
    if (after > 0)
        munmap(start + all - after, after);
    munmap(start, QM_HUGE_PAGE - after);
    return start + QM_HUGE_PAGE - after;
}

static unsigned char *map(size_t bytes)
{
    void *start;

    if (bytes >= QM_HUGE_PAGE)
        return map_huge(bytes);
    start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

size_t qm_slab_mapped(const struct qm_buf_slab *slab, uint32_t block_size)
{
    return (slab->room * block_size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* An empty slab for at least some of `wanted` buffers, the first of the list. */
static struct qm_buf_slab *new_buf_slab(struct qm_shard *shard, uint64_t wanted)
{
    uint32_t size = shard->cache->config.block_size;
    uint64_t room = wanted;
    struct qm_buf_slab *slab;

    /* One that grows in small steps: not a slab a step. */
    if (shard->resized && room < shard->bufs_made)
        room = shard->bufs_made;
    if (room > shard->limits.bufs_a_slab)
        room = shard->limits.bufs_a_slab;
    slab = malloc(sizeof(*slab) + room * sizeof(slab->bufs[0]));
    if (!slab)
        return NULL;
    slab->room = room;
    slab->count = 0;
    slab->bytes = map(qm_slab_mapped(slab, size));
    if (!slab->bytes) {
        free(slab);
        return NULL;
    }
    slab->next = shard->buf_slabs;
    shard->buf_slabs = slab;
    shard->odd_slabs += room < shard->limits.bufs_a_slab;
    shard->bytes += qm_budget_buf_slab(0, size) + room * sizeof(slab->bufs[0]);
    return slab;
}

static bool more_bufs(struct qm_shard *shard)
{
    uint32_t size = shard->cache->config.block_size;
    uint64_t made = shard->bufs_made, most = shard->limits.bufs;
    uint64_t count = most > made ? most - made : 0, from;
    struct qm_buf_slab *slab = shard->buf_slabs;

    if (count == 0)
        return false;
    if (!slab || slab->count == slab->room)
        slab = new_buf_slab(shard, count);
    if (!slab)
        return false;
    from = slab->count;
    if (count > slab->room - from)
        count = slab->room - from;
    slab->count += count;
    /* A huge page is there as a whole once a byte of it is written to. */
    if (slab->count == slab->room && slab->room * size >= QM_HUGE_PAGE)
        (void)madvise(slab->bytes, slab->room * size, MADV_HUGEPAGE);
    shard->bufs_made += count;
    shard->bytes += count * size;
    for (size_t i = from + count; i-- > from;) {
        slab->bufs[i].bytes = slab->bytes + i * size;
        qm_slab_unused_buf(shard, &slab->bufs[i]);
    }
    return true;
}

struct qm_block *qm_slab_block(struct qm_shard *shard)
{
    struct qm_block *block;

    do {
        if (!shard->free_blocks && !more_blocks(shard))
            return NULL;
        block = shard->free_blocks;
        shard->free_blocks = block->next;
    } while (shard->trim && qm_trim_takes_block(shard, block));
    block->filled = false;
    return block;
}

struct qm_buf *qm_slab_buf(struct qm_shard *shard)
{
    struct qm_buf *buf;

    do {
        while (!shard->free_bufs)
            if (!more_bufs(shard))
                return NULL;
        buf = shard->free_bufs;
        shard->free_bufs = buf->next;
    } while (shard->trim && qm_trim_takes_buf(shard, buf));
    return buf;
}

void qm_slab_unused_buf(struct qm_shard *shard, struct qm_buf *buf)
{
    buf->next = shard->free_bufs;
    shard->free_bufs = buf;
}

/* Changed with the mutex held, looked at without. */
static void count_limbo(struct qm_shard *shard)
{
    uint64_t limbo = atomic_load_explicit(&shard->limbo, memory_order_relaxed);

    atomic_store_explicit(&shard->limbo, limbo + 1, memory_order_relaxed);
}

void qm_slab_retire_block(struct qm_shard *shard, struct qm_block *block)
{
    block->next = shard->limbo_blocks;
    shard->limbo_blocks = block;
    count_limbo(shard);
}

void qm_slab_retire_buf(struct qm_shard *shard, struct qm_buf *buf)
{
    buf->next = shard->limbo_bufs;
    shard->limbo_bufs = buf;
    count_limbo(shard);
}

/* Sets apart what is in limbo now: the grace period that comes is for it. */
static void take_limbo(struct qm_shard *shard)
{
    pthread_mutex_lock(&shard->lock);
    shard->graced_blocks = shard->limbo_blocks;
    shard->graced_bufs = shard->limbo_bufs;
    shard->limbo_blocks = NULL;
    shard->limbo_bufs = NULL;
    atomic_store_explicit(&shard->limbo, 0, memory_order_relaxed);
    pthread_mutex_unlock(&shard->lock);
}

static void free_graced(struct qm_shard *shard)
{
    struct qm_block *block;
    struct qm_buf *buf;

    pthread_mutex_lock(&shard->lock);
    while ((block = shard->graced_blocks)) {
        shard->graced_blocks = block->next;
        if (block->buf) {
            qm_slab_unused_buf(shard, block->buf);
            qm_block_set_buf(block, NULL);
        }
        block->next = shard->free_blocks;
        shard->free_blocks = block;
    }
    while ((buf = shard->graced_bufs)) {
        shard->graced_bufs = buf->next;
        qm_slab_unused_buf(shard, buf);
    }
    pthread_mutex_unlock(&shard->lock);
}

/* What was evicted goes to the caller.  Nobody else has these blocks: they are neither
 * in the table nor in a list that others follow, and no reader is left. */
static void hand_over(struct qm_shard *shard)
{
    const struct qm_cache_config *config = &shard->cache->config;

    if (!config->evicted)
        return;
    for (struct qm_block *block = shard->graced_blocks; block; block = block->next)
        if (block->leaving) {
            block->leaving = false;
            config->evicted(config->opaque, block->evict.block,
                            block->buf ? block->buf->bytes : NULL,
                            block->evict.aux[0] | (uint64_t)block->evict.aux[1] << 32);
        }
}

static bool is_worth_it(struct qm_shard *shard)
{
    return atomic_load_explicit(&shard->limbo, memory_order_relaxed) >=
           atomic_load_explicit(&shard->batch, memory_order_relaxed) / 4 + 1;
}

/* One grace period serves all shards that have something worth it: a grace period may
 * have to wait for a reader that lost its CPU, so the fewer the better. */
bool qm_slab_reclaim(struct qm_shard *shard, bool wait)
{
    struct qm_cache *cache = shard->cache;
    bool any;

    pthread_mutex_lock(&cache->grace_lock);
    if (cache->grace) {
        while (wait && cache->grace)
            pthread_cond_wait(&cache->grace_ended, &cache->grace_lock);
        pthread_mutex_unlock(&cache->grace_lock);
        return true;
    }
    cache->grace = true;
    pthread_mutex_unlock(&cache->grace_lock);

    any = atomic_load_explicit(&shard->limbo, memory_order_relaxed) > 0;
    if (any) {
        for (unsigned i = 0; i < cache->shard_count; i++) {
            struct qm_shard *s = &cache->shards[i];

            if (s == shard || is_worth_it(s))
                take_limbo(s);
        }
        qm_rcu_synchronize();
        for (unsigned i = 0; i < cache->shard_count; i++) {
            struct qm_shard *s = &cache->shards[i];

            if (s->graced_blocks || s->graced_bufs) {
                hand_over(s);
                free_graced(s);
            }
        }
    }
    pthread_mutex_lock(&cache->grace_lock);
    cache->grace = false;
    pthread_cond_broadcast(&cache->grace_ended);
    pthread_mutex_unlock(&cache->grace_lock);
    if (!any) { /* another thread's may have ended just before we came */
        pthread_mutex_lock(&shard->lock);
        any = shard->free_blocks || shard->free_bufs;
        pthread_mutex_unlock(&shard->lock);
    }
    return any;
}

void qm_slab_destroy(struct qm_shard *shard)
{
    while (shard->block_slabs) {
        struct qm_block_slab *slab = shard->block_slabs;

        shard->block_slabs = slab->next;
        free(slab);
    }
    while (shard->buf_slabs) {
        struct qm_buf_slab *slab = shard->buf_slabs;

        shard->buf_slabs = slab->next;
        munmap(slab->bytes, qm_slab_mapped(slab, shard->cache->config.block_size));
        free(slab);
    }
}
