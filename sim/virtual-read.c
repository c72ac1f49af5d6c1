/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-read.c - the way of a request, in virtual time: server/io.c without threads
 * (virtual.h).
 *
 * A batch of blocks is looked up, and what that makes likely queued for prefetching;
 * then the runs are read that nobody has or is reading, one after the other; and only
 * then are others waited for.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/virtual-internal.h"

/* One block's candidates on their way into the queue. */
struct issue {
    struct qm_virtual *v;
    uint32_t issuer;
};

static unsigned issue_run(void *opaque, uint64_t block, uint32_t count)
{
    struct issue *issue = opaque;

    return vt_ahead_issue(issue->v, block, count, issue->issuer);
}

/* The event that a request of the reader is, as the feed wants to see it. */
static struct qm_event event_of(const struct vt_reader *r)
{
    struct qm_event event = {.type = QM_TRACE_READ, .slot = r->slot};

    if (r->slot && r->actor.v->slots[r->slot].generation != r->generation)
        event.slot = 0; /* its context has ended before it: in the open loop only */
    return event;
}

/* Takes note of what a demand said is to be done for a piece. */
static void plan(struct vt_reader *r, struct vt_piece *p, int error,
                 const struct qm_lookup *found)
{
    p->fill = p->wait = NULL;
    p->past = error != 0;
    p->read = p->queued = p->tier = p->late = false;
    if (p->past)
        return;
    if (found->todo == QM_FETCH) {
        p->fill = found->fill;
    } else if (found->todo == QM_WAIT) {
        /* If that is a prefetch nobody has begun to read, it is our turn now. */
        p->wait = found->fill;
        if (vt_ahead_take(r->actor.v, p->block, found->fill))
            p->fill = found->fill;
        p->queued = p->fill != NULL;
    }
}

/* A demand found a prefetch: what that saved is known now, or when it has waited. */
static void note_use(struct qm_virtual *v, struct vt_piece *p,
                     const struct qm_lookup *found)
{
    struct qm_admission *a = &v->sim->admission;
    unsigned reads = qm_admission_reads(a);

    if (found->todo == QM_DONE) {
        qm_admission_used(a, reads, 0);
    } else if (p->wait && !p->fill) {
        p->late = true;
        p->since = v->now;
        p->others = reads > 0 ? reads - 1 : 0;
    }
}

static void account(struct vt_reader *r, uint64_t block, const struct qm_lookup *found)
{
    struct qm_virtual *v = r->actor.v;
    struct qm_sim *sim = v->sim;
    const struct qm_engine *e = &sim->engine;
    struct qm_event event = event_of(r);
    uint32_t klass = qm_feed_class(&sim->feed, &event);
    struct issue issue = {v, qm_sim_issuer(sim, klass)};
    struct qm_candidate candidates[QM_CANDIDATES_MAX];
    enum qm_access access = qm_engine_found(e, block, klass, found);
    struct qm_context *target;
    struct qm_kept_back kept;
    unsigned n;
    uint64_t now;

    r->klass = klass;
    /* As the cache's own counts: also of a request that began before measuring. */
    if (sim->config.by_class && sim->measuring)
        qm_sim_class_found(sim, klass, access);
    if (access == QM_ACCESS_MISS && qm_bound_is_watching(&sim->bound))
        qm_engine_missed(e, block, klass);
    v->counts.late +=
        access == QM_ACCESS_PREFETCH_HIT && found->todo != QM_DONE && r->counted;
    if (access == QM_ACCESS_PREFETCH_HIT)
        note_use(v, &r->pieces[r->n - 1], found);
    if (!e->prefetches || qm_engine_ignores(e, access))
        return;
    if (v->config.processor.block_ns > 0)
        (void)vt_compute(v, v->config.processor.block_ns);
    target = qm_feed_target(&sim->feed, &event);
    if (!target || !target->stream)
        return;
    n = qm_engine_extend(e, target->stream, klass, block,
                         (uint32_t)(r->last - block + 1), access, qm_feed_learn,
                         &sim->feed, candidates);
    now = qm_engine_needs_time(e) ? (uint64_t)v->now : 0;
    kept = qm_engine_issue(e, klass, now, candidates, n, issue_run, &issue);
    v->counts.throttled += sim->measuring ? kept.throttled : 0;
    v->counts.watched += sim->measuring ? kept.watched : 0;
}

static void look_up(struct vt_reader *r, uint64_t block)
{
    struct qm_virtual *v = r->actor.v;
    struct vt_piece *p = &r->pieces[r->n];
    struct qm_lookup found;
    int error = qm_cache_demand(v->sim->cache, block, NULL, 0,
                                (uint32_t)v->sim->config.block_size, &found);

    if (error == ENOMEM) { /* as in server/io.c */
        found.outcome = QM_MISS;
        v->sim->past += v->sim->measuring;
    } else if (error) {
        vt_fail(v, error);
        return;
    }
    r->n++;
    p->block = block;
    qm_sim_found(v->sim, block, &found);
    plan(r, p, error, &found);
    account(r, block, &found);
}

/* Looks up the next batch.  False: there is none. */
static bool next_batch(struct vt_reader *r)
{
    struct qm_virtual *v = r->actor.v;

    r->n = r->at = 0;
    while (r->block <= r->last && r->n < v->batch && !v->error)
        look_up(r, r->block++);
    if (r->n > 0)
        vt_wake(v); /* what was driven out is not waited for any more */
    return r->n > 0;
}

/* Whether the reader is to read the piece; else it can only be read over. */
static bool is_its(const struct vt_piece *p)
{
    return p->fill || p->past;
}

/* Has the next n pieces, which are adjacent, read by one call. */
static void read_pieces(struct vt_reader *r, unsigned n)
{
    struct qm_virtual *v = r->actor.v;

    const struct vt_piece *last = &r->pieces[r->at + n - 1];

    r->reading = n;
    r->more = 0;
    for (unsigned i = 0; i < n && v->sim->measuring; i++)
        v->counts.bridged += !is_its(&r->pieces[r->at + i]);
    if (n < v->run_most)
        r->more = vt_ahead_follow(v, last->block + 1, v->run_most - n, r->jobs);
    for (unsigned i = 0; v->sim->tier && i < r->more; i++)
        qm_sim_tier_came(v->sim->tier, r->jobs[i]->block);
    qm_device_load_demand(&v->sim->load, 1);
    vt_device_read(&r->actor, false, r->pieces[r->at].block, n + r->more);
}

static bool is_wanted(const void *pieces, unsigned i)
{
    return is_its((const struct vt_piece *)pieces + i);
}

/* Pieces that are read by one call, from the next on, which is the reader's to read. */
static unsigned run_of(const struct vt_reader *r)
{
    const struct qm_virtual *v = r->actor.v;
    const unsigned left = r->n - r->at;

    return qm_latency_run(
        &v->sim->latency, QM_PLACE_BACKEND, (uint32_t)v->sim->config.block_size,
        left < v->run_most ? left : v->run_most, is_wanted, &r->pieces[r->at]);
}

/* Has the next run of pieces read.  False: there is none. */
static bool read_next(struct vt_reader *r)
{
    while (r->at < r->n && !is_its(&r->pieces[r->at]))
        r->at++;
    if (r->at == r->n)
        return false;
    read_pieces(r, run_of(r));
    return true;
}

/* Has what is the reader's to read of n pieces from `first` on, and lies in the second
 * tier, read from there.  False: nothing. */
static bool read_tier(struct vt_reader *r, unsigned first, unsigned n)
{
    vt_tier_begin(r->actor.v, &r->looking);
    for (struct vt_piece *p = &r->pieces[first]; n > 0; p++, n--)
        p->tier = p->fill && vt_tier_look(r->actor.v, &r->looking, p->block, false);
    return r->looking.pending > 0;
}

/* Waits for others' reads of pieces.  If such a read is not kept, the first that waits
 * reads the piece, perhaps this reader.  False: there is nothing left to wait for. */
static bool wait_next(struct vt_reader *r)
{
    struct qm_virtual *v = r->actor.v;
    const uint32_t block_size = (uint32_t)v->sim->config.block_size;

    while (r->at < r->n && !v->error) {
        struct vt_piece *p = &r->pieces[r->at];
        struct qm_lookup found;
        int error;

        if (!p->wait) {
            r->at++;
            continue;
        }
        if (!qm_cache_settled(v->sim->cache, p->wait)) {
            vt_wait(r, p->wait);
            return true;
        }
        error = qm_cache_wait(v->sim->cache, p->wait, NULL, 0, block_size);
        p->wait = NULL;
        if (error == 0 && p->late)
            qm_admission_used(&v->sim->admission, p->others,
                              (uint64_t)(v->now - p->since));
        if (error == 0 || p->read)
            continue;
        error =
            qm_cache_demand_again(v->sim->cache, p->block, NULL, 0, block_size, &found);
        if (error && error != ENOMEM) {
            vt_fail(v, error);
            break;
        }
        plan(r, p, error, &found);
        if (p->fill && read_tier(r, r->at, 1))
            return true;
        if (p->fill || p->past) {
            read_pieces(r, 1);
            return true;
        }
    }
    return false;
}

/* Goes on.  Returns whether the request has ended. */
static bool go_on(struct vt_reader *r)
{
    for (;;) {
        switch (r->phase) {
        case VT_LOOK_UP:
            if (!next_batch(r))
                return true;
            r->phase = VT_TIER;
            if (read_tier(r, 0, r->n))
                return false;
            break;
        case VT_TIER:
            r->phase = VT_READ;
            break;
        case VT_READ:
            if (read_next(r))
                return false;
            r->phase = VT_WAIT;
            r->at = 0;
            break;
        case VT_WAIT:
            if (wait_next(r))
                return false;
            r->phase = VT_LOOK_UP;
        }
    }
}

/* After an event: what was queued meanwhile is taken up, once this reader's own reads
 * are at the device. */
void vt_resume(struct vt_reader *r)
{
    bool ended = go_on(r);

    vt_ahead_kick(r->actor.v);
    if (ended)
        r->ended(r);
}

static void done(struct vt_actor *actor)
{
    struct vt_reader *r = caa_container_of(actor, struct vt_reader, actor);
    struct qm_virtual *v = actor->v;

    qm_device_load_demand(&v->sim->load, -1);
    qm_latency_took(&v->sim->latency, QM_PLACE_BACKEND,
                    (r->reading + r->more) * v->sim->config.block_size,
                    (uint64_t)(v->now - actor->since));
    qm_admission_end(&v->sim->admission, false, actor->others, (uint64_t)v->now,
                     (uint64_t)(v->now - actor->since), r->reading);
    for (unsigned i = r->at; i < r->at + r->reading; i++) {
        if (!is_its(&r->pieces[i]))
            continue;
        if (r->pieces[i].fill)
            qm_cache_fill(v->sim->cache, r->pieces[i].fill, NULL);
        r->pieces[i].fill = NULL;
        r->pieces[i].past = false;
        r->pieces[i].read = true;
    }
    for (unsigned i = 0; i < r->more; i++) {
        qm_cache_fill(v->sim->cache, r->jobs[i]->fill, NULL);
        free(r->jobs[i]);
    }
    r->more = 0;
    if (r->phase == VT_READ)
        r->at += r->reading;
    r->reading = 0;
    vt_wake(v);
    v->kick = true; /* a demand less is in flight */
    vt_resume(r);
}

/* What lay in the second tier has come. */
static void looked(struct vt_looking *looking)
{
    struct vt_reader *r = caa_container_of(looking, struct vt_reader, looking);

    for (unsigned i = 0; i < r->n; i++) {
        struct vt_piece *p = &r->pieces[i];

        if (!p->tier)
            continue;
        qm_cache_fill(r->actor.v->sim->cache, p->fill, NULL);
        p->fill = NULL;
        p->tier = false;
        p->read = true;
    }
    vt_wake(r->actor.v);
    vt_resume(r);
}

bool vt_read(struct vt_reader *r)
{
    bool ended;

    r->actor.done = done;
    r->looking.done = looked;
    r->phase = VT_LOOK_UP;
    r->n = r->at = r->reading = 0;
    ended = go_on(r);
    vt_ahead_kick(r->actor.v);
    return ended;
}

void vt_reader_fail(struct vt_reader *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        if (r->pieces[i].fill)
            qm_cache_fail(r->actor.v->sim->cache, r->pieces[i].fill);
        r->pieces[i].fill = NULL;
    }
    for (; r->more > 0; r->more--) {
        qm_cache_fail(r->actor.v->sim->cache, r->jobs[r->more - 1]->fill);
        free(r->jobs[r->more - 1]);
    }
}

void vt_reader_forget(struct vt_reader *r)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->pieces[i].wait)
            qm_cache_wait(r->actor.v->sim->cache, r->pieces[i].wait, NULL, 0, 0);
    r->n = 0;
}
