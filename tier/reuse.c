/* SPDX-License-Identifier: BSD-3-Clause */
/* reuse.c - see reuse.h. */
#include "tier/reuse.h"

#include "tier/internal.h"

/* Chosen on recordings (bench/tier --workloads). */
#define HORIZON_CAPACITIES 4  /* reads that a sample is watched for, in capacities */
#define READS_MOST         3  /* reads of a sample that count */
#define WRITE_COST_READS   .2 /* reads of a block that a write of it must save */
#define EXPLORE            16 /* of this many blocks, the frequency alone decides one */
#define ENOUGH             16 /* samples of a kind, to judge by */
#define OF_LATE            256 /* samples that its mean remembers */

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* Of a large tier fewer are in the sample, so that a sample's place is its own until it
 * has been watched for long enough. */
void reuse_size(struct qm_tier *t)
{
    uint64_t capacity = (uint64_t)t->g.slots * t->g.segments;
    uint64_t one_in = 4 * capacity / REUSE_SAMPLES;

    atomic_store(&t->reuse.one_in, one_in < 1 ? 1 : one_in);
    atomic_store(&t->reuse.horizon, HORIZON_CAPACITIES * capacity);
}

/* Where block is in the sample, NULL: it is not of it. */
static struct reuse_sample *sampled(struct qm_tier *t, uint64_t block)
{
    uint64_t h = mix(block ^ t->seed);
    uint64_t one_in = atomic_load_explicit(&t->reuse.one_in, memory_order_relaxed);

    return (h >> 32) % one_in == 0 ? &t->reuse.samples[h & (REUSE_SAMPLES - 1)] : NULL;
}

/* With the lock.  Whether a sample is still watched; if it is no more, its place is
 * free and what became of it is learned.  now: the clock, since the lock was taken. */
static bool is_watched(struct qm_tier *t, struct reuse_sample *s, uint64_t now)
{
    struct reuse *r = &t->reuse;
    double mean;
    uint64_t n;

    if (s->block == 0)
        return false;
    if (now - s->since <= atomic_load_explicit(&r->horizon, memory_order_relaxed))
        return true;
    mean = atomic_load_explicit(&r->mean[s->kind], memory_order_relaxed);
    n = atomic_fetch_add_explicit(&r->learned[s->kind], 1, memory_order_relaxed) + 1;
    mean += (s->reads - mean) / (double)(n < OF_LATE ? n : OF_LATE);
    atomic_store_explicit(&r->mean[s->kind], mean, memory_order_relaxed);
    s->block = 0;
    return false;
}

void reuse_read(struct qm_tier *t, uint64_t block)
{
    struct reuse *r = &t->reuse;
    struct reuse_sample *s = sampled(t, block);

    atomic_fetch_add_explicit(&r->clock, 1, memory_order_relaxed);
    if (!s || atomic_load_explicit(&s->block, memory_order_relaxed) != block + 1)
        return;
    pthread_mutex_lock(&r->lock);
    if (is_watched(t, s, atomic_load(&r->clock)) && s->block == block + 1 &&
        s->reads < READS_MOST)
        s->reads++;
    pthread_mutex_unlock(&r->lock);
}

static void watch(struct qm_tier *t, uint64_t block, unsigned kind)
{
    struct reuse *r = &t->reuse;
    struct reuse_sample *s = sampled(t, block);
    uint64_t now;

    if (!s)
        return;
    pthread_mutex_lock(&r->lock);
    now = atomic_load(&r->clock);
    if (!is_watched(t, s, now)) {
        s->since = now;
        s->kind = (uint8_t)kind;
        s->reads = 0;
        s->block = block + 1;
    }
    pthread_mutex_unlock(&r->lock);
}

/* Bounds in 16ths of an access. */
static unsigned kind_of(unsigned frequency, unsigned leaving)
{
    static const unsigned bounds[REUSE_KINDS - 1] = {0, 4, 8, 16, 24, 32, 48, 80};
    unsigned kind = 0;

    while (frequency >= 2 && kind < REUSE_KINDS - 1 &&
           16 * frequency > leaving + bounds[kind])
        kind++;
    return kind;
}

void reuse_offered(struct qm_tier *t, uint64_t block, unsigned frequency,
                   unsigned leaving)
{
    watch(t, block, kind_of(frequency, leaving));
}

void reuse_left(struct qm_tier *t, uint64_t block)
{
    if (t->config.admit == QM_TIER_ADMIT_AUTO)
        watch(t, block, REUSE_KINDS);
}

/* Others each time that a horizon has passed. */
static bool is_explored(struct qm_tier *t, uint64_t block)
{
    uint64_t turn = atomic_load_explicit(&t->reuse.clock, memory_order_relaxed) /
                    atomic_load_explicit(&t->reuse.horizon, memory_order_relaxed);

    return (mix(block ^ mix(turn + 1)) >> 32) % EXPLORE == 0;
}

static bool is_known(const struct reuse *r, unsigned kind)
{
    return atomic_load_explicit(&r->learned[kind], memory_order_relaxed) >= ENOUGH;
}

static double reuse_of(const struct reuse *r, unsigned kind)
{
    return atomic_load_explicit(&r->mean[kind], memory_order_relaxed);
}

bool reuse_admit(struct qm_tier *t, uint64_t block, unsigned frequency,
                 unsigned leaving, bool otherwise)
{
    const struct reuse *r = &t->reuse;
    unsigned kind = kind_of(frequency, leaving);

    if (!is_known(r, kind) || !is_known(r, REUSE_KINDS) || is_explored(t, block))
        return otherwise;
    return reuse_of(r, kind) > reuse_of(r, REUSE_KINDS) + WRITE_COST_READS;
}
