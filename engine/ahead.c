/* SPDX-License-Identifier: BSD-3-Clause */
/* ahead.c - a queue that clients share, with a hash table over its blocks (ahead.h). */
#include "engine/ahead.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define JOIN_BYTES  (1u << 20)
#define JOIN_LEAST  16
#define BUCKETS_MIN 16
#define BUCKETS_MAX (1u << 20)

static struct qm_ahead_job **bucket_of(struct qm_ahead *a, uint64_t block)
{
    return &a->buckets[(block * UINT64_C(0x9e3779b97f4a7c15) >> 32) & a->mask];
}

static struct qm_ahead_job *job_of(struct qm_fair_item *item)
{
    return caa_container_of(item, struct qm_ahead_job, item);
}

unsigned qm_ahead_limit(unsigned queue, uint64_t most)
{
    if (queue <= QM_AHEAD_LIMIT_MIN || queue <= most)
        return queue;
    return most > QM_AHEAD_LIMIT_MIN ? (unsigned)most : QM_AHEAD_LIMIT_MIN;
}

unsigned qm_ahead_join(uint32_t max_bytes, uint32_t block_size)
{
    unsigned join = JOIN_BYTES / block_size, most = max_bytes / block_size;

    if (join < JOIN_LEAST)
        join = JOIN_LEAST;
    if (join > QM_AHEAD_JOIN_MAX)
        join = QM_AHEAD_JOIN_MAX;
    return join < most ? join : most;
}

int qm_ahead_init(struct qm_ahead *a, unsigned limit, unsigned join)
{
    unsigned buckets = BUCKETS_MIN;

    while (buckets < limit && buckets < BUCKETS_MAX)
        buckets *= 2;
    *a = (struct qm_ahead){.mask = buckets - 1, .limit = limit};
    a->join = join < QM_AHEAD_JOIN_MAX ? join : QM_AHEAD_JOIN_MAX;
    qm_fair_init(&a->queue);
    a->buckets = calloc(buckets, sizeof(struct qm_ahead_job *));
    return a->buckets ? 0 : ENOMEM;
}

void qm_ahead_destroy(struct qm_ahead *a)
{
    free(a->buckets);
    a->buckets = NULL;
}

void qm_ahead_push(struct qm_ahead *a, struct qm_ahead_job *job)
{
    struct qm_ahead_job **bucket = bucket_of(a, job->block);

    job->next = *bucket;
    *bucket = job;
    qm_fair_push(&a->queue, &job->item);
}

/* As qm_ahead_take(), by qm_fair_serve() or _remove(). */
static struct qm_ahead_job *
take(struct qm_ahead *a, uint64_t block, struct qm_fill *fill,
     void (*how)(struct qm_fair *fair, struct qm_fair_item *item))
{
    struct qm_ahead_job **link = bucket_of(a, block), *job;

    while ((job = *link) && (job->block != block || (fill && job->fill != fill)))
        link = &job->next;
    if (job) {
        *link = job->next;
        how(&a->queue, &job->item);
    }
    return job;
}

struct qm_ahead_job *qm_ahead_take(struct qm_ahead *a, uint64_t block,
                                   struct qm_fill *fill)
{
    return take(a, block, fill, qm_fair_remove);
}

struct qm_ahead_job *qm_ahead_yield(struct qm_ahead *a, unsigned client, unsigned limit)
{
    struct qm_fair_item *item = qm_fair_yields(&a->queue, client, 1, limit);

    return item ? take(a, job_of(item)->block, job_of(item)->fill, qm_fair_remove)
                : NULL;
}

unsigned qm_ahead_follow(struct qm_ahead *a, uint64_t block, unsigned max,
                         struct qm_ahead_job **jobs)
{
    unsigned n = 0;

    while (n < max && (jobs[n] = take(a, block + n, NULL, qm_fair_serve)))
        n++;
    return n;
}

unsigned qm_ahead_run(struct qm_ahead *a, struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX])
{
    struct qm_fair_item *next = qm_fair_next(&a->queue);

    return next ? qm_ahead_follow(a, job_of(next)->block, a->join, jobs) : 0;
}

unsigned qm_ahead_counts(struct qm_ahead_job *const *jobs, unsigned n)
{
    unsigned counts = 0;

    for (unsigned i = 0; i < n; i++)
        counts += jobs[i]->counts;
    return counts;
}

unsigned qm_ahead_promises(struct qm_ahead_job *const *jobs, unsigned n)
{
    unsigned promises = 0;

    for (unsigned i = 0; i < n; i++)
        promises += jobs[i]->promised;
    return promises;
}

unsigned qm_ahead_wanted(struct qm_cache *cache, struct qm_ahead_job *const *jobs,
                         unsigned n)
{
    unsigned i = 0;

    while (i < n && qm_cache_wanted(cache, jobs[i]->fill) != QM_UNWANTED)
        i++;
    return i;
}

struct qm_ahead_job *qm_ahead_drain(struct qm_ahead *a)
{
    struct qm_fair_item *item = qm_fair_next(&a->queue);

    return item ? take(a, job_of(item)->block, job_of(item)->fill, qm_fair_remove)
                : NULL;
}
