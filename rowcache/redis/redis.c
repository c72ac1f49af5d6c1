/* SPDX-License-Identifier: BSD-3-Clause */
/* redis.c - rows kept in a Redis: what is asked and answered; see redis.h. */
#include "rowcache/redis/redis.h"

#include <errno.h>
#include <hiredis/sds.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/redis/internal.h"

enum {
    UNSENT_MOST = 64 << 20, /* bytes that the socket does not take */
    COUNT_MS = 1000,        /* between DBSIZEs */
};

/* --- which keys may be there --- */

static _Atomic uint32_t *print_of(struct qm_redis *r, const char *key, size_t length,
                                  uint32_t *print)
{
    uint64_t hash = XXH3_64bits(key, length);

    *print = (uint32_t)(hash >> 32) | 1;
    return &r->print[hash % REDIS_PRINTS];
}

/* --- sending --- */

bool qm_redis_send(struct qm_redis *r, redisCallbackFn *callback, void *opaque,
                   unsigned count, const char **words, const size_t *lengths)
{
    if (!r->context || redisAsyncCommandArgv(r->context, callback, opaque, (int)count,
                                             words, lengths) != REDIS_OK)
        return false;
    r->sent++;
    return true;
}

/* An answer is here: of the present connection, and no error. */
static bool is_good(redisAsyncContext *context, const redisReply *reply)
{
    return qm_redis_count(context->data, context) && reply &&
           reply->type != REDIS_REPLY_ERROR;
}

static const char *error_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR ? reply->str : "";
}

/* Of a change: one that was not made would leave an old row. */
static void changed(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply;

    if (is_good(context, answer)) {
        if (opaque && answer->integer != 1) /* a script */
            qm_redis_dispossessed(r, answer->integer == 0);
    } else if (answer) {
        qm_redis_lose(r, 0, "a change is refused: %s", error_of(answer));
    }
}

static void was_put(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply;

    if (is_good(context, answer)) {
        if (answer->integer != 1)
            qm_redis_dispossessed(r, answer->integer == 0);
    } else if (answer && strncmp(error_of(answer), "NOSCRIPT", 8) == 0) {
        qm_redis_lose(r, 0, "its scripts were flushed");
    } else if (answer && r->context == context) {
        r->stats.put_errors++;
        snprintf(r->stats.why, sizeof r->stats.why, "%s", error_of(answer));
    }
}

static bool send_put(struct qm_redis *r, const char *key, size_t key_length,
                     const char *value, size_t length, unsigned life_ms)
{
    char life[12];
    int n = snprintf(life, sizeof life, "%u", life_ms);

    return qm_redis_send(r, was_put, NULL, 8,
                         (const char *[]){"EVALSHA", r->put_sha, "2", QM_REDIS_OWNER,
                                          key, r->name, value, life},
                         (const size_t[]){7, REDIS_SHA, 1, strlen(QM_REDIS_OWNER),
                                          key_length, REDIS_NAME, length, (size_t)n});
}

static bool send_clear(struct qm_redis *r)
{
    return qm_redis_send(
        r, changed, r, 5,
        (const char *[]){"EVALSHA", r->clear_sha, "1", QM_REDIS_OWNER, r->name},
        (const size_t[]){7, REDIS_SHA, 1, strlen(QM_REDIS_OWNER), REDIS_NAME});
}

static bool send_op(struct qm_redis *r, const struct op *op)
{
    switch (op->kind) {
    case OP_PUT:
        return send_put(r, op->bytes, op->key_length, op->bytes + op->key_length,
                        op->length, op->life_ms);
    case OP_REMOVE:
        return qm_redis_send(r, changed, NULL, 2, (const char *[]){"DEL", op->bytes},
                             (const size_t[]){3, op->key_length});
    default:
        return send_clear(r);
    }
}

static void wake(struct qm_redis *r)
{
    uint64_t one = 1;

    (void)!write(r->wake_fd, &one, sizeof one);
}

/* What could not be told must not be found: nothing is, until all is gone.  The
 * connection is given up from the loop. */
static void fail(struct qm_redis *r, const char *why)
{
    pthread_mutex_lock(&r->lock);
    if (r->state == LINK_UP) {
        r->state = LINK_BEGINS;
        r->failed = why;
    }
    pthread_mutex_unlock(&r->lock);
    wake(r);
}

/* All that the place was told is sent.  Whatever is asked next is behind it. */
static void drain(struct qm_redis *r)
{
    bool good = true;
    struct op *op;

    pthread_mutex_lock(&r->lock);
    op = r->first;
    r->first = NULL;
    r->last = &r->first;
    pthread_mutex_unlock(&r->lock);
    while (op) {
        struct op *next = op->next;

        good = good && send_op(r, op);
        free(op);
        op = next;
    }
    if (!good)
        fail(r, "a command cannot be sent");
    else if (r->context && sdslen(r->context->c.obuf) > UNSENT_MOST)
        fail(r, "it takes no more commands");
}

static void woken(evutil_socket_t fd, short what, void *opaque)
{
    struct qm_redis *r = opaque;
    const char *failed;
    uint64_t count;

    (void)!read(r->wake_fd, &count, sizeof count);
    drain(r);
    pthread_mutex_lock(&r->lock);
    failed = r->failed;
    r->failed = NULL;
    pthread_mutex_unlock(&r->lock);
    if (failed)
        qm_redis_lose(r, 0, "%s", failed);
}

/* --- the place --- */

void qm_redis_drop_ops(struct qm_redis *r)
{
    while (r->first) {
        struct op *op = r->first;

        r->first = op->next;
        free(op);
    }
    r->last = &r->first;
}

/* False: it is away, and empty when it comes back. */
static bool tell(struct qm_redis *r, int kind, const char *key, size_t key_length,
                 const char *value, size_t length, unsigned life_ms)
{
    struct op *op = malloc(sizeof *op + key_length + length + 1);
    bool up, first = false;

    if (op) {
        *op = (struct op){.kind = kind,
                          .life_ms = life_ms,
                          .key_length = key_length,
                          .length = length};
        if (key_length > 0)
            memcpy(op->bytes, key, key_length);
        if (length > 0)
            memcpy(op->bytes + key_length, value, length);
    }
    pthread_mutex_lock(&r->lock);
    up = r->state == LINK_UP;
    if (up && op) {
        first = !r->first;
        *r->last = op;
        r->last = &op->next;
    }
    pthread_mutex_unlock(&r->lock);
    if (!up)
        free(op);
    else if (!op && kind != OP_PUT)
        fail(r, "out of memory");
    else if (first)
        wake(r);
    return up && op;
}

static bool put(void *opaque, const char *key, size_t key_length, const char *value,
                size_t length, unsigned life_ms)
{
    struct qm_redis *r = opaque;
    uint32_t print;
    _Atomic uint32_t *at = print_of(r, key, key_length, &print);

    if (!tell(r, OP_PUT, key, key_length, value, length, life_ms))
        return false;
    atomic_store_explicit(at, print, memory_order_relaxed);
    return true;
}

static void remove_key(void *opaque, const char *key, size_t length)
{
    struct qm_redis *r = opaque;
    uint32_t print;
    _Atomic uint32_t *at = print_of(r, key, length, &print);

    atomic_compare_exchange_strong(at, &print, 0);
    tell(r, OP_REMOVE, key, length, NULL, 0, 0);
}

static void clear(void *opaque)
{
    struct qm_redis *r = opaque;

    for (unsigned i = 0; i < REDIS_PRINTS; i++)
        atomic_store_explicit(&r->print[i], 0, memory_order_relaxed);
    tell(r, OP_CLEAR, NULL, 0, NULL, 0, 0);
}

static bool has(void *opaque, const char *key, size_t length)
{
    uint32_t print;
    _Atomic uint32_t *at = print_of(opaque, key, length, &print);

    return atomic_load_explicit(at, memory_order_relaxed) == print;
}

struct qm_rows_place qm_redis_place(struct qm_redis *r)
{
    return (struct qm_rows_place){r, put, remove_key, clear, has};
}

/* --- the loop's --- */

static bool is_string(const redisReply *reply, const char *text, size_t length)
{
    return reply->type == REDIS_REPLY_STRING && reply->len == length &&
           memcmp(reply->str, text, length) == 0;
}

static void looked_up(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply, *owner, *row;
    struct qm_redis_lookup *lookup = opaque;
    enum qm_rows_kind kind = QM_ROWS_NONE;
    bool good = is_good(context, answer) && answer->type == REDIS_REPLY_ARRAY &&
                answer->elements == 2;

    if (!good) {
        lookup->found(lookup, QM_ROWS_NONE, NULL, 0);
        if (answer && r->context == context)
            qm_redis_lose(r, 0, "a read is refused: %s",
                          answer->type == REDIS_REPLY_ERROR ? answer->str : "no array");
        return;
    }
    owner = answer->element[0];
    row = answer->element[1];
    if (!is_string(owner, r->name, REDIS_NAME)) {
        lookup->found(lookup, QM_ROWS_NONE, NULL, 0);
        qm_redis_dispossessed(r, owner->type == REDIS_REPLY_STRING);
        return;
    }
    if (row->type == REDIS_REPLY_STRING)
        kind = row->len > 0 ? QM_ROWS_ROW : QM_ROWS_ABSENT;
    r->stats.found += kind != QM_ROWS_NONE;
    lookup->found(lookup, kind, row->str, row->len);
}

static bool is_up(struct qm_redis *r)
{
    bool up;

    pthread_mutex_lock(&r->lock);
    up = r->state == LINK_UP;
    pthread_mutex_unlock(&r->lock);
    return up;
}

bool qm_redis_get(struct qm_redis *r, struct qm_redis_lookup *lookup, const char *key,
                  size_t length)
{
    if (!is_up(r))
        return false;
    drain(r);
    lookup->redis = r;
    if (!qm_redis_send(r, looked_up, lookup, 3,
                       (const char *[]){"MGET", QM_REDIS_OWNER, key},
                       (const size_t[]){4, strlen(QM_REDIS_OWNER), length}))
        return false;
    r->stats.lookups++;
    return true;
}

static void asked(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis_query *query = opaque;
    const redisReply *answer = reply;

    is_good(context, answer);
    query->answered(query, answer);
}

bool qm_redis_ask(struct qm_redis *r, struct qm_redis_query *query, unsigned count,
                  const char **words, const size_t *lengths)
{
    if (!is_up(r))
        return false;
    drain(r);
    query->redis = r;
    return qm_redis_send(r, asked, query, count, words, lengths);
}

void qm_redis_fresh(struct qm_redis *r, const char *gtids, unsigned ms)
{
    if (ms == 0 || !is_up(r))
        return;
    drain(r);
    send_put(r, QM_REDIS_FRESH, strlen(QM_REDIS_FRESH), gtids, strlen(gtids), ms);
}

static void counted(redisAsyncContext *context, void *reply, void *opaque)
{
    struct qm_redis *r = context->data;
    const redisReply *answer = reply;

    if (is_good(context, answer) && answer->type == REDIS_REPLY_INTEGER)
        r->stats.keys = answer->integer > 2 ? answer->integer - 2 : 0; /* its own two */
}

static void ticked(evutil_socket_t fd, short what, void *opaque)
{
    struct qm_redis *r = opaque;
    uint64_t now = qm_rows_now();

    if (!r->context) {
        if (now >= r->retry_at)
            qm_redis_connect(r, now);
    } else if (qm_redis_is_stuck(r, now)) {
        qm_redis_lose(r, 0, "no answer in %u ms", r->settings.timeout_ms);
    } else if (r->stats.up && now - r->counted_at > COUNT_MS * UINT64_C(1000000)) {
        r->counted_at = now;
        qm_redis_send(r, counted, NULL, 1, (const char *[]){"DBSIZE"},
                      (const size_t[]){6});
    }
    r->ticked = now;
}

void qm_redis_get_stats(struct qm_redis *r, struct qm_redis_stats *stats)
{
    *stats = r->stats;
    stats->waiting = r->context ? r->sent - r->answered : 0;
}

/* --- start and end --- */

/* The loop must not wait for names, so it is done once. */
static bool look_up(struct qm_redis *r, const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char text[NI_MAXHOST];
    bool good = getaddrinfo(host, NULL, &hints, &found) == 0 &&
                getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL,
                            0, NI_NUMERICHOST) == 0;

    if (found)
        freeaddrinfo(found);
    r->address = good ? strdup(text) : NULL;
    errno = 0;
    return r->address;
}

static bool copy(char **to, const char *text)
{
    *to = text ? strdup(text) : NULL;
    return !text || *to;
}

static bool make_events(struct qm_redis *r)
{
    unsigned ms = r->settings.timeout_ms / 8 < 100 ? r->settings.timeout_ms / 8 : 100;
    struct timeval often = {0, (ms ? ms : 1) * 1000};

    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->wake = r->wake_fd == -1
                  ? NULL
                  : event_new(r->base, r->wake_fd, EV_READ | EV_PERSIST, woken, r);
    r->tick = event_new(r->base, -1, EV_PERSIST, ticked, r);
    return r->wake && r->tick && event_add(r->wake, NULL) == 0 &&
           event_add(r->tick, &often) == 0;
}

struct qm_redis *qm_redis_start(const struct qm_redis_settings *settings,
                                struct event_base *base,
                                void (*message)(void *opaque, const char *text),
                                void *opaque)
{
    struct qm_redis *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->settings = *settings;
    r->base = base;
    r->message = message;
    r->opaque = opaque;
    r->wake_fd = -1;
    r->last = &r->first;
    r->stats.keys = -1;
    pthread_mutex_init(&r->lock, NULL);
    r->print = calloc(REDIS_PRINTS, sizeof *r->print);
    if (!r->print || !copy(&r->socket, settings->unix_socket) ||
        !copy(&r->user, settings->user) || !copy(&r->password, settings->password) ||
        (!r->socket && !look_up(r, settings->host)) || !make_events(r)) {
        int error = errno;

        qm_redis_stop(r);
        errno = error;
        return NULL;
    }
    qm_redis_connect(r, qm_rows_now());
    return r;
}

void qm_redis_stop(struct qm_redis *r)
{
    if (!r)
        return;
    r->ending = true;
    if (r->context && r->stats.up && send_clear(r))
        redisAsyncHandleWrite(r->context);
    qm_redis_lose(r, 0, "it ends");
    if (r->wake)
        event_free(r->wake);
    if (r->tick)
        event_free(r->tick);
    if (r->wake_fd != -1)
        close(r->wake_fd);
    pthread_mutex_lock(&r->lock);
    qm_redis_drop_ops(r);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_destroy(&r->lock);
    free((void *)r->print);
    free(r->socket);
    free(r->address);
    free(r->user);
    free(r->password);
    free(r);
}
