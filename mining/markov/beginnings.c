/* SPDX-License-Identifier: BSD-3-Clause */
/* beginnings.c - a moving average for each class. */
#define XXH_INLINE_ALL
#include "mining/markov/beginnings.h"

#include <stdatomic.h>
#include <xxhash.h>

#define FIRST 0.2f  /* at the start: they may try, for some hundred statements */
#define RATE  0.02f /* how far a beginning moves it */

/* Found by trying: with .05 to .15 TPC-C misses .93 of before, and sysbench's read-only
 * transactions, whose beginnings are random, 1.01; with .3 TPC-C misses .95, with 0
 * those 1.1. */
#define PAYS 0.1f

void qm_beginnings_init(struct qm_beginnings *b)
{
    for (unsigned i = 0; i < QM_BEGINNINGS; i++)
        atomic_init(&b->known[i], FIRST);
}

static unsigned hash(uint64_t value)
{
    return (unsigned)XXH3_64bits(&value, sizeof value);
}

bool qm_beginnings_samples(uint64_t block)
{
    return hash(block) % QM_BEGINNINGS_SAMPLE == 0;
}

void qm_beginnings_count(struct qm_beginnings *b, uint32_t klass, bool known)
{
    _Atomic float *share = &b->known[hash(klass) % QM_BEGINNINGS];
    float was = atomic_load_explicit(share, memory_order_relaxed);

    atomic_store_explicit(share, was + RATE * ((known ? 1 : 0) - was),
                          memory_order_relaxed);
}

bool qm_beginnings_pay(const struct qm_beginnings *b, uint32_t klass)
{
    return atomic_load_explicit(&b->known[hash(klass) % QM_BEGINNINGS],
                                memory_order_relaxed) >= PAYS;
}
