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

int qm_tier_witness_read(const char *path, struct qm_tier_testimony *t)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t r;
    int e;

    if (fd == -1)
        return errno;
    r = read(fd, t, sizeof *t);
    e = r == -1                                              ? errno
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

/* Makes the file that is to take the place of the witness.  Returns an errno value. */
static int write_new(const char *path, const struct qm_tier_testimony *t)
{
    int r = qm_tier_witness_check(path), fd;

    if (r != 0)
        return r;
    (void)unlink(path); /* of a server that ended meanwhile */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1)
        return errno;
    errno = 0;
    if (write(fd, t, sizeof *t) != (ssize_t)sizeof *t)
        r = errno ? errno : EIO;
    if (fsync(fd) == -1 && r == 0)
        r = errno;
    close(fd);
    return r;
}

int qm_tier_witness_write(const char *path, const struct qm_tier_testimony *t)
{
    size_t n = strlen(path);
    char *other = malloc(n + 5), *slash;
    int fd, r;

    if (!other)
        return ENOMEM;
    memcpy(other, path, n);
    memcpy(other + n, ".new", 5);
    r = qm_tier_witness_check(path);
    if (r == 0)
        r = write_new(other, t);
    if (r == EEXIST) {
        free(other);
        return r;
    }
    if (r == 0 && rename(other, path) == -1)
        r = errno;
    if (r != 0)
        unlink(other);
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
