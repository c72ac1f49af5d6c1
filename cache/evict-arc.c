/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-arc.c - ARC, which balances recency and frequency by itself.
 *
 * Megiddo & Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST'03),
 * figure 4, whose names the code uses.  T1 has blocks that were accessed once recently,
 * T2 those accessed again, both by recency.  B1 and B2 remember what left T1 and T2.
 * The target size p of T1 grows when a block of B1 comes back, and shrinks when one of
 * B2 does.  No parameters.
 *
 * With c blocks of capacity, |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c.
 * Ghosts are added by evictions only, from a full cache, so |B1| + |B2| <= c.
 *
 * The paper has no cache that changes its size, none that is full and later is not, and
 * no dropped blocks.  Here, a dropped block leaves no ghost.  While the cache is not
 * full nothing is evicted, but a ghost that comes back still adapts p, and B1 keeps its
 * bound.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/evict-ghosts.h"

enum { B1 = 0, B2 = 1 };

/* What the policy keeps in a node. */
#define IN_T2(node) ((node)->aux[0])

struct arc {
    uint64_t capacity; /* c */
    double p;
    struct cds_list_head t1, t2; /* the latest first */
    uint64_t t1_count, t2_count;
    struct qm_ghosts *ghosts;
    bool shares; /* the ghosts are another's */
    /* Since evict(): the block that is to come, and where it was remembered. */
    bool expecting;
    uint64_t expected;
    int remembered;
};

/* opaque: ghosts for at least as many, which the policy shares with others; NULL: its
 * own. */
static void *arc_create_for(uint64_t capacity, void *opaque)
{
    struct arc *arc = calloc(1, sizeof(*arc));

    if (!arc)
        return NULL;
    arc->shares = opaque;
    arc->capacity = capacity;
    CDS_INIT_LIST_HEAD(&arc->t1);
    CDS_INIT_LIST_HEAD(&arc->t2);
    arc->ghosts = opaque ? opaque : qm_ghosts_new(capacity);
    if (!arc->ghosts) {
        free(arc);
        return NULL;
    }
    return arc;
}

static void *arc_create(uint64_t capacity)
{
    return arc_create_for(capacity, NULL);
}

static void arc_destroy(void *policy)
{
    struct arc *arc = policy;

    if (!arc->shares)
        qm_ghosts_free(arc->ghosts);
    free(arc);
}

static void arc_resize(void *policy, uint64_t capacity)
{
    struct arc *arc = policy;

    arc->capacity = capacity;
    if (arc->p > capacity)
        arc->p = capacity;
}

static int arc_reserve(void *policy, uint64_t capacity)
{
    struct arc *arc = policy;

    return arc->shares ? 0 : qm_ghosts_reserve(arc->ghosts, capacity);
}

/* What the arrival of block does to p and to the ghosts, whether or not another goes:
 * the first lines of cases II to IV.  Returns where it was remembered. */
static int arrive(struct arc *arc, uint64_t block)
{
    double b1 = qm_ghosts_count(arc->ghosts, B1);
    double b2 = qm_ghosts_count(arc->ghosts, B2);
    double c = arc->capacity;
    int remembered = qm_ghosts_take(arc->ghosts, block);

    if (remembered == B1) {
        arc->p += b1 >= b2 ? 1 : b2 / b1;
        if (arc->p > c)
            arc->p = c;
    } else if (remembered == B2) {
        arc->p -= b2 >= b1 ? 1 : b1 / b2;
        if (arc->p < 0)
            arc->p = 0;
    } else if (b1 > 0 && b1 + arc->t1_count >= c) {
        qm_ghosts_drop(arc->ghosts, B1);
    }
    return remembered;
}

static struct qm_evict_node *oldest(struct cds_list_head *list)
{
    return cds_list_entry(list->prev, struct qm_evict_node, list);
}

static void arc_remove(void *policy, struct qm_evict_node *node)
{
    struct arc *arc = policy;

    cds_list_del(&node->list);
    if (IN_T2(node))
        arc->t2_count--;
    else
        arc->t1_count--;
}

static void enter(struct arc *arc, struct qm_evict_node *node, bool again)
{
    IN_T2(node) = again;
    cds_list_add(&node->list, again ? &arc->t2 : &arc->t1);
    if (again)
        arc->t2_count++;
    else
        arc->t1_count++;
}

static void arc_insert(void *policy, struct qm_evict_node *node)
{
    struct arc *arc = policy;
    int remembered;

    if (arc->expecting && arc->expected == node->block)
        remembered = arc->remembered;
    else
        remembered = arrive(arc, node->block);
    arc->expecting = false;
    enter(arc, node, remembered != QM_GHOST_NONE);
}

static void arc_touch(void *policy, struct qm_evict_node *node)
{
    struct arc *arc = policy;

    arc_remove(arc, node);
    enter(arc, node, true);
}

static uint64_t ghosts(const struct arc *arc)
{
    return qm_ghosts_count(arc->ghosts, B1) + qm_ghosts_count(arc->ghosts, B2);
}

/* The subroutine REPLACE. */
static struct qm_evict_node *replace(struct arc *arc, int remembered)
{
    double t1 = arc->t1_count;
    bool from_t1 = t1 > arc->p || (remembered == B2 && t1 == arc->p);
    struct qm_evict_node *node;

    if (arc->t1_count == 0)
        from_t1 = false;
    else if (arc->t2_count == 0)
        from_t1 = true;
    node = oldest(from_t1 ? &arc->t1 : &arc->t2);
    arc_remove(arc, node);
    qm_ghosts_add(arc->ghosts, from_t1 ? B1 : B2, node->block);
    return node;
}

static struct qm_evict_node *arc_evict(void *policy, uint64_t incoming)
{
    struct arc *arc = policy;
    struct qm_evict_node *node;

    if (arc->t1_count + arc->t2_count == 0)
        return NULL;
    arc->expecting = true;
    arc->expected = incoming;
    arc->remembered = arrive(arc, incoming);
    if (arc->remembered == QM_GHOST_NONE && arc->t1_count >= arc->capacity) {
        node = oldest(&arc->t1); /* case IV (A): B1 is empty, and stays so */
        arc_remove(arc, node);
        return node;
    }
    /* Case IV (B); of a full cache, 2c blocks are known when c are remembered. */
    while (ghosts(arc) >= arc->capacity)
        qm_ghosts_drop(arc->ghosts, qm_ghosts_count(arc->ghosts, B2) > 0 ? B2 : B1);
    return replace(arc, arc->remembered);
}

static struct qm_evict_node *arc_yield(void *policy, bool *again)
{
    struct arc *arc = policy;
    struct qm_evict_node *node;

    if (arc->t1_count + arc->t2_count == 0)
        return NULL;
    node = oldest(arc->t1_count > 0 ? &arc->t1 : &arc->t2);
    *again = IN_T2(node);
    arc_remove(arc, node);
    return node;
}

static void arc_admit(void *policy, struct qm_evict_node *node, bool again)
{
    enter(policy, node, again);
}

const struct qm_evict_ops qm_evict_arc = {
    .name = "arc",
    .create = arc_create,
    .create_for = arc_create_for,
    .resize = arc_resize,
    .reserve = arc_reserve,
    .destroy = arc_destroy,
    .insert = arc_insert,
    .touch = arc_touch,
    .remove = arc_remove,
    .evict = arc_evict,
    .yield = arc_yield,
    .admit = arc_admit,
    .bytes_per_block = QM_GHOST_BYTES,
};
