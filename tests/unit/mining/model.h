/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - a slow model of the rule cache: the definitions, written down as they are.
 */
#ifndef QM_MINING_MODEL_H
#define QM_MINING_MODEL_H

#include "testing.h"

struct model_suffix {
    uint64_t block, support;
    uint64_t born; /* the prefix's updates when it entered, itself included */
};

struct model_prefix {
    uint64_t a, b;
    uint64_t updates;
    uint64_t used; /* when */
    struct model_suffix *suffixes;
    size_t n;
};

struct model {
    uint64_t max_prefix;
    unsigned max_suffix, grace;
    uint64_t now;
    struct model_prefix *prefixes;
    size_t n;
};

static inline void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->prefixes[i].suffixes);
    }
    free(m->prefixes);
}

static inline struct model_prefix *model_find(struct model *m, uint64_t a, uint64_t b)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->prefixes[i].a == a && m->prefixes[i].b == b) {
            return &m->prefixes[i];
        }
    }
    return NULL;
}

static inline void model_evict(struct model *m)
{
    size_t oldest = 0;
    for (size_t i = 1; i < m->n; i++) {
        if (m->prefixes[i].used < m->prefixes[oldest].used) {
            oldest = i;
        }
    }
    free(m->prefixes[oldest].suffixes);
    m->prefixes[oldest] = m->prefixes[--m->n];
}

/* Of those out of their grace period (if there are any) the one with the least support,
 * of equals the one with the higher number. */
static inline size_t model_victim(const struct model *m, const struct model_prefix *p)
{
    size_t victim = p->n;
    for (int respect = 1; victim == p->n; respect--) {
        for (size_t i = 0; i < p->n; i++) {
            const struct model_suffix *s = &p->suffixes[i], *v = &p->suffixes[victim];
            if (respect && p->updates - s->born < m->grace) {
                continue;
            }
            if (victim == p->n || s->support < v->support ||
                (s->support == v->support && s->block > v->block)) {
                victim = i;
            }
        }
    }
    return victim;
}

/* One update: a & b -> c was seen. */
static inline void model_add(struct model *m, uint64_t a, uint64_t b, uint64_t c)
{
    struct model_prefix *p = model_find(m, a, b);
    if (!p) {
        while (m->max_prefix > 0 && m->n >= m->max_prefix) {
            model_evict(m);
        }
        m->prefixes = realloc(m->prefixes, (m->n + 1) * sizeof *m->prefixes);
        assert_non_null(m->prefixes);
        p = &m->prefixes[m->n++];
        *p = (struct model_prefix){.a = a, .b = b};
    }
    p->used = ++m->now;
    for (size_t i = 0; i < p->n; i++) {
        if (p->suffixes[i].block == c) {
            p->suffixes[i].support++;
            p->updates++;
            return;
        }
    }
    if (m->max_suffix > 0 && p->n >= m->max_suffix) {
        p->suffixes[model_victim(m, p)] = p->suffixes[p->n - 1];
        p->n--;
    }
    p->updates++;
    p->suffixes = realloc(p->suffixes, (p->n + 1) * sizeof *p->suffixes);
    assert_non_null(p->suffixes);
    p->suffixes[p->n++] =
        (struct model_suffix){.block = c, .support = 1, .born = p->updates};
}

/* Learns a whole sequence: all i < j < k within the lookahead.  Immediate repeats count
 * once, as they were first.  hit (NULL: none was): which blocks were hits; of three
 * hits nothing is learned. */
static inline void model_learn_missed(struct model *m, const uint64_t *blocks,
                                      const bool *hit, size_t n, unsigned lookahead)
{
    uint64_t *s = calloc(n + 1, sizeof *s);
    bool *missed = calloc(n + 1, sizeof *missed);
    size_t len = 0;
    assert_non_null(s);
    assert_non_null(missed);
    for (size_t i = 0; i < n; i++) {
        if (len == 0 || s[len - 1] != blocks[i]) {
            missed[len] = !hit || !hit[i];
            s[len++] = blocks[i];
        }
    }
    for (size_t i = 0; i < len; i++) {
        for (size_t j = i + 1; j < len && j - i < lookahead; j++) {
            for (size_t k = j + 1; k < len && k - i < lookahead; k++) {
                bool near = false; /* a miss at k, or before it within a rule's reach */
                for (size_t l = k < lookahead ? 0 : k - (lookahead - 1); l <= k; l++) {
                    near = near || missed[l];
                }
                if (near && s[i] != s[j] && s[k] != s[i] && s[k] != s[j]) {
                    model_add(m, s[i], s[j], s[k]);
                }
            }
        }
    }
    free(missed);
    free(s);
}

static inline void model_learn(struct model *m, const uint64_t *blocks, size_t n,
                               unsigned lookahead)
{
    model_learn_missed(m, blocks, NULL, n, lookahead);
}

static inline int by_likelihood(const void *x, const void *y)
{
    const struct model_suffix *s = x, *t = y;
    if (s->support != t->support) {
        return s->support > t->support ? -1 : 1;
    }
    return s->block < t->block ? -1 : s->block > t->block;
}

static inline unsigned model_look_up(struct model *m, uint64_t a, uint64_t b,
                                     uint64_t *blocks, unsigned max)
{
    struct model_prefix *p = model_find(m, a, b);
    if (!p) {
        return 0;
    }
    p->used = ++m->now;
    qsort(p->suffixes, p->n, sizeof p->suffixes[0], by_likelihood);
    unsigned n = 0;
    for (; n < max && n < p->n; n++) {
        blocks[n] = p->suffixes[n].block;
    }
    return n;
}

static inline int by_rule(const void *x, const void *y)
{
    const struct qm_rule *r = x, *s = y;
    if (r->a != s->a) {
        return r->a < s->a ? -1 : 1;
    }
    if (r->b != s->b) {
        return r->b < s->b ? -1 : 1;
    }
    return r->c < s->c ? -1 : r->c > s->c;
}

static inline struct rule_list model_rules(const struct model *m)
{
    struct rule_list list = {0};
    for (size_t i = 0; i < m->n; i++) {
        const struct model_prefix *p = &m->prefixes[i];
        for (size_t j = 0; j < p->n; j++) {
            struct qm_rule rule = {p->a, p->b, p->suffixes[j].block,
                                   p->suffixes[j].support};
            collect_rule(&list, &rule);
        }
    }
    if (list.n > 0) {
        qsort(list.v, list.n, sizeof list.v[0], by_rule);
    }
    return list;
}

static inline void assert_same_rules(struct qm_prefetcher *p, const struct model *m)
{
    struct rule_list is = all_rules(p), should = model_rules(m);
    for (size_t i = 0; i < is.n && i < should.n; i++) {
        const struct qm_rule *x = &is.v[i], *y = &should.v[i];
        if (memcmp(x, y, sizeof *x) != 0) {
            fail_msg("rule %zu is %llu & %llu -> %llu: %llu, should be %llu & %llu -> "
                     "%llu: %llu",
                     i, (unsigned long long)x->a, (unsigned long long)x->b,
                     (unsigned long long)x->c, (unsigned long long)x->support,
                     (unsigned long long)y->a, (unsigned long long)y->b,
                     (unsigned long long)y->c, (unsigned long long)y->support);
        }
    }
    assert_int_equal(is.n, should.n);
    struct qm_mining_stats stats = stats_of(p);
    assert_int_equal(stats.rules, is.n);
    assert_int_equal(stats.prefixes, m->n);
    free(is.v);
    free(should.v);
}

#endif
