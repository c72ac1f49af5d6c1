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
    *b = (struct qm_bound){.deciding = ATOMIC_FLAG_INIT};
}

/* One thread at a time, so that counts never seem to go back.  `device` may: it is
 * without what is read ahead. */
static void decide(struct qm_bound *b, struct qm_cache *cache)
{
    struct qm_cache_reads reads;
    uint64_t ended;

    qm_cache_get_reads(cache, &reads);
    /* What is read ahead of readers that have not come yet says nothing. */
    ended = reads.device - reads.ahead;
    b->weight = FADE * b->weight + (float)(reads.lru - b->lru);
    b->more = FADE * b->more + (float)(int64_t)(ended - b->device);
    b->less = FADE * b->less + (float)(reads.misses - b->misses);
    b->device = ended;
    b->lru = reads.lru;
    b->misses = reads.misses;
    if (b->weight + b->less < ENOUGH)
        return;
    atomic_store_explicit(&b->useless, b->less > PAYS * b->weight,
                          memory_order_relaxed);
    atomic_store_explicit(&b->over, b->more > SPARE * b->weight, memory_order_relaxed);
}

bool qm_bound_admits(struct qm_bound *b, struct qm_cache *cache, bool stream)
{
    uint32_t call = atomic_fetch_add_explicit(&b->calls, 1, memory_order_relaxed);

    if (call % PERIOD == PERIOD - 1 &&
        !atomic_flag_test_and_set_explicit(&b->deciding, memory_order_acquire)) {
        decide(b, cache);
        atomic_flag_clear_explicit(&b->deciding, memory_order_release);
    }
    if (atomic_load_explicit(&b->useless, memory_order_relaxed))
        return call % PROBE == 0;
    if (stream && atomic_load_explicit(&b->over, memory_order_relaxed))
        return call % PROBE_OVER == 0;
    return true;
}
