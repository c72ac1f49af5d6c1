/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-lru.c - least recently used: one list, the latest first. */
#include <stdlib.h>

#include "cache/evict-all.h"

struct lru {
    struct cds_list_head order;
};

static void *lru_create(uint64_t capacity)
{
    struct lru *lru = malloc(sizeof(*lru));

    if (lru)
        CDS_INIT_LIST_HEAD(&lru->order);
    return lru;
}

static void lru_destroy(void *policy)
{
    free(policy);
}

static void lru_insert(void *policy, struct qm_evict_node *node)
{
    struct lru *lru = policy;

    cds_list_add(&node->list, &lru->order);
}

static void lru_touch(void *policy, struct qm_evict_node *node)
{
    struct lru *lru = policy;

    cds_list_move(&node->list, &lru->order);
}

static void lru_remove(void *policy, struct qm_evict_node *node)
{
    cds_list_del(&node->list);
}

static struct qm_evict_node *lru_evict(void *policy, uint64_t incoming)
{
    struct lru *lru = policy;
    struct qm_evict_node *node;

    if (cds_list_empty(&lru->order))
        return NULL;
    node = cds_list_entry(lru->order.prev, struct qm_evict_node, list);
    cds_list_del(&node->list);
    return node;
}

struct qm_evict_node *qm_evict_lru_oldest(void *policy)
{
    struct lru *lru = policy;

    return cds_list_empty(&lru->order)
               ? NULL
               : cds_list_entry(lru->order.prev, struct qm_evict_node, list);
}

static struct qm_evict_node *lru_yield(void *policy, bool *again)
{
    *again = false;
    return lru_evict(policy, QM_EVICT_NOBODY);
}

static void lru_admit(void *policy, struct qm_evict_node *node, bool again)
{
    lru_insert(policy, node);
}

const struct qm_evict_ops qm_evict_lru = {
    .name = "lru",
    .create = lru_create,
    .destroy = lru_destroy,
    .insert = lru_insert,
    .touch = lru_touch,
    .remove = lru_remove,
    .evict = lru_evict,
    .yield = lru_yield,
    .admit = lru_admit,
    .bytes_per_block = 0,
};
