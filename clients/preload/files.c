/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c - open routed files, by file descriptor.
 *
 * And what opens, duplicates and closes them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clients/preload/files.h"
#include "clients/preload/next.h"
#include "clients/preload/preload.h"
#include "clients/preload/record.h"

/* A symbolic link that is always there. */
#define PLACEHOLDER "/proc/self/exe"

/* In place of the references of a file that is about to be free. */
#define ENDING (-1)

_Atomic(struct file *) qm_files[QM_MAX_FD];

/* No descriptor above it was ever routed. */
static _Atomic int highest = -1;

/* Of the process that the table is of; set when the library is loaded, and by fork().
 */
static _Atomic pid_t owner;

/* All files, free or not, the newest first.  It only ever grows. */
static _Atomic(struct file *) files;

bool qm_files_ours(void)
{
    /* Not getpid(): a sanitizer, or another library, may keep what it said once. */
    return (pid_t)syscall(SYS_getpid) ==
           atomic_load_explicit(&owner, memory_order_relaxed);
}

static bool is_placeholder(int fd)
{
    int err = errno, flags = (int)syscall(SYS_fcntl, fd, F_GETFL);

    errno = err;
    return flags != -1 && (flags & O_PATH);
}

/* False if there are none, and it is free. */
static bool add_ref(struct file *file)
{
    int refs = atomic_load_explicit(&file->refs, memory_order_relaxed);

    while (refs > 0 && !atomic_compare_exchange_weak(&file->refs, &refs, refs + 1))
        ;
    return refs > 0;
}

struct file *qm_file_find(int fd)
{
    struct file *file;

    if (!qm_files_ours())
        return NULL;
    while ((file = atomic_load(&qm_files[fd]))) {
        if (!add_ref(file))
            continue; /* it was closed, so it is not there any more */
        if (atomic_load(&qm_files[fd]) == file && is_placeholder(fd))
            return file;
        qm_file_put(file);
        if (!is_placeholder(fd))
            return NULL;
    }
    return NULL;
}

void qm_file_put(struct file *file)
{
    int refs = atomic_load_explicit(&file->refs, memory_order_relaxed), local;

    do {
        if (refs <= 0)
            return; /* a child of fork() within a call, in a signal handler */
    } while (!atomic_compare_exchange_weak(&file->refs, &refs,
                                           refs > 1 ? refs - 1 : ENDING));
    if (refs > 1)
        return;
    local = atomic_exchange(&file->local, -1);
    if (local != -1)
        NEXT(close)(local);
    atomic_store(&file->refs, 0);
}

/* One that is free, with a reference. */
static struct file *take_file(void)
{
    struct file *file;
    int none = 0;

    for (file = atomic_load(&files); file; file = file->older, none = 0)
        if (atomic_compare_exchange_strong(&file->refs, &none, 1))
            return file;
    file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    pthread_mutex_init(&file->lock, NULL);
    atomic_init(&file->refs, 1);
    atomic_init(&file->local, -1);
    file->older = atomic_load(&files);
    while (!atomic_compare_exchange_weak(&files, &file->older, file))
        ;
    return file;
}

void qm_file_forget(int fd)
{
    struct file *file;

    qm_record_forget(fd);
    if (fd < 0 || fd >= QM_MAX_FD || !atomic_load(&qm_files[fd]) || !qm_files_ours())
        return;
    file = atomic_exchange(&qm_files[fd], NULL);
    if (file)
        qm_file_put(file);
}

int qm_file_dup(struct file *file, int copy)
{
    int most = atomic_load(&highest);
    struct file *before;

    if (copy >= QM_MAX_FD) {
        NEXT(close)(copy);
        errno = EMFILE;
        return -1;
    }
    while (copy > most && !atomic_compare_exchange_weak(&highest, &most, copy))
        ;
    atomic_fetch_add(&file->refs, 1);
    /* The file that had this number: dup2() has closed it, or a close() that was not
     * seen. */
    before = atomic_exchange(&qm_files[copy], file);
    if (before)
        qm_file_put(before);
    return copy;
}

int qm_file_open(struct route *route, int flags)
{
    struct qm_device *device;
    struct file *file;
    int fd;

    if (!qm_files_ours()) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (flags & O_PATH || flags & O_DIRECTORY) {
        errno = ENOTDIR;
        return -1;
    }
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        errno = EEXIST;
        return -1;
    }
    device = qm_route_device(route);
    if (!device)
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
    atomic_store(&file->losses, qm_device_losses(device));
    file->at = 0;
    fd = NEXT(open)(PLACEHOLDER, O_PATH | O_NOFOLLOW | (flags & O_CLOEXEC));
    if (fd != -1)
        fd = qm_file_dup(file, fd);
    qm_file_put(file);
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
    qm_record_opened(fd);
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
    qm_record_opened(fd);
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
    return qm_is_routed(fd) ? no_stream() : NEXT(fdopen)(fd, mode);
}

/* --- duplicating and closing --- */

INTERPOSED int dup(int fd)
{
    QM_FILE(file, fd);
    int copy = NEXT(dup)(fd);

    if (copy == -1)
        return -1;
    if (file)
        return qm_file_dup(file, copy);
    qm_file_forget(copy);
    qm_record_duplicated(fd, copy);
    return copy;
}

static int dup_to(int fd, int to, int flags, bool three)
{
    QM_FILE(file, fd);
    int copy;

    if (file && fd != to && to >= QM_MAX_FD) {
        errno = EBADF;
        return -1;
    }
    if (fd != to)
        qm_record_make_way(to);
    copy = three ? NEXT(dup3)(fd, to, flags) : NEXT(dup2)(fd, to);
    if (copy == -1 || fd == to)
        return copy;
    if (file)
        return qm_file_dup(file, copy);
    /* Meanwhile the entry was not believed: see qm_file_find(). */
    qm_file_forget(copy);
    qm_record_duplicated(fd, copy);
    return copy;
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
    if (fd >= 0 && fd == qm_record_kept()) {
        errno = EBADF;
        return -1;
    }
    /* First: once the number is free, another thread may get it. */
    qm_file_forget(fd);
    return NEXT(close)(fd);
}

static void forget_range(unsigned first, unsigned last)
{
    if (!qm_files_ours())
        return;
    qm_record_forget_range(first, last);
    for (int fd = atomic_load(&highest); fd >= 0 && (unsigned)fd >= first; fd--)
        if ((unsigned)fd <= last)
            qm_file_forget(fd);
}

INTERPOSED int close_range(unsigned first, unsigned last, int flags)
{
    unsigned kept;

    if (!(flags & (int)CLOSE_RANGE_CLOEXEC))
        forget_range(first, last);
    kept = (unsigned)qm_record_kept();
    if (flags & (int)CLOSE_RANGE_CLOEXEC || kept < first || kept > last ||
        kept == (unsigned)-1)
        return NEXT(close_range)(first, last, flags);
    if (kept > first && NEXT(close_range)(first, kept - 1, flags) == -1)
        return -1;
    return kept < last ? NEXT(close_range)(kept + 1, last, flags) : 0;
}

INTERPOSED void closefrom(int first)
{
    int kept;

    forget_range(first > 0 ? (unsigned)first : 0, QM_MAX_FD);
    kept = qm_record_kept();
    for (int fd = first > 0 ? first : 0; fd < kept; fd++)
        NEXT(close)(fd);
    NEXT(closefrom)(kept >= first ? kept + 1 : first);
}

/* --- processes --- */

void qm_files_begin(void)
{
    atomic_store(&owner, (pid_t)syscall(SYS_getpid));
}

void qm_files_forked(void)
{
    struct file *file;

    qm_files_begin();
    /* Other threads' references are gone with them.  One may have held a lock, while it
     * waited for the server.  The child's devices have lost nothing. */
    for (file = atomic_load(&files); file; file = file->older) {
        pthread_mutex_init(&file->lock, NULL);
        atomic_store(&file->refs, 1);
        atomic_store(&file->losses, 0);
    }
    for (int fd = atomic_load(&highest); fd >= 0; fd--)
        if ((file = atomic_load(&qm_files[fd])))
            atomic_fetch_add(&file->refs, 1);
    for (file = atomic_load(&files); file; file = file->older)
        qm_file_put(file);
}
