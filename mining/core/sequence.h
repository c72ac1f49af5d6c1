/* SPDX-License-Identifier: BSD-3-Clause */
/* sequence.h - the blocks that one context read, in order (ATC'08 §3.1).
 *
 * Immediate repeats of a block count once, so neighbours always differ.  A sequence
 * grows until it is detached as work for the miner.  What is detached in passing leaves
 * its last blocks behind, as *old* blocks of the next work: they are there for the
 * rules that span the border, and every rule has at least its suffix among the new
 * ones.
 *
 * No locking: a sequence belongs to one thread at a time.
 */
#ifndef QM_SEQUENCE_H
#define QM_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of a sequence; freed with free(). */
struct qm_work {
    size_t n;   /* blocks, the old ones included */
    size_t old; /* how many of the first were in the work before */
    size_t cap;
    uint64_t blocks[];
};

struct qm_sequence {
    struct qm_work *work; /* NULL as long as there is no block */
    uint64_t last[2];     /* the last two blocks, whatever became of the work */
    unsigned seen;        /* how many of these there are: 0, 1, 2 */
};

void qm_sequence_init(struct qm_sequence *sequence);
void qm_sequence_fini(struct qm_sequence *sequence);

/* Appends block, unless it is the last one again: then it is false.  If memory is out,
 * the blocks not yet learned from are dropped: leaving out a single one would make
 * neighbours of blocks that are none. */
bool qm_sequence_append(struct qm_sequence *sequence, uint64_t block);

/* How many blocks were appended since the sequence began or was last detached. */
size_t qm_sequence_fresh(const struct qm_sequence *sequence);

/* Detaches what there is, which is the caller's then; the last carry blocks stay as old
 * ones.  NULL if it is too short to hold a rule: without a new block, or fewer than 3;
 * then nothing is detached. */
struct qm_work *qm_sequence_detach(struct qm_sequence *sequence, size_t carry);

/* Forgets all but the last keep blocks, which count as old from now on: nothing is to
 * be learned from what was there. */
void qm_sequence_keep(struct qm_sequence *sequence, size_t keep);

/* Detaches what there is, however short, and leaves nothing behind.  NULL: nothing. */
struct qm_work *qm_sequence_take(struct qm_sequence *sequence);

#endif
