/* qmctx.h - tell the storage server which context causes a read.  See qmctx(3).
 *
 * Two ways ("carriers") for a context to get to the server, one interface:
 *
 *   qmctx_connect()   the program sends its requests itself, through this library, to
 *                     the tagged export of an NBD server
 *   qmctx_announce()  the program reads a file of `quickmine mount` with pread() and
 * the like; the contexts ride along with its threads
 *
 * Threads: every function may be called by any thread at any time, except that
 * qmctx_close() must be the last.  Contexts of qmctx_begin()/qmctx_end() belong to the
 * calling thread and nest.
 *
 * Errors: functions that return int return 0, or -1 with errno set, and a sentence in
 * qmctx_error().  Losing the server or the mount never makes qmctx_begin() or
 * qmctx_end() fail or wait: contexts are advice.
 */
#ifndef QMCTX_H
#define QMCTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

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
 * an export name (nbd://host, nbd+unix:///?socket=PATH, nbds://...).  connections: how
 * many, 1 to 64; 0: 8 if the server allows several, else 1.  The caller frees *ctx with
 * qmctx_close(). On failure *ctx is NULL, errno is set and qmctx_error() says why. */
int qmctx_connect(const char *uri, unsigned connections, struct qmctx **ctx);

/* Announces contexts to the mount whose socket is at path.  Succeeds even if no mount
 * is there (yet): it is tried again, at most once a second, when contexts begin. */
int qmctx_announce(const char *path, struct qmctx **ctx);

void qmctx_close(struct qmctx *ctx);

/* "direct" or "mount": the carrier, and whether it works just now. */
const char *qmctx_carrier(const struct qmctx *ctx);
bool qmctx_connected(const struct qmctx *ctx);

/* The calling thread's last error, as a sentence; never NULL. */
const char *qmctx_error(void);

/* Begins a context within the calling thread's current one, and makes it current.
 * klass: a hash of what contexts of this kind have in common.  name: for people, of the
 * class; may be NULL; copied. */
int qmctx_begin(struct qmctx *ctx, enum qmctx_kind kind, uint64_t klass,
                const char *name);
/* Ends the calling thread's current context; the one around it is current again.
 * EINVAL if there is none. */
int qmctx_end(struct qmctx *ctx);
/* Ends the calling thread's contexts down to depth (0: all). */
int qmctx_end_to(struct qmctx *ctx, unsigned depth);
/* How many contexts of the calling thread are open. */
unsigned qmctx_depth(struct qmctx *ctx);

/* The rest is for the direct carrier only (ENOTSUP else). */

/* The device, in bytes. */
uint64_t qmctx_size(const struct qmctx *ctx);
uint32_t qmctx_block_size(const struct qmctx *ctx);
bool qmctx_is_read_only(const struct qmctx *ctx);

/* Contexts by handle, for programs that multiplex.  When the session has no slot left,
 * the least recently used context that is not in use loses its own (its reads are
 * untagged from then on). */
int qmctx_open_context(struct qmctx *ctx, qmctx_id parent, enum qmctx_kind kind,
                       uint64_t klass, const char *name, qmctx_id *id);
int qmctx_close_context(struct qmctx *ctx, qmctx_id id);
/* The calling thread's current context, or 0. */
qmctx_id qmctx_current(struct qmctx *ctx);

/* Synchronous requests in a context (0: none).  EINVAL beyond the end.  fua: force unit
 * access. */
int qmctx_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                uint64_t offset);
int qmctx_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                 uint64_t offset, bool fua);
int qmctx_flush(struct qmctx *ctx);
/* Without NBD_FLAG_SEND_TRIM, or in the tagged view of a server, these write zeros. */
int qmctx_zero(struct qmctx *ctx, uint64_t count, uint64_t offset);
int qmctx_trim(struct qmctx *ctx, uint64_t count, uint64_t offset);

/* Asynchronous: done() is called once, from within some thread's qmctx_poll() or
 * synchronous call, with 0 or an errno value.  buf stays the caller's and must live
 * until then.  done() must not call back into the library. */
typedef void qmctx_done(void *opaque, int error);
int qmctx_aio_pread(struct qmctx *ctx, qmctx_id id, void *buf, size_t count,
                    uint64_t offset, qmctx_done *done, void *opaque);
int qmctx_aio_pwrite(struct qmctx *ctx, qmctx_id id, const void *buf, size_t count,
                     uint64_t offset, bool fua, qmctx_done *done, void *opaque);
/* Makes progress; waits at most timeout_ms (-1: for ever) for something to happen.
 * Returns how many requests are still in flight, or -1. */
int qmctx_poll(struct qmctx *ctx, int timeout_ms);

/* The server's statistics as JSON text, malloc()ed and terminated; NULL on error. */
char *qmctx_stats(struct qmctx *ctx);

/* Tries to connect again what is disconnected; contexts open meanwhile are
 * begun anew when they are used next.  Returns 0 if all connections are up. */
int qmctx_reconnect(struct qmctx *ctx);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
