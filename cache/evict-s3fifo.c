/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-s3fifo.c - S3-FIFO: three queues and no order to keep on a hit.
 *
 * Yang, Zhang, Qiu, Yue & Rashmi, "FIFO queues are all you need for cache eviction"
 * (SOSP'23), algorithm 1.  New blocks enter the small queue S.  At its end, one that
 * was touched at least twice moves on to the main queue M, its count cleared; another
 * leaves, and the ghost queue G remembers it: if it comes back while it is there, it
 * enters M.  At the end of M a block that was touched since goes round again, for one
 * of at most 3 touches that are counted.
 *
 * Parameters, all the paper's: S gives blocks up while it has 10 % of the blocks
 * (rounded down, at least 1), else M does; G remembers as many as M has (90 %); counts
 * of 2 bits.  While the cache is not full, S may have all of it.
 *
 * Where this differs: one eviction gives up one block, where in the algorithm one that
 * overfills M may give up a second.  G forgets a block that comes back, and a dropped
 * block leaves no ghost.
 *
 * A hit is O(1) and moves nothing.  An eviction takes a step for each block that it
 * moves, and each of these steps uses up touches: O(1) on average.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/evict-ghosts.h"

#define MAX_COUNT 3
#define G         0 /* its number among the queues of ghosts */

/* What the policy keeps in a node. */
#define COUNT(node) ((node)->aux[0])
#define IN_M(node)  ((node)->aux[1])

struct s3fifo {
    struct cds_list_head s, m; /* the latest first */
    uint64_t s_count, m_count;
    uint64_t s_share, m_share;
    struct qm_ghosts *ghosts;
    bool shares; /* the ghosts are another's */
};

static uint64_t s_share(uint64_t capacity)
{
    return capacity >= 10 ? capacity / 10 : capacity > 0;
}

static void s3fifo_resize(void *policy, uint64_t capacity)
{
    struct s3fifo *f = policy;

    f->s_share = s_share(capacity);
    f->m_share = capacity - f->s_share;
}

static int s3fifo_reserve(void *policy, uint64_t capacity)
{
    struct s3fifo *f = policy;

    return f->shares ? 0 : qm_ghosts_reserve(f->ghosts, capacity - s_share(capacity));
}

/* opaque: ghosts for at least as many, which the policy shares with others; their
 * second queue must be empty while it is in use.  NULL: its own. */
static void *s3fifo_create_for(uint64_t capacity, void *opaque)
{
    struct s3fifo *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->shares = opaque;
    CDS_INIT_LIST_HEAD(&f->s);
    CDS_INIT_LIST_HEAD(&f->m);
    s3fifo_resize(f, capacity);
    f->ghosts = opaque ? opaque : qm_ghosts_new(f->m_share);
    if (!f->ghosts) {
        free(f);
        return NULL;
    }
    return f;
}

static void *s3fifo_create(uint64_t capacity)
{
    return s3fifo_create_for(capacity, NULL);
}

static void s3fifo_destroy(void *policy)
{
    struct s3fifo *f = policy;

    if (!f->shares)
        qm_ghosts_free(f->ghosts);
    free(f);
}

static void enter_m(struct s3fifo *f, struct qm_evict_node *node)
{
    IN_M(node) = true;
    cds_list_add(&node->list, &f->m);
    f->m_count++;
}

static void enter_s(struct s3fifo *f, struct qm_evict_node *node)
{
    IN_M(node) = false;
    cds_list_add(&node->list, &f->s);
    f->s_count++;
}

static void s3fifo_insert(void *policy, struct qm_evict_node *node)
{
    struct s3fifo *f = policy;

    COUNT(node) = 0;
    if (qm_ghosts_take(f->ghosts, node->block) != QM_GHOST_NONE) {
        enter_m(f, node);
    } else {
        enter_s(f, node);
    }
}

static void s3fifo_touch(void *policy, struct qm_evict_node *node)
{
    if (COUNT(node) < MAX_COUNT)
        COUNT(node)++;
}

static void s3fifo_remove(void *policy, struct qm_evict_node *node)
{
    struct s3fifo *f = policy;

    cds_list_del(&node->list);
    if (IN_M(node))
        f->m_count--;
    else
        f->s_count--;
}

static struct qm_evict_node *oldest(struct cds_list_head *queue)
{
    return cds_list_entry(queue->prev, struct qm_evict_node, list);
}

/* M must not be empty. */
static struct qm_evict_node *evict_m(struct s3fifo *f)
{
    struct qm_evict_node *node;

    while (COUNT(node = oldest(&f->m)) > 0) {
        COUNT(node)--;
        cds_list_move(&node->list, &f->m);
    }
    s3fifo_remove(f, node);
    return node;
}

static void remember(struct s3fifo *f, uint64_t block)
{
    if (f->m_share == 0)
        return;
    while (qm_ghosts_count(f->ghosts, G) >= f->m_share)
        qm_ghosts_drop(f->ghosts, G);
    qm_ghosts_add(f->ghosts, G, block);
}

/* NULL if all that S had moved to M, and fitted. */
static struct qm_evict_node *evict_s(struct s3fifo *f)
{
    while (f->s_count > 0) {
        struct qm_evict_node *node = oldest(&f->s);

        s3fifo_remove(f, node);
        if (COUNT(node) <= 1) {
            remember(f, node->block);
            return node;
        }
        COUNT(node) = 0;
        enter_m(f, node);
        if (f->m_count > f->m_share)
            return evict_m(f);
    }
    return NULL;
}

static struct qm_evict_node *s3fifo_evict(void *policy, uint64_t incoming)
{
    struct s3fifo *f = policy;
    struct qm_evict_node *node = NULL;

    while (!node && f->s_count + f->m_count > 0) {
        if (f->m_count == 0 || f->s_count >= f->s_share)
            node = evict_s(f);
        else
            node = evict_m(f);
    }
    return node;
}

static struct qm_evict_node *s3fifo_yield(void *policy, bool *again)
{
    struct s3fifo *f = policy;
    struct qm_evict_node *node;

    if (f->s_count + f->m_count == 0)
        return NULL;
    node = oldest(f->s_count > 0 ? &f->s : &f->m);
    *again = IN_M(node);
    s3fifo_remove(f, node);
    return node;
}

static void s3fifo_admit(void *policy, struct qm_evict_node *node, bool again)
{
    struct s3fifo *f = policy;

    COUNT(node) = 0;
    if (again)
        enter_m(f, node);
    else
        enter_s(f, node);
}

const struct qm_evict_ops qm_evict_s3fifo = {
    .name = "s3fifo",
    .create = s3fifo_create,
    .create_for = s3fifo_create_for,
    .resize = s3fifo_resize,
    .reserve = s3fifo_reserve,
    .destroy = s3fifo_destroy,
    .insert = s3fifo_insert,
    .touch = s3fifo_touch,
    .remove = s3fifo_remove,
    .evict = s3fifo_evict,
    .yield = s3fifo_yield,
    .admit = s3fifo_admit,
    .bytes_per_block = QM_GHOST_BYTES,
};
