/* SPDX-License-Identifier: BSD-3-Clause */
/* worth.c - see worth.h. */
#include "mining/readahead/worth.h"

#define RATE      (1 / 24.0f)
#define TRY_EVERY 32

/* The share that is worth being read ahead; found by trying, on recordings of eleven
 * kinds of workload: of what one context reads, its next block; the same, of others;
 * and of all that lies further ahead. */
#define LEAST_NEXT_OWN 0.25f
#define LEAST_NEXT     0.45f
#define LEAST_FAR      0.6f

void qm_worth_init(struct qm_worth *w)
{
    /* Before anything is known: so that each kind is tried. */
    static const float first[QM_WORTH_BUCKETS] = {
        [QM_WORTH_TWO] = 0.7f,        [QM_WORTH_RUN] = 0.7f,
        [QM_WORTH_SHORT] = 0.8f,      [QM_WORTH_MEDIUM] = 0.9f,
        [QM_WORTH_LONG] = 0.95f,      [QM_WORTH_OWN_TWO] = 0.7f,
        [QM_WORTH_OWN_RUN] = 0.7f,    [QM_WORTH_OWN_SHORT] = 0.8f,
        [QM_WORTH_OWN_MEDIUM] = 0.9f, [QM_WORTH_OWN_LONG] = 0.95f,
        [QM_WORTH_STRIDE] = 0.7f,     [QM_WORTH_STRIDE_LONG] = 0.9f,
    };

    for (unsigned i = 0; i < QM_WORTH_BUCKETS; i++) {
        for (unsigned d = 0; d < QM_WORTH_DISTANCES; d++)
            atomic_init(&w->used[i][d], first[i]);
        w->asked[i] = 0;
    }
}

enum qm_worth_bucket qm_worth_of_run(bool own, bool two, uint64_t length)
{
    const unsigned first = own ? QM_WORTH_OWN_TWO : QM_WORTH_TWO;
    unsigned size = 4; /* how many steps from two to long */

    if (two)
        size = 0;
    else if (length < 128)
        size = length < 8 ? 1 : length < 32 ? 2 : 3;
    return (enum qm_worth_bucket)(first + size);
}

enum qm_worth_bucket qm_worth_of_stride(uint64_t reads)
{
    return reads <= 8 ? QM_WORTH_STRIDE : QM_WORTH_STRIDE_LONG;
}

unsigned qm_worth_distance(uint64_t ahead)
{
    unsigned d = 0;

    for (; ahead > 1 && d < QM_WORTH_DISTANCES - 1; ahead /= 2)
        d++;
    return d;
}

void qm_worth_learn(struct qm_worth *w, enum qm_worth_bucket bucket, unsigned distance,
                    bool used)
{
    float value = qm_worth_get(w, bucket, distance);

    value += RATE * ((used ? 1 : 0) - value);
    atomic_store_explicit(&w->used[bucket][distance], value, memory_order_relaxed);
}

static float least(enum qm_worth_bucket bucket, unsigned distance)
{
    if (distance > 0)
        return LEAST_FAR;
    return bucket >= QM_WORTH_OWN_TWO && bucket <= QM_WORTH_OWN_LONG ? LEAST_NEXT_OWN
                                                                     : LEAST_NEXT;
}

uint32_t qm_worth_reach(struct qm_worth *w, enum qm_worth_bucket bucket, uint32_t most)
{
    unsigned d = 0;
    uint32_t reach;

    while (d < QM_WORTH_DISTANCES && qm_worth_get(w, bucket, d) >= least(bucket, d))
        d++;
    if (d == QM_WORTH_DISTANCES || most < UINT32_C(1) << d)
        return most;
    if (++w->asked[bucket] >= TRY_EVERY) {
        w->asked[bucket] = 0;
        d++;
    }
    reach = (UINT32_C(1) << d) - 1;
    return d == QM_WORTH_DISTANCES || reach > most ? most : reach;
}
