/* SPDX-License-Identifier: BSD-3-Clause */
/* ahead.h - prefetches that wait to be read, and which are read next.
 *
 * A prefetch has entered the cache before it is queued here.  A reading thread takes a
 * run: the job whose turn it is (fair.h) and the jobs of the blocks that follow it on
 * the device, so that one read serves them all; each counts for its client.  A demand
 * whose block's prefetch still waits takes it over, by qm_ahead_take(), and reads it
 * itself.
 *
 * Nothing here locks or reads: the server has threads around it, the simulator a clock
 * of its own.
 */
#ifndef QM_ENGINE_AHEAD_H
#define QM_ENGINE_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/fair.h"

enum {
    QM_AHEAD_UNIT = 16,      /* adjacent blocks that count as one in the limit */
    QM_AHEAD_JOIN_MAX = 64,  /* blocks of one read */
    QM_AHEAD_LIMIT_MIN = 64, /* see qm_ahead_limit() */
};

/* A prefetch: the caller's memory, made by malloc(). */
struct qm_ahead_job {
    struct qm_fair_item item;  /* its client and its cost, which is 1, are set */
    struct qm_ahead_job *next; /* the queue's */
    uint64_t block;
    struct qm_fill *fill;
    bool counts;   /* toward the limit: each first of QM_AHEAD_UNIT that are adjacent */
    bool promised; /* a read, by the budget (rate.h): the first of those issued at once
                    */
};

struct qm_ahead {
    struct qm_fair queue;
    struct qm_ahead_job **buckets;
    unsigned mask;
    unsigned limit; /* jobs that count, at most: the caller's to keep */
    unsigned join;  /* blocks of one read at most */
};

/* How many prefetches may wait, of `queue` that are allowed, beside a cache of which
 * they can have `most` blocks: what is queued is in the cache already, unless it was
 * driven out. */
unsigned qm_ahead_limit(unsigned queue, uint64_t most);

/* How many blocks of block_size bytes are read at once, if a read of the device can
 * have max_bytes: those of 1 MiB, or 16 if that is more, but not more than
 * QM_AHEAD_JOIN_MAX.  Each thread that reads has a buffer of that size. */
unsigned qm_ahead_join(uint32_t max_bytes, uint32_t block_size);

/* join: blocks that a read of the device can have; at most QM_AHEAD_JOIN_MAX are used.
 * Returns 0 or ENOMEM. */
int qm_ahead_init(struct qm_ahead *ahead, unsigned limit, unsigned join);
/* Jobs that still wait are the caller's to take out before. */
void qm_ahead_destroy(struct qm_ahead *ahead);

/* The job waits from now on; it is the caller's. */
void qm_ahead_push(struct qm_ahead *ahead, struct qm_ahead_job *job);

/* Takes block's job out of the queue, that of fill (NULL: of any).  NULL: none waits.
 */
struct qm_ahead_job *qm_ahead_take(struct qm_ahead *ahead, uint64_t block,
                                   struct qm_fill *fill);

/* The queue is full, with `limit` jobs that count, and client has another job: takes
 * the one out that has to go for it.  NULL: the new one has to stay out. */
struct qm_ahead_job *qm_ahead_yield(struct qm_ahead *ahead, unsigned client,
                                    unsigned limit);

/* Takes the jobs of the next run out, in the order of their blocks.  Returns how many;
 * 0: none waits. */
unsigned qm_ahead_run(struct qm_ahead *ahead,
                      struct qm_ahead_job *jobs[QM_AHEAD_JOIN_MAX]);

/* Takes the jobs of the blocks from `block` on out, at most max, up to the first that
 * does not wait.  Returns how many. */
unsigned qm_ahead_follow(struct qm_ahead *ahead, uint64_t block, unsigned max,
                         struct qm_ahead_job **jobs);

/* How many of n jobs count toward the limit. */
unsigned qm_ahead_counts(struct qm_ahead_job *const *jobs, unsigned n);

/* How many of n jobs were promised a read. */
unsigned qm_ahead_promises(struct qm_ahead_job *const *jobs, unsigned n);

/* How many of n jobs, from the first on, are worth reading: up to the first whose block
 * would not be kept. */
unsigned qm_ahead_wanted(struct qm_cache *cache, struct qm_ahead_job *const *jobs,
                         unsigned n);

/* Takes any job out; NULL: none waits. */
struct qm_ahead_job *qm_ahead_drain(struct qm_ahead *ahead);

#endif
