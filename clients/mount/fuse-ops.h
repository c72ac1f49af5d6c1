/* SPDX-License-Identifier: BSD-3-Clause */
/* fuse-ops.h - the file that is the device: what the kernel asks of it. */
#ifndef QM_MOUNT_FUSE_OPS_H
#define QM_MOUNT_FUSE_OPS_H

#include <pthread.h>
#include <sys/queue.h>
#include <sys/stat.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "clients/mount/announce.h"
#include "clients/libqmctx/device.h"
#include "clients/mount/stats.h"
#include "clients/mount/threads.h"

/* The largest request in bytes, both ways; the kernel splits larger ones. */
#define QM_FUSE_MAX_REQUEST (1 << 20)

/* The state of the operations; the session's user data.  The pointers are set before
 * the first request comes, and outlive the last. */
struct qm_fuse {
    struct qm_device *device;
    struct qm_announce *announce;
    struct qm_threads *threads;
    struct fuse_session *session;
    /* Called once, by the thread that gets the kernel's first request: from here on the
     * file can be used. */
    void (*ready)(void *opaque);
    void *opaque;

    struct qm_mount_counts counts;

    bool read_only;
    pthread_mutex_t lock; /* of attr and opened */
    struct stat attr;     /* of the file: the device's size; owner, mode and times */
    LIST_HEAD(, qm_opened) opened;
    off_t told_size; /* that the kernel may have; of the thread that calls
                        qm_fuse_tick() */
};

/* Fills in *fuse: the file has the owner and mode of like, and is of the device's size.
 */
void qm_fuse_init(struct qm_fuse *fuse, struct qm_device *device,
                  struct qm_announce *announce, struct qm_threads *threads,
                  const struct stat *like, bool read_only);

/* Frees what the kernel has not released: it need not, of a file that is open when the
 * file system goes.  No request is served any more; *fuse may be all zero. */
void qm_fuse_end(struct qm_fuse *fuse);

/* To be called every second or so, by a thread that serves no request: if the device
 * has grown, the kernel is told. */
void qm_fuse_tick(struct qm_fuse *fuse);

extern const struct fuse_lowlevel_ops qm_fuse_ops;

#endif
