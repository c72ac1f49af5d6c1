/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-rules.c - C-Miner*'s rules, to be looked up (see cminer-rules.h).
 *
 *   blocks[x]              the block whose number is x
 *   group[x] .. group[x+1] the prefixes that begin with x
 *   second[p]              the second block of prefix p; 0: none, else its number + 1
 *   first[p] .. first[p+1] the suffixes of prefix p, in suffixes[]
 */
#include "mining/baselines/cminer-rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct qm_cminer_rules {
    unsigned keep; /* suffixes of a prefix at most */
    unsigned degree;
    uint64_t *blocks;
    uint32_t distinct;
    uint32_t *group;
    uint32_t groups; /* group[] is filled in for the blocks before this one */
    uint32_t *second, *first, prefixes;
    uint32_t *suffixes, n;
    size_t prefixes_cap, suffixes_cap;
};

struct qm_cminer_rules *qm_cminer_rules_new(const uint64_t *blocks, uint32_t distinct,
                                            unsigned degree)
{
    struct qm_cminer_rules *rules = calloc(1, sizeof *rules);
    if (!rules) {
        return NULL;
    }
    /* One more: a suffix of last[1] may be last[0], which is no candidate. */
    rules->keep = degree + 1;
    rules->degree = degree;
    rules->distinct = distinct;
    rules->blocks = malloc((distinct ? distinct : 1) * sizeof rules->blocks[0]);
    rules->group = malloc(((size_t)distinct + 1) * sizeof rules->group[0]);
    if (!rules->blocks || !rules->group) {
        qm_cminer_rules_free(rules);
        return NULL;
    }
    if (distinct > 0) {
        memcpy(rules->blocks, blocks, distinct * sizeof blocks[0]);
    }
    return rules;
}

void qm_cminer_rules_free(struct qm_cminer_rules *rules)
{
    if (rules) {
        free(rules->blocks);
        free(rules->group);
        free(rules->second);
        free(rules->first);
        free(rules->suffixes);
        free(rules);
    }
}

static int resize(uint32_t **array, size_t cap)
{
    uint32_t *v = reallocarray(*array, cap, sizeof *v);
    if (!v) {
        return ENOMEM;
    }
    *array = v;
    return 0;
}

/* Room for another prefix and n suffixes. */
static int reserve(struct qm_cminer_rules *rules, uint32_t n)
{
    if (rules->prefixes == UINT32_MAX - 1 || n > UINT32_MAX - rules->n) {
        return EFBIG;
    }
    if (rules->prefixes == rules->prefixes_cap) {
        size_t cap = rules->prefixes_cap + rules->prefixes_cap / 2 + 256;
        if (resize(&rules->second, cap) != 0 || resize(&rules->first, cap + 1) != 0) {
            return ENOMEM;
        }
        rules->prefixes_cap = cap;
    }
    if (rules->suffixes_cap - rules->n < n) {
        size_t cap = rules->suffixes_cap + rules->suffixes_cap / 2 + 256;
        if (resize(&rules->suffixes, cap) != 0) {
            return ENOMEM;
        }
        rules->suffixes_cap = cap;
    }
    return 0;
}

/* Whether the prefix a, second comes after all that are there; the groups before a are
 * closed. */
static bool comes_next(struct qm_cminer_rules *rules, uint32_t a, uint32_t second)
{
    if (rules->groups > 0 && a < rules->groups - 1) {
        return false;
    }
    if (rules->groups > 0 && a == rules->groups - 1) {
        return second > rules->second[rules->prefixes - 1];
    }
    while (rules->groups <= a) {
        rules->group[rules->groups++] = rules->prefixes;
    }
    return true;
}

int qm_cminer_rules_add(struct qm_cminer_rules *rules,
                        const struct qm_cminer_prefix *prefix)
{
    uint32_t n = prefix->n < rules->keep ? prefix->n : rules->keep;
    uint32_t second = prefix->b + 1; /* QM_CMINER_NONE: 0 */
    if (prefix->a >= rules->distinct || n == 0 ||
        (second > 0 && prefix->b >= rules->distinct)) {
        return EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (prefix->suffixes[i].c >= rules->distinct) {
            return EINVAL;
        }
    }
    int r = reserve(rules, n);
    if (r != 0) {
        return r;
    }
    if (!comes_next(rules, prefix->a, second)) {
        return EINVAL;
    }
    rules->second[rules->prefixes] = second;
    rules->first[rules->prefixes++] = rules->n;
    for (uint32_t i = 0; i < n; i++) {
        rules->suffixes[rules->n++] = prefix->suffixes[i].c;
    }
    rules->first[rules->prefixes] = rules->n;
    return 0;
}

void qm_cminer_rules_finish(struct qm_cminer_rules *rules)
{
    while (rules->groups <= rules->distinct) {
        rules->group[rules->groups++] = rules->prefixes;
    }
    /* If it cannot be made smaller, it stays as it is. */
    if (rules->prefixes > 0 && resize(&rules->second, rules->prefixes) == 0 &&
        resize(&rules->first, (size_t)rules->prefixes + 1) == 0) {
        rules->prefixes_cap = rules->prefixes;
    }
    if (rules->n > 0 && resize(&rules->suffixes, rules->n) == 0) {
        rules->suffixes_cap = rules->n;
    }
}

/* The number of block, or QM_CMINER_NONE. */
static uint32_t number_of(const struct qm_cminer_rules *rules, uint64_t block)
{
    uint32_t lo = 0, hi = rules->distinct;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (rules->blocks[mid] < block) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < rules->distinct && rules->blocks[lo] == block ? lo : QM_CMINER_NONE;
}

/* The prefix, or rules->prefixes if there is none. */
static uint32_t find(const struct qm_cminer_rules *rules, uint32_t a, uint32_t second)
{
    uint32_t lo = rules->group[a], end = rules->group[a + 1], hi = end;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (rules->second[mid] < second) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < end && rules->second[lo] == second ? lo : rules->prefixes;
}

static bool is_among(const uint64_t *blocks, unsigned n, uint64_t block)
{
    for (unsigned i = 0; i < n; i++) {
        if (blocks[i] == block) {
            return true;
        }
    }
    return false;
}

unsigned qm_cminer_rules_lookup(const struct qm_cminer_rules *rules,
                                const uint64_t last[2], unsigned n, uint64_t *blocks,
                                unsigned max, bool *found)
{
    uint32_t number = number_of(rules, last[1]), prefixes[2];
    uint32_t before = n == 2 ? number_of(rules, last[0]) : QM_CMINER_NONE;
    unsigned filled = 0;
    *found = false;
    if (number == QM_CMINER_NONE) {
        return 0;
    }
    prefixes[0] =
        before == QM_CMINER_NONE ? rules->prefixes : find(rules, before, number + 1);
    prefixes[1] = find(rules, number, 0);
    max = max < rules->degree ? max : rules->degree;
    for (unsigned i = 0; i < 2; i++) {
        uint32_t p = prefixes[i];
        if (p == rules->prefixes) {
            continue;
        }
        *found = true;
        for (uint32_t s = rules->first[p]; s < rules->first[p + 1] && filled < max;
             s++) {
            uint64_t block = rules->blocks[rules->suffixes[s]];
            if (!(n == 2 && block == last[0]) && !is_among(blocks, filled, block)) {
                blocks[filled++] = block;
            }
        }
    }
    return filled;
}

void qm_cminer_rules_size(const struct qm_cminer_rules *rules,
                          struct qm_cminer_rules_size *size)
{
    *size = (struct qm_cminer_rules_size){
        .prefixes = rules->prefixes,
        .rules = rules->n,
        .bytes = sizeof *rules + rules->distinct * sizeof rules->blocks[0] +
                 ((uint64_t)rules->distinct + 1) * sizeof rules->group[0] +
                 rules->prefixes_cap * sizeof rules->second[0] +
                 (rules->prefixes_cap + 1) * sizeof rules->first[0] +
                 rules->suffixes_cap * sizeof rules->suffixes[0],
    };
}
