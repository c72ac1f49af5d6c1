/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-model.h - C-Miner* as the papers tell it, slowly: every sequence in every
 * segment; of the frequent ones those that are closed; and from these alone the rules.
 *
 * Blocks are numbers from 1 to 15, so that a sequence is a number of as many
 * hexadecimal digits.  A block may be in a sequence twice here; of rules such are left
 * out.
 */
#ifndef QM_CMINER_MODEL_H
#define QM_CMINER_MODEL_H

#include "cminer-testing.h"

enum { MODEL_SEGMENT = 16, MODEL_SEGMENTS = 12 };

struct cminer_segments {
    unsigned blocks[MODEL_SEGMENTS][MODEL_SEGMENT];
    unsigned len[MODEL_SEGMENTS];
    unsigned n;
};

struct cminer_sequence {
    uint64_t blocks; /* its first in the highest digit */
    unsigned support;
    bool closed;
};

struct cminer_sequences {
    struct cminer_sequence *v;
    size_t n, cap;
};

static inline int model_by_blocks(const void *x, const void *y)
{
    const struct cminer_sequence *s = x, *t = y;
    return s->blocks < t->blocks ? -1 : s->blocks > t->blocks;
}

static inline void model_append(struct cminer_sequences *list, uint64_t blocks,
                                unsigned support)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 1024;
        list->v = realloc(list->v, list->cap * sizeof *list->v);
        assert_non_null(list->v);
    }
    list->v[list->n++] = (struct cminer_sequence){.blocks = blocks, .support = support};
}

/* Sorts, and makes one of equal ones: with the sum of the supports, or the support. */
static inline void model_merge(struct cminer_sequences *list, bool sum)
{
    size_t n = 0;
    if (list->n == 0) {
        return;
    }
    qsort(list->v, list->n, sizeof list->v[0], model_by_blocks);
    for (size_t i = 1; i < list->n; i++) {
        if (list->v[i].blocks == list->v[n].blocks) {
            list->v[n].support += sum ? list->v[i].support : 0;
        } else {
            list->v[++n] = list->v[i];
        }
    }
    list->n = n + 1;
}

/* All sequences that begin with prefix, and go on with blocks from at on, before end.
 */
static inline void model_extend(struct cminer_sequences *list, const unsigned *segment,
                                unsigned at, unsigned end, uint64_t prefix)
{
    for (unsigned i = at; i < end; i++) {
        uint64_t longer = prefix << 4 | segment[i];
        model_append(list, longer, 1);
        model_extend(list, segment, i + 1, end, longer);
    }
}

/* Whether s can be had from t by leaving out blocks. */
static inline bool model_contains(uint64_t t, uint64_t s)
{
    while (t != 0 && s != 0) {
        if ((t & 15) == (s & 15)) {
            s >>= 4;
        }
        t >>= 4;
    }
    return s == 0;
}

static inline struct cminer_sequences model_closed(const struct cminer_segments *db,
                                                   unsigned gap, unsigned min_support)
{
    struct cminer_sequences all = {0}, closed = {0};
    for (unsigned s = 0; s < db->n; s++) {
        struct cminer_sequences here = {0};
        for (unsigned i = 0; i < db->len[s]; i++) {
            unsigned end = i + gap < db->len[s] ? i + gap : db->len[s];
            model_append(&here, db->blocks[s][i], 1);
            model_extend(&here, db->blocks[s], i + 1, end, db->blocks[s][i]);
        }
        model_merge(&here, false);
        for (size_t i = 0; i < here.n; i++) {
            model_append(&all, here.v[i].blocks, 1);
        }
        free(here.v);
    }
    model_merge(&all, true);
    for (size_t i = 0; i < all.n; i++) {
        bool is_closed = all.v[i].support >= min_support;
        for (size_t j = 0; j < all.n && is_closed; j++) {
            is_closed = i == j || all.v[j].support != all.v[i].support ||
                        !model_contains(all.v[j].blocks, all.v[i].blocks);
        }
        if (is_closed) {
            model_append(&closed, all.v[i].blocks, all.v[i].support);
        }
    }
    free(all.v);
    return closed;
}

/* The support of a frequent sequence, as the closed ones know it. */
static inline unsigned model_support(const struct cminer_sequences *closed,
                                     uint64_t sequence)
{
    unsigned support = 0;
    for (size_t i = 0; i < closed->n; i++) {
        if (closed->v[i].support > support &&
            model_contains(closed->v[i].blocks, sequence)) {
            support = closed->v[i].support;
        }
    }
    return support;
}

/* All subsequences of what is left of a sequence that have 2 or 3 different blocks. */
static inline void model_parts(struct cminer_sequences *parts, uint64_t left,
                               uint64_t part, unsigned n)
{
    if (n == 2 || n == 3) {
        model_append(parts, part, 0);
    }
    for (; left != 0 && n < 3; left >>= 4) {
        uint64_t block = left & 15;
        if (block != (part & 15) && block != (part >> 4 & 15)) {
            /* It is read from the end, so what is added comes first. */
            model_parts(parts, left >> 4, block << 4 * n | part, n + 1);
        }
    }
}

/* The rules of the closed sequences; block_of says which block a digit stands for. */
static inline struct cminer_rules model_cminer(const struct cminer_segments *db,
                                               const struct qm_cminer_config *config,
                                               uint64_t (*block_of)(unsigned digit))
{
    struct cminer_sequences closed =
        model_closed(db, config->max_gap, config->min_support);
    struct cminer_sequences parts = {0};
    struct cminer_rules rules = {0};
    for (size_t i = 0; i < closed.n; i++) {
        model_parts(&parts, closed.v[i].blocks, 0, 0);
    }
    model_merge(&parts, false);
    for (size_t i = 0; i < parts.n; i++) {
        uint64_t s = parts.v[i].blocks;
        unsigned support = model_support(&closed, s),
                 of = model_support(&closed, s >> 4);
        if (100.0 * support / of < config->min_confidence) {
            continue;
        }
        bool two = s >> 8 != 0;
        cminer_append(&rules,
                      (struct cminer_rule){.n = two ? 2 : 1,
                                           .a = block_of(s >> (two ? 8 : 4) & 15),
                                           .b = two ? block_of(s >> 4 & 15) : 0,
                                           .c = block_of(s & 15),
                                           .support = support,
                                           .of = of});
    }
    if (rules.n > 0) {
        qsort(rules.v, rules.n, sizeof rules.v[0], cminer_order);
    }
    free(parts.v);
    free(closed.v);
    return rules;
}

#endif
