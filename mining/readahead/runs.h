/* SPDX-License-Identifier: BSD-3-Clause */
/* runs.h - the runs of adjacent blocks that one context reads.
 *
 * That a read adjoins one of another context is often chance; that it goes on where the
 * same context was seldom is.  So a run is known here from its second read on, and its
 * length says how much of it had been read, hits between included: what lies between a
 * run's end and a read that is a little further on counts as read if it is cached,
 * since hits are not told.
 *
 * A context may have a few going at a time, and reads between them.
 *
 * No locking: the caller serializes what one context reads.
 */
#ifndef QM_RUNS_H
#define QM_RUNS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QM_RUNS = 8,       /* that are followed at a time */
    QM_RUNS_GAP = 256, /* cached blocks that may lie between two reads of one */
};

/* A run, with the read that was told last. */
struct qm_own {
    uint32_t reads;  /* 1: the read continues none */
    uint32_t blocks; /* that were read of it */
};

struct qm_runs {
    struct {
        uint64_t next; /* the block behind it */
        struct qm_own own;
    } places[QM_RUNS]; /* the one used last is the first; reads 0: free */
};

/* Records a read of count blocks from block on; `cached` tells whether a block is
 * (NULL: nobody knows). */
struct qm_own qm_runs_read(struct qm_runs *runs, uint64_t block, uint32_t count,
                           bool (*cached)(void *opaque, uint64_t block), void *opaque);

#endif
