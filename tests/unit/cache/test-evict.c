/* SPDX-License-Identifier: BSD-3-Clause */
/* test-evict.c - each eviction policy against a naive one, victim by victim, on random
 * traces of many kinds; then what the interface promises beside. */
#include <inttypes.h>
#include <stdio.h>

#include "cache/eviction.h"
#include "naive.h"
#include "traces.h"

static const char *const modelled[] = {"lru", "lfu",    "mru",
                                       "arc", "s3fifo", "wtinylfu"};

#define MODELLED (sizeof(modelled) / sizeof(modelled[0]))

static const size_t capacities[] = {1,  2,  3,  4,  5,  7,  9,   10,  11,  15, 19,
                                    20, 21, 31, 50, 64, 99, 100, 101, 128, 250};

#define CAPACITIES (sizeof(capacities) / sizeof(capacities[0]))

/* A policy and its nodes, which serve one block after another.  Resized: it was made
 * for up to a power of two, so that the sketch of wtinylfu is as large. */
struct real {
    const struct qm_evict_ops *ops;
    void *policy;
    size_t capacity, held;
    struct qm_evict_node *nodes;
    bool *used; /* by node */
};

static void real_new(struct real *r, const char *name, size_t capacity, bool resized)
{
    size_t most = 1;

    while (most < capacity)
        most *= 2;
    *r = (struct real){.ops = qm_evict_find(name), .capacity = capacity};
    assert_non_null(r->ops);
    r->policy = r->ops->create(resized ? most : capacity);
    r->nodes = calloc(capacity + 1, sizeof(r->nodes[0]));
    r->used = calloc(capacity + 1, sizeof(r->used[0]));
    assert_non_null(r->policy);
    assert_non_null(r->nodes);
    assert_non_null(r->used);
    memset(r->nodes, 0xa5, (capacity + 1) * sizeof(r->nodes[0]));
    if (resized && r->ops->resize)
        r->ops->resize(r->policy, capacity);
}

static void real_free(struct real *r)
{
    r->ops->destroy(r->policy);
    free(r->nodes);
    free(r->used);
}

static struct qm_evict_node *real_find(struct real *r, uint64_t block)
{
    for (size_t i = 0; i < r->capacity; i++)
        if (r->used[i] && r->nodes[i].block == block)
            return &r->nodes[i];
    return NULL;
}

static void real_unuse(struct real *r, struct qm_evict_node *node)
{
    assert_in_range(node - r->nodes, 0, r->capacity);
    assert_true(r->used[node - r->nodes]);
    r->used[node - r->nodes] = false;
    r->held--;
}

/* As the cache does: see eviction.h. */
static bool real_enter(struct real *r, uint64_t block, uint64_t *left)
{
    bool full = r->held == r->capacity;
    size_t i = 0;

    if (full) {
        struct qm_evict_node *victim = r->ops->evict(r->policy, block);

        assert_non_null(victim);
        real_unuse(r, victim);
        *left = victim->block;
    }
    while (r->used[i])
        i++;
    r->used[i] = true;
    r->held++;
    r->nodes[i].block = block;
    r->ops->insert(r->policy, &r->nodes[i]);
    return full;
}

static void same_content(struct real *r, struct naive *n)
{
    assert_int_equal(r->held, naive_size(n));
    for (size_t i = 0; i < r->capacity; i++)
        if (r->used[i])
            assert_true(naive_has(n, r->nodes[i].block));
}

/* Gives up all that is left; each block once. */
static void drain(struct real *r)
{
    while (r->held > 0) {
        struct qm_evict_node *node = r->ops->evict(r->policy, 7);

        assert_non_null(node);
        real_unuse(r, node);
    }
    assert_null(r->ops->evict(r->policy, 7));
}

struct counts {
    uint64_t hits, evictions, drops;
};

/* One trace of some phases.  drops: in 1024 accesses; lost: touches, likewise. */
static void compare(const char *name, size_t capacity, uint64_t seed, size_t steps,
                    unsigned drops, unsigned lost, struct counts *counts)
{
    struct naive *n = naive_new(name, capacity);
    struct phase phase = {.span = 1};
    struct real r;

    real_new(&r, name, capacity, seed % 2);
    for (size_t i = 0; i < steps; i++) {
        struct qm_evict_node *node;
        uint64_t block, left, naive_left;

        if (i % 256 == 0)
            phase = (struct phase){
                .pattern = rnd_below(&seed, PATTERNS),
                .base = rnd_below(&seed, 4) * (capacity / 2 + 1),
                .span = 1 + rnd_below(&seed, capacity + capacity / 2 + 4),
            };
        block = next_block(&phase, &seed);
        node = real_find(&r, block);
        assert_int_equal(node != NULL, naive_has(n, block));
        if (node) {
            counts->hits++;
            if (rnd_below(&seed, 1024) < lost)
                continue;
            r.ops->touch(r.policy, node);
            naive_hit(n, block);
        } else {
            left = naive_left = UINT64_MAX;
            assert_int_equal(real_enter(&r, block, &left),
                             naive_enter(n, block, &naive_left));
            assert_int_equal(left, naive_left);
            counts->evictions += left != UINT64_MAX;
        }
        /* Several at once now and then, as a write over many blocks does. */
        if (rnd_below(&seed, 1024) < drops)
            for (size_t k = 1 + rnd_below(&seed, capacity); k > 0 && r.held > 0; k--) {
                size_t at = rnd_below(&seed, capacity);

                if (!r.used[at])
                    continue;
                naive_drop(n, r.nodes[at].block);
                r.ops->remove(r.policy, &r.nodes[at]);
                real_unuse(&r, &r.nodes[at]);
                counts->drops++;
            }
        if (capacity < 32 || i % 32 == 0)
            same_content(&r, n);
    }
    drain(&r);
    real_free(&r);
    naive_free(n);
}

TEST(test_against_naive)
{
    const unsigned rounds = qm_rounds(12);

    for (size_t p = 0; p < MODELLED; p++) {
        struct counts counts = {0};

        for (size_t c = 0; c < CAPACITIES; c++)
            for (uint64_t seed = 1; seed <= rounds; seed++) {
                size_t steps = capacities[c] < 30 ? 3000 : 40 * capacities[c];

                compare(modelled[p], capacities[c], seed * 1000 + c, steps,
                        seed % 3 ? 0 : 20, seed % 4 ? 0 : 200, &counts);
            }
        /* Every kind of event, often. */
        assert_true(counts.hits > rounds * 4000);
        assert_true(counts.evictions > rounds * 4000);
        assert_true(counts.drops > rounds * 400);
    }
}

/* The hits of a cache without data: one shard, all of it the main cache. */
static uint64_t hits_of(const char *policy, uint64_t blocks, uint64_t accesses,
                        uint64_t (*next)(struct phase *, uint64_t *, uint64_t))
{
    struct qm_cache *cache = new_cache(&(struct qm_cache_config){
        .block_size = 4096, .blocks = blocks, .shards = 1, .eviction = policy});
    struct phase phase = {0};
    uint64_t seed = 0, hits;

    for (uint64_t i = 0; i < accesses; i++) {
        struct qm_lookup found;

        assert_int_equal(
            qm_cache_demand(cache, next(&phase, &seed, i), NULL, 0, 1, &found), 0);
        if (found.todo == QM_FETCH)
            qm_cache_fill(cache, found.fill, NULL);
    }
    hits = stats_of(cache).hits;
    assert_int_equal(hits + stats_of(cache).misses, accesses);
    qm_cache_free(cache);
    return hits;
}

/* Exact counts, so that no change of a policy goes unnoticed.  Those of lru, lfu, mru
 * and arc are also libCacheSim's; those of s3fifo are within 0.1 % of it, which looks
 * at ghosts before it evicts, and lets M exceed its share until the next eviction. */
TEST(test_golden)
{
    static const struct {
        const char *policy;
        uint64_t blocks, hits;
    } golden[] = {
        {"lru", 100, 11382},      {"lru", 1000, 38892},      {"lfu", 100, 4034},
        {"lfu", 1000, 32399},     {"mru", 100, 1146},        {"mru", 1000, 10142},
        {"arc", 100, 12613},      {"arc", 1000, 39189},      {"s3fifo", 100, 10346},
        {"s3fifo", 1000, 40742},  {"wtinylfu", 100, 14896},  {"wtinylfu", 1000, 35794},
        {"adaptive", 100, 12000}, {"adaptive", 1000, 39084},
    };

    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        uint64_t hits =
            hits_of(golden[i].policy, golden[i].blocks, 100000, next_of_mixture);
        if (hits != golden[i].hits)
            print_error("%s, %" PRIu64 " blocks: %" PRIu64 " hits, not %" PRIu64 "\n",
                        golden[i].policy, golden[i].blocks, hits, golden[i].hits);
        assert_int_equal(hits, golden[i].hits);
    }
}

/* 90 blocks, at random, with room for 100, and between them a scan that comes once. */
static uint64_t next_hot_and_scan(struct phase *phase, uint64_t *seed, uint64_t i)
{
    return i % 4 ? rnd_below(seed, 90) : 1000 + i;
}

static uint64_t next_of_loop(struct phase *phase, uint64_t *seed, uint64_t i)
{
    return i % 120;
}

/* What each policy is known for, against LRU with the same 100 blocks. */
TEST(test_characters)
{
    const uint64_t n = 40000;
    uint64_t lru = hits_of("lru", 100, n, next_hot_and_scan);

    /* A scan takes from the hot blocks under LRU, and not under these. */
    assert_in_range(lru, n * 45 / 100, n * 60 / 100);
    assert_true(hits_of("lfu", 100, n, next_hot_and_scan) > n * 74 / 100);
    assert_true(hits_of("arc", 100, n, next_hot_and_scan) > n * 70 / 100);
    assert_true(hits_of("s3fifo", 100, n, next_hot_and_scan) > n * 70 / 100);
    assert_true(hits_of("wtinylfu", 100, n, next_hot_and_scan) > n * 74 / 100);

    /* A loop that is longer than the cache: nothing under LRU, nor under ARC, which
     * sees blocks once only; the best that there is, 99 of 119, under MRU. */
    assert_int_equal(hits_of("lru", 100, n, next_of_loop), 0);
    assert_int_equal(hits_of("arc", 100, n, next_of_loop), 0);
    assert_in_range(hits_of("mru", 100, n, next_of_loop), n * 98 / 119, n * 99 / 119);
    assert_true(hits_of("s3fifo", 100, n, next_of_loop) > n / 4);
    assert_true(hits_of("wtinylfu", 100, n, next_of_loop) > n / 2);
}

/* A policy for no block can be made, and has none to give. */
TEST(test_no_capacity)
{
    for (size_t p = 0; p < MODELLED; p++) {
        const struct qm_evict_ops *ops = qm_evict_find(modelled[p]);
        void *policy = ops->create(0);

        assert_non_null(policy);
        assert_null(ops->evict(policy, 1));
        ops->destroy(policy);
    }
}

/* What it was destroyed with does not matter; and UINT64_MAX is a block like others. */
TEST(test_destroyed_full)
{
    for (size_t p = 0; p < MODELLED; p++) {
        struct real r;
        uint64_t left;

        real_new(&r, modelled[p], 40, false);
        for (uint64_t b = 0; b < 200; b++)
            real_enter(&r, UINT64_MAX - b % 64 * 3 - (b > 100), &left);
        real_free(&r);
    }
}

/* A count of LFU that cannot grow does not wrap around, and those that have it are in
 * order of their last touch. */
TEST(test_lfu_saturates)
{
    struct real r;
    uint64_t left;

    real_new(&r, "lfu", 3, false);
    for (uint64_t b = 0; b < 2; b++) {
        real_enter(&r, b, &left);
        r.nodes[b].aux[0] = UINT32_MAX - 1; /* its count, see evict-lfu.c */
        for (int i = 0; i < 3; i++)
            r.ops->touch(r.policy, &r.nodes[b]);
        assert_int_equal(r.nodes[b].aux[0], UINT32_MAX);
    }
    r.ops->touch(r.policy, &r.nodes[0]);
    real_enter(&r, 2, &left);
    for (size_t i = 3; i-- > 0;)
        assert_ptr_equal(r.ops->evict(r.policy, 9), &r.nodes[i]);
    real_free(&r);
}
