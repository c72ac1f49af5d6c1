/* SPDX-License-Identifier: BSD-3-Clause */
/* fill.c - the pool of threads that read rows from MariaDB; see fill.h.
 *
 * Reads for which a client waits go first; read-ahead gets the remaining threads. */
#include "rowcache/fill/fill.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/fill/internal.h"

enum { AHEAD_WAITING = 16, READS_OF_WORK = 32, FEW = 8 };

/* Before a server that was behind is asked again. */
#define BEHIND_NS UINT64_C(5000000)

/* --- the pool --- */

/* 0 is no table. */
static uint64_t hash_table(const char *name, size_t length)
{
    return XXH3_64bits(name, length) | 1;
}

/* A table that is locked, or that ALTER TABLE waits for, holds up each read of it for
 * the timeout.  So that others go on, some connections are never for the same table.
 * The lock is held. */
static bool has_room(const struct qm_fill *fill, uint64_t table)
{
    unsigned all = fill->settings.connections, running = 0;

    for (unsigned i = 0; i < all; i++)
        running += fill->worker[i].table == table;
    return running < all - (all >= FEW ? (all + 7) / 8 : 0);
}

/* The next read, or NULL.  More than half of the connections can be of one table only,
 * so behind one that has no room, one of any other table has.  The lock is held. */
static struct qm_fill_job *next_job(const struct qm_fill *fill)
{
    struct qm_fill_job *first = fill->first, *job = first;

    if (first && !has_room(fill, first->table))
        while (job && job->table == first->table)
            job = job->next;
    return job;
}

static bool is_late(const struct qm_fill *fill, const struct qm_fill_job *job)
{
    return qm_rows_now() - job->queued > fill->settings.timeout_ms * UINT64_C(1000000);
}

/* A connection that waited in the pool may have been closed since by a server that has
 * restarted, or that waits no longer for it: the read goes on over a new one, once. */
static void read_again(struct worker *w, struct qm_fill_job *job)
{
    char error[400];

    if (is_late(w->fill, job) || !qm_fill_connect(w, error, sizeof error))
        return;
    job->text.length = 0;
    qm_fill_read(w, job);
}

static bool are_some_connected(struct qm_fill *fill)
{
    bool some;

    pthread_mutex_lock(&fill->lock);
    some = fill->stats.connected > 0;
    pthread_mutex_unlock(&fill->lock);
    return some;
}

/* It waits again, before all others.  The lock is held. */
static void link_first(struct qm_fill *fill, struct qm_fill_job *job)
{
    job->prev = NULL;
    job->next = fill->first;
    if (fill->first)
        fill->first->prev = job;
    else
        fill->last = job;
    fill->first = job;
    job->waits = true;
    fill->load.waiting++;
}

/* There is work.  If not all threads are fit for it, the one that wakes might not be.
 * The lock is held. */
static void wake_one(struct qm_fill *fill)
{
    if (qm_fill_pauses(fill))
        pthread_cond_broadcast(&fill->wake);
    else
        pthread_cond_signal(&fill->wake);
}

/* It waits for its server: for an eighth of the time that it has waited. */
static void link_behind(struct qm_fill *fill, struct qm_fill_job *job)
{
    uint64_t now = qm_rows_now(), pause = (now - job->queued) / 8;

    job->again = now + (pause < BEHIND_NS ? BEHIND_NS : pause);
    job->next = fill->behind;
    fill->behind = job;
    wake_one(fill); /* another thread may be free earlier */
}

/* Queues those whose time has come; all if it ends.  When the next one is due; 0: there
 * is none.  The lock is held. */
static uint64_t queue_behind(struct qm_fill *fill)
{
    uint64_t now = fill->behind ? qm_rows_now() : 0, next = 0;

    for (struct qm_fill_job **at = &fill->behind, *job; (job = *at);) {
        if (job->again > now && !fill->ending) {
            if (next == 0 || job->again < next)
                next = job->again;
            at = &job->next;
            continue;
        }
        *at = job->next;
        link_first(fill, job);
        wake_one(fill);
    }
    return next;
}

/* Waits for work.  The lock is held. */
static void wait_for_work(struct qm_fill *fill, uint64_t until)
{
    uint64_t now = until ? qm_rows_now() : 0;
    uint64_t ns = until > now ? until - now : 0;
    struct timespec t;

    if (until == 0) {
        pthread_cond_wait(&fill->wake, &fill->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&fill->wake, &fill->lock, &t);
}

/* False: there is no connection, and others have some: they carry it out. */
static bool carry_out(struct worker *w, struct qm_fill_job *job)
{
    struct qm_fill *fill = w->fill;
    bool waited = w->mysql != NULL;
    char error[400];

    job->outcome = QM_FILL_ERROR;
    if (is_late(fill, job)) {
        snprintf(error, sizeof error,
                 job->again > 0
                     ? "TRYAGAIN the database is behind what this connection "
                       "has seen, for %u ms already"
                     : "TRYAGAIN the database is slow: the read waited for "
                       "%u ms",
                 fill->settings.timeout_ms);
        qm_text_add(&job->text, error, strlen(error));
        qm_fill_remember_error(fill, error);
    } else if (qm_fill_connect(w, error, sizeof error)) {
        qm_fill_read(w, job);
        if (waited && !w->mysql && job->outcome == QM_FILL_ERROR)
            read_again(w, job);
    } else if (are_some_connected(fill)) {
        return false;
    } else {
        qm_text_add(&job->text, error, strlen(error));
    }
    return true;
}

/* A thread that may not connect yet leaves reads to those that are connected: it would
 * always be free first, and give an error to what they could read. */
static bool is_fit(const struct worker *w)
{
    return w->mysql || w->fill->stats.connected == 0 || !qm_fill_pauses(w->fill);
}

static uint64_t hash_ahead(const struct qm_fill_ahead *ahead)
{
    char name[2 * QM_NAME_LENGTH + 2];
    int length = snprintf(name, sizeof name, "%s.%s", ahead->schema, ahead->table);

    return hash_table(name, (size_t)length);
}

/* A read goes first, and finds a connection: read-ahead has half of them at most. */
static bool may_read_ahead(const struct worker *w)
{
    const struct qm_fill *fill = w->fill;

    return fill->ahead_first && is_fit(w) &&
           fill->ahead_running < (fill->settings.connections + 1) / 2 &&
           has_room(fill, hash_ahead(fill->ahead_first));
}

/* The lock is held. */
static void read_ahead(struct worker *w)
{
    struct qm_fill *fill = w->fill;
    struct qm_fill_ahead *ahead = fill->ahead_first;
    char error[400];
    bool ending;

    fill->ahead_first = ahead->next;
    if (!fill->ahead_first)
        fill->ahead_last = &fill->ahead_first;
    fill->ahead_waiting--;
    fill->ahead_running++;
    w->table = hash_ahead(ahead);
    ahead->failed = true;
    ending = fill->ending;
    pthread_mutex_unlock(&fill->lock);
    if (!ending && qm_fill_connect(w, error, sizeof error))
        qm_fill_read_ahead(w, ahead);
    ahead->done(ahead);
    pthread_mutex_lock(&fill->lock);
    fill->ahead_running--;
    w->table = 0;
    wake_one(fill);
}

/* The lock is held. */
static void unlink_job(struct qm_fill *fill, struct qm_fill_job *job)
{
    if (job->prev)
        job->prev->next = job->next;
    else
        fill->first = job->next;
    if (job->next)
        job->next->prev = job->prev;
    else
        fill->last = job->prev;
    job->waits = false;
    fill->load.waiting--;
}

double qm_fill_work(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Of a read; 0: it says nothing.  The lock is held. */
static void note_work(struct qm_fill *fill, double us)
{
    double mean = fill->load.work_us;

    if (us > 0)
        fill->load.work_us = mean > 0 ? mean + (us - mean) / READS_OF_WORK : us;
}

/* It has carried out a read.  One of the same table may have waited for that, and this
 * thread may not be fit for it.  The lock is held. */
static void leave(struct worker *w)
{
    bool had_room = has_room(w->fill, w->table);

    w->table = 0;
    w->fill->load.busy--;
    if (!had_room)
        wake_one(w->fill);
}

static void *work(void *opaque)
{
    struct worker *w = opaque;
    struct qm_fill *fill = w->fill;

    mysql_thread_init();
    pthread_mutex_lock(&fill->lock);
    for (;;) {
        struct qm_fill_job *job;
        double worked;

        for (;;) {
            uint64_t due = queue_behind(fill);

            job = is_fit(w) || fill->ending ? next_job(fill) : NULL;
            if (job || may_read_ahead(w) || fill->ending)
                break;
            if ((fill->first || fill->ahead_first) && !is_fit(w) &&
                (due == 0 || due > qm_fill_pause_end(fill)))
                due = qm_fill_pause_end(fill);
            wait_for_work(fill, due);
        }
        if (fill->ending)
            job = fill->first;
        if (!job && fill->ahead_first) {
            read_ahead(w);
            continue;
        }
        if (!job)
            break;
        unlink_job(fill, job);
        if (fill->ending) {
            job->outcome = QM_FILL_ERROR;
            qm_text_add(&job->text, "TRYAGAIN the server is shutting down", 36);
        }
        fill->load.busy++;
        w->table = job->table;
        pthread_mutex_unlock(&fill->lock);
        worked = qm_fill_work();
        if (job->text.length == 0 && !carry_out(w, job)) {
            pthread_mutex_lock(&fill->lock);
            leave(w);
            link_first(fill, job);
            wake_one(fill);
            continue;
        }
        if (job->outcome == QM_FILL_BEHIND) {
            pthread_mutex_lock(&fill->lock);
            leave(w);
            link_behind(fill, job);
            continue;
        }
        worked = job->outcome == QM_FILL_ERROR ? 0 : qm_fill_work() - worked;
        fill->done(fill->opaque, job);
        pthread_mutex_lock(&fill->lock);
        note_work(fill, worked);
        leave(w);
    }
    pthread_mutex_unlock(&fill->lock);
    qm_fill_hang_up(w);
    mysql_thread_end();
    return NULL;
}

static bool give(struct qm_fill *fill, struct qm_fill_job *job, unsigned most)
{
    bool room;

    job->next = NULL;
    job->queued = qm_rows_now();
    job->text.length = 0;
    job->kept = false;
    job->again = 0;
    job->table = hash_table(job->name.key, job->name.table_length);
    pthread_mutex_lock(&fill->lock);
    room = fill->load.waiting < most && !fill->ending;
    if (room) {
        job->prev = fill->last;
        if (fill->last)
            fill->last->next = job;
        else
            fill->first = job;
        fill->last = job;
        job->waits = true;
        fill->load.waiting++;
        wake_one(fill);
    }
    pthread_mutex_unlock(&fill->lock);
    return room;
}

bool qm_fill_give(struct qm_fill *fill, struct qm_fill_job *job)
{
    bool given = give(fill, job, fill->settings.queue);

    if (!given) {
        pthread_mutex_lock(&fill->lock);
        fill->stats.refused++;
        pthread_mutex_unlock(&fill->lock);
    }
    return given;
}

bool qm_fill_give_early(struct qm_fill *fill, struct qm_fill_job *job)
{
    unsigned most = fill->settings.connections;

    return give(fill, job, most < fill->settings.queue ? most : fill->settings.queue);
}

bool qm_fill_take_back(struct qm_fill *fill, struct qm_fill_job *job)
{
    bool waits;

    pthread_mutex_lock(&fill->lock);
    waits = job->waits;
    if (waits)
        unlink_job(fill, job);
    pthread_mutex_unlock(&fill->lock);
    return waits;
}

bool qm_fill_give_ahead(struct qm_fill *fill, struct qm_fill_ahead *ahead)
{
    bool fresh = qm_rows_is_fresh(fill->rows, qm_rows_now()), room;

    ahead->next = NULL;
    pthread_mutex_lock(&fill->lock);
    room = fresh && fill->load.waiting == 0 && fill->ahead_waiting < AHEAD_WAITING &&
           !fill->ending;
    if (room) {
        *fill->ahead_last = ahead;
        fill->ahead_last = &ahead->next;
        fill->ahead_waiting++;
        wake_one(fill);
    }
    pthread_mutex_unlock(&fill->lock);
    return room;
}

struct qm_fill *qm_fill_start(const struct qm_fill_settings *settings,
                              struct qm_rows *rows, _Atomic uint64_t *tick,
                              void (*done)(void *opaque, struct qm_fill_job *job),
                              void *opaque)
{
    struct qm_fill *fill =
        calloc(1, sizeof *fill + settings->connections * sizeof fill->worker[0]);
    pthread_condattr_t monotonic;

    if (!fill)
        return NULL;
    fill->settings = *settings;
    fill->rows = rows;
    fill->tick = tick;
    fill->done = done;
    fill->opaque = opaque;
    fill->ahead_last = &fill->ahead_first;
    pthread_mutex_init(&fill->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&fill->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (unsigned i = 0; i < settings->connections; i++) {
        struct worker *w = &fill->worker[i];

        w->fill = fill;
        w->started = pthread_create(&w->thread, NULL, work, w) == 0;
        if (!w->started) {
            qm_fill_stop(fill);
            errno = EAGAIN;
            return NULL;
        }
    }
    return fill;
}

void qm_fill_get_stats(struct qm_fill *fill, struct qm_fill_stats *stats)
{
    pthread_mutex_lock(&fill->lock);
    *stats = fill->stats;
    stats->waiting = fill->load.waiting;
    stats->busy = fill->load.busy;
    stats->work_us = fill->load.work_us;
    pthread_mutex_unlock(&fill->lock);
}

void qm_fill_get_load(const struct qm_fill *fill, unsigned *busy, double *work_us)
{
    *busy = fill->load.busy;
    *work_us = fill->load.work_us;
}

bool qm_fill_may_give_ahead(const struct qm_fill *fill)
{
    return fill->load.waiting == 0;
}

void qm_fill_stop(struct qm_fill *fill)
{
    if (!fill)
        return;
    pthread_mutex_lock(&fill->lock);
    fill->ending = true;
    pthread_cond_broadcast(&fill->wake);
    pthread_mutex_unlock(&fill->lock);
    for (unsigned i = 0; i < fill->settings.connections; i++)
        if (fill->worker[i].started)
            pthread_join(fill->worker[i].thread, NULL);
    pthread_mutex_destroy(&fill->lock);
    pthread_cond_destroy(&fill->wake);
    free(fill);
}
