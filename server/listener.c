/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.c - see listener.h. */
#include "server/listener.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/protocol/stale-socket.h"

#define MODE 0600

static int bind_to(int fd, const char *path, char *err, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(err, len, "the path is longer than the %zu bytes of a socket's name",
                 sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    qm_socket_remove_stale(&address, SOCK_STREAM);
    /* Linux makes the file with the mode of the socket, less the umask, so nobody else
     * can connect even for a moment. */
    (void)fchmod(fd, MODE);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == -1) {
        if (errno == EADDRINUSE)
            snprintf(err, len, "another server uses it, or something else is there");
        else
            snprintf(err, len, "%s", strerror(errno));
        return -1;
    }
    if (listen(fd, 16) == -1) {
        snprintf(err, len, "%s", strerror(errno));
        unlink(path);
        return -1;
    }
    return 0;
}

int qms_listener_open(struct qms_listener *l, const char *path, char *err, size_t len)
{
    struct stat st;

    *l = (struct qms_listener){
        .path = strdup(path),
        .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
    };
    if (!l->path || l->fd == -1) {
        snprintf(err, len, "%s", strerror(errno));
    } else if (bind_to(l->fd, path, err, len) == 0) {
        if (lstat(path, &st) == 0) {
            l->device = st.st_dev;
            l->inode = st.st_ino;
        }
        return 0;
    }
    free(l->path);
    if (l->fd != -1)
        close(l->fd);
    return -1;
}

void qms_listener_close(struct qms_listener *l)
{
    struct stat st;

    /* Somebody may have removed it, and another server put its own there. */
    if (lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        unlink(l->path);
    close(l->fd);
    free(l->path);
}
