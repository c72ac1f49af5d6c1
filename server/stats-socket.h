/* SPDX-License-Identifier: BSD-3-Clause */
/* stats-socket.h - serves the statistics to every connection to a Unix socket. */
#ifndef QMS_STATS_SOCKET_H
#define QMS_STATS_SOCKET_H

#include <stddef.h>

struct qms_stats_socket;

/* Binds the socket, before the server forks; starts no thread.  Replaces a socket file
 * without a listener.  NULL with a sentence in err. */
struct qms_stats_socket *qms_stats_socket_open(const char *path, char *err, size_t len);

/* Starts the thread: report() makes the document, to be freed with free().  Returns 0
 * or an errno value. */
int qms_stats_socket_start(struct qms_stats_socket *socket,
                           char *(*report)(void *opaque), void *opaque);

/* Ends the thread and removes the socket. */
void qms_stats_socket_close(struct qms_stats_socket *socket);

#endif
