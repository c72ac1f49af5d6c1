/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetch.c - a queue of prefetches (engine/ahead.h), and how they are read.
 *
 * `room` counts jobs that are queued or about to be: it is taken before the block
 * enters the cache, so that a full queue changes nothing there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ahead.h"
#include "server/prefetch.h"
#include "server/tier.h"
#include "server/workers.h"

struct qms_prefetch {
    struct qms_prefetch_config config;
    /* The configuration's, until others are set. */
    _Atomic(struct qm_device_load *) load;
    _Atomic(struct qm_admission *) admission;
    _Atomic uint64_t size;
    _Atomic int room;
    _Atomic int limit;    /* jobs that may wait; ahead.limit, readable without lock */
    pthread_mutex_t lock; /* of the queue and the workers; taken before the cache's */
    struct qm_ahead ahead;
    struct qms_workers *workers;
};

/* A job has been taken out of the queue, or has not entered it. */
static void give_room(struct qms_prefetch *p, unsigned jobs)
{
    atomic_fetch_add_explicit(&p->room, (int)jobs, memory_order_relaxed);
}

/* How many jobs wait for a worker, but for a moment. */
static unsigned waiting(void *opaque)
{
    struct qms_prefetch *p = opaque;
    int n = atomic_load_explicit(&p->limit, memory_order_relaxed) -
            atomic_load_explicit(&p->room, memory_order_relaxed);

    return n > 0 ? (unsigned)n : 0;
}

/* Frees a job that is not read here. */
static void free_unread(struct qms_prefetch *p, struct qm_ahead_job *job)
{
    if (job && job->promised && p->config.rate)
        qm_rate_return(p->config.rate);
    free(job);
}

/* The block need not be read any more. */
static void cancel(struct qms_prefetch *p, struct qm_ahead_job *job)
{
    qm_cache_fail(p->config.cache, job->fill);
    free_unread(p, job);
    qms_stats_add(p->config.stats, QMS_PREFETCH_CANCELLED, 1);
}

/* How many jobs may wait at present. */
static unsigned limit_now(struct qms_prefetch *p)
{
    struct qm_admission *a = atomic_load(&p->admission);
    unsigned limit = (unsigned)atomic_load_explicit(&p->limit, memory_order_relaxed);

    return a && p->config.queue == 0 ? qm_admission_queue(a, limit) : limit;
}

/* Takes room for a job of client's, from another client if need be.  False: there is
 * none. */
static bool take_room(struct qms_prefetch *p, unsigned client)
{
    struct qm_admission *a = atomic_load(&p->admission);
    const unsigned limit = limit_now(p);
    struct qm_ahead_job *job;
    bool counts;

    if (atomic_load_explicit(&p->limit, memory_order_relaxed) -
            atomic_fetch_sub_explicit(&p->room, 1, memory_order_relaxed) <
        (int)limit)
        return true;
    if (a)
        qm_inflight_waits(&a->inflight);
    if (limit == 0) { /* the lock is for workers now */
        qms_stats_add(p->config.stats, QMS_PREFETCH_DROPPED, 1);
        give_room(p, 1);
        return false;
    }
    do { /* of a run, the blocks from its end on, up to one that counts */
        pthread_mutex_lock(&p->lock);
        job = qm_ahead_yield(&p->ahead, client, limit);
        pthread_mutex_unlock(&p->lock);
        counts = job && job->counts;
        if (job) {
            qm_cache_fail(p->config.cache, job->fill);
            free_unread(p, job);
        }
        qms_stats_add(p->config.stats, QMS_PREFETCH_DROPPED, 1);
    } while (job && !counts);
    give_room(p, 1); /* that job's, or what was taken in vain */
    return counts;
}

/* Makes block enter the cache, and a job for it; NULL: it is cached, or cannot.
 * counts: it takes room. */
static struct qm_ahead_job *make_job(struct qms_prefetch *p, uint64_t block,
                                     unsigned client, uint32_t issuer, bool counts)
{
    struct qm_ahead_job *job;

    if (counts && !take_room(p, client))
        return NULL;
    job = malloc(sizeof *job);
    if (!job || qm_cache_prefetch(p->config.cache, block, issuer, &job->fill) != 0) {
        free(job);
        give_room(p, counts);
        return NULL;
    }
    job->block = block;
    job->counts = counts;
    job->promised = false;
    job->item.client = client;
    job->item.cost = 1;
    return job;
}

unsigned qms_prefetch_issue(struct qms_prefetch *p, uint64_t block, uint32_t count,
                            unsigned client, uint32_t issuer)
{
    struct qm_ahead_job *made = NULL, **last = &made, *in_vain = NULL, *job;
    unsigned issued = 0;
    struct qms_call call;

    for (; count > 0; block++, count--) {
        job = make_job(p, block, client, issuer, issued % QM_AHEAD_UNIT == 0);
        if (!job)
            continue;
        job->promised = issued++ == 0;
        *last = job;
        last = &job->next;
    }
    if (issued == 0)
        return 0;
    *last = NULL;
    pthread_mutex_lock(&p->lock);
    while ((job = made)) {
        made = job->next;
        if (qm_cache_wanted(p->config.cache, job->fill) == QM_AHEAD) {
            qm_ahead_push(&p->ahead, job);
        } else { /* a reader looked for it here in vain, and must not wait its turn */
            job->next = in_vain;
            in_vain = job;
        }
    }
    call = qms_workers_call(p->workers);
    pthread_mutex_unlock(&p->lock);
    qms_workers_make(p->workers, call);
    while ((job = in_vain)) {
        in_vain = job->next;
        give_room(p, job->counts);
        cancel(p, job);
    }
    return issued;
}

bool qms_prefetch_take(struct qms_prefetch *p, uint64_t block, struct qm_fill *fill)
{
    struct qm_ahead_job *job;

    pthread_mutex_lock(&p->lock);
    job = qm_ahead_take(&p->ahead, block, fill);
    if (job)
        give_room(p, job->counts);
    pthread_mutex_unlock(&p->lock);
    free_unread(p, job);
    return job != NULL;
}

unsigned qms_prefetch_follow(struct qms_prefetch *p, uint64_t block, unsigned max,
                             struct qm_ahead_job **jobs)
{
    unsigned n;

    if (max > p->ahead.join)
        max = p->ahead.join;
    pthread_mutex_lock(&p->lock);
    n = qm_ahead_follow(&p->ahead, block, max, jobs);
    give_room(p, qm_ahead_counts(jobs, n));
    pthread_mutex_unlock(&p->lock);
    if (p->config.rate) /* it is the demand's read that has them */
        for (unsigned i = qm_ahead_promises(jobs, n); i > 0; i--)
            qm_rate_return(p->config.rate);
    return n;
}

void qms_prefetch_bound(struct qms_prefetch *p, uint64_t most)
{
    struct qm_admission *a = atomic_load(&p->admission);
    unsigned queue = p->config.queue, limit;

    if (queue == 0)
        queue = a ? QM_INFLIGHT_QUEUE_MOST : QM_AHEAD_LIMIT_MIN;
    limit = qm_ahead_limit(queue, most);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->room, (int)limit - (int)p->ahead.limit,
                              memory_order_relaxed);
    p->ahead.limit = limit;
    atomic_store_explicit(&p->limit, (int)limit, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
}

bool qms_prefetch_waits(struct qms_prefetch *p)
{
    return waiting(p) > 0;
}

/* Whether the budget has a read for n jobs; cancels them if not. */
static bool afford(struct qms_prefetch *p, uint64_t now, struct qm_ahead_job **jobs,
                   unsigned n)
{
    struct qm_rate *rate = p->config.rate;

    if (!rate || qm_rate_read(rate, now, qm_ahead_promises(jobs, n)))
        return true;
    qm_rate_over(rate, n);
    while (n > 0) {
        jobs[--n]->promised = false;
        cancel(p, jobs[n]);
    }
    return false;
}

/* Reads n adjacent blocks, and fills them in or fails them. */
static void read_run(struct qms_prefetch *p, struct qm_tier *tier, unsigned worker,
                     char *buf, struct qm_ahead_job **jobs, unsigned n)
{
    const struct qms_prefetch_config *c = &p->config;
    struct qm_device_load *load = atomic_load(&p->load);
    struct qm_admission *admission = atomic_load(&p->admission);
    uint64_t offset = jobs[0]->block * c->block_size;
    uint64_t bytes = (uint64_t)n * c->block_size, valid = bytes, start, now;
    uint64_t size = atomic_load(&p->size);
    unsigned others;
    int error;

    if (valid > size - offset) { /* the device's last block need not be whole */
        valid = size - offset;
        memset(buf + valid, 0, bytes - valid);
    }
    start = qms_now();
    if (!afford(p, start, jobs, n))
        return;
    others = admission ? qm_admission_begin(admission, true) : 0;
    error = c->read(c->opaque, worker, buf, valid, offset);
    now = qms_now();
    if (admission)
        qm_admission_end(admission, true, others, now, now - start, error ? 0 : n);
    if (!error) { /* how soon a read fails says nothing of the device */
        if (load)
            qm_device_load_took(load, now, now - start, n, waiting(p));
        if (c->latency)
            qm_latency_took(c->latency, QM_PLACE_BACKEND, valid, now - start);
    }
    if (error != ENOTCONN) { /* there was nobody to ask */
        qms_stats_add(c->stats, QMS_DEVICE_READS, 1);
        qms_stats_add(c->stats, QMS_AHEAD_READS, 1);
    }
    qms_stats_add(c->stats, error ? QMS_PREFETCH_FAILED : QMS_DEVICE_BLOCKS, n);
    if (!error)
        qms_tier_seen(tier, jobs[0]->block, buf, n);
    for (unsigned i = 0; i < n; i++) {
        if (error)
            qm_cache_fail(c->cache, jobs[i]->fill);
        else
            qm_cache_fill(c->cache, jobs[i]->fill, buf + (size_t)i * c->block_size);
        free(jobs[i]);
    }
}

/* Reads those of n adjacent blocks that the tier holds, and the rest from the layer
 * below.  What was read is fed to the cache while later blocks are still in flight. */
static void read_tiered(struct qms_prefetch *p, struct qm_tier *tier, unsigned worker,
                        char *buf, struct qm_ahead_job **jobs, unsigned n)
{
    const struct qms_prefetch_config *c = &p->config;
    struct qm_tier_read reads[QM_AHEAD_JOIN_MAX];
    uint64_t start = qms_now();
    size_t hits;

    for (unsigned i = 0; i < n; i++)
        reads[i] = (struct qm_tier_read){.block = jobs[i]->block,
                                         .buf = buf + (size_t)i * c->block_size,
                                         .ahead = true};
    hits = qm_tier_read(tier, reads, n);
    if (hits > 0 && c->latency)
        qm_latency_took(c->latency, QM_PLACE_TIER, hits * c->block_size,
                        qms_now() - start);
    for (unsigned i = 0; i < n && hits > 0; i++)
        if (reads[i].hit) {
            qm_cache_fill(c->cache, jobs[i]->fill, reads[i].buf);
            free_unread(p, jobs[i]);
        }
    for (unsigned i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && reads[end].hit == reads[i].hit;)
            end++;
        if (!reads[i].hit)
            read_run(p, tier, worker, buf + (size_t)i * c->block_size, jobs + i,
                     end - i);
    }
}

/* The tier stays the same until it has seen what was read. */
static void read_some(struct qms_prefetch *p, unsigned worker, char *buf,
                      struct qm_ahead_job **jobs, unsigned n)
{
    struct qms_tiers *tiers = p->config.tiers;
    unsigned token = 0;
    struct qm_tier *tier = tiers ? qms_tiers_enter(tiers, &token) : NULL;

    (tier ? read_tiered : read_run)(p, tier, worker, buf, jobs, n);
    if (tiers)
        qms_tiers_leave(tiers, token);
}

/* Reads a run of jobs, but not what would not be kept. */
static void work(struct qms_prefetch *p, unsigned worker, char *buf,
                 struct qm_ahead_job **jobs, unsigned n)
{
    unsigned wanted;

    for (unsigned i = 0; i < n; i += wanted) {
        wanted = qm_ahead_wanted(p->config.cache, jobs + i, n - i);
        if (wanted > 0)
            read_some(p, worker, buf, jobs + i, wanted);
        else
            cancel(p, jobs[i++]);
    }
}

/* How many prefetches may be in flight.  The lock is held. */
static unsigned allowed(void *opaque)
{
    struct qms_prefetch *p = opaque;
    struct qm_admission *a = atomic_load(&p->admission);
    unsigned n = p->config.threads;

    if (p->config.follows)
        n = a ? qm_inflight_allowed(&a->inflight, qm_admission_demands(a))
              : QM_INFLIGHT_FIRST;
    if (n > p->config.threads)
        n = p->config.threads;
    return n;
}

/* A job waits because no more reads may be in flight. */
static void note_held(void *opaque)
{
    struct qms_prefetch *p = opaque;
    struct qm_admission *a = atomic_load(&p->admission);

    if (a)
        qm_inflight_waits(&a->inflight);
}

/* The lock is held. */
static bool any(void *opaque)
{
    struct qms_prefetch *p = opaque;

    return p->ahead.queue.busy_count > 0;
}

/* Takes the next run of jobs.  The lock is held. */
static unsigned take_run(void *opaque, struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX])
{
    struct qms_prefetch *p = opaque;
    unsigned n = qm_ahead_run(&p->ahead, jobs);

    give_room(p, qm_ahead_counts(jobs, n));
    return n;
}

/* Reads n jobs. */
static void carry_out(void *opaque, unsigned lane, struct qm_ahead_job **jobs,
                      unsigned n)
{
    struct qms_prefetch *p = opaque;
    char *buf =
        aligned_alloc(4096, ((size_t)n * p->config.block_size + 4095) & ~(size_t)4095);

    if (buf) {
        work(p, lane, buf, jobs, n);
    } else {
        qms_stats_add(p->config.stats, QMS_PREFETCH_FAILED, n);
        while (n > 0) {
            qm_cache_fail(p->config.cache, jobs[--n]->fill);
            free_unread(p, jobs[n]);
        }
    }
    free(buf);
}

void qms_prefetch_kick(struct qms_prefetch *p)
{
    qms_workers_kick(p->workers);
}

void qms_prefetch_get_stats(struct qms_prefetch *p, struct qms_prefetch_stats *stats)
{
    struct qms_workers_stats workers;

    pthread_mutex_lock(&p->lock);
    workers = qms_workers_get_stats(p->workers);
    *stats = (struct qms_prefetch_stats){
        .threads = workers.threads,
        .busy = workers.busy,
        .most = workers.most,
        .allowed = allowed(p),
        .queue = limit_now(p),
    };
    pthread_mutex_unlock(&p->lock);
}

static struct qms_workers *start_workers(struct qms_prefetch *p)
{
    return qms_workers_start(&(struct qms_workers_config){
        .threads = p->config.threads,
        .follows = p->config.follows,
        .priority = p->config.priority,
        .lock = &p->lock,
        .owner = p,
        .waiting = waiting,
        .any = any,
        .allowed = allowed,
        .held = note_held,
        .lanes = p->config.lanes,
        .opaque = p->config.opaque,
        .take = take_run,
        .carry_out = carry_out,
    });
}

struct qms_prefetch *qms_prefetch_start(const struct qms_prefetch_config *config)
{
    const unsigned queue = config->queue ? config->queue : QM_INFLIGHT_QUEUE_MOST;
    struct qms_prefetch *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->config = *config;
    if (qm_ahead_init(&p->ahead, queue,
                      qm_ahead_join(config->max_bytes, config->block_size)) != 0) {
        free(p);
        return NULL;
    }
    qms_prefetch_measure(p, config->load, config->admission);
    atomic_init(&p->size, config->size);
    atomic_init(&p->room, (int)queue);
    atomic_init(&p->limit, (int)queue);
    pthread_mutex_init(&p->lock, NULL);
    p->workers = start_workers(p);
    if (!p->workers) {
        qms_prefetch_stop(p);
        return NULL;
    }
    return p;
}

void qms_prefetch_measure(struct qms_prefetch *p, struct qm_device_load *load,
                          struct qm_admission *admission)
{
    atomic_store(&p->load, load);
    atomic_store(&p->admission, admission);
}

void qms_prefetch_grow(struct qms_prefetch *p, uint64_t size)
{
    atomic_store(&p->size, size);
}

void qms_prefetch_stop(struct qms_prefetch *p)
{
    struct qm_ahead_job *job;

    qms_workers_stop(p->workers);
    while ((job = qm_ahead_drain(&p->ahead))) {
        qm_cache_fail(p->config.cache, job->fill);
        free(job);
    }
    pthread_mutex_destroy(&p->lock);
    qm_ahead_destroy(&p->ahead);
    free(p);
}
