/* eviction.h - which block goes when one must: the interface of a policy.
 *
 * One policy a file (evict-lru.c, ...), all with the same shape, found by name.  A
 * policy holds no blocks, only nodes that are embedded in them, and decides order
 * alone. It is always called under one lock, so it needs none; each shard has its own.
 *
 * The calls that name a block follow each other like this:
 *
 *   miss, or promote   evict() if the part is full, then at once insert()
 *   hit                touch(), between insert() and the node's end
 *   end                evict() returned it, or remove()
 *
 * What evict() is told is the block that the next insert() brings, so a policy whose
 * choice depends on the newcomer can look at it before, and go on from there.  It is
 * told QM_EVICT_NOBODY when the room is not for a block of the same part.
 *
 * The part may grow and shrink: resize() says how many blocks it should have, and what
 * it has comes near that in time, by more of one kind of call than of the other.
 *
 * A node's memory may serve another block after its end, and insert() finds list and
 * aux as they were left.  A policy may remember blocks that left (ghosts): by number,
 * in memory of its own, which bytes_per_block declares.
 */
#ifndef QM_EVICTION_H
#define QM_EVICTION_H

#include <stdint.h>
#include <stddef.h>
#include <urcu/list.h>

struct qm_evict_node {
    struct cds_list_head list; /* the policy's */
    uint64_t block;            /* its number; set before insert, constant since */
    uint32_t aux[2];           /* the policy's: a frequency, a queue's number */
};

#define QM_EVICT_NOBODY UINT64_MAX /* no device has such a block */

struct qm_evict_ops {
    const char *name;
    /* A policy for up to capacity blocks (0: it stays empty); NULL if memory is out. */
    void *(*create)(uint64_t capacity);
    /* Only of a policy that is in no registry (struct qm_cache_config): the same, with
     * what the configuration says. */
    void *(*create_for)(uint64_t capacity, void *opaque);
    /* From now on, capacity blocks (at most what it was created for) are what shares of
     * them are reckoned by.  NULL: it has none. */
    void (*resize)(void *policy, uint64_t capacity);
    void (*destroy)(void *policy); /* the nodes need not have been removed */
    /* node enters; the caller has made room. */
    void (*insert)(void *policy, struct qm_evict_node *node);
    /* A demand found node.  Under contention between threads, touches may be late, in
     * another order, or missing. */
    void (*touch)(void *policy, struct qm_evict_node *node);
    /* node leaves for another reason than eviction. */
    void (*remove)(void *policy, struct qm_evict_node *node);
    /* Chooses and removes the node that makes room for block number incoming, or for
     * QM_EVICT_NOBODY; NULL only if there is none. */
    struct qm_evict_node *(*evict)(void *policy, uint64_t incoming);
    /* Bytes kept per block of capacity beside the node, at most, for the byte budget (a
     * fixed part of up to 256 bytes is allowed for anyway). */
    size_t bytes_per_block;
};

/* The policy of that name, which lives as long as the program; or NULL. */
const struct qm_evict_ops *qm_evict_find(const char *name);

/* All names, separated by ", ", for messages. */
const char *qm_evict_names(void);

#endif
