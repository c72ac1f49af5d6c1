/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - the C library's functions that take a path, and stat(2) in all its forms.
 *
 * A routed path is a regular file of the device's size, whether or not something is
 * there on this machine.  It cannot be removed, renamed or given another size.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clients/preload/files.h"
#include "clients/preload/next.h"

#define DEVICE_MAJOR 0 /* as of file systems that have no device */
#define DEVICE_MINOR 0x514d

static int result(int err)
{
    if (!err)
        return 0;
    errno = err;
    return -1;
}

static int routed_stat(struct route *route, struct stat *st)
{
    int err = qm_route_connect(route);

    if (err)
        return result(err);
    memset(st, 0, sizeof *st);
    st->st_dev = makedev(DEVICE_MAJOR, DEVICE_MINOR);
    st->st_ino = qm_route_number(route);
    st->st_mode = S_IFREG | (qm_route_is_read_only(route) ? 0400 : 0600);
    st->st_nlink = 1;
    st->st_uid = geteuid();
    st->st_gid = getegid();
    st->st_size = (off_t)qm_route_size(route);
    st->st_blksize = (blksize_t)qm_route_block_size(route);
    st->st_blocks = (blkcnt_t)((qm_route_size(route) + 511) / 512);
    return 0;
}

/* The route that fstatat() and the like are about. */
static struct route *at_route(int fd, const char *path, int flags)
{
    QM_FILE(file, fd);

    if (path && *path)
        return qm_route_find(fd, path);
    return file && (flags & AT_EMPTY_PATH) ? file->route : NULL;
}

INTERPOSED int fstat(int fd, struct stat *st)
{
    QM_FILE(file, fd);

    return file ? routed_stat(file->route, st) : NEXT(fstat)(fd, st);
}

INTERPOSED int stat(const char *path, struct stat *st)
{
    struct route *route = qm_route_find(AT_FDCWD, path);

    return route ? routed_stat(route, st) : NEXT(stat)(path, st);
}

INTERPOSED int lstat(const char *path, struct stat *st)
{
    struct route *route = qm_route_find(AT_FDCWD, path);

    return route ? routed_stat(route, st) : NEXT(lstat)(path, st);
}

INTERPOSED int fstatat(int fd, const char *path, struct stat *st, int flags)
{
    struct route *route = at_route(fd, path, flags);

    return route ? routed_stat(route, st) : NEXT(fstatat)(fd, path, st, flags);
}

INTERPOSED int statx(int fd, const char *path, int flags, unsigned mask,
                     struct statx *stx)
{
    struct route *route = at_route(fd, path, flags);
    struct stat st;

    if (!route)
        return NEXT(statx)(fd, path, flags, mask, stx);
    if (routed_stat(route, &st) == -1)
        return -1;
    memset(stx, 0, sizeof *stx);
    stx->stx_mask = STATX_BASIC_STATS;
    stx->stx_blksize = (uint32_t)st.st_blksize;
    stx->stx_nlink = (uint32_t)st.st_nlink;
    stx->stx_uid = st.st_uid;
    stx->stx_gid = st.st_gid;
    stx->stx_mode = (uint16_t)st.st_mode;
    stx->stx_ino = st.st_ino;
    stx->stx_size = (uint64_t)st.st_size;
    stx->stx_blocks = (uint64_t)st.st_blocks;
    stx->stx_dev_major = major(st.st_dev);
    stx->stx_dev_minor = minor(st.st_dev);
    return 0;
}

static int routed_access(struct route *route, int mode)
{
    int err = qm_route_connect(route);

    if (!err && (mode & W_OK) && qm_route_is_read_only(route))
        err = EROFS;
    if (!err && (mode & X_OK))
        err = EACCES;
    return result(err);
}

INTERPOSED int access(const char *path, int mode)
{
    struct route *route = qm_route_find(AT_FDCWD, path);

    return route ? routed_access(route, mode) : NEXT(access)(path, mode);
}

INTERPOSED int faccessat(int fd, const char *path, int mode, int flags)
{
    struct route *route = qm_route_find(fd, path);

    return route ? routed_access(route, mode) : NEXT(faccessat)(fd, path, mode, flags);
}

INTERPOSED int truncate(const char *path, off_t length)
{
    struct route *route = qm_route_find(AT_FDCWD, path);
    int err;

    if (!route)
        return NEXT(truncate)(path, length);
    err = qm_route_connect(route);
    if (!err && (uint64_t)length != qm_route_size(route))
        err = EINVAL;
    return result(err);
}

INTERPOSED int unlink(const char *path)
{
    return qm_route_find(AT_FDCWD, path) ? result(EPERM) : NEXT(unlink)(path);
}

INTERPOSED int unlinkat(int fd, const char *path, int flags)
{
    return qm_route_find(fd, path) ? result(EPERM) : NEXT(unlinkat)(fd, path, flags);
}

INTERPOSED int remove(const char *path)
{
    return qm_route_find(AT_FDCWD, path) ? result(EPERM) : NEXT(remove)(path);
}

INTERPOSED int rename(const char *from, const char *to)
{
    return qm_route_find(AT_FDCWD, from) || qm_route_find(AT_FDCWD, to)
               ? result(EPERM)
               : NEXT(rename)(from, to);
}

INTERPOSED int renameat(int fd, const char *from, int to_fd, const char *to)
{
    return qm_route_find(fd, from) || qm_route_find(to_fd, to)
               ? result(EPERM)
               : NEXT(renameat)(fd, from, to_fd, to);
}

INTERPOSED int renameat2(int fd, const char *from, int to_fd, const char *to,
                         unsigned flags)
{
    return qm_route_find(fd, from) || qm_route_find(to_fd, to)
               ? result(EPERM)
               : NEXT(renameat2)(fd, from, to_fd, to, flags);
}

/* --- the same by other names --- */

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "f and f64 are the same");

ALSO(fstat, int, fstat64, int fd, struct stat64 *st);
ALSO(stat, int, stat64, const char *path, struct stat64 *st);
ALSO(lstat, int, lstat64, const char *path, struct stat64 *st);
ALSO(fstatat, int, fstatat64, int fd, const char *path, struct stat64 *st, int flags);
ALSO(truncate, int, truncate64, const char *path, off64_t length);

/* What programs call that were built with a C library before 2.33; version says which
 * struct stat is meant, and there is but one. */
INTERPOSED int __fxstat(int version, int fd, struct stat *st);
INTERPOSED int __xstat(int version, const char *path, struct stat *st);
INTERPOSED int __lxstat(int version, const char *path, struct stat *st);
INTERPOSED int __fxstatat(int version, int fd, const char *path, struct stat *st,
                          int flags);

int __fxstat(int version, int fd, struct stat *st)
{
    return fstat(fd, st);
}

int __xstat(int version, const char *path, struct stat *st)
{
    return stat(path, st);
}

int __lxstat(int version, const char *path, struct stat *st)
{
    return lstat(path, st);
}

int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags)
{
    return fstatat(fd, path, st, flags);
}

ALSO(__fxstat, int, __fxstat64, int version, int fd, struct stat64 *st);
ALSO(__xstat, int, __xstat64, int version, const char *path, struct stat64 *st);
ALSO(__lxstat, int, __lxstat64, int version, const char *path, struct stat64 *st);
ALSO(__fxstatat, int, __fxstatat64, int version, int fd, const char *path,
     struct stat64 *st, int flags);
