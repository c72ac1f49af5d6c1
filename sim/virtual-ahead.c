/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual-ahead.c - the prefetch threads, in virtual time: server/prefetch.c without
 * threads (virtual.h).
 *
 * A worker takes a run of jobs out of the queue and has the device read it, but for the
 * blocks that would not be kept, and those that the second tier holds, so that a run
 * may take several reads.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/virtual-internal.h"

/* A job is not read here. */
static void leave_unread(struct qm_virtual *v, const struct qm_ahead_job *job)
{
    if (job && job->promised)
        qm_rate_return(&v->sim->rate);
}

static void fail_job(struct qm_virtual *v, struct qm_ahead_job *job)
{
    qm_cache_fail(v->sim->cache, job->fill);
    leave_unread(v, job);
    free(job);
    vt_wake(v);
}

/* Takes room for a job, from another client if need be. */
static bool take_room(struct qm_virtual *v)
{
    const unsigned limit = v->config.queue
                               ? v->ahead.limit
                               : qm_admission_queue(&v->sim->admission, v->ahead.limit);
    struct qm_ahead_job *job;
    bool counts;

    if (v->queued < limit)
        return true;
    qm_inflight_waits(&v->sim->admission.inflight);
    do {
        job = qm_ahead_yield(&v->ahead, 0, limit);
        counts = job && job->counts;
        v->queued -= counts;
        if (job)
            fail_job(v, job);
        v->counts.dropped += v->sim->measuring;
    } while (job && !counts);
    return counts;
}

/* n: how many blocks of the run were issued before. */
static int issue(struct qm_virtual *v, uint64_t block, uint32_t issuer, unsigned n)
{
    const bool counts = n % QM_AHEAD_UNIT == 0;
    struct qm_ahead_job *job;
    int error;

    if (counts && !take_room(v))
        return ENOBUFS;
    job = malloc(sizeof *job);
    error = job ? qm_cache_prefetch(v->sim->cache, block, issuer, &job->fill) : ENOMEM;
    if (error) {
        if (error != EEXIST && error != ENOSPC && (error != ENOMEM || !job))
            vt_fail(v, error); /* with a job, it is the cache that has no room */
        free(job);
        return error;
    }
    job->block = block;
    job->counts = counts;
    job->promised = n == 0;
    job->item.client = 0;
    job->item.cost = 1;
    qm_ahead_push(&v->ahead, job);
    v->queued += counts;
    v->kick = true;
    return 0;
}

unsigned vt_ahead_issue(struct qm_virtual *v, uint64_t block, uint32_t count,
                        uint32_t issuer)
{
    unsigned n = 0;

    for (; count > 0; block++, count--)
        n += issue(v, block, issuer, n) == 0;
    return n;
}

bool vt_ahead_take(struct qm_virtual *v, uint64_t block, struct qm_fill *fill)
{
    struct qm_ahead_job *job = qm_ahead_take(&v->ahead, block, fill);

    v->queued -= job && job->counts;
    leave_unread(v, job);
    free(job);
    return job != NULL;
}

unsigned vt_ahead_follow(struct qm_virtual *v, uint64_t block, unsigned max,
                         struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX])
{
    unsigned n = qm_ahead_follow(&v->ahead, block,
                                 max < v->ahead.join ? max : v->ahead.join, jobs);

    v->queued -= qm_ahead_counts(jobs, n);
    for (unsigned i = 0; i < n; i++)
        leave_unread(v, jobs[i]);
    return n;
}

/* Whether the budget has a read for the next part of the worker's run. */
static bool afford(struct vt_worker *w)
{
    struct qm_rate *rate = &w->actor.v->sim->rate;
    struct qm_ahead_job **jobs = w->jobs + w->at;

    if (qm_rate_read(rate, (uint64_t)w->actor.v->now,
                     qm_ahead_promises(jobs, w->reading)))
        return true;
    qm_rate_over(rate, 1); /* the others are tried again */
    for (unsigned i = 0; i < w->reading; i++)
        jobs[i]->promised = false;
    return false;
}

/* Has what the second tier holds of the jobs from w->at to w->looked read from there.
 * False: nothing. */
static bool read_tier(struct vt_worker *w)
{
    vt_tier_begin(w->actor.v, &w->looking);
    for (unsigned i = w->at; i < w->looked; i++)
        w->tier[i] = vt_tier_look(w->actor.v, &w->looking, w->jobs[i]->block, true);
    return w->looking.pending > 0;
}

/* Has the next part of the worker's run read.  False: there is none left. */
static bool go_on(struct vt_worker *w)
{
    struct qm_virtual *v = w->actor.v;

    while (w->at < w->n) {
        if (w->at >= w->looked) {
            unsigned wanted =
                qm_ahead_wanted(v->sim->cache, w->jobs + w->at, w->n - w->at);

            if (wanted == 0) {
                v->counts.cancelled += v->sim->measuring;
                fail_job(v, w->jobs[w->at++]);
                continue;
            }
            w->looked = w->at + wanted;
            if (read_tier(w))
                return true;
        }
        for (w->reading = 0; w->at + w->reading < w->looked; w->reading++)
            if (!w->jobs[w->at + w->reading])
                break;
        if (w->reading > 0 && afford(w)) {
            v->sim->ahead_reads++;
            vt_device_read(&w->actor, true, w->jobs[w->at]->block, w->reading);
            return true;
        }
        if (w->reading == 0) {
            w->at++; /* it has come from the tier */
            continue;
        }
        v->counts.cancelled += v->sim->measuring;
        fail_job(v, w->jobs[w->at++]);
    }
    return false;
}

/* Whether one more prefetch may be in flight. */
static bool may_send(struct qm_virtual *v)
{
    struct qm_admission *a = &v->sim->admission;

    if (v->busy < qm_inflight_allowed(&a->inflight, qm_admission_demands(a)))
        return true;
    qm_inflight_waits(&a->inflight);
    return false;
}

/* Takes runs until one has something to read. */
static void work(struct vt_worker *w)
{
    struct qm_virtual *v = w->actor.v;

    do {
        w->n = qm_ahead_run(&v->ahead, w->jobs);
        w->at = w->looked = 0;
        v->queued -= qm_ahead_counts(w->jobs, w->n);
        w->busy = w->n > 0 && go_on(w);
    } while (w->n > 0 && !w->busy);
    v->busy += w->busy;
    if (w->busy && v->busy > v->counts.in_flight)
        v->counts.in_flight = v->busy;
}

/* Has come to the end of its run, or to the next read of it. */
static void next(struct vt_worker *w)
{
    struct qm_virtual *v = w->actor.v;

    w->busy = go_on(w);
    if (w->busy)
        return;
    v->busy--;
    v->kick = true;
    vt_ahead_kick(v);
}

static void done(struct vt_actor *actor)
{
    struct vt_worker *w = caa_container_of(actor, struct vt_worker, actor);
    struct qm_virtual *v = actor->v;

    qm_admission_end(&v->sim->admission, true, actor->others, (uint64_t)v->now,
                     (uint64_t)(v->now - actor->since), w->reading);
    if (v->sim->engine.load)
        qm_device_load_took(v->sim->engine.load, (uint64_t)v->now,
                            (uint64_t)(v->now - actor->since), w->reading, v->queued);
    qm_latency_took(&v->sim->latency, QM_PLACE_BACKEND,
                    w->reading * v->sim->config.block_size,
                    (uint64_t)(v->now - actor->since));
    for (; w->reading > 0; w->reading--) {
        qm_cache_fill(v->sim->cache, w->jobs[w->at]->fill, NULL);
        free(w->jobs[w->at++]);
    }
    vt_wake(v);
    next(w);
}

/* What lay in the second tier has come. */
static void looked(struct vt_looking *looking)
{
    struct vt_worker *w = caa_container_of(looking, struct vt_worker, looking);
    struct qm_virtual *v = w->actor.v;

    for (unsigned i = w->at; i < w->looked; i++) {
        if (!w->tier[i])
            continue;
        qm_cache_fill(v->sim->cache, w->jobs[i]->fill, NULL);
        leave_unread(v, w->jobs[i]);
        free(w->jobs[i]);
        w->jobs[i] = NULL;
        w->tier[i] = false;
    }
    vt_wake(v);
    next(w);
}

void vt_ahead_kick(struct qm_virtual *v)
{
    if (!v->kick)
        return;
    v->kick = false;
    for (unsigned i = 0; i < v->threads && v->ahead.queue.busy_count > 0; i++) {
        if (v->workers[i].busy)
            continue;
        if (!may_send(v))
            break;
        work(&v->workers[i]);
    }
}

int vt_ahead_init(struct qm_virtual *v)
{
    v->threads = v->config.threads ? v->config.threads : QM_INFLIGHT_MOST;
    v->sim->admission.inflight.given = v->config.threads;
    v->workers = calloc(v->threads, sizeof *v->workers);
    if (!v->workers)
        return ENOMEM;
    for (unsigned i = 0; i < v->threads; i++) {
        v->workers[i].actor = (struct vt_actor){.v = v, .done = done};
        v->workers[i].looking.done = looked;
    }
    return qm_ahead_init(
        &v->ahead, v->config.queue ? v->config.queue : QM_INFLIGHT_QUEUE_MOST,
        qm_ahead_join(QM_VIRTUAL_READ_MAX, (uint32_t)v->sim->config.block_size));
}

void vt_ahead_destroy(struct qm_virtual *v)
{
    struct qm_ahead_job *job;

    for (unsigned i = 0; v->workers && i < v->threads; i++) {
        struct vt_worker *w = &v->workers[i];

        for (; w->busy && w->at < w->n; w->at++) {
            if (!w->jobs[w->at])
                continue;
            qm_cache_fail(v->sim->cache, w->jobs[w->at]->fill);
            free(w->jobs[w->at]);
        }
        free(w->actor.request);
        vt_tier_forget(&w->looking);
    }
    while (v->ahead.buckets && (job = qm_ahead_drain(&v->ahead))) {
        qm_cache_fail(v->sim->cache, job->fill);
        free(job);
    }
    qm_ahead_destroy(&v->ahead);
    free(v->workers);
}
