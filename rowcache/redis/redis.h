/* SPDX-License-Identifier: BSD-3-Clause */
/* redis.h - rows kept in a Redis that other programs may read: a place of rows.h.
 *
 * One database of that Redis is the daemon's alone.  A row is a string under its key,
 * the row's JSON as it is; an empty one says that there is no such row.  Two more keys:
 * quickmine:owner, which process and connection may keep rows there, and
 * quickmine:fresh, the GTIDs that are applied, which ends when rows may be older than
 * max-lag.
 *
 * That no older row takes a newer one's place, and none is found that has changed:
 *
 * - All that the daemon asks goes over one connection, in the order in which it was
 *   asked.  rows.c decides by the versions in its memory, under its lock, whether a row
 *   may still be kept, and what it sends is in that order.  A version beside each row
 * in Redis could not do that: DEL takes it away, just when it is needed.
 * - A connection that was given up may leave commands that Redis carries out later.  So
 *   each connection begins with a name of its own in quickmine:owner and an empty
 *   database, a row is kept by a script only if the name is still there, and a row is
 *   looked for together with the name (MGET).  It is a script since WATCH would take
 *   two round trips, in which nothing else could be asked over that connection.
 * - While the connection is away nothing is found or kept.  Changes that were missed
 *   then do not matter, because the database is emptied before anything is.
 *
 * Nothing waits: if Redis does not answer in time, the connection is given up, and what
 * was asked is not found.
 *
 * Threads: the place's functions by any; all others by the loop's. */
#ifndef QM_ROWCACHE_REDIS_H
#define QM_ROWCACHE_REDIS_H

#include <event2/event.h>

#include "rowcache/rows.h"

#define QM_REDIS_OWNER "quickmine:owner"
#define QM_REDIS_FRESH "quickmine:fresh"

struct redisReply;

struct qm_redis_settings {
    const char *host; /* or NULL, with a socket; is looked up at the start only */
    unsigned port;
    const char *unix_socket;
    unsigned database, timeout_ms;
    const char *user, *password; /* or NULL */
};

struct qm_redis_stats {
    bool up;
    uint64_t connects, losses, dispossessed, lookups, found, put_errors;
    uint64_t waiting; /* for an answer */
    int64_t keys;     /* as last counted; -1: not known */
    char why[200];    /* it is not up, or the last row was not kept */
};

struct qm_redis;

/* NULL: errno says why, or 0: host is not known. */
struct qm_redis *qm_redis_start(const struct qm_redis_settings *settings,
                                struct event_base *base,
                                void (*message)(void *opaque, const char *text),
                                void *opaque);
/* What waits for an answer is told that there is none.  The database is left empty if
 * that needs no wait. */
void qm_redis_stop(struct qm_redis *redis);

struct qm_rows_place qm_redis_place(struct qm_redis *redis);

/* The caller's until it is given, and again when found() is called. */
struct qm_redis_lookup {
    struct qm_redis *redis;
    void (*found)(struct qm_redis_lookup *lookup, enum qm_rows_kind kind,
                  const char *text, size_t length);
};
/* False: Redis is away, and found() will not be called. */
bool qm_redis_get(struct qm_redis *redis, struct qm_redis_lookup *lookup,
                  const char *key, size_t length);

/* Any other command; reply is NULL if there is none. */
struct qm_redis_query {
    struct qm_redis *redis;
    void (*answered)(struct qm_redis_query *query, const struct redisReply *reply);
};
bool qm_redis_ask(struct qm_redis *redis, struct qm_redis_query *query, unsigned count,
                  const char **words, const size_t *lengths);

/* To be called several times in max-lag: that is applied, and rows are fresh for ms. */
void qm_redis_fresh(struct qm_redis *redis, const char *gtids, unsigned ms);

void qm_redis_get_stats(struct qm_redis *redis, struct qm_redis_stats *stats);

#endif
