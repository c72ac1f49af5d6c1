/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.c - telling the server of reads that are made over another connection, and of
 * where files lie.
 *
 * The former records go over the instance's one connection, in the order in which
 * contexts begin and end on it.  If the server carries out requests in order
 * (QM_WIRE_ORDERED) nothing is waited for; else each record is answered before the next
 * is sent.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"

/* Records that the server has not answered: more are not sent, since it does not get on
 * with them. */
#define UNANSWERED_MOST 1024

/* A record, and the contexts that it names. */
struct told {
    struct request request;
    bool waited; /* for its reply: by whom that frees it */
    unsigned count;
    struct context *contexts[QM_WIRE_READS_MAX]; /* NULL: none */
    struct qm_wire_reads record;
};

static void told_ended(struct request *request)
{
    struct told *t = caa_container_of(request, struct told, request);

    for (unsigned i = 0; i < t->count; i++)
        if (t->contexts[i])
            qm_context_release(request->conn->direct, t->contexts[i]);
    if (!t->waited)
        free(t);
}

/* Sends the record; conn.lock is held. */
static void send_told(struct conn *conn, struct told *t)
{
    t->record.op = htole32(QM_WIRE_READS);
    t->record.count = htole16((uint16_t)t->count);
    t->record.session = htole64(conn->session->id);
    qm_request_init(&t->request, conn);
    t->request.ended = told_ended;
    t->waited = !conn->ordered;
    conn->unattended++;
    qm_conn_issue(&t->request, CMD_WRITE, &t->record, sizeof t->record, QM_WIRE_CONTROL,
                  0);
    qm_conn_issued(&t->request);
    if (!conn->ordered) {
        qm_conn_wait(&t->request);
        free(t);
    }
}

/* Tells of n reads, at most QM_WIRE_READS_MAX; conn.lock is held. */
static int tell(struct conn *conn, const struct qmctx_read *reads, unsigned n)
{
    struct told *t = calloc(1, sizeof *t);
    uint64_t epoch = conn->epoch;

    if (!t)
        return qm_fail(ENOMEM, "out of memory");
    for (unsigned i = 0; i < n; i++) {
        int slot = qm_context_tag(conn, reads[i].id, &t->contexts[i]);

        t->record.reads[i].where =
            htole64((uint64_t)(slot > 0 ? slot : 0) << QM_WIRE_SHIFT |
                    (reads[i].offset & QM_WIRE_OFFSET_MASK));
        t->record.reads[i].length = htole32(reads[i].length);
        t->count++;
    }
    /* qm_context_tag() lets go of the lock for servers that are not in order. */
    if (conn->epoch != epoch) {
        t->request.conn = conn;
        told_ended(&t->request);
        return qm_fail(ENOTCONN, "the connection to the server was lost");
    }
    send_told(conn, t);
    return 0;
}

static int check(struct direct *d)
{
    if (!qm_is_direct(&d->base))
        return qm_fail(ENOTSUP, "only a direct connection tells of reads");
    if (qm_is_parents(&d->base))
        return qm_fail(ENOTCONN, "the connection belongs to the parent process");
    if (d->connections != 1)
        return qm_fail(ENOTSUP, "reads are told of over one connection, not %u",
                       d->connections);
    if (!atomic_load(&d->takes_reads) || d->hints)
        return qm_fail(ENOTSUP, "this server does not take what is told of reads");
    return 0;
}

int qmctx_tell_reads(struct qmctx *ctx, const struct qmctx_read *reads, size_t n)
{
    struct direct *d = (struct direct *)ctx;
    struct conn *conn;
    int r = check(d);

    for (size_t i = 0; r == 0 && i < n; i++)
        if (reads[i].length == 0 || reads[i].length > QM_WIRE_READ_BYTES)
            r = qm_fail(EINVAL, "a read of %u bytes: 1 to %u can be told of",
                        reads[i].length, (unsigned)QM_WIRE_READ_BYTES);
    if (r == -1)
        return r;
    conn = qm_context_conn(d, 0);
    if (!conn)
        return qm_fail(ENOTCONN, "not connected to the server");
    qm_conn_drain(conn);
    if (n > 0 && conn->in_flight >= UNANSWERED_MOST)
        r = qm_fail(EAGAIN, "the server does not answer what it was told");
    while (r == 0 && n > 0) {
        unsigned some = n < QM_WIRE_READS_MAX ? (unsigned)n : QM_WIRE_READS_MAX;

        r = tell(conn, reads, some);
        reads += some;
        n -= some;
    }
    qm_conn_drain(conn);
    pthread_mutex_unlock(&conn->lock);
    qm_conn_finish(conn);
    return r;
}

static bool is_extent(const struct qmctx_extent *e)
{
    const uint64_t end = QM_WIRE_OFFSET_MASK + 1;

    return e->offset % 512 == 0 && e->length % 512 == 0 && e->length > 0 &&
           e->offset < end && e->length <= end - e->offset;
}

/* Fills in records, from extents[*at] on, each of which begins with the last extent of
 * the one before.  Returns how many; *at is n if there are no more. */
static size_t pack(struct qm_wire_extents *records, uint64_t session,
                   const struct qmctx_extent *extents, size_t n, size_t *at)
{
    size_t filled = 0;

    while (filled < QM_WIRE_EXTENTS_RECORDS && *at < n) {
        struct qm_wire_extents *r = &records[filled++];
        size_t some = n - *at < QM_WIRE_EXTENTS_MAX ? n - *at : QM_WIRE_EXTENTS_MAX;

        memset(r, 0, sizeof *r);
        r->op = htole32(QM_WIRE_EXTENTS);
        r->count = htole16((uint16_t)some);
        r->session = htole64(session);
        for (size_t i = 0; i < some; i++) {
            r->extents[i].offset = htole64(extents[*at + i].offset);
            r->extents[i].length = htole64(extents[*at + i].length);
        }
        *at += *at + some < n ? some - 1 : some;
    }
    return filled;
}

/* Sends what fits into one request. */
static int tell_some(struct direct *d, struct qm_wire_extents *records,
                     const struct qmctx_extent *extents, size_t n, size_t *at)
{
    struct conn *conn = qm_context_conn(d, 0);
    struct request request;
    size_t filled;

    if (!conn)
        return qm_fail(ENOTCONN, "not connected to the server");
    filled = pack(records, conn->session->id, extents, n, at);
    qm_request_init(&request, conn);
    qm_conn_issue(&request, CMD_WRITE, records, filled * sizeof *records,
                  QM_WIRE_CONTROL, 0);
    qm_conn_issued(&request);
    qm_conn_wait(&request);
    pthread_mutex_unlock(&conn->lock);
    qm_conn_finish(conn);
    if (request.error == ENOTCONN)
        return qm_fail(ENOTCONN, "the connection broke");
    if (request.error)
        return qm_fail(request.error, "the server: %s", strerror(request.error));
    return 0;
}

int qmctx_tell_extents(struct qmctx *ctx, const struct qmctx_extent *extents, size_t n)
{
    struct direct *d = (struct direct *)ctx;
    struct qm_wire_extents *records;
    size_t at = 0;
    int r = 0;

    if (!qm_is_direct(&d->base))
        return qm_fail(ENOTSUP, "only a direct connection tells where files lie");
    if (qm_is_parents(&d->base))
        return qm_fail(ENOTCONN, "the connection belongs to the parent process");
    if (!atomic_load(&d->takes_extents) || d->hints)
        return qm_fail(ENOTSUP, "this server does not take where files lie");
    for (size_t i = 0; i < n; i++)
        if (!is_extent(&extents[i]))
            return qm_fail(EINVAL,
                           "%llu bytes at %llu are no extent: both must be multiples "
                           "of 512, the length not 0, and the end at most 2^48",
                           (unsigned long long)extents[i].length,
                           (unsigned long long)extents[i].offset);
    records = malloc(QM_WIRE_EXTENTS_RECORDS * sizeof *records);
    if (!records)
        return qm_fail(ENOMEM, "out of memory");
    while (r == 0 && at < n)
        r = tell_some(d, records, extents, n, &at);
    free(records);
    return r;
}
