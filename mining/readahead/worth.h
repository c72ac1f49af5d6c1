/* SPDX-License-Identifier: BSD-3-Clause */
/* worth.h - how probable it is that what is read ahead will be used.
 *
 * A run of two reads may be chance, and a stream that has been read for long will
 * probably be read on.  So prefetches are told apart by how much of their stream had
 * been seen when they were issued, and whether one context had read all of that
 * (buckets); and by how far ahead of the reader they lie (distances).  Of each the
 * share of samples that were used is learned, the last few dozen counting most.  For
 * the very next block less of that is asked than for those behind it: if it is used,
 * the stream goes on without another miss.
 *
 * No locking; reading while another thread learns gives one of the two values.
 */
#ifndef QM_WORTH_H
#define QM_WORTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum qm_worth_bucket {
    QM_WORTH_TWO,     /* after two reads */
    QM_WORTH_RUN,     /* after more, of less than 8 blocks */
    QM_WORTH_SHORT,   /* of less than 32 */
    QM_WORTH_MEDIUM,  /* of less than 128 */
    QM_WORTH_LONG,    /* of more */
    QM_WORTH_OWN_TWO, /* the same, if one context read them */
    QM_WORTH_OWN_RUN,
    QM_WORTH_OWN_SHORT,
    QM_WORTH_OWN_MEDIUM,
    QM_WORTH_OWN_LONG,
    QM_WORTH_STRIDE, /* of a stride: up to 8 reads */
    QM_WORTH_STRIDE_LONG,
    QM_WORTH_BUCKETS
};

enum { QM_WORTH_DISTANCES = 7 }; /* 1 block ahead, 2 and 3, 4 to 7, ..., 64 and more */

struct qm_worth {
    _Atomic float used[QM_WORTH_BUCKETS][QM_WORTH_DISTANCES];
    unsigned asked[QM_WORTH_BUCKETS]; /* since more than what is worth it was tried */
};

void qm_worth_init(struct qm_worth *worth);

/* Of a stream of `length` blocks until now; two: that was two reads; own: of one
 * context. */
enum qm_worth_bucket qm_worth_of_run(bool own, bool two, uint64_t length);
/* Of a stride of `reads` until now. */
enum qm_worth_bucket qm_worth_of_stride(uint64_t reads);

/* Of a block that is the `ahead`-th before its reader; at least 1. */
unsigned qm_worth_distance(uint64_t ahead);

/* A sample was used, or has left the cache unused. */
void qm_worth_learn(struct qm_worth *worth, enum qm_worth_bucket bucket,
                    unsigned distance, bool used);

static inline float qm_worth_get(struct qm_worth *worth, enum qm_worth_bucket bucket,
                                 unsigned distance)
{
    return atomic_load_explicit(&worth->used[bucket][distance], memory_order_relaxed);
}

/* How far ahead it is worth reading, in blocks, or reads of a stride; at most `most`.
 * 0: not at all.  Now and then it is more than what has been worth it: that may have
 * become better. */
uint32_t qm_worth_reach(struct qm_worth *worth, enum qm_worth_bucket bucket,
                        uint32_t most);

#endif
