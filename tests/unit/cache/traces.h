/* SPDX-License-Identifier: BSD-3-Clause */
/* traces.h - block numbers in the patterns in which caches are asked for them. */
#ifndef QM_TESTS_CACHE_TRACES_H
#define QM_TESTS_CACHE_TRACES_H

#include "testing.h"

/* Skewed: half of all draws fall on the first few, and half of the rest ... */
static inline uint64_t rnd_skewed(uint64_t *seed, uint64_t n)
{
    while (n > 4 && rnd_below(seed, 4) != 0)
        n = n * 2 / 3;
    return rnd_below(seed, n);
}

enum pattern { UNIFORM, SKEWED, LOOPING, SCANNING, MOVING, PATTERNS };

/* A phase of a trace: accesses to `span` blocks from `base` on. */
struct phase {
    enum pattern pattern;
    uint64_t base, span, step;
};

static inline uint64_t next_block(struct phase *phase, uint64_t *seed)
{
    uint64_t step = phase->step++;

    switch (phase->pattern) {
    case UNIFORM:
        return phase->base + rnd_below(seed, phase->span);
    case SKEWED:
        return phase->base + rnd_skewed(seed, phase->span);
    case LOOPING:
        return phase->base + step % phase->span;
    case SCANNING: /* what is hot, and between it blocks that come once */
        return step % 3 ? phase->base + rnd_skewed(seed, phase->span)
                        : UINT64_C(1) << 40 | (phase->base + step);
    default: /* what is hot moves on */
        return phase->base + step / 4 + rnd_below(seed, phase->span);
    }
}

/* What the counts in test-evict.c were taken with: eight phases in turn, of 4,096
 * accesses each.  *phase and *seed begin as zeros. */
static inline uint64_t next_of_mixture(struct phase *phase, uint64_t *seed, uint64_t i)
{
    static const struct phase phases[8] = {
        {SKEWED, 0, 4000, 0},        {LOOPING, 5000, 110, 0}, {SCANNING, 0, 4000, 0},
        {LOOPING, 6000, 1200, 0},    {MOVING, 8000, 90, 0},   {SKEWED, 0, 4000, 0},
        {SCANNING, 10000, 20000, 0}, {UNIFORM, 0, 3000, 0},
    };

    if (i % 4096 == 0)
        *phase = phases[i / 4096 % 8];
    return next_block(phase, seed);
}

#endif
