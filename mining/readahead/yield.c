/* SPDX-License-Identifier: BSD-3-Clause */
/* yield.c - see yield.h. */
#include "mining/readahead/yield.h"

#define RATE      (1 / 24.0f)
#define TRY_EVERY 32

/* The share that is worth being read ahead; found by trying, on recordings of eleven
 * kinds of workload: of what one context reads, its next block; the same, of others;
 * and of all that lies further ahead. */
#define LEAST_NEXT_OWN 0.25f
#define LEAST_NEXT     0.45f
#define LEAST_FAR      0.6f

void qm_yield_init(struct qm_yield *w)
{
    /* Before anything is known: so that each kind is tried. */
    static const float first[QM_YIELD_BUCKETS] = {
        [QM_YIELD_TWO] = 0.7f,        [QM_YIELD_RUN] = 0.7f,
        [QM_YIELD_SHORT] = 0.8f,      [QM_YIELD_MEDIUM] = 0.9f,
        [QM_YIELD_LONG] = 0.95f,      [QM_YIELD_OWN_TWO] = 0.7f,
        [QM_YIELD_OWN_RUN] = 0.7f,    [QM_YIELD_OWN_SHORT] = 0.8f,
        [QM_YIELD_OWN_MEDIUM] = 0.9f, [QM_YIELD_OWN_LONG] = 0.95f,
        [QM_YIELD_STRIDE] = 0.7f,     [QM_YIELD_STRIDE_LONG] = 0.9f,
    };

    for (unsigned i = 0; i < QM_YIELD_BUCKETS; i++) {
        for (unsigned d = 0; d < QM_YIELD_DISTANCES; d++)
            atomic_init(&w->used[i][d], first[i]);
        w->asked[i] = 0;
    }
}

enum qm_yield_bucket qm_yield_of_run(bool own, bool two, uint64_t length)
{
    const unsigned first = own ? QM_YIELD_OWN_TWO : QM_YIELD_TWO;
    unsigned size = 4; /* how many steps from two to long */

    if (two)
        size = 0;
    else if (length < 128)
        size = length < 8 ? 1 : length < 32 ? 2 : 3;
    return (enum qm_yield_bucket)(first + size);
}

enum qm_yield_bucket qm_yield_of_stride(uint64_t reads)
{
    return reads <= 8 ? QM_YIELD_STRIDE : QM_YIELD_STRIDE_LONG;
}

unsigned qm_yield_distance(uint64_t ahead)
{
    unsigned d = 0;

    for (; ahead > 1 && d < QM_YIELD_DISTANCES - 1; ahead /= 2)
        d++;
    return d;
}

void qm_yield_learn(struct qm_yield *w, enum qm_yield_bucket bucket, unsigned distance,
                    bool used)
{
    float value = qm_yield_get(w, bucket, distance);

    value += RATE * ((used ? 1 : 0) - value);
    atomic_store_explicit(&w->used[bucket][distance], value, memory_order_relaxed);
}

static float least(enum qm_yield_bucket bucket, unsigned distance)
{
    if (distance > 0)
        return LEAST_FAR;
    return bucket >= QM_YIELD_OWN_TWO && bucket <= QM_YIELD_OWN_LONG ? LEAST_NEXT_OWN
                                                                     : LEAST_NEXT;
}

uint32_t qm_yield_reach(struct qm_yield *w, enum qm_yield_bucket bucket, uint32_t most)
{
    unsigned d = 0;
    uint32_t reach;

    while (d < QM_YIELD_DISTANCES && qm_yield_get(w, bucket, d) >= least(bucket, d))
        d++;
    if (d == QM_YIELD_DISTANCES || most < UINT32_C(1) << d)
        return most;
    if (++w->asked[bucket] >= TRY_EVERY) {
        w->asked[bucket] = 0;
        d++;
    }
    reach = (UINT32_C(1) << d) - 1;
    return d == QM_YIELD_DISTANCES || reach > most ? most : reach;
}
