/* load.h - how much may be prefetched while the device is busy.
 *
 * The paper limits how aggressively is prefetched "under high load" (section 3.4): a
 * prefetch that makes a demand wait is worse than none.  What is judged is what the
 * prefetch threads see: how long their reads take, against the shortest that such reads
 * took on the average when the device had little to do, and whether they keep up with
 * what is queued for them; and whether demands are at the device meanwhile.
 *
 * Demands there, reads that take several times as long, and a queue that is never
 * empty: the share of candidates that are let through is halved, down to none but
 * probes.  No demands, or reads that take about as long as when the device is idle: it
 * grows again, step by step.
 *
 * Any thread may call any of these at any time.  The clock is the caller's, in
 * nanoseconds, and does not go back.
 */
#ifndef QM_ENGINE_LOAD_H
#define QM_ENGINE_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QM_DEVICE_LOAD_ALL 16 /* the whole: shares are in sixteenths */
#define QM_DEVICE_LOAD_SIZES                                                           \
    5 /* reads of 1, 2 to 3, 4 to 7, 8 to 15, and more blocks */

struct qm_device_load {
    _Atomic unsigned share;  /* 0 to QM_DEVICE_LOAD_ALL */
    _Atomic unsigned credit; /* adds up shares */
    _Atomic uint64_t probed; /* when a candidate was last let through at share 0 */

    _Alignas(64) _Atomic int demands; /* demands' reads of the device, in flight */

    _Alignas(64) pthread_mutex_t lock; /* a leaf, of all that follows */
    struct {
        uint64_t reads, ns;
        uint64_t idle,
            before; /* the least mean of this period and of the last; 0: none */
    } sizes[QM_DEVICE_LOAD_SIZES];
    uint64_t window, period; /* when they began */
    unsigned reads;          /* in this window */
    unsigned beside;         /* of them, those that ended with demands in flight */
    bool drained;            /* the queue was empty once in this window */
    double slowness; /* of the last window, against an idle device; 1: as idle */
};

void qm_device_load_init(struct qm_device_load *load);
void qm_device_load_destroy(struct qm_device_load *load);

/* All candidates may pass; needs no clock. */
static inline bool qm_device_load_is_low(struct qm_device_load *load)
{
    return atomic_load_explicit(&load->share, memory_order_relaxed) ==
           QM_DEVICE_LOAD_ALL;
}

/* Around a demand's read of the device. */
static inline void qm_device_load_demand(struct qm_device_load *load,
                                         int one_more_or_less)
{
    atomic_fetch_add_explicit(&load->demands, one_more_or_less, memory_order_relaxed);
}

/* Whether this candidate may be prefetched. */
bool qm_device_load_admit(struct qm_device_load *load, uint64_t now);

/* Records that a prefetch thread's read of `blocks` blocks has succeeded and taken
 * `ns`, while `queued` others wait.  Not for a read that failed: it may have taken no
 * time. */
void qm_device_load_took(struct qm_device_load *load, uint64_t now, uint64_t ns,
                         unsigned blocks, unsigned queued);

/* Of the last window; see struct qm_device_load. */
double qm_device_load_slowness(struct qm_device_load *load);

#endif
