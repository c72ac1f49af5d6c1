/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - the server's counters and its latency histogram.
 *
 * All counters on the path of a read are striped: a thread adds to one of several
 * copies, so that threads do not contend for a cache line.  Readers of a counter sum
 * the copies; a sum is exact when no thread is counting.
 *
 * All functions may be called by any thread at any time.
 */
#ifndef QMS_STATS_H
#define QMS_STATS_H

#include <stdatomic.h>
#include <stdint.h>

enum qms_counter {
    QMS_READS, /* read requests */
    QMS_READ_BYTES,
    QMS_WRITES, /* write and zero requests */
    QMS_WRITE_BYTES,
    QMS_PAST,               /* blocks for which the cache had no room: misses */
    QMS_DEVICE_READS,       /* reads of the layer below */
    QMS_AHEAD_READS,        /* of these, prefetches' */
    QMS_DEVICE_BLOCKS,      /* blocks read from there */
    QMS_PREFETCH_FAILED,    /* prefetches that the layer below did not serve */
    QMS_PREFETCH_DROPPED,   /* candidates and prefetches dropped because the queue was
                               full */
    QMS_PREFETCH_THROTTLED, /* candidates not prefetched: the device was busy, or it did
                               not pay */
    QMS_PREFETCH_WATCHED,   /* the same: it was not known yet whether it pays */
    QMS_PREFETCH_CANCELLED, /* prefetches not read: their block had left the cache, or
                               a reader was about to read it */
    QMS_CONTEXTS_BEGUN,
    QMS_IGNORED_ENDS, /* ends of slots in which nothing was open */
    QMS_BAD_RECORDS,  /* control messages refused */
    QMS_NUM_COUNTERS
};

struct qms_stats;

#define QMS_LATENCY_BUCKETS 608

/* Latencies of read requests, in microseconds; sum_ns is exact.  Percentiles are off by
 * at most 1/16. Bucket i of the histogram counts requests that took about
 * qms_stats_bucket_us(i); the difference of two histograms gives the percentiles of the
 * time between. */
struct qms_latency {
    uint64_t count, sum_ns;
    double mean, p50, p90, p99, max;
    uint64_t buckets[QMS_LATENCY_BUCKETS];
};

/* NULL if memory is out. */
struct qms_stats *qms_stats_new(void);
void qms_stats_free(struct qms_stats *stats);

void qms_stats_add(struct qms_stats *stats, enum qms_counter counter, uint64_t n);
uint64_t qms_stats_get(const struct qms_stats *stats, enum qms_counter counter);

/* Records the latency of a read request. */
void qms_stats_took(struct qms_stats *stats, uint64_t ns);
void qms_stats_latency(const struct qms_stats *stats, struct qms_latency *latency);

/* Leaves out of `latency` what `then`, an earlier one, has; max is that of a bucket. */
void qms_stats_latency_since(struct qms_latency *latency,
                             const struct qms_latency *then);

/* The middle of a bucket of the histogram, in microseconds. */
double qms_stats_bucket_us(unsigned bucket);

/* The calling thread's stripe, 0 to QMS_STRIPES - 1: constant for a thread, and spread
 * over threads. */
#define QMS_STRIPES 16
unsigned qms_stripe(void);

/* The monotonic clock, in nanoseconds. */
uint64_t qms_now(void);

#endif
