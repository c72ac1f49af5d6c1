/* SPDX-License-Identifier: BSD-3-Clause */
/* histogram.c - a distribution of numbers, in little memory.
 *
 * A number below 64 has a bucket of its own.  Above, with its highest bit at position
 * e >= 6, it is in row e - 5, at the column that the six bits after the highest one
 * give.
 */
#include "plugins/device/histogram.h"

#define BITS    QM_HISTOGRAM_BITS
#define COLUMNS (UINT64_C(1) << BITS)

static unsigned bucket(uint64_t value)
{
    unsigned shift;

    if (value < COLUMNS)
        return (unsigned)value;
    shift = 63 - (unsigned)__builtin_clzll(value) - BITS;
    return (unsigned)((((uint64_t)shift + 1) << BITS) + (value >> shift) - COLUMNS);
}

/* The largest number in bucket i. */
static uint64_t bucket_end(unsigned i)
{
    unsigned row = i >> BITS;

    if (row == 0)
        return i;
    /* In two shifts: the last bucket's end is 2^64 - 1. */
    return (((i & (COLUMNS - 1)) + COLUMNS) << (row - 1)) +
           ((UINT64_C(1) << (row - 1)) - 1);
}

void qm_histogram_add(struct qm_histogram *h, uint64_t value)
{
    h->count++;
    h->sum += (double)value;
    if (value > h->max)
        h->max = value;
    h->counts[bucket(value)]++;
}

void qm_histogram_merge(struct qm_histogram *into, const struct qm_histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    if (from->max > into->max)
        into->max = from->max;
    for (unsigned i = 0; i < QM_HISTOGRAM_SIZE; i++)
        into->counts[i] += from->counts[i];
}

double qm_histogram_mean(const struct qm_histogram *h)
{
    return h->count ? h->sum / (double)h->count : 0;
}

uint64_t qm_histogram_percentile(const struct qm_histogram *h, double percent)
{
    double want = percent / 100 * (double)h->count;
    uint64_t seen = 0;

    for (unsigned i = 0; i < QM_HISTOGRAM_SIZE; i++) {
        seen += h->counts[i];
        if (seen > 0 && (double)seen >= want)
            return bucket_end(i) < h->max ? bucket_end(i) : h->max;
    }
    return h->max;
}
