/* SPDX-License-Identifier: BSD-3-Clause */
/* worth.h - how probable it is that what is read ahead will be used.
 *
 * A run of two reads may be chance, and a stream that has been read for long will
 * probably be read on.  So prefetches are told apart by how much of their stream had
 * been seen when they were issued (buckets), and of each bucket the share of samples
 * that were used is learned, the last few dozen counting most.
 *
 * No locking; reading while another thread learns gives one of the two values.
 */
#ifndef QM_WORTH_H
#define QM_WORTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum qm_worth_bucket {
    QM_WORTH_TWO,    /* after two reads */
    QM_WORTH_RUN,    /* after more, of less than 8 blocks */
    QM_WORTH_SHORT,  /* of less than 32 */
    QM_WORTH_MEDIUM, /* of less than 128 */
    QM_WORTH_LONG,   /* of more */
    QM_WORTH_STRIDE, /* of a stride: up to 8 reads */
    QM_WORTH_STRIDE_LONG,
    QM_WORTH_BUCKETS
};

struct qm_worth {
    _Atomic float used[QM_WORTH_BUCKETS];
    unsigned refused; /* since a stream of low worth was last tried */
};

void qm_worth_init(struct qm_worth *worth);

/* Of a stream of `length` blocks, or a stride of `length` reads, until now; two: that
 * was two reads. */
enum qm_worth_bucket qm_worth_bucket(bool stride, bool two, uint64_t length);

/* A sample of that bucket was used, or has left the cache unused. */
void qm_worth_learn(struct qm_worth *worth, enum qm_worth_bucket bucket, bool used);

static inline float qm_worth_get(struct qm_worth *worth, enum qm_worth_bucket bucket)
{
    return atomic_load_explicit(&worth->used[bucket], memory_order_relaxed);
}

/* Whether a run of that bucket should become a stream.  One that is refused is tried
 * now and then all the same: it may have become better. */
bool qm_worth_try(struct qm_worth *worth, enum qm_worth_bucket bucket);

#endif
