/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetch.h - the queue of prefetches, and the threads that carry them out.
 *
 * Issuing a prefetch puts its block into the prefetch cache at once and queues the
 * read, so evictions and the outcomes of demands do not depend on when the data
 * arrives.  Demands go first: a reader whose block's prefetch is still queued takes
 * that read over (qms_prefetch_take()) and does not wait behind others.
 *
 * The queue is bounded and shared fairly between clients (engine/fair.h), a block at a
 * time.  A candidate that finds it full is dropped and counted, and so is a prefetch
 * evicted from it in favour of another client's; that block leaves the prefetch cache,
 * too.
 *
 * A failed prefetch is counted and otherwise silent: a reader that waited for it reads
 * the block by itself.
 */
#ifndef QMS_PREFETCH_H
#define QMS_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/ahead.h"
#include "server/clients.h"
#include "engine/admission.h"
#include "engine/latency.h"
#include "engine/load.h"
#include "engine/rate.h"
#include "server/priority.h"
#include "server/stats.h"
#include "tier/tier.h"

struct qms_prefetch;

struct qms_prefetch_config {
    struct qm_cache *cache;
    struct qms_tiers *tiers; /* looked into before the layer below is; NULL: none */
    struct qms_stats *stats;
    struct qm_device_load *load;    /* told how long reads take; NULL: none */
    struct qm_latency *latency;     /* the same */
    struct qm_admission *admission; /* the same */
    struct qm_rate *rate;           /* the budget that reads keep to; NULL: none */
    uint64_t size;                  /* of the device, in bytes */
    uint32_t block_size;
    uint32_t max_bytes;         /* of one read of the layer below; at least a block */
    unsigned threads, queue;    /* queue: that may wait, at most; 0: by inflight.h */
    bool follows;               /* threads are made as needed, up to `threads`, and as
                                   many prefetches are in flight as engine/inflight.h
                                   says, by admission's; else all threads are made */
    enum qms_priority priority; /* of the threads' reads */
    /* n prefetches may be in flight: returns how many the layer below takes at present,
     * at least 1.  NULL: any number. */
    unsigned (*lanes)(void *opaque, unsigned n);
    /* Reads count bytes at offset for a worker, 0 to threads - 1, of which each does
     * one thing at a time.  Returns 0 or an errno value; ENOTCONN if the device was not
     * asked. */
    int (*read)(void *opaque, unsigned worker, void *buf, uint32_t count,
                uint64_t offset);
    void *opaque;
};

/* Starts the threads, or the first of them.  NULL if memory or threads are out. */
struct qms_prefetch *qms_prefetch_start(const struct qms_prefetch_config *config);

/* The cache has room for `most` prefetched blocks from now on.  At most
 * qm_ahead_limit(queue, most) prefetches wait then; if more do already, they wait until
 * they are read, or another takes their place.  Any thread. */
void qms_prefetch_bound(struct qms_prefetch *prefetch, uint64_t most);

/* Whom the threads tell from now on how long reads take: see the configuration. */
void qms_prefetch_measure(struct qms_prefetch *prefetch, struct qm_device_load *load,
                          struct qm_admission *admission);

/* The device has `size` bytes from now on, more than before.  Reads that have begun may
 * still take it for shorter: the caller drops the block that it ended in. */
void qms_prefetch_grow(struct qms_prefetch *prefetch, uint64_t size);

/* Ends the threads; queued prefetches are not read.  No other thread may be issuing. */
void qms_prefetch_stop(struct qms_prefetch *prefetch);

/* Issues prefetches of count adjacent blocks, which lie within the device, on behalf of
 * a client, and of an issuer for the cache to remember.  They are queued together, so
 * that a worker finds the whole run, and reads up to qm_ahead_join() blocks of it
 * at once.  With a budget, the caller has the promise of one read, which goes with the
 * blocks if any was issued; what takes more reads needs more of the budget then, or is
 * cancelled.  Returns how many blocks were issued: not those that are
 * cached or in flight, nor those for which the queue, the prefetch cache or memory had
 * no room.  Any thread. */
unsigned qms_prefetch_issue(struct qms_prefetch *prefetch, uint64_t block,
                            uint32_t count, unsigned client, uint32_t issuer);

/* Takes the prefetch of block whose fill is `fill`, to which the caller has a
 * reference, out of the queue.  If it was there, the caller now owns the fill, too: it
 * reads the block and calls qm_cache_fill() or qm_cache_fail().  Any thread. */
bool qms_prefetch_take(struct qms_prefetch *prefetch, uint64_t block,
                       struct qm_fill *fill);

/* A demand's read has ended: perhaps there may be more prefetches in flight.  Any
 * thread; costs nothing where none waits for that. */
void qms_prefetch_kick(struct qms_prefetch *prefetch);

struct qms_prefetch_stats {
    unsigned threads; /* that there are */
    unsigned busy;    /* prefetch reads in flight */
    unsigned most;    /* of these, at a time, ever */
    unsigned allowed; /* that may be in flight now */
    unsigned queue;   /* prefetches that may wait */
};

void qms_prefetch_get_stats(struct qms_prefetch *prefetch,
                            struct qms_prefetch_stats *stats);

/* Whether any prefetch waits in the queue, about.  Any thread. */
bool qms_prefetch_waits(struct qms_prefetch *prefetch);

/* Takes the prefetches of the blocks from `block` on, at most max, out of the queue, up
 * to the first that does not wait there; returns how many.  The caller reads those
 * blocks, with the one before them, fills or fails each job's fill, and frees the jobs.
 * Any thread. */
unsigned qms_prefetch_follow(struct qms_prefetch *prefetch, uint64_t block,
                             unsigned max, struct qm_ahead_job **jobs);

#endif
