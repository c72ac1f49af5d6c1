/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.h - which client owned an image before, and whether others can have written
 * to it since: for plugins/volume-state.h.
 *
 * Every client of Ceph that heeds the exclusive lock (librbd, the kernel's) takes it
 * before it writes, and taking it changes the image's header object, whose version
 * only grows.  So no client has written between two owners, if
 *
 *   - the first one has released the lock, and the header has the version that it had
 *     right after that when the second one comes; or
 *   - the first one has died with it, and the second one finds the lock still the first
 *     one's, before it breaks it.
 *
 * A *record* names the last owner that used this plugin: an object of the pool,
 * "quickmine_owner." and the image's id, of two lines.  Only the owner writes it; after
 * its release, only if no other owner has since.
 *
 *   known    the owner's time: cluster, pool, image, and the client's number, which
 * Ceph gives to no client twice version  of the header after the release; 0: it has not
 * released the lock
 *
 * What is not seen: writes of clients that ignore the lock (rados, images served with
 * lock=none); another client that takes the lock, writes, and releases it within the
 * milliseconds between the look at the header and the lock's acquisition.
 *
 * Not for several threads at a time. */
#ifndef QM_RBD_OWNER_H
#define QM_RBD_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include <rados/librados.h>
#include <rbd/librbd.h>

#define QMR_OWNER_TEXT 128

struct qmr_owner {
    rados_ioctx_t io;
    bool has_io;
    bool unbroken; /* nobody has written since `before` ended */
    char header[96], object[96];
    char before[QMR_OWNER_TEXT], known[QMR_OWNER_TEXT]; /* "": not known */
    uint64_t held;   /* version of the header before the release; 0: not known */
    uint64_t record; /* version of our record; 0: there is none of ours */
};

/* Before the lock is taken.  What fails makes nothing known, and is no error.  pool and
 * name_space (or NULL): the image's. */
void qmr_owner_look(struct qmr_owner *o, rados_t cluster, const char *pool,
                    const char *name_space, rbd_image_t image);

/* The lock is ours from now on. */
void qmr_owner_take(struct qmr_owner *o, rados_t cluster);

/* The lock is about to be released. */
void qmr_owner_leaving(struct qmr_owner *o);

/* The lock is free again, and nobody has had it since qmr_owner_leaving(), or that is
 * noticed.  probed: it was taken without qmr_owner_take(), and nothing
 * was written, so that the owner before is still the last one. */
void qmr_owner_leave(struct qmr_owner *o, bool probed);

/* Frees it; after look(), whatever that has found. */
void qmr_owner_end(struct qmr_owner *o);

#endif
