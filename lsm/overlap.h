/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.h - which blocks meet a hot key range: Algorithm 3 of Leaper.
 *
 * Blocks and hot ranges are sorted, as positions on one axis; both ends of an interval
 * belong to it.  Ranges are disjoint; a block may begin where the one before it ends,
 * since two blocks may have keys of one range.  The printed algorithm is corrected: its
 * binary search stops before the block that a range ends in, and its sort-merge moves
 * on by the wrong side when two ends are equal.  Both ways give the same answer. */
#ifndef QM_LSM_OVERLAP_H
#define QM_LSM_OVERLAP_H

#include <stdint.h>

struct interval {
    uint64_t first, last;
};

/* Sets hit[i] to 1 for each of the m blocks that meets one of the n ranges, and the
 * others to 0.  The hybrid takes the one that needs fewer comparisons: n log m or
 * m + n. */
void overlap_search(const struct interval *blocks, uint32_t m,
                    const struct interval *ranges, uint32_t n, uint8_t *hit);
void overlap_merge(const struct interval *blocks, uint32_t m,
                   const struct interval *ranges, uint32_t n, uint8_t *hit);
void overlap_check(const struct interval *blocks, uint32_t m,
                   const struct interval *ranges, uint32_t n, uint8_t *hit);

#endif
