/* SPDX-License-Identifier: BSD-3-Clause */
/* disk-files.c - the disk layer as plain files: DIR/XX/NAME, one a record; the
 * name of the record in hexadecimal digits, and the first two of them.
 *
 * The simplest layer, and the one to read before writing another.  A record is written
 * to a file beside it that takes its name, so that it is there as a whole or not at
 * all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/store/disk.h"

struct disk {
    int dir;
    unsigned hash; /* as in disk_config */
    bool has_short;
};

enum { NAME = DISK_HASH * 2 };

static void path_of(const struct disk_name *name, char path[3 + NAME + 1])
{
    snprintf(path, 4, "%02x/", name->bytes[0]);
    for (unsigned i = 0; i < name->len; i++)
        snprintf(path + 3 + 2 * i, 3, "%02x", name->bytes[i]);
}

static bool name_of(const struct disk *d, const char *digits, struct disk_name *name)
{
    size_t n = strspn(digits, "0123456789abcdef");

    if (digits[n] != 0 || n % 2 != 0 ||
        !store_disk_is_name(d->hash, d->has_short, n / 2))
        return false;
    *name = (struct disk_name){.len = (uint8_t)(n / 2)};
    for (unsigned i = 0; i < name->len; i++) {
        unsigned byte;

        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            return false;
        name->bytes[i] = (uint8_t)byte;
    }
    return true;
}

static void files_close(struct disk *d)
{
    if (d->dir != -1)
        close(d->dir);
    free(d);
}

static int files_open(const struct disk_config *c, struct disk **disk)
{
    struct disk *d = malloc(sizeof *d);
    char name[16];
    int r = 0;

    if (!d)
        return ENOMEM;
    d->hash = c->hash;
    d->has_short = c->has_short;
    d->dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir == -1)
        r = errno;
    for (unsigned i = 0; i < 256 && r == 0; i++) {
        snprintf(name, sizeof name, "%02x", i);
        if (mkdirat(d->dir, name, 0700) == -1 && errno != EEXIST)
            r = errno;
    }
    if (r != 0) {
        files_close(d);
        return r;
    }
    *disk = d;
    return 0;
}

static int read_file(int dir, const char *name, void **bytes, size_t *len)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r = 0;
    struct stat st;
    char *at;

    if (fd == -1)
        return errno;
    if (fstat(fd, &st) == -1) {
        r = errno;
        close(fd);
        return r;
    }
    *len = 0;
    at = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
    while (at && r == 0 && *len < (size_t)st.st_size) {
        ssize_t n = read(fd, at + *len, (size_t)st.st_size - *len);

        if (n < 0 && errno != EINTR)
            r = errno;
        else if (n == 0)
            break; /* it is shorter than it was: its checksum will tell */
        else if (n > 0)
            *len += (size_t)n;
    }
    close(fd);
    if (!at || r != 0) {
        free(at);
        return at ? r : ENOMEM;
    }
    *bytes = at;
    return 0;
}

static int files_get(struct disk *d, const struct disk_name *name, void **bytes,
                     size_t *len)
{
    char path[3 + NAME + 1];

    path_of(name, path);
    return read_file(d->dir, path, bytes, len);
}

static int write_file(int dir, const char *name, const char *bytes, size_t len)
{
    int fd =
        openat(dir, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = 0;

    if (fd == -1)
        return errno;
    while (len > 0 && r == 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno != EINTR)
            r = errno;
        else if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    if (close(fd) == -1 && r == 0)
        r = errno;
    if (r == 0 && renameat(dir, "new", dir, name) == -1)
        r = errno;
    return r;
}

static int files_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        size_t len = store_disk_size(&changes[i]);
        char name[3 + NAME + 1], *bytes;

        path_of(changes[i].name, name);
        if (changes[i].dead) {
            if (unlinkat(d->dir, name, 0) == -1 && errno != ENOENT)
                r = errno;
            continue;
        }
        if (!(bytes = malloc(len)))
            return ENOMEM;
        store_disk_pack(&changes[i], bytes);
        r = write_file(d->dir, name, bytes, len);
        free(bytes);
    }
    return r;
}

static int by_name(const void *a, const void *b)
{
    return store_disk_compare(a, b);
}

/* The names of a directory, in order; *names is the caller's. */
static int list(const struct disk *d, unsigned first, struct disk_name **names,
                size_t *count)
{
    size_t size = 0;
    struct dirent *entry;
    char name[16];
    DIR *stream;
    int fd, r = 0;

    *names = NULL;
    *count = 0;
    snprintf(name, sizeof name, "%02x", first);
    fd = openat(d->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return errno;
    if (!(stream = fdopendir(fd))) {
        r = errno;
        close(fd);
        return r;
    }
    while (r == 0 && (errno = 0, entry = readdir(stream))) {
        if (*count == size) {
            void *larger =
                realloc(*names, (size = size ? size * 2 : 64) * sizeof **names);

            if (!larger)
                r = ENOMEM;
            else
                *names = larger;
        }
        if (r == 0 && name_of(d, entry->d_name, &(*names)[*count]))
            ++*count;
    }
    if (r == 0)
        r = errno;
    closedir(stream);
    if (*names)
        qsort(*names, *count, sizeof **names, by_name);
    return r;
}

static int files_walk(struct disk *d, const struct disk_name *from, disk_visit *visit,
                      void *opaque)
{
    int r = 0;

    for (unsigned first = from->bytes[0]; first < 256 && r == 0; first++) {
        struct disk_name *names;
        size_t count;

        r = list(d, first, &names, &count);
        for (size_t i = 0; i < count && r == 0; i++) {
            void *bytes;
            size_t len;

            if (store_disk_compare(&names[i], from) < 0)
                continue;
            r = files_get(d, &names[i], &bytes, &len);
            if (r == 0) {
                r = visit(opaque, &names[i], bytes, len);
                free(bytes);
            }
        }
        free(names);
    }
    return r;
}

static int files_checkpoint(struct disk *d)
{
    return syncfs(d->dir) == -1 ? errno : 0;
}

const struct disk_ops disk_files = {
    .name = "files",
    .open = files_open,
    .get = files_get,
    .apply = files_apply,
    .walk = files_walk,
    .checkpoint = files_checkpoint,
    .close = files_close,
};
