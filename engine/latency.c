/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.c - see latency.h. */
#include "engine/latency.h"

#define KEEP 0.993 /* of the sums, a read: halved in 99 reads */

/* Sizes whose variance is below this part of their squared mean are alike. */
#define ALIKE 0.01

void qm_latency_init(struct qm_latency *l)
{
    for (unsigned i = 0; i < QM_PLACES; i++) {
        struct qm_latency_place *s = &l->places[i];

        pthread_mutex_init(&s->lock, NULL);
        s->n = s->x = s->y = s->xx = s->xy = 0;
        atomic_init(&s->begin_ns, 0);
        atomic_init(&s->byte_ns, 0);
        atomic_init(&s->reads, 0);
    }
}

void qm_latency_destroy(struct qm_latency *l)
{
    for (unsigned i = 0; i < QM_PLACES; i++)
        pthread_mutex_destroy(&l->places[i].lock);
}

/* Solves for a line; neither part is below 0. */
static void solve(struct qm_latency_place *s)
{
    const double x = s->x / s->n, y = s->y / s->n;
    const double variance = s->xx / s->n - x * x;
    double slope = 0, begin;

    if (variance > ALIKE * x * x)
        slope = (s->xy / s->n - x * y) / variance;
    if (slope < 0)
        slope = 0;
    begin = y - slope * x;
    if (begin < 0) { /* through the origin, then */
        begin = 0;
        slope = y / x;
    }
    atomic_store_explicit(&s->begin_ns, (float)begin, memory_order_relaxed);
    atomic_store_explicit(&s->byte_ns, (float)slope, memory_order_relaxed);
}

void qm_latency_took(struct qm_latency *l, enum qm_place place, uint64_t bytes,
                     uint64_t ns)
{
    struct qm_latency_place *s = &l->places[place];
    const double x = (double)bytes, y = (double)ns;

    if (pthread_mutex_trylock(&s->lock) != 0)
        return;
    s->n = s->n * KEEP + 1;
    s->x = s->x * KEEP + x;
    s->y = s->y * KEEP + y;
    s->xx = s->xx * KEEP + x * x;
    s->xy = s->xy * KEEP + x * y;
    solve(s);
    if (atomic_load_explicit(&s->reads, memory_order_relaxed) < QM_LATENCY_LEAST)
        atomic_fetch_add_explicit(&s->reads, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
}

bool qm_latency_get(struct qm_latency *l, enum qm_place place, double *begin_ns,
                    double *byte_ns)
{
    struct qm_latency_place *s = &l->places[place];

    if (atomic_load_explicit(&s->reads, memory_order_relaxed) < QM_LATENCY_LEAST)
        return false;
    *begin_ns = atomic_load_explicit(&s->begin_ns, memory_order_relaxed);
    *byte_ns = atomic_load_explicit(&s->byte_ns, memory_order_relaxed);
    return true;
}

/* How many blocks that are not wanted may lie between two that are. */
static double bridge(struct qm_latency *l, enum qm_place place, uint32_t block_size)
{
    double begin_ns, byte_ns;

    if (!qm_latency_get(l, place, &begin_ns, &byte_ns) || byte_ns <= 0)
        return 0;
    return begin_ns / 2 / (byte_ns * block_size);
}

unsigned qm_latency_run(struct qm_latency *l, enum qm_place place, uint32_t block_size,
                        unsigned max, bool (*wanted)(const void *blocks, unsigned i),
                        const void *blocks)
{
    double most = -1; /* between two; not asked for yet */
    unsigned n = 1;

    for (unsigned i = 1; i < max; i++) {
        if (!wanted(blocks, i))
            continue;
        if (i > n && most < 0)
            most = bridge(l, place, block_size);
        if (i > n && i - n > most)
            break;
        n = i + 1;
    }
    return n;
}
