/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the files of redis share:
 *
 *   redis.c  what is asked and answered
 *   link.c   the connection: made, taken over, given up */
#ifndef QM_ROWCACHE_REDIS_INTERNAL_H
#define QM_ROWCACHE_REDIS_INTERNAL_H

#include <hiredis/async.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rowcache/redis/redis.h"

enum { REDIS_PRINTS = 1 << 18, REDIS_NAME = 32, REDIS_SHA = 40 };

enum link_state { LINK_AWAY, LINK_BEGINS, LINK_UP };

/* What the place was told, and is not yet sent. */
struct op {
    struct op *next;
    enum { OP_PUT, OP_REMOVE, OP_CLEAR } kind;
    unsigned life_ms;
    size_t key_length, length;
    char bytes[]; /* key, value */
};

struct qm_redis {
    struct qm_redis_settings settings;
    char *socket, *address, *user, *password;
    struct event_base *base;
    void (*message)(void *opaque, const char *text);
    void *opaque;

    pthread_mutex_t lock; /* of state, failed and ops */
    enum link_state state;
    const char *failed; /* it is not up, and is still to be lost */
    struct op *first, **last;
    int wake_fd;
    struct event *wake, *tick;
    _Atomic uint32_t *print; /* of keys that were put, by their hashes: a hint */

    /* The loop's alone: */
    redisAsyncContext *context; /* NULL: away */
    char name[REDIS_NAME + 1];  /* of this connection, in QM_REDIS_OWNER */
    char put_sha[REDIS_SHA + 1], clear_sha[REDIS_SHA + 1];
    uint64_t sent, answered;   /* commands over this connection */
    uint64_t mark, mark_at;    /* `sent` at an earlier time, and that time (ns) */
    uint64_t ticked, retry_at; /* ns */
    uint64_t counted_at;       /* when keys was asked for */
    bool owned;                /* this process has had the database */
    bool ending;
    struct qm_redis_stats stats;
};

/* link.c */
extern const char qm_redis_put_script[], qm_redis_clear_script[];
void qm_redis_connect(struct qm_redis *r, uint64_t now);
/* Gives the connection up: what waits is told so.  wait_ms: until the next try.  Not to
 * be called by what a client's command has called. */
void qm_redis_lose(struct qm_redis *r, unsigned wait_ms, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Another has the database, or nobody (other false). */
void qm_redis_dispossessed(struct qm_redis *r, bool other);
/* Whether what was sent has had no answer for too long. */
bool qm_redis_is_stuck(struct qm_redis *r, uint64_t now);

/* An answer of that connection is here.  False: the connection is given up, or is with
 * this answer, because Redis answers more than it was asked. */
bool qm_redis_count(struct qm_redis *r, const redisAsyncContext *context);

/* redis.c: one command over the connection; false: it cannot be sent. */
bool qm_redis_send(struct qm_redis *r, redisCallbackFn *callback, void *opaque,
                   unsigned count, const char **words, const size_t *lengths);
void qm_redis_drop_ops(struct qm_redis *r); /* the lock is held */

#endif
