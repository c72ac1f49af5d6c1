/* SPDX-License-Identifier: BSD-3-Clause */
/* admit.c - see admit.h. */
#include "tier/admit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tier/internal.h"

#define ROWS   4
#define MARGIN 4    /* of a frequency above that of the blocks that leave; 16ths */
#define EARNED 1000 /* a frequency that is none: the block has earned its place */
#define UNREAD 3    /* updates of a block that nobody reads; at most 3 */
#define DAY_NS UINT64_C(86400000000000)

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

void qm_tier_bloom_size(uint64_t n, double f, uint64_t *bits, unsigned *functions)
{
    double m = ceil(-(double)n * log(f) / (M_LN2 * M_LN2));
    double k = round(m / (double)n * M_LN2);

    *bits = m < 64 ? 64 : (uint64_t)m;
    *functions = k < 1 ? 1 : k > 30 ? 30 : (unsigned)k;
}

int admit_new(struct qm_tier *t)
{
    struct qm_tier_admission *a = &t->admission;
    uint64_t capacity = (uint64_t)t->g.slots * t->g.segments, words;

    words = (capacity + 15) / 16;
    a->sketch.row = words < 4 ? 4 : words;
    a->sketch.sample = 10 * 16 * a->sketch.row;
    a->sketch.words = tier_alloc(t, ROWS * a->sketch.row * 8);
    if (!a->sketch.words)
        return ENOMEM;
    atomic_fetch_add(&t->index_memory, ROWS * a->sketch.row * 8);
    atomic_fetch_sub(&t->memory, ROWS * a->sketch.row * 8);
    if (t->config.update == QM_TIER_UPDATE_AUTO) {
        a->unread_words = words;
        a->unread = tier_alloc(t, words * 8);
        if (!a->unread)
            return ENOMEM;
        atomic_fetch_add(&t->index_memory, words * 8);
        atomic_fetch_sub(&t->memory, words * 8);
    }
    if (t->config.bloom > 0) {
        a->bloom.room = 2 * capacity;
        qm_tier_bloom_size(a->bloom.room, t->config.bloom, &a->bloom.bits,
                           &a->bloom.functions);
        a->bloom.words = tier_alloc(t, (a->bloom.bits + 63) / 64 * 8);
        if (!a->bloom.words)
            return ENOMEM;

        atomic_fetch_add(&t->index_memory, (a->bloom.bits + 63) / 64 * 8);
        atomic_fetch_sub(&t->memory, (a->bloom.bits + 63) / 64 * 8);
    }
    a->burst = (int64_t)(t->config.write_rate / 24 + t->g.segment_bytes);
    a->tokens = a->burst;
    a->refilled = tier_now(t);
    return 0;
}

void admit_free(struct qm_tier *t)
{
    free((void *)t->admission.sketch.words);
    free((void *)t->admission.unread);
    free((void *)t->admission.bloom.words);
}

/* A counter: its word and the shift in it. */
static _Atomic uint64_t *counter(struct qm_tier_sketch *s, uint64_t hash, unsigned row,
                                 unsigned *shift)
{
    uint64_t h = mix(hash + row * UINT64_C(0x9e3779b97f4a7c15));

    *shift = (unsigned)(h & 15) * 4;
    return &s->words[row * s->row + (uint64_t)(((unsigned __int128)h * s->row) >> 64)];
}

unsigned admit_frequency(struct qm_tier *t, uint64_t block)
{
    uint64_t hash = mix(block ^ t->seed);
    unsigned least = 15, shift;

    for (unsigned i = 0; i < ROWS; i++) {
        _Atomic uint64_t *word = counter(&t->admission.sketch, hash, i, &shift);
        unsigned n = atomic_load_explicit(word, memory_order_relaxed) >> shift & 15;

        least = n < least ? n : least;
    }
    return least;
}

static _Atomic uint64_t *unread(struct qm_tier *t, uint64_t hash, unsigned *shift)
{
    struct qm_tier_admission *a = &t->admission;

    *shift = (unsigned)(hash & 31) * 2;
    return &a->unread[(uint64_t)(((unsigned __int128)hash * a->unread_words) >> 64)];
}

/* A read or a write that comes between may be lost. */
static void read_again(struct qm_tier *t, uint64_t hash)
{
    unsigned shift;
    _Atomic uint64_t *word = unread(t, hash, &shift);
    uint64_t was = atomic_load_explicit(word, memory_order_relaxed);

    if (was >> shift & 3)
        atomic_compare_exchange_strong(word, &was, was & ~(UINT64_C(3) << shift));
}

bool admit_update(struct qm_tier *t, uint64_t block)
{
    unsigned shift, n;
    _Atomic uint64_t *word;
    uint64_t was;

    if (t->config.update != QM_TIER_UPDATE_AUTO)
        return t->config.update == QM_TIER_UPDATE_ALL;
    word = unread(t, mix(block ^ t->seed), &shift);
    was = atomic_load_explicit(word, memory_order_relaxed);
    n = was >> shift & 3;
    if (n < UNREAD)
        atomic_compare_exchange_strong(word, &was, was + (UINT64_C(1) << shift));
    return n < UNREAD;
}

void admit_count(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_sketch *s = &t->admission.sketch;
    uint64_t hash = mix(block ^ t->seed), n;
    unsigned least = admit_frequency(t, block), shift;

    for (unsigned i = 0; least < 15 && i < ROWS; i++) {
        _Atomic uint64_t *word = counter(s, hash, i, &shift);
        uint64_t was = atomic_load_explicit(word, memory_order_relaxed);

        if ((was >> shift & 15) == least) /* else it is another block's, too */
            atomic_compare_exchange_strong(word, &was, was + (UINT64_C(1) << shift));
    }
    if (t->admission.unread)
        read_again(t, hash);
    if (t->config.admit == QM_TIER_ADMIT_AUTO)
        reuse_read(t, block);
    n = atomic_fetch_add_explicit(&s->accesses, 1, memory_order_relaxed) + 1;
    if (n == s->sample) {
        for (uint64_t i = 0; i < ROWS * s->row; i++) {
            uint64_t was = atomic_load_explicit(&s->words[i], memory_order_relaxed);

            atomic_store_explicit(&s->words[i], was >> 1 & UINT64_C(0x7777777777777777),
                                  memory_order_relaxed);
        }
        atomic_fetch_sub(&s->accesses, s->sample / 2);
        atomic_store(&t->admission.leaving, atomic_load(&t->admission.leaving) / 2);
    }
}

void qm_tier_touch(struct qm_tier *t, uint64_t block)
{
    struct slot s;

    admit_count(t, block);
    if (index_find(t, block, &s)) {
        (void)index_confirm(t, &s, true);
        unpin(t, &s);
    }
}

static void refill(struct qm_tier *t)
{
    struct qm_tier_admission *a = &t->admission;
    uint64_t now = tier_now(t), passed = now - a->refilled;
    double more = (double)passed * (double)t->config.write_rate / (double)DAY_NS;

    if (more < 1)
        return;
    a->refilled = now;
    a->tokens =
        more >= (double)(a->burst - a->tokens) ? a->burst : a->tokens + (int64_t)more;
}

void admit_learn(struct qm_tier *t, uint32_t sum, uint32_t n)
{
    uint32_t was = atomic_load(&t->admission.leaving), now = 16 * sum / n;

    atomic_store(&t->admission.leaving, was ? (7 * was + now) / 8 : now);
}

void admit_pay(struct qm_tier *t, uint64_t bytes)
{
    if (t->config.write_rate == 0)
        return;
    pthread_mutex_lock(&t->admission.lock);
    t->admission.tokens -= (int64_t)bytes;
    pthread_mutex_unlock(&t->admission.lock);
}

void admit_offered(struct qm_tier *t, const struct qm_tier_insert *insert)
{
    unsigned frequency = insert->frequency;

    if (t->config.admit != QM_TIER_ADMIT_AUTO || insert->scan ||
        atomic_load_explicit(&t->filled, memory_order_relaxed) == 0)
        return;
    if (frequency == QM_TIER_FREQUENCY_UNKNOWN)
        frequency = admit_frequency(t, insert->block);
    if (frequency < EARNED)
        reuse_offered(t, insert->block, frequency, atomic_load(&t->admission.leaving));
}

int admit_decide(struct qm_tier *t, uint64_t block, uint32_t frequency, bool scan,
                 bool *was_scan)
{
    unsigned threshold = 2, leaving;

    *was_scan = false;
    if (t->config.admit == QM_TIER_ADMIT_NONE)
        return EPERM;
    if (t->config.write_rate > 0) {
        int64_t tokens;

        pthread_mutex_lock(&t->admission.lock);
        refill(t);
        tokens = t->admission.tokens;
        pthread_mutex_unlock(&t->admission.lock);
        if (tokens <= 0)
            return EDQUOT;
        if (tokens < t->admission.burst / 2)
            threshold = 3;
    }
    if (t->config.admit == QM_TIER_ADMIT_ALL)
        return 0;
    if (scan) {
        *was_scan = true;
        return EPERM;
    }
    if (atomic_load_explicit(&t->filled, memory_order_relaxed) == 0 && threshold == 2)
        return 0;
    if (frequency == QM_TIER_FREQUENCY_UNKNOWN)
        frequency = admit_frequency(t, block);
    if (frequency < threshold)
        return EPERM;
    if (frequency >= EARNED)
        return 0;
    leaving = atomic_load(&t->admission.leaving);
    return reuse_admit(t, block, frequency, leaving, 16 * frequency > leaving + MARGIN)
               ? 0
               : EPERM;
}

/* ---- Bloom filter
 * --------------------------------------------------------------------- */

/* Double hashing: Kirsch & Mitzenmacher, "Less Hashing, Same Performance", 2006. */
static uint64_t bit(const struct qm_tier_bloom *b, uint64_t hash, unsigned i)
{
    uint64_t h = hash + i * (mix(hash) | 1);

    return (uint64_t)(((unsigned __int128)h * b->bits) >> 64);
}

static void add(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_bloom *b = &t->admission.bloom;
    uint64_t hash = mix(block ^ t->seed);

    for (unsigned i = 0; i < b->functions; i++) {
        uint64_t at = bit(b, hash, i);

        atomic_fetch_or_explicit(&b->words[at / 64], UINT64_C(1) << (at % 64),
                                 memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&b->added, 1, memory_order_relaxed);
}

void admit_bloom_add(struct qm_tier *t, uint64_t block)
{
    if (t->admission.bloom.words)
        add(t, block);
}

bool admit_bloom_may_have(struct qm_tier *t, uint64_t block)
{
    const struct qm_tier_bloom *b = &t->admission.bloom;
    uint64_t hash = mix(block ^ t->seed);

    for (unsigned i = 0; b->words && i < b->functions; i++) {
        uint64_t at = bit(b, hash, i);

        if (!(atomic_load_explicit(&b->words[at / 64], memory_order_relaxed) >>
                  (at % 64) &
              1))
            return false;
    }
    return true;
}

static void add_slot(void *opaque, const struct slot *s)
{
    add(opaque, s->block);
}

/* By one thread, the log's.  A block that is added meanwhile is in the index when its
 * shard is looked at, or sets its bits after they were cleared. */
void admit_bloom_refresh(struct qm_tier *t)
{
    struct qm_tier_bloom *b = &t->admission.bloom;

    if (!b->words || atomic_load(&b->added) < b->room)
        return;
    atomic_store(&b->added, 0);
    for (uint64_t i = 0; i < (b->bits + 63) / 64; i++)
        atomic_store(&b->words[i], 0);
    index_each(t, add_slot, t);
}
