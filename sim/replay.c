/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c - a trace against a live server, contexts included.
 *
 * The caller's thread deals events out into a queue for each client.  A slot's next
 * context may belong to another client, which does not matter, since each client keeps
 * the handles of its own contexts, and takes its events in order.
 *
 * The first error stops everything: clients then only empty their queues.
 */
#include "sim/replay.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "clients/libqmctx/qmctx.h"
#include "sim/deal.h"

enum { MINED_POLL_NS = 200000, MINED_WAIT_S = 60, PATTERN = 0x5a };

/* An event on its way to a client. */
struct item {
    char type;
    enum qm_kind kind;
    uint32_t slot, parent_slot;
    uint64_t us;
    union {
        struct {
            uint64_t offset, length;
        };
        struct {
            uint64_t klass;
            char *name; /* NULL: none; freed by the taker of the item */
        };
    };
};

struct client {
    struct qm_replay *replay;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* of the queue */
    pthread_cond_t changed;
    struct item queue[QM_REPLAY_AHEAD];
    unsigned first, count;
    bool last; /* nothing will be added */

    /* The thread's own until it has ended. */
    qmctx_id *ids; /* by slot */
    uint32_t room; /* of ids[] */
    char *buf;
    size_t buf_size;
    struct qm_replay_result result;
};

struct qm_replay {
    struct qm_replay_config config;
    struct qmctx *ctx;
    uint64_t size; /* of the device */
    struct client **clients;
    struct qm_deal deal;

    uint64_t writes_skipped;
    bool begun;          /* the first event was seen: the clock runs */
    uint64_t base_us;    /* its time in the trace */
    uint64_t started_us; /* and on the clock */

    atomic_bool failed;
    pthread_mutex_t error_lock;
    char error[400];
};

static uint64_t now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void fail(struct qm_replay *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Keeps the first error, and stops the replay. */
static void fail(struct qm_replay *r, const char *format, ...)
{
    va_list args;

    pthread_mutex_lock(&r->error_lock);
    if (!atomic_load(&r->failed)) {
        va_start(args, format);
        vsnprintf(r->error, sizeof r->error, format, args);
        va_end(args);
        atomic_store(&r->failed, true);
    }
    pthread_mutex_unlock(&r->error_lock);
}

/* Waits until the time at which item is due.  Returns how late it is. */
static uint64_t wait_until_due(struct qm_replay *r, const struct item *item)
{
    uint64_t after = item->us > r->base_us ? item->us - r->base_us : 0;
    uint64_t due = r->started_us + (uint64_t)((double)after / r->config.speed);
    uint64_t now = now_us();
    struct timespec ts = {.tv_sec = (time_t)(due / 1000000),
                          .tv_nsec = (long)(due % 1000000 * 1000)};

    if (now >= due)
        return now - due;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
    return 0;
}

/* Makes ids[slot] exist. */
static bool make_room(struct client *c, uint32_t slot)
{
    uint32_t room = c->room ? c->room : 64;
    qmctx_id *ids;

    if (slot < c->room)
        return true;
    while (room <= slot)
        room *= 2; /* the reader has this many contexts open, in more memory */
    ids = realloc(c->ids, room * sizeof *ids);
    if (!ids)
        return false;
    memset(ids + c->room, 0, (room - c->room) * sizeof *ids);
    c->ids = ids;
    c->room = room;
    return true;
}

static void begin(struct client *c, const struct item *item)
{
    struct qm_replay *r = c->replay;
    qmctx_id parent = item->parent_slot ? c->ids[item->parent_slot] : 0;

    if (!make_room(c, item->slot))
        fail(r, "out of memory");
    else if (qmctx_open_context(r->ctx, parent, (enum qmctx_kind)item->kind,
                                item->klass, item->name, &c->ids[item->slot]) == -1)
        fail(r, "a context cannot be begun: %s", qmctx_error());
    else
        c->result.contexts++;
}

/* The number of sequences that wait to be mined, or -1. */
static json_int_t sequences_queued(struct qm_replay *r)
{
    char *text = qmctx_stats(r->ctx);
    json_t *stats = text ? json_loads(text, 0, NULL) : NULL;
    json_t *queued = json_object_get(stats, "sequences_queued");
    json_int_t n = json_is_integer(queued) ? json_integer_value(queued) : -1;

    json_decref(stats);
    free(text);
    return n;
}

static void wait_for_mining(struct qm_replay *r)
{
    const struct timespec pause = {.tv_nsec = MINED_POLL_NS};
    uint64_t deadline = now_us() + MINED_WAIT_S * UINT64_C(1000000);
    json_int_t n;

    while ((n = sequences_queued(r)) > 0 && now_us() < deadline)
        nanosleep(&pause, NULL);
    if (n == -1)
        fail(r, "the server does not say how many sequences wait to be mined: %s",
             qmctx_error());
    else if (n > 0)
        fail(r, "the server has not mined what it was given for %d s", MINED_WAIT_S);
}

static void end(struct client *c, const struct item *item)
{
    struct qm_replay *r = c->replay;

    qmctx_close_context(r->ctx, c->ids[item->slot]);
    c->ids[item->slot] = 0;
    if (r->config.wait_mining)
        wait_for_mining(r);
}

/* late: since when it is due. */
static void request(struct client *c, const struct item *item, uint64_t late)
{
    struct qm_replay *r = c->replay;
    bool write = item->type == QM_TRACE_WRITE;
    qmctx_id id = item->slot ? c->ids[item->slot] : 0;
    uint64_t begun, took;
    int error;

    if (item->length > r->size || item->offset > r->size - item->length) {
        fail(r,
             "the trace's request of %llu bytes at %llu is beyond the device's end, "
             "%llu",
             (unsigned long long)item->length, (unsigned long long)item->offset,
             (unsigned long long)r->size);
        return;
    }
    if (item->length > c->buf_size) {
        char *buf = realloc(c->buf, item->length);

        if (!buf) {
            fail(r, "out of memory for a request of %llu bytes",
                 (unsigned long long)item->length);
            return;
        }
        c->buf = buf;
        c->buf_size = item->length;
    }
    if (write)
        memset(c->buf, PATTERN, item->length);
    begun = now_us();
    error = write ? qmctx_pwrite(r->ctx, id, c->buf, item->length, item->offset, false)
                  : qmctx_pread(r->ctx, id, c->buf, item->length, item->offset);
    took = now_us() - begun;
    if (error) {
        fail(r, "a %s of %llu bytes at %llu failed: %s", write ? "write" : "read",
             (unsigned long long)item->length, (unsigned long long)item->offset,
             qmctx_error());
        return;
    }
    qm_histogram_add(write ? &c->result.write_us : &c->result.read_us, took);
    if (!write && r->config.speed > 0)
        qm_histogram_add(&c->result.read_due_us, late + took);
    *(write ? &c->result.writes : &c->result.reads) += 1;
    *(write ? &c->result.bytes_written : &c->result.bytes_read) += item->length;
}

static void handle(struct client *c, const struct item *item)
{
    struct qm_replay *r = c->replay;
    uint64_t late = 0;

    if (r->config.speed > 0 && item->type != QM_TRACE_BEGIN) {
        late = wait_until_due(r, item);
        if (late > c->result.max_late_us)
            c->result.max_late_us = late;
    }
    switch (item->type) {
    case QM_TRACE_BEGIN:
        begin(c, item);
        break;
    case QM_TRACE_END:
        end(c, item);
        break;
    default:
        request(c, item, late);
    }
}

static void *client_thread(void *opaque)
{
    struct client *c = opaque;
    struct item item;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->count == 0 && !c->last)
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->count == 0)
            break;
        item = c->queue[c->first];
        c->first = (c->first + 1) % QM_REPLAY_AHEAD;
        if (c->count-- == QM_REPLAY_AHEAD)
            pthread_cond_signal(&c->changed);
        pthread_mutex_unlock(&c->lock);
        if (!atomic_load(&c->replay->failed))
            handle(c, &item);
        if (item.type == QM_TRACE_BEGIN)
            free(item.name);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void enqueue(struct client *c, const struct item *item)
{
    pthread_mutex_lock(&c->lock);
    while (c->count == QM_REPLAY_AHEAD)
        pthread_cond_wait(&c->changed, &c->lock);
    c->queue[(c->first + c->count) % QM_REPLAY_AHEAD] = *item;
    if (c->count++ == 0)
        pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* A class's number: a recorded one is 16 digits of one; any other name is hashed. */
static uint64_t class_number(const char *name, bool *is_number)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    char *rest;

    *is_number = strspn(name, "0123456789abcdef") == 16 && name[16] == '\0';
    if (*is_number)
        return strtoull(name, &rest, 16);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

int qm_replay_event(struct qm_replay *r, const struct qm_event *event)
{
    struct item item = {.type = event->type, .slot = event->slot, .us = event->us};
    bool is_number;
    unsigned client;

    if (atomic_load(&r->failed))
        return -1;
    if (!r->begun) {
        r->begun = true;
        r->base_us = event->us;
        r->started_us = now_us();
    }
    if (event->type == QM_TRACE_WRITE && !r->config.writes) {
        r->writes_skipped++;
        return 0;
    }
    if (qm_deal(&r->deal, event, &client) != 0) {
        fail(r, "out of memory");
        return -1;
    }
    if (event->type == QM_TRACE_BEGIN) {
        item.kind = event->kind;
        item.parent_slot = event->parent_slot;
        item.klass = class_number(event->klass, &is_number);
        item.name = is_number ? NULL : strdup(event->klass);
        if (!is_number && !item.name) {
            fail(r, "out of memory");
            return -1;
        }
    } else if (event->type != QM_TRACE_END) {
        item.offset = event->offset;
        item.length = event->length;
    }
    enqueue(r->clients[client], &item);
    return 0;
}

/* Waits for all clients to end. */
static void join(struct qm_replay *r)
{
    for (unsigned i = 0; i < r->config.clients && r->clients[i]; i++) {
        struct client *c = r->clients[i];

        if (!c->started)
            continue;
        pthread_mutex_lock(&c->lock);
        c->last = true;
        pthread_cond_signal(&c->changed);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        c->started = false;
    }
}

int qm_replay_finish(struct qm_replay *r, struct qm_replay_result *result)
{
    join(r);
    memset(result, 0, sizeof *result);
    result->writes_skipped = r->writes_skipped;
    if (r->begun)
        result->elapsed_us = now_us() - r->started_us;
    for (unsigned i = 0; i < r->config.clients; i++) {
        const struct qm_replay_result *one = &r->clients[i]->result;

        result->reads += one->reads;
        result->bytes_read += one->bytes_read;
        result->writes += one->writes;
        result->bytes_written += one->bytes_written;
        result->contexts += one->contexts;
        if (one->max_late_us > result->max_late_us)
            result->max_late_us = one->max_late_us;
        qm_histogram_merge(&result->read_us, &one->read_us);
        qm_histogram_merge(&result->write_us, &one->write_us);
        qm_histogram_merge(&result->read_due_us, &one->read_due_us);
    }
    if (result->writes > 0 && !atomic_load(&r->failed) && qmctx_flush(r->ctx) == -1)
        fail(r, "what was written cannot be flushed: %s", qmctx_error());
    return atomic_load(&r->failed) ? -1 : 0;
}

const char *qm_replay_error(const struct qm_replay *r)
{
    return r->error;
}

char *qm_replay_stats(struct qm_replay *r)
{
    char *text = qmctx_stats(r->ctx);

    if (!text)
        fail(r, "the server's statistics cannot be read: %s", qmctx_error());
    return text;
}

static int start_client(struct qm_replay *r, unsigned i)
{
    struct client *c = calloc(1, sizeof *c);
    int error;

    if (!c)
        return ENOMEM;
    r->clients[i] = c;
    c->replay = r;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    error = pthread_create(&c->thread, NULL, client_thread, c);
    c->started = error == 0;
    return error;
}

struct qm_replay *qm_replay_new(const struct qm_replay_config *config, char *err,
                                size_t len)
{
    struct qm_replay *r = calloc(1, sizeof *r);
    int error = 0;

    if (!r) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    r->config = *config;
    qm_deal_init(&r->deal, config->clients);
    pthread_mutex_init(&r->error_lock, NULL);
    r->clients = calloc(config->clients, sizeof(struct client *));
    if (!r->clients) {
        snprintf(err, len, "out of memory");
        qm_replay_free(r);
        return NULL;
    }
    if (qmctx_connect(config->uri, config->connections, &r->ctx) == -1) {
        snprintf(err, len, "%s", qmctx_error());
        qm_replay_free(r);
        return NULL;
    }
    r->size = qmctx_size(r->ctx);
    if (config->writes && qmctx_is_read_only(r->ctx)) {
        snprintf(err, len, "the device is read-only: leave out --writes");
        qm_replay_free(r);
        return NULL;
    }
    for (unsigned i = 0; i < config->clients && !error; i++)
        error = start_client(r, i);
    if (!error)
        return r;
    snprintf(err, len, "%u clients cannot be started: %s", config->clients,
             strerror(error));
    qm_replay_free(r);
    return NULL;
}

void qm_replay_free(struct qm_replay *r)
{
    if (!r)
        return;
    if (r->clients)
        join(r);
    for (unsigned i = 0; r->clients && i < r->config.clients && r->clients[i]; i++) {
        struct client *c = r->clients[i];

        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
        free(c->ids);
        free(c->buf);
        free(c);
    }
    free(r->clients);
    if (r->ctx)
        qmctx_close(r->ctx);
    qm_deal_clear(&r->deal);
    pthread_mutex_destroy(&r->error_lock);
    free(r);
}
