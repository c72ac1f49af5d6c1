/* SPDX-License-Identifier: BSD-3-Clause */
/* become.c - subcommands that are programs of their own, so that the command does not
 * need what they need: qm-rowcache MariaDB, libevent and OpenSSL, qm-lsm Python.
 *
 * A program is looked for beside this one, then in PATH. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int become(const char *name, const char *package, char **argv)
{
    char path[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash) {
        strcpy(slash + 1, name);
        execv(path, argv);
    }
    execvp(name, argv);
    return cli_fail("%s: %s%s%s", name, strerror(errno),
                    errno == ENOENT ? "; install " : "",
                    errno == ENOENT ? package : "");
}

int qm_cmd_rowcache(int argc, char **argv)
{
    static char name[] = "qm-rowcache";

    argv[0] = name;
    return become(name, "quickmine-rowcache", argv);
}

int qm_cmd_lsm(int argc, char **argv)
{
    static char name[] = "qm-lsm";

    argv[0] = name;
    return become(name, "libquickmine-lsm-dev", argv);
}
