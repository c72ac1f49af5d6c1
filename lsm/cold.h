/* SPDX-License-Identifier: BSD-3-Clause */
/* cold.h - which blocks of a compaction's inputs will be read until it ends: the first
 * of Leaper's two phases.
 *
 * The trees predict the ranges that a file covers, and Algorithm 3 (overlap.h) finds
 * the blocks that meet a hot one.  Of a file, COLD_RANGES are predicted, which takes
 * some 10 ms a step; blocks behind them count as hot. */
#ifndef QM_LSM_COLD_H
#define QM_LSM_COLD_H

#include "lsm/feature.h"

#define COLD_RANGES 4096u

/* firsts: of the file's n blocks.  Sets hot[i] if block i will be read in one of the
 * next `steps` intervals.  Without memory all are hot. */
void cold_check(const struct keys *firsts, uint32_t n, struct table *t,
                const struct trees *trees, uint32_t steps, const struct moment *moment,
                uint8_t *hot);

#endif
