/* SPDX-License-Identifier: BSD-3-Clause */
/* dead.c - mounts whose program is gone.
 *
 * A mount that was killed stays in the table of mounts, and whatever is done with its
 * file fails with ENOTCONN.  The kernel says that only when nobody can ever answer
 * again, so what is taken away has no use any more.  It is detached: a program that has
 * the file open keeps its errors, and does not get the new mount in its place.
 */
#include "clients/mount/dead.h"

#include <errno.h>
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

/* path without symbolic links in its directory: of the file itself nothing can be
 * asked.
 */
static bool real_path(const char *path, char real[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char dir[PATH_MAX], top[PATH_MAX];
    int n = snprintf(dir, sizeof dir, "%.*s", slash ? (int)(name - path) : 1,
                     slash ? path : ".");

    if (n < 0 || (size_t)n >= sizeof dir || !*name || !realpath(dir, top))
        return false;
    n = snprintf(real, PATH_MAX, "%s/%s", strcmp(top, "/") == 0 ? "" : top, name);
    return n >= 0 && n < PATH_MAX;
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

static bool is_dead(const char *path)
{
    struct stat st;

    return lstat(path, &st) == -1 && errno == ENOTCONN;
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
    char real[PATH_MAX];
    bool cleared = false;

    if (!real_path(path, real))
        return false;
    for (int i = 0; i < MAX_DEAD && is_dead(real) && is_ours(real); i++) {
        if (umount2(real, MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && !by_fusermount(real))
            return cleared;
        qm_mount_log(LOG_NOTICE, "%s: was mounted by a program that is gone; unmounted",
                     real);
        cleared = true;
    }
    return cleared;
}
