/* SPDX-License-Identifier: BSD-3-Clause */
/* strides.h - one context's reads at equal distances.
 *
 * A column of a matrix, or every other page: each read begins as far from the one
 * before as that one did from its own.  Three reads with the same distance make a
 * stride.  A context may have a few going at a time, and reads between them.
 *
 * No locking.
 */
#ifndef QM_STRIDES_H
#define QM_STRIDES_H

#include <stdint.h>

enum {
    QM_STRIDES = 4,       /* that are followed at a time */
    QM_STRIDE_MAX = 1024, /* blocks between two reads */
};

struct qm_strides {
    struct {
        uint64_t last;    /* where the last read began */
        int32_t distance; /* 0: there was but one read */
        uint32_t reads;   /* 0: a free place */
    } places[QM_STRIDES]; /* the one used last is the first */
};

/* Records a read that begins at block.  Returns the distance of the stride that it
 * continues, with how many reads in *reads (itself included); or 0. */
int32_t qm_strides_read(struct qm_strides *strides, uint64_t block, unsigned *reads);

#endif
