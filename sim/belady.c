/* SPDX-License-Identifier: BSD-3-Clause */
/* belady.c - evict what will not be demanded for the longest time (see belady.h).
 *
 * A node knows the number of the next access to its block.  Those that have one are in
 * a binary heap, the farthest at its root; those that have none are in a list, and go
 * first, the one that was last demanded the longest ago before the others: what goes is
 * never a matter of chance.
 *
 * The cache notes hits and applies them later, before anything is evicted.  So a touch
 * does not look at the clock: it is the access that the node waited for.
 */
#include "sim/belady.h"

#include <stdlib.h>

struct belady {
    const struct qm_belady *told;
    struct cds_list_head done; /* never demanded again, the first to go first */
    struct qm_evict_node **heap;
    uint32_t count; /* in the heap */
};

/* What is in a node's aux. */
enum { NEXT_USE, PLACE };

static void *create_for(uint64_t capacity, void *opaque)
{
    struct belady *b = malloc(sizeof *b);

    if (!b)
        return NULL;
    *b = (struct belady){.told = opaque,
                         .heap = calloc(capacity + 1, sizeof(struct qm_evict_node *))};
    if (!b->heap) {
        free(b);
        return NULL;
    }
    CDS_INIT_LIST_HEAD(&b->done);
    return b;
}

static void destroy(void *policy)
{
    struct belady *b = policy;

    free(b->heap);
    free(b);
}

static void put(struct belady *b, uint32_t place, struct qm_evict_node *node)
{
    b->heap[place] = node;
    node->aux[PLACE] = place;
}

/* Moves node from a free place to where it belongs, up or down. */
static void settle(struct belady *b, uint32_t place, struct qm_evict_node *node)
{
    uint32_t key = node->aux[NEXT_USE];

    while (place > 0 && b->heap[(place - 1) / 2]->aux[NEXT_USE] < key) {
        put(b, place, b->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;

        if (child + 1 < b->count &&
            b->heap[child + 1]->aux[NEXT_USE] > b->heap[child]->aux[NEXT_USE])
            child++;
        if (child >= b->count || b->heap[child]->aux[NEXT_USE] < key)
            break;
        put(b, place, b->heap[child]);
        place = child;
    }
    put(b, place, node);
}

static void leave(struct belady *b, struct qm_evict_node *node)
{
    struct qm_evict_node *last;

    if (node->aux[NEXT_USE] == QM_FUTURE_NEVER) {
        cds_list_del(&node->list);
        return;
    }
    last = b->heap[--b->count];
    if (last != node)
        settle(b, node->aux[PLACE], last);
}

/* node was demanded by that access. */
static void enter(struct belady *b, struct qm_evict_node *node, uint32_t access)
{
    node->aux[NEXT_USE] = qm_future_next_use(b->told->future, access);
    if (node->aux[NEXT_USE] == QM_FUTURE_NEVER)
        cds_list_add_tail(&node->list, &b->done);
    else
        settle(b, b->count++, node);
}

static void insert(void *policy, struct qm_evict_node *node)
{
    struct belady *b = policy;

    enter(b, node, b->told->now);
}

static void touch(void *policy, struct qm_evict_node *node)
{
    struct belady *b = policy;
    uint32_t access = node->aux[NEXT_USE];

    leave(b, node);
    enter(b, node, access);
}

static void remove_node(void *policy, struct qm_evict_node *node)
{
    leave(policy, node);
}

static struct qm_evict_node *evict(void *policy, uint64_t incoming)
{
    struct belady *b = policy;
    struct qm_evict_node *node;

    (void)incoming;
    if (!cds_list_empty(&b->done))
        node = cds_list_entry(b->done.next, struct qm_evict_node, list);
    else if (b->count > 0)
        node = b->heap[0];
    else
        return NULL;
    leave(b, node);
    return node;
}

const struct qm_evict_ops qm_evict_belady = {
    .name = QM_BELADY,
    .create_for = create_for,
    .destroy = destroy,
    .insert = insert,
    .touch = touch,
    .remove = remove_node,
    .evict = evict,
    .bytes_per_block = sizeof(struct qm_evict_node *),
};
