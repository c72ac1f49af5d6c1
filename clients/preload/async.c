/* SPDX-License-Identifier: BSD-3-Clause */
/* async.c - a request that a program has submitted and will be told of when it is done.
 *
 * Each part of an iovec is a request to the server of its own, all at once.
 */
#include <errno.h>

#include "clients/preload/async.h"
#include "clients/preload/patient.h"

static void part_done(void *opaque, int error)
{
    struct async *async = opaque;
    int none = 0;

    if (error)
        atomic_compare_exchange_strong(&async->error, &none, qm_route_error(error));
    if (atomic_fetch_sub(&async->parts, 1) > 1)
        return;
    error = atomic_load(&async->error);
    async->complete(async, error ? -error : async->bytes);
}

void qm_async_rw(struct async *async, struct file *file, bool write,
                 const struct iovec *iov, int count, off_t offset, int flags)
{
    ssize_t all = qm_io_total(iov, count);
    struct qm_device *device;
    qmctx_id context;
    size_t left, n;
    int err;
    QM_PATIENT();

    if (all != -1 && qm_io_flags(flags))
        all = qm_io_clamp(file, write, (size_t)all, offset, &device);
    else
        all = -1;
    if (all <= 0) {
        async->complete(async, all ? -errno : 0);
        return;
    }
    context = qmctx_current(qm_device_qmctx(device));
    async->bytes = all;
    atomic_init(&async->error, 0);
    atomic_init(&async->parts, 1); /* until all are started */
    for (left = (size_t)all; left > 0; left -= n, iov++) {
        n = iov->iov_len < left ? iov->iov_len : left;
        if (n == 0)
            continue;
        atomic_fetch_add(&async->parts, 1);
        err =
            qm_device_start(device, write, context, iov->iov_base, n, (uint64_t)offset,
                            write && qm_io_fua(file, flags), part_done, async);
        if (err) {
            part_done(async, err);
            break;
        }
        offset += (off_t)n;
    }
    part_done(async, 0);
}
