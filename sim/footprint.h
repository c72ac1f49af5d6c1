/* footprint.h - how many distinct blocks there were.
 *
 * A bitmap in pieces: databases' blocks lie close together, so that a block costs a few
 * bits, and a lone one a kilobyte.
 */
#ifndef QM_BENCH_FOOTPRINT_H
#define QM_BENCH_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

struct qm_footprint_piece;

struct qm_footprint {
    struct qm_footprint_piece *pieces; /* hash table */
    struct qm_footprint_piece *last;   /* found last */
    uint64_t blocks, read, written;    /* distinct: either, read, written */
};

/* A block was read or written.  Returns 0 or ENOMEM. */
int qm_footprint_add(struct qm_footprint *f, uint64_t block, bool write);
void qm_footprint_clear(struct qm_footprint *f);

#endif
