/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.h - the rules in a sequence (ATC'08 §3.3), exactly.
 *
 * For a sequence s and lookahead G: every i < j < k with j - i < G and k - i < G,
 * s[i] != s[j] and s[k] not in {s[i], s[j]}, adds 1 to the support of s[i] & s[j] ->
 * s[k].
 */
#ifndef QM_MINER_H
#define QM_MINER_H

#include <stddef.h>
#include <stdint.h>

/* Prefix a & b was followed by these n blocks, in this order; each of them adds 1, and
 * one may be among them several times.  Returns 0, or what ends the mining. */
typedef int qm_mined(void *opaque, uint64_t a, uint64_t b, const uint64_t *suffixes,
                     unsigned n);

/* Mines blocks[0..n), of which the first old were mined before and count only where k
 * is a new one.  mined() is called for each (i, j) that is followed by something, i
 * ascending, then j, the suffixes by k.  lookahead: QM_LOOKAHEAD_MIN to
 * QM_LOOKAHEAD_MAX (prefetcher.h); with 2 there are no rules.  Returns 0, or what
 * mined() returned. */
int qm_mine(const uint64_t *blocks, size_t n, size_t old, unsigned lookahead,
            qm_mined *mined, void *opaque);

#endif
