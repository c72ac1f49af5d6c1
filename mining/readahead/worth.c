/* SPDX-License-Identifier: BSD-3-Clause */
/* worth.c - see worth.h. */
#include "mining/readahead/worth.h"

#define RATE      (1 / 24.0f)
#define LEAST     0.6f /* of a run that is worth being read ahead */
#define TRY_EVERY 32

void qm_worth_init(struct qm_worth *w)
{
    /* Before anything is known: so that each kind is tried. */
    static const float first[QM_WORTH_BUCKETS] = {
        [QM_WORTH_TWO] = 0.7f,         [QM_WORTH_RUN] = 0.7f,
        [QM_WORTH_SHORT] = 0.8f,       [QM_WORTH_MEDIUM] = 0.9f,
        [QM_WORTH_LONG] = 0.95f,       [QM_WORTH_STRIDE] = 0.7f,
        [QM_WORTH_STRIDE_LONG] = 0.9f,
    };

    for (unsigned i = 0; i < QM_WORTH_BUCKETS; i++)
        atomic_init(&w->used[i], first[i]);
    w->refused = 0;
}

enum qm_worth_bucket qm_worth_bucket(bool stride, bool two, uint64_t length)
{
    if (stride)
        return length <= 8 ? QM_WORTH_STRIDE : QM_WORTH_STRIDE_LONG;
    if (two)
        return QM_WORTH_TWO;
    if (length < 32)
        return length < 8 ? QM_WORTH_RUN : QM_WORTH_SHORT;
    return length < 128 ? QM_WORTH_MEDIUM : QM_WORTH_LONG;
}

void qm_worth_learn(struct qm_worth *w, enum qm_worth_bucket bucket, bool used)
{
    float value = qm_worth_get(w, bucket);

    value += RATE * ((used ? 1 : 0) - value);
    atomic_store_explicit(&w->used[bucket], value, memory_order_relaxed);
}

bool qm_worth_try(struct qm_worth *w, enum qm_worth_bucket bucket)
{
    if (qm_worth_get(w, bucket) < LEAST && ++w->refused < TRY_EVERY)
        return false;
    w->refused = 0;
    return true;
}
