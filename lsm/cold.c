/* SPDX-License-Identifier: BSD-3-Clause */
/* cold.c - see cold.h. */
#include "lsm/cold.h"
#include "lsm/overlap.h"

#include <stdlib.h>
#include <string.h>

/* Hot ranges from `first` to `last`, neighbours as one; how many. */
static uint32_t hot_ranges(struct interval *out, struct table *t, uint32_t first,
                           uint32_t last, const struct trees *trees, uint32_t steps,
                           const struct moment *moment)
{
    uint32_t n = 0;

    for (uint32_t i = first; i <= last; i++) {
        if (!(features_hot(trees, 0, steps, t, i, moment) > .5))
            continue;
        if (n > 0 && out[n - 1].last + 1 == i)
            out[n - 1].last = i;
        else
            out[n++] = (struct interval){i, i};
    }
    return n;
}

void cold_check(const struct keys *firsts, uint32_t n, struct table *t,
                const struct trees *trees, uint32_t steps, const struct moment *moment,
                uint8_t *hot)
{
    struct interval *block = calloc(n + 1, sizeof *block),
                    *range = calloc(COLD_RANGES, sizeof *range);
    uint32_t first = 0, last = 0, at = 0, ranges;

    memset(hot, 1, n);
    if (!block || !range || n == 0)
        goto out;
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *key = keys_get(firsts, i, &len);
        at = i == 0 ? fences_find(t->fences, key, len)
                    : fences_find_from(t->fences, at, key, len);
        block[i].first = at;
        if (i > 0)
            block[i - 1].last = at;
    }
    /* Where the file ends is not known: in the range of its last block, or the next. */
    block[n - 1].last = at + 1 < t->n ? at + 1 : at;
    first = (uint32_t)block[0].first;
    last = (uint32_t)block[n - 1].last;
    if (last - first >= COLD_RANGES) {
        last = first + COLD_RANGES - 1;
        while (n > 0 && block[n - 1].last > last)
            n--;
    }
    ranges = hot_ranges(range, t, first, last, trees, steps, moment);
    overlap_check(block, n, range, ranges, hot);
out:
    free(block);
    free(range);
}
