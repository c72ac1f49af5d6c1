/* SPDX-License-Identifier: BSD-3-Clause */
/* bound.c - see bound.h. */
#include "engine/bound.h"

#define PERIOD 128 /* candidates between two decisions */

#define PAYS  0.97f
#define SPARE 1.08f

#define PROBE      20
#define PROBE_OVER 4

#define ENOUGH 256.0f /* misses of either before anything is said */
#define FADE   0.9f   /* of what is known, a decision */

void qm_bound_init(struct qm_bound *b)
{
    *b = (struct qm_bound){.useless = false};
}

static float get(const _Atomic float *f)
{
    return atomic_load_explicit(f, memory_order_relaxed);
}

static void put(_Atomic float *f, float value)
{
    atomic_store_explicit(f, value, memory_order_relaxed);
}

/* Sums that fade: `weight`, misses of LRU; `more` and `less`, blocks of the device and
 * misses. */
static void decide(struct qm_bound *b, struct qm_cache *cache)
{
    struct qm_cache_reads reads;
    uint64_t ended;
    float lru;

    qm_cache_get_reads(cache, &reads);
    /* What is read ahead of readers that have not come yet says nothing. */
    ended = reads.device - reads.ahead;
    put(&b->weight, FADE * get(&b->weight) +
                        (float)(reads.lru - atomic_exchange(&b->lru, reads.lru)));
    put(&b->more, FADE * get(&b->more) +
                      (float)(int64_t)(ended - atomic_exchange(&b->device, ended)));
    put(&b->less,
        FADE * get(&b->less) +
            (float)(reads.misses - atomic_exchange(&b->misses, reads.misses)));
    lru = get(&b->weight);
    if (lru + get(&b->less) < ENOUGH)
        return;
    atomic_store_explicit(&b->useless, get(&b->less) > PAYS * lru,
                          memory_order_relaxed);
    atomic_store_explicit(&b->over, get(&b->more) > SPARE * lru, memory_order_relaxed);
}

bool qm_bound_admits(struct qm_bound *b, struct qm_cache *cache, bool stream)
{
    uint32_t call = atomic_fetch_add_explicit(&b->calls, 1, memory_order_relaxed);

    if (call % PERIOD == PERIOD - 1)
        decide(b, cache);
    if (atomic_load_explicit(&b->useless, memory_order_relaxed))
        return call % PROBE == 0;
    if (stream && atomic_load_explicit(&b->over, memory_order_relaxed))
        return call % PROBE_OVER == 0;
    return true;
}
