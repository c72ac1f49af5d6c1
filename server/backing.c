/* SPDX-License-Identifier: BSD-3-Clause */
/* backing.c - connections, one lock, and the keeper. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "server/backing.h"
#include "server/stats.h"

/* A layer that takes no more connections, which it may log each time, is asked ever
 * less often: at last once in REFUSED_MOST times most_delay. */
#define REFUSED_MOST 32

struct connection {
    void *connection;  /* NULL while the keeper has none */
    unsigned users;    /* reads in flight */
    unsigned failures; /* failed reads since the last that did not */
    uint64_t losses;   /* of the module, when it was opened */
    bool lost;         /* no read begins; the keeper's once users is 0 */
};

struct qms_backing {
    struct qms_backing_config config;
    pthread_t keeper;
    pthread_mutex_t lock; /* a leaf, of all that follows */
    pthread_cond_t wake;  /* the keeper */
    bool stop;
    bool away;        /* `lost` was called, and `back` not yet */
    bool unreachable; /* the last attempt to open failed */
    uint64_t losses, reopens;
    uint64_t renewals;
    uint64_t delay;    /* ns: the last one, 0: none yet */
    uint64_t next_try; /* ns: no attempt before */
    uint64_t returned; /* ns: when `back` was called */
    unsigned opened;   /* connections, from the first on */
    unsigned wanted;   /* of them */
    uint64_t next_new; /* ns: none is opened before that was not there before */
    uint64_t refused;  /* ns: the last wait for that, since one was opened; or 0 */
    /* What a new connection is tried with: of the last read that succeeded, as much as
     * the buffer holds, so that it is never more than the device has there. */
    uint64_t readable; /* at first 0 */
    uint32_t readable_count;
    void *trial; /* the keeper's buffer */
    struct connection connections[];
};

static uint64_t longer(const struct qms_backing *b)
{
    uint64_t delay = b->delay == 0 ? b->config.first_delay : 2 * b->delay;

    return delay < b->config.most_delay ? delay : b->config.most_delay;
}

/* A connection is lost; the lock is held. */
static void lose(struct qms_backing *b, struct connection *c, int error)
{
    uint64_t now = qms_now();

    c->lost = true;
    if (b->away || c->losses < b->losses)
        return;
    b->away = true;
    b->delay =
        b->losses > 0 && now - b->returned < b->config.most_delay ? longer(b) : 0;
    b->next_try = now + b->delay;
    b->losses++;
    b->config.lost(b->config.opaque, error);
}

int qms_backing_read(struct qms_backing *b, unsigned worker, void *buf, uint32_t count,
                     uint64_t offset)
{
    struct connection *c;
    int error;

    pthread_mutex_lock(&b->lock);
    c = &b->connections[worker % b->opened];
    if (c->lost) {
        pthread_mutex_unlock(&b->lock);
        return ENOTCONN;
    }
    c->users++;
    pthread_mutex_unlock(&b->lock);
    error = b->config.read(b->config.opaque, c->connection, buf, count, offset);
    pthread_mutex_lock(&b->lock);
    c->users--;
    c->failures = error == 0 ? 0 : c->failures + 1;
    if (error == 0) {
        b->readable = offset;
        b->readable_count = count < b->config.trial ? count : b->config.trial;
    }
    if (!c->lost && (c->failures >= QMS_BACKING_FAILURES ||
                     (c->failures > 0 && c->losses < b->losses)))
        lose(b, c, error);
    if (c->lost && c->users == 0)
        pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    return error;
}

/* The lock is held. */
static struct connection *next_lost(struct qms_backing *b)
{
    for (unsigned i = 0; i < b->opened; i++)
        if (b->connections[i].lost && b->connections[i].users == 0)
            return &b->connections[i];
    return NULL;
}

/* Waits until it is time for the next attempt, or something has changed; the lock is
 * held. */
static void wait_until(struct qms_backing *b, uint64_t ns)
{
    struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    pthread_cond_timedwait(&b->wake, &b->lock, &at);
}

static void *open_and_try(struct qms_backing *b, uint64_t offset, uint32_t count)
{
    void *opaque = b->config.opaque, *connection = b->config.open(opaque);

    if (connection &&
        b->config.read(opaque, connection, b->trial, count, offset) != 0) {
        b->config.close(opaque, connection);
        connection = NULL;
    }
    return connection;
}

/* Replaces a lost connection, if that can be done; the lock is held before and after.
 * Nobody else touches one that is lost and has no users. */
static void replace(struct qms_backing *b, struct connection *c)
{
    void *connection = c->connection;
    uint64_t readable = b->readable, renewals = b->renewals;
    uint32_t count = b->readable_count;

    c->connection = NULL;
    pthread_mutex_unlock(&b->lock);
    if (connection)
        b->config.close(b->config.opaque, connection);
    connection = open_and_try(b, readable, count);
    pthread_mutex_lock(&b->lock);
    c->connection = connection;
    if (connection && renewals != b->renewals)
        return; /* what was opened is too old already: once more */
    b->unreachable = !connection;
    if (!connection) {
        b->delay = longer(b);
        b->next_try = qms_now() + b->delay;
        return;
    }
    c->lost = false;
    c->failures = 0;
    c->losses = b->losses;
    b->reopens++;
    if (b->away && !b->stop) {
        b->away = false;
        b->returned = qms_now();
        b->config.back(b->config.opaque);
    }
}

/* Opens one more; the lock is held before and after.  Nobody looks at what is not
 * counted in `opened`. */
static void add(struct qms_backing *b)
{
    uint64_t readable = b->readable, renewals = b->renewals;
    uint32_t count = b->readable_count;
    struct connection *c = &b->connections[b->opened];
    void *connection;

    pthread_mutex_unlock(&b->lock);
    connection = open_and_try(b, readable, count);
    pthread_mutex_lock(&b->lock);
    if (!connection) {
        b->refused = b->refused == 0 ? b->config.most_delay : 2 * b->refused;
        if (b->refused > REFUSED_MOST * b->config.most_delay)
            b->refused = REFUSED_MOST * b->config.most_delay;
        b->next_new = qms_now() + b->refused;
        return;
    }
    *c = (struct connection){
        .connection = connection, .losses = b->losses, .lost = renewals != b->renewals};
    b->opened++;
    b->refused = 0;
}

unsigned qms_backing_want(struct qms_backing *b, unsigned connections)
{
    unsigned opened;

    pthread_mutex_lock(&b->lock);
    if (connections > b->config.connections)
        connections = b->config.connections;
    if (connections > b->wanted)
        b->wanted = connections;
    opened = b->opened;
    if (opened < b->wanted && qms_now() >= b->next_new)
        pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    return opened;
}

/* No read is in flight. */
static void close_all(struct qms_backing *b)
{
    for (unsigned i = 0; i < b->opened; i++)
        if (b->connections[i].connection)
            b->config.close(b->config.opaque, b->connections[i].connection);
}

static void *keeper_thread(void *opaque)
{
    struct qms_backing *b = opaque;
    struct connection *c;
    bool more;

    pthread_mutex_lock(&b->lock);
    while (!b->stop) {
        c = next_lost(b);
        more = b->opened < b->wanted && !b->away;
        if (c && qms_now() >= b->next_try)
            replace(b, c);
        else if (c)
            wait_until(b, b->next_try);
        else if (more && qms_now() >= b->next_new)
            add(b);
        else if (more)
            wait_until(b, b->next_new);
        else
            pthread_cond_wait(&b->wake, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    close_all(b); /* which may hang, so it is nobody else's to do */
    return NULL;
}

static void undo(struct qms_backing *b)
{
    free(b->trial);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

struct qms_backing *qms_backing_start(const struct qms_backing_config *config,
                                      void *first, int *error)
{
    struct qms_backing *b =
        calloc(1, sizeof *b + config->connections * sizeof b->connections[0]);
    pthread_condattr_t monotonic;

    *error = 0;
    if (!b || !(b->trial = malloc(config->trial))) {
        *error = ENOMEM;
        free(b);
        if (first)
            config->close(config->opaque, first);
        return NULL;
    }
    b->config = *config;
    b->readable_count = config->trial;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    b->connections[0].connection = first;
    b->opened = b->wanted = config->first > 0 ? config->first : config->connections;
    for (unsigned i = 0; i < b->opened; i++) {
        struct connection *c = &b->connections[i];

        if (!c->connection && !(c->connection = config->open(config->opaque))) {
            close_all(b);
            undo(b);
            return NULL;
        }
    }
    *error = pthread_create(&b->keeper, NULL, keeper_thread, b);
    if (*error != 0) {
        close_all(b);
        undo(b);
        return NULL;
    }
    return b;
}

bool qms_backing_stop(struct qms_backing *b)
{
    struct timespec until;
    uint64_t seconds = b->config.patience / 1000000000;

    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)(b->config.patience % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (pthread_timedjoin_np(b->keeper, NULL, &until) != 0) {
        pthread_detach(b->keeper);
        return false;
    }
    undo(b);
    return true;
}

void qms_backing_hint(struct qms_backing *b)
{
    pthread_mutex_lock(&b->lock);
    if (b->unreachable) {
        b->next_try = 0;
        pthread_cond_signal(&b->wake);
    }
    pthread_mutex_unlock(&b->lock);
}

void qms_backing_renew(struct qms_backing *b)
{
    pthread_mutex_lock(&b->lock);
    b->renewals++;
    for (unsigned i = 0; i < b->opened; i++)
        b->connections[i].lost = true;
    b->next_try = 0;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
}

void qms_backing_stats(struct qms_backing *b, struct qms_backing_stats *stats)
{
    *stats = (struct qms_backing_stats){.open = 0};
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < b->opened; i++)
        stats->open += !b->connections[i].lost;
    stats->losses = b->losses;
    stats->reopens = b->reopens;
    pthread_mutex_unlock(&b->lock);
}
