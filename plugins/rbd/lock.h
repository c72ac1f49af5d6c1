/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.h - the exclusive lock of an image: taken, taken over, and watched.
 *
 * librbd's own use of the lock is cooperative: it releases the lock to any client that
 * requests it, so two writers alternate in silence.  rbd_lock_acquire() makes it
 * managed: it is kept until it is released, and another's requests for it are refused.
 * It is broken, with its owner blocklisted by the OSDs, by `takeover` and by Ceph's own
 * programs; and by librbd when the owner's watch has expired.
 *
 * Whether it is still ours is asked of the cluster, each second.  A blocklisted owner's
 * question is refused.
 */
#ifndef QM_RBD_LOCK_H
#define QM_RBD_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <rbd/librbd.h>

struct qmr_lock_watch {
    rbd_image_t image;
    char *owner; /* as Ceph calls us */
    atomic_bool lost;
    atomic_bool asked; /* to look now */
    void (*say)(const char *text);
    void (*on_lost)(unsigned seconds);

    pthread_t thread;
    pthread_mutex_t lock; /* of stopping */
    pthread_cond_t wake;
    bool stopping;
};

/* Whether the lock could be taken, or taken over, now.  Returns 0, or -1 and a sentence
 * in err[len]. */
int qmr_lock_check(rbd_image_t image, bool takeover, char *err, size_t len);

/* Takes the lock, and watches it from then on.  When it is lost, on_lost() is called,
 * and each second again until the lock is released, with the number of these seconds.
 * Returns 0, or -1 and a sentence. */
int qmr_lock_take(struct qmr_lock_watch *w, rbd_image_t image, bool takeover,
                  void (*say)(const char *text), void (*on_lost)(unsigned seconds),
                  char *err, size_t len);

/* Ends the watching and releases the lock, unless it is lost. */
void qmr_lock_release(struct qmr_lock_watch *w);

static inline bool qmr_lock_is_lost(const struct qmr_lock_watch *w)
{
    return atomic_load_explicit(&w->lost, memory_order_acquire);
}

/* Whether the lock is ours, as the cluster says now.  Waits for its answer.  Returns 0;
 * ESHUTDOWN, and the lock is looked after; or the errno of an answer that there was
 * not. */
int qmr_lock_verify(struct qmr_lock_watch *w);

/* A request has failed with this errno: if that can be for a lost lock, it is looked
 * after now. */
void qmr_lock_suspect(struct qmr_lock_watch *w, int error);

#endif
