/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h - how many rows of a set have a number, by a hash of it: tells without a
 * lock that there is none.  The set's owner adds and removes under its lock. */
#ifndef QM_ROWCACHE_NUMBERS_H
#define QM_ROWCACHE_NUMBERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { QM_NUMBERS_BITS = 15 };

struct qm_numbers {
    _Atomic uint32_t count[1 << QM_NUMBERS_BITS];
};

static inline unsigned qm_numbers_slot(int64_t row)
{
    return (unsigned)((uint64_t)row * 0x9e3779b97f4a7c15u >> (64 - QM_NUMBERS_BITS));
}

static inline void qm_numbers_add(struct qm_numbers *numbers, int64_t row)
{
    atomic_fetch_add_explicit(&numbers->count[qm_numbers_slot(row)], 1,
                              memory_order_relaxed);
}

/* It was added. */
static inline void qm_numbers_remove(struct qm_numbers *numbers, int64_t row)
{
    atomic_fetch_sub_explicit(&numbers->count[qm_numbers_slot(row)], 1,
                              memory_order_relaxed);
}

/* False: there is none.  What another thread has just added may be missed once. */
static inline bool qm_numbers_may_have(const struct qm_numbers *numbers, int64_t row)
{
    return atomic_load_explicit(&numbers->count[qm_numbers_slot(row)],
                                memory_order_relaxed) > 0;
}

#endif
