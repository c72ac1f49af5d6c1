/* SPDX-License-Identifier: BSD-3-Clause */
/* witness.c - see witness.h. */
#include "tier/witness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier/format.h"

#define TRIES 100 /* to lock a file that others replace */

static int lock_file(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

static bool is_at(const char *path, int fd, struct stat *st)
{
    struct stat at;

    return fstat(fd, st) == 0 && stat(path, &at) == 0 && at.st_dev == st->st_dev &&
           at.st_ino == st->st_ino;
}

int qm_tier_witness_lock(const char *path, struct qm_tier_witness *lock)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    bool replaced = false;
    struct stat st;
    int r;

    *lock = QM_TIER_WITNESS_NONE;
    for (unsigned tries = TRIES; tries > 0; tries--) {
        lock->fd = open(path, flags | O_CREAT | O_EXCL, 0600);
        lock->made = lock->fd != -1;
        if (lock->fd == -1 && errno == EEXIST)
            lock->fd = open(path, flags);
        if (lock->fd == -1 && errno == ENOENT)
            continue;
        if (lock->fd == -1)
            return 0; /* it is said when it is written */
        r = lock_file(lock->fd);
        if (r == 0 && is_at(path, lock->fd, &st))
            return 0;
        close(lock->fd);
        *lock = QM_TIER_WITNESS_NONE;
        if (r == EAGAIN || r == EACCES)
            return EBUSY;
        if (r != 0) /* files cannot be locked there */
            return 0;
        replaced = true; /* by the one that had it, meanwhile */
    }
    return replaced ? EBUSY : 0;
}

void qm_tier_witness_unlock(const char *path, struct qm_tier_witness *lock)
{
    struct stat st;

    if (lock->fd == -1)
        return;
    if (lock->made && is_at(path, lock->fd, &st) && st.st_size == 0)
        unlink(path);
    close(lock->fd);
    *lock = QM_TIER_WITNESS_NONE;
}

int qm_tier_witness_read(const char *path, struct qm_tier_testimony *t)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t r;
    int e;

    if (fd == -1)
        return errno;
    r = read(fd, t, sizeof *t);
    e = r == -1                                              ? errno
        : r == 0                                             ? ENOENT
        : r == (ssize_t)sizeof *t && qm_tier_testimony_ok(t) ? 0
                                                             : EINVAL;
    close(fd);
    return e;
}

int qm_tier_witness_check(const char *path)
{
    const uint64_t magic = QM_TIER_WITNESS_MAGIC;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char data[sizeof(struct qm_tier_testimony) + 1];
    struct stat st;
    ssize_t n;
    int r = EEXIST;

    if (fd == -1)
        return errno == ENOENT ? 0 : errno;
    if (fstat(fd, &st) == -1) {
        r = errno;
    } else if (S_ISREG(st.st_mode)) {
        n = pread(fd, data, sizeof data, 0);
        if (n == -1)
            r = errno;
        else if (n < (ssize_t)sizeof data && /* one that is damaged is ours, too */
                 memcmp(data, &magic,
                        (size_t)n < sizeof magic ? (size_t)n : sizeof magic) == 0)
            r = 0;
    }
    close(fd);
    return r;
}

/* Makes the file that is to take the place of the witness, locked where that can be,
 * and leaves it open.  Returns an errno value. */
static int write_new(const char *path, const struct qm_tier_testimony *t, int *opened)
{
    int r = qm_tier_witness_check(path), fd;

    if (r != 0)
        return r;
    (void)unlink(path); /* of a server that ended meanwhile */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1)
        return errno;
    *opened = fd;
    (void)lock_file(fd);
    errno = 0;
    if (write(fd, t, sizeof *t) != (ssize_t)sizeof *t)
        r = errno ? errno : EIO;
    if (fsync(fd) == -1 && r == 0)
        r = errno;
    return r;
}

int qm_tier_witness_write(const char *path, const struct qm_tier_testimony *t,
                          struct qm_tier_witness *lock)
{
    size_t n = strlen(path);
    char *other = malloc(n + 5), *slash;
    int fd = -1, r;

    if (!other)
        return ENOMEM;
    memcpy(other, path, n);
    memcpy(other + n, ".new", 5);
    r = qm_tier_witness_check(path);
    if (r == 0)
        r = write_new(other, t, &fd);
    if (r == EEXIST) {
        free(other);
        return r;
    }
    if (r == 0 && rename(other, path) == -1)
        r = errno;
    if (r != 0)
        unlink(other);
    if (r == 0 && lock) {
        if (lock->fd != -1)
            close(lock->fd);
        *lock = (struct qm_tier_witness){.fd = fd};
    } else if (fd != -1) {
        close(fd);
    }
    slash = strrchr(other, '/');
    strcpy(slash ? slash + 1 : other, slash ? "" : ".");
    fd = r == 0 ? open(other, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd != -1) {
        if (fsync(fd) == -1 && errno != EINVAL)
            r = errno;
        close(fd);
    }
    free(other);
    return r;
}
