/* SPDX-License-Identifier: BSD-3-Clause */
/* timers.h - what happens when, in virtual time.
 *
 * A binary heap.  What is due at the same time happens in the order in which it was
 * set, so that a run can be repeated exactly.
 */
#ifndef QM_SIM_TIMERS_H
#define QM_SIM_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#define QM_TIMER_NEVER INT64_MAX

typedef void qm_timer_call(void *opaque, void *what);

struct qm_timer {
    int64_t when; /* ns */
    uint64_t number;
    qm_timer_call *call;
    void *what;
};

/* All zeros is an empty one. */
struct qm_timers {
    struct qm_timer *heap;
    size_t count, room;
    uint64_t numbers;
};

/* Has call(opaque, what) happen at a time.  Returns 0 or ENOMEM. */
int qm_timers_set(struct qm_timers *timers, int64_t when, qm_timer_call *call,
                  void *what);

/* When the next one is due; QM_TIMER_NEVER: there is none. */
static inline int64_t qm_timers_next(const struct qm_timers *timers)
{
    return timers->count > 0 ? timers->heap[0].when : QM_TIMER_NEVER;
}

/* Takes the next one, which there must be. */
struct qm_timer qm_timers_take(struct qm_timers *timers);

void qm_timers_clear(struct qm_timers *timers);

#endif
