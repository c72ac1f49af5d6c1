/* eviction.h - which block goes when one must: the interface of a policy.
 *
 * One policy a file (evict-lru.c, ...), all with the same shape, found by name.  A
 * policy holds no blocks, only nodes that are embedded in them, and decides order alone.
 * It is always called under one lock, so it needs none; each shard has its own.
 *
 * A policy may remember blocks that left (ghosts): a node carries its block number.
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

struct qm_evict_ops {
    const char *name;
    /* A policy for up to capacity blocks; NULL if memory is out. */
    void *(*create)(uint64_t capacity);
    void (*destroy)(void *policy); /* the nodes need not have been removed */
    /* node enters; the caller has made room. */
    void (*insert)(void *policy, struct qm_evict_node *node);
    /* A demand found node. */
    void (*touch)(void *policy, struct qm_evict_node *node);
    /* node leaves for another reason than eviction. */
    void (*remove)(void *policy, struct qm_evict_node *node);
    /* Chooses and removes the node that makes room for incoming; NULL if empty. */
    struct qm_evict_node *(*evict)(void *policy, uint64_t incoming);
    /* Bytes kept per block of capacity beside the node, for the byte budget. */
    size_t bytes_per_block;
};

/* The policy of that name, or NULL. */
const struct qm_evict_ops *qm_evict_find(const char *name);

/* All names, separated by ", ", for messages. */
const char *qm_evict_names(void);

#endif
