/* SPDX-License-Identifier: BSD-3-Clause */
/* The two phases of a compaction: T1 and T2 from samples, and which blocks are cold. */
#include <stdio.h>

#include "tests/harness.h"

#include "lsm/cold.h"
#include "lsm/phases.h"

/* Compactions of 1,000 blocks take two intervals: one of 3,000 will take six. */
TEST(test_t1)
{
    struct phases p = {0};

    assert_true(phases_t1(&p, 1000) == 0);
    for (int i = 0; i < 40; i++)
        phases_compaction(&p, 1000, 1 + 2 * (uint64_t)(i % 2));
    assert_true(phases_t1(&p, 3000) > 4.5 && phases_t1(&p, 3000) < 7.5);
    assert_true(phases_t1(&p, 1000000) == PHASES_STEPS);
    phases_compaction(&p, 0, 5); /* says nothing */
    assert_true(phases_t1(&p, 3000) < 7.5);
}

/* An interval of 1,000 look-ups. */
static void interval(struct phases *p, uint64_t misses, bool compaction)
{
    phases_interval(p, 1000 - misses, misses, 500, compaction);
}

/* After a compaction the cache needs four intervals; twice as many look-ups, eight. */
TEST(test_t2)
{
    struct phases p = {0};

    assert_int_equal(phases_t2(&p, 500, 2.5), 3); /* nothing is known */
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 5; i++)
            interval(&p, 100, false);
        interval(&p, 400, true);
        phases_compaction(&p, 1000, 1);
        for (uint64_t misses = 500; misses > 100; misses -= 100)
            interval(&p, misses, false);
        interval(&p, 105, false);
    }
    assert_in_range(phases_t2(&p, 500, 1), 4, 5);
    phases_interval(&p, 1900, 100, 500, false);
    assert_in_range(phases_t2(&p, 500, 1), 8, 10);
    assert_int_equal(phases_t2(&p, 1, 1), PHASES_STEPS);
    /* A compaction that costs no hits is no sample. */
    for (int round = 0; round < 30; round++) {
        interval(&p, 100, false);
        phases_compaction(&p, 1000, 1);
    }
    assert_in_range(phases_t2(&p, 500, 1), 4, 5);
}

static size_t make_key(char *key, unsigned long i)
{
    return (size_t)sprintf(key, "user%08lu", i);
}

/* One model for each of two steps: in the first, ranges are hot that were read; in the
 * second, those that were written. */
static struct trees *model(void)
{
    char text[2000] = "", err[200];

    for (int feature = 0; feature <= 6; feature += 6)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\n"
                 "max_feature_idx=17\nobjective=binary sigmoid:1\n\nTree=0\n"
                 "num_leaves=2\nnum_cat=0\nsplit_feature=%d\nthreshold=0.5\n"
                 "decision_type=2\nleft_child=-1\nright_child=-2\nleaf_value=-3 3\n"
                 "is_linear=0\n\n\nend of trees\n\n",
                 feature);
    return trees_parse(text, strlen(text), FEATURES, err, sizeof err);
}

/* Keys 0 to 9,999 in ranges of 40, blocks of 25; what is read and written is hot, in
 * its step. */
TEST(test_cold)
{
    struct collector *c = collector_new(1000, 1);
    struct trees *trees = model();
    struct moment moment = {0, 0, 0};
    struct keys sample = {0}, firsts = {0};
    struct table *t;
    uint8_t hot[400];
    char key[24], last[24];
    size_t len, last_len = make_key(last, 9999);

    assert_non_null(trees);
    for (unsigned long i = 40; i < 10000; i += 40)
        assert_int_equal(keys_add(&sample, key, make_key(key, i)), 0);
    len = make_key(key, 0);
    collector_learn(c, &sample, 10000, key, len, last, last_len);
    for (unsigned long i = 0; i < 10000; i += 25)
        assert_int_equal(keys_add(&firsts, key, make_key(key, i)), 0);
    len = make_key(key, 4000);
    collector_read(c, key, len);
    len = make_key(key, 8010);
    collector_write(c, key, len);
    collector_tick(c, 0);
    t = collector_table(c);
    assert_in_range(t->n, 240, 260);
    for (uint32_t steps = 1; steps <= 2; steps++) {
        cold_check(&firsts, 400, t, trees, steps, &moment, hot);
        for (unsigned long i = 0; i < 400; i++) {
            unsigned long first = i * 25, end = first + 25; /* of its keys */
            bool read = first < 4040 && end > 4000,
                 written = first < 8040 && end > 8000;
            /* A neighbour may be taken for hot: where blocks end is known by keys
             * that are not theirs. */
            bool near = (first < 4080 && end > 3960) || (first < 8080 && end > 7960);
            if (read || (written && steps == 2))
                assert_true(hot[i]);
            else if (!near)
                assert_false(hot[i]);
            if (steps == 1 && first > 7900 && first < 8100)
                assert_false(hot[i]);
        }
    }
    table_put(t);
    keys_free(&firsts);
    keys_free(&sample);
    trees_free(trees);
    collector_free(c);
}

/* More ranges than are predicted: the blocks behind them stay. */
TEST(test_bounded)
{
    struct collector *c = collector_new(20000, 1);
    struct trees *trees = model();
    struct moment moment = {0, 0, 0};
    struct keys sample = {0}, firsts = {0};
    struct table *t;
    static uint8_t hot[8000];
    char key[24], last[24];
    size_t len, last_len = make_key(last, 79999);
    uint32_t cold = 0;

    for (unsigned long i = 0; i < 80000; i += 10) {
        assert_int_equal(keys_add(&firsts, key, make_key(key, i)), 0);
        if (i > 0)
            assert_int_equal(keys_add(&sample, key, make_key(key, i)), 0);
    }
    len = make_key(key, 0);
    collector_learn(c, &sample, 80000, key, len, last, last_len);
    t = collector_table(c);
    assert_true(t->n > COLD_RANGES + 1000);
    cold_check(&firsts, 8000, t, trees, 1, &moment, hot);
    for (uint32_t i = 0; i < 8000; i++)
        cold += !hot[i];
    assert_in_range(cold, COLD_RANGES - 100, COLD_RANGES);
    assert_false(hot[0]);
    assert_true(hot[7999]);
    table_put(t);
    keys_free(&firsts);
    keys_free(&sample);
    trees_free(trees);
    collector_free(c);
}
