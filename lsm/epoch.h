/* SPDX-License-Identifier: BSD-3-Clause */
/* epoch.h - readers that never wait, and a writer that waits for them.
 *
 * A reader brackets its use of a shared pointer by epoch_enter() and epoch_leave().  A
 * writer replaces the pointer, calls epoch_wait(), and may then free what it replaced:
 * no reader that began before has it any more.  Readers write to one of 16 cache lines;
 * the writer turns to the other set of lines twice, as sleepable RCU does, since a
 * reader may have read the turn and not yet counted itself.  A reader must not call
 * epoch_wait(). */
#ifndef QM_LSM_EPOCH_H
#define QM_LSM_EPOCH_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#define EPOCH_LANES 16u

struct epoch {
    struct {
        _Alignas(64) _Atomic uint64_t readers;
    } lane[2][EPOCH_LANES];
    _Atomic unsigned turn;
    pthread_mutex_t writers;
};

static inline unsigned epoch_lane(void)
{
    static _Atomic unsigned next;
    static _Thread_local unsigned own;

    if (own == 0)
        own =
            1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % EPOCH_LANES;
    return own - 1;
}

static inline unsigned epoch_enter(struct epoch *e)
{
    unsigned turn = atomic_load(&e->turn) & 1, lane = epoch_lane();

    atomic_fetch_add(&e->lane[turn][lane].readers, 1);
    return turn * EPOCH_LANES + lane;
}

static inline void epoch_leave(struct epoch *e, unsigned token)
{
    atomic_fetch_sub(&e->lane[token / EPOCH_LANES][token % EPOCH_LANES].readers, 1);
}

static inline void epoch_wait(struct epoch *e)
{
    pthread_mutex_lock(&e->writers);
    for (int i = 0; i < 2; i++) {
        unsigned old = atomic_fetch_xor(&e->turn, 1) & 1;
        for (unsigned lane = 0; lane < EPOCH_LANES; lane++)
            while (atomic_load(&e->lane[old][lane].readers) != 0)
                sched_yield();
    }
    pthread_mutex_unlock(&e->writers);
}

#endif
