/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - the connection to the Redis that keeps rows; see redis.h.
 *
 * LINK_AWAY -> LINK_BEGINS (connecting, AUTH, SELECT, scripts, taking over) -> LINK_UP.
 * Every failure leads back to LINK_AWAY, from where it is tried again after a while. */
#include <errno.h>
#include <hiredis/async.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "rowcache/redis/internal.h"

/* hiredis ends the process if it is sent what answers no command, so its handler is not
 * called then. */
static void handle_read(redisAsyncContext *context);
#define redisAsyncHandleRead handle_read
#include <hiredis/adapters/libevent.h>
#undef redisAsyncHandleRead

enum {
    RETRY_MS = 300,
    OTHER_MS = 10000, /* another has taken the database: it may go on for a while */
};

/* 1: kept; 0: another has the database; -1: nobody has. */
const char qm_redis_put_script[] =
    "local o = redis.call('GET', KEYS[1]) "
    "if o ~= ARGV[1] then return o and 0 or -1 end "
    "if ARGV[3] == '0' then redis.call('SET', KEYS[2], ARGV[2]) "
    "else redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end "
    "return 1";

const char qm_redis_clear_script[] = "local o = redis.call('GET', KEYS[1]) "
                                     "if o ~= ARGV[1] then return o and 0 or -1 end "
                                     "redis.call('FLUSHDB', 'ASYNC') "
                                     "redis.call('SET', KEYS[1], ARGV[1]) "
                                     "return 1";

/* 1: taken over; 0 or less: the database has that many keys of others. */
static const char take_script[] =
    "if ARGV[2] == '0' and not redis.call('GET', KEYS[1]) and redis.call('DBSIZE') > 0 "
    "then return -redis.call('DBSIZE') end "
    "redis.call('FLUSHDB', 'ASYNC') "
    "redis.call('SET', KEYS[1], ARGV[1]) "
    "return 1";

static void set_state(struct qm_redis *r, enum link_state state)
{
    pthread_mutex_lock(&r->lock);
    r->state = state;
    if (state == LINK_AWAY)
        qm_redis_drop_ops(r);
    pthread_mutex_unlock(&r->lock);
}

/* The connection is no more, or not ours any more. */
static void let_go(struct qm_redis *r, unsigned wait_ms, const char *why)
{
    char text[300];
    bool said = strcmp(r->stats.why, why) == 0, was_up = r->state == LINK_UP;

    r->context = NULL;
    set_state(r, LINK_AWAY);
    for (unsigned i = 0; i < REDIS_PRINTS; i++)
        atomic_store_explicit(&r->print[i], 0, memory_order_relaxed);
    r->stats.up = false;
    r->stats.losses += was_up;
    r->stats.keys = -1;
    r->retry_at = qm_rows_now() + wait_ms * UINT64_C(1000000);
    snprintf(r->stats.why, sizeof r->stats.why, "%s", why);
    if (r->ending || (said && !was_up))
        return;
    snprintf(text, sizeof text, "redis: %s; reads go to the database", why);
    r->message(r->opaque, text);
}

void qm_redis_lose(struct qm_redis *r, unsigned wait_ms, const char *format, ...)
{
    redisAsyncContext *context = r->context;
    char why[200];
    va_list args;

    if (!context)
        return;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    let_go(r, wait_ms ? wait_ms : RETRY_MS, why);
    redisAsyncFree(context); /* calls what waits with no reply */
}

void qm_redis_dispossessed(struct qm_redis *r, bool other)
{
    r->stats.dispossessed++;
    if (other)
        qm_redis_lose(r, OTHER_MS, "another process has taken database %u",
                      r->settings.database);
    else
        qm_redis_lose(r, RETRY_MS, "another client emptied database %u",
                      r->settings.database);
}

static void refuse_surplus(struct qm_redis *r)
{
    qm_redis_lose(r, 0, "it answers more than it was asked");
}

bool qm_redis_count(struct qm_redis *r, const redisAsyncContext *context)
{
    if (r->context != context)
        return false;
    r->answered++;
    if (r->answered < r->sent || context->c.reader->pos == context->c.reader->len)
        return true;
    refuse_surplus(r);
    return false;
}

static void handle_read(redisAsyncContext *context)
{
    struct qm_redis *r = context->data;
    char byte;

    if (r->context == context && r->answered == r->sent &&
        recv(context->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        refuse_surplus(r);
    else
        redisAsyncHandleRead(context);
}

bool qm_redis_is_stuck(struct qm_redis *r, uint64_t now)
{
    uint64_t timeout = r->settings.timeout_ms * UINT64_C(1000000);

    if (r->answered >= r->mark) {
        r->mark = r->sent;
        r->mark_at = now;
    } else if (now - r->ticked > timeout) {
        r->mark_at = now; /* it was not Redis that was slow */
    }
    return r->answered < r->mark && now - r->mark_at > timeout;
}

/* --- the beginning --- */

static void begun(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply;

    if (!qm_redis_count(r, context) || !answer || answer->type != REDIS_REPLY_ERROR)
        return;
    qm_redis_lose(r, 0, "%s: %s", (const char *)opaque, answer->str);
}

static void loaded(redisAsyncContext *context, void *reply, void *opaque)
{
    const redisReply *answer = reply;

    if (answer && answer->type == REDIS_REPLY_STRING && answer->len == REDIS_SHA)
        memcpy(opaque, answer->str, REDIS_SHA + 1);
    begun(context, reply, "SCRIPT LOAD");
}

static void taken(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply;

    begun(context, reply, "EVAL");
    if (r->context != context || !answer)
        return;
    if (answer->type != REDIS_REPLY_INTEGER) {
        qm_redis_lose(r, 0, "EVAL: no number");
        return;
    }
    if (answer->integer <= 0) {
        qm_redis_lose(r, OTHER_MS,
                      "database %u has %lld keys that are not ours: give another by "
                      "redis.database, or empty it (FLUSHDB)",
                      r->settings.database, -answer->integer);
        return;
    }
    r->owned = true;
    r->stats.up = true;
    r->stats.connects++;
    r->stats.why[0] = '\0';
    set_state(r, LINK_UP);
    r->message(r->opaque, "redis: rows are kept there");
}

static bool send_text(struct qm_redis *r, redisCallbackFn *callback, void *opaque,
                      unsigned count, const char **words)
{
    size_t lengths[8];

    for (unsigned i = 0; i < count; i++)
        lengths[i] = strlen(words[i]);
    return qm_redis_send(r, callback, opaque, count, words, lengths);
}

static void begin(struct qm_redis *r)
{
    const struct qm_redis_settings *s = &r->settings;
    char number[12];
    bool good = true;

    snprintf(number, sizeof number, "%u", s->database);
    if (r->password && r->user)
        good = send_text(r, begun, "AUTH", 3,
                         (const char *[]){"AUTH", r->user, r->password});
    else if (r->password)
        good = send_text(r, begun, "AUTH", 2, (const char *[]){"AUTH", r->password});
    good = good &&
           send_text(r, begun, "SELECT", 2, (const char *[]){"SELECT", number}) &&
           send_text(r, loaded, r->put_sha, 3,
                     (const char *[]){"SCRIPT", "LOAD", qm_redis_put_script}) &&
           send_text(r, loaded, r->clear_sha, 3,
                     (const char *[]){"SCRIPT", "LOAD", qm_redis_clear_script}) &&
           send_text(r, taken, NULL, 6,
                     (const char *[]){"EVAL", take_script, "1", QM_REDIS_OWNER, r->name,
                                      r->owned ? "1" : "0"});
    if (!good)
        qm_redis_lose(r, 0, "the connection cannot be begun");
}

static void connected(const redisAsyncContext *context, int status)
{
    struct qm_redis *r = context->data;

    if (status != REDIS_OK && r->context == context) /* hiredis frees it */
        let_go(r, RETRY_MS, context->errstr);
}

static void disconnected(const redisAsyncContext *context, int status)
{
    struct qm_redis *r = context->data;

    if (r->context == context)
        let_go(r, RETRY_MS, status == REDIS_OK ? "hung up" : context->errstr);
}

/* A name that no other connection has. */
static bool make_name(char *name)
{
    unsigned char bytes[REDIS_NAME / 2];

    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(name + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

void qm_redis_connect(struct qm_redis *r, uint64_t now)
{
    redisAsyncContext *context;

    if (!make_name(r->name))
        return;
    context = r->socket ? redisAsyncConnectUnix(r->socket)
                        : redisAsyncConnect(r->address, (int)r->settings.port);
    if (!context || context->err || redisLibeventAttach(context, r->base) != REDIS_OK) {
        let_go(r, RETRY_MS, context && context->err ? context->errstr : "no memory");
        if (context)
            redisAsyncFree(context);
        return;
    }
    context->data = r;
    r->context = context;
    r->sent = r->answered = r->mark = 0;
    r->mark_at = now;
    redisAsyncSetConnectCallback(context, connected);
    redisAsyncSetDisconnectCallback(context, disconnected);
    set_state(r, LINK_BEGINS);
    begin(r);
}
