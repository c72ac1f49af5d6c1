/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - the one server of a process, and a connection of it.
 *
 * nbdkit loads a filter once, so there is one server.  Its parts are created in the
 * order in which they are declared here, and destroyed in reverse.  While connections
 * are served nothing in it changes, except what its parts guard themselves, and what
 * change.c does with the write lock of its contexts.
 */
#ifndef QMS_SERVER_H
#define QMS_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <urcu/list.h>

#include <nbdkit-filter.h>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "server/backing.h"
#include "server/classes.h"
#include "server/clients.h"
#include "server/config.h"
#include "server/contexts.h"
#include "server/control.h"
#include "server/control-socket.h"
#include "server/hints.h"
#ifdef QM_HAVE_HTTP
#include "server/http.h"
#endif
#include "server/miner.h"
#include "server/order.h"
#include "server/prefetch.h"
#include "server/quiesce.h"
#include "server/record.h"
#include "server/sessions.h"
#include "server/stats.h"
#include "server/stats-socket.h"
#include "server/tier.h"

struct qms_server {
    struct qms_config config;
    int thread_model;            /* nbdkit's: which requests run in parallel */
    pid_t ready_in;              /* the process that called qms_server_ready() */
    bool begun;                  /* qms_server_start() was called: nbdkit has forked */
    _Atomic bool ended;          /* qms_server_stop() was: what follows may be gone */
    struct qms_quiesce arriving; /* see qms_server_enter() */
    uint64_t started;            /* ns */
    uint64_t instance;     /* random number of this process; 0: none was available */
    uint8_t boot_id[16];   /* of the machine; zeros: not known */
    _Atomic uint64_t size; /* of the device, in bytes; it only grows (size.c) */
    _Atomic uint64_t size_found; /* that the last connection found: it may be less */
    uint32_t max_bytes;          /* of one read of the layer below */

    struct qms_recorder *recorder; /* NULL: not recording */
    struct qms_recorder *shadow;   /* for a while (shadow.c); the control thread's */
    struct {
        uint64_t ns; /* that the process had computed when that recording began */
        uint64_t reads, device_reads; /* that it had carried out */
    } shadow_since;                   /* the control thread's */
    struct qms_stats_socket *socket;
    struct qms_control_socket *control;
    struct qms_http *http;
    struct qms_stats *stats;
    struct qms_classes *classes;
    /* With a prefetcher, which is its alone.  It changes with the write lock. */
    struct qm_engine engine;
    struct qm_throttle
        *throttle;           /* NULL: no prefetching; the engine's if it throttles */
    int save_error;          /* of the last save; the miner's */
    struct qms_miner *miner; /* NULL: nothing to learn */
    struct qms_tiers tiers;
    uint64_t tier_until; /* ns: when to end handing memory over to it; 0: it is not
                            the end */
    struct qm_cache *cache;
    struct qm_memory memory; /* how the cache and the rules share it */
    _Atomic unsigned batch;  /* blocks of a request that are looked up at a time */
    bool sized;              /* memory is made */
    struct qms_order order;  /* of changes */
    pthread_t stop_watcher;
    bool stop_watched;
    struct qm_device_load load; /* of the device */
    struct qm_admission admission;
    struct qm_bound bound;
    struct qm_rate rate;                     /* the budget of reads ahead */
    _Atomic(struct qm_admission *) measured; /* it, if it is told of reads; or NULL */
    struct qm_latency latency;               /* of reads of the device */
    nbdkit_backend *backend;                 /* the layer below */
    struct qms_backing *backing;             /* connections to it, to prefetch over */
    uint64_t other_size; /* the keeper's: the differing size that it logged last */
    struct qms_prefetch *prefetch; /* NULL: no prefetching */
    struct qms_clients clients;
    struct qms_contexts contexts;
    struct qms_hints *hints; /* what sessions say of others' reads */
    struct qms_sessions sessions;

    /* Nothing may be cached: the layer below is writable, and does not promise that its
     * connections see each other's writes.  Set once. */
    _Atomic bool uncached;
    bool made; /* all of the above are created */

    pthread_mutex_t size_lock; /* of changes of size; taken before contexts.lock */

    unsigned prefetcher_number; /* how often it was replaced; with contexts.lock */

    pthread_mutex_t lock; /* of what follows */
    struct cds_list_head connections;
    unsigned connection_count;

    pthread_mutex_t baseline_lock; /* held while a report is made */
    struct qms_baseline *baseline; /* of the last reset (report.c), or NULL */

    pthread_mutex_t reporting; /* serializes clients' reports; held while they wait */
    uint64_t next_report;      /* ns: the next report is not made before */
};

struct qms_connection {
    struct cds_list_head list;
    unsigned number; /* among what hints know (hints.h) */
    bool tagged;
    bool writable; /* the layer below, through this connection */
    bool readonly; /* nbdkit -r */
    bool cached;   /* the device had the server's size when it was opened */
    uint64_t size; /* of the device then, in bytes */

    struct qms_member member; /* its sessions; plain: at most one */

    /* Plain: its own context, of kind connection, begun by its first request. */
    pthread_mutex_t begin_lock; /* of beginning */
    _Atomic bool begun;
    struct qms_slot slot;
};

/* Start and stop (ready.c, server.c).  The first two return 0, or -1 after
 * nbdkit_error(); then nothing is left to be stopped. */
int qms_server_ready(struct qms_server *s, int thread_model);
/* Makes what takes memory, all at a time, and undoes it: it is made after the fork,
 * since where memory is not overcommitted a fork would need as much again.  0, or -1
 * after nbdkit_error(). */
int qms_server_try_memory(struct qms_server *s);
int qms_server_start(struct qms_server *s, nbdkit_backend *backend);
/* No request is in flight.  Ends contexts of connections that were not closed. */
void qms_server_stop(struct qms_server *s);

/* nbdkit does not wait for a connection that it has accepted, and whose thread has not
 * begun, when it is told to stop: that one may come while the server is stopped, or
 * later.  What it does with the server before its first request, which there is none of
 * then, is between these two; there it waits for nothing below.  False, after
 * nbdkit_error(): the server is, or will be, gone. */
bool qms_server_enter(struct qms_server *s, unsigned *token);
void qms_server_leave(struct qms_server *s, unsigned token);

/* The control socket's answer to what is refused: {"error": sentence} (change.c). */
struct json_t *qms_refusal(const char *sentence);

/* A string of that text, which may be a path of any bytes: question marks stand for
 * what is not UTF-8, which no JSON string is. */
struct json_t *qms_json_text(const char *text);

/* A recording for a while, by the control socket (shadow.c).  The answer to
 * {"record": wanted}, an object; only the control thread calls it. */
struct json_t *qms_shadow_answer(struct qms_server *s, struct json_t *wanted,
                                 uid_t user);

/* Ends the connection's contexts; no request of it is in flight. */
void qms_connection_leave(struct qms_server *s, struct qms_connection *c);

/* The data path (io.c, writing.c).  They return 0, or -1 with *err set; slot is NULL
 * for requests without a context.  The range lies within the device. */
int qms_read(struct qms_server *s, struct qms_connection *c, nbdkit_next *next,
             struct qms_slot *slot, void *buf, uint32_t count, uint64_t offset,
             int *err);
int qms_write(struct qms_server *s, nbdkit_next *next, struct qms_slot *slot,
              const void *buf, uint32_t count, uint64_t offset, uint32_t flags,
              int *err);
int qms_zero(struct qms_server *s, nbdkit_next *next, struct qms_slot *slot,
             uint32_t count, uint64_t offset, uint32_t flags, int *err);
int qms_trim(struct qms_server *s, nbdkit_next *next, uint32_t count, uint64_t offset,
             uint32_t flags, int *err);
int qms_flush(struct qms_server *s, nbdkit_next *next, uint32_t flags, int *err);
int qms_fill(struct qms_server *s, struct qms_connection *c, nbdkit_next *next,
             uint32_t count, uint64_t offset, int *err);

/* Memory (memory.c).  Starts the division of cache-size between blocks and rules; the
 * cache and the prefetcher are made. */
void qms_memory_start(struct qms_server *s);
/* The capacity or the prefetches have changed: sets what depends on both. */
void qms_memory_bound(struct qms_server *s);
/* To be called every second or so, by one thread; opaque is the server. */
void qms_memory_tick(void *opaque);

/* Changes cache-size while the server serves: the cache and the rules grow or shrink,
 * and the memory that becomes free is the system's again when this returns.  Takes
 * about as long as copying the blocks that stay, at most; hits go on meanwhile.  The
 * control socket's thread alone calls it, and not with cache-blocks.  Returns 0; or an
 * errno value with a sentence in why, and nothing has changed. */
int qms_server_set_cache_size(struct qms_server *s, uint64_t bytes, char *why,
                              size_t len);

/* Drops what is cached of the bytes from start to end: the device has become smaller,
 * and if it grows again, its contents there may differ; or it has grown, and the rest
 * of its last block is zeros in the cache. */
void qms_forget_between(struct qms_server *s, uint64_t start, uint64_t end);

/* A new connection has found that the device has `size` bytes (size.c).  If it has
 * grown, the server has the new size from now on.  Returns whether it is the server's
 * size now. */
bool qms_size_found(struct qms_server *s, uint64_t size);

/* The mining parameters of a configuration, for this device; device is where its name
 * is kept. */
struct qm_mining_config qms_mining_config(const struct qms_server *s,
                                          const struct qms_config *config,
                                          bool with_rules, char device[64]);
/* What the miner's thread says of saving the rules: see qms_miner_save_every(). */
void qms_server_saved(void *opaque, int error);
/* Sets what the parameters say in the engine, and whom reads of the device are told to.
 * Nobody uses the engine meanwhile. */
void qms_server_tune(struct qms_server *s, const struct qms_config *config);

/* The answer to a request of the control socket, to be freed (change.c); opaque is the
 * server.  One call at a time. */
char *qms_change_answer(void *opaque, uid_t user, const char *request);

/* The statistics as a JSON object, with that many classes at most; ever: since the
 * start, whatever was reset. */
struct json_t *qms_report_object(struct qms_server *s, uint32_t classes, bool ever);

/* Adds the second tier's, if there is one. */
void qms_report_tier(struct qms_server *s, struct json_t *o);

/* Reports count from now on.  -1: memory is out. */
int qms_report_reset(struct qms_server *s);

/* The statistics as a JSON document, at most max bytes of it, terminated (report.c).
 * NULL if memory is out; to be freed. */
char *qms_report(struct qms_server *s, size_t max);

#endif
