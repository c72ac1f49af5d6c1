/* SPDX-License-Identifier: BSD-3-Clause */
/* baseline.h - a prefetcher driven access by access, and what it asks for. */
#ifndef QM_MINING_BASELINE_H
#define QM_MINING_BASELINE_H

#include "testing.h"

/* What was asked for after an access. */
struct asked {
    unsigned n;
    uint64_t blocks[QM_CANDIDATES_MAX];
};

static inline struct qm_prefetcher *make(const char *name, uint64_t block_size)
{
    struct qm_mining_config config;
    struct qm_prefetcher *p = NULL;
    char err[256];

    qm_mining_defaults(&config);
    config.block_size = block_size;
    assert_int_equal(qm_prefetcher_find(name)->create(&config, &p, err, sizeof err), 0);
    assert_string_equal(err, "");
    assert_true(p->ops->flags & (QM_ASK_ALWAYS | QM_NO_HITS | QM_EARLY_HITS));
    return p;
}

static inline struct qm_stream *begin(struct qm_prefetcher *p)
{
    struct qm_stream *s = p->ops->begin(p, 0);

    assert_non_null(s);
    return s;
}

static inline void end(struct qm_prefetcher *p, struct qm_stream *s)
{
    struct qm_work *work;

    p->ops->end(p, s, &work);
    assert_null(work);
}

/* The stream reads block; what there is to learn is learned at once. */
static inline struct asked step(struct qm_prefetcher *p, struct qm_stream *s,
                                uint64_t block, enum qm_access outcome)
{
    struct qm_work *work = (struct qm_work *)p; /* must be set */
    struct asked asked;

    p->ops->access(p, s, block, outcome, &work);
    if (work) {
        assert_int_equal(p->ops->learn(p, work), 0);
    }
    asked.n = candidate_blocks(p, s, QM_CANDIDATES_MAX, asked.blocks);
    return asked;
}

static inline void check_asked(struct asked asked, uint64_t from, uint64_t to,
                               const char *file, int line)
{
    _assert_int_equal(asked.n, to + 1 - from, file, line);
    for (unsigned i = 0; i < asked.n; i++) {
        _assert_int_equal(asked.blocks[i], from + i, file, line);
    }
}

/* That exactly from, from + 1, ..., to were asked for; nothing if to is from - 1. */
#define assert_asked(asked, from, to) check_asked(asked, from, to, __FILE__, __LINE__)
#define assert_asked_nothing(asked)   assert_asked(asked, 1, 0)

/* A random walk of several readers that are mostly sequential, with jumps, reverses and
 * repeats; and outcomes at random. */
struct walk {
    struct rng rng;
    unsigned readers;
    unsigned strict; /* percent of the steps that go to the next block */
    uint64_t at[128];
};

static inline uint64_t walk_next(struct walk *w, enum qm_access *outcome)
{
    uint64_t *at = &w->at[rng_below(&w->rng, w->readers)];

    *outcome = (enum qm_access)rng_below(&w->rng, QM_ACCESS_MISS + 1);
    if (rng_below(&w->rng, 100) < w->strict) {
        *at += 1;
    } else if (rng_below(&w->rng, 10) == 0) {
        *at = 100 + rng_below(&w->rng, 100000);
    } else {
        *at += rng_below(&w->rng, 18);
        *at -= *at > 7 ? 7 : 0;
    }
    return *at;
}

static inline void walk_init(struct walk *w, uint64_t seed, unsigned readers,
                             unsigned strict)
{
    *w = (struct walk){.rng = {seed}, .readers = readers, .strict = strict};
    for (unsigned i = 0; i < readers; i++) {
        w->at[i] = 100 + rng_below(&w->rng, 100000);
    }
}

#endif
