/* SPDX-License-Identifier: BSD-3-Clause */
/* attach-use.c - whether a block device is in use. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"

#define OWNER    "quickmine:"
#define LOCK_MS  20
#define PROBE_MS 50
#define PROBES   40 /* further looks, of which each comes so much later */

/* Whether it is the disk, or a partition of it: nbd's minor numbers are those of the
 * disk and then its partitions'. */
static bool is_of_disk(const struct stat *st, dev_t disk)
{
    char path[64];
    struct stat part;

    if (!S_ISBLK(st->st_mode))
        return false;
    if (st->st_rdev == disk)
        return true;
    if (major(st->st_rdev) != major(disk))
        return false;
    /* A partition's directory lies in its disk's. */
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", major(st->st_rdev),
             minor(st->st_rdev));
    if (stat(path, &part) != 0)
        return false;
    {
        unsigned ma = 0, mi = 0;
        FILE *f = fopen(path, "re");
        bool same = f && fscanf(f, "%u:%u", &ma, &mi) == 2 && makedev(ma, mi) == disk;

        if (f)
            fclose(f);
        return same;
    }
}

static bool has_open(const char *process, dev_t disk)
{
    char path[64];
    const struct dirent *entry;
    struct stat st;
    bool found = false;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    dir = opendir(path);
    if (!dir)
        return false;
    while (!found && (entry = readdir(dir)))
        found =
            fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && is_of_disk(&st, disk);
    closedir(dir);
    return found;
}

static void name_of(const char *process, char *name, size_t len)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/comm", process);
    snprintf(name, len, "?");
    f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(name, (int)len, f))
        snprintf(name, len, "?");
    fclose(f);
    name[strcspn(name, "\n")] = '\0';
}

static int find_user(const char *device, dev_t disk, char *err, size_t len)
{
    long self = (long)getpid();
    const struct dirent *entry;
    DIR *dir = opendir("/proc");
    int error = 0;
    char name[32];

    if (!dir)
        return 0;
    while (error == 0 && (entry = readdir(dir))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
            atol(entry->d_name) == self || !has_open(entry->d_name, disk))
            continue;
        name_of(entry->d_name, name, sizeof name);
        snprintf(err, len, "%s is open in process %.20s (%s)", device, entry->d_name,
                 name);
        error = EBUSY;
    }
    closedir(dir);
    return error;
}

/* As mountinfo has it, with \040 for a blank. */
static void unescape(char *path)
{
    char *to = path;

    for (const char *from = path; *from; to++) {
        unsigned c;

        if (*from == '\\' && sscanf(from + 1, "%3o", &c) == 1) {
            *to = (char)c;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* Whether path lies on a file system that is in memory, as /dev is.  Of any other the
 * server may be away, that of this very device, too, and a look at the file would wait
 * for it for ever. */
static bool is_in_memory(const char *path)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool memory = false;
    size_t size = 0, best = 0;
    char *line = NULL;

    while (mounts && getline(&line, &size, mounts) > 0) {
        const char *dash = strstr(line, " - ");
        char point[PATH_MAX], type[32];
        size_t len;

        if (!dash || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
            sscanf(dash, " - %31s", type) != 1)
            continue;
        unescape(point);
        len = strcmp(point, "/") == 0 ? 0 : strlen(point);
        /* Of several on the same place, the last one is on top. */
        if (len < best || strncmp(path, point, len) != 0 ||
            (path[len] != '/' && path[len] != '\0'))
            continue;
        best = len;
        memory = strcmp(type, "devtmpfs") == 0 || strcmp(type, "tmpfs") == 0 ||
                 strcmp(type, "ramfs") == 0;
    }
    free(line);
    if (mounts)
        fclose(mounts);
    return memory;
}

/* A loop device holds nothing exclusively, and no process has it open.  Device
 * nodes outside /dev and the like are not found. */
static int find_loop(const char *device, dev_t disk, char *err, size_t len)
{
    const struct dirent *entry;
    DIR *dir = opendir("/sys/block");
    char path[PATH_MAX], backing[PATH_MAX];
    struct stat st;
    int error = 0;
    FILE *f;

    if (!dir)
        return 0;
    while (error == 0 && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "loop", 4) != 0)
            continue;
        snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", entry->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        if (fgets(backing, sizeof backing, f)) {
            backing[strcspn(backing, "\n")] = '\0';
            if (is_in_memory(backing) && stat(backing, &st) == 0 &&
                is_of_disk(&st, disk)) {
                snprintf(err, len, "/dev/%.32s is a loop device over %s", entry->d_name,
                         device);
                error = EBUSY;
            }
        }
        fclose(f);
    }
    closedir(dir);
    return error;
}

int attach_check_unused(const char *device, int *fd, char *err, size_t len)
{
    struct stat st;
    int error;

    /* Exclusive: not while it, or a partition, is mounted or part of another device. */
    *fd = open(device, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);
    if (*fd == -1) {
        error = errno;
        snprintf(err, len, "%s is %s", device,
                 error == EBUSY ? "mounted, or part of another device"
                                : strerror(error));
        return error;
    }
    error = fstat(*fd, &st) == 0 ? find_user(device, st.st_rdev, err, len) : errno;
    if (error == 0)
        error = find_loop(device, st.st_rdev, err, len);
    if (error != 0) {
        close(*fd);
        *fd = -1;
    }
    return error;
}

int attach_await_unused(const char *device, int *fd, char *err, size_t len)
{
    const struct timespec nap = {.tv_nsec = PROBE_MS * 1000000L};
    int error;

    for (unsigned again = 0;; again++) {
        error = attach_check_unused(device, fd, err, len);
        if (error != EBUSY || again == PROBES)
            return error;
        nanosleep(&nap, NULL);
    }
}

int attach_lock(unsigned number, unsigned wait_seconds)
{
    const struct timespec nap = {.tv_nsec = LOCK_MS * 1000000L};
    struct stat st;
    char path[64];
    int fd, error;

    mkdir("/run/quickmine", 0755);
    snprintf(path, sizeof path, "/run/quickmine/nbd%u.lock", number);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd == -1)
        return -1;
    /* The file's owner could hold the lock for ever, and read our sessions' number. */
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_nlink != 1) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    for (unsigned ms = 0;; ms += LOCK_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        error = errno;
        if (error != EWOULDBLOCK || ms >= wait_seconds * 1000)
            break;
        nanosleep(&nap, NULL);
    }
    close(fd);
    errno = error;
    return -1;
}

void attach_owner(char *owner, size_t len, const char *uri)
{
    snprintf(owner, len, OWNER "%s", uri);
}

bool attach_is_ours(const char *owner)
{
    return strncmp(owner, OWNER, sizeof OWNER - 1) == 0;
}
