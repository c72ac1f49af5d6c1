/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.c - inserted blocks wait here for the thread that writes the log.
 *
 * A ring of fixed size.  Its thread takes what has gathered, writes it, and only then
 * frees the places, whose buffers hold the copies. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOGETHER 64       /* items that are written at a time */
#define GATHER   16       /* items that wake a thread that naps */
#define NAP_NS   2000000l /* after work it looks by itself whether there is more... */
#define IDLE     500      /* ...this many times, and sleeps then until it is woken */

int queue_new(struct qm_tier *t)
{
    t->queue.size = t->config.queue;
    if (t->config.threadless)
        return 0;
    t->queue.items = tier_alloc(t, t->queue.size * sizeof(struct item));
    t->queue.copies = tier_pages(t, (size_t)t->queue.size * t->g.block_size);
    return t->queue.items && t->queue.copies ? 0 : ENOMEM;
}

void queue_free(struct qm_tier *t)
{
    free(t->queue.items);
    free(t->queue.copies);
}

/* Waits for items.  With queue.lock, which is given up meanwhile. */
static void gather(struct qm_tier *t, unsigned *naps)
{
    struct timespec until;
    bool idle = *naps >= IDLE;
    int r = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += idle;
    until.tv_nsec += idle ? 0 : NAP_NS;
    if (until.tv_nsec >= 1000000000l) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000l;
    }
    t->queue.asleep = idle;
    while (!t->queue.stop && !t->queue.draining && r != ETIMEDOUT &&
           t->queue.n < (idle ? 1 : GATHER) && t->queue.n < t->queue.size)
        r = pthread_cond_clockwait(&t->queue.filled, &t->queue.lock, CLOCK_MONOTONIC,
                                   &until);
    t->queue.asleep = false;
    if (t->queue.n > 0)
        *naps = 0;
    else if (++*naps == IDLE && !t->queue.stop) {
        /* What was written shall survive the process. */
        pthread_mutex_unlock(&t->queue.lock);
        pthread_mutex_lock(&t->log.lock);
        if (!tier_dead(t))
            (void)log_footer(t);
        pthread_mutex_unlock(&t->log.lock);
        pthread_mutex_lock(&t->queue.lock);
    }
}

static void *write_queued(void *opaque)
{
    struct qm_tier *t = opaque;
    struct item items[TOGETHER];
    unsigned naps = 0;

    pthread_mutex_lock(&t->queue.lock);
    for (;;) {
        uint32_t n;

        if (t->queue.n < GATHER)
            gather(t, &naps);
        n = t->queue.n < TOGETHER ? t->queue.n : TOGETHER;
        if (n == 0 && t->queue.stop)
            break;
        if (n == 0) {
            pthread_cond_broadcast(&t->queue.drained);
            t->queue.draining = false;
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            items[i] = t->queue.items[(t->queue.head + i) % t->queue.size];
        pthread_mutex_unlock(&t->queue.lock);
        log_write(t, items, n);
        pthread_mutex_lock(&t->queue.lock);
        t->queue.head = (t->queue.head + n) % t->queue.size;
        t->queue.n -= n;
        if (t->queue.n == 0) {
            t->queue.draining = false;
            pthread_cond_broadcast(&t->queue.drained);
        }
    }
    pthread_mutex_unlock(&t->queue.lock);
    return NULL;
}

int queue_start(struct qm_tier *t)
{
    int r = t->config.threadless
                ? 0
                : pthread_create(&t->queue.thread, NULL, write_queued, t);

    t->queue.running = r == 0 && !t->config.threadless;
    return r;
}

void queue_stop(struct qm_tier *t)
{
    pthread_mutex_lock(&t->queue.lock);
    t->queue.stop = true;
    pthread_cond_broadcast(&t->queue.filled);
    pthread_mutex_unlock(&t->queue.lock);
    if (t->queue.running)
        pthread_join(t->queue.thread, NULL);
    t->queue.running = false;
}

static int push(struct qm_tier *t, const struct qm_tier_insert *insert, unsigned heat)
{
    struct item item = {
        .block = insert->block,
        .ticket = insert->ticket,
        .data = insert->data,
        .release = insert->release,
        .cookie = insert->cookie,
        .heat = heat,
    };
    uint32_t at;

    if (t->config.threadless) {
        log_write(t, &item, 1);
        return 0;
    }
    pthread_mutex_lock(&t->queue.lock);
    if (t->queue.n == t->queue.size) {
        pthread_mutex_unlock(&t->queue.lock);
        COUNT(t, full);
        return EAGAIN;
    }
    at = (t->queue.head + t->queue.n) % t->queue.size;
    if (!item.release) {
        char *copy = t->queue.copies + (size_t)at * t->g.block_size;

        memcpy(copy, item.data, t->g.block_size);
        item.data = copy;
    }
    t->queue.items[at] = item;
    t->queue.n++;
    if (t->queue.asleep || t->queue.n == GATHER || t->queue.n == t->queue.size)
        pthread_cond_signal(&t->queue.filled);
    pthread_mutex_unlock(&t->queue.lock);
    return 0;
}

int queue_insert(struct qm_tier *t, const struct qm_tier_insert *insert, unsigned heat)
{
    bool scan = false;
    int r;

    if (insert->block >= t->g.volume_blocks) {
        COUNT(t, refused);
        return EINVAL;
    }
    if (tier_dead(t)) {
        COUNT(t, refused);
        return ENODEV;
    }
    if (index_contains(t, insert->block)) {
        COUNT(t, exists);
        return EEXIST;
    }
    if (journal_is_stale(t, insert->block, insert->ticket)) {
        COUNT(t, stale);
        return ESTALE;
    }
    admit_offered(t, insert);
    r = admit_decide(t, insert->block, insert->frequency, insert->scan, &scan);
    if (r == EDQUOT)
        COUNT(t, over_rate);
    else if (r != 0 && scan)
        COUNT(t, scans);
    else if (r != 0)
        COUNT(t, refused);
    return r != 0 ? r : push(t, insert, heat);
}

int qm_tier_insert(struct qm_tier *t, const struct qm_tier_insert *insert)
{
    return queue_insert(t, insert, 0);
}

void qm_tier_drain(struct qm_tier *t)
{
    pthread_mutex_lock(&t->queue.lock);
    while (t->queue.n > 0) {
        t->queue.draining = true;
        pthread_cond_signal(&t->queue.filled);
        pthread_cond_wait(&t->queue.drained, &t->queue.lock);
    }
    pthread_mutex_unlock(&t->queue.lock);
}
