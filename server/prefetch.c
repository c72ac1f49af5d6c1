/* prefetch.c - a queue that clients share, with a hash table over its blocks.
 *
 * A worker takes the job whose turn it is and, since neighbours are often wanted
 * together, those of the blocks that follow it on the device, so that one read serves
 * them all; each counts for its client.
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
#include <urcu/list.h>

#include "engine/fair.h"
#include "server/prefetch.h"

#define JOIN_MAX 16 /* blocks of one read */

struct job {
    struct qm_fair_item item;
    struct job *next; /* of the same hash */
    uint64_t block;
    struct qm_fill *fill;
};

struct worker {
    struct qms_prefetch *prefetch;
    unsigned number;
    pthread_t thread;
};

struct qms_prefetch {
    struct qms_prefetch_config config;
    unsigned join; /* blocks of one read at most */
    _Atomic int room;
    pthread_mutex_t lock; /* of all that follows; taken before the cache's */
    pthread_cond_t wake;
    bool stop;
    struct qm_fair queue;
    struct job **buckets;
    unsigned mask;
    unsigned started;
    struct worker workers[];
};

static struct job **bucket_of(struct qms_prefetch *p, uint64_t block)
{
    return &p->buckets[(block * UINT64_C(0x9e3779b97f4a7c15) >> 32) & p->mask];
}

static struct job *job_of(struct qm_fair_item *item)
{
    return caa_container_of(item, struct job, item);
}

/* Takes block's job out of the queue, that of fill (NULL: of any), by qm_fair_serve()
 * or _remove(), or returns NULL; the lock is held. */
static struct job *take(struct qms_prefetch *p, uint64_t block, struct qm_fill *fill,
                        void (*how)(struct qm_fair *fair, struct qm_fair_item *item))
{
    struct job **link = bucket_of(p, block), *job;

    while ((job = *link) && (job->block != block || (fill && job->fill != fill)))
        link = &job->next;
    if (job) {
        *link = job->next;
        how(&p->queue, &job->item);
        atomic_fetch_add_explicit(&p->room, 1, memory_order_relaxed);
    }
    return job;
}

/* The block need not be read any more. */
static void cancel(struct qms_prefetch *p, struct job *job)
{
    qm_cache_fail(p->config.cache, job->fill);
    free(job);
    qms_stats_add(p->config.stats, QMS_PREFETCH_CANCELLED, 1);
}

/* Takes room for a job of client's, from another client if need be.  False: there is
 * none. */
static bool take_room(struct qms_prefetch *p, unsigned client)
{
    struct qm_fair_item *item;
    struct job *job = NULL;

    if (atomic_fetch_sub_explicit(&p->room, 1, memory_order_relaxed) > 0)
        return true;
    pthread_mutex_lock(&p->lock);
    item = qm_fair_yields(&p->queue, client, 1, p->config.queue);
    if (item)
        job = take(p, job_of(item)->block, job_of(item)->fill, qm_fair_remove);
    pthread_mutex_unlock(&p->lock);
    if (job) {
        qm_cache_fail(p->config.cache, job->fill);
        free(job);
    } else {
        atomic_fetch_add_explicit(&p->room, 1, memory_order_relaxed);
    }
    qms_stats_add(p->config.stats, QMS_PREFETCH_DROPPED, 1);
    return job != NULL;
}

int qms_prefetch_issue(struct qms_prefetch *p, uint64_t block, unsigned client,
                       uint32_t issuer)
{
    struct job *job, **bucket;
    bool queued;
    int error;

    if (!take_room(p, client))
        return ENOBUFS;
    job = malloc(sizeof *job);
    error =
        job ? qm_cache_prefetch(p->config.cache, block, issuer, &job->fill) : ENOMEM;
    if (error != 0) {
        free(job);
        atomic_fetch_add_explicit(&p->room, 1, memory_order_relaxed);
        return error;
    }
    job->block = block;
    job->item.client = client;
    job->item.cost = 1;
    pthread_mutex_lock(&p->lock);
    queued = qm_cache_wanted(p->config.cache, job->fill) == QM_AHEAD;
    if (queued) {
        bucket = bucket_of(p, block);
        job->next = *bucket;
        *bucket = job;
        qm_fair_push(&p->queue, &job->item);
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
    if (!queued) { /* a reader looked for it here in vain: he is not to wait his turn */
        atomic_fetch_add_explicit(&p->room, 1, memory_order_relaxed);
        cancel(p, job);
    }
    return 0;
}

bool qms_prefetch_take(struct qms_prefetch *p, uint64_t block, struct qm_fill *fill)
{
    struct job *job;

    pthread_mutex_lock(&p->lock);
    job = take(p, block, fill, qm_fair_remove);
    pthread_mutex_unlock(&p->lock);
    free(job);
    return job != NULL;
}

/* Takes the next job and those of the blocks that follow; the lock is held.  Returns
 * how many jobs. */
static unsigned take_run(struct qms_prefetch *p, struct job **jobs)
{
    struct qm_fair_item *next = qm_fair_next(&p->queue);
    unsigned n = 0;
    uint64_t block;

    if (!next)
        return 0;
    block = job_of(next)->block;
    while (n < p->join && (jobs[n] = take(p, block + n, NULL, qm_fair_serve)))
        n++;
    return n;
}

/* How many jobs wait for a worker, but for a moment. */
static unsigned waiting(struct qms_prefetch *p)
{
    int n = (int)p->config.queue - atomic_load_explicit(&p->room, memory_order_relaxed);

    return n > 0 ? (unsigned)n : 0;
}

/* Reads n adjacent blocks, and fills them in or fails them. */
static void read_run(struct qms_prefetch *p, unsigned worker, char *buf,
                     struct job **jobs, unsigned n)
{
    const struct qms_prefetch_config *c = &p->config;
    uint64_t offset = jobs[0]->block * c->block_size;
    uint64_t bytes = (uint64_t)n * c->block_size, valid = bytes, start, now;
    int error;

    if (valid > c->size - offset) { /* the device's last block need not be whole */
        valid = c->size - offset;
        memset(buf + valid, 0, bytes - valid);
    }
    start = c->load ? qms_now() : 0;
    error = c->read(c->opaque, worker, buf, valid, offset);
    if (c->load && !error) { /* how soon a read fails says nothing of the device */
        now = qms_now();
        qm_device_load_took(c->load, now, now - start, n, waiting(p));
    }
    if (error != ENOTCONN) /* there was nobody to ask */
        qms_stats_add(c->stats, QMS_DEVICE_READS, 1);
    qms_stats_add(c->stats, error ? QMS_PREFETCH_FAILED : QMS_DEVICE_BLOCKS, n);
    for (unsigned i = 0; i < n; i++) {
        if (error)
            qm_cache_fail(c->cache, jobs[i]->fill);
        else
            qm_cache_fill(c->cache, jobs[i]->fill, buf + (size_t)i * c->block_size);
        free(jobs[i]);
    }
}

/* Reads a run of jobs, but not what would not be kept. */
static void work(struct qms_prefetch *p, unsigned worker, char *buf, struct job **jobs,
                 unsigned n)
{
    unsigned first = 0;

    for (unsigned i = 0; i < n; i++) {
        if (qm_cache_wanted(p->config.cache, jobs[i]->fill) != QM_UNWANTED)
            continue;
        if (i > first)
            read_run(p, worker, buf, jobs + first, i - first);
        cancel(p, jobs[i]);
        first = i + 1;
    }
    if (n > first)
        read_run(p, worker, buf, jobs + first, n - first);
}

static void *worker_thread(void *opaque)
{
    struct worker *worker = opaque;
    struct qms_prefetch *p = worker->prefetch;
    struct job *jobs[JOIN_MAX];
    char *buf = NULL;
    unsigned n;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        n = take_run(p, jobs);
        if (n == 0) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        if (!buf)
            buf = malloc((size_t)p->join * p->config.block_size);
        if (buf) {
            work(p, worker->number, buf, jobs, n);
        } else {
            qms_stats_add(p->config.stats, QMS_PREFETCH_FAILED, n);
            while (n > 0) {
                qm_cache_fail(p->config.cache, jobs[--n]->fill);
                free(jobs[n]);
            }
        }
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    free(buf);
    return NULL;
}

struct qms_prefetch *qms_prefetch_start(const struct qms_prefetch_config *config)
{
    struct qms_prefetch *p =
        calloc(1, sizeof *p + config->threads * sizeof p->workers[0]);
    unsigned buckets = 16;

    if (!p)
        return NULL;
    while (buckets < config->queue && buckets < 1u << 20)
        buckets *= 2;
    p->buckets = calloc(buckets, sizeof p->buckets[0]);
    if (!p->buckets) {
        free(p);
        return NULL;
    }
    p->mask = buckets - 1;
    p->config = *config;
    p->join = config->max_bytes / config->block_size;
    if (p->join > JOIN_MAX)
        p->join = JOIN_MAX;
    atomic_init(&p->room, (int)config->queue);
    qm_fair_init(&p->queue);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    while (p->started < config->threads) {
        struct worker *worker = &p->workers[p->started];

        worker->prefetch = p;
        worker->number = p->started;
        if (pthread_create(&worker->thread, NULL, worker_thread, worker) != 0) {
            qms_prefetch_stop(p);
            return NULL;
        }
        p->started++;
    }
    return p;
}

void qms_prefetch_stop(struct qms_prefetch *p)
{
    struct qm_fair_item *item;

    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    while ((item = qm_fair_next(&p->queue))) {
        qm_fair_remove(&p->queue, item);
        qm_cache_fail(p->config.cache, job_of(item)->fill);
        free(job_of(item));
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->buckets);
    free(p);
}
