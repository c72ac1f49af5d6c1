/* SPDX-License-Identifier: BSD-3-Clause */
/* test-adaptive.c - the eviction policy that follows the best of others, and the small
 * caches by which it knows: what they miss, and that no block is lost on the way. */
#include <inttypes.h>
#include <stdio.h>

#include "cache/evict-mini.h"
#include "cache/eviction.h"
#include "traces.h"

static const char *const others[] = {"lru", "arc", "s3fifo", "wtinylfu"};

#define OTHERS (sizeof(others) / sizeof(others[0]))

static const struct phase kinds[] = {
    {SKEWED, 0, 20000, 0}, {SCANNING, 0, 4000, 0}, {LOOPING, 0, 1250, 0},
    {MOVING, 0, 900, 0},   {UNIFORM, 0, 3000, 0},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The misses of a policy with `blocks` blocks, n accesses to each of these kinds. */
static uint64_t misses_from(uint64_t seed, const char *name, uint64_t blocks,
                            const struct phase *phases, size_t count, size_t n)
{
    struct qm_mini *cache = qm_mini_new(qm_evict_find(name), NULL, blocks);
    uint64_t missed = 0;

    assert_non_null(cache);
    for (size_t k = 0; k < count; k++) {
        struct phase phase = phases[k];

        phase.base = k << 32;
        for (size_t i = 0; i < n; i++)
            missed += !qm_mini_demand(cache, next_block(&phase, &seed));
    }
    qm_mini_free(cache);
    return missed;
}

static uint64_t misses(const char *name, uint64_t blocks, const struct phase *phases,
                       size_t count, size_t n)
{
    return misses_from(1, name, blocks, phases, count, n);
}

static uint64_t best_from(uint64_t seed, uint64_t blocks, const struct phase *phases,
                          size_t count, size_t n)
{
    uint64_t best = UINT64_MAX;

    for (size_t i = 0; i < OTHERS; i++) {
        uint64_t m = misses_from(seed, others[i], blocks, phases, count, n);

        if (m < best)
            best = m;
    }
    return best;
}

static uint64_t best_of_others(uint64_t blocks, const struct phase *phases,
                               size_t count, size_t n)
{
    return best_from(1, blocks, phases, count, n);
}

/* A small cache is a cache: it misses what the real one does. */
TEST(test_mini)
{
    for (size_t i = 0; i < OTHERS; i++) {
        struct qm_cache *cache = new_cache(&(struct qm_cache_config){
            .block_size = 4096, .blocks = 100, .shards = 1, .eviction = others[i]});
        struct phase phase = {SCANNING, 0, 4000, 0};
        uint64_t seed = 1;

        for (size_t k = 0; k < 20000; k++) {
            struct qm_lookup found;

            assert_int_equal(
                qm_cache_demand(cache, next_block(&phase, &seed), NULL, 0, 1, &found),
                0);
            if (found.todo == QM_FETCH)
                qm_cache_fill(cache, found.fill, NULL);
        }
        assert_int_equal(
            stats_of(cache).misses,
            misses(others[i], 100, &(struct phase){SCANNING, 0, 4000, 0}, 1, 20000));
        qm_cache_free(cache);
    }
}

/* Smaller than before, it has no more than that; larger again, it uses it. */
TEST(test_mini_resizes)
{
    for (size_t i = 0; i < OTHERS; i++) {
        struct qm_mini *cache = qm_mini_new(qm_evict_find(others[i]), NULL, 100);
        unsigned hits = 0;

        for (uint64_t b = 0; b < 100; b++)
            assert_false(qm_mini_demand(cache, b));
        qm_mini_resize(cache, 10);
        for (uint64_t b = 0; b < 100; b++)
            hits += qm_mini_demand(cache, b);
        assert_in_range(hits, 0, 10);
        qm_mini_resize(cache, 100);
        for (uint64_t b = 0; b < 100; b++)
            qm_mini_demand(cache, b);
        for (uint64_t b = 0; b < 100; b++)
            assert_true(qm_mini_demand(cache, b));
        qm_mini_free(cache);
    }
}

/* Whatever is the best, it misses hardly more: of a loop that is a little longer than
 * the cache, a sample of 250 blocks may or may not fit its small cache. */
TEST(test_follows_the_best)
{
    for (size_t k = 0; k < KINDS; k++)
        for (unsigned size = 0; size < qm_rounds(3); size++) {
            uint64_t blocks = UINT64_C(250) << 2 * size;
            uint64_t best = best_of_others(blocks, &kinds[k], 1, 300000);
            uint64_t adaptive = misses("adaptive", blocks, &kinds[k], 1, 300000);

            if (adaptive > best + best / 25 + blocks / 4)
                print_error("kind %zu, %" PRIu64 " blocks: %" PRIu64
                            " misses, the best %" PRIu64 "\n",
                            k, blocks, adaptive, best);
            assert_true(adaptive <= best + best / 25 + blocks / 4);
        }
}

/* When the workload changes, it is not worse than those that do not. */
TEST(test_follows_changes)
{
    uint64_t best = best_of_others(1000, kinds, KINDS, 100000);
    uint64_t adaptive = misses("adaptive", 1000, kinds, KINDS, 100000);

    if (adaptive > best + best / 50)
        print_error("%" PRIu64 " misses, the best %" PRIu64 "\n", adaptive, best);
    assert_true(adaptive <= best + best / 50);
}

/* Where nothing changes, it does not take noise for a difference: that would cost some
 * 3.5 misses in a thousand here. */
TEST(test_ignores_noise)
{
    struct phase skewed = {SKEWED, 0, 5000, 0};
    uint64_t best = 0, adaptive = 0;

    for (uint64_t blocks = 500; blocks <= 1000; blocks *= 2)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            best += best_from(seed, blocks, &skewed, 1, 100000);
            adaptive += misses_from(seed, "adaptive", blocks, &skewed, 1, 100000);
        }
    if (adaptive > best + best / 1000)
        print_error("%" PRIu64 " misses, the best %" PRIu64 "\n", adaptive, best);
    assert_true(adaptive <= best + best / 1000);
}

/* The misses of a policy whose blocks first move on, which is LRU's workload; then half
 * of the accesses are to a hot set that just fits, and half to blocks that come four
 * times within `span` times four accesses and then no more, as programs read files. */
static uint64_t misses_of_files(const char *name, uint64_t blocks, uint64_t span)
{
    struct qm_mini *cache = qm_mini_new(qm_evict_find(name), NULL, blocks);
    struct phase moving = {MOVING, UINT64_C(1) << 41, blocks * 9 / 10, 0};
    struct phase hot = {UNIFORM, 0, blocks * 85 / 100, 0};
    struct phase files = {MOVING, UINT64_C(1) << 42, span, 0};
    uint64_t seed = 1, missed = 0;

    assert_non_null(cache);
    for (size_t i = 0; i < 100000; i++)
        qm_mini_demand(cache, next_block(&moving, &seed));
    for (size_t i = 0; i < 300000; i++)
        missed += !qm_mini_demand(cache, next_block(i % 2 ? &hot : &files, &seed));
    qm_mini_free(cache);
    return missed;
}

/* Misses of a pattern that reads each block twice, with `apart` reads of others between
 * both. */
static uint64_t misses_of_twice(const char *name, uint64_t blocks, uint64_t apart)
{
    struct qm_mini *cache = qm_mini_new(qm_evict_find(name), NULL, blocks);
    uint64_t missed = 0;

    assert_non_null(cache);
    for (uint64_t i = 0; i < 50000; i++) {
        missed += !qm_mini_demand(cache, 7 * i);
        if (i >= apart / 2)
            missed += !qm_mini_demand(cache, 7 * (i - apart / 2));
    }
    qm_mini_free(cache);
    return missed;
}

/* S3-FIFO that begins empty hits these second reads, and one that takes over a cache
 * full of other blocks never does: its small cache lies, and that shows. */
TEST(test_small_cache_lies)
{
    assert_int_equal(misses_of_twice("s3fifo", 963, 924), 50000);
    assert_in_range(misses_of_twice("adaptive", 963, 924), 50000, 55000);
}

/* After a change, W-TinyLFU's window is what its small cache promised. */
TEST(test_follows_files)
{
    for (unsigned size = 0; size < qm_rounds(5); size++)
        for (uint64_t span = 10; span <= 160; span *= 4) {
            uint64_t blocks = UINT64_C(250) << size, best = UINT64_MAX, adaptive;

            for (size_t i = 0; i < OTHERS; i++) {
                uint64_t m = misses_of_files(others[i], blocks, span);

                if (m < best)
                    best = m;
            }
            adaptive = misses_of_files("adaptive", blocks, span);
            if (adaptive > best + best / 25)
                print_error("%" PRIu64 " blocks, span %" PRIu64 ": %" PRIu64
                            " misses, the best %" PRIu64 "\n",
                            blocks, span, adaptive, best);
            assert_true(adaptive <= best + best / 25);
        }
}

enum { HOT = 388, OTHERS_THERE = 12, ALL = HOT + OTHERS_THERE, FIRST = 1 << 20 };

struct beside {
    const struct qm_evict_ops *ops;
    void *policy;
    struct qm_evict_node nodes[ALL]; /* the first are of hot blocks */
    uint64_t next;                   /* block that nobody has read */
};

static void enter(struct beside *b, struct qm_evict_node *node)
{
    node->block = b->next++;
    b->ops->insert(b->policy, node);
}

/* n blocks that nobody reads twice enter, each in place of another, beside reads of hot
 * ones.  Returns how many enter until one of them has to go, at least: some take the
 * place of a hot block, as their counters in the sketch are others', too. */
static uint64_t stay(struct beside *b, unsigned n)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < n; i++) {
        struct qm_evict_node *node = b->ops->evict(b->policy, b->next);
        struct qm_evict_node *hot = &b->nodes[b->next % HOT];

        assert_non_null(node);
        if (node->block >= FIRST && b->next - node->block < least)
            least = b->next - node->block;
        enter(b, node);
        if (hot->block < FIRST)
            b->ops->touch(b->policy, hot);
    }
    return least;
}

/* W-TinyLFU's window grows when blocks enter in place of none, as when rules or
 * prefetched blocks give theirs back.  Where that ends, it comes down to one block, as
 * its small cache has it. */
TEST(test_window_yields)
{
    struct beside *b = calloc(1, sizeof(*b));

    assert_non_null(b);
    b->ops = qm_evict_find("adaptive");
    assert_non_null(b->policy = b->ops->create(ALL));
    for (unsigned i = 0; i < HOT; i++)
        enter(b, &b->nodes[i]);
    for (unsigned i = 0; i < 6 * HOT; i++)
        b->ops->touch(b->policy, &b->nodes[i % HOT]);
    b->next = FIRST;
    for (unsigned i = HOT; i < ALL; i++)
        enter(b, &b->nodes[i]);
    assert_int_equal(stay(b, OTHERS_THERE), OTHERS_THERE);
    assert_in_range(stay(b, OTHERS_THERE / 2 * ALL / 8), OTHERS_THERE / 2,
                    OTHERS_THERE / 2 + 2);
    assert_int_equal(stay(b, OTHERS_THERE * ALL / 8), 1);
    for (unsigned i = HOT; i < HOT + OTHERS_THERE / 2; i++)
        b->ops->remove(b->policy, &b->nodes[i]);
    for (unsigned i = HOT; i < HOT + OTHERS_THERE / 2; i++)
        enter(b, &b->nodes[i]);
    assert_in_range(stay(b, OTHERS_THERE), OTHERS_THERE / 2 - 1, OTHERS_THERE / 2 + 1);
    b->ops->destroy(b->policy);
    free(b);
}

/* n reads of 1000 blocks, which all have room.  Returns the share of them that a cache
 * of the assured blocks would have missed. */
static double alone_of(const struct qm_evict_ops *ops, void *policy,
                       struct qm_evict_node *nodes, uint64_t *seed, unsigned n)
{
    double before = ops->alone(policy);

    for (unsigned i = 0; i < n; i++) {
        struct qm_evict_node *node = &nodes[rnd_below(seed, 1000)];

        if (node->block == 0) {
            node->block = 1 + (uint64_t)(node - nodes);
            ops->insert(policy, node);
        } else {
            ops->touch(policy, node);
        }
    }
    return (ops->alone(policy) - before) / n;
}

/* The small caches are of what the blocks have for sure, whatever they have of late,
 * and whatever they have memory for. */
TEST(test_assured)
{
    const struct qm_evict_ops *ops = qm_evict_find("adaptive");
    struct qm_evict_node *nodes = calloc(1000, sizeof(nodes[0]));
    void *policy = ops->create(2000);
    uint64_t seed = 7;
    double share;

    assert_non_null(nodes);
    assert_non_null(policy);
    (void)alone_of(ops, policy, nodes, &seed, 10000);
    assert_true(alone_of(ops, policy, nodes, &seed, 40000) < .01);
    ops->resize(policy, 1900);
    ops->assured(policy, 500);
    share = alone_of(ops, policy, nodes, &seed, 40000);
    assert_true(share > .25 && share < .6);
    assert_int_equal(ops->reserve(policy, 4000), 0);
    ops->resize(policy, 3000);
    share = alone_of(ops, policy, nodes, &seed, 40000);
    assert_true(share > .25 && share < .6);
    ops->assured(policy, 1100);
    (void)alone_of(ops, policy, nodes, &seed, 10000);
    assert_true(alone_of(ops, policy, nodes, &seed, 40000) < .01);
    ops->destroy(policy);
    free(nodes);
}

/* All that entered comes out, once, whoever was in charge meanwhile. */
TEST(test_loses_nothing)
{
    enum { MOST = 600, STEPS = 200000 };
    const struct qm_evict_ops *ops = qm_evict_find("adaptive");
    struct qm_evict_node *nodes = calloc(MOST, sizeof(nodes[0])), *node;
    bool *in = calloc(MOST, sizeof(in[0]));
    uint64_t seed = 1, next = 0, target = MOST;
    size_t held = 0;
    void *policy = ops->create(MOST);
    struct phase phase = {0};

    assert_non_null(nodes);
    assert_non_null(in);
    assert_non_null(policy);
    for (size_t step = 0; step < STEPS; step++) {
        size_t at = rnd_below(&seed, MOST);

        if (step % 20000 == 0)
            phase = kinds[step / 20000 % KINDS];
        if (step % 5000 == 0) {
            ops->resize(policy, target = 1 + rnd_below(&seed, MOST));
            ops->assured(policy, 1 + rnd_below(&seed, target));
        }
        while (held >= target) {
            node = ops->evict(policy, next);
            assert_non_null(node);
            assert_true(in[node - nodes]);
            in[node - nodes] = false;
            held--;
        }
        if (in[at] && rnd_below(&seed, 50) == 0) {
            ops->remove(policy, &nodes[at]);
            in[at] = false;
            held--;
        } else if (in[at]) {
            ops->touch(policy, &nodes[at]);
        } else {
            nodes[at].block = next_block(&phase, &seed) * MOST + at; /* in none other */
            ops->insert(policy, &nodes[at]);
            in[at] = true;
            held++;
        }
    }
    while ((node = ops->evict(policy, QM_EVICT_NOBODY))) {
        assert_true(in[node - nodes]);
        in[node - nodes] = false;
        held--;
    }
    assert_int_equal(held, 0);
    ops->destroy(policy);
    free(nodes);
    free(in);
}

/* None can be had of none, and one is enough. */
TEST(test_tiny)
{
    const struct qm_evict_ops *ops = qm_evict_find("adaptive");
    void *policy = ops->create(0);

    assert_non_null(policy);
    assert_null(ops->evict(policy, 1));
    ops->destroy(policy);
    for (uint64_t blocks = 1; blocks < 20; blocks++)
        for (size_t k = 0; k < KINDS; k++)
            assert_in_range(misses("adaptive", blocks, &kinds[k], 1, 3000), 1, 3000);
}
