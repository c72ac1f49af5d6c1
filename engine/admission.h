/* SPDX-License-Identifier: BSD-3-Clause */
/* admission.h - how probable the use of a block must be for it to be prefetched now.
 *
 * A prefetch that is used saves its reader a part S of the time T that a read takes,
 * and costs the device nothing, since the block would have been read anyway.  One that
 * is not used is an additional read, which delays all others together by D.  The gain
 * exceeds the cost from probability D / (D + S * T) on:
 *
 *     p * S * T > (1 - p) * D    <=>    p > D / (D + S * T)
 *
 * S is learned from the prefetches that are used: the whole of T if the block was
 * there, what remained of T if its reader came while it was being read.  One that its
 * reader took over while it was still queued was no read ahead, and does not count.
 * Reads of demands move S slowly back to 1, since without prefetches it is not known.
 * How long a demand's read takes is known of reads of one block only: where there are
 * none, those that come late do not count either.
 *
 * D is known in two ways, and the threshold is the greater of the two.  On the average:
 * on a device that is busy for a part U of its time, a read more delays all others
 * together by T * U / (1 - U), so that with S = 1 the threshold is U.  And at the
 * moment: requests come in bursts, and what is read at the head of one delays all that
 * follow until the device has time again.  How many demands these are is learned by the
 * number of reads that are on their way.
 *
 * Not all that follow wait for it.  Clients that ask for more when they have what they
 * asked for begin later, if a read more delays them, and wait no longer than before: it
 * delays each of them once.  Where requests come on their own, each that follows waits.
 * How the number of demands on their way varies tells these apart: of clients that
 * always wait it is always the same, if some of them pause it varies by less than its
 * mean, and of requests that come on their own (Poisson) by its mean, and by more where
 * they queue.  So those that follow beyond the mean number of demands on their way
 * count if the variance is at least the mean, a part of them below that, and none below
 * half of it.  (For what that difference does to measurements see Schroeder, Wierman
 * and Harchol-Balter, "Open versus closed: a cautionary tale", NSDI'06.)
 *
 * Limit: nbdkit takes 16 requests of a connection at a time.  If more are always
 * waiting in the socket, the number on their way is constant, and requests that come on
 * their own are taken for those of clients that wait.
 *
 * U is not known: how many reads a device works on at a time, and in which order, is
 * its own affair.  But a read's time tells, set against the number of others that were
 * on their way when it was sent: the slope of a straight line through these (least
 * squares, where the older counts less) is by how much one read delays another.  That,
 * times the reads that come in a unit of time, is U: of a device with one station the
 * slope is the time that a read takes, of one with four a quarter of it.  The time
 * that a read takes alone, divided by the slope, is how many reads keep the device
 * busy, and the slope times the demands that follow is D.
 *
 * Of the greater of the two, D counts up to three times where it is much: a busy
 * device's slowest reads suffer more than the mean.
 *
 * Reads of different sizes have lines of different heights, but one slope.
 *
 * On a device that is nearly always busy, all reads find about as many others, and the
 * line is too flat.  There another measure of U is better: how much longer reads take
 * than those that found no other.
 *
 * Either may rest on few reads.  Where a dozen clients never pause, only the first read
 * found no other.  If the times of a device's reads vary, that one may have been short
 * by chance; then all others seem to wait, U seems high, prefetches are kept back, and
 * no read is ever alone again.  So both are lowered by a number of standard errors.
 *
 * inflight.h derives from reads' times how many prefetches may be in flight.
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

#include "engine/inflight.h"

enum {
    QM_ADMISSION_STATES = 8, /* reads on their way: 0, 1, 2 to 3, 4 to 7, ..., 64 up */
    QM_ADMISSION_SIZES = 5,  /* reads of 1, 2 to 3, 4 to 7, 8 to 15, and more blocks */
};

struct qm_admission {
    _Alignas(64) _Atomic int demands, ahead; /* reads on their way */
    _Atomic unsigned begun;                  /* of demands, ever */

    _Alignas(64) _Atomic float thresholds[QM_ADMISSION_STATES]; /* 0 to 1 */
    _Atomic float took[QM_ADMISSION_STATES]; /* ns, mean of demands' reads of a block */
    _Atomic float saved;                     /* S of those used, 0 to 1; from 1 on */

    struct qm_inflight inflight; /* how many prefetches may be in flight */

    _Alignas(64) pthread_mutex_t lock; /* a leaf, of all that follows */
    struct {
        double weight, others, ns;  /* faded count; means */
        double alone, alone_weight; /* mean ns of those that found no other, about */
        double alone_squares;       /* of the weights of these */
    } sizes[QM_ADMISSION_SIZES];
    double weight, spread, covariance; /* of all, within their size */
    double strays;                     /* as spread, of ns */
    struct {
        double took_weight;      /* reads that took is of */
        double followed, weight; /* mean of demands that a read more delays; count */
        bool watched;            /* it is being counted how many follow: */
        uint64_t since;          /* from this time on */
        unsigned begun;          /* as begun then */
    } states[QM_ADMISSION_STATES];
    struct {
        double weight, mean, variance; /* of demands on their way when one has ended,
                                         that one not counted */
    } waiting;
    double gap;    /* mean between two ends of reads, ns */
    uint64_t last; /* when one ended */
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

/* How many prefetches may wait at present, at most `limit`, if none is configured. */
unsigned qm_admission_queue(const struct qm_admission *a, unsigned limit);

/* A block that was prefetched is demanded for the first time, while `others` other
 * reads were on their way, and its reader waited for it: 0 ns if it was there.  Not for
 * one that its reader has read itself. */
void qm_admission_used(struct qm_admission *a, unsigned others, uint64_t waited);

/* How many demands' reads are on their way. */
static inline unsigned qm_admission_demands(const struct qm_admission *a)
{
    int demands = atomic_load_explicit(&a->demands, memory_order_relaxed);

    return demands > 0 ? (unsigned)demands : 0;
}

/* How many reads are on their way. */
static inline unsigned qm_admission_reads(const struct qm_admission *a)
{
    int reads = atomic_load_explicit(&a->demands, memory_order_relaxed) +
                atomic_load_explicit(&a->ahead, memory_order_relaxed);

    return reads > 0 ? (unsigned)reads : 0;
}

static inline unsigned qm_admission_state(unsigned reads)
{
    unsigned state = reads > 0 ? 32 - (unsigned)__builtin_clz(reads) : 0;

    return state < QM_ADMISSION_STATES ? state : QM_ADMISSION_STATES - 1;
}

/* How probable the use of a block must be at least now, 0 to 1. */
static inline float qm_admission_threshold(const struct qm_admission *a)
{
    return atomic_load_explicit(
        &a->thresholds[qm_admission_state(qm_admission_reads(a))],
        memory_order_relaxed);
}

/* How long a demand's read of one block takes now, ns; 0: not known. */
static inline double qm_admission_took(const struct qm_admission *a)
{
    const unsigned state = qm_admission_state(qm_admission_reads(a));

    return atomic_load_explicit(&a->took[state], memory_order_relaxed);
}

static inline bool qm_admission_admits(const struct qm_admission *a, float probability)
{
    return probability >= qm_admission_threshold(a);
}

#endif
