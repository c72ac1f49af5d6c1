/* SPDX-License-Identifier: BSD-3-Clause */
/* io.c - reading and writing a routed file, as pread(2) and pwrite(2) say it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#include "clients/preload/io.h"
#include "clients/preload/patient.h"

static ssize_t refuse(int err)
{
    errno = err;
    return -1;
}

static bool may(const struct file *file, bool write)
{
    return (atomic_load(&file->flags) & O_ACCMODE) != (write ? O_RDONLY : O_WRONLY);
}

ssize_t qm_io_clamp(struct file *file, bool write, size_t count, off_t offset,
                    struct qm_device **device)
{
    ssize_t n;

    if (!may(file, write))
        return refuse(EBADF);
    *device = qm_route_device(file->route);
    if (!*device)
        return -1;
    n = qm_device_clamp(*device, write, count, offset);
    return n < 0 ? refuse((int)-n) : n;
}

bool qm_io_flags(int flags)
{
    if (!(flags & ~(RWF_DSYNC | RWF_SYNC | RWF_HIPRI)))
        return true;
    errno = EOPNOTSUPP;
    return false;
}

bool qm_io_fua(struct file *file, int flags)
{
    /* O_SYNC includes O_DSYNC. */
    return (flags & (RWF_DSYNC | RWF_SYNC)) || (atomic_load(&file->flags) & O_DSYNC);
}

ssize_t qm_io_rw(struct file *file, bool write, void *buf, size_t count, off_t offset,
                 int flags)
{
    struct qm_device *device;
    ssize_t n = qm_io_clamp(file, write, count, offset, &device);
    qmctx_id context;
    int err;
    QM_PATIENT();

    if (n <= 0)
        return n;
    context = qmctx_current(qm_device_qmctx(device));
    err = write
              ? qm_device_write(device, NULL, context, buf, (size_t)n, (uint64_t)offset,
                                qm_io_fua(file, flags))
              : qm_device_read(device, NULL, context, buf, (size_t)n, (uint64_t)offset);
    return err ? refuse(qm_route_error(err)) : n;
}

ssize_t qm_io_total(const struct iovec *iov, int count)
{
    size_t total = 0;

    if (count < 0 || count > IOV_MAX)
        return refuse(EINVAL);
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > SSIZE_MAX - total)
            return refuse(EINVAL);
        total += iov[i].iov_len;
    }
    return (ssize_t)total;
}

ssize_t qm_io_rwv(struct file *file, bool write, const struct iovec *iov, int count,
                  off_t offset, int flags)
{
    ssize_t all = qm_io_total(iov, count), total = 0, n;
    struct qm_device *device;

    if (all == -1 || qm_io_clamp(file, write, (size_t)all, offset, &device) == -1)
        return -1;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len == 0)
            continue;
        n = qm_io_rw(file, write, iov[i].iov_base, iov[i].iov_len, offset + total,
                     flags);
        if (n == -1)
            return total > 0 ? total : -1;
        total += n;
        if ((size_t)n < iov[i].iov_len)
            break;
    }
    return total;
}

int qm_io_flush(struct file *file)
{
    struct qm_device *device = qm_route_device(file->route);
    QM_PATIENT();

    return device ? qm_route_error(qm_device_flush(device, NULL, &file->losses))
                  : errno;
}

int qm_io_allocate(struct file *file, int mode, off_t offset, off_t length)
{
    struct qm_device *device;
    int err;
    QM_PATIENT();

    if (offset < 0 || length <= 0)
        return EINVAL;
    if (!may(file, true))
        return EBADF;
    device = qm_route_device(file->route);
    if (!device)
        return errno;
    err = qm_device_allocate(device, NULL, mode, offset, length);
    return err == EOPNOTSUPP ? err : qm_route_error(err);
}
