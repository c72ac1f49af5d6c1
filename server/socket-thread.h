/* SPDX-License-Identifier: BSD-3-Clause */
/* socket-thread.h - a Unix socket whose clients a thread serves, one after the other.
 *
 * It is embedded in what serves them.  A client that does not read is given up after a
 * second, so that it keeps nobody waiting for longer.
 */
#ifndef QMS_SOCKET_THREAD_H
#define QMS_SOCKET_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/listener.h"

struct qms_socket_thread {
    struct qms_listener listener;
    int stop_fd; /* readable when the thread is to end */
    bool started;
    pthread_t thread;
    void (*serve)(void *opaque, int fd);
    void *opaque;
};

/* Binds the socket, before the server forks; starts no thread.  Replaces a socket file
 * without a listener.  Returns 0, or -1 with a sentence in err; then there is nothing
 * to close. */
int qms_socket_thread_open(struct qms_socket_thread *t, const char *path, char *err,
                           size_t len);

/* Starts the thread: serve() answers a client, whose connection is closed after that.
 * Returns 0 or an errno value. */
int qms_socket_thread_start(struct qms_socket_thread *t,
                            void (*serve)(void *opaque, int fd), void *opaque);

/* Ends the thread, when it has answered, and removes the socket. */
void qms_socket_thread_close(struct qms_socket_thread *t);

/* Sends text to a client, or as much of it as the client takes. */
void qms_socket_send(int fd, const char *text);

#endif
