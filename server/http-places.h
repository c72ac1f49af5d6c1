/* SPDX-License-Identifier: BSD-3-Clause */
/* http-places.h - connections of the statistics over HTTP have their place for a time.
 *
 * libmicrohttpd closes a connection on which nothing happens, but one that sends or
 * takes a byte now and then keeps its place for ever, and there are few.  Here, a
 * request has to come within a time that counts from its connection's beginning, or
 * from the answer before it, and to be answered within the same; and when all places
 * are taken, within a short one.  Then a connection that has had its place for that
 * long, and was answered, gives it to others, too.
 * A thread shuts down the sockets of those that are late; it sleeps while there is no
 * connection.
 */
#ifndef QMS_HTTP_PLACES_H
#define QMS_HTTP_PLACES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define QMS_HTTP_PLACES 16

struct qms_http_place {
    int fd;           /* -1: it is free */
    uint64_t entered; /* ns */
    uint64_t since;   /* ns: when it was entered, the next request began, or the last
                         one was answered */
    bool answered;    /* the last request was, and no other has begun */
};

struct qms_http_places {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake;
    pthread_t thread;
    bool stop;
    unsigned taken;
    struct qms_http_place places[QMS_HTTP_PLACES];
};

/* Returns 0 or an errno value. */
int qms_http_places_start(struct qms_http_places *p);
void qms_http_places_stop(struct qms_http_places *p);

/* A connection begins; it is left before fd is closed.  NULL: there is no place, and
 * its time has no bound. */
struct qms_http_place *qms_http_places_enter(struct qms_http_places *p, int fd);
/* A request of it has begun; was answered. */
void qms_http_places_asked(struct qms_http_places *p, struct qms_http_place *place);
void qms_http_places_answered(struct qms_http_places *p, struct qms_http_place *place);
void qms_http_places_leave(struct qms_http_places *p, struct qms_http_place *place);

#endif
