/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-dir.c - a directory in which rules survive a restart (see rules-dir.h). */
#include "mining/core/rules-dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "rules.db"
#define NEW_NAME  "rules.db.new"
#define DB_NAME   "__db.rules.db.new" /* rules-db.c's, while it makes the other */
#define BAD_MAX   9

struct qm_rules_dir {
    int fd;
    char path[PATH_MAX]; /* absolute: a server may change its working directory */
    char *device;        /* NULL: any */
    uint64_t block_size;
};

/* One sentence for a person; returns what is to be returned. */
static int __attribute__((format(printf, 4, 5)))
explain(int error, char *err, size_t len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, len, format, args);
    va_end(args);
    return error;
}

static int file_path(const struct qm_rules_dir *dir, const char *name, char *path,
                     size_t len)
{
    int n = snprintf(path, len, "%s/%s", dir->path, name);
    return n > 0 && (size_t)n < len ? 0 : ENAMETOOLONG;
}

int qm_rules_dir_path(const struct qm_rules_dir *dir, bool new, char *path, size_t len)
{
    return file_path(dir, new ? NEW_NAME : FILE_NAME, path, len);
}

/* Removes what a server that was killed has left. */
int qm_rules_dir_remove_new(struct qm_rules_dir *dir)
{
    if ((unlinkat(dir->fd, NEW_NAME, 0) != 0 && errno != ENOENT) ||
        (unlinkat(dir->fd, DB_NAME, 0) != 0 && errno != ENOENT)) {
        return errno;
    }
    return 0;
}

int qm_rules_dir_create(struct qm_rules_dir *dir, int *fd)
{
    *fd = openat(dir->fd, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *fd >= 0 ? 0 : errno;
}

/* That a file can be written there is better known at once than hours later. */
static int try_to_write(struct qm_rules_dir *dir)
{
    int fd, r = qm_rules_dir_remove_new(dir);
    if (r != 0) {
        return r;
    }
    r = qm_rules_dir_create(dir, &fd);
    if (r != 0) {
        return r;
    }
    close(fd);
    return qm_rules_dir_remove_new(dir);
}

static int open_dir(struct qm_rules_dir *dir, const char *name, char *err, size_t len)
{
    if (mkdir(name, 0700) != 0 && errno != EEXIST) {
        int e = errno;
        return explain(e, err, len, "cannot make the rules directory %s: %s", name,
                       strerror(e));
    }
    dir->fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[PATH_MAX];
    if (dir->fd < 0 || !realpath(name, dir->path)) {
        int e = errno;
        return explain(e, err, len,
                       e == ENOTDIR ? "the rules directory %s is not a directory (%s)"
                                    : "cannot open the rules directory %s: %s",
                       name, strerror(e));
    }
    if (file_path(dir, DB_NAME, path, sizeof path) != 0) {
        return explain(ENAMETOOLONG, err, len,
                       "the path of the rules directory %s is too long", name);
    }
    if (flock(dir->fd, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        return explain(e == EWOULDBLOCK ? EBUSY : e, err, len,
                       e == EWOULDBLOCK
                           ? "the rules directory %s is in use by another server (%s)"
                           : "cannot lock the rules directory %s: %s",
                       name, strerror(e));
    }
    int e = try_to_write(dir);
    if (e != 0) {
        return explain(e, err, len, "cannot write into the rules directory %s: %s",
                       name, strerror(e));
    }
    return 0;
}

int qm_rules_dir_open(const struct qm_mining_config *config, struct qm_rules_dir **dir,
                      char *err, size_t len)
{
    struct qm_rules_dir *d = calloc(1, sizeof *d);
    if (!d) {
        return explain(ENOMEM, err, len, "out of memory");
    }
    d->fd = -1;
    d->block_size = config->block_size;
    int r = 0;
    if (config->rules_for) {
        d->device = strdup(config->rules_for);
        if (!d->device) {
            r = explain(ENOMEM, err, len, "out of memory");
        }
    }
    if (r == 0) {
        r = open_dir(d, config->rules_dir, err, len);
    }
    if (r != 0) {
        qm_rules_dir_close(d);
        return r;
    }
    *dir = d;
    return 0;
}

void qm_rules_dir_close(struct qm_rules_dir *dir)
{
    if (dir->fd >= 0) {
        close(dir->fd);
    }
    free(dir->device);
    free(dir);
}

int qm_rules_dir_try(const char *name, char *err, size_t len)
{
    const struct qm_mining_config config = {.rules_dir = name};
    struct qm_rules_dir *dir = NULL;
    struct stat st;
    bool made = lstat(name, &st) != 0 && errno == ENOENT;
    int r = qm_rules_dir_open(&config, &dir, err, len);

    if (dir) {
        qm_rules_dir_close(dir);
        err[0] = '\0';
    }
    if (made) {
        (void)rmdir(name); /* fails unless it is there and empty */
    }
    return r;
}

const char *qm_rules_dir_device(const struct qm_rules_dir *dir)
{
    return dir->device;
}

uint64_t qm_rules_dir_block_size(const struct qm_rules_dir *dir)
{
    return dir->block_size;
}

void qm_rules_compare(const char *wanted, uint64_t block_size, const char *device,
                      size_t n, uint64_t device_block_size, char *why, size_t len)
{
    why[0] = '\0';
    if (wanted && (n != strlen(wanted) || memcmp(device, wanted, n) != 0)) {
        snprintf(why, len, "of another device (\"%.*s\", not \"%s\")", (int)n, device,
                 wanted);
    } else if (block_size != 0 && device_block_size != block_size) {
        snprintf(why, len, "of another block size (%llu, not %llu)",
                 (unsigned long long)device_block_size, (unsigned long long)block_size);
    }
}

int qm_rules_dir_read(struct qm_rules_dir *dir, int *fd, char *why, size_t len)
{
    struct stat st;
    why[0] = '\0';
    if (fstatat(dir->fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, len, "not a file");
        return EINVAL;
    }
    /* Should another thing have taken its place, that is not waited for. */
    *fd = openat(dir->fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0) {
        int e = errno;
        snprintf(why, len, "unreadable (%s)", strerror(e));
        return e;
    }
    return 0;
}

int qm_rules_dir_set_aside(struct qm_rules_dir *dir, const char *why, char *err,
                           size_t len)
{
    char name[sizeof FILE_NAME + 16];
    struct stat st;
    int n = 1;
    for (;; n++) {
        snprintf(name, sizeof name, FILE_NAME ".bad-%d", n);
        if (n == BAD_MAX || fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            break;
        }
    }
    if (renameat(dir->fd, FILE_NAME, dir->fd, name) != 0) {
        int e = errno;
        return explain(e, err, len, "%s/" FILE_NAME " is %s, and cannot be renamed: %s",
                       dir->path, why, strerror(e));
    }
    return explain(0, err, len,
                   "%s/" FILE_NAME
                   " is %s: it was renamed to %s, and the server starts "
                   "without rules",
                   dir->path, why, name);
}

int qm_rules_dir_explain(const struct qm_rules_dir *dir, int error, char *err,
                         size_t len)
{
    return explain(error, err, len, "cannot load the rules from %s/" FILE_NAME ": %s",
                   dir->path, strerror(error));
}

int qm_rules_dir_commit(struct qm_rules_dir *dir)
{
    if (renameat(dir->fd, NEW_NAME, dir->fd, FILE_NAME) != 0 || fsync(dir->fd) != 0) {
        return errno;
    }
    return 0;
}
