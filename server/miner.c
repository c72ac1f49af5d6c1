/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.c - a queue of work for the prefetcher, which clients share, and the thread
 * that does it. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "engine/fair.h"
#include "server/miner.h"
#include "server/stats.h"

#define STOP_NS   UINT64_C(5000000000) /* learn no longer than that when stopping */
#define SAVE_PART 9 /* times as long as it saves it does not, at least */

struct item {
    struct qm_fair_item fair; /* its cost is in bytes */
    struct item *next;        /* shed */
    struct qm_work *work;
};

struct qms_miner {
    struct qm_prefetcher *prefetcher;
    uint64_t max_bytes;
    unsigned purge_every; /* seconds; 0: never */
    void (*saved)(void *opaque, int error);
    void *opaque;
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake;
    pthread_cond_t ticked; /* a tick has ended */
    struct qm_fair queue;
    uint64_t bytes;      /* queued */
    uint64_t stop_by;    /* ns; 0: go on */
    unsigned save_every; /* seconds; 0: never */
    uint64_t next_save;  /* seconds; 0: never */
    uint64_t next_tick;  /* seconds; 0: never */
    bool ticking;        /* in tick() */
    void (*tick)(void *opaque);
    void *of_tick;
    struct qms_miner_stats stats;
};

static struct item *item_of(struct qm_fair_item *fair)
{
    return fair ? caa_container_of(fair, struct item, fair) : NULL;
}

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

/* Saves what has been learned; the lock is held, but not meanwhile. */
static void save(struct qms_miner *m)
{
    uint64_t start = seconds(), took;
    int error;

    pthread_mutex_unlock(&m->lock);
    error = m->prefetcher->ops->save(m->prefetcher);
    m->saved(m->opaque, error);
    pthread_mutex_lock(&m->lock);
    took = seconds() - start;
    m->next_save = start + took + m->save_every;
    if (took * SAVE_PART > m->save_every)
        m->next_save = start + took + took * SAVE_PART;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
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
        if (m->next_tick != 0 && m->stop_by == 0 && seconds() >= m->next_tick) {
            m->ticking = true;
            pthread_mutex_unlock(&m->lock);
            m->tick(m->of_tick);
            pthread_mutex_lock(&m->lock);
            m->ticking = false;
            if (m->next_tick != 0)
                m->next_tick = seconds() + 1;
            pthread_cond_broadcast(&m->ticked);
        }
        if (m->next_save != 0 && m->stop_by == 0 && seconds() >= m->next_save)
            save(m);
        item = item_of(qm_fair_next(&m->queue));
        if (!item) {
            if (m->stop_by != 0)
                break;
            wait_for_work(m, sooner(sooner(next_purge, m->next_save), m->next_tick));
            continue;
        }
        qm_fair_serve(&m->queue, &item->fair);
        m->bytes -= item->fair.cost;
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
    m->purge_every = purge_seconds / 8 + (purge_seconds % 8 != 0);
    qm_fair_init(&m->queue);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&m->ticked, NULL);
    if (pthread_create(&m->thread, NULL, miner_thread, m) != 0) {
        pthread_cond_destroy(&m->ticked);
        pthread_cond_destroy(&m->wake);
        pthread_mutex_destroy(&m->lock);
        free(m);
        return NULL;
    }
    return m;
}

void qms_miner_save_every(struct qms_miner *m, unsigned save_seconds,
                          void (*saved)(void *opaque, int error), void *opaque)
{
    if (save_seconds == 0 || !m->prefetcher->ops->save)
        return;
    pthread_mutex_lock(&m->lock);
    m->saved = saved;
    m->opaque = opaque;
    m->save_every = save_seconds;
    m->next_save = seconds() + save_seconds;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void qms_miner_tick_every(struct qms_miner *m, void (*tick)(void *opaque), void *opaque)
{
    pthread_mutex_lock(&m->lock);
    m->tick = tick;
    m->of_tick = opaque;
    m->next_tick = seconds() + 1;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void qms_miner_end_ticks(struct qms_miner *m)
{
    pthread_mutex_lock(&m->lock);
    m->next_tick = 0;
    while (m->ticking)
        pthread_cond_wait(&m->ticked, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

void qms_miner_stop(struct qms_miner *m)
{
    pthread_mutex_lock(&m->lock);
    m->stop_by = qms_now() + STOP_NS;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->ticked);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Makes room for work of client's, by taking others' out of the queue, which are put
 * before *shed.  False: there is none.  The lock is held. */
static bool make_room(struct qms_miner *m, unsigned client, uint64_t bytes,
                      struct item **shed)
{
    struct item *item;

    while (bytes > m->max_bytes - m->bytes) {
        item = item_of(qm_fair_yields(&m->queue, client, bytes, m->max_bytes));
        if (!item)
            return false;
        qm_fair_remove(&m->queue, &item->fair);
        m->bytes -= item->fair.cost;
        m->stats.queued--;
        m->stats.shed++;
        item->next = *shed;
        *shed = item;
    }
    return true;
}

void qms_miner_push(struct qms_miner *m, unsigned client, struct qm_work *work,
                    uint64_t bytes)
{
    struct item *item = malloc(sizeof *item), *shed = NULL, *next;

    if (!item) {
        m->prefetcher->ops->discard(m->prefetcher, work);
        pthread_mutex_lock(&m->lock);
        m->stats.shed++;
        pthread_mutex_unlock(&m->lock);
        return;
    }
    *item = (struct item){.fair = {.client = client, .cost = bytes}, .work = work};
    pthread_mutex_lock(&m->lock);
    if (make_room(m, client, bytes, &shed)) {
        qm_fair_push(&m->queue, &item->fair);
        m->bytes += bytes;
        m->stats.queued++;
        pthread_cond_signal(&m->wake);
    } else {
        m->stats.shed++;
        item->next = shed;
        shed = item;
    }
    pthread_mutex_unlock(&m->lock);
    for (; shed; shed = next) {
        next = shed->next;
        m->prefetcher->ops->discard(m->prefetcher, shed->work);
        free(shed);
    }
}

void qms_miner_stats(struct qms_miner *m, struct qms_miner_stats *stats)
{
    pthread_mutex_lock(&m->lock);
    *stats = m->stats;
    pthread_mutex_unlock(&m->lock);
}
