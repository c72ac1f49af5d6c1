/* SPDX-License-Identifier: BSD-3-Clause */
/* yield.h - how probable it is that what is read ahead will be used.
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
#ifndef QM_YIELD_H
#define QM_YIELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum qm_yield_bucket {
    QM_YIELD_TWO,     /* after two reads */
    QM_YIELD_RUN,     /* after more, of less than 8 blocks */
    QM_YIELD_SHORT,   /* of less than 32 */
    QM_YIELD_MEDIUM,  /* of less than 128 */
    QM_YIELD_LONG,    /* of more */
    QM_YIELD_OWN_TWO, /* the same, if one context read them */
    QM_YIELD_OWN_RUN,
    QM_YIELD_OWN_SHORT,
    QM_YIELD_OWN_MEDIUM,
    QM_YIELD_OWN_LONG,
    QM_YIELD_STRIDE, /* of a stride: up to 8 reads */
    QM_YIELD_STRIDE_LONG,
    QM_YIELD_BUCKETS
};

enum { QM_YIELD_DISTANCES = 7 }; /* 1 block ahead, 2 and 3, 4 to 7, ..., 64 and more */

struct qm_yield {
    _Atomic float used[QM_YIELD_BUCKETS][QM_YIELD_DISTANCES];
    unsigned asked[QM_YIELD_BUCKETS]; /* since more than what is worth it was tried */
};

void qm_yield_init(struct qm_yield *worth);

/* Of a stream of `length` blocks until now; two: that was two reads; own: of one
 * context. */
enum qm_yield_bucket qm_yield_of_run(bool own, bool two, uint64_t length);
/* Of a stride of `reads` until now. */
enum qm_yield_bucket qm_yield_of_stride(uint64_t reads);

/* Of a block that is the `ahead`-th before its reader; at least 1. */
unsigned qm_yield_distance(uint64_t ahead);

/* A sample was used, or has left the cache unused. */
void qm_yield_learn(struct qm_yield *worth, enum qm_yield_bucket bucket,
                    unsigned distance, bool used);

static inline float qm_yield_get(struct qm_yield *worth, enum qm_yield_bucket bucket,
                                 unsigned distance)
{
    return atomic_load_explicit(&worth->used[bucket][distance], memory_order_relaxed);
}

/* How far ahead it is worth reading, in blocks, or reads of a stride; at most `most`.
 * 0: not at all.  Now and then it is more than what has been worth it: that may have
 * become better. */
uint32_t qm_yield_reach(struct qm_yield *worth, enum qm_yield_bucket bucket,
                        uint32_t most);

#endif
