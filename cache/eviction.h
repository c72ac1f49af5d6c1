/* SPDX-License-Identifier: BSD-3-Clause */
/* eviction.h - the interface of an eviction policy: which block leaves a full part.
 *
 * One policy a file (evict-lru.c, ...), all with the same shape, found by name.  A
 * policy holds no blocks, only nodes that are embedded in them, and decides order
 * alone. It is always called under one lock, so it needs none; each shard has its own.
 *
 * The calls that name a block follow each other like this:
 *
 *   miss, prefetch hit  evict() if the part is full, then at once insert()
 *   hit                touch(), between insert() and the node's end
 *   end                evict() returned it, or remove()
 *
 * evict() gets the number of the block that the next insert() will bring, so a policy
 * can compare the newcomer with its victim; or QM_EVICT_NOBODY, when the part shrinks
 * in favour of the other part.
 *
 * The part may grow and shrink.  resize() sets its target capacity; the number of
 * blocks follows, as inserts or evictions prevail.  reserve() changes what memory there
 * is for: it is called before resize() when the part grows beyond that, and after the
 * part has shrunk.
 *
 * A node's memory may be reused for another block after its end; insert() finds list
 * and aux as they were left.  A policy may remember blocks that left (ghosts) by
 * number, in memory of its own, which bytes_per_block declares.
 */
#ifndef QM_EVICTION_H
#define QM_EVICTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <urcu/list.h>

struct qm_evict_node {
    struct cds_list_head list; /* the policy's */
    uint64_t block;            /* its number; set before insert, constant since */
    uint32_t aux[2];           /* the policy's: a frequency, a queue's number */
};

#define QM_EVICT_NOBODY UINT64_MAX /* no device has such a block */

#define QM_EVICT_GAIN_PART 8

struct qm_evict_ops {
    const char *name;
    /* A policy for up to capacity blocks (0: it stays empty); NULL if memory is out. */
    void *(*create)(uint64_t capacity);
    /* The same with a configuration: own_opaque of struct qm_cache_config, of a policy
     * that is in no registry; of others, what their headers say. */
    void *(*create_for)(uint64_t capacity, void *opaque);
    /* Sets the target capacity from which segment sizes are computed: at most the
     * capacity of create() or reserve().  NULL: the policy has no segments. */
    void (*resize)(void *policy, uint64_t capacity);
    /* Sets the capacity that the part has for sure, at most that of resize(), which
     * says what it has of late.  It is what a policy that takes turns compares its
     * candidates by, and what gain() and alone() are of.  After resize() and reserve().
     * NULL: the policy compares nothing. */
    void (*assured)(void *policy, uint64_t capacity);
    /* Takes or gives back memory, so that there is as much as for a policy that was
     * created with that capacity, which is at least the target capacity and the number
     * of nodes.  What is known of blocks stays, as far as there is room.  Returns 0 or
     * ENOMEM: then the policy works on, and may have part of the memory.  NULL: the
     * capacity of create() stays, unless the policy has no memory by capacity. */
    int (*reserve)(void *policy, uint64_t capacity);
    void (*destroy)(void *policy); /* the nodes need not have been removed */
    /* Adds node.  If the part was full, the caller has evicted another. */
    void (*insert)(void *policy, struct qm_evict_node *node);
    /* Records a hit on node.  Under contention between threads, hits may arrive late,
     * in another order, or not at all. */
    void (*touch)(void *policy, struct qm_evict_node *node);
    /* Removes node for another reason than eviction. */
    void (*remove)(void *policy, struct qm_evict_node *node);
    /* Chooses a node to evict in favour of block number incoming (or QM_EVICT_NOBODY),
     * removes and returns it; NULL only if there is none. */
    struct qm_evict_node *(*evict)(void *policy, uint64_t incoming);
    /* For policies that take turns (evict-adaptive.c), else NULL: all nodes move from
     * one to another, by yield() and admit().  yield() removes and returns the node
     * that is worth the least, roughly, and remembers nothing of it; *again: it was
     * touched, as far as the policy knows.  NULL if there is none.  admit() adds it, as
     * worth more than those before; again: and among those that the policy keeps
     * longer. */
    struct qm_evict_node *(*yield)(void *policy, bool *again);
    void (*admit)(void *policy, struct qm_evict_node *node, bool again);
    /* About how many demands (touches and entries) more would have been hits, since
     * create(), if the capacity had been larger by one of QM_EVICT_GAIN_PART.  NULL: it
     * does not know. */
    double (*gain)(void *policy);
    /* Estimated misses since create(), if nothing had been prefetched.  NULL: it does
     * not know. */
    double (*alone)(void *policy);
    /* A node's place in memory changes: `to` has from's contents, and has taken its
     * place in its list.  NULL: nothing but the list points to nodes.  Those of a
     * policy of the caller's (own_eviction) stay where they are. */
    void (*moved)(void *policy, const struct qm_evict_node *from,
                  struct qm_evict_node *to);
    /* Upper bound of the bytes kept beside the nodes for that capacity, for the byte
     * budget, which allows 256 bytes in addition.  NULL: bytes_per_block times it. */
    size_t (*bytes)(uint64_t capacity);
    size_t bytes_per_block;
};

/* The bytes that a policy declares for that capacity. */
size_t qm_evict_bytes(const struct qm_evict_ops *ops, uint64_t capacity);

/* The policy of that name, with static lifetime; or NULL. */
const struct qm_evict_ops *qm_evict_find(const char *name);

/* All names, separated by ", ", for messages. */
const char *qm_evict_names(void);

#endif
