/* SPDX-License-Identifier: BSD-3-Clause */
/* fd-of-peer.h - a descriptor that the library has for itself. */
#ifndef FD_OF_PEER_H
#define FD_OF_PEER_H

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The one that is connected to the socket at path, or -1. */
static inline int fd_of_peer(const char *path)
{
    for (int fd = 3; fd < 1000; fd++) {
        struct sockaddr_un peer = {.sun_path = ""};
        socklen_t len = sizeof peer;

        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
            peer.sun_family == AF_UNIX && strcmp(peer.sun_path, path) == 0)
            return fd;
    }
    return -1;
}

#endif
