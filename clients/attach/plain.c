/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.c - see plain.h. */
#include "clients/attach/plain.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libnbd.h>
#include <linux/nbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "clients/protocol/peer-watch.h"
#include "clients/protocol/quickmine-protocol.h"

#define LOOK_MS 200   /* while the server is waited for */
#define STEP_MS 30000 /* each step after its greeting */

/* What linux/nbd.h has not got in all versions. */
#define CAN_MULTI_CONN (1u << 8)

static int failure(char *err, size_t len)
{
    const char *text = nbd_get_error();
    int error = nbd_get_errno();

    snprintf(err, len, "%s", text ? text : "the server ended the connection");
    return error ? error : EIO;
}

static uint16_t flags_of(struct nbd_handle *nbd)
{
    unsigned flags = NBD_FLAG_HAS_FLAGS;

    if (nbd_is_read_only(nbd) == 1)
        flags |= NBD_FLAG_READ_ONLY;
    if (nbd_can_flush(nbd) == 1)
        flags |= NBD_FLAG_SEND_FLUSH;
    if (nbd_can_fua(nbd) == 1)
        flags |= NBD_FLAG_SEND_FUA;
    if (nbd_can_trim(nbd) == 1)
        flags |= NBD_FLAG_SEND_TRIM;
    if (nbd_can_multi_conn(nbd) == 1)
        flags |= CAN_MULTI_CONN;
    return (uint16_t)flags;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* What is waited for; 0: it has not come yet. */
static int has_answered(struct nbd_handle *nbd, uint64_t cookie)
{
    return nbd_aio_is_connecting(nbd) == 0;
}

static int has_completed(struct nbd_handle *nbd, uint64_t cookie)
{
    return nbd_aio_command_completed(nbd, cookie);
}

/* Returns 0 when done() does, or an errno value with a sentence. */
static int await(struct nbd_handle *nbd, const struct qm_plain_terms *terms,
                 unsigned ms, int (*done)(struct nbd_handle *nbd, uint64_t cookie),
                 uint64_t cookie, char *err, size_t len)
{
    const int64_t end = now_ms() + ms;
    int r;

    while ((r = done(nbd, cookie)) == 0) {
        if (!terms->goes_on(terms->opaque)) {
            snprintf(err, len, "told to end while the server was waited for");
            return EINTR;
        }
        if (now_ms() >= end) {
            snprintf(err, len, "the server did not answer for %u seconds", ms / 1000);
            return ETIMEDOUT;
        }
        if (nbd_poll(nbd, LOOK_MS) == -1)
            return failure(err, len);
    }
    return r == -1 ? failure(err, len) : 0;
}

/* Connects, and stops where the export is to be chosen. */
static int greet(struct nbd_handle *nbd, const char *uri,
                 const struct qm_plain_terms *terms, char *err, size_t len)
{
    int error;

    /* No strict mode: the tagged export is larger than what libnbd thinks possible. */
    if (nbd_set_strict_mode(nbd, 0) == -1 || nbd_set_opt_mode(nbd, true) == -1 ||
        nbd_aio_connect_uri(nbd, uri) == -1)
        return failure(err, len);
    error = await(nbd, terms, terms->greeting_ms, has_answered, 0, err, len);
    if (error != 0)
        return error;
    /* An old server leaves no choice. */
    return nbd_aio_is_negotiating(nbd) == 1 || nbd_aio_is_ready(nbd) == 1
               ? 0
               : failure(err, len);
}

/* Goes to the export that was chosen. */
static int go(struct nbd_handle *nbd, const struct qm_plain_terms *terms, char *err,
              size_t len)
{
    int error;

    if (nbd_aio_opt_go(nbd, NBD_NULL_COMPLETION) == -1)
        return failure(err, len);
    error = await(nbd, terms, STEP_MS, has_answered, 0, err, len);
    return error != 0 ? error : nbd_aio_is_ready(nbd) == 1 ? 0 : failure(err, len);
}

/* Connects to the export of that name in place of none; NULL: to what the URI says. */
static int connect_export(struct nbd_handle *nbd, const char *uri, const char *export,
                          const struct qm_plain_terms *terms, char *err, size_t len)
{
    int error;

    if (nbd_set_request_structured_replies(nbd, false) == -1)
        return failure(err, len);
    error = greet(nbd, uri, terms, err, len);
    if (error != 0)
        return error;
    if (!export && nbd_aio_is_ready(nbd) == 1)
        return 0;
    /* A URI sets the name of the export, to "" if it says none. */
    if (export && nbd_set_export_name(nbd, export) == -1)
        return failure(err, len);
    return go(nbd, terms, err, len);
}

static int connect_to(struct nbd_handle *nbd, const char *uri, const char *export,
                      const struct qm_plain_terms *terms, struct qm_plain *plain,
                      char *err, size_t len)
{
    int error = connect_export(nbd, uri, export, terms, err, len);
    int64_t size;

    if (error != 0)
        return error;
    if ((size = nbd_get_size(nbd)) == -1)
        return failure(err, len);
    if (nbd_get_tls_negotiated(nbd) != 0) {
        snprintf(err, len, "the kernel's NBD driver has no TLS: use --transport join");
        return EPROTO;
    }
    plain->size = (uint64_t)size;
    plain->flags = flags_of(nbd);
    plain->fd = fcntl(nbd_aio_get_fd(nbd), F_DUPFD_CLOEXEC, 0);
    if (plain->fd == -1 || fcntl(plain->fd, F_SETFL, 0) == -1) {
        snprintf(err, len, "no descriptor is left");
        return EMFILE;
    }
    qm_watch_peer(plain->fd, terms->silence_ms);
    return 0;
}

int qm_plain_connect(const char *uri, uint64_t session,
                     const struct qm_plain_terms *terms, struct qm_plain *plain,
                     char *err, size_t len)
{
    char name[sizeof QM_WIRE_PLAIN_EXPORT + 16];
    struct nbd_handle *nbd = nbd_create();
    int error;

    snprintf(name, sizeof name, QM_WIRE_PLAIN_EXPORT "%016" PRIx64, session);
    plain->fd = -1;
    error =
        nbd ? connect_to(nbd, uri, session != 0 ? name : NULL, terms, plain, err, len)
            : failure(err, len);
    /* It closes its descriptor, and says nothing to the server. */
    nbd_close(nbd);
    return error;
}

/* Whether the URI leaves the choice of the export to us. */
static bool names_no_export(struct nbd_handle *nbd)
{
    char *name = nbd_get_export_name(nbd);
    bool none = name && *name == '\0';

    free(name);
    return none;
}

/* What the server says of the session; an error means that it has none, unless the wait
 * for it ended otherwise. */
static int ask_session(struct nbd_handle *nbd, const struct qm_plain_terms *terms,
                       struct qm_wire_header *header, char *err, size_t len)
{
    int64_t cookie;
    int error = go(nbd, terms, err, len);

    if (error != 0)
        return error;
    qm_watch_peer(nbd_aio_get_fd(nbd), QM_SILENCE_MS);
    cookie = nbd_aio_pread(nbd, header, sizeof *header, QM_WIRE_CONTROL,
                           NBD_NULL_COMPLETION, 0);
    if (cookie == -1)
        return failure(err, len);
    return await(nbd, terms, STEP_MS, has_completed, (uint64_t)cookie, err, len);
}

int qm_plain_session_open(const char *uri, const struct qm_plain_terms *terms,
                          struct qm_plain_session *session, char *err, size_t len)
{
    struct qm_wire_header header = {0};
    struct nbd_handle *nbd = nbd_create();
    int error = nbd ? greet(nbd, uri, terms, err, len) : failure(err, len);

    *session = (struct qm_plain_session){0};
    if (error == 0 && nbd_aio_is_negotiating(nbd) == 1 && names_no_export(nbd) &&
        nbd_set_export_name(nbd, QM_WIRE_EXPORT) == 0) {
        error = ask_session(nbd, terms, &header, err, len);
        if (error == 0 && le64toh(header.magic) == QM_WIRE_MAGIC &&
            header.session != 0) {
            session->nbd = nbd;
            session->id = le64toh(header.session);
            return 0;
        }
        if (error != EINTR && error != ETIMEDOUT)
            error = 0;
    }
    nbd_close(nbd);
    return error;
}

void qm_plain_session_close(struct qm_plain_session *session)
{
    nbd_close(session->nbd);
    *session = (struct qm_plain_session){0};
}

int qm_plain_session_fence(struct qm_plain_session *session, uint64_t old,
                           bool (*goes_on)(void *opaque), void *opaque, char *err,
                           size_t len)
{
    struct qm_wire_record fence = {.op = htole32(QM_WIRE_FENCE),
                                   .session = htole64(old)};
    int64_t cookie;
    int done;

    if (old == 0 || !session->nbd)
        return 0;
    cookie = nbd_aio_pwrite(session->nbd, &fence, sizeof fence, QM_WIRE_CONTROL,
                            NBD_NULL_COMPLETION, 0);
    if (cookie == -1)
        return failure(err, len);
    while ((done = nbd_aio_command_completed(session->nbd, (uint64_t)cookie)) == 0) {
        if (!goes_on(opaque)) {
            snprintf(err, len, "the server still carries out what was sent before");
            return EINTR;
        }
        if (nbd_poll(session->nbd, LOOK_MS) == -1)
            return failure(err, len);
    }
    return done == 1 ? 0 : failure(err, len);
}
