/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the files of libqmctx share.
 *
 * A struct qmctx is the common part of an instance; a transport (transport-*.c) embeds
 * it as its first member and stands behind struct qm_transport.  thread.c keeps, for
 * each thread and instance, a struct qm_thread, which a transport embeds in the same
 * way.
 *
 * Layers, the highest first.  A file uses only those in layers below its own (the test
 * libqmctx-layers checks that against this drawing); device*.c are one component.
 *
 *   device*.c
 *   qmctx.c
 *   transport-direct.c transport-kernel.c transport-mount.c transport-agent.c
 *   transport-told.c transport-attached.c request.c hints.c mount-link.c agent-table.c
 *   session.c
 *   handshake.c contexts.c
 *   conn.c
 *   thread.c
 *   background.c error.c pidfile.c uris.c
 *
 * A lower layer calls a higher one by function pointers that it was given:
 * struct qm_transport's functions, struct request's ended() and done().
 *
 * Locks, outermost first; none is held while waiting for the network:
 *
 *   the registry lock (thread.c)   the lists of instances and of their threads
 *   a connection's lock            one libnbd handle and the requests on it
 *   a transport's own lock         contexts and slots; or the mount's free entries
 */
#ifndef QMCTX_INTERNAL_H
#define QMCTX_INTERNAL_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "clients/libqmctx/qmctx.h"

struct qm_thread;

struct qm_transport {
    const char *name;
    size_t
        thread_bytes; /* of the per-thread state, which starts with struct qm_thread */
    size_t frame_bytes; /* of what it keeps for each open context of a thread */
    bool (*connected)(struct qmctx *ctx);
    int (*begin)(struct qmctx *ctx, struct qm_thread *thread, enum qmctx_kind kind,
                 uint64_t klass, const char *name);
    /* NULL: the transport cannot. */
    uint64_t (*shared_id)(struct qmctx *ctx);
    int (*begin_shared)(struct qmctx *ctx, struct qm_thread *thread, pid_t process,
                        uint64_t id);
    /* Ends the innermost context; thread->depth is at least 1. */
    void (*end)(struct qmctx *ctx, struct qm_thread *thread);
    /* The thread exits, or the instance is closed: ends its contexts, and frees what
     * the state points to.  May be called by another thread than the state's own. */
    void (*thread_gone)(struct qmctx *ctx, struct qm_thread *thread);
    /* In a child process, as after pthread_atfork(3): gives up what is shared with the
     * parent.  Only async-signal-safe calls, no locks.  thread: the state of the thread
     * that called fork(), or NULL. */
    void (*forked)(struct qmctx *ctx, struct qm_thread *thread);
    void (*close)(struct qmctx *ctx);
};

struct qmctx {
    const struct qm_transport *transport;
    uint64_t instance;        /* a number that no other instance ever has */
    unsigned forks;           /* qm_forks when it was made: else it is a parent's */
    const struct qmctx *over; /* the direct instance whose requests its contexts are of:
                                 itself, or what it is attached to; or NULL */
    struct cds_list_head instances, threads; /* registry lock */
};

struct qm_thread {
    struct qm_thread *next; /* the same thread's, of other instances */
    struct qmctx *ctx;
    _Atomic uint64_t instance;        /* ctx's; 0: closed, and ctx is gone */
    struct cds_list_head of_instance; /* registry lock */
    unsigned depth;                   /* open contexts, each with a frame */
    unsigned capacity;                /* of frames, in frames */
    void *frames;             /* of transport->frame_bytes each; freed by thread.c */
    const struct qmctx *over; /* as ctx's */
    _Atomic qmctx_id current; /* the innermost context over that; 0: none */
};

/* How many fork()s lie between the first process and this one. */
extern unsigned qm_forks;

/* Enters ctx into the registry; ENOMEM or EAGAIN if the process cannot have one. */
int qm_register(struct qmctx *ctx, const struct qm_transport *transport);
/* Takes it out, and its threads' states with it. */
void qm_unregister(struct qmctx *ctx);

/* The calling thread's state for ctx; NULL: it has none (and create is false, or memory
 * is out). */
struct qm_thread *qm_thread_get(struct qmctx *ctx, bool create);

/* Memory for one more frame than thread->depth, which stays: frames[depth] is the
 * caller's to fill in.  thread->frames may move.  false with qmctx_error(): no memory.
 */
bool qm_thread_grow(struct qm_thread *thread);
static inline bool qm_thread_reserve(struct qm_thread *thread)
{
    return thread->depth < thread->capacity || qm_thread_grow(thread);
}

/* The calling thread's current context for requests over a direct instance: of that
 * instance, or else of one that is attached to it; or 0. */
qmctx_id qm_thread_current(const struct qmctx *over);

/* 1; 0 in a child of which no handler of pthread_atfork(3) was told (_Fork(), clone()).
 */
extern const uint32_t *qm_not_forked;

static inline bool qm_is_parents(const struct qmctx *ctx)
{
    return ctx->forks != qm_forks || *qm_not_forked == 0;
}

/* Puts a sentence into the thread's qmctx_error(), sets errno to err, and returns -1.
 */
int qm_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes of name that fit into max, without cutting a UTF-8 character in two. */
size_t qm_name_len(const char *name, size_t max);

extern const struct qm_transport qm_transport_direct, qm_transport_mount,
    qm_transport_kernel, qm_transport_agent, qm_transport_attached;

/* qmctx_announce() by these; *ctx is NULL. */
int qm_announce_to_mount(const char *path, struct qmctx **ctx);
int qm_announce_to_kernel(struct qmctx **ctx);
int qm_announce_to_agent(const char *path, struct qmctx **ctx);

#endif
