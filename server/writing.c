/* SPDX-License-Identifier: BSD-3-Clause */
/* writing.c - the path of a write, and of what else changes the device.
 *
 * Writes go through the cache to the layer below, and are acknowledged when both have
 * them (cache.h).  Of those that overlap, each waits until the one before it has left
 * (order.h), before it does anything else: the cache has not been told of it then.
 */
#include "server/server.h"

/* A change of the device while it is carried out.
 *
 * Nothing that the tier holds may be older than the layer below, whenever the server or
 * the machine dies; so its copies are dropped, and marked as dropped on its disk,
 * before the layer below is asked for the change.  What remains is that a block with
 * the old data leaves memory, and enters the tier, after that.  Every block that memory
 * evicts has a ticket, taken under the lock with which a change looks for that block:
 *
 *   evicted before the tier was told     the ticket is older than the change
 *   after that, before memory is told    the same: the change's end is younger
 *   after memory was told                the block has the new data.  Its ticket is
 *                                        older than the change's end if that is yet to
 *                                        come, and the block is not inserted; else the
 *                                        ticket is younger, and it may be
 *
 * and the tier refuses a block of which a change is in flight, or ended after the
 * ticket.  So memory is told between the tier's begin and end, never after.  The other
 * way a block gets into memory, and from there into the tier, is a fill; and one that
 * overlaps with a change in time is not kept (cache.h).
 *
 * What the tier takes of the new data is copied before the client has its reply: nbdkit
 * replies when the request's function returns, and has the buffer back then.  Nor could
 * memory's copy be handed over instead, since memory need not have the block. */
struct writing {
    struct qm_cache_write cached;
    struct qm_tier *tier; /* that was told of its begin; NULL: none */
    struct qm_tier_write tiered;
    unsigned token;
};

static void begin_writing(struct qms_server *s, struct writing *w, uint64_t offset,
                          uint64_t count)
{
    qm_cache_write_begin(s->cache, &w->cached, offset, count);
    w->tier = qms_tiers_tell(&s->tiers, &w->token);
    if (w->tier)
        qm_tier_write_begin(w->tier, &w->tiered, offset, count);
}

static void end_writing(struct qms_server *s, struct writing *w,
                        enum qm_write_result result, const void *data)
{
    qm_cache_write_end(s->cache, &w->cached, result, data);
    /* A tier that is not fed yet, or any more, does not take the new data, either; nor
     * where connections need not see each other's writes (hand_over()). */
    if (w->tier && (w->tier != atomic_load(&s->tiers.served) ||
                    atomic_load_explicit(&s->uncached, memory_order_relaxed)))
        data = NULL;
    if (w->tier)
        qm_tier_write_end(w->tier, &w->tiered,
                          result == QM_WRITE_DATA ? QM_TIER_WROTE : QM_TIER_DROPPED,
                          data);
    qms_tiers_leave(&s->tiers, w->token);
}

void qms_forget_between(struct qms_server *s, uint64_t start, uint64_t end)
{
    struct writing w;

    begin_writing(s, &w, start, end - start);
    end_writing(s, &w, QM_WRITE_DROP, NULL);
}

/* Waits until it is the turn of a change.  Returns 0, or -1 with *err set: the server
 * stops. */
static int take_turn(struct qms_server *s, struct qms_change *change, uint32_t count,
                     uint64_t offset, int *err)
{
    int error;

    qms_order_arrive(&s->order, change, offset, count);
    error = qms_order_await(&s->order, change);
    if (error == 0)
        return 0;
    *err = error;
    return -1;
}

static void count_write(struct qms_server *s, struct qms_slot *slot, uint32_t count,
                        uint64_t offset)
{
    struct qms_ref ref;

    qms_context_arrive(&s->contexts, slot, QM_TRACE_WRITE, offset, count, &ref);
    qms_stats_add(s->stats, QMS_WRITES, 1);
    qms_stats_add(s->stats, QMS_WRITE_BYTES, count);
}

int qms_write(struct qms_server *s, nbdkit_next *next, struct qms_slot *slot,
              const void *buf, uint32_t count, uint64_t offset, uint32_t flags,
              int *err)
{
    struct qms_change change;
    struct writing w;
    int r;

    if (take_turn(s, &change, count, offset, err) == -1)
        return -1;
    count_write(s, slot, count, offset);
    begin_writing(s, &w, offset, count);
    r = next->pwrite(next, buf, count, offset, flags, err);
    if (r == 0)
        end_writing(s, &w, QM_WRITE_DATA, buf);
    else
        end_writing(s, &w, QM_WRITE_DROP, NULL);
    qms_order_leave(&s->order, &change);
    return r;
}

int qms_zero(struct qms_server *s, nbdkit_next *next, struct qms_slot *slot,
             uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    struct qms_change change;
    struct writing w;
    int r;

    if (take_turn(s, &change, count, offset, err) == -1)
        return -1;
    count_write(s, slot, count, offset);
    begin_writing(s, &w, offset, count);
    r = next->zero(next, count, offset, flags, err);
    end_writing(s, &w, r == 0 ? QM_WRITE_ZEROS : QM_WRITE_DROP, NULL);
    qms_order_leave(&s->order, &change);
    return r;
}

/* Only a tier wants to know: what was flushed need not be dropped when the machine
 * crashes. */
int qms_flush(struct qms_server *s, nbdkit_next *next, uint32_t flags, int *err)
{
    unsigned token;
    struct qm_tier *tier = qms_tiers_tell(&s->tiers, &token);
    uint64_t flush = tier ? qm_tier_flush_begin(tier) : 0;
    int r = next->flush(next, flags, err);

    if (tier)
        qm_tier_flush_end(tier, flush, r == 0);
    qms_tiers_leave(&s->tiers, token);
    return r;
}

/* The blocks that were trimmed as a whole; the device's last one need not be whole. */
static void forget_trimmed(struct qms_server *s, uint32_t count, uint64_t offset)
{
    const uint64_t block_size = s->config.block_size;
    const uint64_t first = offset / block_size + (offset % block_size != 0);
    uint64_t end = (offset + count) / block_size;

    if (offset + count == s->size && s->size % block_size != 0)
        end++;
    if (end > first) {
        unsigned stripe = qms_rwlock_read(&s->contexts.lock);

        qm_engine_forget(&s->engine, first, end - first);
        qms_rwlock_read_unlock(&s->contexts.lock, stripe);
    }
}

int qms_trim(struct qms_server *s, nbdkit_next *next, uint32_t count, uint64_t offset,
             uint32_t flags, int *err)
{
    struct qms_change change;
    struct writing w;
    int r;

    if (take_turn(s, &change, count, offset, err) == -1)
        return -1;
    begin_writing(s, &w, offset, count);
    r = next->trim(next, count, offset, flags, err);
    end_writing(s, &w, QM_WRITE_DROP, NULL);
    if (r == 0)
        forget_trimmed(s, count, offset);
    qms_order_leave(&s->order, &change);
    return r;
}
