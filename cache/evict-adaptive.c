/* SPDX-License-Identifier: BSD-3-Clause */
/* evict-adaptive.c - does what the best of five policies would have done of late.
 *
 * No policy is the best for every workload and size: a scan ruins LRU, frequencies keep
 * a hot set that moves out.  So W-TinyLFU, LRU, ARC and S3-FIFO run on a small sample
 * of the blocks, in caches that are smaller by as much (evict-mini.h), and one of them
 * is in use for the blocks themselves.
 *
 * W-TinyLFU is there twice.  The first's small cache has a window of one block, since
 * databases, which hardly ever read a block again soon, need no more.  Its own window
 * yields until it has one block, too, unless what is prefetched and used refills it, up
 * to WINDOW percent of the blocks: each prefetch evicts a block of it, and of one block
 * nothing would remain until its next use.  The second's window keeps WIDE percent, for
 * programs that read files.
 *
 * The regret of each other one is how many misses fewer it would have had in the sample
 * than the one in use.  It grows by 1 if that one misses and the other does not,
 * shrinks by 1 the other way round, and by DRIFT with each miss of the one in use; not
 * below 0 (Page's CUSUM test, Biometrika 41, 1954).  When a regret exceeds a share of
 * the sample's size, that policy takes over, and all regrets begin at 0.  So a policy
 * that is worse for good costs a bounded number of misses, however little it is worse.
 * Of two that are as good in the long run, each is ahead now and then, and a change
 * costs misses until the hot blocks have come back: so each change doubles the share,
 * and it falls back slowly.  The first change is the easiest, since nothing speaks for
 * the policy that happens to be in use then.  But a regret has to exceed its noise,
 * too: if both policies were as good, each demand that one of them hits and the other
 * does not would be a toss of a coin, and the regret has to be NOISE standard
 * deviations of as many tosses (McNemar's test, Psychometrika 12, 1947).
 *
 * The small cache of the policy in use may be in another state than that policy:
 * S3-FIFO that has taken over a cache full of other blocks keeps these, and a small one
 * that began empty does not.  So the blocks themselves are compared, too: if the policy
 * in use misses what its small cache hits more often than it hits, by LAG times the
 * share above, the candidate that hits the most of these takes over.
 *
 * When a policy takes over, all blocks move to it, those that are worth the least
 * first.  What it needs to know is there already: W-TinyLFU's sketch, and the ghosts,
 * which ARC and S3-FIFO share, are kept up at all times.  A change takes some 50 ns a
 * block of the shard, with its lock held.
 *
 * Another small cache, of the policy in use, is larger by an eighth: the demands of the
 * sample that hit it and not the one of its size say what more memory would be worth
 * (gain()).
 *
 * All small caches are for what the blocks have for sure (assured()): what they have
 * beside that lasts only as long as little is prefetched.
 *
 * A touch or an entry costs what the policy in use takes, a hash and the sketch; of a
 * block in the sample, also a look-up in each of the small caches.  All memory is taken
 * when the policy is made, or reserved.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cache/evict-all.h"
#include "cache/evict-ghosts.h"
#include "cache/evict-mini.h"
#include "cache/evict-wtinylfu.h"
#include "cache/hash.h"

/* Percent of the blocks, of W-TinyLFU's windows. */
#define WINDOW 3
#define WIDE   10

/* What can be in use; the first is, to begin with. */
static const struct candidate {
    const struct qm_evict_ops *ops;
    unsigned window, sampled; /* percent, of W-TinyLFU and of its small cache */
    bool keeps, yields;
} candidates[] = {
    {&qm_evict_wtinylfu, WINDOW, 0, false, true},
    {&qm_evict_lru, 0, 0, false, false},
    {&qm_evict_arc, 0, 0, false, false},
    {&qm_evict_s3fifo, 0, 0, false, false},
    {&qm_evict_wtinylfu, WIDE, WIDE, true, false},
};

#define CANDIDATES (sizeof(candidates) / sizeof(candidates[0]))

/* A sample's cache has a quarter of the blocks, up to SAMPLE_MOST, or a sixteenth if
 * that is more. */
#define SAMPLE_MOST 512

/* By such a part the small cache is larger that says what more memory is worth. */
#define LARGER QM_EVICT_GAIN_PART

/* Of a hash, these bits choose the sample: they choose neither the shard nor the
 * bucket. */
#define HASH_BITS  20
#define HASH_SHIFT (64 - HASH_BITS)
#define ONE        (UINT64_C(1) << HASH_BITS)

/* The regret at which another policy takes over: as a share of the sample's cache or of
 * what the one in use missed of late, if that is more, both times the reluctance; and
 * at least.  Found by trying.  The first counts where misses are few, and each of a
 * change matters; the second, where they are many, and the few blocks that are hit take
 * long to come back after a change. */
#define REGRET       0.03
#define REGRET_MISS  0.005
#define REGRET_LEAST 6
#define DRIFT        0.01

/* The regret must also be as many standard deviations of a difference that is only
 * noise. */
#define NOISE 3

/* The lag at which another policy takes over, as a multiple of the regret that would
 * do. */
#define LAG       16
#define LAG_LEAST 64 /* blocks of the small cache: smaller ones always differ */

/* Reluctance: at first, by how much it grows with a change, at most. */
#define RELUCTANCE      0.3
#define RELUCTANCE_GROW 2
#define RELUCTANCE_MOST 32

/* "Of late" is as many demands for each block of the sample's cache: of the misses, and
 * for the reluctance to fall back to 1. */
#define LATE 200

/* What a block's sketch says if it came more than once of late. */
#define FREQUENT 2

/* The queues of ghosts, as ARC calls them: seen once, and again. */
enum { B1 = 0, B2 = 1 };

struct adaptive {
    unsigned active;
    void *policies[CANDIDATES]; /* those not in use are empty */
    uint64_t capacity;          /* of late, of the blocks themselves */
    uint64_t assured;           /* that the small caches are samples of */
    struct qm_sketch sketch;
    struct qm_ghosts *ghosts;

    uint64_t below; /* a block is in the sample if its hash is */
    uint64_t most;  /* blocks that the small caches can have */
    double missed;  /* demands of the sample, of late, by the one in use */
    struct qm_sketch sample_sketch;
    struct qm_mini *minis[CANDIDATES];
    struct qm_mini *larger; /* of the policy in use */
    int64_t gain;           /* of the sample's demands, hits that it had more */
    double gained;          /* the same of all, with samples that were others */
    uint64_t alone;         /* of the sample's demands, misses of the policy in use */
    double missed_alone;    /* as gained */
    double regret[CANDIDATES];
    double differed[CANDIDATES]; /* demands that it hit and the one in use did not, or
                                    the reverse, since its regret was 0 */
    double lag[CANDIDATES]; /* hits of each that the policy in use missed, less its own:
                               it may have come into a state that its small cache is not
                               in */
    double reluctance;
};

/* The blocks of a sample's cache, if it is a part of the sample's hashes. */
static uint64_t sample_blocks(uint64_t capacity)
{
    uint64_t n = capacity / 4 < SAMPLE_MOST ? capacity / 4 : SAMPLE_MOST;

    if (n < capacity / 16)
        n = capacity / 16;
    return n > 0 ? n : 1;
}

static uint64_t below_of(uint64_t capacity)
{
    return capacity > 0 ? sample_blocks(capacity) * ONE / capacity : ONE;
}

/* The sample's cache beside one of that many blocks. */
static uint64_t sample_of(uint64_t capacity, uint64_t below)
{
    uint64_t n = (capacity * below + ONE / 2) / ONE;

    return n > 0 ? n : 1;
}

static uint64_t larger_than(uint64_t sample)
{
    return sample + sample / LARGER + 1;
}

static bool has_ghosts(const struct qm_evict_ops *ops)
{
    return ops == &qm_evict_arc || ops == &qm_evict_s3fifo;
}

static void adaptive_destroy(void *policy)
{
    struct adaptive *a = policy;

    for (unsigned i = 0; i < CANDIDATES; i++) {
        if (a->policies[i])
            candidates[i].ops->destroy(a->policies[i]);
        qm_mini_free(a->minis[i]);
    }
    qm_mini_free(a->larger);
    qm_ghosts_free(a->ghosts);
    qm_sketch_destroy(&a->sketch);
    qm_sketch_destroy(&a->sample_sketch);
    free(a);
}

static struct qm_mini *new_mini(struct adaptive *a, unsigned i, uint64_t blocks)
{
    const struct candidate *c = &candidates[i];
    struct qm_wtinylfu_config sampled = {c->sampled, c->keeps, false,
                                         &a->sample_sketch};

    return qm_mini_new(c->ops, c->ops == &qm_evict_wtinylfu ? &sampled : NULL, blocks);
}

/* A candidate's policy for the blocks themselves, and its small cache. */
static bool make(struct adaptive *a, unsigned i, uint64_t sample)
{
    const struct qm_evict_ops *ops = candidates[i].ops;
    struct qm_wtinylfu_config own = {candidates[i].window, candidates[i].keeps,
                                     candidates[i].yields, &a->sketch};

    if (ops == &qm_evict_wtinylfu)
        a->policies[i] = ops->create_for(a->capacity, &own);
    else
        a->policies[i] = has_ghosts(ops) ? ops->create_for(a->capacity, a->ghosts)
                                         : ops->create(a->capacity);
    a->minis[i] = new_mini(a, i, sample);
    return a->policies[i] && a->minis[i];
}

static void *adaptive_create(uint64_t capacity)
{
    struct adaptive *a = calloc(1, sizeof(*a));
    uint64_t sample;
    bool ok;

    if (!a)
        return NULL;
    a->capacity = a->assured = capacity;
    a->reluctance = RELUCTANCE;
    a->below = below_of(capacity);
    a->most = sample = sample_of(capacity, a->below);
    a->ghosts = qm_ghosts_new(capacity);
    ok = a->ghosts && qm_sketch_init(&a->sketch, capacity) == 0 &&
         qm_sketch_init(&a->sample_sketch, sample) == 0;
    for (unsigned i = 0; i < CANDIDATES && ok; i++)
        ok = make(a, i, sample);
    if (ok && (a->larger = new_mini(a, a->active, larger_than(sample))))
        return a;
    adaptive_destroy(a);
    return NULL;
}

static void adaptive_resize(void *policy, uint64_t capacity)
{
    struct adaptive *a = policy;

    a->capacity = capacity;
    qm_sketch_resize(&a->sketch, capacity);
    for (unsigned i = 0; i < CANDIDATES; i++)
        if (candidates[i].ops->resize)
            candidates[i].ops->resize(a->policies[i], capacity);
}

static uint64_t sample_now(const struct adaptive *a)
{
    uint64_t sample = sample_of(a->assured, a->below);

    return sample < a->most ? sample : a->most;
}

static void adaptive_assured(void *policy, uint64_t capacity)
{
    struct adaptive *a = policy;
    uint64_t sample;

    a->assured = capacity;
    sample = sample_now(a);
    qm_sketch_resize(&a->sample_sketch, sample);
    for (unsigned i = 0; i < CANDIDATES; i++)
        qm_mini_resize(a->minis[i], sample);
    qm_mini_resize(a->larger, larger_than(sample));
}

/* Where the sample is of fewer hashes afterwards, what is in the small caches of the
 * others leaves them, as nobody asks for it. */
static int adaptive_reserve(void *policy, uint64_t capacity)
{
    struct adaptive *a = policy;
    uint64_t below = below_of(capacity), sample = sample_of(capacity, below);
    bool ok = qm_ghosts_reserve(a->ghosts, capacity) == 0 &&
              qm_sketch_reserve(&a->sketch, capacity) == 0 &&
              qm_sketch_reserve(&a->sample_sketch, sample) == 0;

    if (sample < a->most)
        a->most = sample;
    for (unsigned i = 0; i < CANDIDATES && ok; i++)
        ok = qm_mini_reserve(a->minis[i], sample) == 0;
    ok = ok && qm_mini_reserve(a->larger, larger_than(sample)) == 0;
    if (ok) {
        a->gained += (double)a->gain * (double)ONE / (double)a->below;
        a->gain = 0;
        a->missed_alone += (double)a->alone * (double)ONE / (double)a->below;
        a->alone = 0;
        a->most = sample;
        a->below = below;
    }
    adaptive_resize(a, a->capacity);
    adaptive_assured(a, a->assured);
    return ok ? 0 : ENOMEM;
}

static bool is_frequent(const struct adaptive *a, uint64_t block)
{
    return qm_sketch_estimate(&a->sketch, block) >= FREQUENT;
}

/* A policy that knows no ghosts gave up a block: others may want to know. */
static void remember(struct adaptive *a, uint64_t block)
{
    uint64_t once = qm_ghosts_count(a->ghosts, B1);
    uint64_t again = qm_ghosts_count(a->ghosts, B2);

    if (a->capacity == 0)
        return;
    if (once + again >= a->capacity)
        qm_ghosts_drop(a->ghosts, once >= again ? B1 : B2);
    qm_ghosts_add(a->ghosts, is_frequent(a, block) ? B2 : B1, block);
}

/* The larger small cache is of the policy in use.  Without memory for another, it stays
 * what it is, and what it says is less true. */
static void take_over_larger(struct adaptive *a)
{
    struct qm_mini *larger = new_mini(a, a->active, larger_than(a->most));

    if (!larger)
        return;
    qm_mini_resize(larger, larger_than(sample_now(a)));
    qm_mini_hand_over(a->larger, larger);
    qm_mini_free(a->larger);
    a->larger = larger;
}

static void take_over(struct adaptive *a, unsigned to)
{
    const struct qm_evict_ops *from = candidates[a->active].ops;
    const struct qm_evict_ops *ops = candidates[to].ops;
    struct qm_evict_node *node;
    bool again;

    while (ops == &qm_evict_s3fifo && qm_ghosts_count(a->ghosts, B2) > 0)
        qm_ghosts_drop(a->ghosts, B2); /* it knows one queue of ghosts */
    while ((node = from->yield(a->policies[a->active], &again))) {
        if (from == &qm_evict_lru)
            again = is_frequent(a, node->block);
        ops->admit(a->policies[to], node, again);
    }
    a->active = to;
    take_over_larger(a);
    a->reluctance *= RELUCTANCE_GROW;
    if (a->reluctance > RELUCTANCE_MOST)
        a->reluctance = RELUCTANCE_MOST;
    for (unsigned i = 0; i < CANDIDATES; i++)
        a->regret[i] = a->differed[i] = a->lag[i] = 0;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* The candidate with the greatest regret, after a demand of the sample that those hit.
 */
static unsigned regret(struct adaptive *a, const bool hit[CANDIDATES])
{
    unsigned best = a->active;

    for (unsigned i = 0; i < CANDIDATES; i++) {
        a->regret[i] += hit[i] - hit[a->active] - (hit[a->active] ? 0 : DRIFT);
        a->differed[i] += hit[i] != hit[a->active];
        if (i == a->active || a->regret[i] <= 0)
            a->regret[i] = a->differed[i] = 0;
        if (a->regret[i] > a->regret[best])
            best = i;
    }
    return best;
}

static bool is_noise(const struct adaptive *a, unsigned i)
{
    return a->regret[i] * a->regret[i] <= (double)NOISE * NOISE * a->differed[i];
}

/* The other candidate that lags the most, if the policy in use does by `enough`: its
 * small cache hits what it misses itself. */
static unsigned lag(struct adaptive *a, const bool hit[CANDIDATES], bool real,
                    double enough)
{
    unsigned best = a->active;

    for (unsigned i = 0; i < CANDIDATES; i++) {
        a->lag[i] += real ? -1 : hit[i] ? 1 : -DRIFT;
        if (a->lag[i] < 0)
            a->lag[i] = 0;
    }
    if (a->lag[a->active] < enough)
        return best;
    for (unsigned i = 0; i < CANDIDATES; i++)
        if (i != a->active && a->lag[i] > enough / 2 &&
            (best == a->active || a->lag[i] > a->lag[best]))
            best = i;
    return best;
}

/* Tells the small caches of a demand, and acts on it.  real: the block was there. */
static void sample(struct adaptive *a, uint64_t block, bool real)
{
    bool hit[CANDIDATES];
    unsigned best;
    double size, enough;

    if (qm_hash(block) >> HASH_SHIFT >= a->below)
        return;
    qm_sketch_count(&a->sample_sketch, block);
    for (unsigned i = 0; i < CANDIDATES; i++)
        hit[i] = qm_mini_demand(a->minis[i], block);
    a->gain += qm_mini_demand(a->larger, block) - hit[a->active];
    a->alone += !hit[a->active];
    best = regret(a, hit);
    size = (double)sample_of(a->assured, a->below);
    a->reluctance += (1 - a->reluctance) / (LATE * size);
    a->missed += !hit[a->active] - a->missed / (LATE * size);
    enough = a->reluctance * most(REGRET * size, REGRET_MISS * a->missed);
    enough = most(enough, REGRET_LEAST);
    if (a->regret[best] <= enough || is_noise(a, best))
        best = size < LAG_LEAST ? a->active : lag(a, hit, real, enough * LAG);
    if (best != a->active)
        take_over(a, best);
}

static void adaptive_insert(void *policy, struct qm_evict_node *node)
{
    struct adaptive *a = policy;

    qm_sketch_count(&a->sketch, node->block);
    if (!has_ghosts(candidates[a->active].ops))
        qm_ghosts_take(a->ghosts, node->block);
    candidates[a->active].ops->insert(a->policies[a->active], node);
    sample(a, node->block, false);
}

static void adaptive_touch(void *policy, struct qm_evict_node *node)
{
    struct adaptive *a = policy;

    qm_sketch_count(&a->sketch, node->block);
    candidates[a->active].ops->touch(a->policies[a->active], node);
    sample(a, node->block, true);
}

static void adaptive_remove(void *policy, struct qm_evict_node *node)
{
    struct adaptive *a = policy;

    candidates[a->active].ops->remove(a->policies[a->active], node);
}

static struct qm_evict_node *adaptive_evict(void *policy, uint64_t incoming)
{
    struct adaptive *a = policy;
    const struct qm_evict_ops *ops = candidates[a->active].ops;
    struct qm_evict_node *node = ops->evict(a->policies[a->active], incoming);

    if (node && !has_ghosts(ops))
        remember(a, node->block);
    return node;
}

/* Beside what is for each block: what the candidates and their small caches have, and
 * an allocator's share of some 40 blocks of memory. */
#define FIXED_BYTES 4096

static size_t adaptive_bytes(uint64_t capacity)
{
    return FIXED_BYTES + capacity * (QM_GHOST_BYTES + QM_SKETCH_BYTES) +
           (sample_blocks(capacity) + 1) *
               ((uint64_t)CANDIDATES * QM_MINI_BYTES + UINT64_C(2) * QM_GHOST_BYTES +
                QM_SKETCH_BYTES) +
           2 * larger_than(sample_blocks(capacity) + 1) *
               (QM_MINI_BYTES + QM_GHOST_BYTES);
}

static double adaptive_gain(void *policy)
{
    struct adaptive *a = policy;

    return a->gained + (double)a->gain * (double)ONE / (double)a->below;
}

static double adaptive_alone(void *policy)
{
    struct adaptive *a = policy;

    return a->missed_alone + (double)a->alone * (double)ONE / (double)a->below;
}

const struct qm_evict_ops qm_evict_adaptive = {
    .name = "adaptive",
    .create = adaptive_create,
    .resize = adaptive_resize,
    .assured = adaptive_assured,
    .reserve = adaptive_reserve,
    .destroy = adaptive_destroy,
    .insert = adaptive_insert,
    .touch = adaptive_touch,
    .remove = adaptive_remove,
    .evict = adaptive_evict,
    .gain = adaptive_gain,
    .alone = adaptive_alone,
    .bytes = adaptive_bytes,
};
