/* SPDX-License-Identifier: BSD-3-Clause */
/* block-index.h - which row of a table a block is in.
 *
 * A hash table of 4-byte row numbers beside an array of rows, each of which begins with
 * the number of its block (a uint64_t).  Its size is fixed: it is made for as many rows
 * as the array has.  The hash has a random seed, so that nobody can choose block
 * numbers that collide.
 *
 * No locking.
 */
#ifndef QM_BLOCK_INDEX_H
#define QM_BLOCK_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define QM_NO_ROW UINT32_MAX

struct qm_block_index {
    uint32_t *slots; /* row + 1, 0: empty; linear probing */
    uint32_t mask;   /* slots - 1 */
    const void *rows;
    size_t stride; /* bytes of a row */
    uint64_t seed;
};

/* An empty index of max rows, at most 2^30, which must stay where they are.  Returns 0
 * or ENOMEM. */
int qm_block_index_init(struct qm_block_index *index, const void *rows, size_t stride,
                        uint32_t max, uint64_t seed);
void qm_block_index_fini(struct qm_block_index *index); /* one of all zeros is fine */

/* The row that block is in, or QM_NO_ROW. */
uint32_t qm_block_index_find(const struct qm_block_index *index, uint64_t block);

/* Enters a row, whose block is in no other one. */
void qm_block_index_insert(struct qm_block_index *index, uint32_t row);

/* Takes out a row that was entered, before its block changes. */
void qm_block_index_remove(struct qm_block_index *index, uint32_t row);

void qm_block_index_clear(struct qm_block_index *index);

size_t qm_block_index_bytes(const struct qm_block_index *index);

#endif
