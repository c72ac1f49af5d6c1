/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-direct.c - the transport over which a program sends its own requests: its
 * life, and what it is.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "direct.h"

#define DEFAULT_CONNECTIONS 8
#define SERIAL_CONNECTIONS                                                             \
    32 /* QM_CONNECTIONS_DEVICE, if one serves a request at a time */

static void direct_forked(struct qmctx *ctx, struct qm_thread *thread)
{
    struct direct *d = qm_direct_of(ctx);

    for (unsigned i = 0; i <= d->connections; i++) {
        struct conn *conn = i < d->connections ? &d->conn[i] : &d->plain;
        int fd = atomic_load(&conn->fd);

        /* Otherwise the server would not see the parent's end.  libnbd has closed that
         * of a connection that is down, and its number may be the program's by now. */
        if (fd != -1 && atomic_load(&conn->up))
            qm_own_fd_close(fd, &conn->fd_own);
    }
    qm_conn_opening_forked(d);
}

static bool direct_connected(struct qmctx *ctx)
{
    struct direct *d = qm_direct_of(ctx);
    bool connected = false;

    for (unsigned i = 0; i < d->connections; i++)
        if (qm_conn_probe(&d->conn[i]))
            connected = true;
    return connected;
}

static void direct_free(struct direct *d)
{
    for (unsigned i = 0; i < MAX_CONNECTIONS; i++)
        if (d->conn[i].direct)
            qm_conn_destroy(&d->conn[i]);
    if (d->plain.direct)
        qm_conn_destroy(&d->plain);
    qm_contexts_free(d);
    free(d->session.slots);
    if (d->poll_wake != -1)
        close(d->poll_wake);
    pthread_cond_destroy(&d->poll_over);
    pthread_mutex_destroy(&d->poll_lock);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->connect_lock);
    qm_uris_free(&d->uris);
    free(d);
}

static void direct_close(struct qmctx *ctx)
{
    direct_free(qm_direct_of(ctx));
}

const struct qm_transport qm_transport_direct = {
    .name = "direct",
    .thread_bytes = sizeof(struct qm_thread),
    .frame_bytes = sizeof(qmctx_id),
    .connected = direct_connected,
    .begin = qm_stack_begin,
    .end = qm_stack_end,
    .thread_gone = qm_stack_gone,
    .forked = direct_forked,
    .close = direct_close,
};

/* An instance without connections; an errno value if that fails. */
static int direct_init(struct direct *d, const char *uri)
{
    pthread_condattr_t monotonic;
    int err;

    atomic_init(&d->making_fd, -1);
    pthread_mutex_init(&d->connect_lock, NULL);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->poll_lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&d->poll_over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    CDS_INIT_LIST_HEAD(&d->session.idle);
    d->poll_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (d->poll_wake == -1)
        return errno;
    err = qm_uris_init(&d->uris, uri);
    atomic_init(&d->uri, d->uris.list[0]);
    return err;
}

/* Has n connections, all but the first ones not connected yet. */
static int make(struct direct *d, unsigned n)
{
    for (int err; d->connections < n; d->connections++) {
        err = qm_conn_init(&d->conn[d->connections], d, true);
        if (err)
            return qm_fail(err, "no descriptors left: %s", strerror(err));
    }
    return 0;
}

/* Connects the first one, which says how many there can be. */
static int connect_first(struct direct *d)
{
    int err = qm_conn_init(&d->plain, d, false);

    if (err)
        return qm_fail(err, "no descriptors left: %s", strerror(err));
    if (make(d, 1) == -1)
        return -1;
    for (unsigned tried = 1; qm_direct_connect(d, &d->conn[0], true) == -1; tried++) {
        if (tried == d->uris.count)
            return -1;
        qm_direct_next(d);
    }
    return 0;
}

static int connect_all(struct direct *d, unsigned connections)
{
    d->least = 1;
    if (connect_first(d) == -1)
        return -1;
    if (!d->multi_conn)
        return 0;
    d->least = connections;
    if (connections == 0 || connections == QM_CONNECTIONS_DEVICE)
        d->least = DEFAULT_CONNECTIONS;
    if (connections != QM_CONNECTIONS_DEVICE)
        connections = d->least;
    else
        connections = d->ordered ? SERIAL_CONNECTIONS : DEFAULT_CONNECTIONS;
    /* All are made before the others are connected: when the server is another one by
     * the time of the second, all are broken off. */
    if (make(d, connections) == -1)
        return -1;
    for (unsigned i = 1; i < d->connections; i++) {
        if (qm_direct_connect(d, &d->conn[i], false) == 0)
            continue;
        /* The server may have a limit; or be gone. */
        if (i < d->least || !direct_connected(&d->base))
            return -1;
        d->connections = i;
    }
    return 0;
}

static int connect_to(const char *uri, unsigned connections, bool contextless, bool any,
                      struct qmctx **ctx)
{
    struct direct *d;
    int err;

    *ctx = NULL;
    if (!uri)
        return qm_fail(EINVAL, "no URI");
    if (connections > MAX_CONNECTIONS && connections != QM_CONNECTIONS_DEVICE)
        return qm_fail(EINVAL, "%u connections: 1 to %d, or 0 for the default",
                       connections, MAX_CONNECTIONS);
    d = calloc(1, sizeof *d);
    if (!d)
        return qm_fail(ENOMEM, "out of memory");
    d->poll_wake = -1;
    d->contextless = contextless;
    d->any = any;
    err = direct_init(d, uri);
    if (err) {
        direct_free(d);
        return err == E2BIG ? qm_fail(EINVAL, "more than %d URIs", QM_URIS_MAX)
                            : qm_fail(err, "no connection: %s", strerror(err));
    }
    d->base.over = &d->base;
    /* Before it connects, which takes time, in which the program may fork. */
    err = qm_register(&d->base, &qm_transport_direct);
    if (err) {
        direct_free(d);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    if (connect_all(d, connections) == -1) {
        err = errno;
        qm_unregister(&d->base);
        direct_free(d);
        errno = err;
        return -1;
    }
    *ctx = &d->base;
    return 0;
}

int qmctx_connect(const char *uri, unsigned connections, struct qmctx **ctx)
{
    return connect_to(uri, connections, false, false, ctx);
}

int qmctx_connect_plain(const char *uri, unsigned connections, struct qmctx **ctx)
{
    return connect_to(uri, connections, true, false, ctx);
}

int qm_direct_connect_any(const char *uri, unsigned connections, struct qmctx **ctx)
{
    return connect_to(uri, connections, true, true, ctx);
}

static struct direct *device(const struct qmctx *ctx)
{
    if (qm_is_direct(ctx))
        return (struct direct *)ctx;
    qm_fail(ENOTSUP, "only a direct connection knows the device");
    return NULL;
}

int qmctx_reconnect(struct qmctx *ctx)
{
    struct direct *d = qm_direct_of(ctx);

    if (!qm_is_direct(ctx))
        return qm_fail(ENOTSUP, "only a direct connection can be made again");
    if (qm_is_parents(ctx))
        return qm_fail(ENOTCONN, "the connection belongs to the parent process");
    return qm_direct_reconnect(d);
}

uint64_t qmctx_size(const struct qmctx *ctx)
{
    struct direct *d = device(ctx);

    return d ? d->size : 0;
}

uint32_t qmctx_block_size(const struct qmctx *ctx)
{
    struct direct *d = device(ctx);

    return d ? d->block_size : 0;
}

bool qmctx_is_read_only(const struct qmctx *ctx)
{
    struct direct *d = device(ctx);

    return d && d->read_only;
}

char *qmctx_stats(struct qmctx *ctx)
{
    struct direct *d = device(ctx);
    char *text, *shorter;

    if (!d)
        return NULL;
    if (d->contextless) {
        qm_fail(ENOTSUP, "statistics come by the tagged export only");
        return NULL;
    }
    if (qm_is_parents(ctx)) {
        qm_fail(ENOTCONN, "the connection belongs to the parent process");
        return NULL;
    }
    text = malloc(QM_WIRE_STATS_MAX + 1);
    if (!text) {
        qm_fail(ENOMEM, "out of memory for statistics");
        return NULL;
    }
    if (qm_control_read(d, text, QM_WIRE_STATS_MAX, QM_WIRE_STATS) == -1) {
        free(text);
        return NULL;
    }
    text[QM_WIRE_STATS_MAX] = '\0';
    shorter = realloc(text, strlen(text) + 1);
    return shorter ? shorter : text;
}

int qmctx_open_context(struct qmctx *ctx, qmctx_id parent, enum qmctx_kind kind,
                       uint64_t klass, const char *name, qmctx_id *id)
{
    struct direct *d = device(ctx);
    int err;

    *id = 0;
    if (!d)
        return -1;
    if (kind < QMCTX_CONNECTION || kind > QMCTX_QUERY)
        return qm_fail(EINVAL, "%d is no kind of context", (int)kind);
    if (qm_is_parents(ctx))
        return 0;
    err = qm_context_open(d, parent, kind, klass, name, id);
    return err ? qm_fail(err, "out of memory for a context") : 0;
}

int qmctx_close_context(struct qmctx *ctx, qmctx_id id)
{
    struct direct *d = device(ctx);

    if (!d)
        return -1;
    if (qm_is_parents(ctx))
        return 0;
    if (qm_context_close(d, id))
        return qm_fail(EINVAL, "no such context is open");
    return 0;
}

qmctx_id qmctx_current(struct qmctx *ctx)
{
    return device(ctx) && !qm_is_parents(ctx) ? qm_thread_current(ctx) : 0;
}
