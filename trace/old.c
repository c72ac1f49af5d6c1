/* SPDX-License-Identifier: BSD-3-Clause */
/* old.c - see old.h. */
#include "trace/old.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT_MOST 9999 /* old recordings of one name */

/* How a trace begins: plain, gzip (RFC 1952), zstd (RFC 8878). */
static bool begins_as_trace(const char *bytes, size_t count)
{
    static const struct {
        const char *bytes;
        size_t count;
    } magics[] = {{"#quickmine-trace ", 17}, {"\x1f\x8b", 2}, {"\x28\xb5\x2f\xfd", 4}};

    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (count >= magics[i].count &&
            memcmp(bytes, magics[i].bytes, magics[i].count) == 0)
            return true;
    return false;
}

static int refuse(const char *path, const char *what, char *err, size_t len)
{
    snprintf(err, len, "%s is a %s: a recording needs a file", path, what);
    return -1;
}

void qm_old_unopened(const char *path, int error, char *err, size_t len)
{
    struct stat st;

    if (error == EISDIR)
        refuse(path, "directory", err, len);
    else if (error == ENXIO && stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        refuse(path, "socket", err, len);
    else
        snprintf(err, len, "%s: cannot be created: %s", path, strerror(error));
}

int qm_old_check(int fd, const char *path, char *err, size_t len)
{
    char bytes[32];
    struct stat st, again;
    ssize_t n = -1;
    int reader;

    if (fstat(fd, &st) == -1) {
        snprintf(err, len, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (S_ISBLK(st.st_mode))
        return refuse(path, "block device", err, len);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (reader != -1) {
        if (fstat(reader, &again) == 0 && again.st_dev == st.st_dev &&
            again.st_ino == st.st_ino)
            n = pread(reader, bytes, sizeof bytes, 0);
        else
            errno = ESTALE;
        close(reader);
    }
    if (n == -1) {
        snprintf(err, len, "%s: cannot be read, to see whether it is a trace: %s", path,
                 strerror(errno));
        return -1;
    }
    if (begins_as_trace(bytes, (size_t)n))
        return 0;
    snprintf(err, len,
             "%s is no trace, and is not overwritten: give a file that is a trace or "
             "empty, or that is not there yet",
             path);
    return -1;
}

/* Renames, and replaces nothing.  Returns 0 or an errno value. */
static int rename_to(int dir, const char *from, const char *to)
{
    if (renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* Some file systems, as NFS, cannot do it at once. */
    if (linkat(dir, from, dir, to, 0) == -1)
        return errno;
    return unlinkat(dir, from, 0) == 0 ? 0 : errno;
}

/* Finds the directory and the name there of the file that path leads to. */
static int find_place(struct qm_old *old, const char *path)
{
    char *real = realpath(path, NULL), *slash = real ? strrchr(real, '/') : NULL;
    int error = 0;

    if (!slash)
        return errno;
    old->name = strdup(slash + 1);
    slash[slash == real] = '\0'; /* "/" stays */
    old->dir = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (old->dir == -1)
        error = errno;
    else if (!old->name || !(old->kept = malloc(strlen(old->name) + 16)))
        error = ENOMEM;
    free(real);
    return error;
}

bool qm_old_rights(int fd, const struct stat *old)
{
    const bool same = fchown(fd, old->st_uid, old->st_gid) == 0;

    /* Another group than the old one's gets no rights that were not its own. */
    return fchmod(fd, old->st_mode & (same ? 0777 : 0700)) == 0 && same;
}

bool qm_old_is_anothers(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0 ||
           (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0);
}

/* Whether the name is still that of the file that is locked. */
static bool is_still(const struct qm_old *old, const struct stat *st)
{
    struct stat now;

    return fstatat(old->dir, old->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

int qm_old_keep(struct qm_old *old, int fd, const char *path, char *err, size_t len)
{
    struct stat st;
    unsigned n = 0;
    int made = -1, error;

    err[0] = '\0';
    if (qm_old_is_anothers(path))
        return -1;
    error = fstat(fd, &st) == -1 ? errno : find_place(old, path);
    /* Another program that keeps it, too, may have been faster. */
    if (error == 0 && !is_still(old, &st))
        error = EBUSY;
    if (error == 0) {
        do {
            snprintf(old->kept, strlen(old->name) + 16, "%s.%u", old->name, ++n);
            error = rename_to(old->dir, old->name, old->kept);
        } while (error == EEXIST && n < KEPT_MOST);
    }
    if (error == 0) {
        made = openat(old->dir, old->name,
                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
        if (made != -1) {
            (void)qm_old_rights(made, &st);
        } else {
            error = errno;
            (void)rename_to(old->dir, old->kept, old->name);
        }
    }
    if (error == EEXIST)
        snprintf(err, len, "%s.1 to .%u are there already: remove some", path, n);
    else if (error != 0)
        snprintf(err, len, "%s: what is there cannot be kept as %s.%u: %s", path, path,
                 n ? n : 1, strerror(error));
    if (error != 0)
        qm_old_forget(old);
    return made;
}

void qm_old_restore(struct qm_old *old, int fd)
{
    struct stat st;

    if (old->dir != -1 && fstat(fd, &st) == 0 && st.st_size == 0 && is_still(old, &st))
        (void)renameat(old->dir, old->kept, old->dir, old->name);
}

void qm_old_forget(struct qm_old *old)
{
    if (old->dir != -1)
        close(old->dir);
    free(old->name);
    free(old->kept);
    *old = (struct qm_old){.dir = -1};
}
