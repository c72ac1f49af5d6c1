/* SPDX-License-Identifier: BSD-3-Clause */
/* dead.c - mounts whose program is gone.
 *
 * A mount that was killed stays in the table of mounts, and whatever is done with its
 * file fails with ENOTCONN.  The kernel says that only when nobody can ever answer
 * again, so what is taken away has no use any more.  It is detached: a program that has
 * the file open keeps its errors, and does not get the new mount in its place.
 *
 * Its directory may belong to a user who exchanges it meanwhile, so that another mount
 * would be taken away.  It is therefore looked up once, and held by a descriptor.
 */
#include "clients/mount/dead.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "clients/mount/log.h"

#define TYPE "fuse.quickmine"

/* More than one are there if a mount was killed after each start. */
#define MAX_DEAD 16

/* A file: of itself nothing can be asked. */
struct place {
    int dir;
    const char *name;    /* in it */
    char real[PATH_MAX]; /* without symbolic links, as the table of mounts has it */
    char held[PATH_MAX]; /* through the descriptor */
};

/* False: there is none; then nothing is to be closed. */
static bool find(struct place *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    char link[64], dir[PATH_MAX], top[PATH_MAX];
    int n;
    ssize_t len;

    p->name = slash ? slash + 1 : path;
    n = snprintf(dir, sizeof dir, "%.*s", slash ? (int)(p->name - path) : 1,
                 slash ? path : ".");
    if (n < 0 || (size_t)n >= sizeof dir || !*p->name)
        return false;
    p->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->dir == -1)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", p->dir);
    len = readlink(link, top, sizeof top - 1);
    top[len > 0 ? len : 0] = '\0';
    n = snprintf(p->real, sizeof p->real, "%s/%s", strcmp(top, "/") == 0 ? "" : top,
                 p->name);
    if (len > 0 && n >= 0 && (size_t)n < sizeof p->real) {
        n = snprintf(p->held, sizeof p->held, "%s/%s", link, p->name);
        if (n >= 0 && (size_t)n < sizeof p->held)
            return true;
    }
    close(p->dir);
    return false;
}

/* Whether the uppermost mount at that path is one of ours. */
static bool is_ours(const char *real)
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    char buf[2 * PATH_MAX + 512];
    struct mntent entry;
    bool ours = false;

    while (mounts && getmntent_r(mounts, &entry, buf, sizeof buf))
        if (strcmp(entry.mnt_dir, real) == 0)
            ours = strcmp(entry.mnt_type, TYPE) == 0;
    if (mounts)
        endmntent(mounts);
    return ours;
}

/* Not from the kernel's cache: it answers for the dead, too. */
static bool is_dead(const struct place *p)
{
    struct statx stx;

    return statx(p->dir, p->name, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_MODE,
                 &stx) == -1 &&
           errno == ENOTCONN;
}

/* By a program with the right to, where we have none. */
static bool by_fusermount(char *real)
{
    char *argv[] = {"fusermount3", "-u", "-q", "-z", "--", real, NULL};
    int status;
    pid_t pid;

    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
        return false;
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool qm_mount_clear_dead(const char *path)
{
    char target[PATH_MAX];
    struct place p;
    bool cleared = false;

    /* By whatever link it is reached. */
    if (!find(&p, realpath(path, target) ? target : path))
        return false;
    /* Ours first: another program's mount may take its time to answer. */
    for (int i = 0; i < MAX_DEAD && is_ours(p.real) && is_dead(&p); i++) {
        if (umount2(p.held, MNT_DETACH | UMOUNT_NOFOLLOW) != 0 &&
            !by_fusermount(p.real))
            break;
        qm_mount_log(LOG_NOTICE, "%s: was mounted by a program that is gone; unmounted",
                     p.real);
        cleared = true;
    }
    close(p.dir);
    return cleared;
}
