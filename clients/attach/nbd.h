/* SPDX-License-Identifier: BSD-3-Clause */
/* nbd.h - an NBD connection that is served from a device of libqmctx.
 *
 * The client is the kernel's, at the other end of a socket pair, or any other that has
 * shaken hands (handshake.h).  Nothing that it sends is believed: a request that makes
 * no sense is answered with an error, or, where the next request could not be found
 * after it, ends the connection.
 *
 * Requests are carried out at the same time, each by a thread, which also receives it:
 * one thread at a time receives, and the kernel wakes the next when there is more to be
 * received, so that no thread wakes another.  A connection has as many threads as it
 * has had requests at the same time, and one that waits, up to QM_NBD_THREADS.
 *
 * The kernel waits QM_NBD_* seconds for a reply, then closes the connection and sends
 * its requests again over the next one.  A request whose connection is closed is
 * therefore given up, as soon as that is possible.
 *
 * Threads: any.
 */
#ifndef QM_ATTACH_NBD_H
#define QM_ATTACH_NBD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clients/attach/attribution.h"
#include "clients/libqmctx/device.h"

#define QM_NBD_THREADS 64          /* of a connection */
#define QM_NBD_LONGEST (32u << 20) /* bytes of one read or write */

struct qm_nbd_device {
    struct qm_device *device;
    struct qm_attribution *whose; /* NULL: reads have no context */
    _Atomic uint64_t size;        /* bytes; not more than the device has; it may grow */
    bool read_only;
    /* If all connections are one client's: the number of the device's losses that it
     * has been told of.  NULL: each connection is a client of its own. */
    _Atomic unsigned *seen;
    /* With seen: a loss fails every flush until the owner sets *seen: the client has
     * several users, and does not say whose flush it is. */
    bool every_flush;
};

/* The transmission flags that the client gets (NBD_FLAG_*). */
uint16_t qm_nbd_flags(const struct qm_nbd_device *device);

struct qm_nbd;

/* Why a connection has ended. */
enum qm_nbd_end {
    QM_NBD_DISCONNECTED, /* the client said that it ends */
    QM_NBD_CLOSED,       /* it closed the connection, or it broke, or we stopped it */
    QM_NBD_NONSENSE,     /* it sent what is no request, or could not be received */
};

/* Serves fd, which becomes its own.  device outlives the connection.  ended() is called
 * once, by a thread of the connection, when fd has been shut down and all requests are
 * over; *nbd is not to be used any more after it.  Returns 0, or an errno value; then
 * fd is the caller's.
 *
 * *nbd is set before ended() can be called. */
int qm_nbd_serve(struct qm_nbd **nbd, int fd, const struct qm_nbd_device *device,
                 void (*ended)(void *opaque, enum qm_nbd_end how), void *opaque);
/* Closes the connection: what it has received and not answered is given up. */
void qm_nbd_stop(struct qm_nbd *nbd);

#endif
