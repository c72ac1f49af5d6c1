/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-mru.c - evicts the most recently used block, for loops longer than the cache.
 *
 * Chou & DeWitt, "An Evaluation of Buffer Management Strategies for Relational Database
 * Systems" (VLDB'85): a query that reads the same pages again and again, and whose
 * cache is smaller, has most hits if it evicts the page that it read last.  No
 * parameters.
 *
 * A block below the top of the list leaves only after it was touched again, or dropped,
 * so this is for comparisons and for loops.  When a full cache has several fills at
 * once, each detaches the one before (cache.h): they are served but not kept.
 */
#include <stdlib.h>

#include "cache/evict-all.h"

struct mru {
    struct cds_list_head order; /* the latest first */
};

static void *mru_create(uint64_t capacity)
{
    struct mru *mru = malloc(sizeof(*mru));

    if (mru)
        CDS_INIT_LIST_HEAD(&mru->order);
    return mru;
}

static void mru_destroy(void *policy)
{
    free(policy);
}

static void mru_insert(void *policy, struct qm_evict_node *node)
{
    struct mru *mru = policy;

    cds_list_add(&node->list, &mru->order);
}

static void mru_touch(void *policy, struct qm_evict_node *node)
{
    struct mru *mru = policy;

    cds_list_move(&node->list, &mru->order);
}

static void mru_remove(void *policy, struct qm_evict_node *node)
{
    cds_list_del(&node->list);
}

static struct qm_evict_node *mru_evict(void *policy, uint64_t incoming)
{
    struct mru *mru = policy;
    struct qm_evict_node *node;

    if (cds_list_empty(&mru->order))
        return NULL;
    node = cds_list_entry(mru->order.next, struct qm_evict_node, list);
    cds_list_del(&node->list);
    return node;
}

const struct qm_evict_ops qm_evict_mru = {
    .name = "mru",
    .create = mru_create,
    .destroy = mru_destroy,
    .insert = mru_insert,
    .touch = mru_touch,
    .remove = mru_remove,
    .evict = mru_evict,
    .bytes_per_block = 0,
};
