/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefetchers cminer and cminer+: candidates, training, and rules replaced while
 * they are looked up. */
#include "cminer-testing.h"

#include <pthread.h>
#include <stdatomic.h>

static struct qm_prefetcher *make(const char *name,
                                  const struct qm_mining_config *config)
{
    struct qm_prefetcher *p = NULL;
    char err[256];
    if (qm_prefetcher_find(name)->create(config, &p, err, sizeof err) != 0) {
        fail_msg("%s: %s", name, err);
    }
    assert_string_equal(err, "");
    return p;
}

/* The candidates of a context that has read a and then b, which nobody learns from. */
static unsigned candidates_of(struct qm_prefetcher *p, uint64_t a, uint64_t b,
                              uint64_t *blocks, unsigned max)
{
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    assert_non_null(stream);
    p->ops->access(p, stream, a, QM_ACCESS_MISS, &work);
    p->ops->access(p, stream, b, QM_ACCESS_MISS, &work);
    unsigned n = candidate_blocks(p, stream, max, blocks);
    p->ops->end(p, stream, &work);
    if (work) {
        p->ops->discard(p, work);
    }
    return n;
}

/* Writes the rules of db, mined with these parameters. */
static void write_rules(const struct qm_cminer_db *db, struct qm_cminer_config *config)
{
    cminer_write(&(struct qm_cminer_info){.block_size = 4096, .config = *config}, db);
}

/* Appends the suffixes of a prefix, as they come in the list. */
static unsigned model_add_candidates(const struct cminer_rules *rules, unsigned n,
                                     uint64_t a, uint64_t b, uint64_t skip,
                                     uint64_t *blocks, unsigned filled, unsigned max)
{
    for (size_t i = 0; i < rules->n; i++) {
        const struct cminer_rule *r = &rules->v[i];
        bool wanted = r->n == n && r->a == a && r->b == b && r->c != skip;
        for (unsigned j = 0; j < filled; j++) {
            wanted = wanted && blocks[j] != r->c;
        }
        if (wanted && filled < max) {
            blocks[filled++] = r->c;
        }
    }
    return filled;
}

static unsigned model_candidates(const struct cminer_rules *rules, uint64_t a,
                                 uint64_t b, uint64_t *blocks, unsigned max)
{
    unsigned n = model_add_candidates(rules, 2, a, b, a, blocks, 0, max);
    return model_add_candidates(rules, 1, b, 0, a, blocks, n, max);
}

static struct qm_cminer_db random_database(struct rng *rng, uint64_t range)
{
    struct qm_cminer_db db = {0};
    for (int s = 0; s < 30; s++) {
        uint64_t blocks[20];
        for (int i = 0; i < 20; i++) {
            blocks[i] = 3 * rng_below(rng, range) + (i % 2 ? 0 : UINT64_C(1) << 50);
        }
        assert_int_equal(qm_cminer_add(&db, blocks, 20), 0);
    }
    assert_int_equal(qm_cminer_number(&db), 0);
    return db;
}

TEST(test_candidates)
{
    struct rng rng = {41};
    for (int round = 0; round < 40; round++) {
        struct qm_cminer_config config;
        struct qm_cminer_counts counts;
        struct qm_mining_config mining;
        struct qm_cminer_db db = random_database(&rng, 3 + rng_below(&rng, 20));
        qm_cminer_defaults(&config);
        config.max_gap = 2 + (unsigned)rng_below(&rng, 8);
        write_rules(&db, &config);
        struct cminer_rules rules = cminer_mine(&config, &db, &counts);
        qm_mining_defaults(&mining);
        mining.trained = path;
        mining.block_size = 4096;
        mining.degree = 1 + (unsigned)rng_below(&rng, 8);
        struct qm_prefetcher *p = make(round % 2 ? "cminer" : "cminer+", &mining);
        uint64_t lookups = 0, matches = 0;
        for (int i = 0; i < 200; i++) {
            /* Some of no rule. */
            uint64_t a = db.blocks[rng_below(&rng, db.distinct)];
            uint64_t b = db.blocks[rng_below(&rng, db.distinct)];
            a += rng_below(&rng, 10) == 0;
            b += rng_below(&rng, 10) == 0;
            if (a == b) {
                continue;
            }
            uint64_t is[QM_CANDIDATES_MAX], should[QM_CANDIDATES_MAX];
            unsigned max = 1 + (unsigned)rng_below(&rng, 10);
            unsigned most = max < mining.degree ? max : mining.degree;
            unsigned n = candidates_of(p, a, b, is, max);
            assert_int_equal(n, model_candidates(&rules, a, b, should, most));
            assert_memory_equal(is, should, n * sizeof is[0]);
            lookups++;
            matches += model_candidates(&rules, a, b, should, 64) > 0 ||
                       model_candidates(&rules, UINT64_MAX, b, should, 64) > 0;
        }
        struct qm_mining_stats stats = stats_of(p);
        assert_int_equal(stats.lookups, lookups);
        assert_int_equal(stats.matches, matches);
        assert_int_equal(stats.prefixes, counts.prefixes);
        assert_true(stats.rules <= counts.rules);
        assert_true(stats.rules <= counts.prefixes * (mining.degree + 1));
        assert_true(stats.rules_bytes >= 8 * stats.prefixes + 4 * stats.rules);
        assert_true(stats.rules_bytes <=
                    8 * stats.prefixes + 4 * stats.rules + 12 * db.distinct + 256);
        p->ops->destroy(p);
        free(rules.v);
        qm_cminer_db_free(&db);
    }
}

static void expect_error(const char *name, const struct qm_mining_config *config,
                         const char *says)
{
    struct qm_prefetcher *p = NULL;
    char err[256] = "";
    assert_int_not_equal(qm_prefetcher_find(name)->create(config, &p, err, sizeof err),
                         0);
    if (!strstr(err, says)) {
        fail_msg("%s: '%s' does not say '%s'", name, err, says);
    }
}

TEST(test_create)
{
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    expect_error("cminer", &config,
                 "make it with: quickmine mine --cminer TRACE -o FILE");
    config.retrain = 100000001;
    expect_error("cminer+", &config, "it must be at most 100000000");
    config.retrain = 0;
    config.degree = 0;
    expect_error("cminer", &config, "degree is 0");
    expect_error("cminer+", &config, "degree is 0");
    config.degree = 4;
    config.trained = "/nowhere/x";
    expect_error("cminer", &config, "/nowhere/x cannot be read");
    expect_error("cminer+", &config, "/nowhere/x cannot be read");
}

/* cminer does not learn, however much it is told. */
TEST(test_does_not_learn)
{
    struct qm_cminer_db db = {0};
    struct qm_cminer_config config;
    struct qm_mining_config mining;
    const uint64_t seen[] = {1, 2, 3}, other[] = {2, 9};
    qm_cminer_defaults(&config);
    config.segment = 4;
    assert_int_equal(qm_cminer_add(&db, seen, 3), 0);
    assert_int_equal(qm_cminer_add(&db, other, 2), 0);
    assert_int_equal(qm_cminer_add(&db, other, 2), 0);
    assert_int_equal(qm_cminer_number(&db), 0);
    write_rules(&db, &config);
    qm_cminer_db_free(&db);
    qm_mining_defaults(&mining);
    mining.trained = path;
    mining.retrain = 1;
    struct qm_prefetcher *p = make("cminer", &mining);
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    uint64_t found[4];
    assert_non_null(stream);
    assert_int_equal(candidate_blocks(p, stream, 4, found), 0); /* nothing read yet */
    for (uint64_t i = 0; i < 100; i++) {
        p->ops->access(p, stream, 50 + i % 7, QM_ACCESS_MISS, &work);
        assert_null(work);
        assert_int_equal(candidate_blocks(p, stream, 4, found), 0);
    }
    /* The first block of a stream has candidates, too; a repeat changes nothing. */
    p->ops->end(p, stream, &work);
    assert_null(work);
    stream = p->ops->begin(p, 0);
    assert_non_null(stream);
    for (int i = 0; i < 3; i++) {
        p->ops->access(p, stream, 1, QM_ACCESS_HIT, &work);
        assert_int_equal(candidate_blocks(p, stream, 4, found), 2);
        assert_int_equal(found[0], 2);
        assert_int_equal(found[1], 3);
    }
    /* 2 -> 9 is stronger than 2 -> 3, but 1 & 2 -> 3 comes first. */
    for (int i = 0; i < 3; i++) {
        p->ops->access(p, stream, 2, QM_ACCESS_HIT, &work);
        assert_int_equal(candidate_blocks(p, stream, 4, found), 2);
        assert_int_equal(found[0], 3);
        assert_int_equal(found[1], 9);
    }
    p->ops->end(p, stream, &work);
    assert_null(work);
    p->ops->destroy(p);
}

/* After each interval the rules are those of the segments of that interval. */
TEST(test_retrains)
{
    enum { INTERVAL = 200, ROUNDS = 5 };
    struct rng rng = {42};
    struct qm_cminer_config config;
    struct qm_cminer_db empty = {0};
    struct qm_mining_config mining;
    qm_cminer_defaults(&config);
    config.segment = 20; /* from the file */
    config.max_gap = 5;
    assert_int_equal(qm_cminer_number(&empty), 0);
    write_rules(&empty, &config);
    qm_cminer_db_free(&empty);
    qm_mining_defaults(&mining);
    mining.trained = path;
    mining.retrain = INTERVAL;
    struct qm_prefetcher *p = make("cminer+", &mining);
    for (int round = 0; round < ROUNDS; round++) {
        struct qm_cminer_db db = {0};
        uint64_t first = round % 2 ? 10000 : 0;
        for (int s = 0; s < INTERVAL / 20; s++) {
            uint64_t blocks[20];
            for (int i = 0; i < 20; i++) {
                blocks[i] = first + 2 * rng_below(&rng, 20) + (i % 2);
            }
            assert_int_equal(qm_cminer_add(&db, blocks, 20), 0);
            uint64_t before = stats_of(p).rules;
            assert_int_equal(read_blocks(p, blocks, 20), 0);
            if (s < INTERVAL / 20 - 1) {
                assert_int_equal(stats_of(p).rules, before);
            }
        }
        assert_int_equal(qm_cminer_number(&db), 0);
        struct qm_cminer_counts counts;
        struct cminer_rules rules = cminer_mine(&config, &db, &counts);
        assert_int_equal(stats_of(p).prefixes, counts.prefixes);
        for (uint64_t a = 0; a < 40; a++) {
            for (uint64_t b = 0; b < 40; b++) {
                uint64_t is[4], should[4];
                if (a == b) {
                    continue;
                }
                unsigned n = candidates_of(p, first + a, first + b, is, 4);
                assert_int_equal(
                    n, model_candidates(&rules, first + a, first + b, should, 4));
                assert_memory_equal(is, should, n * sizeof is[0]);
            }
        }
        free(rules.v);
        qm_cminer_db_free(&db);
    }
    struct qm_mining_stats stats = stats_of(p);
    assert_int_equal(stats.sequences, ROUNDS * INTERVAL / 20);
    assert_int_equal(stats.failed, 0);
    p->ops->destroy(p);
}

enum { LEARNERS = 2, READERS = 2, SEQUENCES = 400, LENGTH = 50 };

struct shared {
    struct qm_prefetcher *p;
    atomic_int learning; /* learners that are not done */
    atomic_int wrong;
};

/* Block b is followed by b + 1, ..., so whatever is found is known to be right or not.
 */
static void *learner(void *opaque)
{
    struct shared *shared = opaque;
    struct rng rng = {43};
    for (int s = 0; s < SEQUENCES; s++) {
        uint64_t blocks[LENGTH], first = rng_below(&rng, 300);
        for (uint64_t i = 0; i < LENGTH; i++) {
            blocks[i] = first + i;
        }
        if (read_blocks(shared->p, blocks, LENGTH) != 0) {
            atomic_fetch_add(&shared->wrong, 1);
        }
    }
    atomic_fetch_sub(&shared->learning, 1);
    return NULL;
}

static void *reader(void *opaque)
{
    struct shared *shared = opaque;
    struct rng rng = {44};
    do {
        for (int i = 0; i < 50; i++) {
            uint64_t a = rng_below(&rng, 300), found[4];
            struct qm_work *work;
            struct qm_stream *stream = shared->p->ops->begin(shared->p, 0);
            shared->p->ops->access(shared->p, stream, a, QM_ACCESS_MISS, &work);
            unsigned n = candidate_blocks(shared->p, stream, 4, found);
            for (unsigned f = 0; f < n; f++) {
                if (found[f] <= a || found[f] > a + 9) {
                    atomic_fetch_add(&shared->wrong, 1);
                }
            }
            shared->p->ops->end(shared->p, stream, &work);
            shared->p->ops->discard(shared->p, work);
        }
        struct qm_mining_stats stats;
        shared->p->ops->stats(shared->p, &stats);
        if (stats.prefixes > 300 * 10 + 300 * LENGTH) {
            atomic_fetch_add(&shared->wrong, 1);
        }
    } while (atomic_load(&shared->learning) > 0);
    return NULL;
}

TEST(test_threads)
{
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    config.retrain = 1000;
    struct shared shared = {.p = make("cminer+", &config), .learning = LEARNERS};
    pthread_t threads[LEARNERS + READERS];
    for (int i = 0; i < LEARNERS + READERS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < LEARNERS ? learner : reader, &shared),
            0);
    }
    for (int i = 0; i < LEARNERS + READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&shared.wrong), 0);
    struct qm_mining_stats stats = stats_of(shared.p);
    assert_int_equal(stats.sequences, LEARNERS * SEQUENCES);
    assert_int_equal(stats.failed, 0);
    assert_true(stats.rules > 0);
    shared.p->ops->destroy(shared.p);
}

int main(void)
{
    return run_listed(make_dir, remove_dir);
}
