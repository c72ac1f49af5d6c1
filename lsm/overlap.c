/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.c - see overlap.h. */
#include "lsm/overlap.h"

#include <string.h>

void overlap_search(const struct interval *blocks, uint32_t m,
                    const struct interval *ranges, uint32_t n, uint8_t *hit)
{
    uint32_t start = 0;

    memset(hit, 0, m);
    for (uint32_t j = 0; j < n; j++) {
        uint32_t low = start, high = m; /* the first block that ends at or behind it */
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (blocks[middle].last < ranges[j].first)
                low = middle + 1;
            else
                high = middle;
        }
        for (start = low; low < m && blocks[low].first <= ranges[j].last; low++)
            hit[low] = 1;
    }
}

void overlap_merge(const struct interval *blocks, uint32_t m,
                   const struct interval *ranges, uint32_t n, uint8_t *hit)
{
    uint32_t i = 0, j = 0;

    memset(hit, 0, m);
    while (i < m && j < n) {
        if (blocks[i].first <= ranges[j].last && ranges[j].first <= blocks[i].last)
            hit[i] = 1;
        if (blocks[i].last <= ranges[j].last)
            i++;
        else
            j++;
    }
}

void overlap_check(const struct interval *blocks, uint32_t m,
                   const struct interval *ranges, uint32_t n, uint8_t *hit)
{
    uint32_t log = 1;

    while (log < 31 && m >> log)
        log++;
    if ((uint64_t)n * log < (uint64_t)m + n)
        overlap_search(blocks, m, ranges, n, hit);
    else
        overlap_merge(blocks, m, ranges, n, hit);
}
