/* SPDX-License-Identifier: BSD-3-Clause */
/* The rule cache behind the prefetcher: its bounds, exactly, against a slow model. */
#include "testing.h"

#include <db.h>
#include <errno.h>
#include <unistd.h>

#include "model.h"

static struct qm_mining_config defaults(void)
{
    struct qm_mining_config config;
    qm_mining_defaults(&config);
    return config;
}

TEST(test_config)
{
    char err[256];
    struct qm_mining_config config = defaults();
    assert_int_equal(qm_mining_check(&config, err, sizeof err), 0);
    assert_string_equal(err, "");
    qm_mining_paper(&config);
    assert_int_equal(qm_mining_check(&config, err, sizeof err), 0);
    assert_int_equal(config.lookahead, 5);
    assert_int_equal(config.max_prefix, 0);
    assert_int_equal(config.max_suffix, 0);
    assert_int_equal(config.degree, 4);
    assert_int_equal(config.segment, 0);
    assert_int_equal(config.rules_pool, 4 << 20);

    char device[5000];
    memset(device, 'x', sizeof device);
    device[sizeof device - 1] = '\0';
    struct qm_mining_config bad[10];
    for (int i = 0; i < 10; i++) {
        bad[i] = defaults();
    }
    bad[0].lookahead = 1;
    bad[1].lookahead = 65;
    bad[2].degree = 0;
    bad[3].degree = 65;
    bad[4].rules_pool = 65535;
    bad[5].rules_pool = UINT64_MAX;
    bad[6].rules_dir = "";
    bad[7].grace = 65536;
    bad[8].rules_for = device;
    bad[9].rules_pool = 0;
    const char *says[] = {"2 to 64", "2 to 64", "1 to 64",       "1 to 64", "64K",
                          "64G",     "empty",   "at most 65535", "4096",    "64K"};
    for (int i = 0; i < 10; i++) {
        struct qm_prefetcher *p = NULL;
        assert_int_equal(qm_mining_check(&bad[i], err, sizeof err), EINVAL);
        assert_non_null(strstr(err, says[i]));
        err[0] = '\0';
        assert_int_equal(
            qm_prefetcher_find("quickmine")->create(&bad[i], &p, err, sizeof err),
            EINVAL);
        assert_non_null(strstr(err, says[i]));
    }
    /* However little room there is for it, the sentence ends. */
    assert_int_equal(qm_mining_check(&bad[0], err, 5), EINVAL);
    assert_string_equal(err, "look");
}

TEST(test_names)
{
    assert_string_equal(qm_prefetcher_find("none")->name, "none");
    assert_string_equal(qm_prefetcher_find("quickmine")->name, "quickmine");
    assert_null(qm_prefetcher_find("quick"));
    assert_null(qm_prefetcher_find(""));
    assert_non_null(strstr(qm_prefetcher_names(), "none, "));
    assert_non_null(strstr(qm_prefetcher_names(), "quickmine"));
}

/* The smallest pool works, and everything else is in the temporary file. */
TEST(test_smallest_pool)
{
    struct qm_mining_config config = defaults();
    config.rules_pool = 64 << 10;
    config.max_prefix = 0;
    struct qm_prefetcher *p = make_quickmine(&config);
    enum { N = 30000 };
    uint64_t *blocks = malloc(N * sizeof *blocks);
    assert_non_null(blocks);
    for (uint64_t i = 0; i < N; i++) {
        blocks[i] = i * 7919 % N;
    }
    assert_int_equal(read_blocks(p, blocks, N), 0);
    assert_int_equal(read_blocks(p, blocks, N), 0);
    struct qm_mining_stats stats = stats_of(p);
    assert_true(stats.rules_bytes > 1 << 20);
    struct rule_list list = all_rules(p);
    /* All but the last have 6 of them: (1, 2) 3, (1, 3) 2, (1, 4) 1. */
    assert_int_equal(list.n, 6 * (N - 4) + 3 + 1);
    assert_int_equal(list.n, stats.rules);
    for (size_t i = 0; i < list.n; i++) {
        assert_int_equal(list.v[i].support, 2);
        assert_true(i == 0 || by_rule(&list.v[i - 1], &list.v[i]) < 0);
    }
    free(list.v);
    free(blocks);
    p->ops->destroy(p);
}

static void random_blocks(struct rng *rng, uint64_t range, uint64_t *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        blocks[i] = rng_below(rng, range) * UINT64_C(0x100000001);
    }
}

/* LRU and LFU bounds, look-ups in between, all to the last count. */
TEST(test_bounds)
{
    struct rng rng = {7};
    for (int round = 0; round < 120; round++) {
        struct qm_mining_config config = defaults();
        config.lookahead = 3 + (unsigned)rng_below(&rng, 5);
        config.max_prefix = rng_below(&rng, 4) == 0 ? 0 : 1 + rng_below(&rng, 60);
        config.max_suffix = (unsigned)rng_below(&rng, 9);
        config.grace = (unsigned)rng_below(&rng, 10);
        config.degree = 1 + (unsigned)rng_below(&rng, 10);
        uint64_t range = 4 + rng_below(&rng, 20);
        struct qm_prefetcher *p = make_quickmine(&config);
        struct model model = {.max_prefix = config.max_prefix,
                              .max_suffix = config.max_suffix,
                              .grace = config.grace};
        for (int s = 0; s < 30; s++) {
            uint64_t blocks[40], is[64], should[64];
            size_t n = rng_below(&rng, 40);
            random_blocks(&rng, range, blocks, n);
            assert_int_equal(read_blocks(p, blocks, n), 0);
            model_learn(&model, blocks, n, config.lookahead);
            for (int l = 0; l < 5; l++) {
                random_blocks(&rng, range, blocks, 2);
                if (blocks[0] == blocks[1]) {
                    continue;
                }
                unsigned max = 1 + (unsigned)rng_below(&rng, 10);
                unsigned found = look_up(p, blocks[0], blocks[1], is, max);
                assert_int_equal(
                    found, model_look_up(&model, blocks[0], blocks[1], should,
                                         max < config.degree ? max : config.degree));
                assert_memory_equal(is, should, found * sizeof is[0]);
            }
            if (config.max_prefix > 0) {
                assert_true(stats_of(p).prefixes <= config.max_prefix);
            }
        }
        assert_same_rules(p, &model);
        model_free(&model);
        p->ops->destroy(p);
    }
}

/* The same with more than the smallest pool holds. */
TEST(test_bounds_beyond_memory)
{
    struct rng rng = {17};
    for (int round = 0; round < 4; round++) {
        struct qm_mining_config config = defaults();
        config.rules_pool = 64 << 10;
        config.max_prefix = round == 0 ? 0 : 2000 + rng_below(&rng, 2000);
        config.max_suffix = round == 1 ? 0 : 8;
        struct qm_prefetcher *p = make_quickmine(&config);
        struct model model = {.max_prefix = config.max_prefix,
                              .max_suffix = config.max_suffix,
                              .grace = config.grace};
        for (int s = 0; s < 150; s++) {
            uint64_t blocks[40], is[64], should[64];
            random_blocks(&rng, s % 2 ? 12 : 100, blocks, 40);
            assert_int_equal(read_blocks(p, blocks, 40), 0);
            model_learn(&model, blocks, 40, config.lookahead);
            for (int l = 0; l < 20; l++) {
                const uint64_t *at = &blocks[l];
                if (at[0] == at[1]) {
                    continue;
                }
                unsigned found = look_up(p, at[0], at[1], is, 4);
                assert_int_equal(found, model_look_up(&model, at[0], at[1], should, 4));
                assert_memory_equal(is, should, found * sizeof is[0]);
            }
        }
        assert_same_rules(p, &model);
        model_free(&model);
        p->ops->destroy(p);
    }
}

TEST(test_candidates)
{
    struct qm_mining_config config = defaults();
    struct qm_prefetcher *p = make_quickmine(&config);
    uint64_t found[64];
    /* 1 & 2 is followed by 9 twice, and by 5, 3, 7, 8, 4 once. */
    const uint64_t seen[] = {9, 5, 3, 9, 7, 8, 4};
    for (int i = 0; i < 7; i++) {
        const uint64_t blocks[] = {1, 2, seen[i]};
        assert_int_equal(read_blocks(p, blocks, 3), 0);
    }
    assert_int_equal(look_up(p, 1, 2, found, 64), 4); /* the degree */
    assert_memory_equal(found, ((uint64_t[]){9, 3, 4, 5}), 4 * sizeof found[0]);
    assert_int_equal(look_up(p, 1, 2, found, 1), 1);
    assert_int_equal(found[0], 9);
    assert_int_equal(look_up(p, 1, 2, found, 0), 0);
    assert_int_equal(look_up(p, 2, 1, found, 64), 0);

    /* A repeat is no access; a single one is no prefix. */
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    assert_int_equal(candidate_blocks(p, stream, 4, found), 0);
    p->ops->access(p, stream, 1, QM_ACCESS_MISS, &work);
    assert_int_equal(candidate_blocks(p, stream, 4, found), 0);
    p->ops->access(p, stream, 1, QM_ACCESS_MISS, &work);
    assert_int_equal(candidate_blocks(p, stream, 4, found), 0);
    p->ops->access(p, stream, 2, QM_ACCESS_MISS, &work);
    p->ops->access(p, stream, 2, QM_ACCESS_MISS, &work);
    assert_int_equal(candidate_blocks(p, stream, 4, found), 4);
    p->ops->end(p, stream, &work);

    struct qm_mining_stats stats = stats_of(p);
    assert_int_equal(stats.sequences, 7);
    assert_int_equal(stats.updates, 7);
    assert_int_equal(stats.lookups, 5); /* those with two blocks */
    assert_int_equal(stats.matches, 4);
    assert_int_equal(stats.failed, 0);
    p->ops->destroy(p);
}

/* A prefix with so many suffixes that its record is larger than many pages. */
TEST(test_large_record)
{
    struct qm_mining_config config;
    qm_mining_paper(&config);
    config.rules_pool = 256 << 10;
    struct qm_prefetcher *p = make_quickmine(&config);
    enum { N = 5000 };
    for (int round = 0; round < 2; round++) {
        for (uint64_t c = 0; c < N; c++) {
            const uint64_t blocks[] = {1, 2, 10 + c * 3 % N};
            assert_int_equal(read_blocks(p, blocks, 3), 0);
        }
    }
    const uint64_t last[] = {1, 2, 10 + N - 1};
    assert_int_equal(read_blocks(p, last, 3), 0);
    struct rule_list list = all_rules(p);
    assert_int_equal(list.n, N);
    for (uint64_t c = 0; c < N; c++) {
        assert_int_equal(list.v[c].c, 10 + c);
        assert_int_equal(list.v[c].support, c == N - 1 ? 3 : 2);
    }
    uint64_t found[3];
    assert_int_equal(look_up(p, 1, 2, found, 3), 3);
    assert_int_equal(found[0], 10 + N - 1);
    assert_int_equal(found[1], 10);
    assert_int_equal(found[2], 11);
    free(list.v);
    p->ops->destroy(p);
}

/* However much passes through, it stays as large as its bounds. */
TEST(test_stays_bounded)
{
    struct qm_mining_config config = defaults();
    config.max_prefix = 2000;
    config.rules_pool = 64 << 10;
    struct qm_prefetcher *p = make_quickmine(&config);
    struct rng rng = {8};
    uint64_t early = 0;
    for (int s = 0; s < 2000; s++) {
        uint64_t blocks[50];
        random_blocks(&rng, 1000000, blocks, 50);
        assert_int_equal(read_blocks(p, blocks, 50), 0);
        if (s == 200) {
            early = stats_of(p).rules_bytes;
        }
    }
    struct qm_mining_stats stats = stats_of(p);
    assert_int_equal(stats.prefixes, 2000);
    assert_true(stats.evicted > 200000);
    assert_true(stats.rules_bytes < 2 * early);
    p->ops->destroy(p);
}

static int stop_after(void *opaque, const struct qm_rule *rule)
{
    int *n = opaque;
    return --*n == 0 ? 99 : 0;
}

TEST(test_rules_stops)
{
    struct qm_mining_config config = defaults();
    struct qm_prefetcher *p = make_quickmine(&config);
    const uint64_t blocks[] = {1, 2, 3, 4, 5};
    int n = 3;
    assert_int_equal(p->ops->rules(p, stop_after, &n), 0); /* there are none */
    assert_int_equal(n, 3);
    assert_int_equal(read_blocks(p, blocks, 5), 0);
    assert_int_equal(p->ops->rules(p, stop_after, &n), 99);
    assert_int_equal(n, 0);
    p->ops->destroy(p);
}

TEST(test_purge)
{
    struct qm_mining_config config = defaults();
    config.purge_after = 100;
    struct qm_prefetcher *p = make_quickmine(&config);
    const uint64_t x[] = {1, 2, 3}, y[] = {4, 5, 6}, z[] = {7, 8, 9};
    uint64_t found[4];

    assert_int_equal(p->ops->purge(p, 1000), 0);
    assert_int_equal(read_blocks(p, x, 3), 0);
    assert_int_equal(read_blocks(p, y, 3), 0);
    assert_int_equal(p->ops->purge(p, 1050), 0); /* both were used before 1050 */
    assert_int_equal(look_up(p, 4, 5, found, 4), 1);
    assert_int_equal(p->ops->purge(p, 1100), 0); /* y was used before 1100 */
    assert_int_equal(p->ops->purge(p, 1149), 0);
    assert_int_equal(stats_of(p).prefixes, 2);
    assert_int_equal(p->ops->purge(p, 1150), 0);
    assert_int_equal(stats_of(p).prefixes, 1);
    assert_int_equal(look_up(p, 1, 2, found, 4), 0);
    /* Learned anew it begins anew. */
    assert_int_equal(read_blocks(p, x, 3), 0);
    assert_int_equal(p->ops->purge(p, 1199), 0);
    assert_int_equal(stats_of(p).prefixes, 2);
    assert_int_equal(p->ops->purge(p, 1200), 0);
    assert_int_equal(stats_of(p).prefixes, 1);
    assert_int_equal(look_up(p, 1, 2, found, 4), 1);
    /* A clock that goes backwards removes nothing. */
    assert_int_equal(p->ops->purge(p, 5), 0);
    assert_int_equal(stats_of(p).prefixes, 1);
    assert_int_equal(p->ops->purge(p, 100000), 0);
    assert_int_equal(stats_of(p).prefixes, 0);
    assert_int_equal(stats_of(p).rules, 0);
    assert_int_equal(stats_of(p).evicted, 3);
    assert_int_equal(read_blocks(p, z, 3), 0);
    assert_int_equal(stats_of(p).prefixes, 1);
    p->ops->destroy(p);

    config.purge_after = 0;
    p = make_quickmine(&config);
    assert_int_equal(read_blocks(p, x, 3), 0);
    assert_int_equal(p->ops->purge(p, 0), 0);
    assert_int_equal(p->ops->purge(p, UINT64_MAX), 0);
    assert_int_equal(stats_of(p).prefixes, 1);
    p->ops->destroy(p);
}

static int no_sleep(unsigned long seconds, unsigned long microseconds)
{
    return 0;
}

/* Berkeley DB cannot write its temporary file: the cache is off, nothing else happens.
 * In the end nothing is saved, and that is said.
 */
TEST(test_spill_fails)
{
    char dir[] = "/tmp/quickmine.XXXXXX", kept[] = "/tmp/quickmine.XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_non_null(mkdtemp(kept));
    assert_int_equal(db_env_set_func_yield(no_sleep), 0); /* it would for seconds */
    const char *old = getenv("TMPDIR");
    char *saved = old ? strdup(old) : NULL;
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    struct qm_mining_config config = defaults();
    config.rules_pool = 64 << 10;
    config.rules_dir = kept;
    config.rules_for = "disk";
    config.block_size = 16384;
    struct qm_prefetcher *p = make_quickmine(&config);
    if (saved) {
        setenv("TMPDIR", saved, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(saved);
    assert_int_equal(rmdir(dir), 0);

    struct rng rng = {10};
    uint64_t blocks[100], found[4], failed = 0;
    int r = 0;
    const uint64_t first[] = {1, 2, 3};
    assert_int_equal(read_blocks(p, first, 3), 0);
    assert_int_equal(look_up(p, 1, 2, found, 4), 1);
    for (int s = 0; s < 1000; s++) {
        random_blocks(&rng, 1000000, blocks, 100);
        r = read_blocks(p, blocks, 100);
        failed += r != 0;
    }
    assert_int_not_equal(r, 0);
    assert_true(failed > 0);
    assert_int_equal(stats_of(p).failed, failed);
    assert_int_equal(look_up(p, 1, 2, found, 4), 0);
    struct rule_list list = {0};
    assert_true(p->ops->rules(p, collect_rule, &list) < 0);
    free(list.v);
    config.purge_after = 1;
    assert_int_equal(p->ops->purge(p, 1), 0); /* was not asked for */
    assert_int_not_equal(p->ops->destroy(p), 0);
    assert_int_equal(rmdir(kept), 0);
}
