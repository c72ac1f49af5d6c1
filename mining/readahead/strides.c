/* SPDX-License-Identifier: BSD-3-Clause */
/* strides.c - see strides.h. */
#include "mining/readahead/strides.h"

#include <string.h>

static int64_t distance_from(const struct qm_strides *s, unsigned i, uint64_t block)
{
    return (int64_t)(block - s->places[i].last);
}

/* The place that the read continues, or the one to be replaced. */
static unsigned place_for(const struct qm_strides *s, uint64_t block)
{
    unsigned best = QM_STRIDES - 1;

    for (unsigned i = 0; i < QM_STRIDES; i++)
        if (s->places[i].reads > 1 &&
            distance_from(s, i, block) == s->places[i].distance)
            return i;
    for (unsigned i = 0; i < QM_STRIDES; i++) {
        int64_t d = distance_from(s, i, block);

        if (s->places[i].reads == 0 || (s->places[i].reads <= 2 && d != 0 &&
                                        d <= QM_STRIDE_MAX && d >= -QM_STRIDE_MAX))
            return i;
    }
    return best;
}

int32_t qm_strides_read(struct qm_strides *s, uint64_t block, unsigned *reads)
{
    unsigned i = place_for(s, block);
    int64_t d = distance_from(s, i, block);
    uint32_t n = s->places[i].reads;

    if (n == 0 || d == 0 || d > QM_STRIDE_MAX || d < -QM_STRIDE_MAX) {
        n = 1;
        d = 0;
    } else {
        n = d == s->places[i].distance ? n + (n < UINT32_MAX) : 2;
    }
    memmove(&s->places[1], &s->places[0], i * sizeof s->places[0]);
    s->places[0].last = block;
    s->places[0].distance = (int32_t)d;
    s->places[0].reads = n;
    *reads = n;
    return n >= 3 ? (int32_t)d : 0;
}
