/* SPDX-License-Identifier: BSD-3-Clause */
/* histogram.h - a distribution of numbers, in little memory.
 *
 * Log-linear: a power of two is split into 64 ranges of equal width, so that a number
 * is known to within 1.6 %; numbers below 64 are exact.  Adding takes no division and
 * no memory; two histograms can be added up.
 */
#ifndef QM_DEVICE_HISTOGRAM_H
#define QM_DEVICE_HISTOGRAM_H

#include <stdint.h>

enum { QM_HISTOGRAM_BITS = 6, QM_HISTOGRAM_SIZE = (64 - 6 + 1) << 6 };

/* All zeros is an empty one. */
struct qm_histogram {
    uint64_t count, max;
    double sum;
    uint64_t counts[QM_HISTOGRAM_SIZE];
};

void qm_histogram_add(struct qm_histogram *h, uint64_t value);
void qm_histogram_merge(struct qm_histogram *into, const struct qm_histogram *from);
double qm_histogram_mean(const struct qm_histogram *h); /* 0 if empty */

/* The smallest number that at least percent of those added do not exceed, rounded up to
 * the end of its range, and at most the maximum; 0 if empty.  percent: 0 to 100. */
uint64_t qm_histogram_percentile(const struct qm_histogram *h, double percent);

#endif
