/* route.h - which paths are which servers' devices, and the way there.
 *
 * A route is connected when its file is first opened or asked for its size, and from
 * then on as long as the process lives.  When the server is gone, requests fail with
 * EIO; those that come later try to connect again, at most once a second.  In a child
 * process a route is connected anew.
 *
 * Functions return 0 or an errno value unless they say otherwise; any thread may call
 * them at any time.
 */
#ifndef QM_PRELOAD_ROUTE_H
#define QM_PRELOAD_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client-patches/libqmctx/qmctx.h"

struct route;

/* The route that a path is of, as openat(2) understands the two; or NULL.  Leaves errno
 * alone. */
struct route *qm_route_find(int dirfd, const char *path);
/* Whether there are any. */
bool qm_routes(void);

/* Connects if that has not been done yet. */
int qm_route_connect(struct route *route);

/* A number of its own, from 1. */
unsigned qm_route_number(const struct route *route);
const char *qm_route_path(const struct route *route);

/* The rest is for routes that have been connected. */

uint64_t qm_route_size(const struct route *route);
uint32_t qm_route_block_size(const struct route *route);
bool qm_route_is_read_only(const struct route *route);

/* Within the device; in the calling thread's current context. */
int qm_route_read(struct route *route, void *buf, size_t count, uint64_t offset);
int qm_route_write(struct route *route, const void *buf, size_t count, uint64_t offset,
                   bool fua);
int qm_route_zero(struct route *route, uint64_t count, uint64_t offset);
/* *seen is the caller's, of one open file: what qm_route_losses() was when it was
 * opened.  EIO, once, if since then a connection was lost with data that may not have
 * been on stable storage. */
int qm_route_flush(struct route *route, _Atomic unsigned *seen);
unsigned qm_route_losses(const struct route *route);

/* As qmctx_aio_pread() and qmctx_aio_pwrite(); done() may be called by any thread, also
 * before this returns, but only if 0 is returned.  The error that it is given is one of
 * the server's or of the connection: qm_route_failed() says what it is for a program.
 */
int qm_route_start(struct route *route, bool write, void *buf, size_t count,
                   uint64_t offset, bool fua, qmctx_done *done, void *opaque);
int qm_route_failed(struct route *route, int error);

#endif
