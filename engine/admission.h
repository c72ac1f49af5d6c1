/* SPDX-License-Identifier: BSD-3-Clause */
/* admission.h - how probable the use of a block must be for it to be prefetched now.
 *
 * A prefetch that is used saves its reader the time T that a read takes, and costs the
 * device nothing, since the block would have been read anyhow.  One that is not used is
 * a read more, which delays others.  On a device that is busy for a part U of its time,
 * a read more delays all others together by T * U / (1 - U): that many are there on the
 * average, and each that is delayed delays those behind it.  So the gain exceeds the
 * cost from probability U on:
 *
 *     p * T > (1 - p) * T * U / (1 - U)    <=>    p > U
 *
 * U is not known: how many reads a device works on at a time, and in which order, is
 * its own affair.  But a read's time tells, set against the number of others that were
 * on their way when it was sent: the slope of a straight line through these (least
 * squares, where the older counts less) is by how much one read delays another.  That,
 * times the reads that come in a unit of time, is U: of a device with one station the
 * slope is the time that a read takes, of one with four a quarter of it.
 *
 * Reads of different sizes have lines of different heights, but one slope.
 *
 * On a device that is nearly always busy, all reads find about as many others, and the
 * line is too flat.  There another measure is better: how much longer reads take than
 * those that found no other.  The threshold is the greater of the two.
 *
 * Any thread may call any of these at any time; a caller that has no use for the
 * threshold pays for a lock a read of the device.  Times are the caller's, in
 * nanoseconds.
 */
#ifndef QM_ENGINE_ADMISSION_H
#define QM_ENGINE_ADMISSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    QM_ADMISSION_SIZES = 5, /* reads of 1, 2 to 3, 4 to 7, 8 to 15, and more blocks */
};

struct qm_admission {
    _Alignas(64) _Atomic int demands, ahead; /* reads on their way */
    _Atomic float threshold;                 /* 0 to 1 */

    _Alignas(64) pthread_mutex_t lock; /* a leaf, of all that follows */
    struct {
        double weight, others, ns;  /* faded count; means */
        double alone, alone_weight; /* mean ns of those that found no other, about */
    } sizes[QM_ADMISSION_SIZES];
    double weight, spread, covariance; /* of all, within their size */
    double gap;                        /* mean between two ends of reads, ns */
    uint64_t last;                     /* when one ended */
};

void qm_admission_init(struct qm_admission *a);
void qm_admission_destroy(struct qm_admission *a);

/* A read is sent to the device, of a demand's or ahead.  Returns how many others are on
 * their way, for qm_admission_end(). */
unsigned qm_admission_begin(struct qm_admission *a, bool ahead);

/* It has ended now, after `ns`.  blocks: that it had; 0: it failed, and its time says
 * nothing. */
void qm_admission_end(struct qm_admission *a, bool ahead, unsigned others, uint64_t now,
                      uint64_t ns, unsigned blocks);

/* How probable the use of a block must be at least, 0 to 1. */
static inline float qm_admission_threshold(const struct qm_admission *a)
{
    return atomic_load_explicit(&a->threshold, memory_order_relaxed);
}

static inline bool qm_admission_admits(const struct qm_admission *a, float probability)
{
    return probability >= qm_admission_threshold(a);
}

#endif
