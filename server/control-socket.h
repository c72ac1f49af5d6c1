/* SPDX-License-Identifier: BSD-3-Clause */
/* control-socket.h - answers requests to change the server, over a Unix socket.
 *
 * A client connects, sends one line, gets one line and is disconnected.  It must run as
 * root or as the server's user: the kernel tells its user (SO_PEERCRED), whatever the
 * mode of the socket is.
 */
#ifndef QMS_CONTROL_SOCKET_H
#define QMS_CONTROL_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

#define QMS_CONTROL_LINE 65536 /* bytes of a request, at most */

struct qms_control_socket;

/* As qms_stats_socket_open(). */
struct qms_control_socket *qms_control_socket_open(const char *path, char *err,
                                                   size_t len);

/* Starts the thread: answer() makes the answer to a request of that user, without a
 * newline, to be freed with free(); NULL: memory is out.  Returns 0 or an errno value.
 */
int qms_control_socket_start(struct qms_control_socket *socket,
                             char *(*answer)(void *opaque, uid_t user,
                                             const char *request),
                             void *opaque);

/* Ends the thread, when it has answered, and removes the socket. */
void qms_control_socket_close(struct qms_control_socket *socket);

#endif
