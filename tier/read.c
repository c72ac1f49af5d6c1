/* SPDX-License-Identifier: BSD-3-Clause */
/* read.c - lookups, and how several blocks are read at once.
 *
 * A block that was found is pinned while it is read, and looked up again afterwards: if
 * a change of it began meanwhile, it is a miss.  So what is returned was right when it
 * was looked up the second time.
 *
 * Blocks of one call are looked up first.  If several are there, they are read by a
 * ring (ring.h) if there is one to be had, else by threads and the caller: it puts its
 * batch where the threads see it, and all take the next block of it until there is
 * none. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64

/* Blocks that were found, and are pinned. */
struct batch {
    struct qm_tier *t;
    struct qm_tier_read *reads[BATCH];
    struct slot slots[BATCH];
    size_t n;
    _Atomic size_t next;
    unsigned helpers; /* that have it; reader.lock */
    struct batch *after;
    pthread_cond_t left;
};

int reader_new(struct qm_tier *t)
{
    size_t size = t->g.block_size < QM_TIER_PAGE ? QM_TIER_PAGE : t->g.block_size;

    if (!t->config.data)
        return 0;
    t->reader.total = t->config.threads + 4;
    t->reader.buffers = tier_alloc(t, t->reader.total * sizeof(void *));
    t->reader.threads = tier_alloc(t, (t->config.threads + 1) * sizeof(pthread_t));
    if (!t->reader.buffers || !t->reader.threads)
        return ENOMEM;
    while (t->reader.free < t->reader.total) {
        void *buffer = tier_pages(t, size);

        if (!buffer)
            return ENOMEM;
        t->reader.buffers[t->reader.free++] = buffer;
    }
    return 0;
}

void reader_free(struct qm_tier *t)
{
    while (t->reader.buffers && t->reader.free > 0)
        free(t->reader.buffers[--t->reader.free]);
    free(t->reader.buffers);
    free(t->reader.threads);
}

static void *take_buffer(struct qm_tier *t)
{
    void *buffer;

    pthread_mutex_lock(&t->reader.lock);
    while (t->reader.free == 0)
        pthread_cond_wait(&t->reader.buffers_free, &t->reader.lock);
    buffer = t->reader.buffers[--t->reader.free];
    pthread_mutex_unlock(&t->reader.lock);
    return buffer;
}

static void give_buffer(struct qm_tier *t, void *buffer)
{
    pthread_mutex_lock(&t->reader.lock);
    t->reader.buffers[t->reader.free++] = buffer;
    pthread_cond_signal(&t->reader.buffers_free);
    pthread_mutex_unlock(&t->reader.lock);
}

static int check(struct qm_tier *t, const struct slot *s, const void *buf)
{
    return qm_tier_checksum(s->block, buf, t->g.block_size) == s->check ? 0 : EILSEQ;
}

/* Reads a slot's data.  Returns 0, an I/O error, or EILSEQ if it is not what it was. */
static int read_slot(struct qm_tier *t, const struct slot *s, void *buf)
{
    size_t size = t->g.block_size;
    uint64_t at = qm_tier_data_at(&t->g, s->segment, s->slot);
    bool aligned = size >= QM_TIER_PAGE && (uintptr_t)buf % QM_TIER_PAGE == 0;
    char *bounce = NULL;
    int r;

    if (!t->config.data)
        return 0;
    if (aligned || !t->io.direct) {
        r = t->io.read(t->io.opaque, QM_TIER_DATA, buf, size, at);
    } else {
        uint64_t from = at / QM_TIER_PAGE * QM_TIER_PAGE;

        bounce = take_buffer(t);
        r = t->io.read(t->io.opaque, QM_TIER_DATA, bounce,
                       size < QM_TIER_PAGE ? QM_TIER_PAGE : size, from);
        if (r == 0)
            memcpy(buf, bounce + (at - from), size);
        give_buffer(t, bounce);
    }
    return r ? r : check(t, s, buf);
}

/* Looks a block up.  Returns whether it is to be read: then it is pinned. */
static bool begin(struct qm_tier *t, struct qm_tier_read *read, struct slot *s)
{
    read->hit = false;
    COUNT(t, lookups);
    if (!read->ahead)
        admit_count(t, read->block);
    if (tier_dead(t) || read->block >= t->g.volume_blocks ||
        !admit_bloom_may_have(t, read->block) || !index_find(t, read->block, s)) {
        COUNT(t, misses);
        return false;
    }
    if (!verify_pending(t, s->segment, s->slot))
        return true;
    unpin(t, s);
    COUNT(t, misses);
    COUNT(t, unread);
    return false;
}

/* It was read, with that result. */
static void end(struct qm_tier *t, struct qm_tier_read *read, const struct slot *s,
                int r)
{
    bool doubtful = segment_of(t, s->segment)->doubtful;
    bool same = index_confirm(t, s, r == 0 && !read->ahead);

    unpin(t, s);
    if (r == 0 && same && !tier_dead(t)) {
        read->hit = true;
        COUNT(t, hits);
        tier_success(t);
        return;
    }
    COUNT(t, misses);
    if (r == 0 || !same)
        return;
    journal_drop(t, s->block);
    if (r == EILSEQ && doubtful)
        COUNT(t, lost_in_crash);
    else
        tier_error(t, r == EILSEQ ? WARN_CHECKSUM : WARN_READ, r);
}

static void read_batch(struct qm_tier *t, struct batch *b)
{
    size_t i;

    while ((i = atomic_fetch_add(&b->next, 1)) < b->n)
        end(t, b->reads[i], &b->slots[i], read_slot(t, &b->slots[i], b->reads[i]->buf));
}

static void end_of_many(void *opaque, size_t i, int r)
{
    struct batch *b = opaque;

    end(b->t, b->reads[i], &b->slots[i],
        r ? r : check(b->t, &b->slots[i], b->reads[i]->buf));
}

/* By a ring, if there is one. */
static bool read_many(struct qm_tier *t, struct batch *b)
{
    struct qm_tier_io_read reads[BATCH];
    size_t size = t->g.block_size;

    if (!t->io.read_many || size < QM_TIER_PAGE)
        return false;
    for (size_t i = 0; i < b->n; i++)
        reads[i] = (struct qm_tier_io_read){
            .buf = b->reads[i]->buf,
            .n = size,
            .at = qm_tier_data_at(&t->g, b->slots[i].segment, b->slots[i].slot)};
    return t->io.read_many(t->io.opaque, reads, b->n, end_of_many, b);
}

/* With reader.lock. */
static void unlink_batch(struct qm_tier *t, struct batch *b)
{
    for (struct batch **at = &t->reader.first; *at; at = &(*at)->after)
        if (*at == b) {
            *at = b->after;
            return;
        }
}

static void *help(void *opaque)
{
    struct qm_tier *t = opaque;

    pthread_mutex_lock(&t->reader.lock);
    while (!t->reader.stop) {
        struct batch *b = t->reader.first;

        if (!b) {
            pthread_cond_wait(&t->reader.work, &t->reader.lock);
            continue;
        }
        if (atomic_load(&b->next) >= b->n) {
            unlink_batch(t, b);
            continue;
        }
        b->helpers++;
        pthread_mutex_unlock(&t->reader.lock);
        read_batch(t, b);
        pthread_mutex_lock(&t->reader.lock);
        if (--b->helpers == 0)
            pthread_cond_signal(&b->left);
    }
    pthread_mutex_unlock(&t->reader.lock);
    return NULL;
}

int reader_start(struct qm_tier *t)
{
    while (!t->config.threadless && t->reader.running < t->config.threads) {
        int r = pthread_create(&t->reader.threads[t->reader.running], NULL, help, t);

        if (r != 0)
            return r;
        t->reader.running++;
    }
    return 0;
}

void reader_stop(struct qm_tier *t)
{
    pthread_mutex_lock(&t->reader.lock);
    t->reader.stop = true;
    pthread_cond_broadcast(&t->reader.work);
    pthread_mutex_unlock(&t->reader.lock);
    while (t->reader.running > 0)
        pthread_join(t->reader.threads[--t->reader.running], NULL);
}

/* By the caller and the threads. */
static void share(struct qm_tier *t, struct batch *b)
{
    b->helpers = 0;
    pthread_cond_init(&b->left, NULL);
    pthread_mutex_lock(&t->reader.lock);
    b->after = t->reader.first;
    t->reader.first = b;
    pthread_cond_broadcast(&t->reader.work);
    pthread_mutex_unlock(&t->reader.lock);
    read_batch(t, b);
    pthread_mutex_lock(&t->reader.lock);
    unlink_batch(t, b);
    while (b->helpers > 0)
        pthread_cond_wait(&b->left, &t->reader.lock);
    pthread_mutex_unlock(&t->reader.lock);
    pthread_cond_destroy(&b->left);
}

size_t qm_tier_read(struct qm_tier *t, struct qm_tier_read *reads, size_t n)
{
    size_t hits = 0;
    struct batch b;

    b.t = t;
    for (size_t i = 0; i < n;) {
        for (b.n = 0; i < n && b.n < BATCH; i++)
            if (begin(t, &reads[i], &b.slots[b.n]))
                b.reads[b.n++] = &reads[i];
        atomic_init(&b.next, 0);
        if (b.n > 1 && read_many(t, &b))
            continue;
        if (b.n > 1 && t->reader.running > 0)
            share(t, &b);
        else
            read_batch(t, &b);
    }
    for (size_t i = 0; i < n; i++)
        hits += reads[i].hit;
    rebuild_read(t, reads, n);
    return hits;
}

bool qm_tier_contains(struct qm_tier *t, uint64_t block)
{
    return block < t->g.volume_blocks && !tier_dead(t) && index_contains(t, block);
}
