/* SPDX-License-Identifier: BSD-3-Clause */
/* test-auto.c - policy auto: association and readahead behind one interface. */
#include "testing.h"

#include "mining/core/registry.h"
#include "mining/readahead/tracks.h"

enum {
    BLOCKS = 1 << 17,
    PART_OF_RULES = 4, /* of the memory for rules, that readahead takes at most */
};

/* A cache that keeps nothing: each access is a miss. */
struct world {
    struct qm_prefetcher *p;
    struct qm_stream *s;
    struct qm_candidate out[QM_CANDIDATES_MAX];
    unsigned n;
};

static struct world make(uint64_t rules_memory)
{
    struct qm_mining_config config;
    struct world w = {0};
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = rules_memory;
    config.block_size = 16384;
    config.cache_blocks = 4096;
    assert_int_equal(qm_prefetcher_auto.create(&config, &w.p, err, sizeof err), 0);
    w.s = w.p->ops->begin(w.p, 1);
    assert_non_null(w.s);
    return w;
}

static void unmake(struct world *w)
{
    struct qm_work *work;

    w->p->ops->end(w->p, w->s, &work);
    assert_null(work);
    assert_int_equal(w->p->ops->destroy(w->p), 0);
}

static bool has(const struct world *w, uint64_t block)
{
    for (unsigned i = 0; i < w->n; i++)
        if (block >= w->out[i].block && block - w->out[i].block < w->out[i].count)
            return true;
    return false;
}

/* No block twice, and the likeliest first. */
static void check(const struct world *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        assert_true(w->out[i].count >= 1);
        assert_true(w->out[i].probability >= 0 && w->out[i].probability <= 1);
        if (i > 0)
            assert_true(w->out[i].probability <= w->out[i - 1].probability);
        for (unsigned k = 0; k < i; k++)
            assert_false(w->out[i].block < w->out[k].block + w->out[k].count &&
                         w->out[k].block < w->out[i].block + w->out[i].count);
    }
}

static void access_block(struct world *w, uint64_t block, enum qm_access outcome,
                         unsigned max)
{
    struct qm_work *work;

    w->p->ops->access(w->p, w->s, block, outcome, &work);
    assert_null(work);
    w->n = w->p->ops->candidates(w->p, w->s, w->out, max);
    assert_true(w->n <= max);
    check(w);
}

static void miss(struct world *w, uint64_t block)
{
    access_block(w, block, QM_ACCESS_MISS, QM_CANDIDATES_MAX);
}

/* Blocks that recur in an order, far apart: rules alone. */
static void recur(struct world *w, unsigned times)
{
    static const uint64_t path[] = {500, 90000, 7000, 60000, 33000, 120000};

    for (unsigned i = 0; i < times; i++)
        for (unsigned k = 0; k < sizeof path / sizeof path[0]; k++)
            miss(w, path[k]);
}

static void test_association(void **state)
{
    struct world w = make(16 << 20);

    recur(&w, 20);
    miss(&w, 500);
    assert_true(has(&w, 90000));
    for (unsigned i = 0; i < w.n; i++)
        assert_false(w.out[i].stream);
    unmake(&w);
}

static void test_stream(void **state)
{
    struct world w = make(16 << 20);

    for (uint64_t b = 1000; b < 1010 && w.n == 0; b++)
        miss(&w, b);
    assert_int_equal(w.n, 1);
    assert_true(w.out[0].stream);
    unmake(&w);
}

/* A rule leads away from a run: its block is wanted beside the window. */
static void test_beside(void **state)
{
    struct world w = make(16 << 20);
    unsigned both = 0;

    for (unsigned i = 0; i < 40; i++) {
        miss(&w, 50000);
        miss(&w, 1001);
        miss(&w, 70000);
        miss(&w, 20000 + 50 * i);
    }
    for (uint64_t i = 0; i < 6000; i++) /* nobody remembers where reads ended */
        miss(&w, 200000 + 64 * i * i);
    miss(&w, 1000);
    miss(&w, 1001); /* a run now */
    for (unsigned k = 0; k < w.n; k++)
        both += w.out[k].stream && has(&w, 70000);
    assert_true(both > 0);
    unmake(&w);
}

/* A long scan leaves no rules, and those that were there are kept. */
static void test_scan_is_not_mined(void **state)
{
    struct world w = make(16 << 20);
    struct qm_mining_stats before, after;
    uint64_t asked = 0; /* blocks below it */

    recur(&w, 20);
    w.p->ops->stats(w.p, &before);
    for (uint64_t b = 10000; b < 30000; b++) {
        if (asked > b)
            w.p->ops->ended(w.p, b, 1, 1, QM_FATE_USED);
        access_block(&w, b, asked > b ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS, 64);
        for (unsigned k = 0; k < w.n; k++)
            asked = w.out[k].block + w.out[k].count;
    }
    w.p->ops->stats(w.p, &after);
    assert_true(after.rules < before.rules + 1000);
    recur(&w, 1);
    miss(&w, 500);
    assert_true(has(&w, 90000));
    unmake(&w);
}

/* Readahead takes its memory from that for rules; where that is little, there is
 * association alone. */
static void test_memory(void **state)
{
    struct world w = make(PART_OF_RULES * qm_tracks_bytes());
    struct qm_mining_stats stats;

    w.p->ops->stats(w.p, &stats);
    assert_true(stats.rules_bytes >= qm_tracks_bytes());
    assert_true(stats.rules_bytes <= PART_OF_RULES * qm_tracks_bytes());
    unmake(&w);
    w = make(64 << 10);
    for (uint64_t b = 1000; b < 1100; b++) {
        miss(&w, b);
        assert_int_equal(w.n, 0);
    }
    w.p->ops->refused(w.p, 1, 1);
    w.p->ops->ended(w.p, 1, 1, 1, QM_FATE_USED);
    w.p->ops->stats(w.p, &stats);
    assert_true(stats.rules_bytes <= 64 << 10);
    unmake(&w);
}

/* However few are asked for, and in any order. */
static void test_wild(void **state)
{
    struct world w = make(16 << 20);
    struct rng rng = {3};
    uint64_t at = 1000;

    for (unsigned i = 0; i < 100000; i++) {
        if (rng_below(&rng, 20) == 0)
            at = rng_below(&rng, BLOCKS);
        at += rng_below(&rng, 3);
        access_block(&w, at, (enum qm_access)rng_below(&rng, 3),
                     1 + (unsigned)rng_below(&rng, QM_CANDIDATES_MAX));
        for (unsigned k = 0; k < w.n; k++) {
            uint64_t block = w.out[k].block + rng_below(&rng, w.out[k].count);

            if (rng_below(&rng, 2) && w.out[k].stream)
                w.p->ops->refused(w.p, block,
                                  (uint32_t)(w.out[k].block + w.out[k].count - block));
            w.p->ops->ended(w.p, block, 1, 1, (enum qm_fate)rng_below(&rng, 3));
        }
    }
    unmake(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_association), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_beside),      cmocka_unit_test(test_scan_is_not_mined),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_wild),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
