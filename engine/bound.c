/* SPDX-License-Identifier: BSD-3-Clause */
/* bound.c - see bound.h. */
#include "engine/bound.h"

#define PERIOD 128 /* candidates between two decisions */

#define PAYS  0.97f
#define SPARE 1.08f

#define PROBE      20
#define PROBE_OVER 4
#define DEAR       1.5f

#define ENOUGH 256.0f /* misses of either before anything is said */
#define FADE   0.9f   /* of what is known, a decision */

/* Of the value.  The bias of the estimate is learned while fewer blocks are used than
 * one for FEW misses: then the estimate should be the number of misses.  It may still
 * be wrong by one miss in FEW, and the value is the largest that this error allows.
 * Without it, where about as few blocks are used, the error alone could make the value
 * small.  That raises the threshold, by which fewer still are used, and nothing better
 * is learned. */
#define LONGER      0.98f /* as FADE */
#define FEW         20
#define BIAS_RATE   0.1f /* part of its error, a decision */
#define BIAS_MOST   1.5f
#define VALUE_LEAST 0.25f

void qm_bound_init(struct qm_bound *b)
{
    *b = (struct qm_bound){.deciding = ATOMIC_FLAG_INIT, .bias = 1};
    qm_watch_init(&b->watch);
    atomic_init(&b->value, 1);
}

void qm_bound_destroy(struct qm_bound *b)
{
    qm_watch_destroy(&b->watch);
}

static float within(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

/* What would have been missed without prefetching is known from a sample, which has a
 * bias. */
static void evaluate(struct qm_bound *b, const struct qm_cache_reads *reads)
{
    float alone, error, value = 1;
    bool known;

    b->by_alone = LONGER * b->by_alone + (float)(reads->alone - b->alone);
    b->by_misses = LONGER * b->by_misses + (float)(reads->misses - b->misses);
    b->by_used = LONGER * b->by_used + (float)(reads->prefetch_hits - b->used);
    b->alone = reads->alone;
    b->used = reads->prefetch_hits;
    known = b->by_alone >= ENOUGH; /* else it is too early, or nobody knows */
    alone = b->bias * b->by_alone;
    if (known && b->by_used * FEW < b->by_misses) {
        b->bias += BIAS_RATE * (b->by_misses / b->by_alone - b->bias);
        b->bias = within(b->bias, 1 / BIAS_MOST, BIAS_MOST);
    } else if (known && b->by_used > 0) {
        error = b->by_misses / FEW;
        value = (alone - b->by_misses + error) / b->by_used;
        value = within(value, VALUE_LEAST, 1);
    }
    atomic_store_explicit(&b->value, value, memory_order_relaxed);
}

/* One thread at a time, so that counts never seem to go back.  `device` may: it is
 * without what is read ahead. */
static void decide(struct qm_bound *b, struct qm_cache *cache)
{
    struct qm_cache_reads reads;
    uint64_t ended;
    float extra;
    bool over;

    qm_cache_get_reads(cache, &reads);
    /* What is read ahead of readers that have not come yet says nothing. */
    ended = reads.device - reads.ahead;
    evaluate(b, &reads);
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
    extra = b->more - b->weight;
    over = b->more > SPARE * b->weight;
    atomic_store_explicit(&b->over, over, memory_order_relaxed);
    atomic_store_explicit(&b->dear, over && extra > DEAR * (b->weight - b->less),
                          memory_order_relaxed);
}

bool qm_bound_admits(struct qm_bound *b, struct qm_cache *cache, bool stream)
{
    uint32_t call = atomic_fetch_add_explicit(&b->calls, 1, memory_order_relaxed);

    if (call % PERIOD == PERIOD - 1 &&
        !atomic_flag_test_and_set_explicit(&b->deciding, memory_order_acquire)) {
        decide(b, cache);
        atomic_flag_clear_explicit(&b->deciding, memory_order_release);
    }
    if (atomic_load_explicit(&b->resting, memory_order_relaxed))
        return false;
    if (!qm_watch_is_proven(&b->watch, stream))
        return false;
    if (atomic_load_explicit(&b->useless, memory_order_relaxed))
        return call % PROBE == 0;
    if (stream && atomic_load_explicit(&b->over, memory_order_relaxed))
        return call % (qm_bound_is_dear(b) ? PROBE : PROBE_OVER) == 0;
    return true;
}
