/* SPDX-License-Identifier: BSD-3-Clause */
/* Trimmed blocks: the list of them against a naive one, and that no policy proposes
 * them; with block numbers up to the largest. */
#include "baseline.h"
#include "mining/core/trimmed.h"

enum { SPACE = 8192 };

static struct qm_trimmed forgotten;

static int set_up(void **state)
{
    qm_trimmed_init(&forgotten);
    return 0;
}

static int tear_down(void **state)
{
    qm_trimmed_destroy(&forgotten);
    return 0;
}

TEST_WITH(test_model, set_up, tear_down)
{
    static bool model[SPACE];
    struct rng rng = {11};

    memset(model, 0, sizeof model);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t block = rng_below(&rng, SPACE), n = 1 + rng_below(&rng, 20);

        if (n > SPACE - block)
            n = SPACE - block;
        if (rng_below(&rng, 40) == 0) {
            qm_trimmed_add(&forgotten, block, n);
            memset(model + block, true, n);
        } else {
            assert_int_equal(qm_trimmed_has(&forgotten, block), model[block]);
            if (rng_below(&rng, 3) == 0) {
                qm_trimmed_revive(&forgotten, block);
                model[block] = false;
            }
        }
        assert_true(atomic_load(&forgotten.count) < QM_TRIMMED_MAX);
    }
    for (unsigned b = 0; b < SPACE; b++)
        assert_int_equal(qm_trimmed_has(&forgotten, b), model[b]);
    qm_trimmed_add(&forgotten, 0, SPACE);
    assert_int_equal(atomic_load(&forgotten.count), 1);
}

/* The list is bounded: the shortest ranges go. */
TEST_WITH(test_bound, set_up, tear_down)
{
    const uint64_t n = 3 * QM_TRIMMED_MAX;

    for (uint64_t i = 0; i < n; i++)
        qm_trimmed_add(&forgotten, 10 * i, i % 3 == 0 ? 5 : 1);
    assert_int_equal(atomic_load(&forgotten.count), QM_TRIMMED_MAX);
    for (uint64_t i = 0; i < n; i += 3)
        assert_true(qm_trimmed_has(&forgotten, 10 * i + 4));
    for (uint64_t i = 0; i < n; i += 3) /* splits each; one of two has to go */
        qm_trimmed_revive(&forgotten, 10 * i + 1);
    assert_int_equal(atomic_load(&forgotten.count), QM_TRIMMED_MAX);
    for (uint64_t i = 0; i < n; i++)
        assert_false(qm_trimmed_has(&forgotten, 10 * i + 1));
}

TEST_WITH(test_limits, set_up, tear_down)
{
    qm_trimmed_add(&forgotten, 7, 0);
    qm_trimmed_add(&forgotten, QM_BLOCKS_MAX, 5);
    qm_trimmed_add(&forgotten, UINT64_MAX, UINT64_MAX);
    assert_int_equal(atomic_load(&forgotten.count), 0);
    qm_trimmed_add(&forgotten, QM_BLOCKS_MAX - 1, UINT64_MAX);
    assert_true(qm_trimmed_has(&forgotten, QM_BLOCKS_MAX - 1));
    assert_false(qm_trimmed_has(&forgotten, QM_BLOCKS_MAX));
    qm_trimmed_add(&forgotten, 0, UINT64_MAX);
    assert_int_equal(atomic_load(&forgotten.count), 1);
    assert_true(qm_trimmed_has(&forgotten, 0));
    qm_trimmed_revive(&forgotten, 0);
    qm_trimmed_revive(&forgotten, QM_BLOCKS_MAX - 1);
    assert_false(qm_trimmed_has(&forgotten, 0));
    assert_true(qm_trimmed_has(&forgotten, 1));
    assert_false(qm_trimmed_has(&forgotten, QM_BLOCKS_MAX - 1));
}

/* Who reads while the list is being changed does not wait. */
TEST_WITH(test_never_waits, set_up, tear_down)
{
    qm_trimmed_add(&forgotten, 7, 1);
    pthread_rwlock_wrlock(&forgotten.lock);
    assert_false(qm_trimmed_has(&forgotten, 7));
    qm_trimmed_revive(&forgotten, 7);
    pthread_rwlock_unlock(&forgotten.lock);
    assert_true(qm_trimmed_has(&forgotten, 7));
}

static const uint64_t path[] = {10, 25, 13}; /* and what is far from it, as hits */

static void learn(struct qm_prefetcher *p, struct qm_work *work)
{
    if (work)
        assert_int_equal(p->ops->learn(p, work), 0);
}

static void train(struct qm_prefetcher *p, uint64_t base)
{
    uint64_t far = 1000000;
    struct qm_work *work;

    for (unsigned round = 0; round < 40; round++) {
        struct qm_stream *s = p->ops->begin(p, 0);

        assert_non_null(s);
        for (unsigned i = 0; i < 43; i++) {
            p->ops->access(p, s, i < 3 ? base + path[i] : far++,
                           i < 3 ? QM_ACCESS_MISS : QM_ACCESS_HIT, &work);
            learn(p, work);
        }
        p->ops->end(p, s, &work);
        learn(p, work);
    }
}

/* Whether the third block is proposed after the first two. */
static bool proposes(struct qm_prefetcher *p, uint64_t base)
{
    struct qm_stream *s = p->ops->begin(p, 0);
    uint64_t blocks[QM_CANDIDATES_MAX];
    struct qm_work *work;
    bool found = false;
    unsigned n;

    assert_non_null(s);
    for (unsigned i = 0; i < 2; i++) {
        p->ops->access(p, s, base + path[i], QM_ACCESS_MISS, &work);
        learn(p, work);
    }
    n = candidate_blocks(p, s, QM_CANDIDATES_MAX, blocks);
    for (unsigned i = 0; i < n; i++)
        found = found || blocks[i] == base + path[2];
    p->ops->end(p, s, &work);
    if (work)
        p->ops->discard(p, work);
    return found;
}

static void try_policy(const char *name, uint64_t base)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p;
    struct qm_work *work;
    struct qm_stream *s;
    char err[256];

    qm_mining_defaults(&config);
    config.retrain = 90;
    assert_int_equal(qm_prefetcher_find(name)->create(&config, &p, err, sizeof err), 0);
    assert_non_null(p->ops->forget);
    train(p, base);
    assert_true(proposes(p, base));
    p->ops->forget(p, base + path[2] + 1, 5);
    assert_true(proposes(p, base));
    p->ops->forget(p, base + path[2] - 1, 3);
    assert_false(proposes(p, base));
    /* It is read: there is something there again. */
    s = p->ops->begin(p, 0);
    p->ops->access(p, s, base + path[2], QM_ACCESS_MISS, &work);
    learn(p, work);
    p->ops->end(p, s, &work);
    learn(p, work);
    assert_true(proposes(p, base));
    assert_int_equal(p->ops->destroy(p), 0);
}

TEST(test_policies)
{
    static const char *const names[] = {
        "ppm",
        "mithril",
        "cminer+",
#ifdef QM_HAVE_BERKELEY_DB
        "quickmine",
#endif
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        try_policy(names[i], 0);
        try_policy(names[i], UINT64_C(1) << 34);
        try_policy(names[i], QM_BLOCKS_MAX - 26); /* 25 is the last block */
    }
}
