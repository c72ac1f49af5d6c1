/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h - a generator of the tests' own (splitmix64), so that a failing seed fails
 * everywhere. */
#ifndef QM_TESTS_RANDOM_H
#define QM_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t rnd(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t rnd_below(uint64_t *seed, uint64_t n)
{
    return rnd(seed) % n;
}

#endif
