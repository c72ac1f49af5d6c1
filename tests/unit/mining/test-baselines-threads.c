/* SPDX-License-Identifier: BSD-3-Clause */
/* The baselines driven by several threads: streams of their own, blocks that end
 * anywhere, learning and statistics meanwhile. */
#include "baseline.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 3, CONTEXTS = 150, LENGTH = 250, RING = 64 };

struct shared {
    struct qm_prefetcher *p;
    _Atomic uint64_t asked[RING]; /* 0: taken */
    _Atomic(struct qm_work *) work;
    atomic_int running; /* readers */
    atomic_int wrong;
};

struct reader {
    struct shared *shared;
    unsigned number;
};

/* Hands work to the learner, or sheds it if there is some. */
static void hand_over(struct shared *shared, struct qm_work *work)
{
    struct qm_work *none = NULL;

    if (work && !atomic_compare_exchange_strong(&shared->work, &none, work)) {
        shared->p->ops->discard(shared->p, work);
    }
}

/* What is asked for is all different. */
static bool sane(const uint64_t *blocks, unsigned n)
{
    for (unsigned i = 1; i < n; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (blocks[i] == blocks[k]) {
                return false;
            }
        }
    }
    return n <= QM_CANDIDATES_MAX;
}

static void read_context(struct shared *shared, struct rng *rng)
{
    const struct qm_prefetcher_ops *ops = shared->p->ops;
    struct qm_stream *s = ops->begin(shared->p, 0);
    uint64_t block = rng_below(rng, 3000), blocks[QM_CANDIDATES_MAX];
    struct qm_work *work;

    if (!s) {
        atomic_fetch_add(&shared->wrong, 1);
        return;
    }
    for (unsigned i = 0; i < LENGTH; i++) {
        unsigned n, slot = (unsigned)rng_below(rng, RING);
        uint64_t told;

        block = rng_below(rng, 20) ? block + 1 : rng_below(rng, 3000);
        ops->access(shared->p, s, block,
                    (enum qm_access)rng_below(rng, QM_ACCESS_MISS + 1), &work);
        hand_over(shared, work);
        n = candidate_blocks(shared->p, s, QM_CANDIDATES_MAX, blocks);
        if (!sane(blocks, n)) {
            atomic_fetch_add(&shared->wrong, 1);
        }
        told = atomic_exchange(&shared->asked[slot],
                               n > 0 ? blocks[rng_below(rng, n)] : 0);
        if (told) {
            ops->ended(shared->p, told, 0, 0, (enum qm_fate)rng_below(rng, 3));
        }
    }
    ops->end(shared->p, s, &work);
    hand_over(shared, work);
}

static void *reader(void *opaque)
{
    struct reader *r = opaque;
    struct rng rng = {100 + r->number};

    for (unsigned i = 0; i < CONTEXTS; i++) {
        read_context(r->shared, &rng);
    }
    atomic_fetch_sub(&r->shared->running, 1);
    return NULL;
}

static void *learner(void *opaque)
{
    struct shared *shared = opaque;
    const struct qm_prefetcher_ops *ops = shared->p->ops;
    bool last;

    do {
        struct qm_mining_stats stats;
        struct qm_work *work;

        last = atomic_load(&shared->running) == 0;
        work = atomic_exchange(&shared->work, NULL);
        if (work && ops->learn(shared->p, work) != 0) {
            atomic_fetch_add(&shared->wrong, 1);
        }
        ops->stats(shared->p, &stats);
        if (stats.rules < stats.prefixes) {
            atomic_fetch_add(&shared->wrong, 1);
        }
        for (unsigned i = 0; i < RING; i++) { /* blocks end here as well */
            uint64_t told = atomic_exchange(&shared->asked[i], 0);

            if (told) {
                ops->ended(shared->p, told, 0, 0, QM_FATE_UNUSED);
            }
        }
        sched_yield();
    } while (!last);
    return NULL;
}

static void run(const char *policy)
{
    struct shared shared = {.p = make(policy, 16384)};
    struct reader readers[THREADS];
    pthread_t threads[THREADS + 1];

    atomic_store(&shared.running, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){&shared, i};
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &readers[i]), 0);
    }
    assert_int_equal(pthread_create(&threads[THREADS], NULL, learner, &shared), 0);
    for (unsigned i = 0; i <= THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&shared.wrong), 0);
    assert_null(atomic_load(&shared.work));
    if (strcmp(policy, "mithril") == 0) {
        assert_true(stats_of(shared.p).sequences > 0);
    }
    shared.p->ops->destroy(shared.p);
}

TEST(test_threads)
{
    static const char *const policies[] = {"seq", "run", "amp", "mithril", "ppm"};

    for (unsigned i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        run(policies[i]);
    }
}
