/* SPDX-License-Identifier: BSD-3-Clause */
/* mock-mount.h - the mount's side of quickmine-mount.h, for tests of the program's
 * side.
 *
 * A thread serves one program at a time on a Unix socket.  What the program writes into
 * the shared memory can be looked at directly; what it sends is counted.
 */
#ifndef MOCK_MOUNT_H
#define MOCK_MOUNT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "clients/protocol/quickmine-mount.h"

struct mock_mount {
    /* To be set before mock_mount_start(); 0: a default that is right. */
    uint32_t entries;  /* 64 */
    uint32_t gid_base; /* QM_MOUNT_GID_BASE */
    uint32_t magic, version;
    uint64_t bytes;        /* that the greeting says */
    uint64_t memory_bytes; /* that there really are */
    bool no_memory;        /* sends no descriptor */
    bool unsealed;
    bool deaf; /* does not receive what the program sends */

    struct qm_mount_entry *entry; /* the array, shared with the program */

    pthread_t thread;
    char path[108];
    int listener, stop, fd, memory;
    _Atomic bool greet; /* true: the greeting is sent; false: held back */
    _Atomic unsigned accepted, gone;
    _Atomic unsigned ended; /* messages received ... */
    _Atomic uint64_t last_version;
    _Atomic uint32_t last_index; /* ... and what was in the last one */
};

/* Listens at path.  Exits the test program on failure. */
void mock_mount_start(struct mock_mount *m, const char *path);
/* Closes all sockets and ends the thread. */
void mock_mount_stop(struct mock_mount *m);

#endif
