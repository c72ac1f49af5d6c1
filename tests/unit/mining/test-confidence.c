/* SPDX-License-Identifier: BSD-3-Clause */
/* Confidence: what it learns from what became of candidates, and where its threshold
 * goes. */
#include "mining/markov/confidence.h"
#include "testing.h"

static struct qm_features features_of(uint64_t block)
{
    return (struct qm_features){
        .count = 3, .path = 1, .klass = 4, .previous = 77, .block = block};
}

static float probability_of(const struct qm_confidence *j,
                            const struct qm_features *features)
{
    return qm_confidence_probability(j, qm_confidence_weights(features));
}

static void propose(struct qm_confidence *j, struct qm_features features, bool accepted,
                    bool used)
{
    qm_confidence_propose(j, features.block, qm_confidence_weights(&features),
                          accepted);
    if (accepted)
        qm_confidence_ended(j, features.block, used);
    else if (used)
        qm_confidence_missed(j, features.block);
}

FIXTURE(confidence, qm_confidence_new(1 << 16), qm_confidence_free(it))

TEST_ON(test_untrained, confidence, struct qm_confidence *j)
{
    struct qm_features features = features_of(1);

    assert_true(probability_of(j, &features) == 0.5f);
    assert_true(probability_of(j, &features) >=
                qm_confidence_threshold(j)); /* it may try */
}

/* A block that was read a moment ago is in its reader's own cache: that counts whatever
 * else is known of it, and is learned once for all. */
TEST_ON(test_ages, confidence, struct qm_confidence *j)
{
    struct qm_features features = features_of(0);
    float before;

    for (uint64_t b = 0; b < 200; b++) {
        features = (struct qm_features){.klass = (uint32_t)b,
                                        .previous = b << 20,
                                        .block = b << 21,
                                        .count = 1 + b % 15,
                                        .age = b % 2 ? 3 : 9};
        propose(j, features, true, b % 2 == 0);
    }
    features = (struct qm_features){
        .klass = 4711, .previous = UINT64_C(7) << 30, .block = UINT64_C(9) << 30};
    features.age = 3;
    before = probability_of(j, &features);
    features.age = 9;
    assert_true(probability_of(j, &features) > before + .2f);
    /* Without memory that is forgotten, too. */
    qm_confidence_set_bytes(j, 0);
    before = probability_of(j, &features);
    features.age = 3;
    assert_true(probability_of(j, &features) == before);
}

/* What others prefetch in vain does not make it ask for more, and what is used makes it
 * ask for less. */
TEST(test_beside)
{
    struct qm_confidence *alone = qm_confidence_new(1 << 16);
    struct qm_confidence *beside = qm_confidence_new(1 << 16);
    const float first = qm_confidence_threshold(beside);

    qm_confidence_beside(beside);
    for (uint64_t b = 0; b < 50; b++) {
        qm_confidence_ended(alone, b, false);
        qm_confidence_ended(beside, b, false);
    }
    assert_true(qm_confidence_threshold(alone) > first);
    assert_true(qm_confidence_threshold(beside) == first);
    for (uint64_t b = 0; b < 50; b++)
        qm_confidence_ended(beside, b, true);
    assert_true(qm_confidence_threshold(beside) < first);
    for (uint64_t b = 0; b < 50; b++) /* its own count in full */
        propose(beside, features_of(b), true, false);
    assert_true(qm_confidence_threshold(beside) > first);
    qm_confidence_free(alone);
    qm_confidence_free(beside);
}

/* Of two kinds that differ in one feature, one is used and the other is not. */
static void check_told_apart(struct qm_features good, struct qm_features bad)
{
    struct qm_confidence *j = qm_confidence_new(1 << 16);

    for (int i = 0; i < 2000; i++) {
        propose(j, good, true, true);
        propose(j, bad, true, false);
    }
    assert_true(probability_of(j, &good) > 0.8f);
    assert_true(probability_of(j, &bad) < 0.2f);
    for (int i = 0; i < 4000; i++) { /* the world has changed */
        propose(j, bad, true, true);
        propose(j, good, true, false);
    }
    assert_true(probability_of(j, &bad) > 0.8f);
    assert_true(probability_of(j, &good) < 0.2f);
    qm_confidence_free(j);
}

TEST(test_features)
{
    struct qm_features a = features_of(1000), b;

    b = a, b.after_two = true;
    check_told_apart(a, b);
    b = a, b.both = true;
    check_told_apart(a, b);
    b = a, b.count = 4;
    check_told_apart(a, b);
    b = a, b.since = 1;
    check_told_apart(a, b);
    b = a, b.rest = 5;
    check_told_apart(a, b);
    b = a, b.depth = 1;
    check_told_apart(a, b);
    b = a, b.path = 0.6f;
    check_told_apart(a, b);
    b = a, b.promoted = true;
    check_told_apart(a, b);
    b = a, b.klass = 5;
    check_told_apart(a, b);
    b = a, b.block = 1001;
    check_told_apart(a, b);
}

/* A share of uses is learned as such. */
TEST(test_calibrated)
{
    for (unsigned percent = 20; percent <= 80; percent += 20) {
        struct qm_confidence *j = qm_confidence_new(1 << 16);
        struct qm_features features = features_of(9);
        struct rng rng = {percent};
        double sum = 0;

        for (int i = 0; i < 6000; i++) {
            propose(j, features, true, rng_below(&rng, 100) < percent);
            sum += i >= 2000 ? probability_of(j, &features) : 0;
        }
        assert_true(sum / 4000 > percent / 100. - 0.03);
        assert_true(sum / 4000 < percent / 100. + 0.03);
        qm_confidence_free(j);
    }
}

/* What is not accepted is learned of as well. */
TEST_ON(test_watched, confidence, struct qm_confidence *j)
{
    struct qm_features features = features_of(5);
    uint64_t block;
    float before;

    for (int i = 0; i < 500; i++) {
        propose(j, features, true, false);
    }
    assert_true(probability_of(j, &features) < 0.2f);
    for (int i = 0; i < 1000; i++) {
        propose(j, features, false, true); /* it should have been */
    }
    assert_true(probability_of(j, &features) > 0.7f);
    qm_confidence_propose(j, features.block, qm_confidence_weights(&features), false);
    qm_confidence_missed(j, 5);
    before = probability_of(j, &features);
    qm_confidence_missed(j, 5); /* it counts once */
    assert_true(probability_of(j, &features) == before);
    for (block = 1000; block < 1000000; block++) { /* watched, and never missed */
        features = features_of(block);
        qm_confidence_propose(j, features.block, qm_confidence_weights(&features),
                              false);
    }
    features = features_of(5);
    assert_true(probability_of(j, &features) < 0.2f);
}

/* A block that is only watched does not hide the end of one that is prefetched. */
TEST(test_accepted_stay)
{
    struct qm_confidence *j = qm_confidence_new(0);
    struct qm_features mine = features_of(5), other = features_of(0);
    float before;

    other.klass = 9;
    other.previous = 99;
    other.count = 14;
    for (int i = 0; i < 400; i++) {
        qm_confidence_propose(j, mine.block, qm_confidence_weights(&mine), true);
        for (other.block = 1000; other.block < 2000; other.block++) {
            qm_confidence_propose(j, other.block, qm_confidence_weights(&other), false);
        }
        before = probability_of(j, &mine);
        qm_confidence_ended(j, 5, true);
        assert_true(probability_of(j, &mine) > before);
        before = probability_of(j, &mine);
        qm_confidence_ended(j, 5, true); /* it has ended */
        qm_confidence_missed(j, 5);
        assert_true(probability_of(j, &mine) == before);
    }
    qm_confidence_free(j);
}

TEST_ON(test_threshold, confidence, struct qm_confidence *j)
{
    float start = qm_confidence_threshold(j), threshold;

    for (int i = 0; i < 1000; i++) {
        qm_confidence_ended(j, 1, i % 100 < 73);
    }
    threshold = qm_confidence_threshold(j);
    assert_true(threshold > start - 0.02f && threshold < start + 0.02f);
    for (int i = 0; i < 1000; i++) {
        qm_confidence_ended(j, 1, i % 2 == 0); /* less accurate: it asks for more */
    }
    assert_true(qm_confidence_threshold(j) > threshold + 0.1f);
    for (int i = 0; i < 10000; i++) {
        qm_confidence_ended(j, 1, false);
    }
    assert_true(qm_confidence_threshold(j) < 0.9f); /* something can still come */
    for (int i = 0; i < 10000; i++) {
        qm_confidence_ended(j, 1, true);
    }
    assert_true(qm_confidence_threshold(j) < start &&
                qm_confidence_threshold(j) > 0.1f);
}

TEST(test_bytes)
{
    struct qm_confidence *none = qm_confidence_new(0),
                         *small = qm_confidence_new(100000);

    assert_true(qm_confidence_bytes(small) - qm_confidence_bytes(none) < 100000);
    assert_true(qm_confidence_bytes(small) - qm_confidence_bytes(none) > 40000);
    qm_confidence_free(none);
    qm_confidence_free(small);
}

/* What was proposed while there was more memory is forgotten when some is taken away,
 * wherever pages begin: it does not come back with the memory. */
TEST_ON(test_resized, confidence, struct qm_confidence *j)
{
    enum { BLOCKS = 5000 };
    struct qm_features features = features_of(1);
    uint64_t weights = qm_confidence_weights(&features);
    float before;

    for (uint64_t b = 1; b <= BLOCKS; b++)
        qm_confidence_propose(j, b, weights, false);
    for (unsigned half = 1; half <= 6; half++) {
        qm_confidence_set_bytes(j, (1 << 16) >> half);
        for (uint64_t b = 1; b <= BLOCKS; b++)
            qm_confidence_missed(j, b); /* those that it still watches */
        before = qm_confidence_probability(j, weights);
        qm_confidence_set_bytes(j, 1 << 16);
        for (uint64_t b = 1; b <= BLOCKS; b++)
            qm_confidence_missed(j, b);
        assert_true(qm_confidence_probability(j, weights) == before);
        for (uint64_t b = 1; b <= BLOCKS; b++)
            qm_confidence_propose(j, b, weights, false);
    }
}

/* Of no bytes it knows nothing and learns nothing; later it learns anew. */
TEST_ON(test_sleeps, confidence, struct qm_confidence *j)
{
    struct qm_features features = features_of(1);
    uint64_t weights = qm_confidence_weights(&features);
    float untrained = qm_confidence_probability(j, weights), trained;

    for (uint64_t b = 1; b <= 100; b++) {
        qm_confidence_propose(j, b, weights, true);
        qm_confidence_ended(j, b, true);
    }
    trained = qm_confidence_probability(j, weights);
    assert_true(trained > untrained + .1F);
    qm_confidence_propose(j, 7, weights, true);
    assert_true(qm_confidence_bytes(j) >= qm_confidence_least());

    qm_confidence_set_bytes(j, 0);
    assert_true(qm_confidence_sleeps(j));
    assert_true(qm_confidence_bytes(j) < 64);
    assert_true(qm_confidence_probability(j, weights) == untrained);
    qm_confidence_ended(j, 7, true);
    qm_confidence_propose(j, 8, weights, true);
    qm_confidence_ended(j, 8, true);
    assert_true(qm_confidence_probability(j, weights) == untrained);

    qm_confidence_set_bytes(j, 1);
    assert_false(qm_confidence_sleeps(j));
    assert_int_equal(qm_confidence_bytes(j), qm_confidence_least());
    qm_confidence_propose(j, 8, weights, true);
    qm_confidence_ended(j, 8, true);
    assert_true(qm_confidence_probability(j, weights) > untrained);
}
