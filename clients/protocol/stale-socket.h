/* SPDX-License-Identifier: BSD-3-Clause */
/* stale-socket.h - Unix sockets whose program was killed.
 *
 * The server's statistics and the mount's announcements each have a socket in the file
 * system, which stays when the process is killed; neither shares a library with the
 * other, hence a header.
 */
#ifndef QM_STALE_SOCKET_H
#define QM_STALE_SOCKET_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Whether address is that of a socket of that type (SOCK_STREAM, ...) that no process
 * listens on; *st: its file.  Does not wait. */
static inline bool qm_socket_is_stale(const struct sockaddr_un *address, int type,
                                      struct stat *st)
{
    bool refused;
    int fd;

    if (lstat(address->sun_path, st) == -1 || !S_ISSOCK(st->st_mode))
        return false;
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return false;
    refused = connect(fd, (const struct sockaddr *)address, sizeof *address) == -1 &&
              errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* Removes the socket that a killed process left behind; leaves anything else.  Another
 * process may be doing the same, and have put its own there since we looked: what is
 * moved out of the way and turns out to be that one is put back. */
static inline void qm_socket_remove_stale(const struct sockaddr_un *address, int type)
{
    const char *path = address->sun_path;
    struct stat stale, moved;
    char *aside;

    if (!qm_socket_is_stale(address, type, &stale) ||
        asprintf(&aside, "%s.%ld", path, (long)getpid()) == -1)
        return;
    if (rename(path, aside) == 0) {
        if (lstat(aside, &moved) == 0 &&
            (moved.st_dev != stale.st_dev || moved.st_ino != stale.st_ino))
            (void)link(aside, path);
        unlink(aside);
    }
    free(aside);
}

#endif
