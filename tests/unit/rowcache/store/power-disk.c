/* SPDX-License-Identifier: BSD-3-Clause */
/* power-disk.c - see power-disk.h. */
#include "power-disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "tests/unit/random.h"

enum { FILES = 6000, SECTOR = 512 };

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __real_ftruncate64(int fd, off64_t len);
int __wrap_ftruncate64(int fd, off64_t len);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off64_t at);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_syncfs(int fd);
int __wrap_msync(void *at, size_t len, int flags);

struct file {
    ino_t inode;
    char *bytes; /* as synced */
    size_t len;
};

struct name {
    char dir[200], name[256]; /* dir below the store's, "" for itself */
    ino_t inode;
    bool is_dir;
};

static struct file files[FILES];
static struct name names[FILES]; /* as synced */
static unsigned file_count, name_count;

struct power_disk disk = {.until_crash = -1};

static char *path_of(int fd, char *path, size_t len)
{
    char link[40];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, len - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

static bool is_ours(const char *path)
{
    size_t len = strlen(disk.base);

    return len > 0 && strncmp(path, disk.base, len) == 0 &&
           (!path[len] || path[len] == '/');
}

static char *read_whole(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY);
    char *bytes = NULL;
    struct stat st;

    if (fd == -1)
        return NULL;
    if (fstat(fd, &st) == 0 && (bytes = malloc((size_t)st.st_size + 1))) {
        ssize_t n = read(fd, bytes, (size_t)st.st_size);

        *len = n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return bytes;
}

static struct file *file_of(ino_t inode)
{
    for (unsigned i = 0; i < file_count; i++)
        if (files[i].inode == inode)
            return &files[i];
    return NULL;
}

/* A link keeps the inode's number from being used again. */
static void keep(const char *path, ino_t inode)
{
    char link_name[200];

    snprintf(link_name, sizeof link_name, "%s/%lu", disk.hold, (unsigned long)inode);
    (void)!link(path, link_name);
}

static void sync_file(const char *path)
{
    struct file *f;
    struct stat st;

    if (stat(path, &st) == -1)
        return;
    keep(path, st.st_ino);
    if (!(f = file_of(st.st_ino))) {
        assert_true(file_count < FILES);
        f = &files[file_count++];
        f->inode = st.st_ino;
    }
    free(f->bytes);
    f->bytes = read_whole(path, &f->len);
}

static void sync_dir(const char *path)
{
    const char *below = path + strlen(disk.base) + (path[strlen(disk.base)] == '/');
    DIR *stream = opendir(path);
    struct dirent *e;
    unsigned n = 0;

    for (unsigned i = 0; i < name_count; i++)
        if (strcmp(names[i].dir, below) != 0)
            names[n++] = names[i];
    name_count = n;
    while (stream && (e = readdir(stream))) {
        char full[600];

        if (e->d_name[0] == '.')
            continue;
        assert_true(name_count < FILES);
        snprintf(names[name_count].dir, 200, "%s", below);
        snprintf(names[name_count].name, 256, "%s", e->d_name);
        names[name_count].inode = e->d_ino;
        names[name_count++].is_dir = e->d_type == DT_DIR;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (e->d_type != DT_DIR)
            keep(full, e->d_ino);
    }
    if (stream)
        closedir(stream);
}

static int sync_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    if (type == FTW_F)
        sync_file(path);
    else
        sync_dir(path);
    return 0;
}

void power_disk_sync(void)
{
    nftw(disk.base, sync_one, 16, FTW_PHYS);
}

/* A file of the disk.image: of each sector, the synced or the newest. */
static void leave_file(ino_t inode, const char *to)
{
    char from[200];
    struct file *f = file_of(inode);
    size_t now_len = 0, old_len = f ? f->len : 0, len;
    char *now, *bytes;
    FILE *out;

    snprintf(from, sizeof from, "%s/%lu", disk.hold, (unsigned long)inode);
    now = read_whole(from, &now_len);
    len = rnd(&disk.seed) % 2 ? now_len : old_len;
    bytes = calloc(1, len + 1);
    for (size_t at = 0; at < len; at += SECTOR) {
        size_t n = len - at < SECTOR ? len - at : SECTOR;
        bool newest = rnd(&disk.seed) % 2;
        const char *of = newest ? now : f ? f->bytes : NULL;
        size_t of_len = newest ? now_len : old_len;

        if (of && at < of_len)
            memcpy(bytes + at, of + at, of_len - at < n ? of_len - at : n);
    }
    out = fopen(to, "w");
    assert_true(out && fwrite(bytes, 1, len, out) == len);
    fclose(out);
    free(now);
    free(bytes);
}

static void leave_dir(const char *below);

static void leave_name(const char *below, const char *name, ino_t inode, bool is_dir)
{
    char to[600], next[500];

    snprintf(to, sizeof to, "%s/%s%s%s", disk.image, below, *below ? "/" : "", name);
    if (!is_dir) {
        leave_file(inode, to);
        return;
    }
    mkdir(to, 0700);
    snprintf(next, sizeof next, "%s%s%s", below, *below ? "/" : "", name);
    leave_dir(next);
}

static void leave_dir(const char *below)
{
    char path[400], full[700];
    struct stat st;
    struct dirent *e;
    DIR *stream;

    snprintf(path, sizeof path, "%s/%s", disk.base, below);
    /* Names that were synced: that, or what the name is now. */
    for (unsigned i = 0; i < name_count; i++) {
        bool there;

        if (strcmp(names[i].dir, below) != 0)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, names[i].name);
        there = lstat(full, &st) == 0;
        if ((there && st.st_ino == names[i].inode) || rnd(&disk.seed) % 2)
            leave_name(below, names[i].name, names[i].inode, names[i].is_dir);
        else if (there) {
            keep(full, st.st_ino);
            leave_name(below, names[i].name, st.st_ino, S_ISDIR(st.st_mode));
        }
    }
    stream = opendir(path);
    while (stream && (e = readdir(stream))) {
        bool synced = false;

        for (unsigned i = 0; i < name_count && !synced; i++)
            synced =
                strcmp(names[i].dir, below) == 0 && !strcmp(names[i].name, e->d_name);
        if (e->d_name[0] == '.' || synced || rnd(&disk.seed) % 2)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (e->d_type != DT_DIR)
            keep(full, e->d_ino);
        leave_name(below, e->d_name, e->d_ino, e->d_type == DT_DIR);
    }
    if (stream)
        closedir(stream);
}

void power_disk_end(void)
{
    disk.until_crash = -1;
    mkdir(disk.image, 0700);
    leave_dir("");
    _exit(0);
}

static void call(void)
{
    if (disk.until_crash > 0 && --disk.until_crash == 0)
        power_disk_end();
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int r;

    call();
    if (disk.fail_after > 0 && disk.fail_after-- == 1) {
        disk.fail_after = 1;
        errno = ENOSPC;
        return -1;
    }
    r = __real_renameat(from_dir, from, to_dir, to);
    call();
    return r;
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    char path[300], full[400];
    struct stat st;

    call();
    if (fstatat(dir, name, &st, 0) == 0 && is_ours(path_of(dir, path, sizeof path))) {
        snprintf(full, sizeof full, "%s/%s", path, name);
        keep(full, st.st_ino);
    }
    return __real_unlinkat(dir, name, flags);
}

static ssize_t write_some(int fd, const void *bytes, size_t len, const off64_t *at)
{
    call();
    return at ? pwritev(fd, &(struct iovec){(void *)(uintptr_t)bytes, len}, 1, *at)
              : writev(fd, &(struct iovec){(void *)(uintptr_t)bytes, len}, 1);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
    return write_some(fd, bytes, len, &at);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    return write_some(fd, bytes, len, NULL);
}

int __wrap_ftruncate64(int fd, off64_t len)
{
    call();
    return __real_ftruncate64(fd, len);
}

static int sync_fd(int fd)
{
    char path[300];
    struct stat st;

    call();
    if (is_ours(path_of(fd, path, sizeof path)) && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            sync_dir(path);
        else
            sync_file(path);
    }
    call();
    return 0;
}

int __wrap_fsync(int fd)
{
    return sync_fd(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_fd(fd);
}

int __wrap_syncfs(int fd)
{
    call();
    power_disk_sync();
    call();
    return 0;
}

/* The only mapping that is written is that of the file "state". */
int __wrap_msync(void *at, size_t len, int flags)
{
    char path[200];

    call();
    for (unsigned i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%u/state", disk.base, i);
        sync_file(path);
    }
    call();
    return 0;
}
