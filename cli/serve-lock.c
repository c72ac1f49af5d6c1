/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-lock.c - one writing server a device, of quickmine serve.
 *
 * Two caches above one device each keep what the other has overwritten, so the second
 * server must not start.  flock(2) on the file itself has the file's identity by
 * nature: other names of it, and links to it, meet the same lock, in other mount
 * namespaces too.  A block device may have several inodes, so a writer claims it, too.
 * The lock ends with the descriptor, so nothing is stale after a crash. What has no
 * file here (a volume of a cluster, another NBD server) is known by its parameters
 * only: two ways to write them are two locks.
 *
 * udev, too, locks a disk while it looks at it, which it does each time when a program
 * that could write to it has closed it, as a server does that ends.  So the lock on a
 * block device is waited for a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/serve.h"

enum {
    PATIENCE = 10, /* s, with a block device */
    INTERVAL = 50, /* ms between two tries */
    CLAIMS = 40    /* further tries to claim it */
};

/* The process that holds a lock on what st describes, or 0: for the message. */
static long holder(const struct stat *st)
{
    FILE *locks = fopen("/proc/locks", "re");
    char wanted[64], line[256];
    long pid = 0;

    if (!locks)
        return 0;
    snprintf(wanted, sizeof wanted, " %02x:%02x:%ju ", major(st->st_dev),
             minor(st->st_dev), (uintmax_t)st->st_ino);
    while (pid == 0 && fgets(line, sizeof line, locks))
        if (strstr(line, "FLOCK") && strstr(line, wanted))
            sscanf(line, "%*s %*s %*s %*s %ld", &pid);
    fclose(locks);
    return pid;
}

/* As flock(fd, operation), which is not to wait. */
static int lock_patiently(int fd, int operation, const struct stat *st)
{
    const struct timespec interval = {.tv_nsec = INTERVAL * 1000000};
    struct timespec begun, now;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    now = begun;
    while (flock(fd, operation) == -1) {
        if (errno != EWOULDBLOCK || !S_ISBLK(st->st_mode) ||
            now.tv_sec - begun.tv_sec >= PATIENCE)
            return -1;
        nanosleep(&interval, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return 0;
}

/* Claims a block device that is open as mount(2) does, and leaves that open: flock(2)
 * knows its name's inode only, and neither file systems nor RAID, LVM or swap know that
 * lock.  What probes disks may claim it for a moment, too. */
static int claim(int device, const char *path)
{
    const struct timespec interval = {.tv_nsec = INTERVAL * 1000000};
    char same[32]; /* path may lead elsewhere by now */
    int fd;

    snprintf(same, sizeof same, "/proc/self/fd/%d", device);
    for (unsigned tries = CLAIMS; (fd = open(same, O_RDONLY | O_EXCL)) == -1; tries--) {
        if (errno != EBUSY) /* the backend will say what it thinks of it */
            return 0;
        if (tries == 0)
            break;
        nanosleep(&interval, NULL);
    }
    if (fd != -1)
        return 0;
    cli_fail("%s is in use: it, its disk or a partition of it is mounted, a part of a "
             "RAID, a volume group or the swap space, or served under another name",
             path);
    return -1;
}

/* Opens the lock at path, and makes it if there is none: for the directory's owner, who
 * could not take it otherwise after root has served the device by hand. */
static int open_lock(const char *path, const char *directory)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    struct stat st;

    if (fd == -1)
        return errno == EEXIST ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600) : -1;
    if (geteuid() == 0 && stat(directory, &st) == 0)
        (void)!fchown(fd, st.st_uid, st.st_gid);
    return fd;
}

/* Opens what is served. */
static int open_device(const char *path, bool read_only)
{
    int fd = open(path, read_only ? O_RDONLY : O_RDWR);

    if (fd == -1 && (errno == EACCES || errno == EROFS))
        fd = open(path, O_RDONLY); /* the backend will say what it thinks of that */
    return fd;
}

/* What to say of a path that is not found, or may not be looked at: the unit hides some
 * directories, and a person who looks there sees it. */
static const char *hidden_by_unit(const char *path)
{
    static const char *const hidden[] = {"/home/", "/root/", "/run/user/", "/tmp/",
                                         "/var/tmp/"};

    if (!getenv("INVOCATION_ID")) /* systemd's */
        return "";
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (strncmp(path, hidden[i], strlen(hidden[i])) == 0)
            return "; in quickmine@.service, a server does not see the machine's "
                   "/home, /root, /run/user, /tmp and /var/tmp";
    return "";
}

/* Locks what is open, and leaves it open. */
static int lock(int fd, const char *path, const char *what, bool read_only)
{
    struct stat st;

    if (fd == -1) {
        cli_fail("%s: %s%s", path, strerror(errno), hidden_by_unit(path));
        return -1;
    }
    if (fstat(fd, &st) == 0 &&
        lock_patiently(fd, (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB, &st) == 0) {
        if (read_only || !S_ISBLK(st.st_mode) || claim(fd, path) == 0)
            return 0;
        close(fd);
        return -1;
    }
    if (errno == EWOULDBLOCK) {
        long pid = holder(&st);
        char by[64] = "";

        if (pid > 0)
            snprintf(by, sizeof by, " (process %ld)", pid);
        cli_fail("%s is served already%s: two servers on one device would each cache "
                 "what the other overwrites",
                 what, by);
    } else {
        cli_fail("%s cannot be locked: %s", path, strerror(errno));
    }
    close(fd);
    return -1;
}

/* FNV-1a. */
static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h ^ '\n') * UINT64_C(0x100000001b3);
}

int serve_lock(const struct serve_file *file, const char *directory, bool read_only)
{
    const char *backend = serve_value(file, "backend", "");
    uint64_t h = hash(UINT64_C(0xcbf29ce484222325), backend);
    char *path, *what;
    bool has_file = false;
    int failed = 0;

    for (size_t i = 0; i < file->n && !failed; i++) {
        const struct serve_setting *s = &file->settings[i];
        const char *key = serve_of_group(s, "backend");

        if (!key)
            continue;
        h = hash(hash(h, key), s->value);
        if (strcmp(key, "file") == 0) {
            has_file = true;
            failed =
                lock(open_device(s->value, read_only), s->value, s->value, read_only);
        }
    }
    if (failed || has_file)
        return failed;
    if (asprintf(&path, "%s/%016" PRIx64, directory, h) == -1)
        return cli_fail("out of memory"), -1;
    if (asprintf(&what, "the %s device of %s", backend, file->path) == -1) {
        free(path);
        return cli_fail("out of memory"), -1;
    }
    failed = lock(open_lock(path, directory), path, what, read_only);
    free(what);
    free(path);
    return failed;
}
