/* SPDX-License-Identifier: BSD-3-Clause */
/* test-engine.c - what a prefetcher is asked after, and what it learns. */
#include "engine-world.h"

static void begin_request(struct qm_stream *stream, uint32_t count)
{
    p.request = count;
}

/* Misses are asked after, and prefetch hits if they are to; hits are for a prefetcher
 * that sees its reader pass. */
TEST_WITH(test_what_is_asked_after, make, undo)
{
    p.want_n = 2;
    assert_int_equal(extend(QM_ACCESS_MISS), 2);
    assert_int_equal(extend(QM_ACCESS_PREFETCH_HIT), 2);
    assert_int_equal(extend(QM_ACCESS_HIT), 0);
    assert_int_equal(extend(QM_ACCESS_EARLY_HIT), 0);
    p.ops.flags = QM_EARLY_HITS; /* these are as prefetch hits to some */
    assert_int_equal(extend(QM_ACCESS_EARLY_HIT), 2);
    assert_int_equal(extend(QM_ACCESS_HIT), 0);
    engine.on_prefetch_hit = false;
    assert_int_equal(extend(QM_ACCESS_PREFETCH_HIT), 0);
    assert_int_equal(extend(QM_ACCESS_EARLY_HIT), 0);
    assert_int_equal(p.asked, 3);
    p.ops.flags = QM_ASK_ALWAYS;
    assert_int_equal(extend(QM_ACCESS_HIT), 2);
    engine.prefetches = false;
    assert_int_equal(extend(QM_ACCESS_MISS), 0);
    assert_int_equal(p.accesses, 10);
}

/* A prefetcher that reserves place, as soon as it is made. */
static int create_reserving(const struct qm_mining_config *config,
                            struct qm_prefetcher **prefetcher, char *err, size_t len)
{
    config->reserve(config->opaque, 10);
    *prefetcher = &p.base;
    return 0;
}

static uint64_t reserved(void)
{
    const struct qm_mining_config mining = {.ablate = 0};

    assert_int_equal(
        qm_engine_make_prefetcher(&engine, &p.ops, &mining, (char[64]){0}, 64), 0);
    return atomic_load(&cache->reserved);
}

/* Place is reserved for streams, but not where they cost more than they are worth. */
TEST_WITH(test_reserves, make, undo)
{
    struct qm_bound bound;

    p.ops.create = create_reserving;
    p.ops.flags = QM_WEIGHS_READS;
    assert_int_equal(reserved(), 10);
    qm_bound_init(&bound);
    engine.bound = &bound;
    assert_int_equal(reserved(), 10);
    atomic_store(&bound.dear, true);
    assert_int_equal(reserved(), 0);
    p.ops.flags = 0; /* nothing is held back from such a one */
    (void)reserved();
    assert_int_equal(reserved(), 10);
    qm_bound_destroy(&bound);
}

/* What an access makes to learn from is learned before candidates are asked for. */
TEST_WITH(test_learns_first, make, undo)
{
    p.makes_work = true;
    extend(QM_ACCESS_MISS);
    assert_int_equal(p.learned_when_asked, 1);
    extend(QM_ACCESS_HIT);
    assert_int_equal(p.learned, 2);
}

TEST_WITH(test_ignored_hits, make, undo)
{
    const struct qm_mining_config with = {.ablate = 0},
                                  without = {.ablate = QM_ABLATE_MISSES};

    assert_false(qm_engine_ignores(&engine, QM_ACCESS_HIT));
    p.ops.flags = QM_NO_HITS;
    qm_engine_set_prefetcher(&engine, &p.base, &with);
    assert_true(qm_engine_ignores(&engine, QM_ACCESS_HIT));
    assert_true(qm_engine_ignores(&engine, QM_ACCESS_EARLY_HIT));
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_PREFETCH_HIT));
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_MISS));
    qm_engine_set_prefetcher(&engine, &p.base, &without);
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_HIT));
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_EARLY_HIT));
    p.ops.flags = QM_EARLY_HITS;
    qm_engine_set_prefetcher(&engine, &p.base, &with);
    assert_true(qm_engine_ignores(&engine, QM_ACCESS_HIT));
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_EARLY_HIT));
    qm_engine_set_prefetcher(&engine, &p.base, &without);
    assert_false(qm_engine_ignores(&engine, QM_ACCESS_HIT));
}

/* A prefetch that somebody has to wait for is late. */
TEST_WITH(test_fates, make, undo)
{
    struct qm_lookup found = {.outcome = QM_PREFETCH_HIT, .todo = QM_DONE, .issuer = 3};

    assert_int_equal(qm_engine_found(&engine, 5, 4, &found), QM_ACCESS_PREFETCH_HIT);
    assert_int_equal(p.fate, QM_FATE_USED);
    assert_int_equal(p.issuer, 3);
    assert_int_equal(p.user, 4);
    found.todo = QM_WAIT;
    qm_engine_found(&engine, 5, 4, &found);
    assert_int_equal(p.fate, QM_FATE_LATE);
    qm_engine_wasted(&engine, 5, 3);
    assert_int_equal(p.fate, QM_FATE_UNUSED);
    assert_int_equal(p.ends, 3);
    found.outcome = QM_MISS;
    assert_int_equal(qm_engine_found(&engine, 5, 4, &found), QM_ACCESS_MISS);
    found.outcome = QM_HIT;
    assert_int_equal(qm_engine_found(&engine, 5, 4, &found), QM_ACCESS_HIT);
    found.early = true;
    assert_int_equal(qm_engine_found(&engine, 5, 4, &found), QM_ACCESS_EARLY_HIT);
    assert_int_equal(p.ends, 3);
}

/* What the request reads itself is not prefetched for it, but by the rules of papers
 * that know single blocks. */
TEST_WITH(test_own_request, make, undo)
{
    static const struct {
        uint64_t block;
        uint32_t count;
    } wants[] = {{3, 1}, {5, 1}, {8, 1}, {9, 1}, {4, 8}, {6, 6}, {0, 40}},
      remain[] = {{3, 1}, {9, 1}, {4, 1}, {9, 3}, {0, 5}};

    for (unsigned i = 0; i < 7; i++)
        p.wants[i] = (struct qm_candidate){wants[i].block, wants[i].count, 1, i % 2};
    p.want_n = 7;
    p.ops.request = begin_request;
    assert_int_equal(extend(QM_ACCESS_MISS), 7);
    assert_int_equal(p.request, 1);
    assert_int_equal(
        qm_engine_extend(&engine, NULL, 1, 5, 4, QM_ACCESS_MISS, learn, &load, got), 5);
    assert_int_equal(p.request, 4);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(got[i].block, remain[i].block);
        assert_int_equal(got[i].count, remain[i].count);
    }
    p.ops.flags = QM_BLOCK_BY_BLOCK;
    assert_int_equal(
        qm_engine_extend(&engine, NULL, 1, 5, 4, QM_ACCESS_MISS, learn, &load, got), 7);
}

static struct qm_mining_config made_with;

static int create(const struct qm_mining_config *config, struct qm_prefetcher **made,
                  char *err, size_t len)
{
    made_with = *config;
    *made = &p.base;
    return 0;
}

static bool is_odd(void *opaque, uint64_t block)
{
    assert_ptr_equal(opaque, &load);
    return block % 2 == 1;
}

/* A policy is told where a block lies. */
TEST_WITH(test_place, make, undo)
{
    const struct qm_mining_config mining = {.ablate = 0};
    struct qm_lookup found;
    char err[64];

    p.ops.create = create;
    assert_int_equal(
        qm_engine_make_prefetcher(&engine, &p.ops, &mining, err, sizeof err), 0);
    assert_int_equal(qm_cache_demand(cache, 1, NULL, 0, 1, &found), 0);
    qm_cache_fill(cache, found.fill, NULL);
    assert_int_equal(made_with.place(made_with.opaque, 1), QM_PLACE_MEMORY);
    assert_int_equal(made_with.place(made_with.opaque, 3), QM_PLACE_BACKEND);
    engine.in_tier = is_odd;
    engine.opaque = &load;
    assert_int_equal(made_with.place(made_with.opaque, 1), QM_PLACE_MEMORY);
    assert_int_equal(made_with.place(made_with.opaque, 3), QM_PLACE_TIER);
    assert_int_equal(made_with.place(made_with.opaque, 4), QM_PLACE_BACKEND);
}
