/* io.c - reading and writing a routed file, as pread(2) and pwrite(2) say it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>

#include "client-patches/preload/io.h"
#include "client-patches/preload/patient.h"

#define MAX_COUNT 0x7ffff000 /* of one call; Linux's own limit */

static ssize_t refuse(int err)
{
    errno = err;
    return -1;
}

ssize_t qm_io_clamp(struct file *file, bool write, size_t count, off_t offset)
{
    int mode = atomic_load(&file->flags) & O_ACCMODE;
    uint64_t size = qm_route_size(file->route);

    if (mode == (write ? O_RDONLY : O_WRONLY))
        return refuse(EBADF);
    if (offset < 0)
        return refuse(EINVAL);
    if (count > MAX_COUNT)
        count = MAX_COUNT;
    if ((uint64_t)offset >= size)
        return write && count > 0 ? refuse(ENOSPC) : 0;
    return (ssize_t)(count < size - (uint64_t)offset ? count : size - (uint64_t)offset);
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
    ssize_t n = qm_io_clamp(file, write, count, offset);
    int err;
    QM_PATIENT();

    if (n <= 0)
        return n;
    err = write ? qm_route_write(file->route, buf, (size_t)n, (uint64_t)offset,
                                 qm_io_fua(file, flags))
                : qm_route_read(file->route, buf, (size_t)n, (uint64_t)offset);
    return err ? refuse(err) : n;
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

    if (all == -1 || qm_io_clamp(file, write, (size_t)all, offset) == -1)
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
    QM_PATIENT();

    return qm_route_flush(file->route, &file->losses);
}

int qm_io_allocate(struct file *file, int mode, off_t offset, off_t length)
{
    uint64_t end = qm_route_size(file->route), at = (uint64_t)offset,
             count = (uint64_t)length;
    bool inside = at <= end && count <= end - at;
    QM_PATIENT();

    if (offset < 0 || length <= 0)
        return EINVAL;
    if ((atomic_load(&file->flags) & O_ACCMODE) == O_RDONLY)
        return EBADF;
    switch (mode) {
    case 0:
    case FALLOC_FL_KEEP_SIZE:
        /* A device's blocks are all there. */
        return inside ? 0 : ENOSPC;
    case FALLOC_FL_ZERO_RANGE:
        return inside ? qm_route_zero(file->route, count, at) : ENOSPC;
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
        /* Nothing is to be done beyond the end. */
        if (at >= end)
            return 0;
        return qm_route_zero(file->route, inside ? count : end - at, at);
    default:
        return EOPNOTSUPP;
    }
}
