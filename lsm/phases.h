/* SPDX-License-Identifier: BSD-3-Clause */
/* phases.h - how long a compaction takes, and how long the cache needs after it: T1 and
 * T2 of Leaper, in intervals.
 *
 * T1 is in proportion to the blocks that a compaction reads, T2 to the look-ups of an
 * interval over the blocks that the cache holds.  Both factors are means of samples:
 * T1's of all compactions; T2's of those after which the share of misses rose, from
 * their end until nine tenths of the rise were gone.  Counts of intervals are whole;
 * means of many are not.
 *
 * The caller has a lock. */
#ifndef QM_LSM_PHASES_H
#define QM_LSM_PHASES_H

#include <stdbool.h>
#include <stdint.h>

#define PHASES_STEPS 16u /* into the future, at most */

struct phases {
    double alpha, beta; /* the factors, 0: no sample yet */
    double usual;       /* share of misses of intervals without a compaction, decayed */
    double lookups;     /* of the last interval */
    double peak;
    uint32_t since; /* intervals from a compaction's end until now, 0: none waits */
    bool known;     /* usual */
};

/* A compaction has ended that read `blocks` blocks in `intervals` intervals: a sample
 * of T1. */
void phases_compaction(struct phases *p, uint64_t blocks, uint64_t intervals);

/* An interval ended: its hits and misses, the blocks in the cache, and whether a
 * compaction ran in it. */
void phases_interval(struct phases *p, uint64_t hits, uint64_t misses, uint64_t blocks,
                     bool compaction);

/* T1, in intervals, of a compaction that reads `blocks` blocks; 0 before the first
 * sample. */
double phases_t1(const struct phases *p, uint64_t blocks);
/* T2, in intervals, 1 to PHASES_STEPS; otherwise: its value before the first sample. */
uint32_t phases_t2(const struct phases *p, uint64_t blocks, double otherwise);

#endif
