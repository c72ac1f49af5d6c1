/* SPDX-License-Identifier: BSD-3-Clause */
/* cells.h - records in memory, in cells of 16 bytes.
 *
 * A record of at most 16 bytes, as most of rules are, is in one cell.  A longer one is
 * a chain: 12 bytes and the number of the next cell in each, 16 bytes in the last.  All
 * cells are alike, so what one record leaves serves any other: memory does not become
 * fragmented, however long records come and go, and its bound is exact.
 *
 * A record's number is that of its first cell, from 1 up, and stays the same until it
 * is freed.  How long it is, the caller knows.  No locking.
 */
#ifndef QM_CELLS_H
#define QM_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_cell;

struct qm_cells {
    struct qm_cell *v; /* [0] is not used */
    uint32_t used;     /* cells that were ever in use, and [0] */
    uint32_t cap, max;
    uint32_t free, n_free; /* a list, 0: none; and how many are in it */
};

/* At most `bytes` bytes of cells.  Returns 0 or ENOMEM. */
int qm_cells_init(struct qm_cells *cells, uint64_t bytes);
void qm_cells_fini(struct qm_cells *cells);

/* Stores a record of 1 or more bytes.  Returns its number, or 0 if there is no room. */
uint32_t qm_cells_add(struct qm_cells *cells, const unsigned char *bytes, size_t size);

/* Replaces a record.  If there is no room, it is false and the record as it was. */
bool qm_cells_replace(struct qm_cells *cells, uint32_t record, size_t old_size,
                      const unsigned char *bytes, size_t size);

/* Copies a record, or its first max bytes if it is longer; returns how many. */
size_t qm_cells_read(const struct qm_cells *cells, uint32_t record, size_t size,
                     unsigned char *bytes, size_t max);

void qm_cells_free(struct qm_cells *cells, uint32_t record, size_t size);

/* Bytes held, as far as they were ever in use. */
size_t qm_cells_bytes(const struct qm_cells *cells);

#endif
