/* SPDX-License-Identifier: BSD-3-Clause */
/* gate.h - lets one thread change what all others use, while none of them uses it.
 *
 * Threads that use the prefetcher, the engine's parameters or the sequences of contexts
 * do so between qms_gate_enter() and qms_gate_leave(), which takes microseconds: no
 * I/O is done in between.  A thread that changes them closes the gate, which waits
 * until no thread is inside and keeps others out until it is opened.
 *
 * Entering counts in one of several stripes, a cache line each, and reads a flag that
 * hardly ever changes, so readers do not contend for a line while the gate is open.
 *
 * A thread that is inside may take any lock but must not enter again, nor call what
 * may: the cache calls wasted() with its own locks held, which a thread inside may wait
 * for, so wasted() uses qms_gate_try_enter().
 */
#ifndef QMS_GATE_H
#define QMS_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "server/stats.h"

struct qms_gate {
    _Alignas(64) _Atomic bool closed;
    pthread_mutex_t lock; /* held while the gate is closed */
    struct {
        _Alignas(64) _Atomic unsigned inside;
    } stripes[QMS_STRIPES];
};

void qms_gate_init(struct qms_gate *gate);
void qms_gate_destroy(struct qms_gate *gate);

/* Waits while the gate is closed.  Returns what qms_gate_leave() needs. */
unsigned qms_gate_enter(struct qms_gate *gate);
/* Does not wait: false if the gate is closed. */
bool qms_gate_try_enter(struct qms_gate *gate, unsigned *stripe);
void qms_gate_leave(struct qms_gate *gate, unsigned stripe);

/* Closes the gate; returns when no thread is inside.  Another thread that closes it
 * waits. The caller must hold no lock that a thread inside may wait for. */
void qms_gate_close(struct qms_gate *gate);
void qms_gate_open(struct qms_gate *gate);

#endif
