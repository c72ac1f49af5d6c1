/* SPDX-License-Identifier: BSD-3-Clause */
/* writes.c - write-through: cached blocks stay equal to what the layer below stores.
 *
 * The invariants, per block:
 *
 *   1. A filled block holds what a reader of the layer below would get, or would have
 *      got when the oldest overlapping write in flight began.
 *   2. A look-up that begins after qm_cache_write_end() has returned finds no older
 *      bytes.
 *
 * A fill that overlaps in time with a write may have read the old bytes, the new ones
 * or a mixture.  So the data of a fill is refused while an overlapping write is in
 * flight, and the end of a write detaches the fills in flight that it finds, which may
 * end only later.  The order makes this complete: a write is put on the list before the
 * layer below is written to, and taken off after all its blocks were looked at.  A fill
 * that begins after its block was looked at reads the new bytes.
 *
 * A filled block gets the write's bytes by copy-on-write, under the shard's mutex: a
 * reader copies from the old buffer or the new one, never from a mixture.  Writes that
 * share no byte can be in flight together, and each puts its own bytes in.  Writes that
 * do share bytes reach the layer below in an order that is not known here, so each of
 * them drops what it finds.
 */
#include <string.h>

#include "cache/internal.h"

/* The end of a range, which is never past the last byte that 64 bits can address. */
static uint64_t end_of(const struct qm_cache_write *w)
{
    return w->count > UINT64_MAX - w->offset ? UINT64_MAX : w->offset + w->count;
}

static bool ranges_overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
    return a < b_end && b < a_end;
}

void qm_cache_write_begin(struct qm_cache *cache, struct qm_cache_write *w,
                          uint64_t offset, uint64_t count)
{
    *w = (struct qm_cache_write){.offset = offset, .count = count};

    pthread_mutex_lock(&cache->writes_lock);
    for (struct qm_cache_write *other = cache->writes; other; other = other->next)
        if (count > 0 && other->count > 0 &&
            ranges_overlap(offset, end_of(w), other->offset, end_of(other))) {
            other->conflict = true;
            w->conflict = true;
        }
    w->next = cache->writes;
    w->link = &cache->writes;
    if (w->next)
        w->next->link = &w->next;
    cache->writes = w;
    atomic_fetch_add(&cache->writes_count, 1);
    pthread_mutex_unlock(&cache->writes_lock);
}

bool qm_writes_overlap(struct qm_cache *cache, uint64_t number)
{
    uint32_t size = cache->config.block_size;
    bool overlap = false;

    if (atomic_load(&cache->writes_count) == 0)
        return false;
    pthread_mutex_lock(&cache->writes_lock);
    for (struct qm_cache_write *w = cache->writes; w && !overlap; w = w->next)
        overlap = w->count > 0 && w->offset / size <= number &&
                  number <= (end_of(w) - 1) / size;
    pthread_mutex_unlock(&cache->writes_lock);
    return overlap;
}

/* What a write does to each of its blocks. */
struct change {
    const struct qm_cache_write *w;
    enum qm_write_result result; /* DROP also for a conflict */
    const unsigned char *data;
};

/* Puts the bytes of the change that fall into block number into buf, and the rest from
 * old. */
static void merge(const struct change *c, uint32_t size, uint64_t number,
                  unsigned char *buf, const unsigned char *old)
{
    uint64_t start = number * size, end = end_of(c->w);
    uint64_t from = c->w->offset > start ? c->w->offset - start : 0;
    uint64_t to = end - start < size ? end - start : size;

    memcpy(buf, old, from);
    memcpy(buf + to, old + to, size - to);
    if (c->result == QM_WRITE_ZEROS)
        memset(buf + from, 0, to - from);
    else
        memcpy(buf + from, c->data + (start + from - c->w->offset), to - from);
}

/* Carries out the change on block, which is in the table.  Mutex held.  Returns false
 * if a buffer is needed and there is none. */
static bool change_block(struct qm_shard *shard, struct qm_block *block,
                         const struct change *c)
{
    struct qm_buf *old, *buf;

    if (!block->filled || c->result == QM_WRITE_DROP) {
        qm_shard_discard(shard, block);
        return true;
    }
    if (!shard->cache->config.data)
        return true;
    buf = qm_slab_buf(shard);
    if (!buf)
        return false;
    old = block->buf;
    merge(c, shard->cache->config.block_size, block->evict.block, buf->bytes,
          old->bytes);
    qm_block_set_buf(block, buf);
    qm_slab_retire_buf(shard, old);
    return true;
}

/* One block, by number.  A look-up without the mutex suffices to find that it is
 * absent: a fill that begins later reads what was written. */
static void change_number(struct qm_cache *cache, uint64_t number,
                          const struct change *change)
{
    uint64_t hash = qm_hash(number);
    struct qm_shard *shard = qm_shard_of(cache, hash);
    struct change c = *change;
    bool done = false;

    if (!qm_cache_contains(cache, number))
        return;
    for (int tries = 0; !done; tries++) {
        struct qm_block *block;

        if (tries == QM_RECLAIM_TRIES)
            c.result = QM_WRITE_DROP;
        pthread_mutex_lock(&shard->lock);
        qm_rcu_read_lock();
        block = qm_shard_find(shard, hash, number);
        qm_rcu_read_unlock();
        done = !block || change_block(shard, block, &c);
        pthread_mutex_unlock(&shard->lock);
        if (!done && !qm_slab_reclaim(shard, true))
            c.result = QM_WRITE_DROP;
    }
}

/* All blocks from first to last that the shard has: for ranges with more blocks than
 * the cache.  The mutex is released between slabs; blocks that enter meanwhile were
 * read after the write and need no change.  A header could move only to where we have
 * been, so none does while we hold the lock of the slabs. */
static void change_range(struct qm_shard *shard, uint64_t first, uint64_t last,
                         const struct change *c)
{
    struct qm_block_slab *slab;

    pthread_rwlock_rdlock(&shard->cache->slabs_lock);
    pthread_mutex_lock(&shard->lock);
    slab = shard->block_slabs;
    pthread_mutex_unlock(&shard->lock);
    for (; slab; slab = slab->next)
        for (size_t i = 0; i < slab->count;) {
            uint64_t number = 0;
            bool done = true;

            pthread_mutex_lock(&shard->lock);
            for (; i < slab->count && done; i += done) {
                struct qm_block *block = &slab->blocks[i];

                number = block->evict.block;
                if (block->part != QM_PART_NONE && number >= first && number <= last)
                    done = change_block(shard, block, c);
            }
            pthread_mutex_unlock(&shard->lock);
            if (!done) {
                change_number(shard->cache, number, c);
                i++;
            }
        }
    pthread_rwlock_unlock(&shard->cache->slabs_lock);
}

void qm_cache_write_end(struct qm_cache *cache, struct qm_cache_write *w,
                        enum qm_write_result result, const void *data)
{
    struct change c = {.w = w, .result = result, .data = data};
    uint64_t size = cache->config.block_size;

    pthread_mutex_lock(&cache->writes_lock);
    if (w->conflict)
        c.result = QM_WRITE_DROP;
    pthread_mutex_unlock(&cache->writes_lock);

    if (w->count > 0) {
        uint64_t first = w->offset / size, last = (end_of(w) - 1) / size;

        if (last - first < atomic_load_explicit(&cache->blocks, memory_order_relaxed)) {
            for (uint64_t number = first; number <= last; number++)
                change_number(cache, number, &c);
        } else {
            for (unsigned i = 0; i < cache->shard_count; i++)
                change_range(&cache->shards[i], first, last, &c);
        }
    }

    pthread_mutex_lock(&cache->writes_lock);
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    atomic_fetch_sub(&cache->writes_count, 1);
    pthread_mutex_unlock(&cache->writes_lock);
}
