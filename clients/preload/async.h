/* SPDX-License-Identifier: BSD-3-Clause */
/* async.h - a request that a program has submitted and will be told of when it is done:
 * what libaio and io_uring have in common.
 */
#ifndef QM_PRELOAD_ASYNC_H
#define QM_PRELOAD_ASYNC_H

#include "clients/preload/io.h"

/* Embedded in what its owner knows about the request. */
struct async {
    ssize_t bytes;          /* that are transferred if all goes well */
    _Atomic unsigned parts; /* not done yet */
    _Atomic int error;      /* the first */
    /* Called once, by any thread, also before qm_async_rw() returns: bytes, or an errno
     * value below 0. */
    void (*complete)(struct async *async, ssize_t result);
};

/* Starts to transfer; async->complete is set.  iov itself, not what it points to, may
 * go when this returns. */
void qm_async_rw(struct async *async, struct file *file, bool write,
                 const struct iovec *iov, int count, off_t offset, int flags);

#endif
