/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - reads, writes and the like over the direct transport.
 *
 * A request goes over the connection of its context's tree, or, without a context, over
 * the connections in turn; one that is larger than the server takes goes in parts.
 * What the tagged export does not do (zero, trim) goes over the plain one, but only if
 * the server lets several connections write (multi-conn), and takes one more: else
 * zeros are written, and what was to be trimmed stays.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"

#define ZERO_STEP (UINT64_C(1) << 30) /* bytes of one zero or trim request */

static int check(struct qmctx *ctx)
{
    if (!qm_is_direct(ctx))
        return qm_fail(ENOTSUP, "only a direct connection carries requests");
    if (qm_is_parents(ctx))
        return qm_fail(ENOTCONN, "the connection belongs to the parent process");
    return 0;
}

static int check_range(struct direct *d, uint64_t count, uint64_t offset, bool write)
{
    uint64_t size = atomic_load(&d->size);

    if (offset > size || count > size - offset)
        return qm_fail(EINVAL, "%llu bytes at %llu: beyond the device's %llu",
                       (unsigned long long)count, (unsigned long long)offset,
                       (unsigned long long)size);
    if (write && d->read_only)
        return qm_fail(EROFS, "the device is read-only");
    return 0;
}

static int not_connected(void)
{
    return qm_fail(ENOTCONN, "not connected to the server");
}

/* The connection for a request in context id, locked; *slot and *context as of
 * qm_context_tag().  NULL with qmctx_error(). */
static struct conn *prepare(struct direct *d, qmctx_id id, int *slot,
                            struct context **context)
{
    struct conn *conn;

    if (d->any)
        id = 0; /* contexts have no effect on any server */
    for (;;) {
        conn = qm_context_conn(d, id);
        if (!conn) {
            not_connected();
            return NULL;
        }
        *slot = qm_context_tag(conn, id, context);
        if (*slot >= 0)
            return conn;
        pthread_mutex_unlock(&conn->lock);
    }
}

static void issue_all(struct request *request, enum command command, char *buf,
                      uint64_t count, uint64_t offset, uint32_t flags, uint64_t step)
{
    uint64_t n;

    for (; count > 0 && !request->error; count -= n) {
        n = count < step ? count : step;
        qm_conn_issue(request, command, buf, n, offset, flags);
        offset += n;
        if (buf)
            buf += n;
    }
    qm_conn_issued(request);
}

/* Makes a request over conn, which is locked, and waits for it; unlocks conn. */
static int transfer(struct conn *conn, struct context *context, enum command command,
                    void *buf, uint64_t count, uint64_t offset, uint32_t flags,
                    bool then_flush)
{
    struct request request;
    uint64_t epoch = conn->epoch;
    uint64_t step =
        command == CMD_READ || command == CMD_WRITE ? conn->max_payload : ZERO_STEP;

    qm_request_init(&request, conn);
    qm_context_hold(&request, context);
    if (command == CMD_FLUSH) {
        qm_conn_issue(&request, command, NULL, 0, 0, 0);
        qm_conn_issued(&request);
    } else {
        issue_all(&request, command, buf, count, offset, flags, step);
    }
    qm_conn_wait(&request);
    if (then_flush && !request.error &&
        (!atomic_load(&conn->up) || conn->epoch != epoch)) {
        /* The server that has the write, but has not flushed it, is gone. */
        request.error = ENOTCONN;
    } else if (then_flush && !request.error) {
        qm_request_init(&request, conn);
        qm_conn_issue(&request, CMD_FLUSH, NULL, 0, 0, 0);
        qm_conn_issued(&request);
        qm_conn_wait(&request);
    }
    pthread_mutex_unlock(&conn->lock);
    qm_conn_finish(conn);
    if (request.error == ENOTCONN)
        return qm_fail(ENOTCONN, "the connection broke");
    if (request.error)
        return qm_fail(request.error, "the server: %s", strerror(request.error));
    return 0;
}

static uint64_t tagged_offset(int slot, uint64_t offset)
{
    return (uint64_t)slot << QM_WIRE_SHIFT | offset;
}

int qmctx_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                uint64_t offset)
{
    struct direct *d = qm_direct_of(ctx);
    struct context *context;
    struct conn *conn;
    int slot;

    if (check(ctx) == -1 || check_range(d, count, offset, false) == -1)
        return -1;
    if (count == 0)
        return 0;
    conn = prepare(d, id, &slot, &context);
    if (!conn)
        return -1;
    return transfer(conn, context, CMD_READ, buf, count, tagged_offset(slot, offset), 0,
                    false);
}

int qmctx_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                 uint64_t offset, bool fua)
{
    struct direct *d = qm_direct_of(ctx);
    struct context *context;
    struct conn *conn;
    int slot;

    if (check(ctx) == -1 || check_range(d, count, offset, true) == -1)
        return -1;
    if (count == 0)
        return 0;
    conn = prepare(d, id, &slot, &context);
    if (!conn)
        return -1;
    /* Without FUA a flush does the same; without that, nothing is ever volatile. */
    return transfer(conn, context, CMD_WRITE, (void *)buf, count,
                    tagged_offset(slot, offset),
                    fua && conn->can_fua ? LIBNBD_CMD_FLAG_FUA : 0,
                    fua && !conn->can_fua && conn->can_flush);
}

int qmctx_flush(struct qmctx *ctx)
{
    struct direct *d = qm_direct_of(ctx);
    struct conn *conn;

    if (check(ctx) == -1)
        return -1;
    conn = qm_context_conn(d, 0);
    if (!conn)
        return not_connected();
    if (conn->can_flush)
        return transfer(conn, NULL, CMD_FLUSH, NULL, 0, 0, 0, false);
    /* Nothing that was written over these connections is volatile, if anything was. */
    pthread_mutex_unlock(&conn->lock);
    return 0;
}

static int write_zeros(struct qmctx *ctx, uint64_t count, uint64_t offset)
{
    static const char zeros[64 << 10];
    size_t n;

    /* Cut where blocks end, so that each is zeroed as a whole, or not at all. */
    for (; count > 0; count -= n, offset += n) {
        n = sizeof zeros - offset % sizeof zeros;
        if (n > count)
            n = (size_t)count;
        if (qmctx_pwrite(ctx, 0, zeros, n, offset, false) == -1)
            return -1;
    }
    return 0;
}

/* The plain connection, locked, if there is one and the server takes that command over
 * it; else NULL: it may have as many connections as it takes, or be about to end. Those
 * that there are say whether it is there. */
static struct conn *conn_for(struct direct *d, enum command command)
{
    struct conn *conn = d->multi_conn ? qm_plain_conn(d) : NULL;

    if (!conn || (command == CMD_TRIM ? conn->can_trim : conn->can_zero))
        return conn;
    pthread_mutex_unlock(&conn->lock);
    return NULL;
}

int qmctx_zero(struct qmctx *ctx, uint64_t count, uint64_t offset)
{
    struct direct *d = qm_direct_of(ctx);
    struct conn *conn;

    if (check(ctx) == -1 || check_range(d, count, offset, true) == -1)
        return -1;
    if (count == 0)
        return 0;
    conn = conn_for(d, CMD_ZERO);
    if (!conn)
        return write_zeros(ctx, count, offset);
    return transfer(conn, NULL, CMD_ZERO, NULL, count, offset, 0, false);
}

int qmctx_trim(struct qmctx *ctx, uint64_t count, uint64_t offset)
{
    struct direct *d = qm_direct_of(ctx);
    struct conn *conn;

    if (check(ctx) == -1 || check_range(d, count, offset, true) == -1)
        return -1;
    if (count == 0)
        return 0;
    conn = conn_for(d, CMD_TRIM);
    /* It is advice.  Zeros written in its place would fill a thin volume. */
    if (!conn)
        return 0;
    return transfer(conn, NULL, CMD_TRIM, NULL, count, offset, 0, false);
}

static int start(struct direct *d, qmctx_id id, enum command command, void *buf,
                 size_t count, uint64_t offset, bool fua, qmctx_done *done,
                 void *opaque)
{
    struct request *request = malloc(sizeof *request);
    struct context *context;
    struct conn *conn;
    int slot;

    if (!request)
        return qm_fail(ENOMEM, "out of memory for a request");
    conn = prepare(d, id, &slot, &context);
    if (!conn) {
        free(request);
        return -1;
    }
    qm_request_init(request, conn);
    qm_context_hold(request, context);
    qm_conn_async(request, done, opaque);
    if (command == CMD_FLUSH && conn->can_flush)
        qm_conn_issue(request, command, NULL, 0, 0, 0);
    issue_all(request, command, buf, count, tagged_offset(slot, offset),
              fua ? LIBNBD_CMD_FLAG_FUA : 0, conn->max_payload);
    pthread_mutex_unlock(&conn->lock);
    return 0;
}

int qmctx_aio_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                    uint64_t offset, qmctx_done *done, void *opaque)
{
    struct direct *d = qm_direct_of(ctx);

    if (check(ctx) == -1 || check_range(d, count, offset, false) == -1)
        return -1;
    return start(d, id, CMD_READ, buf, count, offset, false, done, opaque);
}

int qmctx_aio_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                     uint64_t offset, bool fua, qmctx_done *done, void *opaque)
{
    struct direct *d = qm_direct_of(ctx);

    if (check(ctx) == -1 || check_range(d, count, offset, true) == -1)
        return -1;
    if (fua && !d->can_fua)
        return qm_fail(ENOTSUP, "the server has no FUA: flush after the write");
    return start(d, id, CMD_WRITE, (void *)buf, count, offset, fua, done, opaque);
}

int qmctx_poll(struct qmctx *ctx, int timeout_ms)
{
    if (check(ctx) == -1)
        return -1;
    return qm_poll(qm_direct_of(ctx), timeout_ms);
}

int qm_control_read(struct direct *d, void *buf, size_t count, uint64_t offset)
{
    struct conn *conn = qm_context_conn(d, 0);

    if (!conn)
        return not_connected();
    return transfer(conn, NULL, CMD_READ, buf, count, QM_WIRE_CONTROL + offset, 0,
                    false);
}

/* --- for the device --- */

int qm_direct_fence(struct direct *d, uint64_t session)
{
    struct qm_wire_record record = {
        .op = htole32(QM_WIRE_FENCE),
        .session = htole64(session),
    };
    struct conn *conn = qm_context_conn(d, 0);

    if (!conn)
        return not_connected();
    return transfer(conn, NULL, CMD_WRITE, &record, sizeof record, QM_WIRE_CONTROL, 0,
                    false);
}

int qm_direct_own(struct direct *d, const uint8_t owner[QM_WIRE_OWNER_SIZE])
{
    struct qm_wire_own record = {.op = htole32(QM_WIRE_OWN)};
    struct qm_peer_id peer;
    struct conn *conn;
    uint64_t session;

    qm_direct_peer(d, &peer, &session);
    if (!atomic_load(&d->takes_owners) || session == 0)
        return 0;
    record.session = htole64(session);
    memcpy(record.owner, owner, sizeof record.owner);
    conn = qm_context_conn(d, 0);
    if (!conn)
        return not_connected();
    return transfer(conn, NULL, CMD_WRITE, &record, sizeof record, QM_WIRE_CONTROL, 0,
                    false);
}

int qm_direct_ping(struct direct *d, bool busy, uint64_t *size_now)
{
    uint64_t offset = d->contextless ? 0 : QM_WIRE_CONTROL;
    struct qm_wire_header header = {.magic = 0};
    int rc = 0;

    *size_now = 0;
    if (d->contextless && d->size < sizeof header)
        return 0;
    for (unsigned i = 0; i < d->connections; i++) {
        struct conn *conn = &d->conn[i];

        pthread_mutex_lock(&conn->lock);
        if (atomic_load(&conn->up) && (busy || conn->in_flight == 0)) {
            rc = transfer(conn, NULL, CMD_READ, &header, sizeof header, offset, 0,
                          false);
            break;
        }
        pthread_mutex_unlock(&conn->lock);
    }
    if (rc == 0 && !d->contextless && le64toh(header.magic) == QM_WIRE_MAGIC)
        *size_now = le64toh(header.size_now);
    return rc;
}

int qm_direct_aio_flush(struct direct *d, qmctx_done *done, void *opaque)
{
    return start(d, 0, CMD_FLUSH, NULL, 0, 0, false, done, opaque);
}
