/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-file.c - see tier-file.h. */
#include "server/tier-file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "server/volume-name.h"
#include "tier/format.h"
#include "tier/io.h"
#include "tier/witness.h"

#define LOOK  (128 << 10) /* bytes of a device that are looked at */
#define LOOPS 4 /* loop devices of files on loop devices that are looked through */

/* Beside the errors of the system. */
enum { SERVED = -1, OTHER_FILE = -2, OTHER_DEVICE = -3 };

/* Whether another program has a lock on the file, as a server has on its tier. */
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* The same of a witness. */
static bool is_locked_at(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool locked = fd != -1 && is_locked(fd);

    if (fd != -1)
        close(fd);
    return locked;
}

/* The disk that a block device is a partition of; itself if it is none. */
static dev_t disk_of(dev_t device)
{
    char path[80], number[32] = "";
    unsigned major, minor;
    FILE *file;

    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", major(device),
             minor(device));
    if (access(path, F_OK) == -1)
        return device;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", major(device),
             minor(device));
    file = fopen(path, "re");
    if (file) {
        if (fgets(number, sizeof number, file) &&
            sscanf(number, "%u:%u", &major, &minor) == 2)
            device = makedev(major, minor);
        fclose(file);
    }
    return device;
}

/* The file below a loop device or one of its partitions; false: it is none. */
static bool is_loop(const struct stat *device, struct stat *file)
{
    char path[80], *line = NULL;
    dev_t disk = disk_of(device->st_rdev);
    size_t size = 0;
    ssize_t n;
    FILE *sys;
    bool found;

    if (!S_ISBLK(device->st_mode))
        return false;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/loop/backing_file", major(disk),
             minor(disk));
    sys = fopen(path, "re");
    if (!sys)
        return false;
    n = getline(&line, &size, sys);
    if (n > 0 && line[n - 1] == '\n')
        line[n - 1] = '\0';
    found = n > 0 && stat(line, file) == 0;
    free(line);
    fclose(sys);
    return found;
}

/* Whether two are the same file, or block devices of which one has the other, or one is
 * below the other, at most that many loop devices deep. */
static bool is_below(const struct stat *a, const struct stat *b, unsigned depth)
{
    struct stat below;

    if (S_ISBLK(a->st_mode) && S_ISBLK(b->st_mode)) {
        dev_t disk = disk_of(a->st_rdev);

        /* Of two partitions of a disk, neither has the other. */
        if (disk == disk_of(b->st_rdev))
            return a->st_rdev == b->st_rdev || a->st_rdev == disk || b->st_rdev == disk;
    } else if (!S_ISBLK(a->st_mode) && !S_ISBLK(b->st_mode)) {
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
    }
    return depth > 0 && ((is_loop(a, &below) && is_below(&below, b, depth - 1)) ||
                         (is_loop(b, &below) && is_below(a, &below, depth - 1)));
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return is_below(a, b, LOOPS);
}

/* Whether this process has the file open, by another descriptor than fd: the layers
 * below have what they serve. */
static bool is_open(int fd, const struct stat *st)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        char *end;
        long other = strtol(entry->d_name, &end, 10);
        struct stat of;

        /* By its name in /proc: another thread may close it, and its number be another
         * file's, at any time. */
        found = *end == '\0' && end != entry->d_name && other != fd &&
                other != dirfd(dir) &&
                fstatat(dirfd(dir), entry->d_name, &of, 0) == 0 && is_same(st, &of);
    }
    if (dir)
        closedir(dir);
    return found;
}

static bool is_served(int fd, const struct stat *st)
{
    return is_open(fd, st) || qms_volume_has(st, is_same);
}

/* What the file has that is no tier: 0, OTHER_FILE, OTHER_DEVICE or an errno value.
 * qm_tier_open() judges; this is to tell while a person still watches. */
static int look_for_others(int fd, bool device)
{
    static const char zeros[QM_TIER_PAGE];
    char page[QM_TIER_PAGE];
    bool blank = true;
    int error;

    for (off_t at = 0; at < LOOK; at += sizeof page) {
        ssize_t n = pread(fd, page, sizeof page, at);
        uint64_t magic;

        if (n <= 0)
            break;
        memcpy(&magic, page, sizeof magic);
        if (n == sizeof page && at < QM_TIER_SUPERS && magic == QM_TIER_MAGIC)
            return 0;
        blank = blank && memcmp(page, zeros, (size_t)n) == 0;
    }
    if (device)
        return blank ? 0 : OTHER_DEVICE;
    error = blank ? qm_tier_blank(fd, &blank) : 0;
    return error != 0 ? error : blank ? 0 : OTHER_FILE;
}

/* What is there already must be a file that can be written to. */
static int try_file(const char *path, bool *device)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int error = 0;

    if (fd == -1)
        return errno;
    if (fstat(fd, &st) == -1)
        error = errno;
    else if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        error = EINVAL;
    else if (is_locked(fd))
        error = EBUSY;
    else if (is_served(fd, &st))
        error = SERVED;
    else
        error = look_for_others(fd, S_ISBLK(st.st_mode));
    *device = error == 0 && S_ISBLK(st.st_mode);
    close(fd);
    return error;
}

static const char *explain(int error)
{
    switch (error) {
    case EINVAL:
        return "a tier is a regular file or a block device";
    case EBUSY:
        return "another server uses it";
    case SERVED:
        return "it is what this server serves, or another of its files; give another "
               "path";
    case OTHER_FILE:
        return "it holds something else than a tier; give another path, or if that is "
               "not needed, remove the file";
    case OTHER_DEVICE:
        return "it holds something else than a tier; give another path, or if that is "
               "not needed, overwrite its first 128 KiB with zeros";
    default:
        return strerror(error);
    }
}

/* Whether a file of that name can be made. */
static int try_directory(const char *path)
{
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    int error = 0;

    if (!copy)
        return ENOMEM;
    if (slash)
        slash[slash == copy] = '\0';
    if (access(slash ? copy : ".", W_OK | X_OK) == -1)
        error = errno;
    free(copy);
    return error;
}

int qms_tier_try_file(const char *path, bool *device, char *why, size_t len)
{
    int error = try_file(path, device);

    if (error == ENOENT)
        error = try_directory(path);
    if (error == 0)
        return 0;
    snprintf(why, len, "tier=%s: %s", path, explain(error));
    return -1;
}

int qms_tier_try_witness(const char *path, const char *tier, char *why, size_t len)
{
    int error = qm_tier_witness_check(path);
    struct stat st, of;

    if (strcmp(path, tier) == 0 ||
        (stat(path, &st) == 0 && stat(tier, &of) == 0 && is_same(&st, &of))) {
        snprintf(why, len, "%s is to be both the tier and its witness", path);
        return -1;
    }
    if (error == 0 && stat(path, &st) == -1)
        error = errno == ENOENT ? try_directory(path) : errno;
    else if (error == 0 && is_served(-1, &st))
        error = SERVED;
    else if (error == 0 && is_locked_at(path))
        error = EBUSY;
    if (error == 0)
        return 0;
    snprintf(why, len, "tier-witness=%s: %s", path,
             error == EEXIST
                 ? "it holds something else than the witness of a tier; give "
                   "another path, or if that is not needed, remove it"
                 : explain(error));
    return -1;
}
