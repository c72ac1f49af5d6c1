/* miner.c - a bounded queue of work for the prefetcher, and the thread that does it. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "server/miner.h"
#include "server/stats.h"

#define STOP_NS UINT64_C(5000000000) /* learn no longer than that when stopping */

struct item {
    struct item *next;
    struct qm_work *work;
    uint64_t bytes;
};

struct qms_miner {
    struct qm_prefetcher *prefetcher;
    uint64_t max_bytes;
    unsigned purge_every; /* seconds; 0: never */
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake;
    struct item *first, **last;
    uint64_t bytes;   /* queued */
    uint64_t stop_by; /* ns; 0: go on */
    struct qms_miner_stats stats;
};

static uint64_t seconds(void)
{
    return qms_now() / 1000000000;
}

/* Waits for something to do; the lock is held.  Until `by`, in seconds, if not 0. */
static void wait_for_work(struct qms_miner *m, uint64_t by)
{
    struct timespec ts = {.tv_sec = (time_t)by};

    if (by == 0)
        pthread_cond_wait(&m->wake, &m->lock);
    else
        pthread_cond_timedwait(&m->wake, &m->lock, &ts);
}

static void *miner_thread(void *opaque)
{
    struct qms_miner *m = opaque;
    const struct qm_prefetcher_ops *ops = m->prefetcher->ops;
    uint64_t next_purge = m->purge_every ? seconds() : 0;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        struct item *item;
        int error;

        if (next_purge != 0 && seconds() >= next_purge) {
            pthread_mutex_unlock(&m->lock);
            ops->purge(m->prefetcher, seconds());
            next_purge = seconds() + m->purge_every;
            pthread_mutex_lock(&m->lock);
        }
        item = m->first;
        if (!item) {
            if (m->stop_by != 0)
                break;
            wait_for_work(m, next_purge);
            continue;
        }
        m->first = item->next;
        if (!m->first)
            m->last = &m->first;
        m->bytes -= item->bytes;
        if (m->stop_by != 0 && qms_now() > m->stop_by) {
            ops->discard(m->prefetcher, item->work);
            m->stats.shed++;
        } else {
            pthread_mutex_unlock(&m->lock);
            error = ops->learn(m->prefetcher, item->work);
            pthread_mutex_lock(&m->lock);
            m->stats.learned++;
            m->stats.failed += error != 0;
        }
        m->stats.queued--;
        free(item);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

struct qms_miner *qms_miner_start(struct qm_prefetcher *prefetcher, uint64_t max_bytes,
                                  unsigned purge_seconds)
{
    struct qms_miner *m = calloc(1, sizeof *m);
    pthread_condattr_t attr;

    if (!m)
        return NULL;
    m->prefetcher = prefetcher;
    m->max_bytes = max_bytes;
    /* A rule is gone at the latest an eighth of its time after that has passed. */
    m->purge_every = (purge_seconds + 7) / 8;
    m->last = &m->first;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&m->thread, NULL, miner_thread, m) != 0) {
        pthread_cond_destroy(&m->wake);
        pthread_mutex_destroy(&m->lock);
        free(m);
        return NULL;
    }
    return m;
}

void qms_miner_stop(struct qms_miner *m)
{
    pthread_mutex_lock(&m->lock);
    m->stop_by = qms_now() + STOP_NS;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void qms_miner_push(struct qms_miner *m, struct qm_work *work, uint64_t bytes)
{
    struct item *item = malloc(sizeof *item);
    bool shed;

    if (item)
        *item = (struct item){.work = work, .bytes = bytes};
    pthread_mutex_lock(&m->lock);
    shed = !item || bytes > m->max_bytes - m->bytes;
    if (shed) {
        m->stats.shed++;
    } else {
        *m->last = item;
        m->last = &item->next;
        m->bytes += bytes;
        m->stats.queued++;
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->lock);
    if (shed) {
        m->prefetcher->ops->discard(m->prefetcher, work);
        free(item);
    }
}

void qms_miner_stats(struct qms_miner *m, struct qms_miner_stats *stats)
{
    pthread_mutex_lock(&m->lock);
    *stats = m->stats;
    pthread_mutex_unlock(&m->lock);
}
