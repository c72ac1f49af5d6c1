/* SPDX-License-Identifier: BSD-3-Clause */
/* rwlock.c - see rwlock.h.
 *
 * A reader counts itself first and looks at the flag then; a writer sets the flag first
 * and looks at the counts then.  Both are sequentially consistent, so at least one of
 * them sees the other.
 */
#include "server/rwlock.h"

#include <time.h>

#define LOOK_NS 20000 /* how often the counts are looked at */

void qms_rwlock_init(struct qms_rwlock *l)
{
    atomic_init(&l->writing, false);
    for (unsigned i = 0; i < QMS_STRIPES; i++)
        atomic_init(&l->stripes[i].readers, 0);
    pthread_mutex_init(&l->lock, NULL);
}

void qms_rwlock_destroy(struct qms_rwlock *l)
{
    pthread_mutex_destroy(&l->lock);
}

bool qms_rwlock_try_read(struct qms_rwlock *l, unsigned *stripe)
{
    *stripe = qms_stripe();
    atomic_fetch_add(&l->stripes[*stripe].readers, 1);
    if (!atomic_load(&l->writing))
        return true;
    qms_rwlock_read_unlock(l, *stripe);
    return false;
}

unsigned qms_rwlock_read(struct qms_rwlock *l)
{
    unsigned stripe;

    while (!qms_rwlock_try_read(l, &stripe)) {
        pthread_mutex_lock(&l->lock);
        pthread_mutex_unlock(&l->lock);
    }
    return stripe;
}

void qms_rwlock_read_unlock(struct qms_rwlock *l, unsigned stripe)
{
    atomic_fetch_sub_explicit(&l->stripes[stripe].readers, 1, memory_order_release);
}

void qms_rwlock_write(struct qms_rwlock *l)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};

    pthread_mutex_lock(&l->lock);
    atomic_store(&l->writing, true);
    for (unsigned i = 0; i < QMS_STRIPES; i++)
        while (atomic_load(&l->stripes[i].readers) != 0)
            nanosleep(&look, NULL);
}

void qms_rwlock_write_unlock(struct qms_rwlock *l)
{
    atomic_store(&l->writing, false);
    pthread_mutex_unlock(&l->lock);
}
