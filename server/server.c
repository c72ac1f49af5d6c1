/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - makes the server's parts, starts its threads, and undoes all that.
 *
 * qms_server_ready  what is checked and opened before (ready.c)
 * qms_server_start  everything else, threads included
 * qms_server_stop   undoes both
 *
 * Prefetch threads read over connections to the layer below that are the server's own
 * (backing.h).  Where nbdkit serializes what a connection asks for, each of them is one
 * thread's, so that it is serialized for these, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/backend.h"
#include "server/reading.h"
#include "server/server.h"

#define HELD_MAX (UINT64_C(8) << 20) /* blocks that open contexts hold: 64 MiB */
#define STOP_NS  20000000            /* how often a thread asks whether nbdkit stops */

static int read_for_prefetch(void *opaque, unsigned worker, void *buf, uint32_t count,
                             uint64_t offset)
{
    struct qms_server *s = opaque;

    return qms_backing_read(s->backing, worker, buf, count, offset);
}

/* Connections are opened as they are needed; where one reads one thing at a time, there
 * cannot be more prefetches in flight. */
static unsigned lanes(void *opaque, unsigned n)
{
    struct qms_server *s = opaque;

    if (s->thread_model < NBDKIT_THREAD_MODEL_PARALLEL)
        return qms_backing_want(s->backing, n);
    (void)qms_backing_want(s->backing, (n + QMS_BACKEND_EACH - 1) / QMS_BACKEND_EACH);
    return n;
}

static void wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct qms_server *s = opaque;

    unsigned stripe;

    qms_class_add(qms_class_at(s->classes, issuer), QMS_CLASS_WASTED, 1);
    /* The cache's lock is held, so this must not wait for a change of the engine;
     * during one, the prefetcher misses this event. */
    if (!qms_rwlock_try_read(&s->contexts.lock, &stripe))
        return;
    qm_engine_wasted(&s->engine, block, issuer);
    qms_rwlock_read_unlock(&s->contexts.lock, stripe);
}

struct qm_mining_config qms_mining_config(const struct qms_server *s,
                                          const struct qms_config *c, bool with_rules,
                                          char device[64])
{
    struct qm_mining_config config = c->params.mining;

    config.rules_dir = with_rules ? c->rules : NULL;
    snprintf(device, 64, "%" PRIu64 " bytes", s->size);
    config.rules_for = c->rules_for ? c->rules_for : device;
    return config;
}

void qms_server_tune(struct qms_server *s, const struct qms_config *c)
{
    struct qm_engine *e = &s->engine;

    e->prefetches = qm_params_prefetch(&c->params) && c->prefetching;
    e->on_prefetch_hit = c->params.on_prefetch_hit;
    e->oblivious = c->params.level == QM_LEVEL_NONE;
    e->throttle = c->params.throttle ? s->throttle : NULL;
    e->load = c->params.throttle ? &s->load : NULL;
    e->bound = c->params.throttle ? &s->bound : NULL;
    qm_rate_set(&s->rate, &c->params.budget);
    e->admission = c->params.admission ? &s->admission : NULL;
    /* Without it, too, it says how many prefetches may be in flight. */
    atomic_store(&s->measured, qm_params_prefetch(&c->params) ? &s->admission : NULL);
    if (s->prefetch)
        qms_prefetch_measure(s->prefetch, e->load, atomic_load(&s->measured));
}

static int make_prefetcher(struct qms_server *s, bool with_rules)
{
    char device[64], err[512] = "";
    struct qm_mining_config config =
        qms_mining_config(s, &s->config, with_rules, device);

    qm_engine_init(&s->engine, &s->config.params);
    s->engine.device_blocks =
        s->size / s->config.block_size + (s->size % s->config.block_size > 0);
    s->engine.latency = &s->latency;
    s->engine.rate = &s->rate;
    s->engine.refused = qms_reading_refused;
    s->engine.opaque = s;
    qms_tier_place(s);
    qms_server_tune(s, &s->config);
    if (qm_engine_make_prefetcher(&s->engine, s->config.policy, &config, err,
                                  sizeof err) != 0) {
        nbdkit_error("policy=%s: %s", s->config.policy->name, err);
        return -1;
    }
    if (err[0] != '\0')
        nbdkit_error("warning: %s", err);
    return 0;
}

static int make_cache(struct qms_server *s)
{
    struct qm_cache_config config = qm_params_cache(
        &s->config.params, s->config.policy, s->config.block_size, s->config.blocks);
    int error;

    config.shards = s->config.shards;
    config.data = true;
    config.wasted = wasted;
    config.opaque = s;
    qms_tier_below(s, &config);
    error = qm_cache_new(&config, &s->cache);
    if (error != 0) {
        s->cache = NULL;
        nbdkit_error("cannot make a cache of %" PRIu64 " blocks of %" PRIu64
                     " bytes: %s%s",
                     config.blocks, config.block_size, strerror(error),
                     error == ENOMEM ? "; give less cache-size, or let the server have "
                                       "more memory (ulimit -v, vm.overcommit_memory)"
                                     : "");
        return -1;
    }
    s->engine.cache = s->cache;
    /* For later prefetchers; the first one is of the policy that the shadow follows
     * from. */
    s->engine.blind = !config.shadow;
    return 0;
}

/* The first connection is next, which this function takes. */
static int start_prefetching(struct qms_server *s, nbdkit_next *next)
{
    struct qms_prefetch_config config = {
        .cache = s->cache,
        .tiers = &s->tiers,
        .stats = s->stats,
        .load = s->engine.load,
        .latency = &s->latency,
        .admission = atomic_load(&s->measured),
        .rate = &s->rate,
        .size = s->size,
        .block_size = s->config.block_size,
        .max_bytes = s->max_bytes,
        .threads = QM_INFLIGHT_MOST,
        .follows = s->config.prefetch_threads == QM_PREFETCH_AUTO,
        .lanes = lanes,
        .queue = s->config.prefetch_queue,
        .priority = s->config.prefetch_priority,
        .read = read_for_prefetch,
        .opaque = s,
    };
    int error;

    if (!config.follows)
        config.threads = (unsigned)s->config.prefetch_threads;
    if (s->thread_model < NBDKIT_THREAD_MODEL_PARALLEL &&
        config.threads > qms_backend_connections(s))
        config.threads = qms_backend_connections(s);
    s->backing = qms_backend_start(s, next, &error);
    if (!s->backing) {
        if (error != 0)
            nbdkit_error("cannot start prefetching: %s", strerror(error));
        return -1;
    }
    s->prefetch = qms_prefetch_start(&config);
    if (!s->prefetch) {
        nbdkit_error("cannot start %u prefetch threads: out of memory or threads",
                     config.follows ? 1 : config.threads);
        return -1;
    }
    qms_memory_bound(s);
    return 0;
}

/* The rules were saved, or not: said when that changes. */
void qms_server_saved(void *opaque, int error)
{
    struct qms_server *s = opaque;

    if (error != 0 && s->save_error == 0)
        qms_log(QMS_WARNING,
                "rules=%s: the rules cannot be saved now, and stay as they "
                "were saved before: %s; this is tried again every %" PRIu64 " seconds",
                s->config.rules, strerror(error), s->config.rules_save);
    else if (error == 0 && s->save_error != 0)
        qms_log(QMS_WARNING, "rules=%s: the rules are saved again", s->config.rules);
    s->save_error = error;
}

static char *report(void *opaque)
{
    return qms_report(opaque, SIZE_MAX);
}

#ifdef QM_HAVE_HTTP
static json_t *report_object(void *opaque, unsigned classes, bool ever)
{
    return qms_report_object(opaque, classes, ever);
}

static int start_http(struct qms_server *s)
{
    int error = s->http ? qms_http_start(s->http, report_object, s) : 0;

    if (error != 0) {
        nbdkit_error("cannot start the HTTP server: %s", strerror(error));
        return -1;
    }
    if (s->http && qms_http_url(s->http)[0] != '\0')
        qms_log(QMS_NOTE, "the statistics are at %s", qms_http_url(s->http));
    return 0;
}

static void close_http(struct qms_server *s)
{
    if (s->http)
        qms_http_close(s->http);
    s->http = NULL;
}
#else
static int start_http(struct qms_server *s)
{
    return 0;
}

static void close_http(struct qms_server *s)
{
}
#endif

/* nbdkit tells only threads in nbdkit_nanosleep() that it stops, and a change that
 * waits for its turn cannot sleep.  This thread sleeps in its place; it belongs to no
 * connection, since the end of one is no reason to give a change up. */
static void *watch_for_stop(void *opaque)
{
    struct qms_server *s = opaque;

    while (qms_order_await_long(&s->order))
        if (nbdkit_nanosleep(0, STOP_NS) == -1) {
            qms_order_stop(&s->order);
            break;
        }
    return NULL;
}

/* Whether nobody waits for the answer to the calling thread's request any more. */
static bool gone(void)
{
    return nbdkit_nanosleep(0, 0) == -1;
}

static nbdkit_next *take(nbdkit_next **next)
{
    nbdkit_next *taken = *next;

    *next = NULL;
    return taken;
}

/* The disk is full, say. */
static void record_failed(void *opaque, int error)
{
    const struct qms_server *s = opaque;

    qms_log(QMS_WARNING, "record=%s: %s: nothing more is recorded", s->config.record,
            strerror(error));
}

/* Takes *next, or leaves it. */
static int make_parts(struct qms_server *s, nbdkit_next **next)
{
    const bool mining = qm_params_prefetch(&s->config.params);
    int error;

    s->stats = qms_stats_new();
    s->classes = qms_classes_new();
    if (!s->stats || !s->classes) {
        nbdkit_error("malloc: %m");
        return -1;
    }
    if (qms_tier_open(s) == -1 || make_prefetcher(s, true) == -1 || make_cache(s) == -1)
        return -1;
    qms_memory_start(s);
    qms_clients_init(&s->clients, s->engine.prefetcher);
    if (mining) {
        s->throttle = qm_throttle_new();
        if (!s->throttle) {
            nbdkit_error("malloc: %m");
            return -1;
        }
        qms_server_tune(s, &s->config);
    }
    if (mining) {
        s->miner = qms_miner_start(s->engine.prefetcher, s->config.miner_queue,
                                   s->config.rules_purge);
        if (!s->miner) {
            nbdkit_error("cannot start the mining thread: out of memory or threads");
            return -1;
        }
        if (s->config.rules)
            qms_miner_save_every(s->miner, (unsigned)s->config.rules_save,
                                 qms_server_saved, s);
        if (start_prefetching(s, take(next)) == -1)
            return -1;
        qms_miner_tick_every(s->miner, qms_memory_tick,
                             s); /* which looks at the queue */
    }
    s->contexts.engine = &s->engine;
    s->contexts.level = s->config.params.level;
    s->contexts.mining = mining;
    s->contexts.classes = s->classes;
    s->contexts.miner = s->miner;
    s->contexts.recorder = s->recorder;
    s->contexts.stats = s->stats;
    s->contexts.held_max = HELD_MAX;
    s->hints = qms_hints_new(qms_reading_alone, s);
    error = s->hints ? qms_contexts_init(&s->contexts) : ENOMEM;
    if (error == 0) {
        error = qms_sessions_init(&s->sessions, &s->contexts, &s->clients, s->classes,
                                  s->stats);
        if (error != 0)
            qms_contexts_destroy(&s->contexts);
    }
    if (error != 0) {
        nbdkit_error("%s", strerror(error));
        return -1;
    }
    s->sessions.hinted = qms_reading_hinted;
    s->sessions.hinting = qms_reading_hinting;
    s->sessions.hinting_ended = qms_reading_hinting_ended;
    s->sessions.told = qms_reading_told;
    s->sessions.opaque = s;
    s->sessions.gone = gone;
    s->made = true;
    if (s->recorder)
        qms_record_on_error(s->recorder, record_failed, s);
    if (s->recorder && (error = qms_record_start(s->recorder)) != 0) {
        nbdkit_error("cannot start the recording thread: %s", strerror(error));
        return -1;
    }
    error = pthread_create(&s->stop_watcher, NULL, watch_for_stop, s);
    if (error != 0) {
        nbdkit_error("cannot start a thread: %s", strerror(error));
        return -1;
    }
    s->stop_watched = true;
    if (s->socket && (error = qms_stats_socket_start(s->socket, report, s)) != 0) {
        nbdkit_error("cannot start the statistics thread: %s", strerror(error));
        return -1;
    }
    if (s->control &&
        (error = qms_control_socket_start(s->control, qms_change_answer, s)) != 0) {
        nbdkit_error("cannot start the control thread: %s", strerror(error));
        return -1;
    }
    return start_http(s);
}

static int make_all(struct qms_server *s)
{
    nbdkit_next *next = qms_backend_probe(s);
    sigset_t all, before;
    int r;

    if (!next)
        return -1;
    /* Signals are for nbdkit's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = make_parts(s, &next);
    if (next)
        qms_backend_close(next);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

void qms_connection_leave(struct qms_server *s, struct qms_connection *c)
{
    qms_member_leave(&s->sessions, &c->member);
    if (!c->tagged)
        qms_context_end(&s->contexts, &c->slot);
}

bool qms_server_enter(struct qms_server *s, unsigned *token)
{
    *token = qms_quiesce_enter(&s->arriving);
    if (!atomic_load(&s->ended))
        return true;
    qms_quiesce_leave(&s->arriving, *token);
    nbdkit_error("a client came too late: the server ends");
    return false;
}

void qms_server_leave(struct qms_server *s, unsigned token)
{
    qms_quiesce_leave(&s->arriving, token);
}

void qms_server_stop(struct qms_server *s)
{
    struct cds_list_head *at;
    int error;

    atomic_store(&s->ended, true);
    if (s->begun)
        qms_quiesce_wait(&s->arriving);
    close_http(s);
    if (s->control)
        qms_control_socket_close(s->control);
    if (s->socket)
        qms_stats_socket_close(s->socket);
    if (s->stop_watched) {
        qms_order_end(&s->order);
        pthread_join(s->stop_watcher, NULL);
    }
    if (s->miner)
        qms_miner_end_ticks(s->miner); /* which look at the queue */
    if (s->prefetch)
        qms_prefetch_stop(s->prefetch);
    if (s->backing && !qms_backing_stop(s->backing))
        qms_log(QMS_WARNING, "the layer below does not answer: a connection to it is "
                             "left open");
    if (s->made) {
        /* nbdkit does not close the connections that are left when it is stopped.  They
         * are aligned; the list's head, taken for one, would not be. */
        cds_list_for_each(at, &s->connections)
            qms_connection_leave(s, caa_container_of(at, struct qms_connection, list));
        qms_sessions_destroy(&s->sessions);
        qms_contexts_destroy(&s->contexts);
        qms_clients_destroy(&s->clients);
    }
    qms_hints_free(s->hints);
    s->hints = NULL;
    if (s->miner)
        qms_miner_stop(s->miner);
    if (s->recorder && (error = qms_record_close(s->recorder)) != 0)
        nbdkit_error("record=%s ends too early: %s", s->config.record, strerror(error));
    if (s->shadow)
        (void)qms_record_close(s->shadow);
    s->shadow = NULL;
    qms_tier_close(s);
    if (s->sized)
        qm_memory_destroy(&s->memory);
    if (s->cache)
        qm_cache_free(s->cache); /* before those whom it tells of what is wasted */
    if (s->engine.prefetcher &&
        (error = s->engine.prefetcher->ops->destroy(s->engine.prefetcher)) != 0)
        nbdkit_error("rules=%s: the rules cannot be saved, and stay as they were saved "
                     "before: %s",
                     s->config.rules, strerror(error));
    qm_throttle_free(s->throttle);
    qms_classes_free(s->classes);
    qms_stats_free(s->stats);
    free(s->baseline);
    s->baseline = NULL;
    s->socket = NULL;
    s->control = NULL;
    s->stop_watched = false;
    s->prefetch = NULL;
    s->backing = NULL;
    s->made = false;
    s->miner = NULL;
    s->recorder = NULL;
    s->cache = NULL;
    s->engine.prefetcher = NULL;
    s->engine.throttle = NULL;
    s->throttle = NULL;
    s->classes = NULL;
    s->stats = NULL;
}

/* Reads the kernel's boot id, a UUID of 32 digits and 4 dashes; zeros if there is none.
 */
static void read_boot_id(uint8_t *id)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[64] = "";
    const char *at = text;
    unsigned n = 0, byte;

    memset(id, 0, 16);
    if (!file)
        return;
    if (fgets(text, sizeof text - 1, file))
        while (n < 16 && sscanf(at, "%2x", &byte) == 1) {
            id[n++] = byte;
            at += at[2] == '-' ? 3 : 2;
        }
    fclose(file);
    if (n < 16)
        memset(id, 0, 16);
}

/* The instance, for clients that connect again: drawn by the process that serves. */
static void identify(struct qms_server *s)
{
    do {
        if (getrandom(&s->instance, sizeof s->instance, 0) !=
            (ssize_t)sizeof s->instance) {
            s->instance = 0;
            break;
        }
    } while (s->instance == 0);
    read_boot_id(s->boot_id);
}

static uint64_t get_time(void *opaque)
{
    (void)opaque;
    return qms_now();
}

int qms_server_start(struct qms_server *s, nbdkit_backend *backend)
{
    int r;

    s->started = qms_now();
    qms_quiesce_init(&s->arriving);
    identify(s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->size_lock, NULL);
    pthread_mutex_init(&s->reporting, NULL);
    pthread_mutex_init(&s->baseline_lock, NULL);
    qm_device_load_init(&s->load);
    qm_latency_init(&s->latency);
    qm_admission_init(&s->admission);
    qm_bound_init(&s->bound);
    s->bound.watch.clock = get_time;
    qm_rate_init(&s->rate);
    qms_order_init(&s->order);
    CDS_INIT_LIST_HEAD(&s->connections);
    s->begun = true;
    qms_log_limit(s->config.log_level);
    s->backend = backend;
    r = make_all(s);
    if (r == -1)
        qms_server_stop(s);
    return r;
}

int qms_server_try_memory(struct qms_server *s)
{
    int r = make_prefetcher(s, false);

    if (r == 0) {
        r = make_cache(s);
        if (r == 0)
            qm_cache_free(s->cache);
        s->cache = NULL;
        s->engine.prefetcher->ops->destroy(s->engine.prefetcher);
        s->engine.prefetcher = NULL;
    }
    return r;
}
