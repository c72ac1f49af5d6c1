/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-bench.h - what the parts of the program of bench/tier share. */
#ifndef QM_BENCH_TIER_H
#define QM_BENCH_TIER_H

#include <stdint.h>

#include "tier/tier.h"

struct bench_options {
    const char *path;
    uint64_t ops;
    uint32_t keys, block;
    double bloom;
};

static inline uint64_t bench_rnd(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t bench_now(void); /* ns */
double bench_cpu(void);   /* seconds, of all threads */

/* A new tier for a volume, as large as the volume times factor.  NULL: said why. */
struct qm_tier *bench_open(const struct bench_options *o, uint64_t volume,
                           enum qm_tier_mode mode, double factor);
void bench_remove(const struct bench_options *o);

int bench_thesis(const struct bench_options *o);

#endif
