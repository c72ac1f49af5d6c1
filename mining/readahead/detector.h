/* SPDX-License-Identifier: BSD-3-Clause */
/* detector.h - where recent reads ended, so that one that goes on from there is
 * noticed.
 *
 * A read that belongs to no known stream leaves two *edges*: the block behind its last
 * one, where a reader that goes forward reads next, and its first block, in front of
 * which one that goes backward does.  A later read at or near an edge continues that
 * *run*, and leaves edges that say so.
 *
 * Runs are told apart by position alone: which context reads does not matter here, so a
 * reader whose requests come over several connections, or one block a query, is one
 * run.  Edges lie in sets by position, and in a full set the oldest is replaced.  The
 * number of sets may change.
 *
 * A random reader's reads adjoin each other by chance, with a probability of about the
 * number of edges over that of the blocks it reads.
 *
 * No locking.
 */
#ifndef QM_DETECTOR_H
#define QM_DETECTOR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QM_DETECTOR_WAYS = 4,
    QM_DETECTOR_NEAR =
        2, /* blocks that a read may leave out and still continue a run */
    QM_DETECTOR_BACK = 8, /* blocks before an edge: reads that came out of order */
};

struct qm_edge {
    uint64_t at; /* forward: the block that is read next; backward: the one above it */
    uint32_t stamp; /* by age */
    uint16_t reads; /* of this run; 0: a free place */
    int8_t step;    /* 1: forward; -1: backward */
};

struct qm_detector {
    uint32_t now;
    uint32_t n; /* sets; a power of two, or 0: there is no memory yet */
    struct qm_edge (*sets)[QM_DETECTOR_WAYS];
};

/* From now on there are n sets, a power of two.  False: memory is out, and nothing has
 * changed.  The structure is all 0 before the first time. */
bool qm_detector_resize(struct qm_detector *edges, uint32_t n);
void qm_detector_free(struct qm_detector *edges);

/* A run that a read continues, the read itself included. */
struct qm_run {
    unsigned reads; /* 1: it continues none */
    int step;       /* if there are several: 1 or -1 */
};

/* Records a read of count blocks (at least 1) from block on. */
struct qm_run qm_detector_read(struct qm_detector *edges, uint64_t block,
                               uint32_t count);

#endif
