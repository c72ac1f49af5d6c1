/* SPDX-License-Identifier: BSD-3-Clause */
/* test-sim.c - simulations whose every step was worked out by hand. */
#include <stdio.h>

#include "engine/memory.h"
#include "sim/mine.h"
#include "testing.h"

enum { BLOCK = 4096 };

static struct qm_sim_config paper(const char *policy, uint64_t blocks)
{
    struct qm_sim_config config;

    qm_sim_paper(&config);
    config.params.policy = policy;
    config.block_size = BLOCK;
    config.cache_size = blocks * BLOCK + BLOCK / 2; /* the half does not count */
    return config;
}

static void request(struct qm_sim *sim, char type, uint32_t slot, uint64_t block,
                    uint64_t count)
{
    event(sim, (struct qm_event){.type = type,
                                 .ctx = slot,
                                 .slot = slot,
                                 .offset = block * BLOCK,
                                 .length = count * BLOCK});
}

static void assert_counts(struct qm_sim *sim, uint64_t hits, uint64_t prefetch_hits,
                          uint64_t misses, uint64_t prefetches, uint64_t used,
                          uint64_t wasted)
{
    struct qm_sim_result r;

    qm_sim_result(sim, &r);
    assert_int_equal(r.hits, hits);
    assert_int_equal(r.prefetch_hits, prefetch_hits);
    assert_int_equal(r.misses, misses);
    assert_int_equal(r.reads, hits + prefetch_hits + misses);
    assert_int_equal(r.prefetches, prefetches);
    assert_int_equal(r.used, used);
    assert_int_equal(r.wasted, wasted);
}

/* Two transactions read 1 2 3 4 5, one after the other. */
static void read_twice(struct qm_sim *sim)
{
    for (int i = 0; i < 2; i++) {
        event(sim, begins(1, 0));
        for (uint64_t block = 1; block <= 5; block++)
            request(sim, QM_TRACE_READ, 1, block, 1);
        event(sim, ends(1));
    }
}

TEST(paper_none)
{
    struct qm_sim_config config = paper("none", 4);
    struct qm_sim *sim = new_sim(&config);
    struct qm_sim_result r;

    read_twice(sim);
    assert_counts(sim, 0, 0, 10, 0, 0, 0);
    qm_sim_result(sim, &r);
    assert_int_equal(r.cache_blocks, 4);
    assert_int_equal(r.prefetch_blocks, 0);
    assert_int_equal(r.requests, 10);
    assert_int_equal(r.mining.rules, 0);
    qm_sim_free(sim);
}

/* Four blocks: three in the main cache, one in the prefetch cache.  The first
 * transaction misses five times, leaves 3 4 5, and teaches ten rules.  The second: 1
 * miss (4 5 1), no prefix yet 2  miss (5 1 2); 1&2 -> 3, 4, 5: 5 is there, 3 comes, 4
 * comes and 3 goes 3  miss (1 2 3); 2&3 -> 4, 5: 4 is there, 5 comes and 4 goes 4  miss
 * (2 3 4); 3&4 -> 5: is there 5  a prefetch hit (3 4 5) */
TEST(paper_quickmine)
{
    struct qm_sim_config config = paper("quickmine", 4);
    struct qm_sim *sim = new_sim(&config);
    struct qm_sim_result r;

    read_twice(sim);
    assert_counts(sim, 0, 1, 9, 3, 1, 2);
    qm_sim_result(sim, &r);
    assert_int_equal(r.cache_blocks, 4);
    assert_int_equal(r.prefetch_blocks, 1);
    assert_int_equal(r.mining.rules, 10);
    assert_int_equal(r.mining.prefixes, 6);
    assert_int_equal(r.mining.sequences, 2);
    qm_sim_free(sim);
}

/* The same with a request of five blocks. */
TEST(requests_of_several_blocks)
{
    struct qm_sim_config config = paper("quickmine", 4);
    struct qm_sim *sim = new_sim(&config);
    struct qm_sim_result r;

    for (int i = 0; i < 2; i++) {
        event(sim, begins(1, 0));
        request(sim, QM_TRACE_READ, 1, 1, 5);
        event(sim, ends(1));
    }
    assert_counts(sim, 0, 1, 9, 3, 1, 2);
    qm_sim_result(sim, &r);
    assert_int_equal(r.requests, 2);
    qm_sim_free(sim);
}

/* With a prefetch cache of three of the six blocks, after prefetch hits as well:
 * the first transaction leaves 3 4 5.  The second:
 *   1  miss (4 5 1)
 *   2  miss (5 1 2); 1&2 -> 3, 4, 5: 3 and 4 come, 5 is there
 *   3  prefetch hit (1 2 3); 2&3 -> 4, 5: 4 is there, 5 comes
 *   4  prefetch hit (2 3 4); 3&4 -> 5: is there
 *   5  prefetch hit (3 4 5)
 * On misses only, 5 is not fetched again, and is missed. */
TEST(on_prefetch_hit)
{
    for (int too = 0; too < 2; too++) {
        struct qm_sim_config config = paper("quickmine", 6);
        struct qm_sim *sim;

        config.params.prefetch_share = 50000;
        config.params.on_prefetch_hit = too;
        sim = new_sim(&config);
        read_twice(sim);
        if (too)
            assert_counts(sim, 0, 3, 7, 3, 3, 0);
        else
            assert_counts(sim, 0, 2, 8, 2, 2, 0);
        qm_sim_free(sim);
    }
}

/* Writes neither allocate nor touch; reads of no context are cached, but not mined. */
TEST(writes_and_untagged)
{
    struct qm_sim_config config = paper("none", 2);
    struct qm_sim *sim = new_sim(&config);
    struct qm_sim_result r;

    request(sim, QM_TRACE_WRITE, 0, 1, 1);
    request(sim, QM_TRACE_READ, 0, 1, 1); /* miss: (1) */
    request(sim, QM_TRACE_READ, 0, 2, 1); /* miss: (1 2) */
    request(sim, QM_TRACE_WRITE, 0, 1, 1);
    request(sim, QM_TRACE_READ, 0, 3, 1); /* miss: 1 goes */
    request(sim, QM_TRACE_READ, 0, 2, 1); /* hit */
    request(sim, QM_TRACE_READ, 0, 1, 1); /* miss */
    assert_counts(sim, 1, 0, 4, 0, 0, 0);
    qm_sim_result(sim, &r);
    assert_int_equal(r.writes, 2);
    qm_sim_free(sim);
}

TEST(warmup)
{
    struct qm_sim_config config = paper("quickmine", 4);
    struct qm_sim *sim;
    struct qm_sim_result r;

    config.warmup = 6;
    sim = new_sim(&config);
    read_twice(sim);
    assert_counts(sim, 0, 1, 3, 3, 1, 2);
    qm_sim_result(sim, &r);
    assert_int_equal(r.requests, 4);
    assert_false(r.warming);
    assert_int_equal(r.mining.rules, 10);
    qm_sim_free(sim);
}

/* What was prefetched before the warm-up ended, and used or lost after it, is neither
 * used nor lost of what was prefetched since: an accuracy is never above 1. */
TEST(warmup_divides)
{
    struct qm_sim_config config = paper("quickmine", 40);
    struct qm_sim *sim;
    struct qm_sim_result r;

    /* The first transaction teaches, and its blocks are driven out; the second
     * prefetches 3 4 5 when it misses 2, and the warm-up ends there. */
    config.params.prefetch_share = 10000; /* 4 blocks */
    config.warmup = 5 + 60 + 2;
    sim = new_sim(&config);
    event(sim, begins(1, 0));
    for (uint64_t block = 1; block <= 5; block++)
        request(sim, QM_TRACE_READ, 1, block, 1);
    event(sim, ends(1));
    for (uint64_t block = 100; block < 160; block++)
        request(sim, QM_TRACE_READ, 0, block, 1);
    event(sim, begins(1, 0));
    request(sim, QM_TRACE_READ, 1, 1, 1);
    qm_sim_result(sim, &r);
    assert_true(r.warming);
    request(sim, QM_TRACE_READ, 1, 2, 1);
    qm_sim_result(sim, &r);
    assert_false(r.warming);
    assert_int_equal(r.prefetches, 0);
    request(sim, QM_TRACE_READ, 1, 3, 1);
    request(sim, QM_TRACE_READ, 1, 4, 1);
    qm_sim_result(sim, &r);
    assert_int_equal(r.prefetch_hits, 2); /* found by what the warm-up prefetched ... */
    assert_int_equal(r.used, 0);          /* ... which is not this part's */
    assert_true(r.used + r.wasted <= r.prefetches);
    qm_sim_free(sim);
}

/* At level none contexts do not matter, and an end is none. */
TEST(level_none)
{
    struct qm_sim_config config = paper("quickmine", 4);
    struct qm_sim *sim;
    struct qm_sim_result r;

    config.params.level = QM_LEVEL_NONE;
    sim = new_sim(&config);
    assert_int_equal(qm_sim_config(sim)->params.mining.segment, 4096);
    read_twice(sim);
    assert_counts(sim, 0, 0, 10, 0, 0, 0);
    qm_sim_result(sim, &r);
    assert_int_equal(r.mining.sequences, 0);
    /* ... until a segment is full. */
    for (int i = 0; i < 4100; i++)
        request(sim, QM_TRACE_READ, 0, 10 + (uint64_t)i % 3, 1);
    qm_sim_result(sim, &r);
    assert_int_equal(r.mining.sequences, 1);
    assert_true(r.mining.rules > 0);
    qm_sim_free(sim);
}

static void assert_refused(const struct qm_sim_config *config, const char *why)
{
    char err[256] = "";

    assert_null(qm_sim_new(config, err, sizeof err));
    if (!strstr(err, why))
        fail_msg("\"%s\" does not say \"%s\"", err, why);
}

TEST(refusals)
{
    struct qm_sim_config config = paper("quickmine", 1);

    assert_refused(&config, "at least 2 blocks");
    config.params.policy = "none";
    qm_sim_free(new_sim(&config));
    config = paper("none", 0);
    assert_refused(&config, "holds no block");
    config = paper("lightning", 4);
    assert_refused(&config, "there are: none");
    config = paper("none", 4);
    config.params.eviction = "oldest";
    assert_refused(&config, "lru");
    config = paper("quickmine", 4);
    config.params.prefetch_share = 100000;
    assert_refused(&config, "below 100");
    config = paper("quickmine", 4);
    config.params.mining.lookahead = 1;
    assert_refused(&config, "lookahead");
    config = paper("perfect", 4);
    assert_refused(&config, "needs to know");
    config = paper("none", 4);
    config.params.eviction = "belady";
    assert_refused(&config, "needs to know");
    config = paper("none", 4);
    config.block_size = 3000;
    assert_refused(&config, "power of two");
}

/* Without the preset, the cache's size includes its metadata, and the memory for rules
 * if that was not given. */
TEST(size_includes_metadata)
{
    struct qm_sim_config config;
    struct qm_sim *sim;
    struct qm_sim_result r;

    qm_sim_defaults(&config);
    config.block_size = BLOCK;
    config.cache_size = 1000 * BLOCK;
    sim = new_sim(&config);
    qm_sim_result(sim, &r);
    assert_true(r.cache_blocks > 800 && r.cache_blocks < 968);
    assert_int_equal(qm_sim_config(sim)->params.mining.rules_memory,
                     qm_memory_first_rules(1000 * BLOCK));
    assert_in_range(r.cache_blocks * BLOCK + r.metadata_bytes +
                        qm_memory_first_rules(1000 * BLOCK),
                    998 * BLOCK, 1000 * BLOCK);
    assert_int_equal(r.prefetch_blocks, r.cache_blocks * 4 / 100);
    qm_sim_free(sim);

    config.params.mining.rules_memory = 1 << 20;
    sim = new_sim(&config);
    qm_sim_result(sim, &r);
    assert_true(r.cache_blocks > 800 && r.cache_blocks < 1000);
    assert_in_range(r.cache_blocks * BLOCK + r.metadata_bytes, 998 * BLOCK,
                    1000 * BLOCK);
    qm_sim_free(sim);
    config.params.mining.rules_memory = 0;
    /* In all means the same, unless the rules' memory is said. */
    for (unsigned i = 0; i < 2; i++) {
        config.total_memory = i;
        config.cache_size = 9000 * BLOCK;
        sim = new_sim(&config);
        qm_sim_result(sim, &r);
        assert_in_range(r.cache_blocks * BLOCK + r.metadata_bytes +
                            qm_memory_first_rules(9000 * BLOCK),
                        8980 * BLOCK, 9000 * BLOCK);
        qm_sim_free(sim);
        config.params.mining.rules_memory = 1000 * BLOCK;
        sim = new_sim(&config);
        qm_sim_result(sim, &r);
        assert_in_range(r.cache_blocks * BLOCK + r.metadata_bytes,
                        (i ? 7980 : 8980) * BLOCK, (i ? 8000 : 9000) * BLOCK);
        qm_sim_free(sim);
        config.params.mining.rules_memory = 0;
    }
    config.params.policy = "ppm";
    config.params.mining.rules_memory = 2000 * BLOCK;
    config.cache_size = 1500 * BLOCK;
    assert_refused(&config, "leave nothing");
    config.params.policy = "quickmine";
    assert_refused(&config, "none, ppm, readahead and auto only");
    config.params.policy = "none";
    sim = new_sim(&config);
    qm_sim_result(sim, &r);
    assert_in_range(r.cache_blocks * BLOCK + r.metadata_bytes, 1498 * BLOCK,
                    1500 * BLOCK);
    qm_sim_free(sim);
    config.params.policy = "quickmine";
    config.total_memory = false;
    config.cache_blocks = 75;
    sim = new_sim(&config);
    qm_sim_result(sim, &r);
    assert_int_equal(r.cache_blocks, 75);
    assert_int_equal(r.prefetch_blocks, 3);
    qm_sim_free(sim);
}

static int count_rule(void *opaque, const struct qm_rule *rule)
{
    (void)rule;
    ++*(int *)opaque;
    return 0;
}

/* A context that does not end is not mined at the end, one that does is. */
TEST(open_contexts_are_not_mined)
{
    for (int ends = 0; ends < 2; ends++) {
        struct qm_mining_config config;
        struct qm_mine *mine;
        char err[256];
        int rules = 0;

        qm_mining_paper(&config);
        mine = qm_mine_new(&config, QM_LEVEL_INNERMOST, BLOCK, err, sizeof err);
        assert_non_null(mine);
        assert_int_equal(qm_mine_event(mine, &(struct qm_event){.type = QM_TRACE_BEGIN,
                                                                .ctx = 9,
                                                                .slot = 1,
                                                                .kind = QM_QUERY,
                                                                .klass = "q"}),
                         0);
        for (uint64_t block = 1; block <= 3; block++)
            assert_int_equal(
                qm_mine_event(mine, &(struct qm_event){.type = QM_TRACE_READ,
                                                       .ctx = 9,
                                                       .slot = 1,
                                                       .offset = block * BLOCK,
                                                       .length = BLOCK}),
                0);
        if (ends)
            assert_int_equal(
                qm_mine_event(
                    mine,
                    &(struct qm_event){.type = QM_TRACE_END, .ctx = 9, .slot = 1}),
                0);
        assert_int_equal(qm_mine_finish(mine), 0);
        assert_int_equal(qm_mine_rules(mine, count_rule, &rules), 0);
        assert_int_equal(rules, ends);
        qm_mine_free(mine);
    }
}

static struct qm_sim *new_explained(struct qm_sim_config *config, const char *policy)
{
    qm_sim_defaults(config);
    config->params.policy = policy;
    config->block_size = BLOCK;
    config->cache_blocks = 4;
    config->params.eviction = "lru";
    config->explain = true;
    return new_sim(config);
}

static void read_all(struct qm_sim *sim, const uint64_t *blocks, unsigned n)
{
    event(sim, begins(1, 0));
    for (unsigned i = 0; i < n; i++)
        request(sim, QM_TRACE_READ, 1, blocks[i], 1);
    event(sim, ends(1));
}

/* Takes what is in the cache out of it. */
static void flush(struct qm_sim *sim)
{
    for (uint64_t block = 1000; block < 1100; block++)
        request(sim, QM_TRACE_READ, 0, block, 1);
}

static void assert_missed(struct qm_sim *sim, enum qm_reason reason, uint64_t n)
{
    struct qm_sim_result r;
    uint64_t all = 0;

    qm_sim_result(sim, &r);
    for (unsigned i = 0; i < QM_REASON_COUNT; i++)
        all += r.missed[i];
    assert_int_equal(all, r.misses);
    assert_int_equal(r.missed[reason], n);
}

/* One reason after the other.  Policy seq follows no pairs and cannot say what it
 * knows, so what has followed before counts as not proposed. */
TEST(explain)
{
    struct qm_sim_config config;
    struct qm_sim *sim = new_explained(&config, "seq");

    read_all(sim, (uint64_t[]){10, 20, 30, 40}, 4);
    assert_missed(sim, QM_REASON_NEW_BLOCK, 4);
    flush(sim);
    assert_missed(sim, QM_REASON_NO_CONTEXT, 100);
    read_all(sim, (uint64_t[]){10, 20}, 2);
    assert_missed(sim, QM_REASON_BEGINNING, 1);
    assert_missed(sim, QM_REASON_UNLIKELY_ONCE, 1);
    flush(sim);
    read_all(sim, (uint64_t[]){10, 20, 10, 30, 50},
             5); /* 10 is a hit the second time */
    assert_missed(sim, QM_REASON_BEGINNING, 2);
    assert_missed(sim, QM_REASON_UNLIKELY, 1);
    assert_missed(sim, QM_REASON_FAR, 1);
    assert_missed(sim, QM_REASON_NEW_BLOCK, 5);
    flush(sim);
    read_all(sim, (uint64_t[]){50, 40}, 2);
    assert_missed(sim, QM_REASON_NEW_PAIR, 1);
    qm_sim_free(sim);
}

/* A policy that is not asked after an early hit is not kept back by that. */
TEST(explain_early_hits)
{
    struct qm_sim_config config;
    struct qm_sim *sim = new_explained(&config, "quickmine");

    read_all(sim, (uint64_t[]){10, 30}, 2);
    flush(sim);
    read_all(sim, (uint64_t[]){10, 20, 10, 30}, 4); /* 10 is a hit the second time */
    assert_missed(sim, QM_REASON_KEPT_BACK, 0);
    assert_missed(sim, QM_REASON_UNLIKELY_ONCE, 1);
    qm_sim_free(sim);
}

/* What a statement reads first has something before it in its transaction; that no rule
 * leads to it makes it a beginning. */
TEST(explain_statements)
{
    struct qm_sim_config config;
    struct qm_sim *sim = new_explained(&config, "ppm");

    read_all(sim, (uint64_t[]){10}, 1);
    read_all(sim, (uint64_t[]){20}, 1);
    read_all(sim, (uint64_t[]){40}, 1);
    flush(sim);
    event(sim, begins(1, 0));
    event(sim, begins(2, 1));
    request(sim, QM_TRACE_READ, 2, 10, 1);
    event(sim, ends(2));
    assert_missed(sim, QM_REASON_BEGINNING, 1);
    event(sim, begins(3, 1));
    request(sim, QM_TRACE_READ, 3, 20, 1);
    assert_missed(sim, QM_REASON_BEGINNING, 2);
    request(sim, QM_TRACE_READ, 3, 40, 1);
    assert_missed(sim, QM_REASON_BEGINNING, 2);
    assert_missed(sim, QM_REASON_NEW_PAIR, 1);
    event(sim, ends(1));
    qm_sim_free(sim);
}

/* Rules of the smallest table are lost for what others read, and what was proposed is
 * gone if others read before it is wanted. */
TEST(explain_rules)
{
    struct qm_sim_config config;
    struct qm_sim *sim;
    struct qm_sim_result with, without;

    qm_sim_defaults(&config);
    config.params.mining.rules_memory = 64 << 10;
    config.params.policy = "ppm";
    config.params.eviction = "lru";
    config.block_size = BLOCK;
    config.cache_blocks = 4;
    for (int i = 0; i < 2; i++) {
        config.explain = i == 1;
        sim = new_sim(&config);
        read_all(sim, (uint64_t[]){10, 20}, 2);
        for (uint64_t block = 30; block < 50; block += 2)
            read_all(sim, (uint64_t[]){block, block + 1}, 2);
        flush(sim);
        event(sim, begins(1, 0));
        request(sim, QM_TRACE_READ, 1, 10, 1); /* 20 is proposed */
        event(sim, begins(2, 0));
        for (uint64_t block = 30; block < 50; block += 2) /* and leaves for these */
            request(sim, QM_TRACE_READ, 2, block, 1);
        event(sim, ends(2));
        request(sim, QM_TRACE_READ, 1, 20, 1);
        event(sim, ends(1));
        if (config.explain)
            assert_missed(sim, QM_REASON_LEFT, 1);
        flush(sim);
        for (uint64_t block = 10000; block < 200000; block += 7) {
            event(sim, begins(1, 0));
            request(sim, QM_TRACE_READ, 1, block, 1);
            request(sim, QM_TRACE_READ, 1, block + 3, 1);
            event(sim, ends(1));
        }
        read_all(sim, (uint64_t[]){10, 20}, 2);
        if (config.explain)
            assert_missed(sim, QM_REASON_LOST, 1);
        qm_sim_result(sim, i ? &with : &without);
        qm_sim_free(sim);
    }
    assert_int_equal(with.misses, without.misses);
    assert_int_equal(with.prefetches, without.prefetches);
    assert_int_equal(with.wasted, without.wasted);
}

enum { TURNS = 4000 };

/* A cache that trades with rules; sequences that recur, streams, and what they want
 * refused for want of budget. */
static void simulate(const char *policy, bool budget, bool explained,
                     struct qm_sim_result *result)
{
    struct qm_sim_config config;
    struct qm_sim *sim;
    uint64_t r = 1;

    qm_sim_defaults(&config);
    config.params.policy = policy;
    config.block_size = BLOCK;
    config.cache_size = 4 << 20;
    config.explain = explained;
    if (budget)
        config.params.budget = (struct qm_budget){50, UINT64_C(1000000000)};
    sim = new_sim(&config);
    for (unsigned i = 0; i < TURNS; i++) {
        uint64_t first, stream = (uint64_t)i * 8 % 60000;

        r = r * UINT64_C(6364136223846793005) + 1442695040888963407;
        first = 100000 + (r >> 33) % 3000 * 50;
        event(sim, begins(1, 0));
        event(sim, begins(2, 0));
        for (unsigned k = 0; k < 6; k++) { /* two queries of three reads */
            if (k % 3 == 0)
                event(sim, begins(3, 1));
            request(sim, QM_TRACE_READ, 3, first + k * 7 % 50, 1);
            request(sim, QM_TRACE_READ, 2, stream + k, 1);
            if (k % 3 == 2)
                event(sim, ends(3));
        }
        event(sim, ends(1));
        event(sim, ends(2));
    }
    assert_int_equal(qm_sim_finish(sim), 0);
    qm_sim_result(sim, result);
    qm_sim_free(sim);
}

TEST(explain_changes_nothing)
{
    char names[400], *rest = names, *policy;

    snprintf(names, sizeof names, "%s", qm_prefetcher_names());
    while ((policy = strsep(&rest, ", ")))
        for (unsigned budget = 0; budget < 2; budget++) {
            struct qm_sim_result with, without;

            if (policy[0] == '\0' || strcmp(policy, "cminer") == 0)
                continue; /* which needs a file of rules */
            simulate(policy, budget, true, &with);
            simulate(policy, budget, false, &without);
#define SAME(what)                                                                     \
    if (with.what != without.what)                                                     \
    fail_msg("policy %s, budget %u: " #what " %llu, with explain %llu", policy,        \
             budget, (unsigned long long)without.what, (unsigned long long)with.what)
            SAME(cache_blocks);
            SAME(prefetch_blocks);
            SAME(hits);
            SAME(prefetch_hits);
            SAME(misses);
            SAME(prefetches);
            SAME(used);
            SAME(wasted);
            SAME(ahead_reads);
            SAME(over_rate);
            SAME(mining.rules_bytes);
            SAME(mining.rules_limit);
#undef SAME
        }
}
