/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.h - connections to a server's plain export, for the kernel to use by itself.
 *
 * The handshake is libnbd's; afterwards nothing of it is left but the socket, over
 * which requests come next, with simple replies, as the kernel's client wants them.
 *
 * Of a QuickMine server they can be members of a session, which a connection of our own
 * keeps: so what a connection that has ended left at the server can be fenced before
 * the kernel sends it again.
 *
 * Threads: one session at a time is used by one thread.
 */
#ifndef QM_ATTACH_PLAIN_H
#define QM_ATTACH_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_plain {
    int fd; /* the caller's */
    uint64_t size;
    uint16_t flags; /* NBD_FLAG_*, as the kernel takes them */
};

struct nbd_handle;
struct qm_plain_session {
    struct nbd_handle *nbd; /* NULL: none */
    uint64_t id;            /* 0: none */
};

/* How long to wait for a server, and what for. */
struct qm_plain_terms {
    unsigned greeting_ms; /* until it greets */
    unsigned
        silence_ms; /* of a peer over TCP that acknowledges nothing, or takes no more
                       bytes, after which the connection ends; 0: the system's */
    /* Called some times a second; false: this returns EINTR. */
    bool (*goes_on)(void *opaque);
    void *opaque;
};

/* A session of its own at the server.  Returns 0, or an errno value with a sentence in
 * err.  A server that has none, or a URI that names an export, is no error: then the
 * session's id is 0. */
int qm_plain_session_open(const char *uri, const struct qm_plain_terms *terms,
                          struct qm_plain_session *session, char *err, size_t len);
/* Ends it, if there is one.  Its plain connections go on. */
void qm_plain_session_close(struct qm_plain_session *session);
/* Over this session: the one with the number `old` must end.  Returns 0 when its
 * changes have ended, or an errno value with a sentence.  That takes as long as the
 * server's storage does: goes_on() is called some times a second meanwhile, and if it
 * says false, this returns EINTR.  old 0: nothing to do. */
int qm_plain_session_fence(struct qm_plain_session *session, uint64_t old,
                           bool (*goes_on)(void *opaque), void *opaque, char *err,
                           size_t len);

/* A connection, a member of the session if that is not 0.  Returns 0, or an errno value
 * with a sentence in err.  EPROTO: the URI asks for TLS, which the kernel has not got.
 * ETIMEDOUT: the server does not greet in time, or does not answer for 30 seconds.  TCP
 * notices within 10 seconds that the server's machine is gone if nothing is under way,
 * and after silence_ms if something is. */
int qm_plain_connect(const char *uri, uint64_t session,
                     const struct qm_plain_terms *terms, struct qm_plain *plain,
                     char *err, size_t len);

#endif
