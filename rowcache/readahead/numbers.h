/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h - how many rows of each of some sets have a number, by a hash of it: tells
 * without a lock that there is none.  A set's owner adds and removes under its lock.
 *
 * The counts of all sets are side by side: to ask for a row in all of them waits for
 * memory once, and a look into a set's own map, which is spared for most rows, waits
 * once or twice more. */
#ifndef QM_ROWCACHE_NUMBERS_H
#define QM_ROWCACHE_NUMBERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { QM_NUMBERS_BITS = 17 };

enum qm_numbers_set {
    QM_NUMBERS_OUT,     /* auto.h: read ahead, and not used */
    QM_NUMBERS_WATCHED, /* watched.h */
    QM_NUMBERS_CHANGED, /* changes.h: waiting, or at risk */
    QM_NUMBERS_SETS = 4 /* a power of two */
};

/* Zero: all sets are empty.  A count that reaches its most stays there. */
struct qm_numbers {
    struct {
        _Atomic uint16_t of[QM_NUMBERS_SETS];
    } count[1 << QM_NUMBERS_BITS];
};

static inline unsigned qm_numbers_slot(int64_t row)
{
    return (unsigned)((uint64_t)row * 0x9e3779b97f4a7c15u >> (64 - QM_NUMBERS_BITS));
}

/* Only the set's owner changes its counts. */
static inline void qm_numbers_change(struct qm_numbers *numbers,
                                     enum qm_numbers_set set, int64_t row, int by)
{
    _Atomic uint16_t *count = &numbers->count[qm_numbers_slot(row)].of[set];
    uint16_t n = atomic_load_explicit(count, memory_order_relaxed);

    if (n < UINT16_MAX)
        atomic_store_explicit(count, (uint16_t)(n + by), memory_order_relaxed);
}

static inline void qm_numbers_add(struct qm_numbers *numbers, enum qm_numbers_set set,
                                  int64_t row)
{
    qm_numbers_change(numbers, set, row, 1);
}

/* It was added. */
static inline void qm_numbers_remove(struct qm_numbers *numbers,
                                     enum qm_numbers_set set, int64_t row)
{
    qm_numbers_change(numbers, set, row, -1);
}

/* False: there is none.  What another thread has just added may be missed once. */
static inline bool qm_numbers_may_have(const struct qm_numbers *numbers,
                                       enum qm_numbers_set set, int64_t row)
{
    return atomic_load_explicit(&numbers->count[qm_numbers_slot(row)].of[set],
                                memory_order_relaxed) > 0;
}

#endif
