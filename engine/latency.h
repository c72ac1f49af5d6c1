/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.h - how long reads of the layer below take, by their size.
 *
 * A read of n bytes takes about a + b * n: a until it begins (the way there, a seek),
 * and b for each byte.  Both are found by least squares over the reads of late, where a
 * read counts half as much when about a hundred others have come.  What they were read
 * under is what is measured: a device that many readers share has a larger a.
 *
 * It is for readahead: the bytes that are transferred in the time a, a / b, are where
 * half the time of a read is of use.  And for requests that are cached in part: to read
 * a few cached blocks with their neighbours takes less time than to read twice.
 *
 * One of these is kept for each place where blocks lie (enum qm_place).  Any thread
 * may call any of these.  A reader of the result may see it while it is renewed, and
 * then gets a value of before or after.
 */
#ifndef QM_ENGINE_LATENCY_H
#define QM_ENGINE_LATENCY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

struct qm_latency {
    struct qm_latency_place {
        pthread_mutex_t lock; /* a leaf, of the sums */
        double n, x, y, xx, xy;
        _Atomic float begin_ns, byte_ns;
        _Atomic unsigned reads; /* up to QM_LATENCY_LEAST */
    } places[QM_PLACES];
};

/* Reads from which on there is a result. */
enum { QM_LATENCY_LEAST = 8 };

void qm_latency_init(struct qm_latency *latency);
void qm_latency_destroy(struct qm_latency *latency);

/* A read of `bytes` bytes (at least 1) has taken ns.  Waits for no one: of two at the
 * same moment one is not counted. */
void qm_latency_took(struct qm_latency *latency, enum qm_place place, uint64_t bytes,
                     uint64_t ns);

/* Fills in both parts, in nanoseconds; 0 for b: the reads were too much alike to tell.
 * False: there were too few reads. */
bool qm_latency_get(struct qm_latency *latency, enum qm_place place, double *begin_ns,
                    double *byte_ns);

/* Of at most max adjacent blocks, of which the first is wanted, and the i-th behind it
 * if wanted(blocks, i): how many to read by one call.  The last is wanted, too.  Blocks
 * between that are not wanted are read with the others where that takes less than half
 * of the time in which a read begins; half, as the device may have others to serve.
 * Where that time is not known, only adjacent ones that are wanted. */
unsigned qm_latency_run(struct qm_latency *latency, enum qm_place place,
                        uint32_t block_size, unsigned max,
                        bool (*wanted)(const void *blocks, unsigned i),
                        const void *blocks);

#endif
