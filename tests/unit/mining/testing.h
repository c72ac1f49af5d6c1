/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of mining/ share. */
#ifndef QM_MINING_TESTING_H
#define QM_MINING_TESTING_H

#include <stdio.h>

#include "tests/harness.h"

#include "mining/core/prefetcher.h"
#include "tests/unit/random.h"

/* Reproducible: each test begins with a seed of its own. */
struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    return rnd(&rng->state);
}

static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
    return rng_next(rng) % n;
}

static inline struct qm_prefetcher *
make_quickmine(const struct qm_mining_config *config)
{
    char err[1024];
    struct qm_prefetcher *p = NULL;
    int r = qm_prefetcher_find("quickmine")->create(config, &p, err, sizeof err);
    if (r != 0) {
        fail_msg("create: %s", err);
    }
    assert_string_equal(err, "");
    return p;
}

/* A context reads these blocks and ends; all is learned. */
static inline int read_blocks(struct qm_prefetcher *p, const uint64_t *blocks, size_t n)
{
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    int r = 0;
    assert_non_null(stream);
    for (size_t i = 0; i < n; i++) {
        p->ops->access(p, stream, blocks[i], QM_ACCESS_MISS, &work);
        if (work && r == 0) {
            r = p->ops->learn(p, work);
        } else if (work) {
            p->ops->discard(p, work);
        }
    }
    p->ops->end(p, stream, &work);
    if (work && r == 0) {
        r = p->ops->learn(p, work);
    } else if (work) {
        p->ops->discard(p, work);
    }
    return r;
}

/* The blocks of a stream's candidates, of which there are at most max; there must be
 * place for QM_CANDIDATES_MAX. */
static inline unsigned candidate_blocks(struct qm_prefetcher *p,
                                        struct qm_stream *stream, unsigned max,
                                        uint64_t *blocks)
{
    struct qm_candidate found[QM_CANDIDATES_MAX];
    unsigned n = p->ops->candidates(p, stream, found, max), total = 0;

    assert_true(n <= max);
    for (unsigned i = 0; i < n; i++) {
        assert_true(found[i].count > 0);
        assert_true(found[i].probability <= 1);
        for (unsigned k = 0; k < found[i].count; k++) {
            assert_true(total < QM_CANDIDATES_MAX);
            blocks[total++] = found[i].block + k;
        }
    }
    return total;
}

/* The candidates of a context that has read a and then b. */
static inline unsigned look_up(struct qm_prefetcher *p, uint64_t a, uint64_t b,
                               uint64_t *blocks, unsigned max)
{
    struct qm_work *work;
    struct qm_stream *stream = p->ops->begin(p, 0);
    assert_non_null(stream);
    p->ops->access(p, stream, a, QM_ACCESS_MISS, &work);
    assert_null(work);
    p->ops->access(p, stream, b, QM_ACCESS_MISS, &work);
    assert_null(work);
    uint64_t found[QM_CANDIDATES_MAX];
    unsigned n = candidate_blocks(p, stream, max, found);

    memcpy(blocks, found, n * sizeof found[0]);
    p->ops->end(p, stream, &work);
    assert_null(work);
    return n;
}

struct rule_list {
    struct qm_rule *v;
    size_t n, cap;
};

static inline int collect_rule(void *opaque, const struct qm_rule *rule)
{
    struct rule_list *list = opaque;
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 64;
        list->v = realloc(list->v, list->cap * sizeof *list->v);
        assert_non_null(list->v);
    }
    list->v[list->n++] = *rule;
    return 0;
}

/* All rules; freed with free(list.v). */
static inline struct rule_list all_rules(struct qm_prefetcher *p)
{
    struct rule_list list = {0};
    assert_int_equal(p->ops->rules(p, collect_rule, &list), 0);
    return list;
}

static inline struct qm_mining_stats stats_of(struct qm_prefetcher *p)
{
    struct qm_mining_stats stats;
    p->ops->stats(p, &stats);
    return stats;
}

#endif
