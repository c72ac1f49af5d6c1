/* SPDX-License-Identifier: BSD-3-Clause */
/* nbdkit-server.h - an nbdkit that a test program starts and ends. */
#ifndef NBDKIT_SERVER_H
#define NBDKIT_SERVER_H

#include <sys/types.h>

struct nbdkit_server {
    pid_t pid;
    char dir[64]; /* a temporary one: socket, pidfile, record, log */
    char uri[128];
};

/* Makes the directory; nothing runs yet.  Exits the test program on failure. */
void nbdkit_server_init(struct nbdkit_server *server);
/* Runs nbdkit with these arguments (NULL at the end), and returns when it listens. */
void nbdkit_server_start(struct nbdkit_server *server, ...) __attribute__((sentinel));
/* Ends it by that signal, and waits until it has. */
void nbdkit_server_stop(struct nbdkit_server *server, int signal);
/* Removes the directory and what is in it; ends nbdkit if it runs. */
void nbdkit_server_destroy(struct nbdkit_server *server);

#endif
