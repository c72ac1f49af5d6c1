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
 * A count-min sketch counts accesses (touches and entries), also of blocks that left: 4
 * rows of 4-bit counters, of which an access increments the least ones (the paper's
 * minimal increment).  After W accesses, all counters and the number of accesses are
 * halved (the paper's reset), so that former hot blocks are forgotten.
 *
 * Parameters: the window has 3 % of the blocks, the protected segment 80 % of the rest
 * (both rounded down, but the window has at least 1); W is 10 times the capacity; a row
 * has 2 to 4 counters a block, a power of two, but at least 16.
 *
 * Differences from the paper: its window has 1 %.  On database traces with prefetching,
 * 3 % has as few misses where most blocks do not fit, and a sixth fewer where almost
 * all do.  There is no doorkeeper (a Bloom filter before the sketch that makes a large
 * sketch smaller); at 8 bytes a block the sketch is small.  A newcomer is counted when
 * it enters, after the victim was chosen, since the choice is never about itself.  Ties
 * go to the block in the main part.  Dropped blocks keep their count.
 *
 * Every call is O(1) on average: the halving takes a pass over the sketch every 5
 * accesses a block.
 */
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/hash.h"

#define ROWS      4
#define MAX_COUNT 15 /* of a counter */
#define PER_WORD  16 /* counters */
#define HALVES    UINT64_C(0x7777777777777777)

/* What the policy keeps in a node. */
#define SEGMENT(node) ((node)->aux[0])

enum segment { WINDOW, PROBATION, PROTECTED, SEGMENTS };

struct sketch {
    unsigned bits;  /* of the number of a counter in its row */
    uint64_t words; /* of all rows, which follow each other */
    uint64_t accesses, sample;
    uint64_t *counters;
};

struct wtinylfu {
    struct cds_list_head order[SEGMENTS]; /* the latest first */
    uint64_t count[SEGMENTS];
    uint64_t window_share, protected_share;
    struct sketch sketch;
};

/* Odd numbers, one a row: the high bits of a product are a hash of the other factor. */
static const uint64_t row_factor[ROWS] = {
    UINT64_C(0xc3a5c85c97cb3127), UINT64_C(0xb492b66fbe98f273),
    UINT64_C(0x9ae16a3b2f90404f), UINT64_C(0xc949c7defebe6f8d)};

static int sketch_init(struct sketch *sketch, uint64_t capacity)
{
    unsigned bits = 4;

    while ((UINT64_C(1) << bits) / 2 < capacity)
        bits++;
    sketch->bits = bits;
    sketch->words = (ROWS << bits) / PER_WORD;
    sketch->accesses = 0;
    sketch->counters = calloc(sketch->words, sizeof(sketch->counters[0]));
    return sketch->counters ? 0 : -1;
}

/* The number of the counter of a block's hash in row. */
static uint64_t position(const struct sketch *sketch, uint64_t hash, unsigned row)
{
    return ((uint64_t)row << sketch->bits) +
           (hash * row_factor[row] >> (64 - sketch->bits));
}

static unsigned counter(const struct sketch *sketch, uint64_t at)
{
    return sketch->counters[at / PER_WORD] >> at % PER_WORD * 4 & MAX_COUNT;
}

static unsigned sketch_estimate(const struct sketch *sketch, uint64_t block)
{
    uint64_t hash = qm_hash(block);
    unsigned least = MAX_COUNT;

    for (unsigned row = 0; row < ROWS; row++) {
        unsigned count = counter(sketch, position(sketch, hash, row));

        if (count < least)
            least = count;
    }
    return least;
}

static void sketch_halve(struct sketch *sketch)
{
    for (uint64_t i = 0; i < sketch->words; i++)
        sketch->counters[i] = sketch->counters[i] >> 1 & HALVES;
    sketch->accesses /= 2;
}

static void sketch_count(struct sketch *sketch, uint64_t block)
{
    uint64_t hash = qm_hash(block), at[ROWS];
    unsigned count[ROWS], least = MAX_COUNT;

    for (unsigned row = 0; row < ROWS; row++) {
        at[row] = position(sketch, hash, row);
        count[row] = counter(sketch, at[row]);
        if (count[row] < least)
            least = count[row];
    }
    for (unsigned row = 0; row < ROWS && least < MAX_COUNT; row++)
        if (count[row] == least)
            sketch->counters[at[row] / PER_WORD] += UINT64_C(1)
                                                    << at[row] % PER_WORD * 4;
    if (++sketch->accesses >= sketch->sample)
        sketch_halve(sketch);
}

static void wtinylfu_resize(void *policy, uint64_t capacity)
{
    struct wtinylfu *w = policy;

    w->window_share = capacity * 3 / 100;
    if (w->window_share == 0 && capacity > 0)
        w->window_share = 1;
    w->protected_share = (capacity - w->window_share) * 8 / 10;
    w->sketch.sample = 10 * capacity;
}

static void *wtinylfu_create(uint64_t capacity)
{
    struct wtinylfu *w;

    if (capacity > UINT64_C(1) << 40 || !(w = calloc(1, sizeof(*w))))
        return NULL;
    for (int i = 0; i < SEGMENTS; i++)
        CDS_INIT_LIST_HEAD(&w->order[i]);
    wtinylfu_resize(w, capacity);
    if (sketch_init(&w->sketch, capacity) != 0) {
        free(w);
        return NULL;
    }
    return w;
}

static void wtinylfu_destroy(void *policy)
{
    struct wtinylfu *w = policy;

    free(w->sketch.counters);
    free(w);
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

    sketch_count(&w->sketch, node->block);
    enter(w, node, WINDOW);
    if (w->count[WINDOW] > w->window_share)
        move(w, oldest(w, WINDOW), PROBATION);
}

static void wtinylfu_touch(void *policy, struct qm_evict_node *node)
{
    struct wtinylfu *w = policy;

    sketch_count(&w->sketch, node->block);
    if (SEGMENT(node) == WINDOW) {
        move(w, node, WINDOW);
    } else {
        move(w, node, PROTECTED);
        if (w->count[PROTECTED] > w->protected_share)
            move(w, oldest(w, PROTECTED), PROBATION);
    }
}

static struct qm_evict_node *wtinylfu_evict(void *policy, uint64_t incoming)
{
    struct wtinylfu *w = policy;
    struct qm_evict_node *candidate = oldest(w, WINDOW);
    struct qm_evict_node *victim = oldest(w, PROBATION);

    if (!victim)
        victim = oldest(w, PROTECTED);
    if (!candidate || (victim && sketch_estimate(&w->sketch, candidate->block) >
                                     sketch_estimate(&w->sketch, victim->block))) {
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

const struct qm_evict_ops qm_evict_wtinylfu = {
    .name = "wtinylfu",
    .create = wtinylfu_create,
    .resize = wtinylfu_resize,
    .destroy = wtinylfu_destroy,
    .insert = wtinylfu_insert,
    .touch = wtinylfu_touch,
    .remove = wtinylfu_remove,
    .evict = wtinylfu_evict,
    .bytes_per_block = 8,
};
