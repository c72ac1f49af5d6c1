/* SPDX-License-Identifier: BSD-3-Clause */
/* http-places.c - see http-places.h. */
#include "server/http-places.h"

#include <sys/socket.h>
#include <time.h>

#include "server/stats.h"

#define PATIENCE (UINT64_C(15) * 1000000000) /* more than the time of an idle one */
#define SHORT    (UINT64_C(1) * 1000000000)  /* when all places are taken */
#define TICK     (UINT64_C(250) * 1000000)

/* With the lock. */
static void end_late(struct qms_http_places *p, uint64_t now)
{
    const bool full = p->taken == QMS_HTTP_PLACES;
    const uint64_t patience = full ? SHORT : PATIENCE;

    for (unsigned i = 0; i < QMS_HTTP_PLACES; i++) {
        const struct qms_http_place *place = &p->places[i];

        if (place->fd != -1 &&
            (now - place->since > patience ||
             (full && place->answered && now - place->entered > SHORT)))
            shutdown(place->fd, SHUT_RDWR); /* its owner closes it */
    }
}

static void *watch(void *opaque)
{
    struct qms_http_places *p = opaque;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->taken == 0) {
            pthread_cond_wait(&p->wake, &p->lock);
        } else {
            uint64_t until = qms_now() + TICK;
            struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};

            pthread_cond_timedwait(&p->wake, &p->lock, &at);
            end_late(p, qms_now());
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int qms_http_places_start(struct qms_http_places *p)
{
    pthread_condattr_t monotonic;
    int error;

    p->stop = false;
    p->taken = 0;
    for (unsigned i = 0; i < QMS_HTTP_PLACES; i++)
        p->places[i].fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    error = pthread_create(&p->thread, NULL, watch, p);
    if (error != 0) {
        pthread_cond_destroy(&p->wake);
        pthread_mutex_destroy(&p->lock);
    }
    return error;
}

void qms_http_places_stop(struct qms_http_places *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
}

struct qms_http_place *qms_http_places_enter(struct qms_http_places *p, int fd)
{
    struct qms_http_place *place = NULL;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < QMS_HTTP_PLACES && !place; i++)
        if (p->places[i].fd == -1)
            place = &p->places[i];
    if (place) {
        *place = (struct qms_http_place){.fd = fd, .entered = qms_now()};
        place->since = place->entered;
        if (p->taken++ == 0)
            pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
    return place;
}

void qms_http_places_asked(struct qms_http_places *p, struct qms_http_place *place)
{
    pthread_mutex_lock(&p->lock);
    if (place->answered)
        place->since = qms_now();
    place->answered = false;
    pthread_mutex_unlock(&p->lock);
}

void qms_http_places_answered(struct qms_http_places *p, struct qms_http_place *place)
{
    pthread_mutex_lock(&p->lock);
    place->since = qms_now();
    place->answered = true;
    /* The next request of one that sends several at once begins before anybody looks.
     */
    if (p->taken == QMS_HTTP_PLACES && place->since - place->entered > SHORT)
        shutdown(place->fd, SHUT_RDWR);
    pthread_mutex_unlock(&p->lock);
}

void qms_http_places_leave(struct qms_http_places *p, struct qms_http_place *place)
{
    pthread_mutex_lock(&p->lock);
    place->fd = -1;
    p->taken--;
    pthread_mutex_unlock(&p->lock);
}
