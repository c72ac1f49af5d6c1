/* SPDX-License-Identifier: BSD-3-Clause */
/* follow.c - starting, asking and ending a follower; see follow.h. */
#include "rowcache/follow/follow.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rowcache/follow/internal.h"

uint64_t qm_monotonic(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* By the clock of pthread_cond_timedwait(), which has no CLOCK_BOOTTIME. */
static struct timespec after(unsigned ms)
{
    struct timespec at;
    uint64_t ns;

    clock_gettime(CLOCK_MONOTONIC, &at);
    ns = (uint64_t)at.tv_nsec + ms * UINT64_C(1000000);
    return (struct timespec){at.tv_sec + (time_t)(ns / 1000000000),
                             (long)(ns % 1000000000)};
}

void qm_pause(struct qm_follow *follow, unsigned ms)
{
    struct timespec until = after(ms);

    if (!follow->stop)
        pthread_cond_timedwait(&follow->changed, &follow->lock, &until);
}

#define SAY_AGAIN (UINT64_C(600) * 1000000000) /* ns between lines of one text */

bool qm_is_news(struct qm_saying *last, const char *text)
{
    uint64_t now = qm_monotonic();

    if (last->at != 0 && now - last->at < SAY_AGAIN && strcmp(last->text, text) == 0)
        return false;
    snprintf(last->text, sizeof last->text, "%s", text);
    last->at = now;
    return true;
}

void qm_say(struct qm_follow *follow, const char *form, ...)
{
    char text[2 * QM_WHY];
    va_list args;

    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    pthread_mutex_lock(&follow->lock);
    follow->calls.message(follow->calls.opaque, text);
    pthread_mutex_unlock(&follow->lock);
}

static bool copy(const char **text)
{
    if (*text)
        *text = strdup(*text);
    return *text != NULL;
}

static bool copy_settings(struct qm_follow_settings *to,
                          const struct qm_follow_settings *from)
{
    struct qm_follow_server *servers;
    bool good = true;

    *to = *from;
    servers = calloc(from->servers_count, sizeof *servers);
    good &= servers != NULL;
    for (unsigned i = 0; servers && i < from->servers_count; i++) {
        servers[i] = from->servers[i];
        good &= copy(&servers[i].host) || !from->servers[i].host;
        good &= copy(&servers[i].unix_socket) || !from->servers[i].unix_socket;
    }
    to->servers = servers;
    good &= copy(&to->user) || !from->user;
    good &= copy(&to->password) || !from->password;
    good &= copy(&to->tls.ca) || !from->tls.ca;
    good &= copy(&to->tls.cert) || !from->tls.cert;
    good &= copy(&to->tls.key) || !from->tls.key;
    return good;
}

static void free_settings(struct qm_follow_settings *settings)
{
    for (unsigned i = 0; settings->servers && i < settings->servers_count; i++) {
        free((char *)settings->servers[i].host);
        free((char *)settings->servers[i].unix_socket);
    }
    free((void *)settings->servers);
    free((char *)settings->user);
    free((char *)settings->password);
    free((char *)settings->tls.ca);
    free((char *)settings->tls.cert);
    free((char *)settings->tls.key);
}

static void destroy(struct qm_follow *follow)
{
    free_settings(&follow->settings);
    qm_catalogue_free(follow->tables);
    qm_binlog_free(follow->binlog);
    pthread_mutex_destroy(&follow->lock);
    pthread_cond_destroy(&follow->changed);
    free(follow);
}

static void end_threads(struct qm_follow *follow, bool probe)
{
    pthread_mutex_lock(&follow->lock);
    follow->stop = true;
    qm_connection_cut(&follow->dump);
    qm_connection_cut(&follow->catalogue);
    qm_connection_cut(&follow->asker);
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->lock);
    pthread_join(follow->follower, NULL);
    if (probe)
        pthread_join(follow->probe, NULL);
}

static const struct qm_binlog_calls parser_calls;

struct qm_follow *qm_follow_start(const struct qm_follow_settings *settings,
                                  const struct qm_follow_callbacks *callbacks)
{
    struct qm_follow *follow;
    pthread_condattr_t monotonic;
    struct qm_binlog_calls calls = parser_calls;
    int error;

    if (settings->servers_count == 0) {
        errno = EINVAL;
        return NULL;
    }
    follow = calloc(1, sizeof *follow);
    if (!follow)
        return NULL;
    pthread_mutex_init(&follow->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&follow->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    follow->calls = *callbacks;
    follow->dump = follow->catalogue = follow->asker =
        (struct qm_connection){.lock = &follow->lock, .socket = -1};
    calls.opaque = follow;
    follow->tables = qm_catalogue_new();
    follow->binlog = qm_binlog_new(&calls);
    if (!copy_settings(&follow->settings, settings) || !follow->tables ||
        !follow->binlog) {
        destroy(follow);
        errno = ENOMEM;
        return NULL;
    }
    if (follow->settings.server_id == 0)
        follow->settings.server_id =
            0x80000000u | (uint32_t)((qm_monotonic() >> 10) ^ (uintptr_t)follow);
    if (follow->settings.timeout_ms == 0)
        follow->settings.timeout_ms = 3000;
    if (follow->settings.max_lag_ms == 0)
        follow->settings.max_lag_ms = 1000;
    error = pthread_create(&follow->follower, NULL, qm_follow_thread, follow);
    if (!error) {
        error = pthread_create(&follow->probe, NULL, qm_probe_thread, follow);
        if (error)
            end_threads(follow, false);
    }
    if (error) {
        destroy(follow);
        errno = error;
        return NULL;
    }
    return follow;
}

void qm_follow_stop(struct qm_follow *follow)
{
    if (!follow)
        return;
    end_threads(follow, true);
    destroy(follow);
}

void qm_follow_set_max_lag(struct qm_follow *follow, unsigned max_lag_ms)
{
    pthread_mutex_lock(&follow->lock);
    follow->settings.max_lag_ms = max_lag_ms;
    pthread_cond_broadcast(&follow->changed); /* the probe may wait for long */
    pthread_mutex_unlock(&follow->lock);
}

void qm_follow_info(struct qm_follow *follow, struct qm_follow_info *info)
{
    pthread_mutex_lock(&follow->lock);
    *info = follow->info;
    pthread_mutex_unlock(&follow->lock);
}

bool qm_follow_wait(struct qm_follow *follow, const struct qm_gtid_list *position,
                    unsigned timeout_ms)
{
    struct timespec until = after(timeout_ms);
    bool reached;
    int r = 0;

    pthread_mutex_lock(&follow->lock);
    while (!(reached = qm_gtid_covers(&follow->info.applied, position)) && r == 0 &&
           !follow->stop)
        r = pthread_cond_timedwait(&follow->changed, &follow->lock, &until);
    pthread_mutex_unlock(&follow->lock);
    return reached;
}

/* What the parser calls, on the follower's thread. */

static const struct qm_table *table(void *opaque, const char *schema, const char *name)
{
    struct qm_follow *follow = opaque;
    const struct qm_table *found;
    char why[QM_WHY];

    if (qm_catalogue_table(follow->tables, &follow->catalogue, follow->transaction,
                           schema, name, &found, why))
        return found;
    snprintf(follow->broken, sizeof follow->broken, "table %.40s.%.40s: %.150s", schema,
             name, why);
    return NULL;
}

static void changed(void *opaque, const char *schema, const char *name, const char *key,
                    size_t length)
{
    struct qm_follow *follow = opaque;

    pthread_mutex_lock(&follow->lock);
    follow->info.rows++;
    follow->calls.changed(follow->calls.opaque, follow->number, schema, name, key,
                          length);
    pthread_mutex_unlock(&follow->lock);
}

static void all_changed(void *opaque, const char *schema, const char *name)
{
    struct qm_follow *follow = opaque;

    pthread_mutex_lock(&follow->lock);
    follow->info.tables++;
    follow->calls.all_changed(follow->calls.opaque, follow->number, schema, name);
    pthread_mutex_unlock(&follow->lock);
}

static void defined(void *opaque, const char *schema, const char *name)
{
    struct qm_follow *follow = opaque;

    qm_catalogue_defined(follow->tables, schema, name);
}

static void begin(void *opaque, struct qm_gtid gtid)
{
    struct qm_follow *follow = opaque;

    follow->transaction = gtid;
    pthread_mutex_lock(&follow->lock);
    follow->number++;
    pthread_mutex_unlock(&follow->lock);
}

static void end(void *opaque, struct qm_gtid gtid, const char *file, uint64_t position)
{
    struct qm_follow *follow = opaque;

    /* What could not be told is read again on a new connection. */
    if (follow->broken[0])
        return;
    pthread_mutex_lock(&follow->lock);
    follow->info.transactions++;
    qm_pending_add(follow, follow->number, qm_place_of(file, position));
    if (qm_gtid_set(&follow->info.applied, gtid))
        follow->calls.applied(follow->calls.opaque, follow->number,
                              &follow->info.applied);
    else
        snprintf(follow->broken, sizeof follow->broken, "more than %d domains",
                 QM_GTID_DOMAINS);
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->lock);
}

/* The log was reset, and is longer by now than where we are in the old one: a file of
 * that number is another one, or one that was made later has a lower number. */
static void file(void *opaque, const char *name, uint32_t made)
{
    struct qm_follow *follow = opaque;
    uint64_t number = qm_place_of(name, 0).file;
    struct qm_log_file *last = &follow->file;

    pthread_mutex_lock(&follow->lock);
    if (number == UINT64_MAX) {
        /* No server names files so. */
    } else if (last->server != follow->life.server || number > last->number) {
        *last = (struct qm_log_file){follow->life.server, number, made};
    } else if (number == last->number ? made != last->made : made > last->made) {
        follow->anew = "the server's log was reset";
        follow->anew_of = follow->life.server;
        snprintf(follow->broken, sizeof follow->broken, "%s", follow->anew);
    }
    pthread_mutex_unlock(&follow->lock);
}

static void idle(void *opaque)
{
}

static const struct qm_binlog_calls parser_calls = {
    .table = table,
    .changed = changed,
    .all_changed = all_changed,
    .defined = defined,
    .begin = begin,
    .end = end,
    .file = file,
    .idle = idle,
};
