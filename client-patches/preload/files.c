/* files.c - open routed files, by file descriptor.
 *
 * And what opens, duplicates and closes them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client-patches/preload/files.h"
#include "client-patches/preload/next.h"
#include "client-patches/preload/preload.h"

/* A symbolic link that is always there. */
#define PLACEHOLDER "/proc/self/exe"

_Atomic(struct file *) qm_files[QM_MAX_FD];

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *unused; /* pool_lock */

static struct file *take_file(void)
{
    struct file *file;

    pthread_mutex_lock(&pool_lock);
    file = unused;
    if (file)
        unused = file->next;
    pthread_mutex_unlock(&pool_lock);
    if (!file) {
        file = calloc(1, sizeof *file);
        if (file)
            pthread_mutex_init(&file->lock, NULL);
    }
    return file;
}

static void put_file(struct file *file)
{
    if (atomic_fetch_sub(&file->refs, 1) > 1)
        return;
    pthread_mutex_lock(&file->lock);
    if (file->local != -1)
        NEXT(close)(file->local);
    file->local = -1;
    pthread_mutex_unlock(&file->lock);
    pthread_mutex_lock(&pool_lock);
    file->next = unused;
    unused = file;
    pthread_mutex_unlock(&pool_lock);
}

void qm_file_forget(int fd)
{
    struct file *file;

    if (!qm_file(fd))
        return;
    file = atomic_exchange(&qm_files[fd], NULL);
    if (file)
        put_file(file);
}

int qm_file_dup(struct file *file, int copy)
{
    if (copy >= QM_MAX_FD) {
        NEXT(close)(copy);
        errno = EMFILE;
        return -1;
    }
    atomic_fetch_add(&file->refs, 1);
    /* There may be one left that was closed behind our back. */
    qm_file_forget(copy);
    atomic_store_explicit(&qm_files[copy], file, memory_order_release);
    return copy;
}

int qm_file_open(struct route *route, int flags)
{
    struct file *file;
    int fd;

    if (flags & O_PATH || flags & O_DIRECTORY) {
        errno = ENOTDIR;
        return -1;
    }
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        errno = EEXIST;
        return -1;
    }
    errno = qm_route_connect(route);
    if (errno)
        return -1;
    if ((flags & O_ACCMODE) != O_RDONLY && qm_route_is_read_only(route)) {
        errno = EROFS;
        return -1;
    }
    file = take_file();
    if (!file) {
        errno = ENOMEM;
        return -1;
    }
    file->route = route;
    atomic_store(&file->flags, flags & ~(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC |
                                         O_CLOEXEC | O_NOFOLLOW));
    atomic_store(&file->refs, 1);
    atomic_store(&file->losses, qm_route_losses(route));
    file->at = 0;
    file->local = -1;
    fd = NEXT(open)(PLACEHOLDER, O_PATH | O_NOFOLLOW | (flags & O_CLOEXEC));
    if (fd != -1)
        fd = qm_file_dup(file, fd);
    put_file(file);
    return fd;
}

/* --- opening --- */

/* The mode, where the flags say that there is one. */
static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t)
                                                               : 0;
}

INTERPOSED int open(const char *path, int flags, ...)
{
    struct route *route = qm_route_find(AT_FDCWD, path);
    va_list args;
    mode_t mode;
    int fd;

    if (route)
        return qm_file_open(route, flags);
    va_start(args, flags);
    mode = mode_of(flags, args);
    va_end(args);
    fd = NEXT(open)(path, flags, mode);
    qm_file_forget(fd);
    return fd;
}

INTERPOSED int openat(int dirfd, const char *path, int flags, ...)
{
    struct route *route = qm_route_find(dirfd, path);
    va_list args;
    mode_t mode;
    int fd;

    if (route)
        return qm_file_open(route, flags);
    va_start(args, flags);
    mode = mode_of(flags, args);
    va_end(args);
    fd = NEXT(openat)(dirfd, path, flags, mode);
    qm_file_forget(fd);
    return fd;
}

INTERPOSED int creat(const char *path, mode_t mode)
{
    return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* What programs call that were built with _FORTIFY_SOURCE. */
INTERPOSED int __open_2(const char *path, int flags);
INTERPOSED int __openat_2(int dirfd, const char *path, int flags);

int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

int __openat_2(int dirfd, const char *path, int flags)
{
    return openat(dirfd, path, flags);
}

ALSO(open, int, open64, const char *path, int flags, ...);
ALSO(openat, int, openat64, int dirfd, const char *path, int flags, ...);
ALSO(creat, int, creat64, const char *path, mode_t mode);
ALSO(__open_2, int, __open64_2, const char *path, int flags);
ALSO(__openat_2, int, __openat64_2, int dirfd, const char *path, int flags);

/* A stream reads and writes by functions that the C library keeps to itself. */
static FILE *no_stream(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

INTERPOSED FILE *fopen(const char *path, const char *mode)
{
    return qm_route_find(AT_FDCWD, path) ? no_stream() : NEXT(fopen)(path, mode);
}

INTERPOSED FILE *fopen64(const char *path, const char *mode)
{
    return qm_route_find(AT_FDCWD, path) ? no_stream() : NEXT(fopen64)(path, mode);
}

INTERPOSED FILE *fdopen(int fd, const char *mode)
{
    return qm_file(fd) ? no_stream() : NEXT(fdopen)(fd, mode);
}

/* --- duplicating and closing --- */

INTERPOSED int dup(int fd)
{
    struct file *file = qm_file(fd);
    int copy = NEXT(dup)(fd);

    if (copy == -1)
        return -1;
    if (file)
        return qm_file_dup(file, copy);
    qm_file_forget(copy);
    return copy;
}

static int dup_to(int fd, int to, int flags, bool three)
{
    struct file *file = qm_file(fd);
    int copy;

    if (file && fd != to && to >= QM_MAX_FD) {
        errno = EBADF;
        return -1;
    }
    if (fd != to)
        qm_file_forget(to);
    copy = three ? NEXT(dup3)(fd, to, flags) : NEXT(dup2)(fd, to);
    return copy == -1 || fd == to || !file ? copy : qm_file_dup(file, copy);
}

INTERPOSED int dup2(int fd, int to)
{
    return dup_to(fd, to, 0, false);
}

INTERPOSED int dup3(int fd, int to, int flags)
{
    return dup_to(fd, to, flags, true);
}

INTERPOSED int close(int fd)
{
    /* First: once the number is free, it is somebody else's. */
    qm_file_forget(fd);
    return NEXT(close)(fd);
}

static void forget_range(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd < QM_MAX_FD && fd <= last; fd++)
        qm_file_forget((int)fd);
}

INTERPOSED int close_range(unsigned first, unsigned last, int flags)
{
    if (!(flags & (int)CLOSE_RANGE_CLOEXEC))
        forget_range(first, last);
    return NEXT(close_range)(first, last, flags);
}

INTERPOSED void closefrom(int first)
{
    forget_range(first > 0 ? (unsigned)first : 0, QM_MAX_FD);
    NEXT(closefrom)(first);
}

/* --- fork() --- */

void qm_files_fork(enum qm_fork when)
{
    if (when == QM_FORK_BEFORE)
        pthread_mutex_lock(&pool_lock);
    else
        pthread_mutex_unlock(&pool_lock);
}
