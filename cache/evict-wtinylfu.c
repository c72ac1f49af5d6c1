/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-wtinylfu.c - W-TinyLFU: a small LRU window, and admission by frequency.
 *
 * Einziger, Friedman & Manes, "TinyLFU: A Highly Efficient Cache Admission Policy" (ACM
 * Transactions on Storage 13(4), 2017).  Blocks enter a small window, an LRU.  A block
 * that leaves the window is a candidate for the main part, a segmented LRU.  It enters
 * the probation segment if that is not full, or in place of that segment's oldest block
 * if it was accessed more often; otherwise the candidate is evicted.  A touch moves a
 * block from probation to the protected segment, whose oldest moves back to probation
 * if there are too many.
 *
 * A sketch (evict-sketch.h) counts accesses (touches and entries), also of blocks that
 * left.
 *
 * Parameters: the window has 3 % of the blocks, the protected segment 80 % of the rest
 * (both rounded down, but the window has at least 1).
 *
 * Differences from the paper: its window has 1 %.  On database traces with prefetching,
 * 3 % has as few misses where most blocks do not fit, and a sixth fewer where almost
 * all do.  There is no doorkeeper (a Bloom filter before the sketch that makes a large
 * sketch smaller); at 8 bytes a block the sketch is small.  A newcomer is counted when
 * it enters, after the victim was chosen, since the choice is never about itself.  Ties
 * go to the block in the main part.  Dropped blocks keep their count.
 *
 * The window loses blocks when the policy gets fewer of them (resize()), and has none
 * after a change from another policy (admit()).  Unless it keeps its share, it then
 * stays as small until the policy gets more blocks: each newcomer takes the place of
 * the one before.  A window that yields also loses a block each time that an eighth of
 * the blocks (YIELD_PART) have entered in place of others.
 *
 * Every call is O(1) on average.
 */
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/evict-wtinylfu.h"

/* What the policy keeps in a node. */
#define SEGMENT(node) ((node)->aux[0])

#define WINDOW_PART 3 /* percent */
#define YIELD_PART  8 /* of the blocks */

enum segment { WINDOW, PROBATION, PROTECTED, SEGMENTS };

struct wtinylfu {
    struct cds_list_head order[SEGMENTS]; /* the latest first */
    uint64_t count[SEGMENTS];
    uint64_t capacity, window_share, protected_share;
    unsigned window; /* percent of the blocks */
    bool keeps, yields;
    uint64_t entered;         /* in place of others, since the window yielded a block */
    struct qm_sketch *sketch; /* own, or another policy's, which counts */
    struct qm_sketch own;
};

static void wtinylfu_resize(void *policy, uint64_t capacity)
{
    struct wtinylfu *w = policy;

    w->capacity = capacity;
    w->window_share = capacity * w->window / 100;
    if (w->window_share == 0 && capacity > 0)
        w->window_share = 1;
    w->protected_share = (capacity - w->window_share) * 8 / 10;
    if (w->sketch == &w->own)
        qm_sketch_resize(&w->own, capacity);
}

static void *wtinylfu_create_for(uint64_t capacity, void *opaque)
{
    const struct qm_wtinylfu_config *config = opaque;
    struct wtinylfu *w;

    if (capacity > UINT64_C(1) << 40 || !(w = calloc(1, sizeof(*w))))
        return NULL;
    for (int i = 0; i < SEGMENTS; i++)
        CDS_INIT_LIST_HEAD(&w->order[i]);
    w->window = config->window;
    w->keeps = config->keeps;
    w->yields = config->yields;
    w->sketch = config->sketch;
    if (!w->sketch && qm_sketch_init(w->sketch = &w->own, capacity) != 0) {
        free(w);
        return NULL;
    }
    wtinylfu_resize(w, capacity);
    return w;
}

static void *wtinylfu_create(uint64_t capacity)
{
    return wtinylfu_create_for(capacity,
                               &(struct qm_wtinylfu_config){.window = WINDOW_PART});
}

static int wtinylfu_reserve(void *policy, uint64_t capacity)
{
    struct wtinylfu *w = policy;

    return w->sketch == &w->own ? qm_sketch_reserve(&w->own, capacity) : 0;
}

static void wtinylfu_destroy(void *policy)
{
    struct wtinylfu *w = policy;

    qm_sketch_destroy(&w->own);
    free(w);
}

/* Unless another counts. */
static void note(struct wtinylfu *w, uint64_t block)
{
    if (w->sketch == &w->own)
        qm_sketch_count(&w->own, block);
}

static void enter(struct wtinylfu *w, struct qm_evict_node *node, enum segment segment)
{
    SEGMENT(node) = segment;
    cds_list_add(&node->list, &w->order[segment]);
    w->count[segment]++;
}

static void wtinylfu_remove(void *policy, struct qm_evict_node *node)
{
    struct wtinylfu *w = policy;

    cds_list_del(&node->list);
    w->count[SEGMENT(node)]--;
}

static void move(struct wtinylfu *w, struct qm_evict_node *node, enum segment segment)
{
    wtinylfu_remove(w, node);
    enter(w, node, segment);
}

static struct qm_evict_node *oldest(struct wtinylfu *w, enum segment segment)
{
    return w->count[segment] == 0
               ? NULL
               : cds_list_entry(w->order[segment].prev, struct qm_evict_node, list);
}

/* In a cache that is not full, the main part has room for what the window has not. */
static void wtinylfu_insert(void *policy, struct qm_evict_node *node)
{
    struct wtinylfu *w = policy;

    note(w, node->block);
    enter(w, node, WINDOW);
    if (w->count[WINDOW] > w->window_share)
        move(w, oldest(w, WINDOW), PROBATION);
}

static void wtinylfu_touch(void *policy, struct qm_evict_node *node)
{
    struct wtinylfu *w = policy;

    note(w, node->block);
    if (SEGMENT(node) == WINDOW) {
        move(w, node, WINDOW);
    } else {
        move(w, node, PROTECTED);
        if (w->count[PROTECTED] > w->protected_share)
            move(w, oldest(w, PROTECTED), PROBATION);
    }
}

/* Removes the candidate, or what it takes the place of.  NULL: there is none, and the
 * main part has no room for another. */
static struct qm_evict_node *leave(struct wtinylfu *w, struct qm_evict_node *candidate)
{
    struct qm_evict_node *victim = oldest(w, PROBATION);

    if (!victim)
        victim = oldest(w, PROTECTED);
    if (!candidate || (victim && qm_sketch_estimate(w->sketch, candidate->block) >
                                     qm_sketch_estimate(w->sketch, victim->block))) {
        if (!victim)
            return NULL;
        if (candidate)
            move(w, candidate, PROBATION);
    } else {
        victim = candidate;
    }
    wtinylfu_remove(w, victim);
    return victim;
}

/* A block is about to enter in place of another.  The main part gets the window's
 * oldest when it is time for that. */
static void yield_window(struct wtinylfu *w)
{
    if (w->count[WINDOW] <= 1 || ++w->entered <= w->capacity / YIELD_PART)
        return;
    w->entered = 0;
    move(w, oldest(w, WINDOW), PROBATION);
}

static struct qm_evict_node *wtinylfu_evict(void *policy, uint64_t incoming)
{
    struct wtinylfu *w = policy;
    bool grows = w->keeps && w->count[WINDOW] < w->window_share &&
                 w->count[PROBATION] + w->count[PROTECTED] > 0;

    if (w->yields && incoming != QM_EVICT_NOBODY)
        yield_window(w);
    return leave(w, grows ? NULL : oldest(w, WINDOW));
}

static struct qm_evict_node *wtinylfu_yield(void *policy, bool *again)
{
    struct wtinylfu *w = policy;
    struct qm_evict_node *node = leave(w, oldest(w, WINDOW));

    *again = node && SEGMENT(node) == PROTECTED;
    return node;
}

static void wtinylfu_admit(void *policy, struct qm_evict_node *node, bool again)
{
    struct wtinylfu *w = policy;

    enter(w, node, again ? PROTECTED : PROBATION);
    if (w->count[PROTECTED] > w->protected_share)
        move(w, oldest(w, PROTECTED), PROBATION);
}

const struct qm_evict_ops qm_evict_wtinylfu = {
    .name = "wtinylfu",
    .create = wtinylfu_create,
    .create_for = wtinylfu_create_for,
    .resize = wtinylfu_resize,
    .reserve = wtinylfu_reserve,
    .destroy = wtinylfu_destroy,
    .insert = wtinylfu_insert,
    .touch = wtinylfu_touch,
    .remove = wtinylfu_remove,
    .evict = wtinylfu_evict,
    .yield = wtinylfu_yield,
    .admit = wtinylfu_admit,
    .bytes_per_block = QM_SKETCH_BYTES,
};
