/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - striped counters and a log-linear histogram.
 *
 * The histogram has, for each power of two of nanoseconds, 16 buckets of equal width,
 * so a bucket is never wider than 1/16 of the values in it; below 16 ns each value has
 * one of its own.  Values beyond the last bucket (18 minutes) count in it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/stats.h"

#define SUB_BITS    4
#define SUB_BUCKETS (1u << SUB_BITS)
#define MAX_BITS    40
#define BUCKETS     ((MAX_BITS - SUB_BITS + 2) * SUB_BUCKETS)

_Static_assert(BUCKETS == QMS_LATENCY_BUCKETS, "the header says how many");

struct stripe {
    _Alignas(64) _Atomic uint64_t counters[QMS_NUM_COUNTERS];
    _Atomic uint64_t ns, max_ns;
    _Atomic uint64_t buckets[BUCKETS];
};

struct qms_stats {
    struct stripe stripes[QMS_STRIPES];
};

unsigned qms_stripe(void)
{
    static _Atomic unsigned threads;
    static _Thread_local
        __attribute__((tls_model("initial-exec"))) unsigned mine; /* + 1; 0: none yet */

    if (mine == 0)
        mine =
            atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % QMS_STRIPES +
            1;
    return mine - 1;
}

uint64_t qms_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

struct qms_stats *qms_stats_new(void)
{
    struct qms_stats *stats = aligned_alloc(_Alignof(struct stripe), sizeof *stats);

    if (stats)
        memset(stats, 0, sizeof *stats);
    return stats;
}

void qms_stats_free(struct qms_stats *stats)
{
    free(stats);
}

void qms_stats_add(struct qms_stats *stats, enum qms_counter counter, uint64_t n)
{
    atomic_fetch_add_explicit(&stats->stripes[qms_stripe()].counters[counter], n,
                              memory_order_relaxed);
}

uint64_t qms_stats_get(const struct qms_stats *stats, enum qms_counter counter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < QMS_STRIPES; i++)
        sum += atomic_load_explicit(&stats->stripes[i].counters[counter],
                                    memory_order_relaxed);
    return sum;
}

static unsigned bucket_of(uint64_t ns)
{
    unsigned exponent;

    if (ns < SUB_BUCKETS)
        return ns;
    exponent = 63 - __builtin_clzll(ns);
    if (exponent > MAX_BITS)
        return BUCKETS - 1;
    return (exponent - SUB_BITS + 1) * SUB_BUCKETS +
           (unsigned)((ns >> (exponent - SUB_BITS)) & (SUB_BUCKETS - 1));
}

double qms_stats_bucket_us(unsigned bucket)
{
    unsigned octave = bucket / SUB_BUCKETS;
    double width, low;

    if (octave == 0)
        return bucket / 1000.0;
    width = (double)(UINT64_C(1) << (octave - 1));
    low = width * (SUB_BUCKETS + bucket % SUB_BUCKETS);
    return (low + (width - 1) / 2) / 1000;
}

void qms_stats_took(struct qms_stats *stats, uint64_t ns)
{
    struct stripe *s = &stats->stripes[qms_stripe()];
    uint64_t max = atomic_load_explicit(&s->max_ns, memory_order_relaxed);

    atomic_fetch_add_explicit(&s->ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->buckets[bucket_of(ns)], 1, memory_order_relaxed);
    while (ns > max && !atomic_compare_exchange_weak_explicit(&s->max_ns, &max, ns,
                                                              memory_order_relaxed,
                                                              memory_order_relaxed))
        ;
}

/* The value that a share of the measurements do not exceed. */
static double percentile(const uint64_t *buckets, uint64_t count, double share)
{
    uint64_t rank = (uint64_t)(share * (double)count), seen = 0;

    if (rank >= count)
        rank = count - 1;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += buckets[i];
        if (seen > rank)
            return qms_stats_bucket_us(i);
    }
    return 0;
}

void qms_stats_latency(const struct qms_stats *stats, struct qms_latency *latency)
{
    uint64_t *buckets = latency->buckets, max = 0, n;

    memset(latency, 0, sizeof *latency);
    for (unsigned i = 0; i < QMS_STRIPES; i++) {
        const struct stripe *s = &stats->stripes[i];

        latency->sum_ns += atomic_load_explicit(&s->ns, memory_order_relaxed);
        n = atomic_load_explicit(&s->max_ns, memory_order_relaxed);
        if (n > max)
            max = n;
        for (unsigned j = 0; j < BUCKETS; j++) {
            n = atomic_load_explicit(&s->buckets[j], memory_order_relaxed);
            buckets[j] += n;
            latency->count += n;
        }
    }
    if (latency->count == 0)
        return;
    latency->mean = (double)latency->sum_ns / 1000 / (double)latency->count;
    latency->max = (double)max / 1000;
    latency->p50 = percentile(buckets, latency->count, 0.50);
    latency->p90 = percentile(buckets, latency->count, 0.90);
    latency->p99 = percentile(buckets, latency->count, 0.99);
}

void qms_stats_latency_since(struct qms_latency *latency,
                             const struct qms_latency *then)
{
    latency->sum_ns -= then->sum_ns;
    latency->count = 0;
    latency->max = latency->mean = latency->p50 = latency->p90 = latency->p99 = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        latency->buckets[i] -= then->buckets[i];
        latency->count += latency->buckets[i];
        if (latency->buckets[i] > 0)
            latency->max = qms_stats_bucket_us(i);
    }
    if (latency->count == 0)
        return;
    latency->mean = (double)latency->sum_ns / 1000 / (double)latency->count;
    latency->p50 = percentile(latency->buckets, latency->count, 0.50);
    latency->p90 = percentile(latency->buckets, latency->count, 0.90);
    latency->p99 = percentile(latency->buckets, latency->count, 0.99);
}
