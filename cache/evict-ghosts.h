/* evict-ghosts.h - blocks that a policy remembers after they left, by number only.
 *
 * A set of at most `capacity` numbers in two queues, in the order in which they came.
 * Everything is O(1), and all memory is taken when it is made.
 */
#ifndef QM_EVICT_GHOSTS_H
#define QM_EVICT_GHOSTS_H

#include <stdint.h>

struct qm_ghosts;

#define QM_GHOST_NONE (-1)

/* Bytes for each block of capacity; 128 beside, the allocator's included. */
#define QM_GHOST_BYTES 28

/* NULL if memory is out. */
struct qm_ghosts *qm_ghosts_new(uint64_t capacity);
void qm_ghosts_free(struct qm_ghosts *ghosts);

uint64_t qm_ghosts_count(const struct qm_ghosts *ghosts, int queue);

/* block, which must not be there, becomes the latest of queue (0 or 1).  There must be
 * room. */
void qm_ghosts_add(struct qm_ghosts *ghosts, int queue, uint64_t block);

/* Forgets block.  Returns the queue it was in, or QM_GHOST_NONE. */
int qm_ghosts_take(struct qm_ghosts *ghosts, uint64_t block);

/* The same.  *age: how many came to that queue since, itself included, forgotten ones
 * too. */
int qm_ghosts_take_aged(struct qm_ghosts *ghosts, uint64_t block, uint32_t *age);

/* Forgets the oldest of queue, which must not be empty. */
void qm_ghosts_drop(struct qm_ghosts *ghosts, int queue);

#endif
