/* SPDX-License-Identifier: BSD-3-Clause */
/* inflight.h - how many prefetches may be in flight.
 *
 * A backend serves a limited number of reads in parallel; more reads wait in it and
 * delay demands.  The limit is estimated from how long reads take at each number of
 * reads in flight.  slowness(n) is the mean time of a read beside n - 1 others, as a
 * multiple of its time alone, for n on a scale of some steps an octave.  The backend's
 * throughput is n / slowness(n), and each reader pays slowness(n) for it; the number to
 * aim at is the n for which
 *
 *     n / slowness(n)^POWER
 *
 * is greatest (Kleinrock, "Power and deterministic rules of thumb for probabilistic
 * problems in computer communications", ICC 1979, has it with 2): of a backend with s
 * servers about s, of one that serves any number the greatest that was tried.  Beyond
 * what was tried it grows a step at a time, and only while prefetches wait for their
 * turn, so that it does not grow without a gain.
 *
 * Demands come first: prefetches get the rest of that number, but at least one.  The
 * more demands are in flight, the fewer prefetches may wait, and none may beside twice
 * that number: each takes a block of the cache at once, and its reader would overtake
 * it.  A configured number is a number of prefetches, whatever the backend does.
 *
 * Limit: slowness is known relative to reads that were nearly alone.  A backend that
 * becomes slower for good while demands never leave it looks full until they do.
 *
 * Any thread may call any of these at any time.
 */
#ifndef QM_ENGINE_INFLIGHT_H
#define QM_ENGINE_INFLIGHT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    QM_INFLIGHT_MOST = 256,        /* prefetches at a time */
    QM_INFLIGHT_QUEUE_MOST = 1024, /* that may wait */
    QM_INFLIGHT_FIRST = 4,         /* until more is known */
    QM_INFLIGHT_STEPS = 35, /* of the scale: 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, ... */
};

struct qm_inflight {
    unsigned given;       /* prefetches; 0: they follow the backend */
    _Atomic unsigned aim; /* reads in flight to aim at, demands included */
    _Atomic bool waited;  /* prefetches have waited for their turn of late */

    _Alignas(64) pthread_mutex_t lock; /* a leaf, of all that follows */
    struct {
        double slowness; /* mean of the last fifty or so */
        double count;    /* of all reads */
    } steps[QM_INFLIGHT_STEPS];
    unsigned reads; /* that have ended; wraps */
};

/* given: prefetches in flight, 1 to QM_INFLIGHT_MOST; 0: as many as pay. */
void qm_inflight_init(struct qm_inflight *f, unsigned given);
void qm_inflight_destroy(struct qm_inflight *f);

/* How many prefetches may be in flight beside `demands` demands. */
static inline unsigned qm_inflight_allowed(const struct qm_inflight *f,
                                           unsigned demands)
{
    unsigned aim = atomic_load_explicit(&f->aim, memory_order_relaxed), allowed;

    if (f->given > 0)
        return f->given;
    allowed = aim > demands + 1 ? aim - demands : 1;
    return allowed < QM_INFLIGHT_MOST ? allowed : QM_INFLIGHT_MOST;
}

/* Prefetches wait although none may be sent: more in flight would have been of use. */
void qm_inflight_waits(struct qm_inflight *f);

/* A read has ended that was sent while `others` were in flight.  slowness: how many
 * times as long as alone it took; 0: not known. */
void qm_inflight_ended(struct qm_inflight *f, unsigned others, double slowness);

/* How many prefetches may wait for their turn beside `demands` demands in flight, if
 * that is not configured: a multiple of the number that may be in flight, less what
 * demands take of it. */
unsigned qm_inflight_queue(const struct qm_inflight *f, unsigned demands);

#endif
