/* SPDX-License-Identifier: BSD-3-Clause */
/* io.c - the path of a read (writing.c has that of a write).
 *
 * A read is taken apart into pieces, one a block, in ascending order, a batch of them
 * at a time.  Each piece is looked up in the cache and recorded in its context, and
 * what that makes likely is issued for prefetching; only then are the blocks read that
 * nobody has or is reading, adjacent ones by one call; and only after that does the
 * reader wait for others, so that it holds no load while it waits (cache.h).
 * A few blocks between those that are read may be read with them, and forgotten.
 *
 * A block that lies within the request whole is read to where the client wants it;
 * others are read beside and copied.  Of the device's last block only what is there is
 * read; in the cache the rest of it is zeros.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/reading.h"
#include "server/server.h"

struct piece {
    uint64_t block;
    char *to; /* in the request's buffer: count bytes from offset of the block */
    uint32_t offset, count;
    struct qm_fill *fill; /* ours to read and to fill; or NULL */
    struct qm_fill *wait; /* what somebody reads; or NULL */
    bool past;            /* the cache has no room: to be read past it */
    bool read;            /* the bytes are there */
    bool queued;          /* `fill` was a prefetch's that waited to be read */
    unsigned others;      /* reads beside that of `late`, when it was found */
    uint64_t late;        /* since when we wait for a prefetch; 0: we do not */
};

/* One request. */
struct request {
    struct qms_server *s;
    nbdkit_next *next;
    uint64_t size;              /* of the device, as the connection knows it */
    struct qms_reading reading; /* of a read */
    struct qm_tier *tier;       /* while pieces are read: to be looked into, or NULL */
    int err;                    /* the first that happened; 0: none */
};

static uint64_t block_start(const struct qms_server *s, uint64_t block)
{
    return block * s->config.block_size;
}

/* Reads from the layer below.  Returns 0 or its error. */
static int read_below(struct request *r, void *buf, uint32_t count, uint64_t offset,
                      unsigned blocks)
{
    struct qm_admission *admission = atomic_load(&r->s->measured);
    unsigned others = admission ? qm_admission_begin(admission, false) : 0;
    uint64_t start = qms_now(), now;
    int err = 0, rc;

    qms_stats_add(r->s->stats, QMS_DEVICE_READS, 1);
    qm_device_load_demand(&r->s->load, 1);
    /* A plugin that fails without a number, as nbdkit's file plugin at an unexpected
     * end, fails with what is left in errno. */
    errno = 0;
    rc = r->next->pread(r->next, buf, count, offset, 0, &err);
    qm_device_load_demand(&r->s->load, -1);
    now = qms_now();
    if (admission)
        qm_admission_end(admission, false, others, now, now - start,
                         rc == -1 ? 0 : blocks);
    if (r->s->prefetch)
        qms_prefetch_kick(r->s->prefetch);
    if (rc == -1)
        return err ? err : EIO;
    qm_latency_took(&r->s->latency, QM_PLACE_BACKEND, count, now - start);
    qms_stats_add(r->s->stats, QMS_DEVICE_BLOCKS, blocks);
    return 0;
}

/* Whether the device has grown since the connection was opened, within this block: the
 * connection can read only the first part of it. */
static bool is_cut(const struct request *r, uint64_t block)
{
    return r->size - block_start(r->s, block) < r->s->config.block_size &&
           r->size < atomic_load(&r->s->size);
}

/* Takes note of what a demand said is to be done for a piece. */
static void plan(struct request *r, struct piece *p, int error,
                 const struct qm_lookup *found)
{
    p->past = error != 0;
    p->read = !p->past && found->todo == QM_DONE;
    if (p->past || p->read)
        return;
    if (found->todo == QM_FETCH) {
        p->fill = found->fill;
    } else {
        /* If that is a prefetch nobody has begun to read, it is our turn now. */
        p->wait = found->fill;
        if (r->s->prefetch && qms_prefetch_take(r->s->prefetch, p->block, found->fill))
            p->fill = found->fill;
        p->queued = p->fill != NULL;
    }
    /* Not before there is a fill: one that began before the server has dropped the
     * block, since the device has grown, is detached (size.c). */
    if (p->fill && is_cut(r, p->block)) {
        qm_cache_fail(r->s->cache, p->fill);
        p->fill = NULL;
        p->past = true;
    }
}

static void touch_tier(struct qms_server *s, uint64_t block)
{
    unsigned token;
    struct qm_tier *tier = qms_tiers_enter(&s->tiers, &token);

    if (tier)
        qm_tier_touch(tier, block);
    qms_tiers_leave(&s->tiers, token);
}

/* A demand found a prefetch: what that saved is known now, or when it has waited. */
static void note_use(struct request *r, struct piece *p, const struct qm_lookup *found)
{
    struct qm_admission *admission = atomic_load(&r->s->measured);
    unsigned reads;

    if (!admission)
        return;
    reads = qm_admission_reads(admission);
    if (found->todo == QM_DONE) {
        qm_admission_used(admission, reads, 0);
    } else if (p->wait && !p->fill) {
        p->late = qms_now();
        p->others = reads > 0 ? reads - 1 : 0;
    }
}

/* The prefetch that p waited for has come. */
static void note_wait(struct request *r, const struct piece *p)
{
    struct qm_admission *admission = atomic_load(&r->s->measured);

    if (admission)
        qm_admission_used(admission, p->others, qms_now() - p->late);
}

static void look_up(struct request *r, struct piece *p)
{
    struct qm_lookup found;
    int error =
        qm_cache_demand(r->s->cache, p->block, p->to, p->offset, p->count, &found);

    if (error != 0) {
        found.outcome = QM_MISS;
        qms_stats_add(r->s->stats, QMS_PAST, 1);
    }
    plan(r, p, error, &found);
    if (found.outcome == QM_PREFETCH_HIT) {
        touch_tier(r->s, p->block);
        note_use(r, p, &found);
    }
    qms_reading_found(&r->reading, p->block, &found);
}

/* Whether n pieces lie in the request's buffer as they do on the device. */
static bool in_place(const struct qms_server *s, const struct piece *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (p[i].count != s->config.block_size)
            return false;
    return true;
}

/* Prefetches of the blocks behind a piece, to be read with it: of a run that a stream
 * wants, its reader has come to the first blocks before any worker has, or wants them
 * since this very read missed.  Read one by one they would take far longer. */
static unsigned follow(struct request *r, const struct piece *last, unsigned n,
                       struct qm_ahead_job **jobs)
{
    struct qms_server *s = r->s;
    unsigned max = s->max_bytes / s->config.block_size;
    uint64_t whole = r->size / s->config.block_size; /* blocks that it can read */

    if (whole <= last->block + 1)
        return 0;
    if (max - n > whole - last->block - 1 && n < max)
        max = n + (unsigned)(whole - last->block - 1);
    if (n >= max || !s->prefetch || (!last->queued && !qms_prefetch_waits(s->prefetch)))
        return 0;
    max -= n;
    return qms_prefetch_follow(s->prefetch, last->block + 1,
                               max < QM_AHEAD_JOIN_MAX ? max : QM_AHEAD_JOIN_MAX, jobs);
}

/* The data of a piece is there, or not. */
static void end_piece(struct request *r, struct piece *p, const char *at, bool beside,
                      int error)
{
    struct qms_server *s = r->s;

    if (error != 0) {
        qm_cache_fail(s->cache, p->fill);
    } else {
        bool kept = qm_cache_fill(s->cache, p->fill, at);

        if (beside)
            memcpy(p->to, at + p->offset, p->count);
        if (!kept)
            qm_cache_peek(s->cache, p->block, p->to, p->offset, p->count);
    }
    p->fill = NULL;
    p->read = error == 0;
}

/* Prefetches that were to be read with a demand's blocks end: with their data, or
 * without if `at` is NULL. */
static void end_jobs(struct qms_server *s, struct qm_ahead_job **jobs, unsigned n,
                     const char *at)
{
    for (unsigned i = 0; i < n; i++) {
        if (at)
            qm_cache_fill(s->cache, jobs[i]->fill, at + i * s->config.block_size);
        else
            qm_cache_fail(s->cache, jobs[i]->fill);
        free(jobs[i]);
    }
}

/* Reads `blocks` blocks from `block` on; zeros for what lies behind the device's end.
 */
static int read_blocks(struct request *r, char *to, uint64_t block, unsigned blocks)
{
    const struct qms_server *s = r->s;
    const uint64_t start = block_start(s, block);
    size_t bytes = (size_t)blocks * s->config.block_size, valid = bytes;

    if (valid > r->size - start) {
        valid = r->size - start;
        memset(to + valid, 0, bytes - valid);
    }
    return read_below(r, to, valid, start, blocks);
}

/* Whether the block is to be read, for the cache or past it. */
static bool is_ours(const struct piece *p)
{
    return p->fill || (p->past && p->count > 0);
}

static bool is_wanted(const void *pieces, unsigned i)
{
    return is_ours((const struct piece *)pieces + i);
}

/* Pieces that are read by one call, of at most max from p on, which is ours. */
static unsigned run_of(struct request *r, const struct piece *p, unsigned max)
{
    return qm_latency_run(&r->s->latency, QM_PLACE_BACKEND, r->s->config.block_size,
                          max, is_wanted, p);
}

/* Of n pieces, how many from p on are ours. */
static unsigned ours(const struct piece *p, unsigned n)
{
    unsigned i = 0;

    while (i < n && is_ours(&p[i]))
        i++;
    return i;
}

/* Copies the bytes that are there of pieces which are read over to `kept`, which has
 * room for n blocks; or back. */
static void keep(const struct piece *p, unsigned n, char *kept, bool back)
{
    for (unsigned i = 0; i < n; i++) {
        if (!p[i].read)
            continue;
        memcpy(back ? p[i].to : kept, back ? kept : p[i].to, p[i].count);
        kept += p[i].count;
    }
}

/* Reads what is ours of n pieces, and that only, to where one call for all would. */
static int read_apart(struct request *r, char *at, const struct piece *p, unsigned n)
{
    const size_t block_size = r->s->config.block_size;
    int error = 0;

    for (unsigned i = 0, count; i < n && error == 0; i += count + 1) {
        count = ours(p + i, n - i);
        if (count > 0)
            error = read_blocks(r, at + i * block_size, p[i].block, count);
    }
    return error;
}

/* n pieces were read, and `more` blocks behind them.  Where no fill is in flight, the
 * data is not known to be what the layer below has now. */
static void tell_tier(struct request *r, const char *at, const struct piece *p,
                      unsigned n, unsigned more)
{
    for (unsigned i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && p[end].fill; end++)
            ;
        if (end > i)
            qms_tier_seen(r->tier, p[i].block, at + i * r->s->config.block_size,
                          end - i + (end == n ? more : 0));
    }
}

/* A piece was read past the cache. */
static void end_past(struct request *r, const struct piece *p, const char *at,
                     bool beside)
{
    if (beside)
        memcpy(p->to, at + p->offset, p->count);
    qm_cache_peek(r->s->cache, p->block, p->to, p->offset, p->count);
}

/* Reads such a piece, and no more than its bytes. */
static void read_one_past(struct request *r, const struct piece *p)
{
    r->err = read_below(r, p->to, p->count, block_start(r->s, p->block) + p->offset, 1);
    if (r->err == 0)
        end_past(r, p, NULL, false);
}

/* Reads the blocks of n pieces, a run as run_of() says, by one call, and ends those
 * that are ours, well or not; others are not touched.  If that fails, what is ours is
 * read alone: an error of what nobody has asked for, or what is there, is nobody's. */
static void read_run(struct request *r, struct piece *p, unsigned n)
{
    struct qms_server *s = r->s;
    const size_t block_size = s->config.block_size;
    struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX];
    unsigned more = follow(r, &p[n - 1], n, jobs);
    const bool over = ours(p, n) < n;
    char *beside = NULL, *kept = NULL, *at = p->to;
    int error = 0;

    if (more > 0 || !in_place(s, p, n))
        at = beside = malloc((n + more) * block_size);
    else if (over)
        kept = malloc(n * block_size);
    if (!at || (over && !beside && !kept))
        error = ENOMEM;
    if (kept)
        keep(p, n, kept, false);
    if (error == 0)
        error = read_blocks(r, at, p->block, n + more);
    if (kept)
        keep(p, n, kept, true);
    if (error != 0 && (more > 0 || over)) {
        end_jobs(s, jobs, more, NULL);
        more = 0;
        if (at)
            error = read_apart(r, at, p, n);
    }
    if (error == 0)
        tell_tier(r, at, p, n, more);
    for (unsigned i = 0; i < n; i++) {
        const char *block = error ? NULL : at + i * block_size;

        if (p[i].fill)
            end_piece(r, &p[i], block, beside != NULL, error);
        else if (is_ours(&p[i]) && !error)
            end_past(r, &p[i], block, beside != NULL);
    }
    if (more > 0)
        end_jobs(s, jobs, more, at + n * block_size);
    free(beside);
    free(kept);
    r->err = error;
}

/* Reads what is ours to read of a batch, and lies in the tier, several blocks at once.
 * A fill is in flight of each, so a write that overlaps detaches it as it would one
 * from the layer below; and no copy in the tier is older than the layer below was when
 * the fill began (struct writing of writing.c). */
static void read_tier(struct request *r, struct piece *p, unsigned n)
{
    struct qms_server *s = r->s;
    const size_t block_size = s->config.block_size;
    struct qm_tier_read reads[QM_BATCH_MAX];
    struct piece *of[QM_BATCH_MAX];
    uint64_t start = qms_now();
    char *beside = NULL, *at = NULL;
    unsigned count = 0, parts = 0;
    size_t hits;

    for (unsigned i = 0; i < n; i++)
        parts += p[i].fill && p[i].count != block_size;
    if (parts > 0) {
        at = beside = aligned_alloc(4096, parts * block_size);
        if (!beside)
            return; /* the layer below has it all */
    }
    for (unsigned i = 0; i < n; i++) {
        if (!p[i].fill)
            continue;
        of[count] = &p[i];
        reads[count] = (struct qm_tier_read){.block = p[i].block, .buf = p[i].to};
        if (p[i].count != block_size) {
            reads[count].buf = at;
            at += block_size;
        }
        count++;
    }
    hits = count > 0 ? qm_tier_read(r->tier, reads, count) : 0;
    if (hits > 0)
        qm_latency_took(&s->latency, QM_PLACE_TIER, hits * block_size,
                        qms_now() - start);
    for (unsigned i = 0; i < count && hits > 0; i++)
        if (reads[i].hit)
            end_piece(r, of[i], reads[i].buf, of[i]->count != block_size, 0);
    free(beside);
}

/* Reads what is ours to read of a batch.  After an error the rest is failed unread. */
static void read_ours(struct request *r, struct piece *p, unsigned n)
{
    const unsigned max = r->s->max_bytes / r->s->config.block_size;
    unsigned first = 0, end, token;

    r->tier = qms_tiers_enter(&r->s->tiers, &token);
    if (r->tier && r->err == 0)
        read_tier(r, p, n);
    for (; first < n; first = end) {
        end = first + 1;
        if (r->err != 0) {
            if (p[first].fill)
                qm_cache_fail(r->s->cache, p[first].fill);
            p[first].fill = NULL;
        } else if (is_ours(&p[first])) {
            end = first + run_of(r, p + first, n - first < max ? n - first : max);
            if (end == first + 1 && p[first].past)
                read_one_past(r, &p[first]);
            else
                read_run(r, p + first, end - first);
        }
    }
    r->tier = NULL;
    qms_tiers_leave(&r->s->tiers, token);
}

/* Waits for another request's read of a piece.  If it fails, or is not kept, the first
 * of those that wait reads the piece, perhaps this one; but not a piece of no bytes:
 * that is advice, and the layer below has no empty reads. */
static void wait_for(struct request *r, struct piece *p)
{
    struct qms_server *s = r->s;

    while (p->wait) {
        struct qm_fill *wait = p->wait;
        struct qm_lookup found;
        int error;

        p->wait = NULL;
        error = qm_cache_wait(s->cache, wait, p->to, p->offset, p->count);
        if (error == 0 && p->late > 0)
            note_wait(r, p);
        if (error == 0 || p->read || r->err != 0 || p->count == 0)
            return;
        p->late = 0;
        error = qm_cache_demand_again(s->cache, p->block, p->to, p->offset, p->count,
                                      &found);
        plan(r, p, error, &found);
        read_ours(r, p, 1);
    }
}

/* Reads n pieces, adjacent blocks in ascending order. */
static void read_batch(struct request *r, struct piece *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        look_up(r, &p[i]);
    read_ours(r, p, n);
    for (unsigned i = 0; i < n; i++)
        wait_for(r, &p[i]);
}

static bool is_cached(struct qms_server *s, const struct qms_connection *c)
{
    return c->cached && !atomic_load_explicit(&s->uncached, memory_order_relaxed);
}

static unsigned blocks_of(const struct qms_server *s, uint32_t count, uint64_t offset)
{
    const uint64_t block_size = s->config.block_size;

    return (offset + count - 1) / block_size - offset / block_size + 1;
}

static void read_cached(struct request *r, char *buf, uint32_t count, uint64_t offset)
{
    const uint32_t block_size = r->s->config.block_size;
    const unsigned max = atomic_load_explicit(&r->s->batch, memory_order_relaxed);
    struct piece pieces[QM_BATCH_MAX];

    while (count > 0 && r->err == 0) {
        unsigned n = 0;

        while (count > 0 && n < max) {
            uint32_t skip = offset % block_size, part = block_size - skip;

            if (part > count)
                part = count;
            pieces[n++] = (struct piece){
                .block = offset / block_size, .to = buf, .offset = skip, .count = part};
            buf += part;
            offset += part;
            count -= part;
        }
        read_batch(r, pieces, n);
    }
}

/* A read for a connection that nothing is cached for.  Others may be served from the
 * cache meanwhile: while a write is in flight this reader must not be ahead of them. */
static void read_past(struct request *r, char *buf, uint32_t count, uint64_t offset)
{
    struct qms_server *s = r->s;
    const uint64_t block_size = s->config.block_size;
    const uint64_t end = offset + count;

    r->err = read_below(r, buf, count, offset, blocks_of(s, count, offset));
    if (r->err != 0 || atomic_load_explicit(&s->uncached, memory_order_relaxed))
        return;
    for (uint64_t at = offset, n; at < end; at += n, buf += n) {
        uint64_t skip = at % block_size;

        n = block_size - skip < end - at ? block_size - skip : end - at;
        qm_cache_peek(s->cache, at / block_size, buf, skip, n);
    }
}

int qms_read(struct qms_server *s, struct qms_connection *c, nbdkit_next *next,
             struct qms_slot *slot, void *buf, uint32_t count, uint64_t offset,
             int *err)
{
    struct request r = {.s = s, .next = next, .size = c->size};

    qms_reading_begin(&r.reading, s, c, slot, count, offset);
    if (is_cached(s, c))
        read_cached(&r, buf, count, offset);
    else
        read_past(&r, buf, count, offset);
    qms_reading_end(&r.reading, count);
    if (r.err != 0) {
        *err = r.err;
        return -1;
    }
    return 0;
}

/* NBD_CMD_CACHE: fills the cache with what is not there, as a demand would.  It is
 * advice: blocks that a cache of this size cannot keep are not read.  A batch is what
 * one read of the layer below may have, since all of it lies in memory of its own. */
int qms_fill(struct qms_server *s, struct qms_connection *c, nbdkit_next *next,
             uint32_t count, uint64_t offset, int *err)
{
    struct request r = {.s = s, .next = next, .size = c->size};
    const unsigned batch = atomic_load_explicit(&s->batch, memory_order_relaxed);
    const unsigned most = s->max_bytes / s->config.block_size; /* at least 1 */
    const unsigned max = batch < most ? batch : most;
    const uint64_t capacity = qm_cache_capacity(s->cache);
    uint64_t block = offset / s->config.block_size;
    uint64_t end = block + blocks_of(s, count, offset);
    struct piece pieces[QM_BATCH_MAX];
    char nowhere;

    if (!is_cached(s, c))
        return 0;
    if (end - block > capacity)
        end = block + capacity;
    while (block < end && r.err == 0) {
        unsigned n = 0;

        for (; block < end && n < max; block++) {
            struct qm_lookup found;
            int error;

            if (qm_cache_contains(s->cache, block)) {
                if (n > 0)
                    break; /* what is read by one call must be adjacent */
                continue;
            }
            pieces[n] = (struct piece){.block = block, .to = &nowhere};
            error = qm_cache_demand(s->cache, block, &nowhere, 0, 0, &found);
            if (error != 0) {
                end = block; /* no room: what came so far will do */
                break;
            }
            plan(&r, &pieces[n++], 0, &found);
        }
        read_ours(&r, pieces, n);
        for (unsigned i = 0; i < n; i++)
            wait_for(&r, &pieces[i]);
    }
    if (r.err != 0) {
        *err = r.err;
        return -1;
    }
    return 0;
}
