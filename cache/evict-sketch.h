/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-sketch.h - how often blocks were accessed of late, about.
 *
 * A count-min sketch as in TinyLFU (Einziger, Friedman & Manes, ACM Transactions on
 * Storage 13(4), 2017): 4 rows of 4-bit counters, of which an access increments the
 * least ones (the paper's minimal increment).  After W accesses all counters, and the
 * number of accesses itself, are halved, so that what was hot once is forgotten (its
 * reset).  W is 10 times the capacity; a row has 2 to 4 counters a block, a power of
 * two, but at least 16.
 *
 * O(1) on average: the halving takes a pass over the sketch every 5 accesses a block.
 * No locks: the owner of the sketch calls it under a lock of its own.
 */
#ifndef QM_EVICT_SKETCH_H
#define QM_EVICT_SKETCH_H

#include <stdint.h>

#define QM_SKETCH_BYTES 8 /* for each block of capacity; 128 beside */

struct qm_sketch {
    unsigned bits;  /* of the number of a counter in its row */
    uint64_t words; /* of all rows, which follow each other */
    uint64_t accesses, sample;
    uint64_t *counters;
};

/* For up to capacity blocks.  Returns 0, or -1 if memory is out. */
int qm_sketch_init(struct qm_sketch *sketch, uint64_t capacity);
void qm_sketch_destroy(struct qm_sketch *sketch);

/* From now on it is for that many blocks, at most what it was made for. */
void qm_sketch_resize(struct qm_sketch *sketch, uint64_t capacity);

/* Makes it one that was made for that many blocks; what was counted stays, about.
 * O(capacity).  Returns 0 or ENOMEM, then nothing changed. */
int qm_sketch_reserve(struct qm_sketch *sketch, uint64_t capacity);

/* An access. */
void qm_sketch_count(struct qm_sketch *sketch, uint64_t block);

/* How many accesses to block are counted; at most 15. */
unsigned qm_sketch_estimate(const struct qm_sketch *sketch, uint64_t block);

#endif
