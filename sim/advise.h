/* SPDX-License-Identifier: BSD-3-Clause */
/* advise.h - what simulations of one trace say: how much memory, which policy, and
 * whether QuickMine pays at all.
 *
 * It judges figures and simulates nothing.  The rules:
 *
 * - The memory advised is the least whose mean latency, by the better of both policies,
 *   is within QM_ADVISE_NEAR of the best of all memories on offer.
 * - The policy is the one that is better there; plain caching if they are equal.  With
 *   figures for other backends (`others`), the one that is less above the better where
 *   it is most above it.
 * - It pays if, at some memory on offer, the default policy's mean latency is by at
 *   least QM_ADVISE_GAIN below that of plain caching with as much memory, and what that
 *   saves is at least QM_ADVISE_WORTH of a read without a cache.
 * - It does not pay if the database hardly waits for the device: on average less than
 *   QM_ADVISE_IDLE of a read is under way even without a cache.
 * - The knee is where more memory begins to bring less: the point of the better
 *   policy's curve that lies farthest below the line between its ends, over the
 *   logarithm of the memory.
 */
#ifndef QM_SIM_ADVISE_H
#define QM_SIM_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_ADVISE_NEAR  0.05
#define QM_ADVISE_GAIN  0.1
#define QM_ADVISE_WORTH 0.02
#define QM_ADVISE_IDLE  0.01
#define QM_ADVISE_CLOSE 0.1 /* policies that differ by less are said to be close */

/* What one simulation came to. */
struct qm_advise_cost {
    const char *eviction;
    double mean_us, p50_us, p99_us; /* of a read request */
    double misses, ahead; /* parts of the blocks read: missed, prefetch hits */
    double device;        /* blocks that the device reads, for each read */
};

struct qm_advise_point {
    uint64_t memory;             /* bytes */
    struct qm_advise_cost plain; /* the best eviction without prefetching */
    struct qm_advise_cost ahead; /* the default policy */
};

/* Mean latencies at the memory that is advised, if the backend is faster or slower. */
struct qm_advise_other {
    double plain_us, ahead_us;
};

struct qm_advise_input {
    const struct qm_advise_point *points; /* ascending memory */
    size_t count;                         /* at least 1 */
    struct qm_advise_cost none;           /* next to no memory, no prefetching */
    const struct qm_advise_other *others; /* at qm_advise_memory() */
    size_t other_count;
    double reads_per_second; /* when it was recorded; 0: not known */
    const char *policy;      /* the default's name */
    const char *level;       /* at which it was simulated */
};

enum qm_verdict {
    QM_PAYS,         /* at the memory advised */
    QM_PAYS_SMALLER, /* with less memory only */
    QM_PLAIN_PAYS,   /* a plain cache does; prefetching does not */
    QM_IDLE,         /* no: the device is hardly read */
    QM_NO_REUSE,     /* no: reads neither repeat nor follow each other */
};

struct qm_advice {
    size_t advised, knee; /* points */
    size_t best_gain;     /* the point where prefetching gains most */
    bool prefetch;        /* policy: the default, else plain caching */
    bool pays;            /* QM_PAYS or QM_PAYS_SMALLER */
    enum qm_verdict verdict;
    bool close;         /* the policies, there and with the others' backends */
    double outstanding; /* mean number of reads under way without a cache; 0: unknown */
    char sentence[768];
};

/* The point that will be advised; others are not looked at. */
size_t qm_advise_memory(const struct qm_advise_input *input);
void qm_advise(const struct qm_advise_input *input, struct qm_advice *advice);

/* "pays", "pays-smaller", "plain-pays", "idle", "no-reuse". */
const char *qm_verdict_name(enum qm_verdict verdict);

/* A part that a cost saves of another: 1 is all, below 0 it costs more. */
double qm_advise_gain(const struct qm_advise_cost *plain,
                      const struct qm_advise_cost *ahead);

/* Memory, like "57.8 MiB", and a time, like "1.25 ms"; returns text. */
const char *qm_advise_size(uint64_t bytes, char text[24]);
const char *qm_advise_time(double us, char text[24]);

#endif
