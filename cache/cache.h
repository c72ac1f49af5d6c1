/* SPDX-License-Identifier: BSD-3-Clause */
/* cache.h - a block cache with a main and a prefetch part, as a library.
 *
 * The interface is that of a hash table from block numbers to blocks of one size
 * (ATC'08 §4.2).  The library does no I/O: it tells its caller which block to read, and
 * the caller hands it the data.  Any program that reads blocks from a slow device can
 * embed it.
 *
 *   qm_cache_demand()    a reader wants a block: hit, prefetch hit or miss
 *   qm_cache_prefetch()  a block is to be read ahead of its demand
 *   qm_cache_fill()      hands over the data of a block that one of the two asked for
 *   qm_cache_write_*()   brings cached blocks up to date with a write-through
 *
 * The life of a block.  The first demand or prefetch of an absent block begins a
 * *fill*: the block enters the cache at once, without data, and evicts another if the
 * cache is full.  The caller, who owns the fill, reads the data and ends it by
 * qm_cache_fill() or qm_cache_fail().  A reader that finds an in-flight fill waits for
 * it.  A block that is evicted or written to before its fill ends is *detached*: the
 * owner still ends the fill, but the data is not kept.  So data of a fill that began
 * before an overlapping write ended never stays in the cache.
 *
 * Threads: every function may be called by any number of threads at the same time
 * unless its comment says otherwise.  The library keeps no threads of its own, and
 * threads need no registration.  Hits take no lock that all readers share and write no
 * memory that all readers write, unless one shard was asked for; but a block counts its
 * early hits.  Functions other than
 * qm_cache_contains() may wait for an RCU grace period now and then (microseconds, or
 * some ten milliseconds if a reader lost its CPU), so they must not be called within a
 * read-side section of urcu-bp.
 *
 * To avoid deadlock, a thread that holds fills must fill or fail them all before it
 * waits for another thread's.
 *
 * Fork: a cache may be made before a fork and used in the child, if it was not in use
 * by another thread at that moment.
 *
 * Memory is allocated when it is needed (a policy's own: at once), freed only by
 * qm_cache_free() and when the cache shrinks, and bounded: buffers for `blocks` and a
 * reserve for buffers that readers may still be copying (see qm_cache_blocks_within()).
 * When the reserve is exhausted, the cache waits for a grace period.  If that frees
 * nothing, it goes on without memory: the data of a fill is not kept, a block that a
 * write would update is dropped, and a new fill fails with ENOMEM.  Only a caller that
 * holds many struct qm_fill at a time meets this.
 *
 * Errors are returned as errno values; 0 is success.  Nothing here prints or exits.
 */
#ifndef QM_CACHE_H
#define QM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_cache;
struct qm_evict_ops;
struct qm_fill; /* a reference to an in-flight fill; references to the same fill are
                   the same pointer */

/* What a demand found (ATC'08 §3.1).  One per block and demand.  A block whose fill is
 * in flight because of another demand counts as a hit: it costs no further read. */
enum qm_outcome {
    QM_HIT,          /* in the main cache */
    QM_PREFETCH_HIT, /* a prefetch was issued for it, arrived or not */
    QM_MISS,         /* neither */
};

/* What the caller of qm_cache_demand() has to do next. */
enum qm_todo {
    QM_DONE,  /* the bytes were copied */
    QM_FETCH, /* read the whole block, then end fill: qm_cache_fill() or _fail() */
    QM_WAIT,  /* qm_cache_wait() for fill, which another caller owns */
};

/* The first hits on a block, counted from the miss or the prefetch that brought it into
 * the cache, are called early.  This is how many. */
#define QM_CACHE_EARLY_HITS 16

struct qm_lookup {
    enum qm_outcome outcome;
    enum qm_todo todo;
    bool early;           /* one of the first hits on a block since it came */
    uint32_t issuer;      /* of a prefetch hit: who issued the prefetch */
    struct qm_fill *fill; /* a reference, to be consumed as todo says; else NULL */
};

struct qm_cache_config {
    uint32_t block_size;      /* bytes; a power of two, 512 to 16 MiB */
    uint64_t blocks;          /* capacity of both parts together; at least 1.  See also
                                 qm_cache_resize() */
    uint64_t prefetch_blocks; /* the prefetch cache's part of it; 0: no prefetching */
    bool prefetch_adapts;     /* prefetch_blocks is the initial size; then the size
                                 follows what a further block is worth to each part,
                                 from 16 blocks (or a 64th of all, if that is less) to
                                 half of all, and each part may use blocks that the
                                 other leaves free (balance.c) */
    unsigned shards;          /* a power of two up to 1024; fewer are made if each would
                                 have under 512 main or 32 prefetch blocks.  With 1, the
                                 eviction order is exact as long as hits do not collide
                                 in time; with more, each shard evicts for itself */
    const char *eviction;     /* of the main cache, by name: "lru", "lfu",
                                 "mru", "arc", "s3fifo", "wtinylfu" or "adaptive" (a
                                 file of that name says what it does); the prefetch
                                 cache's is lru */
    const struct qm_evict_ops *own_eviction; /* instead: a policy of the caller's (see
                                                eviction.h), which is in no registry and
                                                has create_for().  NULL: by name */
    void *own_opaque;                        /* for create_for() */
    bool shadow; /* estimate the misses of an LRU cache of as many blocks, for
                    stats.lru_misses; takes from 29 bytes a block (small caches) down to
                    half a byte (large ones) */
    bool data;   /* false: keep track of blocks but hold no bytes (for
                    simulation): buffers passed in may be NULL */

    /* Called for each prefetched block that leaves unused, when stats.wasted counts it.
     * Internal locks are held, so it must not call back into the cache.  Not called for
     * blocks that qm_cache_free() finds.  May be NULL. */
    void (*wasted)(void *opaque, uint64_t block, uint32_t issuer);

    /* For a second tier below this cache: both, or both NULL.
     *
     * leaving() is called when a block that has its data is evicted from the main part,
     * before it is removed.  Its data is then what the layer below has, or had before a
     * write that was begun by qm_cache_write_begin() and has not been ended.  Internal
     * locks are held, so leaving() must not call back into the cache, nor wait.  It
     * returns a number of the caller's (a moment in the order of writes).
     *
     * evicted() gets that number and the block's bytes, which are valid during the
     * call, soon afterwards: when no reader can have them any more, before their memory
     * is used again.  No lock is held, and nothing is copied.  It may wait, and
     * threads that need memory for blocks wait then.  It must not call the cache.
     * Called by any thread that is inside the cache, and by qm_cache_flush().  Blocks
     * that leave by a write, or from the prefetch part, and those that qm_cache_free()
     * finds, are not handed over. */
    uint64_t (*leaving)(void *opaque, uint64_t block);
    void (*evicted)(void *opaque, uint64_t block, const void *data, uint64_t number);

    void *opaque; /* for these three */
};

/* Always, when no thread is inside the cache:
 *
 *   prefetches == used + wasted + prefetch_blocks
 *   demands that returned 0 == hits + prefetch_hits + misses
 *   fills begun == fills kept + detached + failed + fills in flight
 *
 * A prefetched block is used when it moves to the main cache, by qm_cache_demand() or
 * _demand_again() (so prefetch_hits <= used), and wasted when it leaves the prefetch
 * cache in any other way, filled or in flight: evicted, failed, dropped by a write, not
 * kept. */
struct qm_cache_stats {
    uint64_t hits, prefetch_hits, misses; /* demands that returned 0, by outcome */
    uint64_t prefetches;                  /* qm_cache_prefetch() that returned 0 */
    uint64_t used;                        /* of these, moved to the main cache */
    uint64_t wasted;                      /* of these, gone without a demand */
    uint64_t evicted;                     /* blocks evicted from the main cache */
    uint64_t failed;                      /* fills that ended in qm_cache_fail() */
    uint64_t detached;    /* fills whose data was not kept: the block was evicted or
                             written to, or no buffer was free */
    uint64_t main_blocks; /* held now, in-flight fills included */
    uint64_t prefetch_blocks;
    uint64_t prefetch_share; /* present size of the prefetch part */
    uint64_t lru_misses;     /* estimated misses of an LRU cache of as many blocks,
                                without prefetching; 0: no shadow */
    uint64_t bytes;          /* memory held now: data and metadata */
};

/* The number of blocks that fit into a budget of bytes: data, headers, hash table,
 * rings of noted accesses, memory of the eviction policy (one found by name), and the
 * reserve. Metadata takes about 5 % of the budget with blocks of 16 KiB, and 10 % of a
 * budget of 1 MiB.  stats.bytes of a cache of that many blocks never exceeds the
 * budget, whatever its shards, prefetch blocks and policy.  0 if no block fits, or if
 * the block size is not allowed. */
uint64_t qm_cache_blocks_within(uint64_t bytes, uint32_t block_size);

/* The reverse: an upper bound of stats.bytes for a cache of that many blocks, whatever
 * the rest of its configuration.  Blocks and block size must be allowed. */
uint64_t qm_cache_footprint(uint64_t blocks, uint32_t block_size);

/* Checks config and, if it is wrong, puts one sentence that says what is allowed into
 * err (at most len bytes, always terminated; may be NULL if len is 0).  Returns 0 (err
 * is "") or EINVAL. */
int qm_cache_check(const struct qm_cache_config *config, char *err, size_t len);

/* Makes a cache; config is copied.  On success *cache is the caller's, to be freed with
 * qm_cache_free().  Returns 0, EINVAL (qm_cache_check() says why) or ENOMEM. */
int qm_cache_new(const struct qm_cache_config *config, struct qm_cache **cache);

/* Frees the cache (NULL: nothing).  No other thread may be using it, and no fill may be
 * held. */
void qm_cache_free(struct qm_cache *cache);

/* Changes the capacity to `blocks` blocks, of both parts together, while other threads
 * use the cache.  Hits go on as ever; other calls may have to wait for a step of it,
 * some microseconds.  The number of shards stays, so the least is a block for each, or
 * two if the cache prefetches; and a cache that grows much is locked as one of its
 * former size.
 *
 * To grow takes some ten nanoseconds a block, and the memory for blocks when they come.
 * To shrink, the least worthy blocks are evicted, and when this returns their memory is
 * the system's again: stats.bytes is at most what qm_cache_resize_within() allowed.
 * That takes about as long as copying the blocks that stay, at most, and some grace
 * periods.
 *
 * A prefetch share that does not adapt stays the same part of all blocks.  With a
 * policy of the caller's, the memory for headers of blocks is not given back.
 *
 * Returns 0 or an errno value:
 *   EINVAL   the cache cannot have that number of blocks; nothing changed
 *   ENOTSUP  a policy of the caller's cannot grow; nothing changed
 *   ENOMEM   when it grows: nothing changed; when it shrinks: as EAGAIN
 *   EAGAIN   the capacity is set, but some memory is not given back yet, since fills
 *            are in flight there: call again with the same number
 * A second call waits for the first. */
int qm_cache_resize(struct qm_cache *cache, uint64_t blocks);

/* Sets the size of the LRU cache whose misses qm_cache_get_reads() gives as `plain`: in
 * blocks, at least this cache's capacity, at most a 32nd more.  For a caller that has
 * other uses of memory beside the cache, and wants to know what these cost in misses.
 * Without config.shadow it does nothing. */
void qm_cache_compare(struct qm_cache *cache, uint64_t blocks);

/* The number of blocks that the cache can have so that stats.bytes never exceeds
 * `bytes` after qm_cache_resize(): other than qm_cache_blocks_within(), with the shards
 * that it has.  0 if that is fewer than are allowed. */
uint64_t qm_cache_resize_within(struct qm_cache *cache, uint64_t bytes);

/* The present capacity, in blocks. */
uint64_t qm_cache_capacity(struct qm_cache *cache);

/* Demands bytes [offset, offset + count) of block; they must lie within it.
 *
 * Returns 0 and fills in *found.  When found->todo is QM_DONE the bytes are in buf.
 * On ENOMEM nothing changed or was counted, and the caller should read past the cache.
 * Never blocks on I/O.
 *
 * A miss and a prefetch hit enter the main cache in this call, and evict for it (ATC'08
 * §4.2), though the fill of a promoted block may still be in flight (QM_WAIT). */
int qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf, uint32_t offset,
                    uint32_t count, struct qm_lookup *found);

/* The same for a caller whose qm_cache_wait() for this block returned EAGAIN.  It is
 * still the same demand, so no hit, prefetch hit or miss is counted.  (A block
 * prefetched meanwhile counts as used.) */
int qm_cache_demand_again(struct qm_cache *cache, uint64_t block, void *buf,
                          uint32_t offset, uint32_t count, struct qm_lookup *found);

/* Ends a fill with the block's data: block_size bytes, which are copied (zeros past the
 * end of the device).  Wakes readers that wait.  Consumes fill.
 *
 * Returns whether the data is kept (see above).  If it is not, a reader must call
 * qm_cache_peek() before it uses the data. */
bool qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill, const void *data);

/* blocks: the number of prefetched blocks ahead of readers that will come to them.
 * Until the next call, the prefetch part of a cache whose division adapts is at least
 * as large, up to half of the cache. */
void qm_cache_reserve(struct qm_cache *cache, uint64_t blocks);

/* Copies bytes of a block as qm_cache_demand() does, if it is cached, but counts
 * nothing, begins no fill and does not make the block more recent.  Returns whether the
 * block was cached.
 *
 * For a reader that has read a block past the cache, or by a fill that was not kept.
 * While a write is in flight, such data may be newer than what others find in the
 * cache; a later reader would then see older data than this one. */
bool qm_cache_peek(struct qm_cache *cache, uint64_t block, void *buf, uint32_t offset,
                   uint32_t count);

/* Ends a fill whose read failed: the block leaves the cache, and readers that wait get
 * EAGAIN, so that each reads by itself and sees its own error.  Consumes fill. */
void qm_cache_fail(struct qm_cache *cache, struct qm_fill *fill);

/* Waits until the owner of an in-flight fill ends it, and copies the bytes.  Returns 0;
 * or EAGAIN, as soon as the fill has failed or was detached: call
 * qm_cache_demand_again().  Consumes fill either way.  There is no time-out: every fill
 * is ended. */
int qm_cache_wait(struct qm_cache *cache, struct qm_fill *fill, void *buf,
                  uint32_t offset, uint32_t count);

/* Hands all blocks of the main part that have their data to evicted(), and those that
 * are on their way to it; they stay in the cache.  No other thread may be using the
 * cache, and no fill or write be in flight.  Nothing without evicted(). */
void qm_cache_flush(struct qm_cache *cache);

/* Whether block is in either part, filled or in flight.  A hint: it may change at any
 * time. */
bool qm_cache_contains(struct qm_cache *cache, uint64_t block);

/* What a demand of block would find: its outcome, and whether that would be an early
 * hit; nothing else of *found is set.  A hint, too. */
void qm_cache_foresee(struct qm_cache *cache, uint64_t block, struct qm_lookup *found);

/* Starts a prefetch (ATC'08 §3.1): block enters the prefetch cache, without data, on
 * behalf of issuer (a number of the caller's, given back by prefetch hits and by
 * wasted()). Returns 0 (read it, then end *fill), EEXIST (it is cached, in either
 * part), ENOSPC (no prefetch cache) or ENOMEM. */
int qm_cache_prefetch(struct qm_cache *cache, uint64_t block, uint32_t issuer,
                      struct qm_fill **fill);

/* Whether the data of a fill that the caller owns would be kept, at present. */
enum qm_wanted {
    QM_UNWANTED, /* no: the block was evicted or written to */
    QM_AHEAD,    /* yes, in the prefetch part: not demanded yet */
    QM_DEMANDED, /* yes, in the main part */
};

enum qm_wanted qm_cache_wanted(struct qm_cache *cache, struct qm_fill *fill);

/* Whether qm_cache_wait() for fill, to which the caller has a reference, would return
 * at once: it has been filled, has failed or was detached.  For callers that have no
 * thread to let wait. */
bool qm_cache_settled(struct qm_cache *cache, struct qm_fill *fill);

/* A write through the cache.  The caller announces it, writes to the layer below, and
 * reports the result, in this order, before it acknowledges the write:
 *
 *   struct qm_cache_write w;
 *   qm_cache_write_begin (cache, &w, offset, count);
 *   ok = write below;
 *   qm_cache_write_end (cache, &w, ok ? QM_WRITE_DATA : QM_WRITE_DROP, data);
 *
 * Blocks that are cached, in either part, are brought up to date, and otherwise nothing
 * changes: a write neither allocates a block nor makes it more recent.  A block that is
 * only partly written keeps its other bytes.  A reader gets a block as it was before or
 * as it is after the end of a write, never a mixture.  Fills of these blocks that began
 * before the end are detached.  If two writes to the same bytes overlap in time, the
 * order in which the layer below carries them out is not known, so each drops the
 * blocks that it wrote to.
 *
 * w is the caller's and must stay where it is between the two calls, which different
 * threads may make.  A count of 0 is allowed; offset + count may not exceed 2^64 - 1.
 */
struct qm_cache_write {
    uint64_t offset, count;              /* bytes */
    bool conflict;                       /* overlapped in time with another write */
    struct qm_cache_write *next, **link; /* all in flight; the cache's */
};

enum qm_write_result {
    QM_WRITE_DATA,  /* data was written */
    QM_WRITE_ZEROS, /* zeros were; data is NULL */
    QM_WRITE_DROP,  /* failed, or trimmed: what is below is not known; data is NULL */
};

void qm_cache_write_begin(struct qm_cache *cache, struct qm_cache_write *w,
                          uint64_t offset, uint64_t count);
void qm_cache_write_end(struct qm_cache *cache, struct qm_cache_write *w,
                        enum qm_write_result result, const void *data);

/* Sums up the counters.  Exact when no other thread is inside the cache. */
void qm_cache_get_stats(struct qm_cache *cache, struct qm_cache_stats *stats);

/* Blocks read from the device, and blocks that plain LRU would have read, since the
 * cache was made: as in qm_cache_get_stats(), at less cost. */
#define QM_CACHE_GAIN_PART 8

struct qm_cache_reads {
    uint64_t device; /* misses and prefetches */
    uint64_t ahead;  /* of these, prefetched blocks whose end is not known yet */
    uint64_t lru;    /* lru_misses */
    uint64_t plain;  /* the same for the size that qm_cache_compare() set */
    uint64_t misses, prefetch_hits;
    /* About how many demands more would have been hits (and not prefetch hits or
     * misses) if the cache had been larger by one of QM_CACHE_GAIN_PART; 0 unless the
     * eviction is adaptive.  A difference of samples: it may go down, and below 0. */
    double gain;
    /* Estimated misses without prefetching, with the same eviction; 0 unless it is
     * adaptive. */
    double alone;
};

void qm_cache_get_reads(struct qm_cache *cache, struct qm_cache_reads *reads);

#endif
