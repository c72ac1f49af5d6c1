/* SPDX-License-Identifier: BSD-3-Clause */
/* peer-watch.h - has TCP notice that the peer's machine is gone: in less than ten
 * seconds, if nothing is under way. */
#ifndef QM_PEER_WATCH_H
#define QM_PEER_WATCH_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { QM_SILENCE_MS = 9000 }; /* that a client should wait */

/* silence_ms: how long what was sent may stay without an answer; 0: as the kernel has
 * it.  Does nothing to other sockets, nor where the kernel does not know an option:
 * then it is noticed later. */
static inline void qm_watch_peer(int fd, unsigned silence_ms)
{
    const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 3}, /* s; then 3 probes, 2 s apart */
        {IPPROTO_TCP, TCP_KEEPINTVL, 2},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, (int)silence_ms},
    };
    int domain = 0;
    socklen_t len = sizeof domain;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == -1 ||
        (domain != AF_INET && domain != AF_INET6))
        return;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof options[i].value);
}

#endif
