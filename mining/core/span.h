/* SPDX-License-Identifier: BSD-3-Clause */
/* span.h - adjacent blocks: [from, to), empty if to is not above from. */
#ifndef QM_SPAN_H
#define QM_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

struct qm_span {
    uint64_t from, to;
};

static inline bool qm_span_has(struct qm_span span, uint64_t block)
{
    return block >= span.from && block < span.to;
}

/* Makes the span, which has at most QM_RANGE_MAX blocks, a candidate, and is empty
 * then; returns how many candidates: 0 if it was empty. */
static inline unsigned qm_span_take(struct qm_span *span,
                                    struct qm_candidate *candidate)
{
    struct qm_span taken = *span;

    *span = (struct qm_span){0};
    if (taken.from >= taken.to)
        return 0;
    *candidate = (struct qm_candidate){.block = taken.from,
                                       .count = (uint32_t)(taken.to - taken.from),
                                       .probability = QM_PROBABILITY_UNKNOWN};
    return 1;
}

#endif
