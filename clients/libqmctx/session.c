/* SPDX-License-Identifier: BSD-3-Clause */
/* session.c - connecting, and connecting again.
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

#include "direct.h"

enum { PLAIN_PAUSE_S = 30 }; /* after an attempt at the plain connection */

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
    /* A server that ends refuses what it is asked, and is asked again when it is back.
     */
    if (qm_handshake_read(d, nbd, &h, sizeof h, QM_WIRE_CONTROL) == -1)
        return errno == ETIMEDOUT || errno == ESHUTDOWN || !nbd_aio_is_ready(nbd)
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
    memcpy(header->volume, h.volume, sizeof header->volume);
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

/* Whether the device of the very server that was connected to is larger now.  Behind
 * another one it could be another device. */
static bool has_grown(const struct direct *d, const struct qm_wire_header *header)
{
    return d->may_grow && header->size > d->size && header->instance != 0 &&
           header->instance == d->peer.instance;
}

static bool is_known(const uint8_t volume[16])
{
    static const uint8_t unknown[16];

    return memcmp(volume, unknown, sizeof unknown) != 0;
}

/* Whether a server that is connected to again has what it had before; -1 with
 * qmctx_error(), if not. */
static int check_device(const struct direct *d, const struct qm_wire_header *header,
                        struct nbd_handle *nbd)
{
    bool read_only = (header->flags & QM_WIRE_READONLY) || nbd_is_read_only(nbd) == 1;
    char what[96];

    if (header->size != d->size && !has_grown(d, header))
        snprintf(what, sizeof what, "%" PRIu64 " bytes, not %" PRIu64, header->size,
                 atomic_load(&d->size));
    else if (is_known(d->volume) && is_known(header->volume) &&
             memcmp(header->volume, d->volume, sizeof d->volume) != 0)
        snprintf(what, sizeof what, "another volume of the same size");
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
    struct qm_wire_header header = {.size = 0};

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
    atomic_store(&d->size, header.size);
    if (!is_known(d->volume))
        memcpy(d->volume, header.volume, sizeof d->volume);
    d->ordered = header.flags & QM_WIRE_ORDERED;
    atomic_store(&d->takes_reads, (header.flags & QM_WIRE_HINTED) != 0);
    atomic_store(&d->takes_extents, (header.flags & QM_WIRE_TAKES_EXTENTS) != 0);
    atomic_store(&d->takes_owners, (header.flags & QM_WIRE_TAKES_OWNERS) != 0);
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

int qm_direct_connect(struct direct *d, struct conn *conn, bool first)
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
        int err = qm_conn_why(nbd, errno);

        qm_conn_opened(d);
        nbd_close(nbd);
        errno = err;
        return -1;
    }
    qm_conn_install(conn, nbd);
    qm_conn_opened(d);
    return 0;
}

/* Makes the connections that are not up.  Of those beyond the least, what the server
 * does not take is done without: it may have a limit, and other clients by now. */
static int connect_missing(struct direct *d)
{
    bool spared = false;

    for (unsigned i = 0; i < d->connections; i++) {
        struct conn *conn = &d->conn[i];

        if (!atomic_load(&conn->up) && !spared &&
            qm_direct_connect(d, conn, false) == -1) {
            if (i < d->least || !any_up(d))
                return -1;
            spared = true;
        }
        atomic_store(&conn->spared, !atomic_load(&conn->up));
    }
    return 0;
}

int qm_direct_reconnect(struct direct *d)
{
    int rc = 0;

    pthread_mutex_lock(&d->connect_lock);
    atomic_store(&d->broken, false);
    d->plain_at = 0;
    for (unsigned i = 0; i < d->connections; i++)
        qm_conn_probe(&d->conn[i]);
    if (atomic_load(&d->ending))
        rc = qm_fail(ENOTCONN, "the connection is being closed");
    if (rc == 0)
        rc = connect_missing(d);
    if (rc == -1)
        atomic_store(&d->uri, qm_uris_next(&d->uris));
    pthread_mutex_unlock(&d->connect_lock);
    return rc;
}

void qm_direct_next(struct direct *d)
{
    pthread_mutex_lock(&d->connect_lock);
    atomic_store(&d->uri, qm_uris_next(&d->uris));
    pthread_mutex_unlock(&d->connect_lock);
}

bool qm_direct_waits(struct direct *d, uint64_t *answered)
{
    bool waits = false;

    *answered = 0;
    for (unsigned i = 0; i < d->connections; i++) {
        struct conn *conn = &d->conn[i];

        pthread_mutex_lock(&conn->lock);
        waits = waits || (atomic_load(&conn->up) && conn->in_flight > 0);
        *answered += conn->answered;
        pthread_mutex_unlock(&conn->lock);
    }
    return waits;
}

int qm_direct_greets(struct direct *d)
{
    struct nbd_handle *nbd = NULL;
    int rc = -1;

    pthread_mutex_lock(&d->connect_lock);
    if (qm_conn_open(d, QM_WIRE_EXPORT, &nbd) == 0) {
        qm_conn_opened(d);
        nbd_close(nbd);
        rc = 0;
    }
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

    pthread_mutex_lock(&d->lock);
    session = d->session.id;
    pthread_mutex_unlock(&d->lock);
    if (d->peer.instance && session)
        snprintf(name, sizeof name, QM_WIRE_PLAIN_EXPORT "%016" PRIx64, session);
    if (qm_conn_open(d, name, &nbd) == -1)
        return -1;
    /* If it has grown just now, the other connections will learn that. */
    if (nbd_get_size(nbd) < (int64_t)d->size ||
        (nbd_get_size(nbd) > (int64_t)d->size && !(d->may_grow && *name))) {
        qm_conn_opened(d);
        nbd_close(nbd);
        return qm_fail(ESTALE, "%s: the plain export is of another size", d->uri);
    }
    qm_conn_install(conn, nbd);
    qm_conn_opened(d);
    return 0;
}

static time_t now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* The same, but not for each request that would use it: a server that takes no further
 * connection may leave it waiting for a greeting.  connect_lock is held. */
static int try_plain(struct direct *d, struct conn *conn)
{
    if (atomic_load(&d->broken) || atomic_load(&d->ending))
        return qm_fail(ENOTCONN, "not connected to the server");
    if (now_s() < d->plain_at)
        return qm_fail(EAGAIN, "%s: no further connection could be made", d->uri);
    if (connect_plain(d, conn) == 0)
        return 0;
    d->plain_at = now_s() + PLAIN_PAUSE_S;
    return -1;
}

struct conn *qm_plain_conn(struct direct *d)
{
    struct conn *conn = &d->plain;
    int rc;

    for (;;) {
        pthread_mutex_lock(&d->connect_lock);
        rc = qm_conn_probe(conn) ? 0 : try_plain(d, conn);
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
        up = (qm_conn_probe(&d->conn[i]) || atomic_load(&d->conn[i].spared)) && up;
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
