/* SPDX-License-Identifier: BSD-3-Clause */
/* extents.h - where the blocks of files lie, as clients have told it.
 *
 * A file in fragments is sequential to its reader, and not on the device.  So each
 * extent that is told has a place in a second numbering of blocks, above
 * QM_EXTENTS_BASE: where a file goes on from one extent to the next, its numbers go on,
 * too; between files they leave a gap.  Streams that are followed in these numbers go
 * on across fragments.  A number is never given twice.
 *
 * What is told is advice, and may be wrong, or no longer true.  A block is of one
 * extent at most, of the last that was told, so there is no way to go in circles.  An
 * extent that another overlaps is forgotten, unless they share no more than the block
 * where one ends and the other begins: file systems have smaller blocks than caches.
 *
 * The last QM_EXTENTS_MAX extents are known; memory is fixed.  No locking.
 */
#ifndef QM_EXTENTS_H
#define QM_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

#define QM_EXTENTS_BASE (QM_BLOCKS_MAX << 1)
#define QM_EXTENTS_NONE (UINT64_MAX - 1)

enum {
    QM_EXTENTS_MAX = 8192,
    QM_EXTENTS_GAP = 1024, /* numbers between two files */
};

struct qm_extents_place {
    uint64_t file;  /* number of its first block */
    uint64_t block; /* where that lies on the device */
    uint32_t count;
    bool forgotten;
};

struct qm_extents {
    uint64_t next;                  /* number behind the last one given */
    unsigned oldest, n;             /* places in use, forgotten ones included */
    unsigned known;                 /* not forgotten */
    uint16_t order[QM_EXTENTS_MAX]; /* places not forgotten, by block */
    struct qm_extents_place places[QM_EXTENTS_MAX]; /* a ring; by number */
};

/* NULL if memory is out. */
struct qm_extents *qm_extents_new(void);
void qm_extents_free(struct qm_extents *extents); /* NULL is fine */

/* A file has these extents, in this order.  If the first one is the end of what was
 * told last, they go on from there.  Extents of no blocks, or beyond QM_BLOCKS_MAX, are
 * left out, and what adjoins is one. */
void qm_extents_tell(struct qm_extents *extents, const struct qm_extent *told,
                     unsigned n);

/* The extents that have one of count blocks are forgotten. */
void qm_extents_forget(struct qm_extents *extents, uint64_t block, uint64_t count);

/* The extent that a block of the device, or a number, is of; NULL: none that is known.
 * Good until the next call of the two above. */
const struct qm_extents_place *qm_extents_at_block(const struct qm_extents *extents,
                                                   uint64_t block);
const struct qm_extents_place *qm_extents_at_file(const struct qm_extents *extents,
                                                  uint64_t file);

#endif
