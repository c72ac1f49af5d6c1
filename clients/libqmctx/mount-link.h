/* SPDX-License-Identifier: BSD-3-Clause */
/* mount-link.h - a connection to a mount, and the shared entries that came with it.
 *
 * A link is made in two steps, neither of which waits: qm_link_connect() connects the
 * socket, qm_mount_link_hello() takes the mount's greeting once it is there.  It is
 * then shared by the threads that announce contexts over it, by reference counts;
 * entries belong to one thread at a time, which gets them by qm_mount_link_take().
 *
 * A link is never mended: when the mount is gone, the transport makes a new one, and
 * the old one's memory stays mapped until the last thread has let go of it.
 */
#ifndef QMCTX_MOUNT_LINK_H
#define QMCTX_MOUNT_LINK_H

#include <pthread.h>
#include <stdint.h>
#include <sys/un.h>

#include "clients/libqmctx/own-fd.h"
#include "clients/protocol/quickmine-mount.h"

struct qm_mount_link {
    _Atomic unsigned refs;
    int fd;
    struct qm_own_fd own;           /* what fd is */
    struct qm_mount_entry *entries; /* shared with the mount */
    size_t bytes;                   /* mapped */
    uint32_t count;                 /* of entries */
    uint32_t gid_base;

    pthread_mutex_t lock; /* a leaf */
    uint32_t free_count;  /* lock */
    uint32_t *free;       /* lock; indices, a stack */
};

/* A connected socket, not blocking, or -1 with errno. */
int qm_link_connect(const struct sockaddr_un *address);

/* Takes the greeting from socket fd.  Returns 0 and *link with one reference, which
 * then owns fd; or an errno value: EAGAIN (it has not come yet), EPROTO (it is not
 * ours), or why the memory could not be mapped. */
int qm_mount_link_hello(int fd, struct qm_mount_link **link);

void qm_mount_link_ref(struct qm_mount_link *link);
/* May be called by any thread. */
void qm_mount_link_unref(struct qm_mount_link *link);

/* Whether the mount is still at the other end; does not wait. */
bool qm_mount_link_alive(struct qm_mount_link *link);
/* From now on it is not. */
void qm_mount_link_shutdown(struct qm_mount_link *link);

#define QM_LINK_NO_ENTRY UINT32_MAX

/* A free entry's index, or QM_LINK_NO_ENTRY. */
uint32_t qm_mount_link_take(struct qm_mount_link *link);
void qm_mount_link_give(struct qm_mount_link *link, uint32_t index);

/* Fills in the caller's entry; returns the version that makes it known.  parent: index
 * and version of the enclosing context's entry, or QM_LINK_NO_ENTRY.  name: of len
 * bytes, at most QM_MOUNT_NAME_MAX. */
uint64_t qm_mount_link_write(struct qm_mount_link *link, uint32_t index, uint32_t kind,
                             uint64_t klass, const char *name, size_t len,
                             uint32_t parent, uint64_t parent_version);

/* Ends the context that qm_mount_link_write() described under version, and tells the
 * mount if it knows of it.  Returns 0, or an errno value if the mount is gone. */
int qm_mount_link_end(struct qm_mount_link *link, uint32_t index, uint64_t version);

#endif
