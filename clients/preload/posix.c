/* SPDX-License-Identifier: BSD-3-Clause */
/* posix.c - the C library's functions that take a descriptor, on routed files.
 *
 * Each is the C library's own unless the descriptor is routed.  Those that have a
 * position (read, write, lseek) move it under the file's lock, as the kernel does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clients/preload/io.h"
#include "clients/preload/next.h"
#include "clients/preload/record.h"
#include "clients/preload/say.h"

_Static_assert(sizeof(off_t) == 8, "f and f64 are the same function");

static int result(int err)
{
    if (!err)
        return 0;
    errno = err;
    return -1;
}

/* --- at an offset --- */

INTERPOSED ssize_t pread(int fd, void *buf, size_t count, off_t offset)
{
    QM_FILE(file, fd);

    return file ? qm_io_rw(file, false, buf, count, offset, 0)
                : qm_record(fd, false, offset, NEXT(pread)(fd, buf, count, offset));
}

INTERPOSED ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)
{
    QM_FILE(file, fd);

    return file ? qm_io_rw(file, true, (void *)buf, count, offset, 0)
                : qm_record(fd, true, offset, NEXT(pwrite)(fd, buf, count, offset));
}

INTERPOSED ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
    QM_FILE(file, fd);

    return file ? qm_io_rwv(file, false, iov, count, offset, 0)
                : qm_record(fd, false, offset, NEXT(preadv)(fd, iov, count, offset));
}

INTERPOSED ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    QM_FILE(file, fd);

    return file ? qm_io_rwv(file, true, iov, count, offset, 0)
                : qm_record(fd, true, offset, NEXT(pwritev)(fd, iov, count, offset));
}

/* --- at the file's position --- */

/* n bytes were read or written, and the position is behind them. */
static ssize_t moved(int fd, bool write, ssize_t n)
{
    return n > 0 && qm_is_recorded(fd)
               ? qm_record(fd, write, NEXT(lseek)(fd, 0, SEEK_CUR) - n, n)
               : n;
}

/* Where the next byte goes; the file's lock is held. */
static off_t position(struct file *file, bool write)
{
    return write && (atomic_load(&file->flags) & O_APPEND)
               ? (off_t)qm_route_size(file->route)
               : file->at;
}

static ssize_t rw_at(struct file *file, bool write, const struct iovec *iov, int count,
                     int flags)
{
    ssize_t n;
    off_t at;

    pthread_mutex_lock(&file->lock);
    at = position(file, write);
    n = qm_io_rwv(file, write, iov, count, at, flags);
    if (n > 0)
        file->at = at + n;
    pthread_mutex_unlock(&file->lock);
    return n;
}

INTERPOSED ssize_t read(int fd, void *buf, size_t count)
{
    QM_FILE(file, fd);
    struct iovec iov = {buf, count};

    return file ? rw_at(file, false, &iov, 1, 0)
                : moved(fd, false, NEXT(read)(fd, buf, count));
}

INTERPOSED ssize_t write(int fd, const void *buf, size_t count)
{
    QM_FILE(file, fd);
    struct iovec iov = {(void *)buf, count};

    return file ? rw_at(file, true, &iov, 1, 0)
                : moved(fd, true, NEXT(write)(fd, buf, count));
}

INTERPOSED ssize_t readv(int fd, const struct iovec *iov, int count)
{
    QM_FILE(file, fd);

    return file ? rw_at(file, false, iov, count, 0)
                : moved(fd, false, NEXT(readv)(fd, iov, count));
}

INTERPOSED ssize_t writev(int fd, const struct iovec *iov, int count)
{
    QM_FILE(file, fd);

    return file ? rw_at(file, true, iov, count, 0)
                : moved(fd, true, NEXT(writev)(fd, iov, count));
}

static ssize_t rwv2(struct file *file, bool write, const struct iovec *iov, int count,
                    off_t offset, int flags)
{
    if (!qm_io_flags(flags))
        return -1;
    return offset == -1 ? rw_at(file, write, iov, count, flags)
                        : qm_io_rwv(file, write, iov, count, offset, flags);
}

INTERPOSED ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset,
                           int flags)
{
    QM_FILE(file, fd);

    return file ? rwv2(file, false, iov, count, offset, flags)
           : offset == -1
               ? moved(fd, false, NEXT(preadv2)(fd, iov, count, offset, flags))
               : qm_record(fd, false, offset,
                           NEXT(preadv2)(fd, iov, count, offset, flags));
}

INTERPOSED ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset,
                            int flags)
{
    QM_FILE(file, fd);

    return file ? rwv2(file, true, iov, count, offset, flags)
           : offset == -1
               ? moved(fd, true, NEXT(pwritev2)(fd, iov, count, offset, flags))
               : qm_record(fd, true, offset,
                           NEXT(pwritev2)(fd, iov, count, offset, flags));
}

static off_t seek(struct file *file, off_t offset, int whence)
{
    off_t size = (off_t)qm_route_size(file->route), base = 0, to;

    if (whence == SEEK_DATA || whence == SEEK_HOLE) {
        /* All of a device is data. */
        if (offset < 0 || offset >= size)
            return result(ENXIO);
        if (whence == SEEK_HOLE)
            offset = size;
    } else if (whence == SEEK_CUR) {
        base = file->at;
    } else if (whence == SEEK_END) {
        base = size;
    } else if (whence != SEEK_SET) {
        return result(EINVAL);
    }
    if (__builtin_add_overflow(base, offset, &to))
        return result(EOVERFLOW);
    if (to < 0)
        return result(EINVAL);
    return file->at = to;
}

INTERPOSED off_t lseek(int fd, off_t offset, int whence)
{
    QM_FILE(file, fd);

    if (!file)
        return NEXT(lseek)(fd, offset, whence);
    pthread_mutex_lock(&file->lock);
    offset = seek(file, offset, whence);
    pthread_mutex_unlock(&file->lock);
    return offset;
}

/* --- stable storage, and the file's size --- */

INTERPOSED int fsync(int fd)
{
    QM_FILE(file, fd);

    return file ? result(qm_io_flush(file)) : NEXT(fsync)(fd);
}

INTERPOSED int fdatasync(int fd)
{
    QM_FILE(file, fd);

    return file ? result(qm_io_flush(file)) : NEXT(fdatasync)(fd);
}

INTERPOSED int syncfs(int fd)
{
    QM_FILE(file, fd);

    return file ? result(qm_io_flush(file)) : NEXT(syncfs)(fd);
}

/* It promises less than that data that was written reaches the server. */
INTERPOSED int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags)
{
    return qm_is_routed(fd) ? 0 : NEXT(sync_file_range)(fd, offset, count, flags);
}

INTERPOSED int fallocate(int fd, int mode, off_t offset, off_t length)
{
    QM_FILE(file, fd);

    return file ? result(qm_io_allocate(file, mode, offset, length))
                : NEXT(fallocate)(fd, mode, offset, length);
}

INTERPOSED int posix_fallocate(int fd, off_t offset, off_t length)
{
    QM_FILE(file, fd);

    return file ? qm_io_allocate(file, 0, offset, length)
                : NEXT(posix_fallocate)(fd, offset, length);
}

INTERPOSED int ftruncate(int fd, off_t length)
{
    QM_FILE(file, fd);

    if (!file)
        return NEXT(ftruncate)(fd, length);
    return result((uint64_t)length == qm_route_size(file->route) ? 0 : EINVAL);
}

/* There is no page cache that advice would be for. */
INTERPOSED int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    return qm_is_routed(fd) ? 0 : NEXT(posix_fadvise)(fd, offset, length, advice);
}

INTERPOSED ssize_t readahead(int fd, off64_t offset, size_t count)
{
    return qm_is_routed(fd) ? 0 : NEXT(readahead)(fd, offset, count);
}

INTERPOSED void *mmap(void *at, size_t length, int protection, int flags, int fd,
                      off_t offset)
{
    if (flags & MAP_ANONYMOUS || !qm_is_routed(fd))
        return NEXT(mmap)(at, length, protection, flags, fd, offset);
    errno = ENODEV;
    return MAP_FAILED;
}

/* --- locks, flags --- */

/* A descriptor of what is at the file's path on this machine, for locks; -1 with errno:
 * ENOENT if there is nothing. */
static int local(struct file *file)
{
    const char *path = qm_route_path(file->route);
    int fd = atomic_load(&file->local), none = -1;

    if (fd != -1)
        return fd;
    fd = NEXT(open)(path, O_RDWR | O_CLOEXEC);
    if (fd == -1 && errno != ENOENT)
        fd = NEXT(open)(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || atomic_compare_exchange_strong(&file->local, &none, fd))
        return fd;
    /* Another thread was faster. */
    NEXT(close)(fd);
    return none;
}

/* A lock that excludes nobody would be worse than none: two programs would believe that
 * they have the file for themselves. */
static int no_lock(const struct file *file, int error)
{
    qm_say("libqmctx-preload: %s: cannot be locked: %s\n", qm_route_path(file->route),
           strerror(error));
    return result(ENOLCK);
}

static int lock(struct file *file, int command, void *arg)
{
    const struct flock *l = arg;
    int fd = local(file), r;

    if (fd == -1 && errno != ENOENT)
        return l->l_type == F_UNLCK ? 0 : no_lock(file, errno); /* there is none */
    if (fd != -1) {
        r = NEXT(fcntl)(fd, command, arg);
        /* It could be opened for reading only. */
        return r == -1 && errno == EBADF && l->l_type == F_WRLCK ? no_lock(file, EACCES)
                                                                 : r;
    }
    if (command == F_GETLK || command == F_OFD_GETLK)
        ((struct flock *)arg)->l_type = F_UNLCK;
    return 0;
}

INTERPOSED int flock(int fd, int operation)
{
    QM_FILE(file, fd);
    int other;

    if (!file)
        return NEXT(flock)(fd, operation);
    other = local(file);
    if (other == -1)
        return errno == ENOENT ? 0 : no_lock(file, errno);
    return NEXT(flock)(other, operation);
}

static int routed_fcntl(struct file *file, int fd, int command, void *arg)
{
    const int settable = O_APPEND | O_ASYNC | O_DIRECT | O_NOATIME | O_NONBLOCK;
    int flags, copy;

    switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        copy = NEXT(fcntl)(fd, command, arg);
        return copy == -1 ? -1 : qm_file_dup(file, copy);
    case F_GETFD:
    case F_SETFD:
        return NEXT(fcntl)(fd, command, arg);
    case F_GETFL:
        return atomic_load(&file->flags);
    case F_SETFL:
        flags = atomic_load(&file->flags);
        atomic_store(&file->flags,
                     (flags & ~settable) | ((int)(intptr_t)arg & settable));
        return 0;
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        return lock(file, command, arg);
    default:
        return result(EINVAL);
    }
}

INTERPOSED int fcntl(int fd, int command, ...)
{
    QM_FILE(file, fd);
    va_list args;
    void *arg;
    int copy;

    va_start(args, command);
    arg = va_arg(args, void *);
    va_end(args);
    if (file)
        return routed_fcntl(file, fd, command, arg);
    copy = NEXT(fcntl)(fd, command, arg);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        qm_file_forget(copy);
        qm_record_duplicated(fd, copy);
    }
    return copy;
}

/* --- the same by other names --- */

ALSO(pread, ssize_t, pread64, int fd, void *buf, size_t count, off64_t offset);
ALSO(pwrite, ssize_t, pwrite64, int fd, const void *buf, size_t count, off64_t offset);
ALSO(preadv, ssize_t, preadv64, int fd, const struct iovec *iov, int count,
     off64_t offset);
ALSO(pwritev, ssize_t, pwritev64, int fd, const struct iovec *iov, int count,
     off64_t offset);
ALSO(preadv2, ssize_t, preadv64v2, int fd, const struct iovec *iov, int count,
     off64_t offset, int flags);
ALSO(pwritev2, ssize_t, pwritev64v2, int fd, const struct iovec *iov, int count,
     off64_t offset, int flags);
ALSO(lseek, off64_t, lseek64, int fd, off64_t offset, int whence);
ALSO(fallocate, int, fallocate64, int fd, int mode, off64_t offset, off64_t length);
ALSO(posix_fallocate, int, posix_fallocate64, int fd, off64_t offset, off64_t length);
ALSO(ftruncate, int, ftruncate64, int fd, off64_t length);
ALSO(posix_fadvise, int, posix_fadvise64, int fd, off64_t offset, off64_t length,
     int advice);
ALSO(mmap, void *, mmap64, void *at, size_t length, int protection, int flags, int fd,
     off64_t offset);
ALSO(fcntl, int, fcntl64, int fd, int command, ...);

/* What programs call that were built with _FORTIFY_SOURCE; size is the buffer's. */
static void check_size(size_t count, size_t size)
{
    if (count > size)
        abort(); /* as the C library does */
}

INTERPOSED ssize_t __read_chk(int fd, void *buf, size_t count, size_t size);
INTERPOSED ssize_t __pread_chk(int fd, void *buf, size_t count, off_t offset,
                               size_t size);

ssize_t __read_chk(int fd, void *buf, size_t count, size_t size)
{
    check_size(count, size);
    return read(fd, buf, count);
}

ssize_t __pread_chk(int fd, void *buf, size_t count, off_t offset, size_t size)
{
    check_size(count, size);
    return pread(fd, buf, count, offset);
}

ALSO(__pread_chk, ssize_t, __pread64_chk, int fd, void *buf, size_t count,
     off64_t offset, size_t size);
