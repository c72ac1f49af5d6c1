/* SPDX-License-Identifier: BSD-3-Clause */
/* masks.c - see masks.h.
 *
 * A tree's leaves have bits from left to right, so those below a node follow each
 * other.  A word of which no bit remains has not the leaf: its tree has more words, or
 * it is behind the last tree of its group. */
#include "lsm/masks.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BITS  32u    /* leaves of a word */
#define LINE  16u    /* words that are computed at a time: a cache line */
#define GROUP 128u   /* words of a group */
#define ZERO  1e-35f /* LightGBM's kZeroThreshold, which is a float */

/* A feature's bins: up to each bound, which is the last number in it; above all; NaN.
 */
struct cuts {
    double *bounds;
    uint32_t n, first; /* bounds; the number of the first bin */
};

struct group {
    uint32_t words; /* of a row: a multiple of LINE */
    uint32_t used;
    uint8_t feature[MASKS_FEATURES]; /* the `used` ones that its trees test */
    uint32_t *row;  /* of each bin of theirs: where it begins in mask */
    uint32_t *mask; /* rows of words; the first has all leaves that there are */
    double *leaves; /* BITS for each word */
};

struct masks {
    uint32_t features, bins, n; /* groups */
    struct cuts cuts[MASKS_FEATURES];
    double *bounds; /* of all features */
    struct group *groups;
    uint32_t *begin;      /* groups of each model, as its trees in masks_new() */
    uint64_t bytes, work; /* work: words that are changed while it is built */
};

/* As Tree::NumericalDecision() of LightGBM. */
static bool goes_right(const struct node *node, double x)
{
    if (isnan(x) && node->missing == MISSING_NAN)
        return node->default_right;
    x = isnan(x) ? 0 : x;
    if (node->missing == MISSING_ZERO && x >= -ZERO && x <= ZERO)
        return node->default_right;
    return !(x <= node->threshold);
}

/* The numbers up to which the node answers alike; how many. */
static uint32_t bounds_of(const struct node *node, double out[3])
{
    out[0] = node->threshold;
    if (node->missing != MISSING_ZERO)
        return 1;
    out[1] = nextafter(-ZERO, -INFINITY);
    out[2] = ZERO;
    return 3;
}

/* The bounds that are below x; one more than there are for NaN.  Without branches that
 * the processor would have to guess. */
static uint32_t bin_of(const struct cuts *c, double x)
{
    const double *at = c->bounds;
    uint32_t n = c->n;

    while (n > 1) {
        uint32_t half = n / 2;
        at += half & -(uint32_t) !(x <= at[half - 1]);
        n -= half;
    }
    return (uint32_t)(at - c->bounds) + (n == 1 && !(x <= *at)) + (isnan(x) != 0);
}

struct bound {
    double at;
    uint32_t feature;
};

static int by_bound(const void *a, const void *b)
{
    const struct bound *x = a, *y = b;

    if (x->feature != y->feature)
        return x->feature < y->feature ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The bins, from the bounds of all nodes. */
static int find_bins(struct masks *m, const struct tree *trees, uint32_t n)
{
    struct bound *all;
    size_t room = 1, have = 0, i = 0;
    double own[3];

    for (uint32_t k = 0; k < n; k++)
        room += 3 * (trees[k].n - (size_t)1);
    all = malloc(room * sizeof *all);
    if (!all)
        return -1;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < trees[k].n - 1; j++) {
            const struct node *node = &trees[k].nodes[j];
            uint32_t own_n = bounds_of(node, own);
            while (own_n-- > 0)
                all[have++] = (struct bound){own[own_n], node->feature};
        }
    qsort(all, have, sizeof *all, by_bound);
    room = 0;
    m->bounds = malloc((have + 1) * sizeof *m->bounds);
    for (uint32_t f = 0; m->bounds && f < m->features; f++) {
        struct cuts *c = &m->cuts[f];
        c->bounds = m->bounds + room;
        for (; i < have && all[i].feature == f; i++)
            if (c->n == 0 || c->bounds[c->n - 1] < all[i].at)
                c->bounds[c->n++] = all[i].at;
        room += c->n;
        c->first = m->bins;
        m->bins += c->n + 2;
    }
    free(all);
    m->bytes = have * sizeof *m->bounds;
    return m->bounds ? 0 : -1;
}

static uint32_t words_of(const struct tree *t)
{
    return (t->n + BITS - 1) / BITS;
}

/* How many of n trees make a group. */
static uint32_t group_of(const struct tree *trees, uint32_t n)
{
    uint32_t k = 1, words = words_of(trees);

    while (k < n && (words += words_of(&trees[k])) <= GROUP)
        k++;
    return k;
}

/* The lower n bits. */
static uint32_t ones(uint32_t n)
{
    return (uint32_t)((UINT64_C(1) << (n < BITS ? n : BITS)) - 1);
}

/* Sets or clears the bits of a node's leaves. */
static void mark(uint32_t *words, const struct node *node, bool set)
{
    uint32_t from = node->first, to = from + node->leaves;

    for (uint32_t w = from / BITS; w * BITS < to; w++) {
        uint32_t bits = ones(to - w * BITS);
        if (from > w * BITS)
            bits &= ~ones(from - w * BITS);
        words[w] = set ? words[w] | bits : words[w] & ~bits;
    }
}

/* The rows of a group that is being built: row r is of numbers like x[r]; those of
 * feature f are from[f] to to[f]. */
struct rows {
    uint32_t n, from[MASKS_FEATURES], to[MASKS_FEATURES];
    double *x;
    bool *bound; /* which bounds of all features the group's trees have */
};

/* Which row each bin has. */
static void find_rows(const struct masks *m, struct group *g, const struct tree *trees,
                      uint32_t n, struct rows *rows)
{
    bool used[MASKS_FEATURES] = {false};
    double own[3];

    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < trees[k].n - 1; j++) {
            const struct node *node = &trees[k].nodes[j];
            const struct cuts *c = &m->cuts[node->feature];
            uint32_t own_n = bounds_of(node, own);
            while (own_n-- > 0)
                rows->bound[c->first + bin_of(c, own[own_n])] = true;
            used[node->feature] = true;
        }
    rows->n = 1;
    for (uint32_t f = 0; f < m->features; f++) {
        const struct cuts *c = &m->cuts[f];
        if (!used[f])
            continue;
        g->feature[g->used++] = (uint8_t)f;
        rows->from[f] = rows->n;
        for (uint32_t bin = 0; bin < c->n + 2; bin++) {
            if (bin == 0 || bin > c->n || rows->bound[c->first + bin - 1])
                rows->x[rows->n++] = bin < c->n    ? c->bounds[bin]
                                     : bin == c->n ? INFINITY
                                                   : (double)NAN;
            g->row[c->first + bin] = rows->n - 1;
        }
        rows->to[f] = rows->n;
    }
}

static void fill(struct group *g, const struct tree *trees, uint32_t n,
                 const struct rows *rows)
{
    uint32_t word = 0;

    for (uint32_t k = 0; k < n; word += words_of(&trees[k++])) {
        const struct node *nodes = trees[k].nodes;
        mark(g->mask + word, nodes, true);
        for (uint32_t j = trees[k].n - 1; j < 2 * trees[k].n - 1; j++)
            g->leaves[(size_t)word * BITS + nodes[j].first] = nodes[j].threshold;
    }
    for (uint32_t r = 1; r < rows->n; r++)
        memcpy(g->mask + (size_t)r * g->words, g->mask, g->words * sizeof *g->mask);
    word = 0;
    for (uint32_t k = 0; k < n; word += words_of(&trees[k++]))
        for (uint32_t j = 0; j < trees[k].n - 1; j++) {
            const struct node *node = &trees[k].nodes[j];
            for (uint32_t r = rows->from[node->feature]; r < rows->to[node->feature];
                 r++)
                mark(g->mask + (size_t)r * g->words + word,
                     &trees[k].nodes[node->child[!goes_right(node, rows->x[r])]],
                     false);
        }
}

/* How many words fill() changes, at most. */
static uint64_t work_of(const struct tree *trees, uint32_t n, const struct rows *rows)
{
    uint64_t work = 0;

    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < trees[k].n - 1; j++) {
            const struct node *node = &trees[k].nodes[j];
            uint32_t f = node->feature;
            work += (rows->to[f] - rows->from[f]) * (node->leaves / BITS + UINT64_C(1));
        }
    return work;
}

static int build(struct masks *m, struct group *g, const struct tree *trees, uint32_t n)
{
    struct rows rows = {.x = malloc((m->bins + (size_t)1) * sizeof *rows.x),
                        .bound = calloc(m->bins, sizeof *rows.bound)};
    size_t words = 0, size;
    int e = ENOMEM;

    g->row = calloc(m->bins, sizeof *g->row);
    if (!rows.x || !rows.bound || !g->row)
        goto out;
    find_rows(m, g, trees, n, &rows);
    for (uint32_t k = 0; k < n; k++)
        words += words_of(&trees[k]);
    words = (words + LINE - 1) / LINE * LINE;
    g->words = (uint32_t)words;
    size = rows.n * words * sizeof *g->mask;
    m->bytes += size + words * BITS * sizeof *g->leaves + m->bins * sizeof *g->row;
    m->work += work_of(trees, n, &rows);
    e = EFBIG;
    if (m->bytes > MASKS_BYTES || m->work > MASKS_WORK)
        goto out;
    e = ENOMEM;
    g->mask = aligned_alloc(LINE * sizeof *g->mask, size);
    g->leaves = calloc(words, BITS * sizeof *g->leaves);
    if (!g->mask || !g->leaves)
        goto out;
    memset(g->mask, 0, words * sizeof *g->mask);
    fill(g, trees, n, &rows);
    e = 0;
out:
    free(rows.x);
    free(rows.bound);
    return e;
}

static int build_all(struct masks *m, const struct tree *trees, const uint32_t *begin,
                     uint32_t models)
{
    if (find_bins(m, trees, begin[models]) != 0)
        return ENOMEM;
    for (uint32_t i = 0; i < models; i++) {
        for (uint32_t k = begin[i], n; k < begin[i + 1]; k += n) {
            int e;
            n = group_of(&trees[k], begin[i + 1] - k);
            e = build(m, &m->groups[m->n++], &trees[k], n);
            if (e != 0)
                return e;
        }
        m->begin[i + 1] = m->n;
    }
    return 0;
}

struct masks *masks_new(const struct tree *trees, const uint32_t *begin,
                        uint32_t models, uint32_t features)
{
    struct masks *m = calloc(1, sizeof *m);
    int e = ENOMEM;

    if (m) {
        m->features = features;
        m->begin = calloc(models + (size_t)1, sizeof *m->begin);
        m->groups = calloc(begin[models], sizeof *m->groups);
        if (m->begin && m->groups)
            e = build_all(m, trees, begin, models);
    }
    if (e == 0)
        return m;
    masks_free(m);
    errno = e;
    return NULL;
}

void masks_free(struct masks *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->groups[i].row);
        free(m->groups[i].mask);
        free(m->groups[i].leaves);
    }
    free(m->groups);
    free(m->begin);
    free(m->bounds);
    free(m);
}

void masks_bins(const struct masks *m, const double *features,
                uint32_t bins[MASKS_FEATURES])
{
    for (uint32_t f = 0; f < m->features; f++)
        bins[f] = m->cuts[f].first + bin_of(&m->cuts[f], features[f]);
}

/* GCC and clang keep these in registers, and an array of words in memory. */
typedef uint32_t lanes __attribute__((vector_size(16)));

static inline lanes load(const uint32_t *words)
{
    lanes four;

    memcpy(&four, words, sizeof four);
    return four;
}

static double add_leaves(const struct group *g, const uint32_t *bins, double sum)
{
    const uint32_t *row[MASKS_FEATURES];

    for (uint32_t i = 0; i < g->used; i++)
        row[i] = g->mask + (size_t)g->row[bins[g->feature[i]]] * g->words;
    for (size_t w = 0; w < g->words; w += LINE) {
        const double *leaves = g->leaves + w * BITS;
        lanes left[LINE / 4] = {load(g->mask + w), load(g->mask + w + 4),
                                load(g->mask + w + 8), load(g->mask + w + 12)};
        uint32_t words[LINE];
        for (uint32_t i = 0; i < g->used; i++) {
            left[0] &= load(row[i] + w);
            left[1] &= load(row[i] + w + 4);
            left[2] &= load(row[i] + w + 8);
            left[3] &= load(row[i] + w + 12);
        }
        memcpy(words, left, sizeof words);
        for (uint32_t k = 0; k < LINE; k++, leaves += BITS)
            if (words[k])
                sum += leaves[__builtin_ctz(words[k])];
    }
    return sum;
}

double masks_sum(const struct masks *m, uint32_t model,
                 const uint32_t bins[MASKS_FEATURES])
{
    double sum = 0;

    for (uint32_t i = m->begin[model]; i < m->begin[model + 1]; i++)
        sum = add_leaves(&m->groups[i], bins, sum);
    return sum;
}
