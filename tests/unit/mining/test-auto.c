/* SPDX-License-Identifier: BSD-3-Clause */
/* test-auto.c - policy auto: association and readahead behind one interface. */
#include "testing.h"

#include "mining/core/registry.h"

enum { BLOCKS = 1 << 17 };

/* A cache that keeps nothing: each access is a miss. */
struct world {
    struct qm_prefetcher *p;
    struct qm_stream *s;
    struct qm_candidate out[QM_CANDIDATES_MAX];
    unsigned n;
};

static struct world make_most(uint64_t rules_memory, uint64_t rules_most)
{
    struct qm_mining_config config;
    struct world w = {0};
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = rules_memory;
    config.rules_most = rules_most;
    config.block_size = 16384;
    config.cache_blocks = 4096;
    assert_int_equal(qm_prefetcher_auto.create(&config, &w.p, err, sizeof err), 0);
    w.s = w.p->ops->begin(w.p, 1);
    assert_non_null(w.s);
    return w;
}

static struct world make(uint64_t rules_memory)
{
    return make_most(rules_memory, 0);
}

/* Another context goes on. */
static void begin_again(struct world *w)
{
    struct qm_work *work;

    w->p->ops->end(w->p, w->s, &work);
    w->s = w->p->ops->begin(w->p, 1);
    assert_non_null(w->s);
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

TEST(test_association)
{
    struct world w = make(16 << 20);

    recur(&w, 20);
    miss(&w, 500);
    assert_true(has(&w, 90000));
    for (unsigned i = 0; i < w.n; i++)
        assert_false(w.out[i].stream);
    unmake(&w);
}

TEST(test_stream)
{
    struct world w = make(16 << 20);

    for (uint64_t b = 1000; b < 1010 && w.n == 0; b++)
        miss(&w, b);
    assert_int_equal(w.n, 1);
    assert_true(w.out[0].stream);
    unmake(&w);
}

/* A rule leads away from a run: its block is wanted beside the window. */
TEST(test_beside)
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
TEST(test_scan_is_not_mined)
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

/* Reads `streams` at a time, in parts of the device that begin at `from`; returns
 * whether each of them is read ahead. */
static bool reads_ahead(struct world *w, unsigned streams, uint64_t from)
{
    bool ahead[64] = {false}, all = true;
    uint64_t first[64];
    struct rng rng = {5};

    for (unsigned s = 0; s < streams; s++)
        first[s] = from + 5000 * s + rng_below(&rng, 4000);
    for (uint64_t b = 0; b < 4; b++)
        for (unsigned s = 0; s < streams; s++) {
            if (s % 4 == 0) /* no context reads all, or it would know its runs */
                begin_again(w);
            miss(w, first[s] + b);
            ahead[s] |= has(w, first[s] + b + 1);
        }
    for (unsigned s = 0; s < streams; s++)
        all &= ahead[s];
    return all;
}

/* Readahead has its memory from that for rules, in a small cache as well, of which it
 * takes a part; with more memory it follows more streams. */
TEST(test_memory)
{
    static const uint64_t bytes[] = {64 << 10, 100 << 10, 200 << 10, 1 << 20, 16 << 20};

    for (unsigned i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        struct world w = make(bytes[i]);
        struct qm_mining_stats stats;

        assert_true(reads_ahead(&w, 8, 1000));
        recur(&w, 1000);
        w.p->ops->stats(w.p, &stats);
        assert_in_range(stats.rules_limit, bytes[i] / 2, bytes[i]);
        assert_true(stats.rules_bytes <= stats.rules_limit);
        unmake(&w);
    }
}

/* Memory that is given or taken later is readahead's, too. */
TEST(test_set_memory)
{
    static const uint64_t bytes[] = {64 << 10, 1 << 20, 100 << 10, 512 << 10, 0};
    struct world w = make_most(64 << 10, 1 << 20);
    struct qm_mining_stats stats;

    assert_false(reads_ahead(&w, 64, 1000));
    for (unsigned i = 0; bytes[i]; i++) {
        w.p->ops->set_memory(w.p, bytes[i]);
        w.p->ops->stats(w.p, &stats);
        assert_in_range(stats.rules_limit, bytes[i] / 2, bytes[i]);
        assert_true(stats.rules_bytes <= stats.rules_limit);
        assert_true(reads_ahead(&w, bytes[i] < 512 << 10 ? 8 : 64, 1000000 * (i + 2)));
    }
    w.p->ops->set_memory(w.p, 0); /* it has the least that it can have */
    assert_true(reads_ahead(&w, 4, 500000));
    unmake(&w);
}

/* With next to no memory rules take none, and propose nothing; with some they learn
 * anew. */
TEST(test_sleeps)
{
    struct world w = make_most(256 << 10, 1 << 20);
    struct qm_mining_stats stats;

    recur(&w, 20);
    miss(&w, 500);
    assert_true(has(&w, 90000));
    w.p->ops->set_memory(w.p, 256);
    w.p->ops->stats(w.p, &stats);
    assert_in_range(stats.rules_limit, 0, 256);
    for (unsigned i = 0; i < 20000; i++) { /* also what a single line would hold */
        miss(&w, i % 1000 * (i % 1000) * 3 % 100003);
        for (unsigned k = 0; k < w.n; k++)
            assert_true(w.out[k].stream);
    }
    w.p->ops->set_memory(w.p, 64 << 10);
    miss(&w, 500);
    assert_false(has(&w, 90000));
    recur(&w, 20);
    miss(&w, 500);
    assert_true(has(&w, 90000));
    unmake(&w);
}

/* Early hits are ppm's business: what follows one is asked for. */
TEST(test_early_hits)
{
    struct world w = make(16 << 20);

    for (unsigned i = 0; i < 4; i++) {
        access_block(&w, 700, QM_ACCESS_MISS, QM_CANDIDATES_MAX);
        access_block(&w, 90000, QM_ACCESS_EARLY_HIT, QM_CANDIDATES_MAX);
        access_block(&w, 300, QM_ACCESS_MISS, QM_CANDIDATES_MAX);
        begin_again(&w);
    }
    access_block(&w, 90000, QM_ACCESS_EARLY_HIT, QM_CANDIDATES_MAX);
    assert_int_equal(w.n, 1);
    assert_true(has(&w, 300));
    unmake(&w);
}

/* A reader's stream goes on behind an early hit as if it had not been there, and early
 * hits alone are none. */
TEST(test_early_hit_in_a_stream)
{
    struct world with = make(16 << 20), without = make(16 << 20);
    unsigned asked = 0;

    for (uint64_t at = 5000; at < 5100; at++) {
        access_block(&with, at, QM_ACCESS_MISS, QM_CANDIDATES_MAX);
        access_block(&without, at, QM_ACCESS_MISS, QM_CANDIDATES_MAX);
        assert_int_equal(with.n, without.n);
        for (unsigned i = 0; i < with.n; i++) {
            assert_int_equal(with.out[i].block, without.out[i].block);
            assert_int_equal(with.out[i].count, without.out[i].count);
        }
        asked += with.n;
        access_block(&with, 200000 + 3 * at, QM_ACCESS_EARLY_HIT, QM_CANDIDATES_MAX);
        assert_int_equal(with.n, 0); /* no window is asked for anew */
    }
    assert_true(asked > 0);
    begin_again(&with);
    for (uint64_t at = 90000; at < 90100; at++) { /* what is there needs no reading */
        access_block(&with, at, QM_ACCESS_EARLY_HIT, QM_CANDIDATES_MAX);
        assert_int_equal(with.n, 0);
    }
    unmake(&with);
    unmake(&without);
}

/* However few are asked for, and in any order. */
TEST(test_wild)
{
    struct world w = make(16 << 20);
    struct rng rng = {3};
    uint64_t at = 1000;

    for (unsigned i = 0; i < 100000; i++) {
        if (rng_below(&rng, 20) == 0)
            at = rng_below(&rng, BLOCKS);
        at += rng_below(&rng, 3);
        access_block(&w, at, (enum qm_access)rng_below(&rng, QM_ACCESS_MISS + 1),
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
