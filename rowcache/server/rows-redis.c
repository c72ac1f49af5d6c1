/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-redis.c - rows that are kept in a Redis: its start and end, how fresh they are,
 * and the commands that show what is there; see server.h.
 *
 * Lookups are rows-ask.c's. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/server/rows-ask.h"

static void say(void *opaque, const char *text)
{
    fprintf(stderr, "qm-rowcache: %s\n", text);
}

/* Until when rows are not older than max-lag, for programs that read that Redis. False:
 * they are older. */
static bool tell_fresh_now(struct server *s)
{
    char gtids[QM_GTID_TEXT];
    struct qm_rows_stats stats;
    double left;

    qm_rows_get_stats(s->rows, &stats);
    left = (double)s->max_lag - 1000 * stats.behind;
    if (!stats.following || stats.behind < 0 || left < 1)
        return false;
    qm_redis_fresh(s->redis, qm_gtid_print(&stats.applied, gtids), (unsigned)left);
    return true;
}

static void tell_fresh(evutil_socket_t fd, short what, void *opaque)
{
    (void)tell_fresh_now(opaque);
}

/* False: the timer cannot be set. */
static bool tell_often(struct server *s)
{
    uint64_t ms = s->max_lag / 4 < 250 ? s->max_lag / 4 : 250;
    struct timeval often = {0, (suseconds_t)ms * 1000};

    return event_add(s->redis_fresh, &often) == 0;
}

void rows_redis_set_max_lag(struct server *s)
{
    /* At once, too: what was told before may be for longer. */
    if (!s->redis_fresh || !tell_often(s))
        return;
    if (!tell_fresh_now(s))
        qm_redis_fresh(s->redis, "", 1);
}

int rows_redis_start(struct server *s)
{
    const struct qm_config *c = s->config;
    struct qm_redis_settings settings = {
        .host = c->redis_host,
        .port = (unsigned)c->redis_port,
        .unix_socket = c->redis_socket,
        .database = (unsigned)c->redis_database,
        .timeout_ms = (unsigned)c->redis_timeout,
        .user = c->redis_user,
        .password = c->redis_password,
    };

    s->redis = qm_redis_start(&settings, s->base, say, NULL);
    if (!s->redis) {
        fprintf(stderr, "qm-rowcache: redis: %s\n",
                errno ? strerror(errno) : "redis.host is not known");
        return -1;
    }
    s->redis_fresh = event_new(s->base, -1, EV_PERSIST, tell_fresh, s);
    return s->redis_fresh && tell_often(s) ? 0 : -1;
}

void rows_redis_end(struct server *s)
{
    if (s->redis_fresh)
        event_free(s->redis_fresh);
    qm_redis_stop(s->redis);
    s->redis = NULL;
}

/* --- commands that Redis answers --- */

struct forwarded {
    struct qm_redis_query query; /* first */
    struct request request;
    void (*reply)(struct client *c, const redisReply *reply);
};

static void answered(struct qm_redis_query *query, const redisReply *reply)
{
    struct forwarded *f = (struct forwarded *)query;
    struct client *c = f->request.c;
    size_t from;

    if (!c) {
        free(f);
        return;
    }
    c->server->now = qm_rows_now();
    from = c->out.length;
    c->request = NULL;
    if (!reply)
        client_error(c, "TRYAGAIN Redis is away");
    else if (reply->type == REDIS_REPLY_ERROR)
        client_error(c, "%s", reply->str);
    else
        f->reply(c, reply);
    client_hush(c, from);
    free(f);
    client_go_on(c);
}

static void forward(struct client *c, unsigned count, const char **words,
                    void (*reply)(struct client *c, const redisReply *reply))
{
    struct forwarded *f = calloc(1, sizeof *f);
    size_t lengths[6];

    for (unsigned i = 0; i < count; i++)
        lengths[i] = strlen(words[i]);
    if (f) {
        f->query.answered = answered;
        f->request.c = c;
        f->reply = reply;
    }
    if (f && qm_redis_ask(c->server->redis, &f->query, count, words, lengths)) {
        c->request = &f->request;
        return;
    }
    free(f);
    client_error(c, "TRYAGAIN Redis is away");
}

static void refuse_answer(struct client *c)
{
    client_error(c, "TRYAGAIN Redis answers something else");
}

/* Whether the reply is an array of that many parts or more, each of that type, or of
 * any type if it is 0. */
static bool has_parts(const redisReply *reply, size_t least, int type)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < least)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (type != 0 && reply->element[i]->type != type)
            return false;
    return true;
}

static bool is_own(const redisReply *key)
{
    return strcmp(key->str, QM_REDIS_OWNER) == 0 ||
           strcmp(key->str, QM_REDIS_FRESH) == 0;
}

static void reply_count(struct client *c, const redisReply *reply)
{
    long long count;

    if (!has_parts(reply, 2, REDIS_REPLY_INTEGER)) {
        refuse_answer(c);
        return;
    }
    count = reply->element[0]->integer;
    for (size_t i = 1; i < reply->elements; i++)
        count -= reply->element[i]->integer;
    qm_reply_integer(&c->out, count);
}

void rows_redis_dbsize(struct client *c)
{
    static const char script[] =
        "return {redis.call('DBSIZE'), redis.call('EXISTS', KEYS[1], KEYS[2])}";

    forward(c, 5, (const char *[]){"EVAL", script, "2", QM_REDIS_OWNER, QM_REDIS_FRESH},
            reply_count);
}

static void reply_keys(struct client *c, const redisReply *reply)
{
    const redisReply *keys;
    size_t own = 0;

    if (!has_parts(reply, 2, 0) || reply->element[0]->type != REDIS_REPLY_STRING ||
        !has_parts(reply->element[1], 0, REDIS_REPLY_STRING)) {
        refuse_answer(c);
        return;
    }
    keys = reply->element[1];
    for (size_t i = 0; i < keys->elements; i++)
        own += is_own(keys->element[i]);
    qm_reply_array(&c->out, 2);
    qm_reply_string(&c->out, reply->element[0]->str);
    qm_reply_array(&c->out, keys->elements - own);
    for (size_t i = 0; i < keys->elements; i++)
        if (!is_own(keys->element[i]))
            qm_reply_bulk(&c->out, keys->element[i]->str, keys->element[i]->len);
}

void rows_redis_scan(struct client *c, const char *cursor, const char *pattern,
                     int64_t count)
{
    char most[24];

    if (count == 0) {
        qm_reply_array(&c->out, 2);
        qm_reply_string(&c->out, "0");
        qm_reply_array(&c->out, 0);
        return;
    }
    /* Of one SCAN, so that neither side is held up. */
    snprintf(most, sizeof most, "%lld", count < 1000 ? (long long)count : 1000LL);
    forward(c, 6,
            (const char *[]){"SCAN", cursor, "MATCH", pattern ? pattern : "*", "COUNT",
                             most},
            reply_keys);
}
