/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.h - a Unix socket that the server listens on, of mode 0600. */
#ifndef QMS_LISTENER_H
#define QMS_LISTENER_H

#include <stddef.h>
#include <sys/types.h>

struct qms_listener {
    int fd; /* does not block */
    char *path;
    dev_t device; /* what was made there */
    ino_t inode;
};

/* Binds the socket and listens.  Replaces a socket file without a listener.  Returns 0,
 * or -1 with a sentence in err; then there is nothing to close. */
int qms_listener_open(struct qms_listener *listener, const char *path, char *err,
                      size_t len);

/* Removes the socket, unless somebody has put another there, and closes it. */
void qms_listener_close(struct qms_listener *listener);

#endif
