/* SPDX-License-Identifier: BSD-3-Clause */
/* quiesce.h - waits until no thread uses an object that was made unreachable.
 *
 * Threads use something between qms_quiesce_enter() and qms_quiesce_leave(), and may
 * wait for I/O there, for as long as it takes; they may enter again meanwhile.  To take
 * it away, a thread first makes it unreachable (a pointer becomes NULL), and then
 * waits: qms_quiesce_wait() returns when all threads that had entered before have left.
 * Unlike a lock (rwlock.h) it keeps no thread out.
 *
 * As sleepable RCU does, it counts in two sets, of which one is current.  A thread that
 * has read which one is, and counts itself late, may count in the other one; so both
 * are waited for, one after the other. */
#ifndef QMS_QUIESCE_H
#define QMS_QUIESCE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/stats.h"

struct qms_quiesce {
    _Atomic unsigned current; /* 0 or 1 */
    pthread_mutex_t waiting;  /* one at a time */
    struct {
        _Alignas(64) _Atomic unsigned inside[2];
    } stripes[QMS_STRIPES];
};

void qms_quiesce_init(struct qms_quiesce *grace);

/* Returns what qms_quiesce_leave() needs; another thread may call that. */
unsigned qms_quiesce_enter(struct qms_quiesce *grace);
void qms_quiesce_leave(struct qms_quiesce *grace, unsigned token);

/* The caller is not inside. */
void qms_quiesce_wait(struct qms_quiesce *grace);

#endif
