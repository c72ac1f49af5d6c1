/* SPDX-License-Identifier: BSD-3-Clause */
/* trim.c - gives slabs back when a shard has more than its limits allow.
 *
 * The latest slabs go first.  What is in use of them, scattered as it is, moves to
 * where something is free: a buffer as if its block were written to, and a header by
 * putting another in its place in the table and in the order of eviction
 * (qm_shard_move()).  A reader that found either before goes on with it, as it is only
 * free after a grace period.  Of the last slab of buffers a part may stay.  A header
 * with references cannot move: while a fill of it is in flight its slab stays, and the
 * next call tries again.
 *
 * What is free of these slabs is set aside, when it is met in a list of what is free.
 * When all of a slab has been, nobody can have a pointer to it but the rings, which are
 * emptied, and the lists of slabs, whose lock is held: then it goes.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/internal.h"

#define PASSES 8 /* over the blocks, to move them */
#define DRAINS 1000

#define PAGE UINT64_C(4096)

/* A part of a slab that is about to be given back. */
struct leaving {
    char *from, *to; /* its headers, or descriptors of buffers */
    void *slab;
    uint64_t count, taken;   /* headers or buffers; of these, set aside */
    struct qm_block *blocks; /* set aside */
    struct qm_buf *bufs;
};

/* By address. */
struct qm_trim {
    struct leaving *blocks, *bufs;
    size_t n_blocks, n_bufs;
};

static int compare(const void *a, const void *b)
{
    const struct leaving *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

static struct leaving *find(struct leaving *all, size_t n, const void *p)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if ((const char *)p < all[middle].from)
            high = middle;
        else if ((const char *)p >= all[middle].to)
            low = middle + 1;
        else
            return &all[middle];
    }
    return NULL;
}

bool qm_trim_takes_block(struct qm_shard *shard, struct qm_block *block)
{
    struct leaving *l = find(shard->trim->blocks, shard->trim->n_blocks, block);

    if (!l)
        return false;
    block->next = l->blocks;
    l->blocks = block;
    l->taken++;
    return true;
}

bool qm_trim_takes_buf(struct qm_shard *shard, struct qm_buf *buf)
{
    struct leaving *l = find(shard->trim->bufs, shard->trim->n_bufs, buf);

    if (!l)
        return false;
    buf->next = l->bufs;
    l->bufs = buf;
    l->taken++;
    return true;
}

static uint64_t excess(uint64_t made, uint64_t most)
{
    return made > most ? made - most : 0;
}

/* The slabs that can go, unless a policy of the caller's has pointers to nodes: from
 * the first on, as long as the others have enough.  Mutex held, slabs_lock too, or this
 * is the thread that resizes. */
static void choose_blocks(struct qm_shard *shard, struct qm_trim *trim)
{
    uint64_t left = excess(shard->blocks_made, shard->limits.blocks);

    for (struct qm_block_slab *slab = shard->block_slabs; slab && slab->count <= left;
         slab = slab->next) {
        trim->blocks[trim->n_blocks++] =
            (struct leaving){.from = (char *)slab->blocks,
                             .to = (char *)(slab->blocks + slab->count),
                             .slab = slab,
                             .count = slab->count};
        left -= slab->count;
    }
}

static void choose_bufs(struct qm_shard *shard, struct qm_trim *trim)
{
    uint64_t left = excess(shard->bufs_made, shard->limits.bufs);

    for (struct qm_buf_slab *slab = shard->buf_slabs; slab && left > 0;
         slab = slab->next) {
        uint64_t n = slab->count < left ? slab->count : left;

        trim->bufs[trim->n_bufs++] =
            (struct leaving){.from = (char *)(slab->bufs + slab->count - n),
                             .to = (char *)(slab->bufs + slab->count),
                             .slab = slab,
                             .count = n};
        left -= n;
    }
}

/* If there is nothing to give back, *trim is all 0.  Returns 0 or ENOMEM. */
static int begin_trim(struct qm_shard *shard, struct qm_trim *trim)
{
    size_t blocks = 1, bufs = 1;
    bool any;

    /* Only this thread takes slabs away, and where there is an excess none is added. */
    pthread_mutex_lock(&shard->lock);
    for (struct qm_block_slab *slab = shard->block_slabs; slab; slab = slab->next)
        blocks++;
    for (struct qm_buf_slab *slab = shard->buf_slabs; slab; slab = slab->next)
        bufs++;
    any = excess(shard->blocks_made, shard->limits.blocks) > 0 ||
          excess(shard->bufs_made, shard->limits.bufs) > 0;
    pthread_mutex_unlock(&shard->lock);
    *trim = (struct qm_trim){0};
    if (!any)
        return 0;
    trim->blocks = calloc(blocks, sizeof(trim->blocks[0]));
    trim->bufs = calloc(bufs, sizeof(trim->bufs[0]));
    if (!trim->blocks || !trim->bufs) {
        free(trim->blocks);
        free(trim->bufs);
        return ENOMEM;
    }
    pthread_mutex_lock(&shard->lock);
    if (!shard->cache->config.own_eviction)
        choose_blocks(shard, trim);
    choose_bufs(shard, trim);
    qsort(trim->blocks, trim->n_blocks, sizeof(trim->blocks[0]), compare);
    qsort(trim->bufs, trim->n_bufs, sizeof(trim->bufs[0]), compare);
    shard->trim = trim;
    pthread_mutex_unlock(&shard->lock);
    return 0;
}

/* Moves what block has out of what leaves.  Mutex held.  Returns false if nothing is
 * free to move to. */
static bool move_out(struct qm_shard *shard, struct qm_block *block)
{
    struct qm_trim *trim = shard->trim;
    struct qm_block *to;
    struct qm_buf *buf, *old = block->buf;

    if (block->part == QM_PART_NONE)
        return true;
    if (old && find(trim->bufs, trim->n_bufs, old)) {
        buf = qm_slab_buf(shard);
        if (!buf)
            return false;
        memcpy(buf->bytes, old->bytes, shard->cache->config.block_size);
        qm_block_set_buf(block, buf);
        qm_slab_retire_buf(shard, old);
    }
    if (block->refs == 0 && find(trim->blocks, trim->n_blocks, block)) {
        to = qm_slab_block(shard);
        if (!to)
            return false;
        qm_shard_move(shard, block, to);
    }
    return true;
}

/* Moves all blocks that can be moved.  A walk of the lists of slabs must meet every
 * block, so no thread makes one meanwhile. */
static void move_all(struct qm_shard *shard)
{
    struct qm_block_slab *slab;
    size_t i = 0;
    int failed = 0;

    pthread_mutex_lock(&shard->lock);
    slab = shard->block_slabs;
    pthread_mutex_unlock(&shard->lock);
    while (slab) {
        bool reclaim, ok = true;

        pthread_rwlock_wrlock(&shard->cache->slabs_lock);
        pthread_mutex_lock(&shard->lock);
        qm_shard_drain(shard);
        for (int n = 0; n < QM_STEP && i < slab->count && ok; n++)
            if ((ok = move_out(shard, &slab->blocks[i])))
                i++;
        reclaim = !ok || shard->limbo >= shard->limits.batch;
        pthread_mutex_unlock(&shard->lock);
        pthread_rwlock_unlock(&shard->cache->slabs_lock);
        if (reclaim)
            qm_slab_reclaim(shard, true);
        failed = ok ? 0 : failed + 1;
        if (failed > QM_RECLAIM_TRIES) { /* others had what became free */
            failed = 0;
            i++;
        }
        if (i >= slab->count) {
            slab = slab->next;
            i = 0;
        }
    }
}

/* Sets aside what is free of what leaves.  The lists of what is free are longest now,
 * so they are gone through in steps, too: what stays is kept apart meanwhile. */
static void sift(struct qm_shard *shard)
{
    struct qm_block *blocks = NULL, *block;
    struct qm_buf *bufs = NULL, *buf;
    bool more;

    do {
        pthread_mutex_lock(&shard->lock);
        for (int i = 0; i < QM_STEP && (block = shard->free_blocks); i++) {
            shard->free_blocks = block->next;
            if (!qm_trim_takes_block(shard, block)) {
                block->next = blocks;
                blocks = block;
            }
        }
        for (int i = 0; i < QM_STEP && (buf = shard->free_bufs); i++) {
            shard->free_bufs = buf->next;
            if (!qm_trim_takes_buf(shard, buf)) {
                buf->next = bufs;
                bufs = buf;
            }
        }
        more = shard->free_blocks || shard->free_bufs;
        if (!more) {
            shard->free_blocks = blocks;
            shard->free_bufs = bufs;
        }
        pthread_mutex_unlock(&shard->lock);
    } while (more);
}

static bool is_complete(const struct qm_trim *trim)
{
    for (size_t i = 0; i < trim->n_blocks; i++)
        if (trim->blocks[i].taken < trim->blocks[i].count)
            return false;
    for (size_t i = 0; i < trim->n_bufs; i++)
        if (trim->bufs[i].taken < trim->bufs[i].count)
            return false;
    return true;
}

/* What was set aside of a part that stays is free again.  Mutex held. */
static void put_back(struct qm_shard *shard, struct leaving *l)
{
    while (l->blocks) {
        struct qm_block *block = l->blocks;

        l->blocks = block->next;
        block->next = shard->free_blocks;
        shard->free_blocks = block;
    }
    while (l->bufs) {
        struct qm_buf *buf = l->bufs;

        l->bufs = buf->next;
        qm_slab_unused_buf(shard, buf);
    }
}

/* A ring may still have a header that is about to go.  Mutex held; released now and
 * then.  Returns whether none has. */
static bool drain_all(struct qm_shard *shard)
{
    for (int i = 0; !qm_shard_drain(shard); i++) {
        if (i == DRAINS)
            return false;
        pthread_mutex_unlock(&shard->lock);
        sched_yield();
        pthread_mutex_lock(&shard->lock);
    }
    return true;
}

/* Takes l's slab, which is whole, out of the list. */
static void unlink_blocks(struct qm_shard *shard, const struct leaving *l)
{
    struct qm_block_slab **link = &shard->block_slabs, *slab = l->slab;

    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    shard->blocks_made -= slab->count;
    shard->bytes -= qm_budget_block_slab(slab->count);
    free(slab);
}

/* The end of a slab goes, or all of it; from the first slab on, so that only the first
 * is not full.  Returns whether it was all. */
static bool unlink_bufs(struct qm_shard *shard, const struct leaving *l)
{
    uint32_t size = shard->cache->config.block_size;
    struct qm_buf_slab *slab = l->slab;
    size_t mapped = qm_slab_mapped(slab, size), kept;

    shard->bufs_made -= l->count;
    shard->bytes -= l->count * size;
    slab->count -= l->count;
    kept = (slab->count * size + PAGE - 1) & ~(size_t)(PAGE - 1);
    if (slab->count > 0) {
        /* As huge pages, the kernel would fill the rest up again. */
        (void)madvise(slab->bytes, mapped, MADV_NOHUGEPAGE);
        if (mapped > kept)
            (void)madvise(slab->bytes + kept, mapped - kept, MADV_DONTNEED);
        return false;
    }
    shard->buf_slabs = slab->next;
    shard->odd_slabs -= slab->room < shard->limits.bufs_a_slab;
    shard->bytes -= qm_budget_buf_slab(0, size) + slab->room * sizeof(slab->bufs[0]);
    munmap(slab->bytes, mapped);
    free(slab);
    return true;
}

/* Gives back what was set aside as a whole, of buffers from the first slab on. */
static void end_trim(struct qm_shard *shard, struct qm_trim *trim)
{
    pthread_rwlock_wrlock(&shard->cache->slabs_lock);
    pthread_mutex_lock(&shard->lock);
    bool drained = drain_all(shard);

    for (size_t i = 0; i < trim->n_blocks; i++) {
        struct leaving *l = &trim->blocks[i];

        if (drained && l->taken == l->count)
            unlink_blocks(shard, l);
        else
            put_back(shard, l);
    }
    for (bool all = true; all && shard->buf_slabs;) {
        struct leaving *l = NULL;

        for (size_t i = 0; i < trim->n_bufs; i++)
            if (trim->bufs[i].slab == shard->buf_slabs)
                l = &trim->bufs[i];
        if (!l || l->taken < l->count)
            break;
        l->slab = NULL;
        l->bufs = NULL;
        all = unlink_bufs(
            shard, &(struct leaving){.slab = shard->buf_slabs, .count = l->count});
    }
    for (size_t i = 0; i < trim->n_bufs; i++)
        put_back(shard, &trim->bufs[i]);
    shard->trim = NULL;
    pthread_mutex_unlock(&shard->lock);
    pthread_rwlock_unlock(&shard->cache->slabs_lock);
    free(trim->blocks);
    free(trim->bufs);
}

int qm_shard_trim(struct qm_shard *shard)
{
    struct qm_trim trim;
    bool done = false;
    int error = begin_trim(shard, &trim);

    if (error != 0 || !trim.blocks)
        return error;
    done = trim.n_blocks + trim.n_bufs == 0;
    for (int pass = 0; pass < PASSES && !done; pass++) {
        move_all(shard);
        qm_slab_reclaim(shard, true); /* another's may have been on its way */
        qm_slab_reclaim(shard, true);
        sift(shard);
        pthread_mutex_lock(&shard->lock);
        done = is_complete(&trim);
        pthread_mutex_unlock(&shard->lock);
    }
    end_trim(shard, &trim);
    return done ? 0 : EAGAIN;
}
