/* SPDX-License-Identifier: BSD-3-Clause */
/* MITHRIL: lists, bounds, and a naive model of what is associated. */
#include "baseline.h"

enum {
    LOOKAHEAD = 20,
    MIN_SUPPORT = 2,
    MAX_SUPPORT = 8,
    LIST = 2,
    MINING_ROWS = 2560,
    RECORD_ROWS = 65536,
    FILLERS = 1000000, /* blocks from here on are read to fill tables */
};

static struct {
    struct qm_prefetcher *p;
    struct qm_stream *s;
    uint64_t filler, hit;
} f;

static unsigned degree = 2 * LIST; /* more than there ever are */

#define NEVER QM_RETRAIN_MAX

/* Mined when the mining table is full, or after retrain accesses. */
static void begin_all(uint64_t max_prefix, uint64_t retrain)
{
    struct qm_mining_config config;
    char err[256];

    qm_mining_defaults(&config);
    config.max_prefix = max_prefix;
    config.retrain = retrain;
    config.degree = degree;
    assert_int_equal(
        qm_prefetcher_find("mithril")->create(&config, &f.p, err, sizeof err), 0);
    assert_string_equal(err, "");
    f.s = begin(f.p);
    f.filler = FILLERS;
}

static void end_all(void)
{
    end(f.p, f.s);
    f.p->ops->destroy(f.p);
}

static int set_up(void **state)
{
    begin_all(0, NEVER);
    return 0;
}

static int tear_down(void **state)
{
    end_all();
    return 0;
}

static struct asked miss(uint64_t block)
{
    return step(f.p, f.s, block, QM_ACCESS_MISS);
}

/* Time passes. */
static void pass(unsigned ticks)
{
    while (ticks-- > 0) {
        step(f.p, f.s, 7, f.hit++ % 2 ? QM_ACCESS_HIT : QM_ACCESS_PREFETCH_HIT);
    }
}

/* Fills the mining table, so that it is mined: far from everything else. */
static void fill(void)
{
    uint64_t before = stats_of(f.p).sequences;

    pass(LOOKAHEAD + 1);
    while (stats_of(f.p).sequences == before) {
        miss(f.filler);
        miss(f.filler);
        f.filler++;
    }
}

/* What is prefetched when block is read: newest first. */
static struct asked after(uint64_t block)
{
    return step(f.p, f.s, block, QM_ACCESS_HIT);
}

/* A row holds two blocks, the newest first; what it holds already is not new. */
TEST_WITH(test_list, set_up, tear_down)
{
    static const uint64_t nexts[] = {2, 3, 2, 4};
    static const uint64_t lists[][LIST] = {{2, 0}, {3, 2}, {3, 2}, {4, 3}};

    for (unsigned round = 0; round < 4; round++) {
        for (int i = 0; i < 2; i++) {
            miss(1);
            miss(nexts[round]);
            pass(40);
        }
        fill();
        struct asked a = after(1);
        assert_int_equal(a.n, round == 0 ? 1 : LIST);
        assert_memory_equal(a.blocks, lists[round], a.n * sizeof(uint64_t));
        assert_int_equal(candidate_blocks(f.p, f.s, 1, a.blocks), 1);
        assert_int_equal(a.blocks[0], lists[round][0]);
    }
}

/* It does not matter whose accesses they are. */
TEST_WITH(test_all_streams_together, set_up, tear_down)
{
    struct qm_stream *other = begin(f.p);

    for (int i = 0; i < 2; i++) {
        miss(1);
        step(f.p, other, 2, QM_ACCESS_MISS);
        pass(40);
    }
    fill();
    assert_asked(step(f.p, other, 1, QM_ACCESS_MISS), 2, 2);
    assert_int_equal(candidate_blocks(f.p, f.s, 1, (uint64_t[1]){0}), 0);
    end(f.p, other);
}

/* The recording table is a ring. */
TEST(test_recording_is_bounded)
{
    for (unsigned others = RECORD_ROWS - 2; others <= RECORD_ROWS - 1; others++) {
        begin_all(0, NEVER);
        miss(1);
        miss(2); /* others - 1 more may come before it is forgotten */
        pass(40);
        for (uint64_t b = 0; b < others; b++) {
            miss(100000 + b);
        }
        pass(40);
        miss(1);
        miss(2);
        fill();
        assert_int_equal(after(1).n, others == RECORD_ROWS - 2);
        end_all();
    }
}

TEST(test_rules_are_bounded)
{
    struct qm_mining_stats stats;

    begin_all(3, NEVER);
    for (uint64_t group = 10; group <= 50; group += 10) {
        for (int i = 0; i < 2; i++) {
            miss(group);
            miss(group + 1);
            pass(40);
        }
    }
    /* The fillers would drive all out: they are associated, so none of them here. */
    while (stats_of(f.p).sequences == 0) {
        miss(f.filler);
        pass(LOOKAHEAD);
        miss(f.filler++);
        pass(LOOKAHEAD);
    }
    stats = stats_of(f.p);
    assert_int_equal(stats.prefixes, 3);
    assert_int_equal(stats.rules, 3);
    assert_int_equal(stats.evicted, 2);
    assert_int_equal(stats.updates, 5);
    for (uint64_t group = 10; group <= 50; group += 10) {
        assert_int_equal(after(group).n, group >= 30);
    }
    assert_int_equal(stats_of(f.p).matches - stats.matches, 3);
    assert_int_equal(stats_of(f.p).lookups - stats.lookups, 5);
    assert_in_range(stats.rules_bytes, 2 << 20, 4 << 20);
    end_all();
}

/* A table that does not fill is mined in time: at the first miss after that. */
TEST(test_period)
{
    static const uint64_t periods[][2] = {{0, 16384}, {500, 500}};

    for (unsigned i = 0; i < 2; i++) {
        begin_all(0, periods[i][0]);
        miss(1);
        miss(2);
        pass(40);
        miss(1);
        miss(2);
        pass((unsigned)periods[i][1] - 45);
        miss(3); /* at tick period - 1 */
        assert_int_equal(stats_of(f.p).sequences, 0);
        assert_int_equal(after(1).n, 0); /* found in the cache: does not count */
        miss(4);
        assert_int_equal(stats_of(f.p).sequences, 1);
        assert_int_equal(after(1).n, 1);
        pass((unsigned)periods[i][1] - 3);
        miss(5);
        assert_int_equal(stats_of(f.p).sequences, 1);
        miss(6);
        assert_int_equal(stats_of(f.p).sequences, 2);
        end_all();
    }
}

/* While a mining table is out, the other fills and then waits. */
TEST_WITH(test_one_table_out, set_up, tear_down)
{
    struct qm_work *out = NULL, *work;

    for (unsigned round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 2 * MINING_ROWS + 100; i++) {
            f.p->ops->access(f.p, f.s, FILLERS + i / 2, QM_ACCESS_MISS, &work);
            assert_true(!work || !out);
            out = work ? work : out;
            assert_int_equal(out != NULL, round > 0 || i >= 2 * MINING_ROWS - 1);
        }
    }
    f.p->ops->discard(f.p, out);
    assert_int_equal(stats_of(f.p).sequences, 0);
    /* The next miss hands out the one that is full. */
    f.p->ops->access(f.p, f.s, 1, QM_ACCESS_MISS, &work);
    assert_non_null(work);
    assert_int_equal(f.p->ops->learn(f.p, work), 0);
    assert_int_equal(stats_of(f.p).sequences, 1);
}

/* The model: all that happened to each block, and mining by comparing all with all. */
enum { BLOCKS = 40000, ACCESSES = 25000 };

static struct naive_block {
    unsigned n; /* misses since it was last mined or too frequent */
    uint64_t times[MAX_SUPPORT];
    uint64_t list[LIST]; /* the newest first */
    unsigned listed;
    bool made; /* it has a row */
} naive[BLOCKS];
static uint64_t naive_made, naive_rows, naive_max;
static uint64_t naive_order[1000000]; /* in which rows were made */

static void naive_associate(uint64_t a, uint64_t b)
{
    struct naive_block *row = &naive[a];

    if (!row->made) {
        if (naive_rows == naive_max) {
            struct naive_block *oldest = &naive[naive_order[naive_made - naive_max]];

            oldest->listed = 0;
            oldest->made = false;
            naive_rows--;
        }
        naive_order[naive_made++] = a;
        row->made = true;
        naive_rows++;
    }
    for (unsigned i = 0; i < row->listed; i++) {
        if (row->list[i] == b) {
            return;
        }
    }
    row->list[1] = row->list[0];
    row->list[0] = b;
    row->listed += row->listed < LIST;
}

static void naive_mine(void)
{
    static uint64_t order[MINING_ROWS];
    unsigned n = 0;

    for (uint64_t b = 0; b < BLOCKS; b++) {
        if (naive[b].n >= MIN_SUPPORT) {
            unsigned at = n++;
            for (; at > 0 && naive[order[at - 1]].times[0] > naive[b].times[0]; at--) {
                order[at] = order[at - 1];
            }
            order[at] = b;
        }
    }
    assert_int_equal(n, MINING_ROWS);
    for (unsigned i = 0; i < n; i++) {
        bool weak = false;
        for (unsigned j = i + 1; j < n; j++) {
            const struct naive_block *a = &naive[order[i]], *b = &naive[order[j]];
            bool near = a->n == b->n, adjacent = false;

            for (unsigned k = 0; near && k < a->n; k++) {
                int64_t apart = (int64_t)(a->times[k] - b->times[k]);
                near = apart >= -LOOKAHEAD && apart <= LOOKAHEAD;
                adjacent = adjacent || apart == 1 || apart == -1;
            }
            if (near && (adjacent || !weak)) {
                naive_associate(order[i], order[j]);
            }
            weak = weak || near;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        naive[order[i]].n = 0;
    }
}

static void naive_miss(uint64_t block, uint64_t now, unsigned *mining)
{
    struct naive_block *b = &naive[block];

    if (b->n == MAX_SUPPORT) {
        b->n = 0;
        --*mining;
        return;
    }
    b->times[b->n++] = now;
    if (b->n == MIN_SUPPORT && ++*mining == MINING_ROWS) {
        naive_mine();
        *mining = 0;
    }
}

TEST(test_naive_model)
{
    const unsigned traces = qm_rounds(100);
    unsigned matches = 0, evictions = 0, mined = 0;

    for (uint64_t seed = 1; seed <= traces; seed++) {
        struct rng rng = {seed};
        unsigned mining = 0;
        uint64_t group = 0, place = 0;

        naive_max = seed % 2 ? 300 : 1u << 24;
        naive_made = naive_rows = 0;
        memset(naive, 0, sizeof naive);
        degree = seed % 3 ? 2 * LIST : 1;
        begin_all(naive_max, NEVER);
        for (uint64_t i = 0; i < ACCESSES; i++) {
            uint64_t block;
            enum qm_access outcome;

            /* Groups of four blocks in a row, with others between; the groups that are
             * read at a time move on. */
            if (rng_below(&rng, 10) < seed % 5) {
                block = rng_below(&rng, BLOCKS);
            } else {
                if (place == 0) {
                    group = i / 15 + rng_below(&rng, 300);
                }
                block = 4 * group % BLOCKS + place;
                place = (place + 1) % 4;
            }
            outcome = rng_below(&rng, 20) ? QM_ACCESS_MISS : QM_ACCESS_HIT;
            struct asked a = step(f.p, f.s, block, outcome);
            if (outcome == QM_ACCESS_MISS) {
                naive_miss(block, i, &mining);
            }
            assert_int_equal(a.n, naive[block].listed < degree ? naive[block].listed
                                                               : degree);
            assert_memory_equal(a.blocks, naive[block].list, a.n * sizeof(uint64_t));
            matches += a.n > 0;
        }
        evictions += stats_of(f.p).evicted > 0;
        mined += stats_of(f.p).sequences > 1;
        assert_int_equal(stats_of(f.p).prefixes, naive_rows);
        end_all();
    }
    /* The traces are no trivial ones. */
    assert_true(matches > 100 * traces);
    assert_int_equal(evictions, traces / 2);
    assert_true(mined > traces / 2);
}
