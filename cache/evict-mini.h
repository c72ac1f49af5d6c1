/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-mini.h - a cache of block numbers alone, to see how often a policy misses.
 *
 * It runs a policy of eviction.h on the demands that it is told of, as if these were
 * all.  Told of a sample of a cache's blocks, chosen by their hash, and as many times
 * smaller, it misses about as large a share of its demands as that cache would of all
 * (Waldspurger, Saemundsson, Ahmad & Park, "Cache Modeling and Optimization using
 * Miniature Simulations", USENIX ATC'17).
 *
 * Everything is O(1) on average, and all memory is taken when it is made.  No locks.
 */
#ifndef QM_EVICT_MINI_H
#define QM_EVICT_MINI_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/eviction.h"

struct qm_mini;

/* Bytes for each block of capacity, beside what the policy keeps; 256 beside. */
#define QM_MINI_BYTES 44

/* Of up to capacity blocks, at least 1.  opaque: for create_for(); NULL: the policy as
 * it is.  NULL if memory is out. */
struct qm_mini *qm_mini_new(const struct qm_evict_ops *ops, void *opaque,
                            uint64_t capacity);
void qm_mini_free(struct qm_mini *mini); /* NULL is fine */

/* From now on it has that many blocks, at least 1 and at most what it was made for. */
void qm_mini_resize(struct qm_mini *mini, uint64_t capacity);

/* Makes it one that was made for that many blocks, as it is otherwise.  Returns 0 or
 * ENOMEM, then it is still for as many as before, or as the policy could have. */
int qm_mini_reserve(struct qm_mini *mini, uint64_t capacity);

/* What from has comes to the other, in its order, as far as there is room. */
void qm_mini_hand_over(struct qm_mini *from, struct qm_mini *to);

/* Somebody wants block.  Returns whether it was there; it is now. */
bool qm_mini_demand(struct qm_mini *mini, uint64_t block);

#endif
