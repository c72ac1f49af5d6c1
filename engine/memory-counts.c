/* SPDX-License-Identifier: BSD-3-Clause */
/* memory-counts.c - see memory-counts.h; memory.c says what is compared. */
#include "engine/memory-counts.h"

#define PRICE_MOST 1.0 /* misses */

/* Where a plain cache misses one of MUCH demands itself, and ours still more, that may
 * be the eviction's fault: where what is hot moves, one that goes by frequency misses a
 * fifth more than LRU for a time.  Then an EXPLAINED part of the difference must be
 * explained by what was taken from the cache.  Where a plain cache misses little, as of
 * what just fits, its sample is too small to say how much that explains. */
#define MUCH      4
#define EXPLAINED 0.5

/* How long a prefetched block that is not used waits until it is evicted, as a multiple
 * of how long one that is used waits (cache/balance.h). */
#define WAITS_UNUSED 4

/* The part of a read's time that a prefetched block saves if it is used. */
static double saved(const struct qm_memory *m)
{
    const struct qm_admission *a = m->config.admission;

    return a ? (double)atomic_load_explicit(&a->saved, memory_order_relaxed) : 1;
}

/* What would have come of reading what is watched. */
static void count_watched(const struct qm_memory *m, struct qm_memory_counts *c)
{
    struct qm_watch_counts now;
    double uses, waited;

    qm_watch_get(&m->config.bound->watch, &now);
    uses = (double)(now.uses - m->watched.uses);
    waited = (double)(now.waited - m->watched.waited);
    c->saved = now.used - m->watched.used;
    c->wasted = now.unused - m->watched.unused;
    if (uses > 0)
        waited += (double)c->wasted * WAITS_UNUSED * waited / uses;
    /* How many wait at a time: the sum of their waits, in misses, by all misses
     * (Little's law). */
    c->held = c->misses > 0 ? waited / (double)c->misses : 0;
}

struct qm_memory_counts qm_memory_count(const struct qm_memory *m)
{
    struct qm_memory_counts c;
    struct qm_cache_reads reads;
    struct qm_cache_stats cache;
    struct qm_mining_stats stats;

    qm_cache_get_reads(m->config.cache, &reads);
    qm_cache_get_stats(m->config.cache, &cache);
    m->config.prefetcher->ops->stats(m->config.prefetcher, &stats);
    c = (struct qm_memory_counts){
        .misses = reads.misses - m->misses,
        .hits = reads.prefetch_hits - m->hits,
        .plain = reads.plain - m->plain,
        .lru = reads.lru - m->lru,
        .compared = reads.lru > 0,
        .demands = cache.hits + cache.prefetch_hits + cache.misses - m->demands,
        .wasted = cache.wasted - m->wasted,
        .held = (double)cache.prefetch_blocks,
        .marginal = stats.marginal - m->marginal,
        .gain = reads.gain - m->gain,
        .rules_bytes = stats.rules_bytes,
        .full = cache.evicted > 0,
    };
    c.placed = c.hits + c.wasted;
    c.saved = saved(m) * (double)c.hits;
    if (m->watching)
        count_watched(m, &c);
    return c;
}

void qm_memory_count_anew(struct qm_memory *m, const struct qm_memory_counts *c)
{
    struct qm_cache_stats cache;

    qm_cache_get_stats(m->config.cache, &cache);
    m->misses += c->misses;
    m->hits += c->hits;
    m->plain += c->plain;
    m->lru += c->lru;
    m->demands += c->demands;
    m->wasted = cache.wasted;
    m->marginal += c->marginal;
    m->gain += c->gain;
    if (m->config.bound)
        qm_watch_get(&m->config.bound->watch, &m->watched);
    m->quiet = 0;
    m->held = m->price = 0;
    m->ticks = 0;
}

/* Misses that rules' memory and the places of prefetched blocks can explain.  A block
 * takes the place of another, which is missed once at most before it is back. */
static double explained(const struct qm_memory_counts *c)
{
    return (double)c->lru - (double)c->plain + (double)c->placed;
}

bool qm_memory_is_vain(const struct qm_memory_counts *c, unsigned part, unsigned least)
{
    if (!c->compared || c->misses <= c->plain + c->plain / part + least ||
        c->hits >= c->misses)
        return false;
    return c->plain < c->demands / MUCH ||
           explained(c) >= EXPLAINED * (double)(c->misses - c->plain);
}

double qm_memory_missed(const struct qm_memory_counts *c)
{
    return (double)(c->misses + c->hits) / (double)c->demands;
}

/* Of the probability from which on a read is worth it (admission.h). */
double qm_memory_price(const struct qm_memory *m)
{
    double p = m->config.admission ? qm_admission_threshold(m->config.admission) : 0;
    double cost = saved(m) * p / (1 - p);

    return cost < PRICE_MOST ? cost : PRICE_MOST;
}

double qm_memory_places(const struct qm_memory_counts *c, double part)
{
    return c->gain > 0 ? c->gain * QM_CACHE_GAIN_PART * part : 0;
}

bool qm_memory_is_dear(const struct qm_memory *m, const struct qm_memory_counts *c,
                       uint64_t blocks, double times)
{
    const double held = m->watching ? c->held : m->held / m->ticks;
    const double taken = held + (double)c->rules_bytes / m->config.block_size;
    const double places = qm_memory_places(c, taken / (double)blocks);
    const double reads = (double)c->wasted * m->price / m->ticks;

    return times * c->saved < places + reads;
}
