/* SPDX-License-Identifier: BSD-3-Clause */
/* accuracy.h - how accurate prefetching has to be, by what it costs the device.
 *
 * Prefetches that nobody uses are reads that the device is burdened with.  How many of
 * these it can bear is reckoned by what it would have to read without any of this: the
 * misses of a plain LRU cache of the same size.  As long as misses and prefetches
 * together are fewer than AIM times those, accuracy is traded for fewer misses, down to
 * ACCURACY_MIN; where they are more, more accuracy is asked for, up to ACCURACY_MAX.
 *
 * All functions may be called by any number of threads at a time, and take no lock.
 */
#ifndef QM_ACCURACY_H
#define QM_ACCURACY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct qm_accuracy {
    _Atomic float accuracy;
    atomic_uint calls;
    atomic_uint_least64_t device, lru; /* when last told */
};

void qm_accuracy_init(struct qm_accuracy *a);

/* Whether it is time to ask how much was read: now and then. */
bool qm_accuracy_due(struct qm_accuracy *a);

/* device: blocks read until now; lru: those that LRU would have read.  Returns the
 * accuracy that is to be had from now on. */
float qm_accuracy_next(struct qm_accuracy *a, uint64_t device, uint64_t lru);

#endif
