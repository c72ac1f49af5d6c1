/* transport-direct.c - the transport over which a program sends its own requests:
 * connecting.
 *
 * The first connection reads the header, which begins a session; the others join it.
 * An export that refuses writes takes records as hints (qm_wire_hint()), which cannot
 * name a session: there each connection has its own.
 *
 * A session lives while one of its connections does.  So a connection that is made
 * again joins the others' session if there are others, and else begins a new one, in
 * which all contexts are begun anew when they are used.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "direct.h"

#define DEFAULT_CONNECTIONS 8

static int wrong_server(const struct direct *d, const char *what)
{
    return qm_fail(EPROTO,
                   "%s: no export \"" QM_WIRE_EXPORT "\" of a QuickMine server: %s",
                   d->uri, what);
}

/* Reads and checks the header, in this machine's byte order. */
static int read_header(struct direct *d, struct nbd_handle *nbd,
                       struct qm_wire_header *header)
{
    struct qm_wire_header h;
    uint32_t last;

    *header = (struct qm_wire_header){.magic = 0};
    if (nbd_get_size(nbd) < (int64_t)(QM_WIRE_CONTROL + sizeof h))
        return wrong_server(d, "it is too small");
    if (qm_handshake_read(d, nbd, &h, sizeof h, QM_WIRE_CONTROL) == -1)
        return errno == ETIMEDOUT || !nbd_aio_is_ready(nbd)
                   ? -1
                   : wrong_server(d, nbd_get_error());
    *header = (struct qm_wire_header){
        .magic = le64toh(h.magic),
        .version = le32toh(h.version),
        .flags = le32toh(h.flags),
        .size = le64toh(h.size),
        .block_size = le32toh(h.block_size),
        .slot_first = le32toh(h.slot_first),
        .slot_count = le32toh(h.slot_count),
        .session = le64toh(h.session),
        .instance = le64toh(h.instance),
    };
    memcpy(header->boot_id, h.boot_id, sizeof header->boot_id);
    if (header->magic != QM_WIRE_MAGIC)
        return wrong_server(d, "it has no header");
    if (header->version != QM_WIRE_VERSION)
        return wrong_server(d, "it speaks another version of the protocol");
    last = header->slot_first + header->slot_count - 1;
    if (header->size > QM_WIRE_OFFSET_MASK + 1 || header->block_size == 0 ||
        (header->slot_count > 0 &&
         (header->slot_first < QM_WIRE_SLOT_MIN || last > QM_WIRE_SLOT_MAX ||
          last < header->slot_first)))
        return wrong_server(d, "its header makes no sense");
    return 0;
}

static int session_failed(int err)
{
    return err ? qm_fail(err, "out of memory for a session") : 0;
}

/* What there is to know of a server of any kind: no contexts, no slots. */
static int read_no_header(struct direct *d, struct nbd_handle *nbd,
                          struct qm_wire_header *header)
{
    int64_t size = nbd_get_size(nbd), block;

    if (size < 0)
        return qm_fail(EPROTO, "%s: %s", d->uri, nbd_get_error());
    block = nbd_get_block_size(nbd, LIBNBD_SIZE_PREFERRED);
    *header = (struct qm_wire_header){
        .size = (uint64_t)size,
        .block_size = block > 0 && block <= UINT32_MAX ? (uint32_t)block : 4096,
    };
    return 0;
}

/* Whether a server that is connected to again has what it had before; -1 with
 * qmctx_error(), if not. */
static int check_device(const struct direct *d, const struct qm_wire_header *header,
                        struct nbd_handle *nbd)
{
    bool read_only = (header->flags & QM_WIRE_READONLY) || nbd_is_read_only(nbd) == 1;
    char what[96];

    if (header->size != d->size)
        snprintf(what, sizeof what, "%" PRIu64 " bytes, not %" PRIu64, header->size,
                 d->size);
    else if (header->block_size != d->block_size && !d->any_block_size)
        snprintf(what, sizeof what, "block size %" PRIu32 ", not %" PRIu32,
                 header->block_size, d->block_size);
    else if (read_only != d->read_only)
        snprintf(what, sizeof what, "%s",
                 read_only ? "read-only, not writable" : "writable, not read-only");
    else if (!d->contextless && d->hints != (nbd_is_read_only(nbd) == 1))
        snprintf(what, sizeof what, "contexts are announced %s",
                 d->hints ? "by writes, not by hints" : "by hints, not by writes");
    else if (d->connections > 1 && nbd_can_multi_conn(nbd) != 1)
        snprintf(what, sizeof what, "for one connection (no multi-conn), not %u",
                 d->connections);
    else
        return 0;
    return qm_fail(ESTALE, "%s: the server has another device now: %s", d->uri, what);
}

/* Makes the connection a member of a new session.  In the first one ever, learns what
 * the device is; in later ones it must be the same. */
static int begin_session(struct direct *d, struct conn *conn, struct nbd_handle *nbd,
                         bool first)
{
    struct qm_wire_header header;

    if ((d->contextless ? read_no_header : read_header)(d, nbd, &header) == -1)
        return -1;
    if (first) {
        d->size = header.size;
        d->block_size = header.block_size;
        d->read_only = (header.flags & QM_WIRE_READONLY) || nbd_is_read_only(nbd) == 1;
        d->hints = !d->contextless && nbd_is_read_only(nbd) == 1;
        d->size_known = true;
        for (unsigned i = 0; i < MAX_CONNECTIONS; i++)
            d->conn[i].session = d->hints ? &d->conn[i].own : &d->session;
    } else if (check_device(d, &header, nbd) == -1) {
        return -1;
    }
    d->ordered = header.flags & QM_WIRE_ORDERED;
    atomic_store(&d->multi_conn, nbd_can_multi_conn(nbd) == 1);
    atomic_store(&d->can_fua, nbd_can_fua(nbd) == 1);
    d->peer.instance = header.instance;
    memcpy(d->peer.boot_id, header.boot_id, sizeof d->peer.boot_id);
    /* Hints go by a command that a server need not have. */
    if (d->hints && nbd_can_cache(nbd) != 1)
        header.slot_count = 0;
    return session_failed(qm_session_start(d, conn->session, header.session,
                                           header.slot_first, header.slot_count));
}

/* Makes the connection another member of the session that there is. */
static int join_session(struct direct *d, struct nbd_handle *nbd)
{
    struct qm_wire_record record = {.op = htole32(QM_WIRE_JOIN)};

    pthread_mutex_lock(&d->lock);
    record.session = htole64(d->session.id);
    pthread_mutex_unlock(&d->lock);
    if (record.session == 0)
        return 0;
    if (qm_handshake_write(d, nbd, &record, sizeof record, QM_WIRE_CONTROL) == -1)
        return errno == ETIMEDOUT || !nbd_aio_is_ready(nbd)
                   ? -1
                   : wrong_server(d, nbd_get_error());
    return 0;
}

static bool any_up(struct direct *d)
{
    for (unsigned i = 0; i < d->connections; i++)
        if (atomic_load(&d->conn[i].up))
            return true;
    return false;
}

/* Connects again what is not; connect_lock is held. */
static int connect_one(struct direct *d, struct conn *conn, bool first)
{
    struct nbd_handle *nbd;
    int rc;

    if (qm_conn_open(d, QM_WIRE_EXPORT, &nbd) == -1)
        return -1;
    if (!first && !d->hints && !d->contextless && any_up(d)) {
        rc = join_session(d, nbd);
        if (rc == -1 && nbd_aio_is_ready(nbd)) {
            /* The server knows the session no more, so it does not know the other
             * connections either: they only look as if they were up. */
            for (unsigned i = 0; i < d->connections; i++)
                qm_conn_break(&d->conn[i]);
            rc = begin_session(d, conn, nbd, false);
        }
    } else {
        rc = begin_session(d, conn, nbd, first);
    }
    if (rc == -1) {
        nbd_close(nbd);
        return -1;
    }
    qm_conn_install(conn, nbd);
    return 0;
}

int qmctx_reconnect(struct qmctx *ctx)
{
    struct direct *d = qm_direct_of(ctx);
    int rc = 0;

    if (ctx->transport != &qm_transport_direct)
        return qm_fail(ENOTSUP, "only a direct connection can be made again");
    if (qm_is_parents(ctx))
        return qm_fail(ENOTCONN, "the connection belongs to the parent process");
    pthread_mutex_lock(&d->connect_lock);
    atomic_store(&d->broken, false);
    for (unsigned i = 0; i < d->connections; i++)
        qm_conn_probe(&d->conn[i]);
    if (atomic_load(&d->ending))
        rc = qm_fail(ENOTCONN, "the connection is being closed");
    for (unsigned i = 0; i < d->connections && rc == 0; i++)
        if (!atomic_load(&d->conn[i].up))
            rc = connect_one(d, &d->conn[i], false);
    pthread_mutex_unlock(&d->connect_lock);
    return rc;
}

/* The plain connection is a member of the session, if the server can have that: so it
 * is fenced with it.  connect_lock is held. */
static int connect_plain(struct direct *d, struct conn *conn)
{
    char name[sizeof QM_WIRE_PLAIN_EXPORT + 16] = "";
    struct nbd_handle *nbd;
    uint64_t session;

    if (atomic_load(&d->broken) || atomic_load(&d->ending))
        return qm_fail(ENOTCONN, "not connected to the server");
    pthread_mutex_lock(&d->lock);
    session = d->session.id;
    pthread_mutex_unlock(&d->lock);
    if (d->peer.instance && session)
        snprintf(name, sizeof name, QM_WIRE_PLAIN_EXPORT "%016" PRIx64, session);
    if (qm_conn_open(d, name, &nbd) == -1)
        return -1;
    if (nbd_get_size(nbd) != (int64_t)d->size) {
        nbd_close(nbd);
        return qm_fail(ESTALE, "%s: the plain export is of another size", d->uri);
    }
    qm_conn_install(conn, nbd);
    return 0;
}

struct conn *qm_plain_conn(struct direct *d)
{
    struct conn *conn = &d->plain;
    int rc;

    for (;;) {
        pthread_mutex_lock(&d->connect_lock);
        rc = qm_conn_probe(conn) ? 0 : connect_plain(d, conn);
        pthread_mutex_unlock(&d->connect_lock);
        if (rc == -1)
            return NULL;
        pthread_mutex_lock(&conn->lock);
        if (atomic_load(&conn->up))
            return conn;
        pthread_mutex_unlock(&conn->lock);
    }
}

/* --- for the device --- */

void qm_direct_shutdown(struct direct *d)
{
    atomic_store(&d->broken, true);
    for (unsigned i = 0; i < d->connections; i++)
        qm_conn_shutdown(&d->conn[i]);
    qm_conn_shutdown(&d->plain);
}

void qm_direct_break(struct direct *d)
{
    atomic_store(&d->broken, true);
    for (unsigned i = 0; i < d->connections; i++)
        qm_conn_break(&d->conn[i]);
    qm_conn_break(&d->plain);
}

void qm_direct_end(struct direct *d)
{
    atomic_store(&d->ending, true);
    /* A thread that was connecting has finished by the time this lock is free. */
    pthread_mutex_lock(&d->connect_lock);
    pthread_mutex_unlock(&d->connect_lock);
    qm_direct_break(d);
}

bool qm_direct_all_up(struct direct *d)
{
    bool up = true;

    for (unsigned i = 0; i < d->connections; i++)
        up = qm_conn_probe(&d->conn[i]) && up;
    return up;
}

void qm_direct_peer(struct direct *d, struct qm_peer_id *peer, uint64_t *session)
{
    pthread_mutex_lock(&d->connect_lock);
    *peer = d->peer;
    pthread_mutex_lock(&d->lock);
    *session = d->contextless || d->hints ? 0 : d->session.id;
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&d->connect_lock);
}

static void direct_forked(struct qmctx *ctx, struct qm_thread *thread)
{
    struct direct *d = qm_direct_of(ctx);

    for (unsigned i = 0; i <= d->connections; i++) {
        struct conn *conn = i < d->connections ? &d->conn[i] : &d->plain;
        int fd = atomic_load(&conn->fd);

        /* Otherwise the server would not see the parent's end.  libnbd has closed that
         * of a connection that is down, and its number may be the program's by now. */
        if (fd != -1 && atomic_load(&conn->up))
            close(fd);
    }
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
    free(d->uri);
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
    d->uri = strdup(uri);
    return d->uri ? 0 : ENOMEM;
}

/* Makes the connections: the first, which says how many more there can be, and those.
 */
static int connect_all(struct direct *d, unsigned connections)
{
    int err;

    /* All are made before any is connected: when the server is another one by the time
     * of the second, all are broken off. */
    d->connections = 0;
    for (unsigned i = 0; i < (connections ? connections : DEFAULT_CONNECTIONS); i++) {
        err = qm_conn_init(&d->conn[i], d, true);
        if (err)
            return qm_fail(err, "no descriptors left: %s", strerror(err));
        d->connections++;
    }
    err = qm_conn_init(&d->plain, d, false);
    if (err)
        return qm_fail(err, "no descriptors left: %s", strerror(err));
    connections = d->connections;
    d->connections = 1;
    for (unsigned i = 0; i < d->connections; i++) {
        if (connect_one(d, &d->conn[i], i == 0) == -1)
            return -1;
        if (i == 0 && d->multi_conn)
            d->connections = connections;
    }
    return 0;
}

static int connect_to(const char *uri, unsigned connections, bool contextless,
                      struct qmctx **ctx)
{
    struct direct *d;
    int err;

    *ctx = NULL;
    if (!uri)
        return qm_fail(EINVAL, "no URI");
    if (connections > MAX_CONNECTIONS)
        return qm_fail(EINVAL, "%u connections: 1 to %d, or 0 for the default",
                       connections, MAX_CONNECTIONS);
    d = calloc(1, sizeof *d);
    if (!d)
        return qm_fail(ENOMEM, "out of memory");
    d->poll_wake = -1;
    d->contextless = contextless;
    err = direct_init(d, uri);
    if (err) {
        direct_free(d);
        return qm_fail(err, "no connection: %s", strerror(err));
    }
    if (connect_all(d, connections) == -1) {
        err = errno;
        direct_free(d);
        errno = err;
        return -1;
    }
    d->base.over = d;
    err = qm_register(&d->base, &qm_transport_direct);
    if (err) {
        direct_free(d);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    *ctx = &d->base;
    return 0;
}

int qmctx_connect(const char *uri, unsigned connections, struct qmctx **ctx)
{
    return connect_to(uri, connections, false, ctx);
}

int qmctx_connect_plain(const char *uri, unsigned connections, struct qmctx **ctx)
{
    return connect_to(uri, connections, true, ctx);
}

static struct direct *device(const struct qmctx *ctx)
{
    if (ctx->transport == &qm_transport_direct)
        return (struct direct *)ctx;
    qm_fail(ENOTSUP, "only a direct connection knows the device");
    return NULL;
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
