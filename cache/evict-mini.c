/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-mini.c - a cache of block numbers alone: see evict-mini.h.
 *
 * Nodes are numbered from 1, so that they link each other in 4 bytes: in the chain of
 * their bucket, or in the free list.  Buckets are half as many as nodes or more.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/evict-mini.h"
#include "cache/hash.h"

struct qm_mini {
    const struct qm_evict_ops *ops;
    void *policy;
    struct qm_evict_node *nodes; /* the first is not used */
    uint32_t *chain;             /* by node */
    uint32_t *buckets;
    uint32_t mask;
    uint32_t free; /* nodes */
    uint64_t held, capacity;
};

_Static_assert(sizeof(struct qm_evict_node) + 2 * sizeof(uint32_t) <= QM_MINI_BYTES,
               "a node, a link and a bucket");

/* Empty.  False if memory is out, then nothing is allocated. */
static bool allocate(struct qm_mini *mini, uint64_t capacity)
{
    uint64_t buckets = 1;

    if (capacity >= INT32_MAX)
        return false;
    while (buckets * 2 <= capacity)
        buckets *= 2;
    mini->mask = buckets - 1;
    mini->nodes = calloc(capacity + 1, sizeof(mini->nodes[0]));
    mini->chain = calloc(capacity + 1, sizeof(mini->chain[0]));
    mini->buckets = calloc(buckets, sizeof(mini->buckets[0]));
    if (!mini->nodes || !mini->chain || !mini->buckets) {
        free(mini->nodes);
        free(mini->chain);
        free(mini->buckets);
        return false;
    }
    for (uint32_t i = capacity; i > 0; i--) {
        mini->chain[i] = mini->free;
        mini->free = i;
    }
    return true;
}

struct qm_mini *qm_mini_new(const struct qm_evict_ops *ops, void *opaque,
                            uint64_t capacity)
{
    struct qm_mini *mini = calloc(1, sizeof(*mini));

    if (!mini)
        return NULL;
    mini->ops = ops;
    mini->capacity = capacity;
    mini->policy = opaque ? ops->create_for(capacity, opaque) : ops->create(capacity);
    if (!mini->policy || !allocate(mini, capacity)) {
        if (mini->policy)
            ops->destroy(mini->policy);
        free(mini);
        return NULL;
    }
    return mini;
}

void qm_mini_free(struct qm_mini *mini)
{
    if (!mini)
        return;
    mini->ops->destroy(mini->policy);
    free(mini->nodes);
    free(mini->chain);
    free(mini->buckets);
    free(mini);
}

/* The link that leads to block's node, or the 0 at the end of where it would be. */
static uint32_t *find(struct qm_mini *mini, uint64_t block)
{
    uint32_t *link = &mini->buckets[qm_hash(block) & mini->mask];

    while (*link && mini->nodes[*link].block != block)
        link = &mini->chain[*link];
    return link;
}

static void evict(struct qm_mini *mini, uint64_t incoming)
{
    struct qm_evict_node *node = mini->ops->evict(mini->policy, incoming);
    uint32_t *link = find(mini, node->block), number = *link;

    *link = mini->chain[number];
    mini->chain[number] = mini->free;
    mini->free = number;
    mini->held--;
}

void qm_mini_resize(struct qm_mini *mini, uint64_t capacity)
{
    if (capacity == mini->capacity)
        return;
    mini->capacity = capacity;
    if (mini->ops->resize)
        mini->ops->resize(mini->policy, capacity);
    while (mini->held > capacity)
        evict(mini, QM_EVICT_NOBODY);
}

/* A free node for block, which is in its bucket's chain. */
static struct qm_evict_node *take_node(struct qm_mini *mini, uint64_t block)
{
    uint32_t *bucket = &mini->buckets[qm_hash(block) & mini->mask];
    uint32_t number = mini->free;

    mini->free = mini->chain[number];
    mini->chain[number] = *bucket;
    *bucket = number;
    mini->nodes[number].block = block;
    mini->held++;
    return &mini->nodes[number];
}

bool qm_mini_demand(struct qm_mini *mini, uint64_t block)
{
    uint32_t number = *find(mini, block);

    if (number) {
        mini->ops->touch(mini->policy, &mini->nodes[number]);
        return true;
    }
    if (mini->held == mini->capacity)
        evict(mini, block);
    mini->ops->insert(mini->policy, take_node(mini, block));
    return false;
}

/* All yield first, and then come back: a policy cannot have nodes of both. */
int qm_mini_reserve(struct qm_mini *mini, uint64_t capacity)
{
    struct qm_mini to = {
        .ops = mini->ops, .policy = mini->policy, .capacity = mini->capacity};
    struct qm_mini from;
    struct qm_evict_node *node;
    uint64_t *blocks;
    uint64_t n = 0;
    bool again;

    blocks = malloc((mini->held + 1) * sizeof(blocks[0]));
    if (!blocks || !allocate(&to, capacity)) {
        free(blocks);
        return ENOMEM;
    }
    if (mini->capacity > capacity)
        qm_mini_resize(mini, capacity);
    to.capacity = mini->capacity;
    while ((node = mini->ops->yield(mini->policy, &again)))
        blocks[n++] = node->block << 1 | again;
    from = *mini;
    *mini = to;
    for (uint64_t i = 0; i < n; i++)
        mini->ops->admit(mini->policy, take_node(mini, blocks[i] >> 1), blocks[i] & 1);
    free(from.nodes);
    free(from.chain);
    free(from.buckets);
    free(blocks);
    return mini->ops->reserve ? mini->ops->reserve(mini->policy, capacity) : 0;
}

void qm_mini_hand_over(struct qm_mini *from, struct qm_mini *to)
{
    struct qm_evict_node *node;
    bool again;

    while ((node = from->ops->yield(from->policy, &again)))
        if (to->held < to->capacity)
            to->ops->admit(to->policy, take_node(to, node->block), again);
}
