/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequences and the miner: the paper's figure 3, and a slow model on random sequences.
 */
#include "testing.h"

#include "mining/quickmine/miner.h"
#include "mining/core/sequence.h"
#include "model.h"

static struct qm_mining_config unlimited(unsigned lookahead, uint64_t segment)
{
    struct qm_mining_config config;
    qm_mining_paper(&config);
    config.lookahead = lookahead;
    config.segment = segment;
    return config;
}

static void expect_rule(const struct rule_list *list, uint64_t a, uint64_t b,
                        uint64_t c, uint64_t support)
{
    struct qm_rule rule = {a, b, c, support};
    for (size_t i = 0; i < list->n; i++) {
        if (by_rule(&list->v[i], &rule) == 0) {
            assert_int_equal(list->v[i].support, support);
            return;
        }
    }
    if (support > 0) {
        fail_msg("no rule %llu & %llu -> %llu", (unsigned long long)a,
                 (unsigned long long)b, (unsigned long long)c);
    }
}

FIXTURE(unlimited_5, make_quickmine((struct qm_mining_config[]){unlimited(5, 0)}),
        it->ops->destroy(it))

TEST_ON(test_figure_3, unlimited_5, struct qm_prefetcher *p)
{
    const uint64_t t1[] = {6, 7, 8}, t2[] = {2, 3, 4, 5, 6, 7};

    assert_int_equal(read_blocks(p, t2, 6), 0);
    struct rule_list list = all_rules(p);
    assert_int_equal(list.n, 16);
    for (size_t i = 0; i < list.n; i++) {
        assert_int_equal(list.v[i].support, 1);
    }
    expect_rule(&list, 2, 3, 4, 1);
    expect_rule(&list, 2, 3, 5, 1);
    expect_rule(&list, 2, 3, 6, 1);
    expect_rule(&list, 2, 4, 5, 1);
    expect_rule(&list, 5, 6, 7, 1);
    expect_rule(&list, 2, 3, 7, 0);
    free(list.v);

    assert_int_equal(read_blocks(p, t1, 3), 0);
    list = all_rules(p);
    assert_int_equal(list.n, 17);
    expect_rule(&list, 6, 7, 8, 1);
    /* What a context-oblivious miner would find. */
    expect_rule(&list, 2, 6, 3, 0);
    expect_rule(&list, 2, 6, 4, 0);
    expect_rule(&list, 2, 6, 8, 0);
    free(list.v);
}

TEST_ON(test_too_short, unlimited_5, struct qm_prefetcher *p)
{
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    p->ops->end(p, stream, &work);
    assert_null(work);
    stream = p->ops->begin(p, 0);
    for (uint64_t b = 1; b <= 2; b++) {
        p->ops->access(p, stream, b, QM_ACCESS_HIT, &work);
        p->ops->access(p, stream, b, QM_ACCESS_HIT, &work);
    }
    p->ops->end(p, stream, &work);
    assert_null(work);
}

/* Few different blocks, so that there are many repeats of all kinds; big numbers too.
 */
static void fill(struct rng *rng, uint64_t *blocks, size_t n)
{
    uint64_t range = 2 + rng_below(rng, 12);
    for (size_t i = 0; i < n; i++) {
        uint64_t b = rng_below(rng, range);
        blocks[i] = b == 3 ? UINT64_MAX - b : b == 4 ? UINT64_C(1) << 40 : b;
    }
}

/* As a whole, or in segments. */
TEST(test_against_model)
{
    struct rng rng = {1};
    for (int round = 0; round < 300; round++) {
        unsigned lookahead = 2 + (unsigned)rng_below(&rng, round % 10 == 0 ? 63 : 9);
        uint64_t segment = round % 2 ? 1 + rng_below(&rng, 20) : 0;
        struct qm_mining_config config = unlimited(lookahead, segment);
        struct qm_prefetcher *p = make_quickmine(&config);
        struct model model = {0};
        for (int s = 0; s < 4; s++) {
            uint64_t blocks[100];
            size_t n = rng_below(&rng, 100);
            fill(&rng, blocks, n);
            assert_int_equal(read_blocks(p, blocks, n), 0);
            model_learn(&model, blocks, n, lookahead);
        }
        assert_same_rules(p, &model);
        model_free(&model);
        p->ops->destroy(p);
    }
}

/* Of what was all in the cache nothing is learned, and of the rest everything, once. */
TEST(test_hits_are_skipped)
{
    struct rng rng = {3};
    for (int round = 0; round < 300; round++) {
        unsigned lookahead = 2 + (unsigned)rng_below(&rng, 9);
        uint64_t segment = rng_below(&rng, 2) ? 0 : 1 + rng_below(&rng, 20);
        struct qm_mining_config config = unlimited(lookahead, segment);
        config.skip_hits = true;
        struct qm_prefetcher *p = make_quickmine(&config);
        struct qm_stream *stream = p->ops->begin(p, 0);
        struct model model = {0};
        struct qm_work *work;
        uint64_t blocks[200];
        bool hit[200];
        size_t n = rng_below(&rng, 200);
        uint64_t one_in = 1 + rng_below(&rng, 30); /* misses or prefetch hits */
        fill(&rng, blocks, n);
        for (size_t i = 0; i < n; i++) {
            hit[i] = rng_below(&rng, one_in) != 0;
            p->ops->access(p, stream, blocks[i],
                           hit[i]               ? QM_ACCESS_HIT
                           : rng_below(&rng, 2) ? QM_ACCESS_MISS
                                                : QM_ACCESS_PREFETCH_HIT,
                           &work);
            if (work) {
                assert_int_equal(p->ops->learn(p, work), 0);
            }
        }
        p->ops->end(p, stream, &work);
        if (work) {
            assert_int_equal(p->ops->learn(p, work), 0);
        }
        model_learn_missed(&model, blocks, hit, n, lookahead);
        assert_same_rules(p, &model);
        model_free(&model);
        p->ops->destroy(p);
    }
}

/* A reader that is served from the cache leaves nothing to be learned, however long it
 * reads, but the paper's preset learns from it. */
TEST(test_only_hits)
{
    for (int skip = 0; skip < 2; skip++) {
        struct qm_mining_config config;
        skip ? qm_mining_defaults(&config) : qm_mining_paper(&config);
        struct qm_prefetcher *p = make_quickmine(&config);
        struct qm_stream *stream = p->ops->begin(p, 0);
        struct qm_work *work;
        for (uint64_t b = 0; b < 10000; b++) {
            p->ops->access(p, stream, b, QM_ACCESS_HIT, &work);
            assert_null(work);
        }
        p->ops->end(p, stream, &work);
        assert_int_equal(work != NULL, !skip);
        if (work) {
            p->ops->discard(p, work);
        }
        p->ops->destroy(p);
    }
}

/* In passing, all triples of the blocks so far are counted, and not before. */
TEST(test_segment_when)
{
    struct qm_mining_config config = unlimited(5, 4);
    struct qm_prefetcher *p = make_quickmine(&config);
    struct qm_stream *stream = p->ops->begin(p, 0);
    struct model model = {0};
    const uint64_t blocks[] = {1, 2, 2, 3, 4, 5, 6, 7, 8, 9};
    for (size_t i = 0; i < 10; i++) {
        struct qm_work *work;
        p->ops->access(p, stream, blocks[i], QM_ACCESS_MISS, &work);
        /* After 4 and 8 blocks, the repeat not counted. */
        assert_int_equal(work != NULL, i == 4 || i == 8);
        if (work) {
            assert_int_equal(p->ops->learn(p, work), 0);
            model_free(&model);
            model = (struct model){0};
            model_learn(&model, blocks, i + 1, 5);
            assert_same_rules(p, &model);
        }
    }
    struct qm_work *work;
    p->ops->end(p, stream, &work);
    assert_non_null(work); /* the ninth block */
    p->ops->discard(p, work);
    assert_same_rules(p, &model);
    assert_int_equal(stats_of(p).sequences, 2);
    model_free(&model);
    p->ops->destroy(p);
}

/* Nothing new since it was mined in passing: nothing to learn from at the end. */
TEST(test_segment_ends_even)
{
    struct qm_mining_config config = unlimited(5, 4);
    struct qm_prefetcher *p = make_quickmine(&config);
    struct qm_stream *stream = p->ops->begin(p, 0);
    struct qm_work *work = NULL;
    for (uint64_t b = 0; b < 4; b++) {
        assert_null(work);
        p->ops->access(p, stream, b, QM_ACCESS_MISS, &work);
    }
    assert_non_null(work);
    p->ops->discard(p, work);
    p->ops->end(p, stream, &work);
    assert_null(work);
    p->ops->destroy(p);
}

/* A sequence takes no more than a segment and what is carried, however long it is. */
TEST(test_sequence_is_bounded)
{
    struct qm_sequence sequence;
    qm_sequence_init(&sequence);
    for (uint64_t b = 0; b < 100000; b++) {
        qm_sequence_append(&sequence, b);
        if (qm_sequence_fresh(&sequence) >= 64) {
            struct qm_work *work = qm_sequence_detach(&sequence, 4);
            assert_non_null(work);
            assert_int_equal(work->n, work->old + 64);
            free(work);
        }
        assert_true(!sequence.work || sequence.work->cap <= 128);
    }
    assert_int_equal(sequence.last[0], 99998);
    assert_int_equal(sequence.last[1], 99999);
    qm_sequence_fini(&sequence);
}

static int stop_at_third(void *opaque, uint64_t a, uint64_t b, const uint64_t *suffixes,
                         unsigned n)
{
    int *count = opaque;
    return ++*count == 3 ? 42 : 0;
}

TEST(test_mining_stops)
{
    const uint64_t blocks[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int count = 0;
    assert_int_equal(qm_mine(blocks, 8, 0, 5, stop_at_third, &count), 42);
    assert_int_equal(count, 3);
}
