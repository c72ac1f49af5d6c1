/* SPDX-License-Identifier: BSD-3-Clause */
/* The ppm prefetcher: lookahead paths, hits, what is cached, and what experience
 * teaches. */
#include <errno.h>

#include "baseline.h"

#define MIB (1 << 20)

static struct qm_prefetcher *make_ppm_of(uint64_t bytes,
                                         bool (*cached)(void *, uint64_t), void *opaque)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = bytes;
    config.cached = cached;
    config.opaque = opaque;
    assert_int_equal(qm_prefetcher_find("ppm")->create(&config, &p, err, sizeof err),
                     0);
    assert_string_equal(err, "");
    return p;
}

static struct qm_prefetcher *make_ppm(bool (*cached)(void *, uint64_t), void *opaque)
{
    return make_ppm_of(MIB, cached, opaque);
}

static bool asked_for(struct asked asked, uint64_t block)
{
    for (unsigned i = 0; i < asked.n; i++) {
        if (asked.blocks[i] == block)
            return true;
    }
    return false;
}

/* A context that misses these blocks; what it asked for after the last. */
static struct asked read_all(struct qm_prefetcher *p, const uint64_t *blocks,
                             unsigned n)
{
    struct qm_stream *s = begin(p);
    struct asked asked = {0};

    for (unsigned i = 0; i < n; i++) {
        asked = step(p, s, blocks[i], QM_ACCESS_MISS);
    }
    end(p, s);
    return asked;
}

static const uint64_t path[] = {10, 25, 13, 99, 47, 58};

FIXTURE(ppm, make_ppm(NULL, NULL), (void)it->ops->destroy(it))

TEST_ON(test_chain, ppm, struct qm_prefetcher *p)
{
    struct asked asked;

    asked = read_all(p, path, 6);
    assert_int_equal(asked.n, 0);
    asked = read_all(p, path, 1);
    assert_int_equal(asked.n, 2); /* steps ahead */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(asked.blocks[i], path[i + 1]);
    }
    asked = read_all(p, path, 5);
    assert_int_equal(asked.n, 1);
    assert_int_equal(asked.blocks[0], 58);
}

/* What one has learned outlives whatever others read, while he is there. */
TEST(test_owners)
{
    enum { FLOOD = 100000, TABLE = 1 << 16 };
    struct asked asked;

    for (int there = 0; there < 2; there++) {
        struct qm_prefetcher *p = make_ppm_of(TABLE, NULL, NULL);
        struct qm_stream *first = begin(p), *other = begin(p);

        p->ops->owners(p, there ? 1 << 1 | 1 << 2 : 1 << 2);
        p->ops->own(first, 1);
        p->ops->own(other, 2);
        for (unsigned i = 0; i < 12; i++)
            step(p, first, path[i % 6], QM_ACCESS_MISS);
        for (uint64_t b = 0; b < FLOOD; b++)
            step(p, other, 1000 + b * b, QM_ACCESS_MISS);
        asked = step(p, first, path[0], QM_ACCESS_MISS);
        assert_int_equal(asked_for(asked, path[1]), there);
        end(p, first);
        end(p, other);
        p->ops->destroy(p);
    }
}

/* Where blocks come late it looks further ahead. */
TEST_ON(test_pace, ppm, struct qm_prefetcher *p)
{
    read_all(p, path, 6);
    for (int i = 0; i < 1000; i++) {
        p->ops->ended(p, 5000, 0, 0, QM_FATE_LATE);
    }
    assert_int_equal(read_all(p, path, 1).n, 5);
    /* Of what is used, a part may come late: that moves nothing. */
    for (int i = 0; i < 2000; i++) {
        p->ops->ended(p, 5000, 0, 0, i % 20 < 3 ? QM_FATE_LATE : QM_FATE_USED);
    }
    assert_int_equal(read_all(p, path, 1).n, 5);
    for (int i = 0; i < 10000; i++) {
        p->ops->ended(p, 5000, 0, 0, QM_FATE_USED);
    }
    assert_int_equal(read_all(p, path, 1).n, 2);
}

static float price(void *opaque)
{
    return *(const float *)opaque;
}

/* Where the price of a read is known, what is further on must be more probable than
 * what is next: here a fifth is enough for the latter alone, unless the price is more.
 */
TEST(test_further)
{
    static const uint64_t often[] = {10, 25, 99}, seldom[] = {10, 25, 13};
    static const struct {
        float price;
        bool next;
    } cases[] = {{0, true}, {.1f, true}, {.22f, false}, {QM_PRICE_UNKNOWN, false}};
    struct qm_mining_config config;
    float now;
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = MIB;
    config.ablate = QM_ABLATE_CONFIDENCE | QM_ABLATE_THRESHOLD;
    config.threshold = price;
    config.opaque = &now;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_prefetcher *p;
        struct asked asked;

        assert_int_equal(
            qm_prefetcher_find("ppm")->create(&config, &p, err, sizeof err), 0);
        now = cases[i].price;
        for (unsigned n = 0; n < 4; n++)
            read_all(p, often, 3);
        read_all(p, seldom, 3);
        asked = read_all(p, seldom, 1);
        assert_true(asked_for(asked, 25) && asked_for(asked, 99));
        assert_false(asked_for(asked, 13));
        asked = read_all(p, seldom, 2);
        assert_true(asked_for(asked, 99));
        assert_int_equal(asked_for(asked, 13), cases[i].next);
        p->ops->destroy(p);
    }
}

/* No more than there is room for. */
TEST_ON(test_room, ppm, struct qm_prefetcher *p)
{
    struct qm_stream *s = begin(p);
    struct qm_work *work;
    uint64_t block;

    read_all(p, path, 6);
    p->ops->access(p, s, 10, QM_ACCESS_MISS, &work);
    assert_int_equal(candidate_blocks(p, s, 1, &block), 1);
    assert_int_equal(block, 25);
    end(p, s);
}

/* Between what is missed there may be hits, and repeats, as many as you like. */
TEST_ON(test_hits_are_passed_over, ppm, struct qm_prefetcher *p)
{
    struct qm_stream *s = begin(p);
    struct asked asked;

    for (unsigned i = 0; i < 6; i++) {
        step(p, s, path[i], i % 2 ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);
        asked = step(p, s, 1000 + i, QM_ACCESS_HIT);
        assert_int_equal(asked.n, 0);
        asked = step(p, s, path[i], QM_ACCESS_MISS); /* dropped meanwhile */
        assert_int_equal(asked.n, 0);
    }
    end(p, s);
    assert_true(p->ops->flags & QM_EARLY_HITS);
    assert_int_equal(stats_of(p).rules, 5 + 4);
    asked = read_all(p, path, 2);
    assert_true(asked_for(asked, 13));
    assert_false(asked_for(asked, 1000));
}

/* But early hits are not: what follows one follows it also where it was missed. */
TEST_ON(test_early_hits_are_not, ppm, struct qm_prefetcher *p)
{
    struct qm_stream *s = begin(p);

    for (unsigned i = 0; i < 6; i++)
        (void)step(p, s, path[i], i % 2 ? QM_ACCESS_EARLY_HIT : QM_ACCESS_MISS);
    end(p, s);
    assert_int_equal(stats_of(p).rules, 5 + 4);
    s = begin(p);
    assert_true(asked_for(step(p, s, path[1], QM_ACCESS_EARLY_HIT), path[2]));
    assert_int_equal(step(p, s, path[2], QM_ACCESS_HIT).n, 0);
    end(p, s);
}

/* Two contexts at a time do not make rules together. */
TEST_ON(test_contexts, ppm, struct qm_prefetcher *p)
{
    struct qm_stream *s = begin(p), *t = begin(p);
    struct asked asked;

    for (unsigned i = 0; i < 6; i++) {
        step(p, s, path[i], QM_ACCESS_MISS);
        step(p, t, 500 + path[i], QM_ACCESS_MISS);
    }
    end(p, s);
    end(p, t);
    asked = read_all(p, path, 1);
    assert_int_equal(asked.n, 2);
    for (unsigned i = 0; i < asked.n; i++) {
        assert_true(asked.blocks[i] < 500);
    }
}

static bool is_odd(void *opaque, uint64_t block)
{
    (*(unsigned *)opaque)++;
    return block % 2 != 0;
}

/* What is cached is not asked for, but leads on to what is not. */
TEST(test_cached)
{
    static const uint64_t mixed[] = {10, 25, 12, 99, 48, 58};
    unsigned calls = 0;
    struct qm_prefetcher *p = make_ppm(is_odd, &calls);
    struct asked asked;

    read_all(p, mixed, 6);
    asked = read_all(p, mixed, 1);
    assert_int_equal(asked.n, 1);
    assert_int_equal(asked.blocks[0], 12);
    assert_true(calls > 0);
    p->ops->destroy(p);
}

static void end_all(struct qm_prefetcher *p, struct asked asked, enum qm_fate fate)
{
    for (unsigned i = 0; i < asked.n; i++) {
        p->ops->ended(p, asked.blocks[i], 0, 0, fate);
    }
}

/* A context that reads these three blocks, whose prefetches end as they would. */
static struct asked read_three(struct qm_prefetcher *p, const uint64_t *blocks)
{
    struct qm_stream *s = begin(p);
    struct asked first = step(p, s, blocks[0], QM_ACCESS_MISS);
    struct asked second =
        step(p, s, blocks[1],
             asked_for(first, blocks[1]) ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);
    bool there = asked_for(first, blocks[2]) || asked_for(second, blocks[2]);

    for (unsigned i = 0; i < first.n; i++) {
        if (!asked_for(second, first.blocks[i]))
            second.blocks[second.n++] = first.blocks[i];
    }
    for (unsigned i = 0; i < second.n; i++) {
        bool used = second.blocks[i] == blocks[1] || second.blocks[i] == blocks[2];

        p->ops->ended(p, second.blocks[i], 0, 0, used ? QM_FATE_USED : QM_FATE_UNUSED);
    }
    step(p, s, blocks[2], there ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);
    end(p, s);
    return second;
}

/* What two blocks say together is trusted more where one says two things. */
TEST_ON(test_two_blocks, ppm, struct qm_prefetcher *p)
{
    static const uint64_t left[] = {1, 5, 7}, right[] = {2, 5, 8};
    struct asked l, r;

    for (int i = 0; i < 2000; i++) {
        l = read_three(p, left);
        r = read_three(p, right);
    }
    assert_int_equal(l.blocks[0], 7);
    assert_int_equal(r.blocks[0], 8);
}

/* What is of no use is not asked for after a while; when it is missed, it is again. */
TEST_ON(test_experience, ppm, struct qm_prefetcher *p)
{
    struct asked asked = {0};
    unsigned asked_last = 0;

    read_all(p, path, 6);
    for (int i = 0; i < 2000; i++) {
        asked = read_all(p, path, 1); /* and it reads on elsewhere */
        end_all(p, asked, QM_FATE_UNUSED);
        asked_last += i >= 1900 ? asked.n : 0;
    }
    assert_int_equal(asked_last, 0);
    for (int i = 0; i < 2000; i++) {
        asked = read_all(p, path, 1);
        end_all(p, asked, QM_FATE_USED);
        read_all(p, path, 6);
    }
    assert_true(asked_for(asked, 25));
}

/* What the device reads, in thousandths of what it would with LRU. */
struct device {
    unsigned reads;
    unsigned calls;
};

static void tell_reads(void *opaque, uint64_t *device, uint64_t *lru)
{
    struct device *d = opaque;

    d->calls++;
    *device = (uint64_t)d->calls * d->reads;
    *lru = (uint64_t)d->calls * 1000;
}

/* How many of 1000 prefetches that are right seven times of ten were made at last. */
static unsigned made_of_1000(struct device *device, unsigned without)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    struct rng rng = {1};
    unsigned made = 0;
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = MIB;
    config.reads = tell_reads;
    config.opaque = device;
    config.ablate = without;
    assert_int_equal(qm_prefetcher_find("ppm")->create(&config, &p, err, sizeof err),
                     0);
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t follower = rng_below(&rng, 10) < 7 ? 2 : 1000 + i;
        struct qm_stream *s = begin(p);
        struct asked asked = step(p, s, 1, QM_ACCESS_MISS);
        bool there = asked_for(asked, follower);

        for (unsigned k = 0; k < asked.n; k++) {
            p->ops->ended(p, asked.blocks[k], 0, 0,
                          asked.blocks[k] == follower ? QM_FATE_USED : QM_FATE_UNUSED);
        }
        made += i >= 99000 && asked_for(asked, 2);
        step(p, s, follower, there ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);
        end(p, s);
    }
    p->ops->destroy(p);
    return made;
}

/* Where the device reads less than it would without it all, prefetches may be less
 * accurate than where it reads more. */
TEST(test_reads)
{
    struct device spared = {.reads = 700}, burdened = {.reads = 1300},
                  ignored = {.reads = 1300};
    unsigned more = made_of_1000(&spared, 0), fewer = made_of_1000(&burdened, 0);

    assert_in_range(spared.calls, 100, 1000);
    assert_in_range(more, 980, 1000);
    assert_in_range(fewer, 0, 850);
    made_of_1000(&ignored, QM_ABLATE_ACCURACY);
    assert_int_equal(ignored.calls, 0);
}

/* A path that has changed is followed as it is now. */
TEST_ON(test_change, ppm, struct qm_prefetcher *p)
{
    static const uint64_t was[] = {1, 2, 3}, is[] = {1, 2, 4};
    struct asked asked = {0};

    for (int i = 0; i < 50; i++) {
        read_all(p, was, 3);
        asked = read_all(p, was, 2);
        p->ops->ended(p, 3, 0, 0, QM_FATE_USED);
    }
    assert_int_equal(asked.blocks[0], 3);
    for (int i = 0; i < 50; i++) {
        read_all(p, is, 3);
        asked = read_all(p, is, 2);
        p->ops->ended(p, 3, 0, 0, QM_FATE_UNUSED);
        if (asked_for(asked, 4))
            p->ops->ended(p, 4, 0, 0, QM_FATE_USED);
    }
    assert_true(asked_for(asked, 4));
}

/* Whatever is read, it asks for different blocks, not for the one just read, and stays
 * within its memory. */
TEST_ON(test_random, ppm, struct qm_prefetcher *p)
{
    struct walk w;

    walk_init(&w, 3, 20, 30);
    for (int i = 0; i < 300; i++) {
        struct qm_stream *s = begin(p);

        for (int k = 0; k < 200; k++) {
            enum qm_access outcome;
            uint64_t block = walk_next(&w, &outcome);
            struct asked asked = step(p, s, block, outcome);

            assert_false(asked_for(asked, block));
            for (unsigned a = 1; a < asked.n; a++) {
                for (unsigned b = 0; b < a; b++) {
                    assert_int_not_equal(asked.blocks[a], asked.blocks[b]);
                }
            }
            end_all(p, asked, (enum qm_fate)rng_below(&w.rng, 3));
        }
        end(p, s);
    }
    assert_true(stats_of(p).rules > 10000);
    assert_true(stats_of(p).rules_bytes <= MIB);
}

/* A reader with a cache of its own reads A, and then B, unless it has read B lately.
 * Of the last hundred times of either kind, how often B was asked for after A. */
static void read_with_cache(struct qm_prefetcher *p, unsigned asked[2])
{
    enum { A = 1, B = 2, TIMES = 600 };
    struct qm_stream *s = begin(p);
    struct rng rng = {3};
    uint64_t other = 1000;
    unsigned of[2] = {0};

    asked[0] = asked[1] = 0;
    for (unsigned i = 0; i < TIMES || of[0] < 100 || of[1] < 100; i++) {
        unsigned lately = (unsigned)rng_below(&rng, 2);

        for (unsigned k = 0; k < (lately ? 16 : 256); k++)
            step(p, s, other++, QM_ACCESS_MISS);
        bool wanted = asked_for(step(p, s, A, QM_ACCESS_MISS), B);
        if (i >= TIMES && of[lately]++ < 100)
            asked[lately] += wanted;
        if (wanted)
            p->ops->ended(p, B, 0, 0, lately ? QM_FATE_UNUSED : QM_FATE_USED);
        if (!lately || i == 0)
            step(p, s, B, wanted ? QM_ACCESS_PREFETCH_HIT : QM_ACCESS_MISS);
    }
    end(p, s);
}

TEST(test_ages)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    unsigned asked[2];
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = MIB;
    for (unsigned without = 0; without < 2; without++) {
        config.ablate = without ? QM_ABLATE_AGES : 0;
        assert_int_equal(
            qm_prefetcher_find("ppm")->create(&config, &p, err, sizeof err), 0);
        read_with_cache(p, asked);
        if (without) {
            assert_in_range(asked[0], 30, 70);
            assert_in_range(asked[1], 30, 70);
        } else {
            assert_true(asked[0] > 90 && asked[1] < 30);
        }
        p->ops->destroy(p);
    }
}

/* Memory for rules has bounds, and a default. */
TEST(test_config)
{
    struct qm_mining_config config;
    char err[256];

    qm_mining_defaults(&config);
    config.rules_memory = 65535;
    assert_int_equal(qm_mining_check(&config, err, sizeof err), EINVAL);
    assert_non_null(strstr(err, "from 64K to 1T"));
    config.rules_memory = 65536;
    assert_int_equal(qm_mining_check(&config, err, sizeof err), 0);
    config.rules_memory = (UINT64_C(1) << 40) + 1;
    assert_int_equal(qm_mining_check(&config, err, sizeof err), EINVAL);
    assert_int_equal(qm_mining_rules_memory(64 * MIB), 8 * MIB);
    assert_int_equal(qm_mining_rules_memory(0), 65536);
    assert_int_equal(qm_mining_rules_memory(UINT64_MAX), UINT64_C(1) << 40);
}

/* Each part that can be left out has a name, and some an old one. */
TEST(test_ablation_names)
{
    static const char *const names[] = {"two",       "confidence", "watch",
                                        "threshold", "lookahead",  "misses",
                                        "accuracy",  "ages",       "statements"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(qm_ablation_find(names[i]), 1 << i);
        assert_non_null(strstr(qm_ablation_names(), names[i]));
    }
    assert_int_equal(qm_ablation_find("judge"), QM_ABLATE_CONFIDENCE);
    assert_int_equal(qm_ablation_find("price"), QM_ABLATE_THRESHOLD);
    assert_int_equal(qm_ablation_find("chain"), QM_ABLATE_LOOKAHEAD);
    assert_int_equal(qm_ablation_find("aim"), QM_ABLATE_ACCURACY);
    assert_int_equal(qm_ablation_find("luck"), 0);
}
