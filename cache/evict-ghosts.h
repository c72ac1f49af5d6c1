/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-ghosts.h - numbers of blocks that a policy remembers after evicting them.
 *
 * A set of at most `capacity` numbers in two queues, oldest first.  Every operation is
 * O(1), and qm_ghosts_new() allocates all memory.
 */
#ifndef QM_EVICT_GHOSTS_H
#define QM_EVICT_GHOSTS_H

#include <stdint.h>

struct qm_ghosts;

#define QM_GHOST_NONE (-1)

/* Bytes per block of capacity; 128 in addition, with the allocator's overhead. */
#define QM_GHOST_BYTES 28

/* NULL if memory is out. */
struct qm_ghosts *qm_ghosts_new(uint64_t capacity);
void qm_ghosts_free(struct qm_ghosts *ghosts);

/* Makes it a set of at most `capacity` numbers; the oldest of the longer queue go.
 * O(capacity).  Returns 0 or ENOMEM, then nothing changed. */
int qm_ghosts_reserve(struct qm_ghosts *ghosts, uint64_t capacity);

uint64_t qm_ghosts_count(const struct qm_ghosts *ghosts, int queue);

/* Adds block, which must not be in the set, as the newest of queue (0 or 1).  The set
 * must not be full. */
void qm_ghosts_add(struct qm_ghosts *ghosts, int queue, uint64_t block);

/* Forgets block.  Returns the queue it was in, or QM_GHOST_NONE. */
int qm_ghosts_take(struct qm_ghosts *ghosts, uint64_t block);

/* The same.  *age: the number of blocks added to that queue since, this one and
 * forgotten ones included. */
int qm_ghosts_take_aged(struct qm_ghosts *ghosts, uint64_t block, uint32_t *age);

/* Forgets the oldest of queue, which must not be empty; returns it. */
uint64_t qm_ghosts_drop(struct qm_ghosts *ghosts, int queue);

#endif
