/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - see lock.h. */
#include "plugins/rbd/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OWNERS 8
#define TRIES  5 /* another may take it between our breaking and taking it */

/* The name of the lock's owner, to be freed; NULL if there is none, or on an error,
 * which is returned as a negative errno. */
static int get_owner(rbd_image_t image, char **owner)
{
    char *owners[OWNERS];
    size_t n = OWNERS;
    rbd_lock_mode_t mode;
    int r = rbd_lock_get_owners(image, &mode, owners, &n);

    *owner = NULL;
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    if (n > 0) {
        *owner = strdup(owners[0]);
        if (!*owner)
            r = -ENOMEM;
    }
    rbd_lock_get_owners_cleanup(owners, n);
    return r < 0 ? r : 0;
}

static int has_feature(rbd_image_t image, char *err, size_t len)
{
    uint64_t features;
    int r = rbd_get_features(image, &features);

    if (r < 0) {
        snprintf(err, len, "the image's features cannot be read: %s", strerror(-r));
        return -1;
    }
    if (!(features & RBD_FEATURE_EXCLUSIVE_LOCK)) {
        snprintf(err, len,
                 "the image does not have the feature exclusive-lock: enable it (rbd "
                 "feature enable IMAGE exclusive-lock), or use lock=none if no other "
                 "program ever writes to it");
        return -1;
    }
    return 0;
}

static void refuse(const char *owner, char *err, size_t len)
{
    snprintf(err, len,
             "the image is in use: %s holds its exclusive lock.  Stop that program "
             "(\"rbd status\" shows its address), or use takeover=true, which shuts it "
             "out of the cluster",
             owner);
}

static int break_lock(rbd_image_t image, const char *owner, void (*say)(const char *),
                      char *err, size_t len)
{
    char text[200];
    int r = rbd_lock_break(image, RBD_LOCK_MODE_EXCLUSIVE, owner);

    if (r < 0 && r != -ENOENT && r != -EBUSY) {
        snprintf(err, len, "the lock of %s cannot be broken: %s%s", owner, strerror(-r),
                 r == -EPERM || r == -EACCES
                     ? " (the user needs the capability \"mon 'profile rbd'\")"
                     : "");
        return -1;
    }
    if (r == 0) {
        snprintf(text, sizeof text,
                 "took the image over: %s has lost the exclusive lock and was "
                 "blocklisted",
                 owner);
        say(text);
    }
    return 0;
}

/* The lock was refused with this negative errno. */
static int cannot_take(rbd_image_t image, int r, char *err, size_t len)
{
    char *owner = NULL;

    if ((r == -EROFS || r == -EBUSY || r == -EAGAIN) && get_owner(image, &owner) == 0 &&
        owner) {
        refuse(owner, err, len);
        free(owner);
        return -1;
    }
    snprintf(err, len, "the exclusive lock cannot be taken: %s", strerror(-r));
    return -1;
}

int qmr_lock_check(rbd_image_t image, bool takeover, char *err, size_t len)
{
    int r;

    if (has_feature(image, err, len) == -1)
        return -1;
    if (takeover)
        return 0;
    /* Some owners give the lock up when they are asked, and it cannot be seen which. */
    r = rbd_lock_acquire(image, RBD_LOCK_MODE_EXCLUSIVE);
    if (r < 0)
        return cannot_take(image, r, err, len);
    rbd_lock_release(image);
    return 0;
}

static int acquire(struct qmr_lock_watch *w, bool takeover, char *err, size_t len)
{
    char *owner = NULL;
    int r = -EBUSY;

    for (int i = 0; i < TRIES; i++) {
        free(owner);
        owner = NULL;
        if (takeover && get_owner(w->image, &owner) == 0 && owner &&
            break_lock(w->image, owner, w->say, err, len) == -1) {
            free(owner);
            return -1;
        }
        r = rbd_lock_acquire(w->image, RBD_LOCK_MODE_EXCLUSIVE);
        if (r == 0 || (!takeover && r != -EAGAIN))
            break;
    }
    free(owner);
    if (r == 0) {
        r = get_owner(w->image, &w->owner);
        if (r == 0 && w->owner)
            return 0;
        snprintf(err, len, "the lock's owner cannot be read: %s",
                 r < 0 ? strerror(-r) : "there is none, although the lock was taken");
        return -1;
    }
    return cannot_take(w->image, r, err, len);
}

static void lose(struct qmr_lock_watch *w, const char *why)
{
    char text[300];

    atomic_store_explicit(&w->lost, true, memory_order_release);
    snprintf(text, sizeof text,
             "the image's exclusive lock is lost: %s.  All requests fail from now on, "
             "and the server ends",
             why);
    w->say(text);
}

/* Returns false once the lock is lost. */
static bool look(struct qmr_lock_watch *w)
{
    char text[150], *owner;
    int r = get_owner(w->image, &owner);

    if (r == -ESHUTDOWN) {
        lose(w, "this server was blocklisted, since another took the image over");
    } else if (r < 0) {
        return true; /* the cluster cannot be asked: nor can it be written to */
    } else if (!owner) {
        lose(w, "nobody holds it");
    } else if (strcmp(owner, w->owner) != 0) {
        snprintf(text, sizeof text, "%.100s holds it", owner);
        lose(w, text);
    } else {
        free(owner);
        return true;
    }
    free(owner);
    return false;
}

/* For a second, or until another client requests the lock.  Returns false if the
 * watching ends. */
static bool wait_a_second(struct qmr_lock_watch *w)
{
    struct timespec until;
    bool stopping;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping && !atomic_exchange(&w->asked, false))
        if (pthread_cond_timedwait(&w->wake, &w->lock, &until) == ETIMEDOUT)
            break;
    stopping = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return !stopping;
}

static void *watch(void *opaque)
{
    struct qmr_lock_watch *w = opaque;
    unsigned seconds = 0;

    while (look(w))
        if (!wait_a_second(w))
            return NULL;
    do
        w->on_lost(seconds++);
    while (wait_a_second(w));
    return NULL;
}

int qmr_lock_take(struct qmr_lock_watch *w, rbd_image_t image, bool takeover,
                  void (*say)(const char *text), void (*on_lost)(unsigned seconds),
                  char *err, size_t len)
{
    pthread_condattr_t attr;
    int error;

    *w = (struct qmr_lock_watch){.image = image, .say = say, .on_lost = on_lost};
    if (has_feature(image, err, len) == -1 || acquire(w, takeover, err, len) == -1)
        return -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    error = pthread_create(&w->thread, NULL, watch, w);
    if (error == 0)
        return 0;
    snprintf(err, len, "no thread: %s", strerror(error));
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    rbd_lock_release(image);
    free(w->owner);
    w->owner = NULL;
    return -1;
}

void qmr_lock_release(struct qmr_lock_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    if (!qmr_lock_is_lost(w))
        rbd_lock_release(w->image);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->owner);
    w->owner = NULL;
}

void qmr_lock_suspect(struct qmr_lock_watch *w, int error)
{
    if ((error != ESHUTDOWN && error != EROFS) || qmr_lock_is_lost(w))
        return;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->asked, true);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

int qmr_lock_verify(struct qmr_lock_watch *w)
{
    char *owner = NULL;
    int r = qmr_lock_is_lost(w) ? -ESHUTDOWN : get_owner(w->image, &owner);

    if (r == 0 && (!owner || strcmp(owner, w->owner) != 0))
        r = -ESHUTDOWN;
    free(owner);
    if (r == -ESHUTDOWN)
        qmr_lock_suspect(w, ESHUTDOWN);
    return -r;
}
