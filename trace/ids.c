/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.c - a set of numbers as merged intervals, in glibc's red-black tree.
 *
 * Intervals neither overlap nor touch, so any one may be stretched up to its neighbours
 * without changing the tree's order.  tfind() tells nothing of neighbours; but the way
 * down that it takes compares the key with both, so the comparison remembers them.
 */
#include "trace/ids.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

struct interval {
    uint64_t first, last;
};

struct probe {
    struct interval key; /* must come first: compare() gets a pointer to it */
    struct interval *below, *above;
};

static int compare(const void *key, const void *node)
{
    struct probe *probe = (struct probe *)key;
    struct interval *interval = (struct interval *)node;

    if (probe->key.first < interval->first) {
        probe->above = interval;
        return -1;
    }
    if (probe->key.first > interval->last) {
        probe->below = interval;
        return 1;
    }
    return 0;
}

int qm_ids_add(struct qm_ids *ids, uint64_t id)
{
    struct probe probe = {.key = {id, id}};
    struct interval *below, *above, *fresh;

    if (tfind(&probe, &ids->tree, compare))
        return EEXIST;
    below = probe.below && probe.below->last == id - 1 ? probe.below : NULL;
    above = probe.above && probe.above->first == id + 1 ? probe.above : NULL;
    if (below && above) {
        struct probe gone = {.key = *above};

        tdelete(&gone, &ids->tree, compare);
        below->last = above->last;
        free(above);
        ids->intervals--;
        return 0;
    }
    if (below) {
        below->last = id;
        return 0;
    }
    if (above) {
        above->first = id;
        return 0;
    }
    fresh = malloc(sizeof *fresh);
    if (!fresh)
        return ENOMEM;
    *fresh = probe.key;
    /* tsearch() stores the key it is given, so what it compares must be a probe... */
    struct interval **node = tsearch(&probe, &ids->tree, compare);
    if (!node) {
        free(fresh);
        return ENOMEM;
    }
    /* ... and the node gets the interval afterwards. */
    *node = fresh;
    ids->intervals++;
    return 0;
}

void qm_ids_clear(struct qm_ids *ids)
{
    tdestroy(ids->tree, free);
    ids->tree = NULL;
    ids->intervals = 0;
}
