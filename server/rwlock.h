/* SPDX-License-Identifier: BSD-3-Clause */
/* rwlock.h - a lock of many readers or one writer, whose readers do not contend.
 *
 * Threads that use the prefetcher, the engine's parameters or the sequences of contexts
 * hold it for reading, for microseconds: no I/O is done meanwhile.  A thread that
 * changes them holds it for writing.
 *
 * A reader counts in one of several stripes, a cache line each, and reads a flag that
 * hardly ever changes.  A writer sets the flag, and waits until no reader is counted.
 * New readers wait from then on, so a writer does not starve.
 *
 * A reader may take any lock but must not read-lock again, nor call what may: the cache
 * calls wasted() with its own locks held, which a reader may wait for, so wasted() uses
 * qms_rwlock_try_read().
 */
#ifndef QMS_RWLOCK_H
#define QMS_RWLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "server/stats.h"

struct qms_rwlock {
    _Alignas(64) _Atomic bool writing;
    pthread_mutex_t lock; /* of the writer */
    struct {
        _Alignas(64) _Atomic unsigned readers;
    } stripes[QMS_STRIPES];
};

void qms_rwlock_init(struct qms_rwlock *lock);
void qms_rwlock_destroy(struct qms_rwlock *lock);

/* Waits for a writer.  Returns the stripe, which qms_rwlock_read_unlock() needs. */
unsigned qms_rwlock_read(struct qms_rwlock *lock);
/* Does not wait: false if there is a writer. */
bool qms_rwlock_try_read(struct qms_rwlock *lock, unsigned *stripe);
void qms_rwlock_read_unlock(struct qms_rwlock *lock, unsigned stripe);

/* Returns when no thread reads, and no other writes.  The caller must hold no lock that
 * a reader may wait for. */
void qms_rwlock_write(struct qms_rwlock *lock);
void qms_rwlock_write_unlock(struct qms_rwlock *lock);

#endif
