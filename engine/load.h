/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h - how much may be prefetched while the device is busy.
 *
 * The paper limits prefetching "under high load" (section 3.4): a prefetch that makes a
 * demand wait is worse than none.  Load is measured by the prefetch threads: the
 * duration of their reads, as a multiple of the least mean duration of reads of that
 * size; whether they keep up with their queue; and whether demands are at the device
 * meanwhile.
 *
 * With demands at the device, reads that take several times as long, and a queue that
 * is never empty, the share of admitted candidates is halved, down to none but probes.
 * Without demands, or when reads take about as long as on an idle device, the share
 * grows again, step by step.
 *
 * Any thread may call any function at any time.  The caller provides the time: a
 * monotonic clock, in nanoseconds.
 */
#ifndef QM_ENGINE_LOAD_H
#define QM_ENGINE_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QM_DEVICE_LOAD_ALL 16 /* shares are in sixteenths */

/* Sizes of reads: 1, 2 to 3, 4 to 7, 8 to 15, and more blocks. */
#define QM_DEVICE_LOAD_SIZES 5

struct qm_device_load {
    _Atomic unsigned share;  /* admission ratio, in sixteenths */
    _Atomic unsigned credit; /* sum of shares, from which whole candidates are taken */
    _Atomic uint64_t probed; /* time of the last probe: a candidate at share 0 */

    _Alignas(64) _Atomic int demands; /* demands' reads of the device, in flight */

    _Alignas(64) pthread_mutex_t lock; /* guards the rest; no other is taken within */
    struct {
        uint64_t reads, ns;
        uint64_t idle,
            before; /* the least mean of this period and of the last; 0: none */
    } sizes[QM_DEVICE_LOAD_SIZES];
    uint64_t window, period; /* their start times */
    unsigned reads;          /* in this window */
    unsigned beside; /* of reads: those that ended while demands were in flight */
    bool drained;    /* the queue was empty once in this window */
    double
        slowness; /* duration in the last window, as a multiple of an idle device's */
};

void qm_device_load_init(struct qm_device_load *load);
void qm_device_load_destroy(struct qm_device_load *load);

/* Whether all candidates are admitted; needs no time. */
static inline bool qm_device_load_is_low(struct qm_device_load *load)
{
    return atomic_load_explicit(&load->share, memory_order_relaxed) ==
           QM_DEVICE_LOAD_ALL;
}

/* Called with 1 before a demand's read of the device, and with -1 after it. */
static inline void qm_device_load_demand(struct qm_device_load *load,
                                         int one_more_or_less)
{
    atomic_fetch_add_explicit(&load->demands, one_more_or_less, memory_order_relaxed);
}

/* Whether a candidate is admitted. */
bool qm_device_load_admit(struct qm_device_load *load, uint64_t now);

/* Records a successful read of `blocks` blocks by a prefetch thread, which took `ns`
 * while `queued` prefetches wait.  Failed reads are not recorded: they may take no
 * time.
 */
void qm_device_load_took(struct qm_device_load *load, uint64_t now, uint64_t ns,
                         unsigned blocks, unsigned queued);

/* slowness of struct qm_device_load. */
double qm_device_load_slowness(struct qm_device_load *load);

#endif
