/* SPDX-License-Identifier: BSD-3-Clause */
/* qmctx.h - tell the storage server which context causes a read.  See qmctx(3).
 *
 * Three ways (transports) for a context to get to the server, one interface:
 *
 *   qmctx_connect()   the program sends its requests itself, through this library, to
 *                     the tagged export of an NBD server
 *   qmctx_announce()  the program reads files with pread() and the like; the contexts
 *                     ride along with its threads.  The files are on an NBD device of a
 *                     patched kernel, or it is one file of `quickmine mount`
 *
 * And where one part of a program sends the requests of another, qmctx_attach() lets
 * the other begin contexts for them.
 *
 * Threads: every function may be called by any thread at any time, except that
 * qmctx_close() must be the last.  Contexts of qmctx_begin()/qmctx_end() belong to the
 * calling thread and nest; those that are open when the thread exits end then.
 *
 * Errors: functions that return int return 0, or -1 with errno set, and a sentence in
 * qmctx_error().  Losing the server or the mount never makes qmctx_begin() or
 * qmctx_end() fail or wait: contexts are advice.
 *
 * fork(): what a child inherits is disconnected for good.  There, contexts do nothing,
 * requests fail with ENOTCONN, and qmctx_close() leaves the parent's memory alone.
 */
#ifndef QMCTX_H
#define QMCTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct qmctx;

enum qmctx_kind {
    QMCTX_CONNECTION = 1,
    QMCTX_THREAD = 2,
    QMCTX_TRANSACTION = 3,
    QMCTX_QUERY = 4,
};

/* A context that is not bound to a thread; 0 is "no context". */
typedef uint64_t qmctx_id;

/* Connects to an NBD server's tagged export.  uri is as in nbd_connect_uri(3), without
 * an export name (nbd://host, nbd+unix:///?socket=PATH, nbds://...); what it says of
 * local files (certificates, keys) is believed.  connections: how many, 1 to 64; 0: 8.
 * If the server does not offer multi-conn there is one, whatever was asked for.  The
 * caller frees *ctx with qmctx_close().  On failure *ctx is NULL and errno is set:
 * EINVAL (an argument), EPROTO (no QuickMine server), or why it cannot be reached. */
int qmctx_connect(const char *uri, unsigned connections, struct qmctx **ctx);

/* The same to the export that the URI names, of an NBD server of any kind: requests
 * work, contexts do nothing.  For programs that make their requests by this library and
 * are to run without QuickMine as well. */
int qmctx_connect_plain(const char *uri, unsigned connections, struct qmctx **ctx);

/* Announces the contexts of threads.  where:
 *
 *   "kernel"           to the kernel, which has to be a patched one (quickmine-ctx(7)):
 *                      else ENOSYS, and *ctx is NULL
 *   "agent"            to `quickmine agent` at its default socket, or, as "agent:PATH",
 *                      at another.  Succeeds even if none is there (yet).  One such
 *                      instance a process: else EBUSY
 *   a socket's path    to the mount whose socket that is, whatever the kernel has.
 *                      Succeeds even if no mount is there (yet), or setfsgid(2) is not
 *                      allowed: then qmctx_connected() is false and qmctx_error() says
 *                      why.  A mount that is not there is looked for again, at most
 *                      once a second, when contexts begin.  Waits at most a second, for
 *                      a mount that is slow to answer.
 *   NULL               where QMCTX_TRANSPORT in the environment says, in these words;
 *                      if it is not set, where QMCTX_CARRIER says, its old name;
 *                      or else to the kernel
 *
 * EINVAL: a path that is empty or too long. */
int qmctx_announce(const char *where, struct qmctx **ctx);

/* For a part of the program that begins contexts but leaves it to another, which has
 * the direct connection to, to send the requests: the contexts of *ctx are those of
 * to's requests that name the same thread's qmctx_current().  *ctx is closed before to
 * is. EINVAL if to is not direct. */
int qmctx_attach(struct qmctx *to, struct qmctx **ctx);

/* Ends all contexts, and waits for what is in flight as long as replies come (a second
 * each); what remains is given up, with ENOTCONN for its done().  ctx may be NULL.  No
 * other thread may be using ctx.  Over the mount's transport, end contexts of other
 * threads first: nobody but the thread itself can set its fsgid back. */
void qmctx_close(struct qmctx *ctx);

/* "direct", "mount", "kernel", "agent", "attached" or "record": the transport, and
 * whether it works just now (direct: at least one connection is up; kernel: always).
 * Does not wait. */
const char *qmctx_transport(const struct qmctx *ctx);
/* qmctx_transport() by its old name, which will go. */
__attribute__((deprecated("use qmctx_transport()"))) const char *
qmctx_carrier(const struct qmctx *ctx);
bool qmctx_connected(const struct qmctx *ctx);

/* The calling thread's last error, as a sentence; never NULL. */
const char *qmctx_error(void);

/* Begins a context within the calling thread's current one, and makes it current.
 * klass: a hash of what contexts of this kind have in common.  name: for people, of the
 * class, UTF-8; may be NULL; copied; cut to 439 bytes, or 199 (mount).  The
 * server hears of it when something is read or written in it, not before.  EINVAL (no
 * such kind) or ENOMEM. */
int qmctx_begin(struct qmctx *ctx, enum qmctx_kind kind, uint64_t klass,
                const char *name);
/* Ends the calling thread's current context; the one around it is current again.
 * EINVAL if there is none. */
int qmctx_end(struct qmctx *ctx);
/* Ends the calling thread's contexts down to depth (0: all). */
int qmctx_end_to(struct qmctx *ctx, unsigned depth);
/* How many contexts of the calling thread are open. */
unsigned qmctx_depth(struct qmctx *ctx);

/* For processes that work for each other (parallel workers of a database); agent's
 * transport only.  A number that stands for the calling thread's current context in
 * qmctx_begin_shared() of another process, as long as the context is open; or 0. */
uint64_t qmctx_shared_id(struct qmctx *ctx);
/* Begins, as the calling thread's current context, the one that the id stands for in
 * that process, which has the same user: what is read in it, and contexts within it,
 * are that context's.  If it is not open any more, they are in none.  ENOTSUP over
 * other transports; EINVAL: no such number. */
int qmctx_begin_shared(struct qmctx *ctx, pid_t process, uint64_t id);

/* The rest is for the direct transport only (ENOTSUP else). */

/* The device: its bytes, the server's cache block in bytes, whether it can be written.
 */
uint64_t qmctx_size(const struct qmctx *ctx);
uint32_t qmctx_block_size(const struct qmctx *ctx);
bool qmctx_is_read_only(const struct qmctx *ctx);

/* Contexts by handle, for programs that multiplex.  parent: 0, or the context around
 * it; one that has ended counts as 0.  When the session has no slot left, the least
 * recently used context in which nothing is in flight ends at the server, and begins
 * there anew when it is used again. */
int qmctx_open_context(struct qmctx *ctx, qmctx_id parent, enum qmctx_kind kind,
                       uint64_t klass, const char *name, qmctx_id *id);
/* Ends the context, and what is nested in it.  EINVAL if it is not open. */
int qmctx_close_context(struct qmctx *ctx, qmctx_id id);
/* The calling thread's current context, begun here or in an attached instance; or 0. */
qmctx_id qmctx_current(struct qmctx *ctx);

/* Synchronous requests in a context (0, or one that has ended: none).  Any count; one
 * larger than the server takes goes in parts.  EINVAL beyond the device's end, EROFS,
 * ENOTCONN (no connection; it broke), or the server's error.  fua: force unit access.
 * buf's contents after a failed read are undefined. */
int qmctx_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                uint64_t offset);
int qmctx_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                 uint64_t offset, bool fua);
/* All earlier writes, over any connection, are on stable storage when it returns. */
int qmctx_flush(struct qmctx *ctx);
/* The range reads as zeros from now on.  May make holes; where the server cannot zero,
 * writes zeros. */
int qmctx_zero(struct qmctx *ctx, uint64_t count, uint64_t offset);
/* The range is not needed any more; what it reads as is undefined.  Where the server
 * cannot trim, nothing is done. */
int qmctx_trim(struct qmctx *ctx, uint64_t count, uint64_t offset);

/* Asynchronous: done() is called once for each request that was accepted (0 was
 * returned), from within some thread's qmctx_poll() or synchronous call on this
 * instance, or qmctx_close(), with 0 or an errno value.  buf stays the caller's and
 * must live until then.  done() may start further asynchronous requests, but nothing
 * that waits.  Requests in one context are sent in order.  ENOTSUP: fua is asked for
 * and the server does not have it. */
typedef void qmctx_done(void *opaque, int error);
int qmctx_aio_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                    uint64_t offset, qmctx_done *done, void *opaque);
int qmctx_aio_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                     uint64_t offset, bool fua, qmctx_done *done, void *opaque);
/* Makes progress; waits at most timeout_ms (-1: for ever) for something to happen, and
 * not at all if nothing is in flight.  May come back early.  Returns how many requests
 * are still in flight, or -1. */
int qmctx_poll(struct qmctx *ctx, int timeout_ms);

/* A read that is made another way, over a plain connection to the same server: by the
 * kernel's own NBD driver, for example. */
struct qmctx_read {
    qmctx_id id;     /* the context that it is made in; 0: none */
    uint64_t offset; /* bytes */
    uint32_t length; /* bytes, 1 to 2 MiB */
};

/* Tells the server of n such reads, in the order in which they are made, so that it can
 * learn and prefetch.  Waits for the server only if it does not carry out a
 * connection's requests in order.  ctx has one connection.  ENOTSUP: it has more, or
 * the server does not take this.  EAGAIN: the server does not answer; nothing was sent.
 * Hints that a busy server does not take at once are sent by the next call; n may be 0.
 */
int qmctx_tell_reads(struct qmctx *ctx, const struct qmctx_read *reads, size_t n);

/* Adjacent bytes of the device that a file has, in multiples of 512, below 2^48. */
struct qmctx_extent {
    uint64_t offset, length;
};

/* Tells the server that a file has these n extents, in the order of the file, so that
 * it reads ahead across them.  Waits for the server.  EINVAL: one is no extent.
 * ENOTSUP: the server does not take this. */
int qmctx_tell_extents(struct qmctx *ctx, const struct qmctx_extent *extents, size_t n);

/* The server's statistics as JSON text, malloc()ed and terminated; NULL on error. */
char *qmctx_stats(struct qmctx *ctx);

/* Tries to connect again what is disconnected; contexts open meanwhile are begun anew
 * when they are used next.  Returns 0 if all connections are up.  ESTALE if the server
 * has another device now (size, block size, or whether it can be written).  May wait
 * for the network; how often it is tried is the caller's to limit. */
int qmctx_reconnect(struct qmctx *ctx);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
