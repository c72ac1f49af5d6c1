/* SPDX-License-Identifier: BSD-3-Clause */
/* rowcache.c - quickmine rowcache: becomes qm-rowcache, which is a program of its own
 * so that the command needs no MariaDB, libevent or OpenSSL.
 *
 * It is looked for beside this program, then in PATH. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int qm_cmd_rowcache(int argc, char **argv)
{
    static char name[] = "qm-rowcache";
    char path[PATH_MAX + sizeof name];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;

    argv[0] = name;
    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash) {
        memcpy(slash + 1, name, sizeof name);
        execv(path, argv);
    }
    execvp(name, argv);
    return cli_fail("%s: %s%s", name, strerror(errno),
                    errno == ENOENT ? "; install quickmine-rowcache" : "");
}
