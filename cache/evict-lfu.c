/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-lfu.c - least frequently used, among equals the least recently used.
 *
 * A block's count is 1 when it enters, grows with each touch, and is forgotten when it
 * leaves ("in-cache" LFU).  Counts do not age: what was hot once stays until others
 * have caught up.  That is the textbook's policy, here to compare with; wtinylfu is the
 * one that ages.  No parameters.
 *
 * All nodes are on one list in the order in which they go: by count, then by last
 * touch.  Nodes of the same count are neighbours there, a run, and all that must be
 * known of a run is where it ends: a node enters at the end of the first run, and a
 * touch takes it to the end of the next.  So every call is O(1), as with the two-level
 * lists of Shah, Mitra & Matani, "An O(1) algorithm for implementing the LFU cache
 * eviction scheme" (2010), for 8 bytes a block.
 *
 * A count stops at 2^32 - 1; nodes that have it are in order of their last touch.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/evict-all.h"

#define NO_RUN UINT32_MAX

/* What the policy keeps in a node. */
#define COUNT(node) ((node)->aux[0])
#define RUN(node)   ((node)->aux[1])

union run {
    struct cds_list_head *last; /* of its nodes */
    uint32_t next_free;
};

struct lfu {
    struct cds_list_head order; /* the next to go first */
    uint32_t free_run;
    uint32_t runs_made;
    union run *runs; /* as many as there are blocks */
};

static void *lfu_create(uint64_t capacity)
{
    struct lfu *lfu;

    if (capacity >= NO_RUN || !(lfu = malloc(sizeof(*lfu))))
        return NULL;
    CDS_INIT_LIST_HEAD(&lfu->order);
    lfu->free_run = NO_RUN;
    lfu->runs_made = 0;
    lfu->runs = malloc((capacity + 1) * sizeof(lfu->runs[0]));
    if (!lfu->runs) {
        free(lfu);
        return NULL;
    }
    return lfu;
}

static void lfu_destroy(void *policy)
{
    struct lfu *lfu = policy;

    free(lfu->runs);
    free(lfu);
}

static struct qm_evict_node *node_of(struct cds_list_head *list)
{
    return cds_list_entry(list, struct qm_evict_node, list);
}

static uint32_t new_run(struct lfu *lfu)
{
    uint32_t run = lfu->free_run;

    if (run == NO_RUN)
        return lfu->runs_made++;
    lfu->free_run = lfu->runs[run].next_free;
    return run;
}

/* node gets count, behind all nodes that have less or as much; smaller is the last one
 * that has less, or the list's head. */
static void place(struct lfu *lfu, struct qm_evict_node *node, uint32_t count,
                  struct cds_list_head *smaller)
{
    struct cds_list_head *next = smaller->next;

    COUNT(node) = count;
    if (next != &lfu->order && COUNT(node_of(next)) == count) {
        RUN(node) = RUN(node_of(next));
        cds_list_add(&node->list, lfu->runs[RUN(node)].last);
    } else {
        RUN(node) = new_run(lfu);
        cds_list_add(&node->list, smaller);
    }
    lfu->runs[RUN(node)].last = &node->list;
}

static void lfu_insert(void *policy, struct qm_evict_node *node)
{
    struct lfu *lfu = policy;

    place(lfu, node, 1, &lfu->order);
}

static void lfu_remove(void *policy, struct qm_evict_node *node)
{
    struct lfu *lfu = policy;
    struct cds_list_head *before = node->list.prev;
    union run *run = &lfu->runs[RUN(node)];

    if (run->last == &node->list) {
        if (before != &lfu->order && RUN(node_of(before)) == RUN(node)) {
            run->last = before;
        } else {
            run->next_free = lfu->free_run;
            lfu->free_run = RUN(node);
        }
    }
    cds_list_del(&node->list);
}

static void lfu_touch(void *policy, struct qm_evict_node *node)
{
    struct lfu *lfu = policy;
    struct cds_list_head *last = lfu->runs[RUN(node)].last;

    if (COUNT(node) == UINT32_MAX) {
        if (last != &node->list) {
            cds_list_del(&node->list);
            cds_list_add(&node->list, last);
            lfu->runs[RUN(node)].last = &node->list;
        }
        return;
    }
    if (last == &node->list)
        last = node->list.prev; /* of its run or, if it is alone, of the one before */
    lfu_remove(lfu, node);
    place(lfu, node, COUNT(node) + 1, last);
}

static struct qm_evict_node *lfu_evict(void *policy, uint64_t incoming)
{
    struct lfu *lfu = policy;
    struct qm_evict_node *node;

    if (cds_list_empty(&lfu->order))
        return NULL;
    node = node_of(lfu->order.next);
    lfu_remove(lfu, node);
    return node;
}

/* The runs get new numbers, in their order, so that there is no gap. */
static int lfu_reserve(void *policy, uint64_t capacity)
{
    struct lfu *lfu = policy;
    union run *runs;
    struct cds_list_head *at;
    uint32_t made = 0, was = NO_RUN;

    if (capacity >= NO_RUN || !(runs = malloc((capacity + 1) * sizeof(runs[0]))))
        return ENOMEM;
    cds_list_for_each(at, &lfu->order)
    {
        struct qm_evict_node *node = node_of(at);

        if (RUN(node) != was) {
            was = RUN(node);
            made++;
        }
        RUN(node) = made - 1;
        runs[made - 1].last = at;
    }
    free(lfu->runs);
    lfu->runs = runs;
    lfu->runs_made = made;
    lfu->free_run = NO_RUN;
    return 0;
}

static void lfu_moved(void *policy, const struct qm_evict_node *from,
                      struct qm_evict_node *to)
{
    struct lfu *lfu = policy;

    if (lfu->runs[RUN(to)].last == &from->list)
        lfu->runs[RUN(to)].last = &to->list;
}

const struct qm_evict_ops qm_evict_lfu = {
    .name = "lfu",
    .create = lfu_create,
    .reserve = lfu_reserve,
    .moved = lfu_moved,
    .destroy = lfu_destroy,
    .insert = lfu_insert,
    .touch = lfu_touch,
    .remove = lfu_remove,
    .evict = lfu_evict,
    .bytes_per_block = sizeof(union run),
};
