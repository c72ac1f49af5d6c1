/* SPDX-License-Identifier: BSD-3-Clause */
/* slab.c - the memory of a shard: headers and buffers, free, in use, or in limbo.
 *
 * Slabs are made when needed, up to the shard's limits, and freed with the cache, so an
 * idle cache is small and a busy one does not fragment.  A block in limbo keeps its
 * buffer with it; a buffer that a write replaced is there on its own.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/internal.h"

#define PAGE UINT64_C(4096)

static bool more_blocks(struct qm_shard *shard)
{
    uint64_t count = shard->limits.blocks - shard->blocks_made;
    struct qm_block_slab *slab;

    if (count > QM_BLOCKS_A_SLAB)
        count = QM_BLOCKS_A_SLAB;
    if (count == 0)
        return false;
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

/* Maps bytes, a multiple of a huge page: a block is copied from end to end, and with
 * pages of 4 KiB that takes as many misses in the TLB as it has pages, which cost more
 * than all else that a hit takes.  The end of what the kernel offers is kept: it maps
 * downwards, so slabs adjoin and count as one against its limit of 65,530 mappings.
 * NULL: no memory. */
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
    start += QM_HUGE_PAGE - after;
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

static bool more_bufs(struct qm_shard *shard)
{
    uint32_t size = shard->cache->config.block_size;
    uint64_t count = shard->limits.bufs - shard->bufs_made;
    struct qm_buf_slab *slab;
    size_t bytes;

    if (count > shard->limits.bufs_a_slab)
        count = shard->limits.bufs_a_slab;
    if (count == 0)
        return false;
    slab = malloc(sizeof(*slab) + count * sizeof(slab->bufs[0]));
    if (!slab)
        return false;
    slab->mapped = count * size >= QM_HUGE_PAGE ? count * size : 0;
    bytes = (count * size + PAGE - 1) & ~(size_t)(PAGE - 1);
    slab->bytes = slab->mapped ? map_huge(slab->mapped) : aligned_alloc(PAGE, bytes);
    if (!slab->bytes) {
        free(slab);
        return false;
    }
    slab->count = count;
    slab->next = shard->buf_slabs;
    shard->buf_slabs = slab;
    shard->bufs_made += count;
    shard->bytes += qm_budget_buf_slab(count, size);
    for (size_t i = count; i-- > 0;) {
        slab->bufs[i].bytes = slab->bytes + i * size;
        qm_slab_unused_buf(shard, &slab->bufs[i]);
    }
    return true;
}

struct qm_block *qm_slab_block(struct qm_shard *shard)
{
    struct qm_block *block;

    if (!shard->free_blocks && !more_blocks(shard))
        return NULL;
    block = shard->free_blocks;
    shard->free_blocks = block->next;
    block->filled = false;
    return block;
}

struct qm_buf *qm_slab_buf(struct qm_shard *shard)
{
    struct qm_buf *buf;

    if (!shard->free_bufs && !more_bufs(shard))
        return NULL;
    buf = shard->free_bufs;
    shard->free_bufs = buf->next;
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

static bool is_worth_it(struct qm_shard *shard)
{
    return atomic_load_explicit(&shard->limbo, memory_order_relaxed) >=
           shard->limits.batch / 4 + 1;
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

            if (s->graced_blocks || s->graced_bufs)
                free_graced(s);
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
        if (slab->mapped)
            munmap(slab->bytes, slab->mapped);
        else
            free(slab->bytes);
        free(slab);
    }
}
