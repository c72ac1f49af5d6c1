/* SPDX-License-Identifier: BSD-3-Clause */
/* place.c - see place.h. */
#include "clients/mount/place.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int qm_place_open(struct qm_place *p, const char *path, struct stat *st)
{
    const char *name = strrchr(path, '/') + 1;
    char dir[PATH_MAX];
    int error;

    *p = QM_PLACE_NONE;
    snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    p->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->dir != -1)
        p->file = openat(p->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (p->file == -1 || fstat(p->file, st) != 0) {
        error = errno;
        qm_place_close(p);
        return error;
    }
    if (S_ISLNK(st->st_mode)) {
        qm_place_close(p);
        return ELOOP;
    }
    snprintf(p->held, sizeof p->held, "/proc/self/fd/%d/%.*s", p->dir, NAME_MAX, name);
    snprintf(p->over, sizeof p->over, "/proc/self/fd/%d", p->file);
    return 0;
}

void qm_place_close(struct qm_place *p)
{
    if (p->file != -1)
        close(p->file);
    if (p->dir != -1)
        close(p->dir);
    *p = QM_PLACE_NONE;
}

bool qm_place_is_mounted(const struct qm_place *p)
{
    struct statx stx;

    return statx(p->file, "", AT_EMPTY_PATH, STATX_MODE, &stx) == 0 &&
           (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

void qm_place_remove(const struct qm_place *p, const struct stat *st)
{
    const char *name = strrchr(p->held, '/');
    struct stat now;

    if (p->dir != -1 && name &&
        fstatat(p->dir, name + 1, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_dev == st->st_dev && now.st_ino == st->st_ino && now.st_size == 0)
        unlinkat(p->dir, name + 1, 0);
}

int qm_place_mount(const struct qm_place *p, const char *source, bool read_only,
                   const char *options)
{
    unsigned long flags = MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0);
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), error;
    char text[256];

    if (fd == -1)
        return -1;
    snprintf(text, sizeof text, "fd=%d,rootmode=%o,user_id=%u,group_id=%u,%s", fd,
             S_IFREG, (unsigned)geteuid(), (unsigned)getegid(), options);
    if (mount(source, p->over, "fuse.quickmine", flags, text) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

void qm_place_unmount(const struct qm_place *p, int fd)
{
    struct pollfd fuse = {.fd = fd};

    /* That is how the kernel says that it is unmounted: what is there now is another's.
     */
    if (poll(&fuse, 1, 0) == 1 && (fuse.revents & POLLERR))
        return;
    umount2(p->held, MNT_DETACH | UMOUNT_NOFOLLOW);
}
