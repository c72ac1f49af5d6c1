/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - candidates that are watched instead of being read.
 *
 * Whether prefetching pays is known from what becomes of prefetched blocks.  Where it
 * has yet to be proven, or rests, candidates are not read: their blocks are noted, and
 * a demand that misses one of them within its *horizon* says that reading it would have
 * saved that miss.  One that is not missed until then would have left unused.  The
 * horizon is a number of misses: about as many as a prefetched block waits for its use
 * in a cache of this size.
 *
 * A block that would have been on its way still when it was demanded counts only as far
 * as that would have saved time: the part of a read's time by which it was a candidate
 * earlier.  Without a clock each counts in full.
 *
 * There are two kinds of candidates, those of rules and those of streams.  Either is
 * proven when enough of its blocks would have been used; that is final, as from then on
 * real prefetches show what they are worth.
 *
 * There is memory for QM_WATCH_PLACES blocks of each kind, 17 KiB together.  While all
 * are taken, no further ones are noted.
 *
 * Any thread may call any of these at any time; they lock for themselves, briefly, and
 * only while blocks are noted.
 */
#ifndef QM_ENGINE_WATCH_H
#define QM_ENGINE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

enum {
    QM_WATCH_PLACES = 256, /* of each kind */
    QM_WATCH_LISTS = 256,
    QM_WATCH_ENDS = 8, /* of one call of qm_watch_missed() */
};

/* A noted block: its place in the order of age, and in a list of its hash. */
struct qm_watched {
    uint64_t block;
    uint64_t time;   /* when it was a candidate; 0: nobody knows */
    uint32_t misses; /* until then, of all; wraps */
    uint32_t klass;  /* for which */
    uint16_t next;   /* number of a place, from 1 on */
    bool ended;
};

/* What became of one. */
struct qm_watch_end {
    uint64_t block;
    uint32_t klass;
    enum qm_fate fate;
};

/* Of all whose end is known, ever. */
struct qm_watch_counts {
    double used;     /* in reads' times that reading them would have saved */
    uint64_t uses;   /* blocks that would have been used, */
    uint64_t waited; /* for which they waited, in misses, together */
    uint64_t unused;
};

struct qm_watch_kind {
    double used, ended;    /* of late */
    unsigned noted;        /* at present */
    unsigned first, count; /* of places, which are a ring: noted ones and ended ones */
    struct qm_watched places[QM_WATCH_PLACES];
};

struct qm_watch {
    _Atomic bool proven[2]; /* candidates of rules, of streams */
    _Atomic unsigned noted;

    /* Nanoseconds.  NULL: there is no clock.  Set before all else. */
    uint64_t (*clock)(void *opaque);
    void *opaque; /* of clock */

    pthread_mutex_t lock; /* a leaf, of all that follows */
    uint32_t misses;      /* while any was noted; wraps */
    struct qm_watch_counts counts;
    uint16_t lists[QM_WATCH_LISTS];
    struct qm_watch_kind kinds[2]; /* as proven */
};

void qm_watch_init(struct qm_watch *w);
void qm_watch_destroy(struct qm_watch *w);

/* Forgets the noted blocks, of which nothing becomes, and that anything is proven:
 * there is another prefetcher. */
void qm_watch_reset(struct qm_watch *w);

/* Whether candidates of that kind have been proven worth reading. */
static inline bool qm_watch_is_proven(const struct qm_watch *w, bool stream)
{
    return atomic_load_explicit(&w->proven[stream], memory_order_relaxed);
}

/* Notes block, a candidate for class klass that is not read. */
void qm_watch_add(struct qm_watch *w, uint64_t block, uint32_t klass, bool stream);

/* Whether any block is noted, so that misses matter. */
static inline bool qm_watch_is_on(const struct qm_watch *w)
{
    return atomic_load_explicit(&w->noted, memory_order_relaxed) > 0;
}

/* A demand misses block.  took: how long it takes to read one, ns; 0: not known.
 * horizons: misses, of rules and of streams.  Fills in blocks of which it is known now
 * what would have become of them, and returns how many. */
unsigned qm_watch_missed(struct qm_watch *w, uint64_t block, double took,
                         const uint32_t horizons[2],
                         struct qm_watch_end ends[QM_WATCH_ENDS]);

void qm_watch_get(struct qm_watch *w, struct qm_watch_counts *counts);

#endif
