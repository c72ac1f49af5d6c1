/* SPDX-License-Identifier: BSD-3-Clause */
/* footprint.h - counts the distinct blocks of a trace.
 *
 * It is a bitmap in pieces.  A database's blocks are close together, so a block takes a
 * few bits; an isolated one takes a kilobyte.
 */
#ifndef QM_SIM_FOOTPRINT_H
#define QM_SIM_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

struct qm_footprint_piece;

struct qm_footprint {
    struct qm_footprint_piece *pieces; /* hash table */
    struct qm_footprint_piece *last;   /* found last */
    uint64_t blocks, read, written;    /* distinct: either, read, written */
};

/* Adds a block that was read or written.  Returns 0 or ENOMEM. */
int qm_footprint_add(struct qm_footprint *f, uint64_t block, bool write);
void qm_footprint_clear(struct qm_footprint *f);

#endif
