/* SPDX-License-Identifier: BSD-3-Clause */
/* ready.c - checks what can be checked while a person still watches, and opens the
 * files: before nbdkit forks, changes user and directory.
 *
 * In the background form nobody reads what is said later, and nbdkit's exit status is 0
 * by then.  What needs threads is made after the fork (server.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mining/core/rules-dir.h"
#include "server/server.h"
#include "server/volume-name.h"

/* Threads that the server starts at most. */
static unsigned threads_of(const struct qms_config *c)
{
    unsigned n = (c->record != NULL) + (c->stats != NULL) + (c->control != NULL) +
                 (c->stats_http != NULL) + qms_tier_threads(c);

    /* Of prefetch threads that are made as needed, the first. */
    return qm_params_prefetch(&c->params)
               ? n + 1 + (c->prefetch_threads ? (unsigned)c->prefetch_threads : 1)
               : n;
}

static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Finds out whether there can be n threads at a time. */
static int try_threads(unsigned n)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc(n + 1, sizeof *threads);
    int error = threads ? 0 : ENOMEM;
    unsigned made = 0;

    pthread_mutex_lock(&lock);
    while (error == 0 && made < n) {
        error = pthread_create(&threads[made], NULL, wait_for_lock, &lock);
        made += error == 0;
    }
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (error == 0)
        return 0;
    nbdkit_error("cannot start %u threads: %s; give fewer prefetch-threads, or let the "
                 "server have more (ulimit -u)",
                 n, strerror(error));
    return -1;
}

static int try_rules(const struct qms_config *c)
{
    char err[512];

    if (!c->rules || !qms_config_heeds(c, "rules") ||
        qm_rules_dir_try(c->rules, err, sizeof err) == 0)
        return 0;
    nbdkit_error("rules: %s", err);
    return -1;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int open_recording(struct qms_server *s)
{
    const struct qms_config *c = &s->config;
    struct stat st;
    char err[512];

    /* A volume may look like a compressed trace. */
    if (stat(c->record, &st) == 0 && qms_volume_has(&st, is_same_file)) {
        nbdkit_error("record=%s: the server serves this file; give another one",
                     c->record);
        return -1;
    }
    s->recorder = qms_record_open(c->record, c->block_size, err, sizeof err);
    if (s->recorder)
        return 0;
    nbdkit_error("record=%s: %s", c->record, err);
    return -1;
}

#ifdef QM_HAVE_HTTP
static int open_http(struct qms_server *s)
{
    char err[512];

    if (!s->config.stats_http)
        return 0;
    s->http = qms_http_open(s->config.stats_http, err, sizeof err);
    if (s->http)
        return 0;
    nbdkit_error("stats-http=%s: %s", s->config.stats_http, err);
    return -1;
}
#else
static int open_http(struct qms_server *s)
{
    return 0;
}
#endif

static int open_files(struct qms_server *s)
{
    const struct qms_config *c = &s->config;
    char err[512];

    if (c->stats) {
        s->socket = qms_stats_socket_open(c->stats, err, sizeof err);
        if (!s->socket) {
            nbdkit_error("stats=%s: %s", c->stats, err);
            return -1;
        }
    }
    if (open_http(s) == -1)
        return -1;
    if (c->control) {
        s->control = qms_control_socket_open(c->control, err, sizeof err);
        if (!s->control) {
            nbdkit_error("control=%s: %s", c->control, err);
            return -1;
        }
    }
    return c->record ? open_recording(s) : 0;
}

/* nbdkit exits without calling us if it cannot go on, because its own socket is in use,
 * say.  It exits with 0 where it has forked and the child goes on. */
static void remove_files(int status, void *opaque)
{
    struct qms_server *s = opaque;

    if (status != 0 && !s->begun && s->ready_in == getpid())
        qms_server_stop(s);
}

int qms_server_ready(struct qms_server *s, int thread_model)
{
    struct qms_config *c = &s->config;

    s->thread_model = thread_model;
    s->ready_in = getpid();
    if (thread_model < NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS &&
        qm_params_prefetch(&c->params)) {
        nbdkit_error("warning: this plugin serves one request at a time, so nothing is "
                     "prefetched: policy=none");
        c->params.policy = "none";
        c->policy = qm_prefetcher_find("none");
        c->prefetch_blocks = c->prefetch_most = 0;
    }
    if (try_rules(c) == -1 || qms_tier_try(c) == -1 ||
        try_threads(threads_of(c)) == -1 || qms_server_try_memory(s) == -1)
        return -1;
    /* This library is never unloaded (CMakeLists.txt), so the function stays. */
    if ((c->stats || c->stats_http || c->control || c->record) &&
        on_exit(remove_files, s) != 0) {
        nbdkit_error("on_exit: out of memory");
        return -1;
    }
    if (open_files(s) == -1) {
        qms_server_stop(s);
        return -1;
    }
    return 0;
}
