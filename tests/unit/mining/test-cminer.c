/* SPDX-License-Identifier: BSD-3-Clause */
/* C-Miner*: the rules against a slow miner of closed sequences, and in little memory.
 */
#include "cminer-model.h"

#include <errno.h>

#include "mining/baselines/keys.h"

/* Numbers whose order is not that of the digits. */
static uint64_t block_of(unsigned digit)
{
    static const uint64_t odd[] = {0, UINT64_MAX, 7, UINT64_C(1) << 40, 1};
    return digit < 5 ? odd[digit] : 1000 - digit;
}

static struct qm_cminer_db database(const struct cminer_segments *segments)
{
    struct qm_cminer_db db = {0};
    for (unsigned s = 0; s < segments->n; s++) {
        uint64_t blocks[MODEL_SEGMENT];
        for (unsigned i = 0; i < segments->len[s]; i++) {
            blocks[i] = block_of(segments->blocks[s][i]);
        }
        assert_int_equal(qm_cminer_add(&db, blocks, segments->len[s]), 0);
    }
    assert_int_equal(qm_cminer_number(&db), 0);
    return db;
}

static struct cminer_segments random_segments(struct rng *rng)
{
    struct cminer_segments s = {.n = (unsigned)rng_below(rng, MODEL_SEGMENTS + 1)};
    unsigned range = 2 + (unsigned)rng_below(rng, 8);
    unsigned len = (unsigned)rng_below(rng, 15);
    for (unsigned i = 0; i < s.n; i++) {
        /* Some repeat what another one has. */
        unsigned from = (unsigned)rng_below(rng, s.n);
        s.len[i] = len - (unsigned)rng_below(rng, len / 2 + 1);
        for (unsigned j = 0; j < s.len[i]; j++) {
            s.blocks[i][j] = from < i && j < s.len[from] && rng_below(rng, 8) > 0
                                 ? s.blocks[from][j]
                                 : 1 + (unsigned)rng_below(rng, range);
        }
    }
    return s;
}

TEST(test_against_model)
{
    struct rng rng = {31};
    size_t rules = 0, pruned = 0;
    for (int round = 0; round < 1500; round++) {
        struct cminer_segments segments = random_segments(&rng);
        struct qm_cminer_config config;
        struct qm_cminer_counts counts;
        qm_cminer_defaults(&config);
        config.max_gap = 2 + (unsigned)rng_below(&rng, 6);
        config.min_support =
            1 + (uint32_t)rng_below(&rng, 2) * (uint32_t)rng_below(&rng, 4);
        config.min_confidence = (unsigned)rng_below(&rng, 4) * 33;
        config.memory = rng_below(&rng, 2) == 0 ? 1 : config.memory;
        struct qm_cminer_db db = database(&segments);
        struct cminer_rules is = cminer_mine(&config, &db, &counts);
        struct cminer_rules should = model_cminer(&segments, &config, block_of);
        assert_same_cminer(&is, &should, round);
        rules += should.n;
        free(should.v);

        /* The counts: all frequent pairs and triples, and rules after pruning. */
        config.min_confidence = 0;
        should = model_cminer(&segments, &config, block_of);
        assert_int_equal(counts.pairs + counts.triples, should.n);
        pruned += should.n - is.n;
        size_t pairs = 0;
        for (size_t i = 0; i < should.n; i++) {
            pairs += should.v[i].n == 1;
        }
        assert_int_equal(counts.pairs, pairs);
        assert_int_equal(counts.segments, db.segments);
        assert_int_equal(counts.accesses, db.n);
        struct qm_cminer_counts again;
        assert_int_equal(qm_cminer_mine(&config, &db, NULL, NULL, &again), 0);
        assert_int_equal(again.rules, should.n);
        free(should.v);
        free(is.v);
        qm_cminer_db_free(&db);
    }
    assert_true(rules > 15000 && pruned > 5000); /* else it would prove little */
}

/* ATC'08 §5.1: of 100 segments 80 have a2 a3 a4, and 20 have a2 a3 a5. */
TEST(test_papers_example)
{
    struct qm_cminer_config config;
    struct qm_cminer_counts counts;
    struct qm_cminer_db db = {0};
    for (int i = 0; i < 100; i++) {
        uint64_t blocks[] = {2, 3, i < 80 ? 4 : 5};
        assert_int_equal(qm_cminer_add(&db, blocks, 3), 0);
    }
    assert_int_equal(qm_cminer_number(&db), 0);
    qm_cminer_defaults(&config);
    assert_int_equal(config.max_gap, 10);
    assert_int_equal(config.min_support, 1);
    assert_int_equal(config.min_confidence, 10);
    for (unsigned confidence = 20; confidence <= 21; confidence++) {
        config.min_confidence = confidence;
        struct cminer_rules list = cminer_mine(&config, &db, &counts);
        static const struct cminer_rule all[] = {
            {1, 2, 0, 3, 100, 100}, {1, 2, 0, 4, 80, 100}, {1, 2, 0, 5, 20, 100},
            {2, 2, 3, 4, 80, 100},  {2, 2, 3, 5, 20, 100}, {1, 3, 0, 4, 80, 100},
            {1, 3, 0, 5, 20, 100},
        };
        struct cminer_rules should = {0};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            if (all[i].support >= confidence) {
                cminer_append(&should, all[i]);
            }
        }
        assert_same_cminer(&list, &should, (int)confidence);
        assert_int_equal(counts.pairs + counts.triples, 7);
        assert_int_equal(list.n, confidence == 20 ? 7 : 4);
        free(should.v);
        free(list.v);
    }
    qm_cminer_db_free(&db);
}

/* Within a window of 3 accesses: 1 2 3, but not 1 & 4. */
TEST(test_window)
{
    struct qm_cminer_config config;
    struct qm_cminer_counts counts;
    struct qm_cminer_db db = {0};
    const uint64_t blocks[] = {1, 2, 3, 4};
    qm_cminer_defaults(&config);
    config.max_gap = 3;
    assert_int_equal(qm_cminer_add(&db, blocks, 4), 0);
    assert_int_equal(qm_cminer_number(&db), 0);
    struct cminer_rules list = cminer_mine(&config, &db, &counts);
    assert_int_equal(counts.pairs, 5);
    assert_int_equal(counts.triples, 2);
    for (size_t i = 0; i < list.n; i++) {
        assert_false(list.v[i].a == 1 && list.v[i].c == 4);
    }
    free(list.v);
    qm_cminer_db_free(&db);
}

/* Blocks of a few, hot, and of many, cold. */
static struct qm_cminer_db large_database(struct rng *rng, unsigned segments,
                                          unsigned len, bool one_is_hot)
{
    struct qm_cminer_db db = {0};
    uint64_t *blocks = malloc(len * sizeof blocks[0]);
    assert_non_null(blocks);
    for (unsigned s = 0; s < segments; s++) {
        for (unsigned i = 0; i < len; i++) {
            blocks[i] = one_is_hot && rng_below(rng, 3) == 0
                            ? 50
                            : rng_below(rng, rng_below(rng, 4) == 0 ? 5000 : 60);
        }
        assert_int_equal(qm_cminer_add(&db, blocks, len), 0);
    }
    free(blocks);
    assert_int_equal(qm_cminer_number(&db), 0);
    return db;
}

TEST(test_little_memory)
{
    struct rng rng = {32};
    for (int round = 0; round < 6; round++) {
        struct qm_cminer_config config;
        struct qm_cminer_counts counts, fewer;
        struct qm_cminer_db db = large_database(&rng, 100, 50, round >= 3);
        qm_cminer_defaults(&config);
        config.min_support = 1 + (uint32_t)round % 2;
        struct cminer_rules all = cminer_mine(&config, &db, &counts);
        assert_int_equal(counts.passes, 1);
        assert_true(all.n > 4000);
        static const size_t memory[] = {1, 5000, 40000, 1 << 18};
        for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
            config.memory = memory[i];
            struct cminer_rules list = cminer_mine(&config, &db, &fewer);
            assert_true(fewer.passes > 1);
            assert_same_cminer(&list, &all, round);
            assert_int_equal(fewer.pairs, counts.pairs);
            assert_int_equal(fewer.triples, counts.triples);
            assert_int_equal(fewer.blocks, counts.blocks);
            free(list.v);
        }
        free(all.v);
        qm_cminer_db_free(&db);
    }
}

static int stop_after(void *opaque, const struct qm_cminer_prefix *prefix)
{
    int *left = opaque;
    return --*left == 0 ? -7 : 0;
}

TEST(test_stops)
{
    struct rng rng = {33};
    struct qm_cminer_config config;
    struct qm_cminer_counts counts;
    struct qm_cminer_db db = large_database(&rng, 3, 20, false), empty = {0};
    qm_cminer_defaults(&config);
    for (int after = 1; after < 10; after++) {
        int left = after;
        assert_int_equal(qm_cminer_mine(&config, &db, stop_after, &left, &counts), -7);
        assert_int_equal(left, 0);
    }
    qm_cminer_db_free(&db);
    assert_int_equal(qm_cminer_add(&empty, NULL, 0), 0);
    assert_int_equal(qm_cminer_number(&empty), 0);
    assert_int_equal(qm_cminer_mine(&config, &empty, NULL, NULL, &counts), 0);
    assert_int_equal(counts.segments + counts.rules, 0);
    qm_cminer_db_free(&empty);
}

TEST(test_check)
{
    struct qm_cminer_config good, config;
    char err[256];
    qm_cminer_defaults(&good);
    assert_int_equal(qm_cminer_check(&good, err, sizeof err), 0);
    assert_string_equal(err, "");
    static const struct {
        struct qm_cminer_config config;
        const char *says;
    } bad[] = {
        {{1, 100, 1, 10, 1 << 20}, "the gap is 1; it must be from 2 to 64"},
        {{65, 100, 1, 10, 1 << 20}, "the gap is 65"},
        {{10, 1, 1, 10, 1 << 20}, "the length of a segment is 1"},
        {{10, 65537, 1, 10, 1 << 20}, "the length of a segment is 65537"},
        {{10, 100, 0, 10, 1 << 20}, "the least support is 0"},
        {{10, 100, 1, 101, 1 << 20}, "the least confidence is 101"},
        {{10, 100, 1, 10, 100}, "the memory to mine in is 100"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config = bad[i].config;
        assert_int_equal(qm_cminer_check(&config, err, sizeof err), EINVAL);
        assert_ptr_equal(strstr(err, bad[i].says), err);
    }
}

static int by_key(const void *x, const void *y)
{
    const uint64_t *k = x, *l = y;
    return *k < *l ? -1 : *k > *l;
}

TEST(test_keys)
{
    enum { MOST = 700 };
    struct rng rng = {34};
    for (int round = 0; round < 500; round++) {
        uint64_t is[MOST], should[MOST], spare[MOST];
        size_t n = rng_below(&rng, round % 2 == 0 ? 60 : MOST);
        uint64_t mask = rng_next(&rng) & rng_next(&rng);
        for (size_t i = 0; i < n; i++) {
            is[i] = should[i] = rng_next(&rng) & mask;
        }
        qm_keys_sort(is, n, spare);
        if (n > 0) {
            qsort(should, n, sizeof should[0], by_key);
        }
        assert_memory_equal(is, should, n * sizeof is[0]);
        size_t unique = 0;
        for (size_t i = 0; i < n; i++) {
            if (i == 0 || should[i] != should[i - 1]) {
                should[unique++] = should[i];
            }
        }
        assert_int_equal(qm_keys_unique(is, n), unique);
        assert_memory_equal(is, should, unique * sizeof is[0]);
    }
}
