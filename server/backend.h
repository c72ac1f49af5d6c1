/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.h - the server's connections to the layer below. */
#ifndef QMS_BACKEND_H
#define QMS_BACKEND_H

#include <nbdkit-filter.h>

#include "server/backing.h"

struct qms_server;

/* Finds out what the device is like: the server's size and max_bytes.  Returns the
 * connection that it took, for qms_backend_start() or qms_backend_close(); or NULL
 * after nbdkit_error(), also if nbdkit is to end before the layer below has opened it.
 * The calling thread must take signals. */
nbdkit_next *qms_backend_probe(struct qms_server *s);
void qms_backend_close(nbdkit_next *next);

/* Prefetches that share a connection where its requests run in parallel: NBD servers
 * carry out 16 of a connection at a time. */
enum { QMS_BACKEND_EACH = 16 };

/* How many connections there may be to prefetch over, at most. */
unsigned qms_backend_connections(const struct qms_server *s);

/* Opens the connections to prefetch over; first is one of them, and is taken, also on
 * failure.  NULL as qms_backing_start(). */
struct qms_backing *qms_backend_start(struct qms_server *s, nbdkit_next *first,
                                      int *error);

/* Flushes the layer below over a connection of its own, if that covers what others have
 * written.  Returns whether it has. */
bool qms_backend_flush(struct qms_server *s);

/* The largest read in bytes that the layer below takes, at least a block; or -1 after
 * nbdkit_error(). */
int64_t qms_backend_max_read(const struct qms_server *s, nbdkit_next *next);

#endif
