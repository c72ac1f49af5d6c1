/* SPDX-License-Identifier: BSD-3-Clause */
/* feature.c - see feature.h. */
#include "lsm/feature.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS 16384u /* that are counted; a rarer one leaves for a new one */
#define EACH  16u    /* reads of a thread for each that is counted */
#define NONE  UINT32_MAX

struct pair {
    uint32_t to, from, count;
};

struct follow {
    pthread_mutex_t lock; /* of pairs */
    struct pair pair[PAIRS];
    uint32_t ranges;
    _Atomic uint32_t chosen[]; /* PRECURSORS of each range */
};

struct follow *follow_new(uint32_t ranges)
{
    struct follow *f =
        calloc(1, sizeof *f + (size_t)ranges * PRECURSORS * sizeof *f->chosen);

    if (!f)
        return NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->ranges = ranges;
    for (uint32_t i = 0; i < ranges * PRECURSORS; i++)
        atomic_init(&f->chosen[i], NONE);
    return f;
}

void follow_free(struct follow *f)
{
    if (!f)
        return;
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void count(struct follow *f, uint32_t to, uint32_t from)
{
    uint64_t hash = ((uint64_t)to << 32 | from) * UINT64_C(0x9e3779b97f4a7c15);
    struct pair *rare = NULL;

    for (uint32_t i = 0; i < 4; i++) {
        struct pair *p = &f->pair[((hash >> 40) + i) % PAIRS];
        if (p->count > 0 && p->to == to && p->from == from) {
            p->count += p->count < UINT32_MAX;
            return;
        }
        if (!rare || p->count < rare->count)
            rare = p;
    }
    if (rare->count > 1)
        rare->count--;
    else
        *rare = (struct pair){to, from, 1};
}

void follow_read(struct follow *f, uint32_t range)
{
    static _Thread_local struct {
        const struct follow *of;
        uint32_t last[PRECURSORS], reads;
    } own;

    /* A table in the place of one that is gone: what is wrong leaves with time. */
    if (own.of != f) {
        own.of = f;
        memset(own.last, 0xff, sizeof own.last);
    }
    if (++own.reads % EACH == 0 && pthread_mutex_trylock(&f->lock) == 0) {
        for (uint32_t i = 0; i < PRECURSORS; i++)
            if (own.last[i] != NONE && own.last[i] != range)
                count(f, range, own.last[i]);
        pthread_mutex_unlock(&f->lock);
    }
    if (own.last[0] == range)
        return;
    memmove(own.last + 1, own.last, sizeof own.last - sizeof *own.last);
    own.last[0] = range;
}

static int by_target(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;

    if (p->to != q->to)
        return p->to < q->to ? -1 : 1;
    if (p->count != q->count)
        return p->count > q->count ? -1 : 1;
    return p->from < q->from ? -1 : p->from > q->from;
}

static float get(const float *f)
{
    float value;

    __atomic_load(f, &value, __ATOMIC_RELAXED);
    return value;
}

static bool alike(struct table *t, uint32_t i, uint32_t j)
{
    struct range *a = table_range(t, i), *b = table_range(t, j);
    double product = 0, aa = 0, bb = 0;

    if (!a || !b)
        return false;
    for (int k = 0; k < COLLECTOR_SLOTS; k++) {
        double x = (double)get(&a->slot_reads[k]), y = (double)get(&b->slot_reads[k]);
        product += x * y;
        aa += x * x;
        bb += y * y;
    }
    return aa > 0 && bb > 0 && product > ALIKE * sqrt(aa) * sqrt(bb);
}

void follow_choose(struct follow *f, struct table *t)
{
    struct pair *pairs = malloc(sizeof f->pair);
    uint32_t n = 0, chosen = 0;

    if (!pairs)
        return;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < PAIRS; i++) {
        struct pair *p = &f->pair[i];
        if (p->count > 0 && p->to < f->ranges && p->from < f->ranges)
            pairs[n++] = *p;
    }
    pthread_mutex_unlock(&f->lock);
    qsort(pairs, n, sizeof *pairs, by_target);
    for (uint32_t i = 0; i < n; i++) {
        _Atomic uint32_t *to = &f->chosen[pairs[i].to * PRECURSORS];
        if (i == 0 || pairs[i].to != pairs[i - 1].to)
            chosen = 0;
        if (chosen < PRECURSORS && alike(t, pairs[i].to, pairs[i].from))
            atomic_store(&to[chosen++], pairs[i].from);
        if (i + 1 == n || pairs[i + 1].to != pairs[i].to)
            while (chosen < PRECURSORS)
                atomic_store(&to[chosen++], NONE);
    }
    free(pairs);
}

struct moment features_moment(time_t now)
{
    struct tm tm = {0};

    gmtime_r(&now, &tm);
    return (struct moment){tm.tm_hour, tm.tm_min, tm.tm_sec};
}

void features_of(struct table *t, uint32_t range, const struct moment *moment,
                 double out[FEATURES])
{
    struct range *r = table_range(t, range);

    for (int i = 0; i < COLLECTOR_SLOTS; i++) {
        out[i] = r ? (double)get(&r->slot_reads[i]) : 0;
        out[COLLECTOR_SLOTS + i] = r ? (double)get(&r->slot_writes[i]) : 0;
    }
    out[12] = moment->hour;
    out[13] = moment->minute;
    out[14] = moment->second;
    for (uint32_t i = 0; i < PRECURSORS; i++) {
        uint32_t from =
            t->follow ? atomic_load(&t->follow->chosen[range * PRECURSORS + i]) : NONE;
        struct range *p = from < t->n ? table_range(t, from) : NULL;
        out[15 + i] = p ? (double)get(&p->slot_reads[0]) : 0;
    }
}

double features_hot(const struct trees *trees, uint32_t from, uint32_t steps,
                    struct table *t, uint32_t range, const struct moment *moment)
{
    double row[FEATURES];
    uint32_t n = trees_steps(trees);

    features_of(t, range, moment, row);
    return trees_probability(trees, from < n ? from : n - 1, steps, row);
}
