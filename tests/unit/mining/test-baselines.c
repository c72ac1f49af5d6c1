/* SPDX-License-Identifier: BSD-3-Clause */
/* The baselines in the simulator: counts, exactly. */
#include "testing.h"

#include "sim/sim.h"

enum { BLOCK = 16384, READERS = 12, READS = 60000 };

static struct qm_sim *begin(const char *policy, enum qm_level level, uint64_t blocks)
{
    struct qm_sim_config config;
    char err[256] = "";
    struct qm_sim *sim;

    qm_sim_paper(&config);
    config.params.policy = policy;
    config.params.level = level;
    config.block_size = BLOCK;
    config.cache_blocks = blocks;
    sim = qm_sim_new(&config, err, sizeof err);
    if (!sim) {
        fail_msg("%s", err);
    }
    return sim;
}

static void event(struct qm_sim *sim, const struct qm_event *e)
{
    assert_int_equal(qm_sim_event(sim, e), 0);
}

static void open_context(struct qm_sim *sim, uint32_t slot)
{
    event(sim, &(struct qm_event){.type = QM_TRACE_BEGIN,
                                  .ctx = slot,
                                  .slot = slot,
                                  .kind = QM_TRANSACTION,
                                  .klass = "t"});
}

static void close_context(struct qm_sim *sim, uint32_t slot)
{
    event(sim, &(struct qm_event){.type = QM_TRACE_END, .ctx = slot, .slot = slot});
}

static void read_block(struct qm_sim *sim, uint32_t slot, uint64_t block)
{
    event(sim, &(struct qm_event){.type = QM_TRACE_READ,
                                  .ctx = slot,
                                  .slot = slot,
                                  .offset = block * BLOCK,
                                  .length = BLOCK});
}

static struct qm_sim_result finish(struct qm_sim *sim)
{
    struct qm_sim_result r;

    qm_sim_result(sim, &r);
    qm_sim_free(sim);
    return r;
}

/* All but the start is prefetched, and what is prefetched is used. */
TEST(test_sequential)
{
    static const struct {
        const char *policy;
        uint64_t misses;
        uint64_t prefetches; /* of 1000 blocks from 0, and some behind them */
    } cases[] = {
        /* 0 to 2.  Windows of 3, 6, 6 blocks, then 8 each, one ahead: to 1009. */
        {"seq", 3, 1010 - 3},
        /* 0 to 2.  To 18, then 8 more each when 8 are left: to 1010. */
        {"run", 3, 1011 - 3},
        /* 0 and 1, and before the sets of 2 to 5 blocks, which end at 20.  Then sets of
         * 5, 6, ... 44, 45 blocks, one ahead: to 1045. */
        {"amp", 6, 1046 - 6},
    };

    for (unsigned i = 0; i < 3; i++) {
        struct qm_sim *sim = begin(cases[i].policy, QM_LEVEL_INNERMOST, 5000);
        struct qm_sim_result r;

        open_context(sim, 1);
        for (uint64_t b = 0; b < 1000; b++) {
            read_block(sim, 1, b);
        }
        r = finish(sim);
        assert_int_equal(r.misses, cases[i].misses);
        assert_int_equal(r.prefetch_hits, 1000 - r.misses);
        assert_int_equal(r.hits, 0);
        assert_int_equal(r.used, r.prefetch_hits);
        assert_int_equal(r.wasted, 0);
        assert_int_equal(r.prefetches, cases[i].prefetches);
    }
}

/* Readers of one kind each: scans, walks with jumps and reverses, and sets of blocks
 * that are read together now and then. */
struct reader {
    unsigned kind, left;
    uint64_t at;
};

static void next_context(struct reader *reader, struct rng *rng)
{
    reader->kind = (unsigned)rng_below(rng, 3);
    reader->left = 5 + (unsigned)rng_below(rng, 60);
    reader->at = reader->kind < 2 ? 50000 + rng_below(rng, 50000) : 0;
}

static uint64_t next_block(struct reader *reader, struct rng *rng, unsigned now)
{
    static const int64_t steps[] = {1, 1, 3, -1, 6, -2, 2, 1};
    uint64_t set;

    switch (reader->kind) {
    case 0:
        return reader->at++;
    case 1:
        reader->at = (uint64_t)((int64_t)reader->at + steps[rng_below(rng, 8)]);
        return reader->at;
    default:
        if (reader->at % 4 == 0) {
            set = now / 100 + rng_below(rng, 200);
            reader->at = 4 * set;
        }
        set = reader->at++;
        return set * 7919 % 40000;
    }
}

static struct qm_sim_result mixed(const char *policy, enum qm_level level)
{
    struct qm_sim *sim = begin(policy, level, 2000);
    struct reader readers[READERS] = {0};
    struct rng rng = {1};

    for (unsigned i = 0; i < READS; i++) {
        uint32_t slot = (uint32_t)rng_below(&rng, READERS);
        struct reader *reader = &readers[slot];

        if (reader->left == 0) {
            if (i > 0 && reader->at) {
                close_context(sim, slot + 1);
            }
            next_context(reader, &rng);
            reader->at += reader->kind == 2 ? 4 : 0;
            open_context(sim, slot + 1);
        }
        reader->left--;
        read_block(sim, slot + 1, next_block(reader, &rng, i));
    }
    return finish(sim);
}

TEST(test_exact_counts)
{
    static const struct {
        const char *policy;
        enum qm_level level;
        uint64_t hits, prefetch_hits, misses, prefetches, used, wasted;
    } cases[] = {
        {"none", QM_LEVEL_INNERMOST, 17413, 0, 42587, 0, 0, 0},
        {"seq", QM_LEVEL_INNERMOST, 17083, 20697, 22220, 36862, 20697, 16100},
        {"seq", QM_LEVEL_NONE, 17083, 1083, 41834, 1291, 1083, 137},
        {"run", QM_LEVEL_INNERMOST, 17083, 17163, 25754, 78386, 17163, 61149},
        {"run", QM_LEVEL_NONE, 17083, 17182, 25735, 78401, 17182, 61145},
        {"amp", QM_LEVEL_INNERMOST, 17083, 18964, 23953, 24246, 18964, 5208},
        {"amp", QM_LEVEL_NONE, 17083, 18941, 23976, 24201, 18941, 5186},
        {"mithril", QM_LEVEL_INNERMOST, 17083, 1092, 41825, 1196, 1092, 28},
        {"mithril", QM_LEVEL_NONE, 17083, 1092, 41825, 1196, 1092, 28},
    };
    bool all = true;

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_sim_result r = mixed(cases[i].policy, cases[i].level);

        if (r.hits != cases[i].hits || r.prefetch_hits != cases[i].prefetch_hits ||
            r.misses != cases[i].misses || r.prefetches != cases[i].prefetches ||
            r.used != cases[i].used || r.wasted != cases[i].wasted) {
            print_error("%s, level %d: {%llu, %llu, %llu, %llu, %llu, %llu}\n",
                        cases[i].policy, (int)cases[i].level,
                        (unsigned long long)r.hits, (unsigned long long)r.prefetch_hits,
                        (unsigned long long)r.misses, (unsigned long long)r.prefetches,
                        (unsigned long long)r.used, (unsigned long long)r.wasted);
            all = false;
        }
        assert_int_equal(r.reads, READS);
    }
    assert_true(all);
}
