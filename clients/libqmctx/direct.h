/* SPDX-License-Identifier: BSD-3-Clause */
/* direct.h - what the files of the direct transport share.
 *
 *   handshake.c           making a connection
 *   conn.c                one connection: a libnbd handle, its requests, its polling
 * thread contexts.c            the contexts, the session's slots, and what is to be
 * said of them request.c             reads and writes, in a context or not, synchronous
 * or not transport-attached.c  the threads' stacks of contexts, also those of attached
 *                         instances
 *   session.c             sessions, connecting, reconnecting
 *   transport-direct.c    an instance's life, and the API
 *
 * Several connections to the tagged export belong to one session.  A context and all
 * that is nested in it (a tree) speak over one connection, which carries out requests
 * in the order they were sent (QM_WIRE_ORDERED), so that a context's begin, reads and
 * end need not wait for each other.
 *
 * A context is begun on the wire when it is first read in (and so are those around it),
 * never before: that is why contexts in which nothing is read cost no message.  What is
 * known of a context on the wire holds for one *epoch* of its connection, from one
 * connect to the next; afterwards it is begun anew when it is next used.
 */
#ifndef QMCTX_DIRECT_H
#define QMCTX_DIRECT_H

#include <libnbd.h>
#include <limits.h>
#include <pthread.h>
#include <time.h>

#include "clients/libqmctx/uris.h"
#include "clients/protocol/quickmine-protocol.h"
#include "internal.h"
#include "own-fd.h"

#define MAX_CONNECTIONS 64

/* In place of a number of connections: as many as a whole machine's requests need. */
#define QM_CONNECTIONS_DEVICE UINT_MAX

/* Nesting on the wire; what is nested deeper speaks as what is around it. */
#define MAX_LEVEL 64

struct direct;
struct conn;
struct context;

/* A range of slots that the server gave us.  Under direct.lock. */
struct session {
    uint64_t id;
    uint64_t
        serial; /* a number that no other session of this process ever had; 0: none */
    uint32_t first, count;
    uint16_t *slots; /* free ones, a ring: the one freed first is used first */
    uint32_t at, free;
    struct cds_list_head idle; /* contexts whose slot can be taken away, oldest first */
};

/* Something that was sent over a connection in one or more NBD requests. */
struct request {
    unsigned parts; /* not replied to yet; conn.lock */
    int error;      /* the first; conn.lock */
    bool complete;  /* conn.lock */
    struct conn *conn;
    /* When it is complete, with conn.lock; may free it.  NULL: nothing more to do. */
    void (*ended)(struct request *request);
    struct context *context;      /* contexts.c's: the one it is in; NULL: none */
    pthread_cond_t cond;          /* of a thread that waits for it, with conn.lock */
    struct cds_list_head waiting; /* in conn.waiting, if a thread does */
    bool async;                   /* ends in done() */
    qmctx_done *done;
    void *opaque;
    struct cds_list_head finished; /* in conn.finished, until done() is called */
};

struct conn {
    struct direct *direct;   /* NULL: not initialized */
    bool tagged;             /* the tagged export, not the plain one */
    _Atomic bool up;         /* changed under lock */
    _Atomic bool spared;     /* the server has not taken it: it is not missed */
    _Atomic int fd;          /* for a child to close; -1 */
    struct qm_own_fd fd_own; /* what that is */

    pthread_mutex_t lock;
    struct nbd_handle *nbd;  /* lock; NULL: never connected */
    uint64_t epoch;          /* lock; of this connect; no other ever had it */
    struct session *session; /* constant; NULL unless tagged */
    struct session own;      /* session, if connections cannot join one */
    uint64_t max_payload;    /* lock; bytes of a request */
    bool can_zero, can_trim, can_flush, can_fua; /* lock */
    bool ordered;               /* lock; the server carries out requests in order */
    _Atomic unsigned in_flight; /* requests; changed under lock */
    uint64_t answered;          /* lock; requests */
    unsigned async;             /* lock; of these, those that end in done() */
    unsigned unattended;        /* lock; control requests sent since the last poll */
    bool polling;               /* lock; a thread waits for the socket */
    short polled;               /* lock; for these events */
    int wakes;                  /* lock; an eventfd that wakes it */
    int wake;     /* an eventfd, for threads that poll this connection alone */
    bool tagging; /* lock; a thread waits for the reply to a BEGIN */
    pthread_cond_t changed;        /* lock; tagging is over, or polling while down */
    bool by_poll;                  /* lock; replies are being handled in qmctx_poll() */
    struct cds_list_head waiting;  /* lock; requests whose threads wait */
    struct cds_list_head finished; /* lock; requests whose done() is due */
};

/* The server's identity, from its header; zeros: not told. */
struct qm_peer_id {
    uint64_t instance;
    uint8_t boot_id[16];
};

struct direct {
    struct qmctx base;
    struct qm_uris uris;     /* connect_lock */
    const char *_Atomic uri; /* the one in use; changed under connect_lock */
    unsigned connections;    /* of conn[], tagged ones */
    unsigned least;          /* of these, that a server has to take */
    struct conn conn[MAX_CONNECTIONS];
    struct conn plain; /* for what the tagged export does not do; made when needed */
    time_t plain_at;   /* connect_lock; not before, in s of CLOCK_MONOTONIC */
    bool contextless;  /* the export that the URI names, whatever it is */
    bool any;          /* ... or the tagged one, without contexts, if there is one */
    bool hints;        /* records go by hints: the export refuses writes */
    bool ordered;      /* connect_lock; QM_WIRE_ORDERED of the last server */
    _Atomic bool takes_reads;   /* QM_WIRE_HINTED of the last server, */
    _Atomic bool takes_extents; /* QM_WIRE_TAKES_EXTENTS, */
    _Atomic bool takes_owners;  /* and QM_WIRE_TAKES_OWNERS */
    bool any_block_size;        /* a server with another one is not another device */
    _Atomic bool multi_conn;
    bool read_only;
    _Atomic bool can_fua;
    bool size_known;        /* it was connected to before; connect_lock */
    _Atomic bool ending;    /* whatever is connecting gives up */
    _Atomic bool broken;    /* nothing may connect by itself until qmctx_reconnect() */
    struct qm_peer_id peer; /* connect_lock */
    uint8_t volume[16];     /* connect_lock; the first that was known */
    _Atomic uint64_t size;  /* bytes; grows only, and only if may_grow */
    bool may_grow;          /* the same server's device; set before it is connected */
    uint32_t block_size;    /* bytes */
    pthread_mutex_t connect_lock; /* outside all others; may wait for the network */
    /* The socket of the connection that is being made, for a child to close, and its
     * inode, by which the child knows that it is still that one; -1: none. */
    _Atomic int making_fd;
    _Atomic uint64_t making_inode;
    _Atomic unsigned next_conn;
    _Atomic uint64_t last_epoch;

    pthread_mutex_t lock;   /* a leaf: contexts and sessions */
    struct session session; /* lock */
    uint64_t last_serial;   /* lock */
    struct context **table; /* lock; by the low half of an id, minus 1 */
    uint32_t *generations;  /* lock; the high half */
    uint32_t *unused;       /* lock; indices, a stack */
    uint32_t table_size, unused_count;

    pthread_mutex_t poll_lock; /* a leaf */
    pthread_cond_t poll_over;  /* poll_lock */
    _Atomic bool poll_active;  /* changed under poll_lock; one is in qmctx_poll() */
    uint64_t poll_rounds;      /* poll_lock; how many came back from it */
    int poll_wake;             /* an eventfd for it */
    _Atomic unsigned aio;      /* async requests whose done() has not returned */

    _Atomic bool asking;  /* handshake.c has sent a request; answer is its buffer */
    _Atomic bool refused; /* its outcome */
    char answer[512];
};

/* handshake.c: all under connect_lock, and in bounded time; 0, or -1 with
 * qmctx_error(). */

/* Connects to an export, or to that of the URI if there are no contexts.  *nbd is the
 * caller's. */
int qm_conn_open(struct direct *d, const char *export, struct nbd_handle **nbd);
/* Why a handshake has failed: to libnbd, whatever is asked of a handle that has lost
 * its connection meanwhile is an invalid argument. */
int qm_conn_why(struct nbd_handle *nbd, int err);
/* The handle is a connection's now, or is about to be closed. */
void qm_conn_opened(struct direct *d);
/* In a child process: closes the socket of a connection that was being made.  Only
 * async-signal-safe calls. */
void qm_conn_opening_forked(struct direct *d);
/* Requests on a handle that is no connection's yet. */
int qm_handshake_read(struct direct *d, struct nbd_handle *nbd, void *buf, size_t count,
                      uint64_t offset);
int qm_handshake_write(struct direct *d, struct nbd_handle *nbd, const void *buf,
                       size_t count, uint64_t offset);

/* conn.c */

int qm_conn_init(struct conn *conn, struct direct *direct, bool tagged);
void qm_conn_destroy(struct conn *conn);

/* Puts nbd in the place of the connection's last handle.  Takes conn.lock. */
void qm_conn_install(struct conn *conn, struct nbd_handle *nbd);
/* Whether the connection is up; notices that the other side has closed it. */
bool qm_conn_probe(struct conn *conn);
/* Breaks the connection off; what is in flight on it fails. */
void qm_conn_break(struct conn *conn);
/* The same, but without waiting for the thread that polls it. */
void qm_conn_shutdown(struct conn *conn);

void qm_request_init(struct request *request, struct conn *conn);

/* All with conn.lock held. */
enum command { CMD_READ, CMD_WRITE, CMD_FLUSH, CMD_ZERO, CMD_TRIM, CMD_CACHE };
/* Sends one more part of request; its errors go into the request. */
void qm_conn_issue(struct request *request, enum command command, void *buf,
                   uint64_t count, uint64_t offset, uint32_t flags);
/* All parts of request were issued; it may complete (and be gone) at once. */
void qm_conn_issued(struct request *request);
/* Waits until request is complete; lets go of conn.lock meanwhile. */
void qm_conn_wait(struct request *request);
/* Handles replies that have come, without waiting. */
void qm_conn_drain(struct conn *conn);

/* The request is asynchronous: it ends in done().  conn.lock is held. */
void qm_conn_async(struct request *request, qmctx_done *done, void *opaque);
/* Without conn.lock: calls done() of what is finished. */
void qm_conn_finish(struct conn *conn);

/* Of several: see qmctx_poll(). */
int qm_poll(struct direct *d, int timeout_ms);
/* Has a thread that waits in qm_poll() come back, or the next one. */
void qm_direct_wake(struct direct *d);

/* contexts.c; direct.lock is taken by all but those that say so */

/* Starts a session; what contexts had of the last one is forgotten.  ENOMEM or 0. */
int qm_session_start(struct direct *d, struct session *session, uint64_t id,
                     uint32_t first, uint32_t count);

int qm_context_open(struct direct *d, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id);
int qm_context_close(struct direct *d, qmctx_id id);

/* Finds a connection that is up for a request in context id, and locks it.  Returns
 * NULL if there is none. */
struct conn *qm_context_conn(struct direct *d, qmctx_id id);
/* With conn.lock, of the connection that qm_context_conn() returned: begins the context
 * on the wire where that is needed.  Returns the slot for a request in it, and a
 * reference to the context that the slot is of (NULL: slot 0; an id that names no open
 * context gets that, too).  Or -1: conn.lock was let go of meanwhile, start again. */
int qm_context_tag(struct conn *conn, qmctx_id id, struct context **context);
/* Gives request that reference, until it is complete; a NULL context is none. conn.lock
 * is held, and nothing of the request has been sent. */
void qm_context_hold(struct request *request, struct context *context);
/* Gives that reference back. */
void qm_context_release(struct direct *d, struct context *context);
void qm_contexts_free(struct direct *d);

/* request.c */

/* Has the server end an old session, and waits until its changes have ended. */
int qm_direct_fence(struct direct *d, uint64_t session);
/* Says whose our session is, and waits until no changes of the sessions before it are
 * carried out any more.  0 too if the server does not know that record. */
int qm_direct_own(struct direct *d, const uint8_t owner[QM_WIRE_OWNER_SIZE]);
/* Asks for something small over a connection that nothing is in flight on, if there is
 * one, so that a server that ends can say so; busy: over any.  0 if it answered,
 * whatever it was.  *size_now: what new connections would find, 0 if that was not said.
 */
int qm_direct_ping(struct direct *d, bool busy, uint64_t *size_now);
/* As qmctx_aio_pwrite(): what was written before is on stable storage. */
int qm_direct_aio_flush(struct direct *d, qmctx_done *done, void *opaque);

/* Reads in the control window.  0, or -1 with qmctx_error(). */
int qm_control_read(struct direct *d, void *buf, size_t count, uint64_t offset);

/* transport-direct.c: as qmctx_connect_plain(), but as a session, if the server is one
 * of QuickMine's and the URI names no export: it can be fenced then. */
int qm_direct_connect_any(const char *uri, unsigned connections, struct qmctx **ctx);

/* session.c */

/* Makes a connection that is not up.  first: of the instance's life.  connect_lock is
 * held, unless nobody knows the instance yet. */
int qm_direct_connect(struct direct *d, struct conn *conn, bool first);
/* As qmctx_reconnect(); if it fails, the next attempt is made to the next URI. */
int qm_direct_reconnect(struct direct *d);
/* From now on, connections are made to the next URI. */
void qm_direct_next(struct direct *d);
/* Whether requests are in flight, and how many have been answered. */
bool qm_direct_waits(struct direct *d, uint64_t *answered);
/* Whether the server greets another connection: 0, or -1 with errno.  ENOTCONN or
 * ECONNRESET: it was accepted, and closed. */
int qm_direct_greets(struct direct *d);
/* The plain connection, locked, and connected if need be.  NULL with qmctx_error(). */
struct conn *qm_plain_conn(struct direct *d);

/* Closes all connections; what is in flight fails with ENOTCONN.  Nothing connects by
 * itself until qmctx_reconnect() is called.  qm_direct_break() returns when they are
 * closed; qm_direct_shutdown() at once, and may be called in done(): a thread that
 * polls them sees the end, or qm_direct_break() does. */
void qm_direct_shutdown(struct direct *d);
void qm_direct_break(struct direct *d);
/* The same for good: whatever is connecting gives up, and nothing connects again. */
void qm_direct_end(struct direct *d);
/* Whether none of the connections has been closed by the server, but for those that it
 * did not take.  Does not wait. */
bool qm_direct_all_up(struct direct *d);
/* The identity of the server that was connected last, and our session there (0:
 * there is none, or no records can be written). */
void qm_direct_peer(struct direct *d, struct qm_peer_id *peer, uint64_t *session);

/* transport-attached.c: a transport's begin, end and thread_gone; of a direct instance,
 * or of one that is attached to it.  A frame is the context's id. */
int qm_stack_begin(struct qmctx *ctx, struct qm_thread *thread, enum qmctx_kind kind,
                   uint64_t klass, const char *name);
void qm_stack_end(struct qmctx *ctx, struct qm_thread *thread);
void qm_stack_gone(struct qmctx *ctx, struct qm_thread *thread);

/* Whether it sends requests, and so is the start of a struct direct. */
static inline bool qm_is_direct(const struct qmctx *ctx)
{
    return ctx->over == ctx;
}

static inline struct direct *qm_direct_of(struct qmctx *ctx)
{
    return (struct direct *)ctx;
}

#endif
