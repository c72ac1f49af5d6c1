/* span.h - adjacent blocks: [from, to), empty if to is not above from. */
#ifndef QM_SPAN_H
#define QM_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct qm_span {
    uint64_t from, to;
};

static inline bool qm_span_has(struct qm_span span, uint64_t block)
{
    return block >= span.from && block < span.to;
}

/* Moves the first blocks, at most max, to blocks; returns how many. */
static inline unsigned qm_span_take(struct qm_span *span, uint64_t *blocks,
                                    unsigned max)
{
    unsigned n = 0;

    while (n < max && span->from < span->to) {
        blocks[n++] = span->from++;
    }
    return n;
}

#endif
