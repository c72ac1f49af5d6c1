/* SPDX-License-Identifier: BSD-3-Clause */
/* suffixes.c - what may follow a prefix (see suffixes.h). */
#include "mining/quickmine/suffixes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int qm_suffixes_reserve(struct qm_suffixes *list, size_t n)
{
    if (n <= list->cap) {
        return 0;
    }
    size_t cap = list->cap ? list->cap : 16;
    while (cap < n) {
        if (cap > SIZE_MAX / 2 / sizeof *list->v) {
            return ENOMEM;
        }
        cap *= 2;
    }
    struct qm_suffix *v = realloc(list->v, cap * sizeof *v);
    if (!v) {
        return ENOMEM;
    }
    list->v = v;
    list->cap = cap;
    return 0;
}

static bool before(const struct qm_suffix *x, const struct qm_suffix *y)
{
    return x->support > y->support || (x->support == y->support && x->block < y->block);
}

static size_t find(const struct qm_suffixes *list, uint64_t block)
{
    size_t i = 0;
    while (i < list->n && list->v[i].block != block) {
        i++;
    }
    return i;
}

/* The last one that is not safe, or simply the last. */
static size_t victim(const struct qm_suffixes *list)
{
    for (size_t i = list->n; i > 0; i--) {
        if (list->v[i - 1].grace == 0) {
            return i - 1;
        }
    }
    return list->n - 1;
}

/* Puts list->v[at] where it belongs, which is not behind at. */
static void advance(struct qm_suffixes *list, size_t at)
{
    struct qm_suffix moving = list->v[at];
    size_t to = at;
    while (to > 0 && before(&moving, &list->v[to - 1])) {
        to--;
    }
    memmove(&list->v[to + 1], &list->v[to], (at - to) * sizeof moving);
    list->v[to] = moving;
}

int qm_suffixes_add(struct qm_suffixes *list, uint64_t block, unsigned max,
                    unsigned grace)
{
    size_t at = find(list, block);
    bool is_new = at == list->n;
    if (is_new) {
        int r = qm_suffixes_reserve(list, list->n + 1);
        if (r != 0) {
            return r;
        }
        while (max > 0 && list->n >= max) {
            size_t v = victim(list);
            memmove(&list->v[v], &list->v[v + 1],
                    (list->n - v - 1) * sizeof list->v[0]);
            list->n--;
        }
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->v[i].grace > 0) {
            list->v[i].grace--;
        }
    }
    if (is_new) {
        at = list->n++;
        list->v[at] = (struct qm_suffix){
            .block = block, .support = 1, .grace = max > 0 ? grace : 0};
    } else if (list->v[at].support < UINT64_MAX) {
        list->v[at].support++;
    }
    advance(list, at);
    return 0;
}
