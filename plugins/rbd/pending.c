/* SPDX-License-Identifier: BSD-3-Clause */
/* pending.c - see pending.h. */
#include "plugins/rbd/pending.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define NS UINT64_C(1000000000)

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* The lock is held. */
static void look(struct qmr_pending *p)
{
    const struct qmr_request *oldest = TAILQ_FIRST(&p->requests);
    uint64_t waits = oldest ? (now() - oldest->began) / NS : 0;
    char text[200];

    if (waits >= p->slow_after) {
        if (!p->slow) {
            snprintf(text, sizeof text,
                     "slow requests: Ceph has not answered a %s for %" PRIu64
                     " s; requests wait until it does (\"ceph health detail\" says "
                     "what is wrong: OSDs down, a full pool)",
                     oldest->what, waits);
            p->say(text);
        }
        p->slow = true;
    } else if (p->slow) {
        p->slow = false;
        p->say("no slow requests any more");
    }
}

static void *watch(void *opaque)
{
    struct qmr_pending *p = opaque;
    struct timespec until;

    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&p->stop, &p->lock, &until);
        if (!p->stopping)
            look(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int qmr_pending_init(struct qmr_pending *p, unsigned slow_after,
                     void (*say)(const char *text))
{
    pthread_condattr_t attr;
    int error;

    *p = (struct qmr_pending){.slow_after = slow_after, .say = say};
    TAILQ_INIT(&p->requests);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->stop, &attr);
    pthread_condattr_destroy(&attr);
    error = slow_after > 0 ? pthread_create(&p->thread, NULL, watch, p) : 0;
    if (error != 0) {
        pthread_cond_destroy(&p->stop);
        pthread_mutex_destroy(&p->lock);
    }
    return error;
}

void qmr_pending_destroy(struct qmr_pending *p)
{
    if (p->slow_after > 0) {
        pthread_mutex_lock(&p->lock);
        p->stopping = true;
        pthread_cond_signal(&p->stop);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->stop);
    pthread_mutex_destroy(&p->lock);
}

void qmr_pending_begin(struct qmr_pending *p, struct qmr_request *request,
                       const char *what)
{
    if (p->slow_after == 0)
        return;
    request->what = what;
    pthread_mutex_lock(&p->lock);
    request->began = now();
    TAILQ_INSERT_TAIL(&p->requests, request, link);
    pthread_mutex_unlock(&p->lock);
}

void qmr_pending_end(struct qmr_pending *p, struct qmr_request *request)
{
    if (p->slow_after == 0)
        return;
    pthread_mutex_lock(&p->lock);
    TAILQ_REMOVE(&p->requests, request, link);
    pthread_mutex_unlock(&p->lock);
}
