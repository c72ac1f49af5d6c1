/* SPDX-License-Identifier: BSD-3-Clause */
/* collector.h - reads and writes of key ranges, in slotted intervals.
 *
 * After Leaper's collector: a range's counters are made when it is first touched,
 * behind a check that is repeated under the lock; counts are atomic; the first access
 * of an interval always counts and later ones with probability P, so that S counts
 * stand for (S - 1) / P + 1 accesses.  A read takes no lock, and allocates only for the
 * first touch of 64 neighbouring ranges.
 *
 * Ranges lie between fences: keys of the files that RocksDB wrote, `spacing` keys
 * apart. The table of ranges is immutable but for its counters; learning replaces it
 * and hands the counts on.  At most max_ranges ranges: beyond, spacing doubles.
 *
 * Threads: all functions may be called by any thread but collector_free(). */
#ifndef QM_LSM_COLLECTOR_H
#define QM_LSM_COLLECTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lsm/fences.h"

#define COLLECTOR_SLOTS 6 /* intervals that are remembered one by one */
#define COLLECTOR_PAGE  64u

struct range {
    _Atomic uint32_t reads, writes; /* of this interval, sampled */
    float spread; /* reads of this interval that collector_spread() added */
    float rate;   /* reads an interval, decayed */
    float slot_reads[COLLECTOR_SLOTS], slot_writes[COLLECTOR_SLOTS]; /* newest first */
};

struct range_page {
    struct range range[COLLECTOR_PAGE];
};

struct table {
    _Atomic uint32_t refs;
    uint32_t n; /* ranges */
    struct fences *fences;
    float *keys;           /* of each range, an estimate */
    uint64_t serial;       /* of all tables of the process */
    struct follow *follow; /* see feature.h; NULL: nothing is followed */
    _Atomic(struct range_page *) *pages;
};

struct collector;
struct follow;

/* NULL: no memory. */
struct collector *collector_new(uint32_t max_ranges, double sample);
void collector_free(struct collector *c);

void collector_read(struct collector *c, const void *key, size_t len);
void collector_write(struct collector *c, const void *key, size_t len);

/* From now on it is followed which ranges are read one after the other. */
void collector_follow(struct collector *c);
/* A read that collector_spread() will count was of about this key. */
void collector_saw(struct collector *c, const void *key, size_t len);

/* Adds n reads that were made somewhere in the keys from first to before last (len 0:
 * no end). */
void collector_spread(struct collector *c, const void *first, size_t first_len,
                      const void *last, size_t last_len, double n);

/* Ends an interval.  Now and then looks whether ranges may be larger (ranges.h), at
 * most `largest` keys. */
void collector_tick(struct collector *c, uint32_t largest);

/* A table with a reference of the caller's, which table_put() gives back. */
struct table *collector_table(struct collector *c);
void table_put(struct table *t);

/* The counters of a range, NULL if it was never touched. */
static inline struct range *table_range(struct table *t, uint32_t i)
{
    struct range_page *page =
        atomic_load_explicit(&t->pages[i / COLLECTOR_PAGE], memory_order_acquire);

    return page ? &page->range[i % COLLECTOR_PAGE] : NULL;
}

/* Reads an interval that one key of range i is expected to get. */
static inline float table_heat(struct table *t, uint32_t i)
{
    struct range *r = table_range(t, i);
    float rate;

    if (!r)
        return 0;
    __atomic_load(&r->rate, &rate, __ATOMIC_RELAXED);
    return rate / t->keys[i];
}

/* Keys between two fences that are to be learned. */
uint32_t collector_spacing(struct collector *c);

/* A file has `total` keys from first to last; sample has each spacing-th of them. Takes
 * them as fences if what is known there is much coarser. */
void collector_learn(struct collector *c, const struct keys *sample, uint64_t total,
                     const void *first, size_t first_len, const void *last,
                     size_t last_len);

struct collector_stats {
    uint64_t intervals, reads, writes;
    uint32_t ranges, spacing, touched;
    uint64_t bytes;
};
void collector_get_stats(struct collector *c, struct collector_stats *stats);

#endif
