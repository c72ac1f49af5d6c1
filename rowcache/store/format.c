/* SPDX-License-Identifier: BSD-3-Clause */
/* format.c - the file PATH/qmstore: that this is a store, and what it was made with.
 *
 * Version 1: records of version 1 (disk.c), called by 16 bytes of hash.
 * Version 2: "hash" says by how many; records of version 2, beside which those of a
 * store that was of version 1 stay as they are.
 * Version 3: "short" says how long keys are that are in the names (names.c).
 *
 * New stores are of version 3.  One of version 2 stays so: its records would be called
 * otherwise.  A library refuses a version that it does not know: it would take what is
 * there for damaged. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "rowcache/store/store.h"

int store_refuse(char *err, size_t len, int error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (len > 0)
        vsnprintf(err, len, format, args);
    va_end(args);
    return error;
}

/* Whether the directory has nothing, or nothing but what a process left that was killed
 * while it made a store. */
static int is_empty(int dir, bool *empty)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent *entry;
    DIR *stream;

    if (fd == -1)
        return errno;
    if (!(stream = fdopendir(fd))) {
        int r = errno;

        close(fd);
        return r;
    }
    *empty = true;
    while ((entry = readdir(stream)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "qmstore.new") != 0)
            *empty = false;
    closedir(stream);
    return 0;
}

/* Of version 2; version 3 adds a line. */
#define FORMAT "qmstore %u\npartitions %u\ndisk %s\nhash %u\n"
#define SHORT  "short %u\n"
#define READ   "qmstore %u\npartitions %u\ndisk %15s\nhash %u\nshort %u\n"

static int make_format(int dir, const struct qmstore_config *c)
{
    int fd = openat(dir, "qmstore.new",
                    O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = 0;

    if (fd == -1)
        return errno;
    if (dprintf(fd, FORMAT SHORT, 3, c->partitions, c->disk, DISK_HASH_NAME,
                DISK_SHORT_KEY) < 0 ||
        fsync(fd) == -1 || renameat(dir, "qmstore.new", dir, "qmstore") == -1 ||
        fsync(dir) == -1)
        r = errno;
    close(fd);
    return r;
}

/* A store of version 1, which has names of 16 bytes, becomes one of version 2: records
 * as they are written now are damaged ones to an earlier library, so that must refuse
 * the store.  In place, as the file is locked; a crash leaves either version. */
static int raise_version(int fd, const struct qmstore_config *c)
{
    char text[128];
    int len = snprintf(text, sizeof text, FORMAT, 1, c->partitions, c->disk, DISK_HASH);

    errno = EIO; /* of a write that is short */
    if (pwrite(fd, text, (size_t)len, 0) != len || fsync(fd) == -1 ||
        pwrite(fd, "2", 1, strlen("qmstore ")) != 1 || fsync(fd) == -1)
        return errno;
    return 0;
}

static bool is_known(unsigned version, int fields, unsigned hash, unsigned short_key)
{
    switch (version) {
    case 1:
        return fields >= 3;
    case 2:
        return fields == 4 && (hash == DISK_HASH_NAME || hash == DISK_HASH);
    case 3:
        return fields == 5 && hash == DISK_HASH_NAME && short_key == DISK_SHORT_KEY;
    default:
        return false;
    }
}

/* What an earlier process left, of whatever version and settings, if it was a store. */
static int remove_earlier(struct qmstore *s, char *err, size_t len)
{
    static const char begin[] = "qmstore ";
    int fd = openat(s->dir, "qmstore", O_RDWR | O_CLOEXEC | O_NOFOLLOW), r = 0;
    char text[sizeof begin - 1];

    if (fd == -1)
        return 0; /* there is none, or it cannot be opened below, either */
    if (flock(fd, LOCK_EX | LOCK_NB) == -1)
        r = store_refuse(err, len, EBUSY, "%s: another process has this store open",
                         s->path);
    else if (pread(fd, text, sizeof text, 0) != (ssize_t)sizeof text ||
             memcmp(text, begin, sizeof text) != 0)
        r = store_refuse(err, len, ENOTEMPTY,
                         "%s is neither empty nor a store: nothing was changed",
                         s->path);
    else if ((r = store_scratch_remove(s->dir)) != 0 ||
             (r = make_format(s->dir, &s->config)) != 0)
        (void)store_refuse(err, len, r, "%s: %s", s->path, strerror(r));
    close(fd);
    return r;
}

int store_format_open(struct qmstore *s, char *err, size_t len)
{
    const struct qmstore_config *c = &s->config;
    char text[128], disk[16] = "";
    unsigned version = 0, partitions = 0, hash = 0, short_key = 0;
    bool empty = false;
    ssize_t n;
    int r, fields;

    /* Two processes that make the store at a time would each lock a file of its own.
     * Some file systems lock no directories: the format file is locked, too. */
    if (flock(s->dir, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK)
        return store_refuse(err, len, EBUSY, "%s: another process has this store open",
                            c->path);
    if (s->scratch && (r = remove_earlier(s, err, len)) != 0)
        return r;
    s->format = openat(s->dir, "qmstore", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->format == -1 && errno == ENOENT) {
        r = is_empty(s->dir, &empty);
        if (r == 0 && !empty)
            return store_refuse(err, len, ENOTEMPTY,
                                "%s is neither empty nor a store: nothing was changed",
                                c->path);
        if (r == 0)
            r = make_format(s->dir, c);
        if (r != 0)
            return store_refuse(err, len, r, "%s: %s", c->path, strerror(r));
        s->format = openat(s->dir, "qmstore", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (s->format == -1) {
        r = errno;
        return store_refuse(err, len, r, "%s/qmstore: %s", c->path, strerror(r));
    }
    if (flock(s->format, LOCK_EX | LOCK_NB) == -1)
        return store_refuse(err, len, EBUSY, "%s: another process has this store open",
                            c->path);
    n = pread(s->format, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    fields = sscanf(text, READ, &version, &partitions, disk, &hash, &short_key);
    if (!is_known(version, fields, hash, short_key))
        return store_refuse(err, len, ENOTEMPTY,
                            "%s/qmstore is not of version 1, 2 or 3", c->path);
    s->hash = version == 1 ? DISK_HASH : hash;
    s->has_short = version == 3;
    if (partitions != c->partitions || strcmp(disk, c->disk) != 0)
        return store_refuse(
            err, len, EINVAL,
            "%s was made with %u partitions and the disk layer %s, not with %u and %s",
            c->path, partitions, disk, c->partitions, c->disk);
    if (version == 1 && (r = raise_version(s->format, c)) != 0)
        return store_refuse(err, len, r, "%s/qmstore: %s", c->path, strerror(r));
    return 0;
}
