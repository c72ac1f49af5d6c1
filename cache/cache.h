/* cache.h - a block cache with a main and a prefetch part, as a library.
 *
 * The interface is that of a hash table from block numbers to blocks of one size
 * (ATC'08 §4.2), and it does no I/O: it tells its caller which block to read and is
 * handed the data.  Any program that reads blocks from somewhere slow can embed it.
 *
 *   qm_cache_demand()    somebody wants a block: hit, promote or miss
 *   qm_cache_prefetch()  nobody wants it yet
 *   qm_cache_fill()      the data of a block that one of the two told us to read
 *   qm_cache_write_*()   a write-through passes by
 *
 * The life of a block.  The first to want a block that is not there *fills* it: the
 * block enters the cache at once, without data, which settles then and there what is
 * evicted for it; the filler reads the data and calls qm_cache_fill() or
 * qm_cache_fail().  Whoever wants the block meanwhile waits for that one read.  A
 * block that is evicted, or written, while it is being filled is *detached*: its
 * filler goes on undisturbed, but what it brings is not kept.  So a fill that started
 * before an overlapping write ended never ends up in the cache.
 *
 * Threads: every function may be called by any number of threads at the same time
 * unless its comment says otherwise.  The library keeps no threads of its own, and
 * threads need no registration.  Hits take no lock that all readers share, and write to
 * nothing that all of them do, unless one shard was asked for.  Functions other than
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
 * Memory is taken when it is needed (what a policy keeps beside the blocks: at once),
 * never given back before qm_cache_free(), and bounded: buffers for `blocks` and a
 * reserve for what readers may still be copying (see qm_cache_blocks_within()).  When
 * the reserve is exhausted for a moment, the cache waits for a grace period, and if
 * even that frees nothing it does without: what was filled is not kept, what was to be
 * updated is dropped, and what was to be filled is ENOMEM.  Only callers that keep many
 * struct qm_fill without waiting get there.
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
struct qm_fill; /* a block that is being read, and a reference to it; all who have one
                   to the same fill have the same pointer */

/* What a demand found (ATC'08 §3.1).  One per block and demand.  A block that another
 * thread is just reading because it was demanded counts as a hit: it costs no read. */
enum qm_outcome {
    QM_HIT,     /* in the main cache */
    QM_PROMOTE, /* a prefetch was issued for it, arrived or not */
    QM_MISS,    /* neither */
};

/* What the caller of qm_cache_demand() has to do next. */
enum qm_todo {
    QM_DONE,  /* the bytes were copied */
    QM_FETCH, /* read the whole block, then qm_cache_fill() or qm_cache_fail() fill */
    QM_WAIT,  /* qm_cache_wait() for fill, which somebody else reads */
};

struct qm_lookup {
    enum qm_outcome outcome;
    enum qm_todo todo;
    uint32_t issuer;      /* of a promote: who issued the prefetch */
    struct qm_fill *fill; /* a reference, to be consumed as todo says; else NULL */
};

struct qm_cache_config {
    uint32_t block_size;      /* bytes; a power of two, 512 to 16 MiB */
    uint64_t blocks;          /* capacity of both parts together; at least 1 */
    uint64_t prefetch_blocks; /* the prefetch cache's part of it; 0: no prefetching */
    bool prefetch_adapts;     /* that is its part at first; then it follows what the two
                                 parts' next blocks are worth, from 16 (a 64th, if
                                 that is less) to half of all, and either part may use
                                 what the other does not need (balance.c) */
    unsigned shards;          /* a power of two up to 1024; fewer are made if each would
                                 have under 512 main or 32 prefetch blocks.  With 1, the
                                 eviction order is exact as long as hits do not collide
                                 in time; with more, each shard evicts for itself */
    const char *eviction;     /* of the main cache, by name: "lru", "lfu",
                                 "mru", "arc", "s3fifo" or "wtinylfu" (a file of that
                                 name says what it does); the prefetch cache's is lru */
    const struct qm_evict_ops *own_eviction; /* instead: a policy of the caller's (see
                                                eviction.h), which is in no registry and
                                                has create_for().  NULL: by name */
    void *own_opaque;                        /* for create_for() */
    bool shadow; /* reckons what an LRU cache of so many blocks would have missed, see
                    stats.lru_misses; takes 28 bytes a block for small caches, and down
                    to half a byte for large ones */
    bool data;   /* false: keep track of blocks but hold no bytes (for
                    simulation): buffers passed in may be NULL */

    /* Told of each prefetched block that leaves unused, when stats.wasted counts it;
     * called with internal locks held, so it must not call back into the cache.  Blocks
     * that qm_cache_free() finds do not count.  May be NULL. */
    void (*wasted)(void *opaque, uint64_t block, uint32_t issuer);
    void *opaque;
};

/* Always, when no thread is inside the cache:
 *
 *   prefetches == used + wasted + prefetch_blocks
 *   demands that returned 0 == hits + promotes + misses
 *   fills given out == fills filled and kept + detached + failed + fills not ended yet
 *
 * A prefetched block is used when it moves to the main cache, by qm_cache_demand() or
 * _demand_again() (so promotes <= used), and wasted when it leaves the prefetch cache
 * in any other way, filled or not: evicted, failed, dropped by a write, not kept. */
struct qm_cache_stats {
    uint64_t hits, promotes, misses; /* qm_cache_demand() that returned 0, by outcome */
    uint64_t prefetches;             /* qm_cache_prefetch() that returned 0 */
    uint64_t used;                   /* of these, moved to the main cache */
    uint64_t wasted;                 /* of these, gone without a demand */
    uint64_t evicted;                /* blocks that left the main cache for others */
    uint64_t failed;                 /* fills that ended in qm_cache_fail() */
    uint64_t detached;               /* fills filled but not kept: evicted or written
                                        meanwhile, or no buffer was free */
    uint64_t main_blocks;            /* held now, those being filled included */
    uint64_t prefetch_blocks;
    uint64_t prefetch_share; /* how many it may have, as things are */
    uint64_t lru_misses;     /* demands that an LRU cache of as many blocks would have
                                missed, without prefetching, about; 0: no shadow */
    uint64_t bytes;          /* memory held now: data and metadata */
};

/* How many blocks fit into a budget of bytes, everything that caching costs included:
 * data, headers, hash table, rings of noted accesses, what eviction keeps (by a policy
 * that has a name), and the reserve.  What is not data comes to about 5 % of it at 16
 * KiB a block, 10 % at 1 MiB in all.  A cache of that many blocks, whatever its shards,
 * prefetch blocks and policy, never has more than that in stats.bytes.  0 if not even
 * one block fits, or the block size is not allowed. */
uint64_t qm_cache_blocks_within(uint64_t bytes, uint32_t block_size);

/* The other way round: the most that a cache of so many blocks ever has in stats.bytes,
 * whatever the rest of its configuration.  Blocks and block size must be allowed. */
uint64_t qm_cache_footprint(uint64_t blocks, uint32_t block_size);

/* Checks config and, if it is wrong, puts one sentence that says what is allowed into
 * err (at most len bytes, always terminated; may be NULL if len is 0).  Returns 0 (err
 * is
 * "") or EINVAL. */
int qm_cache_check(const struct qm_cache_config *config, char *err, size_t len);

/* Makes a cache; config is copied.  On success *cache is the caller's, to be freed with
 * qm_cache_free().  Returns 0, EINVAL (qm_cache_check() says why) or ENOMEM. */
int qm_cache_new(const struct qm_cache_config *config, struct qm_cache **cache);

/* Frees the cache (NULL: nothing).  No other thread may be using it, and no fill may be
 * held. */
void qm_cache_free(struct qm_cache *cache);

/* Demands bytes [offset, offset + count) of block; they must lie within it.
 *
 * Returns 0 and fills in *found.  When found->todo is QM_DONE the bytes are in buf.
 * On ENOMEM nothing changed or was counted, and the caller should read past the cache.
 * Never blocks on I/O.
 *
 * A miss and a promote enter the main cache here and now, and evict for it (ATC'08
 * §4.2), though a promoted block may still be on its way (QM_WAIT). */
int qm_cache_demand(struct qm_cache *cache, uint64_t block, void *buf, uint32_t offset,
                    uint32_t count, struct qm_lookup *found);

/* The same for a caller that waited for this block in vain (EAGAIN of qm_cache_wait()):
 * it is the same demand still, so no hit, promote or miss is counted.  (If the block
 * was prefetched meanwhile it is used all the same.) */
int qm_cache_demand_again(struct qm_cache *cache, uint64_t block, void *buf,
                          uint32_t offset, uint32_t count, struct qm_lookup *found);

/* Hands over the data of a block that was to be fetched: block_size bytes, which are
 * copied (past the end of the device, zeros).  Wakes those who wait.  Consumes fill.
 *
 * Returns whether it is kept, see above.  If not, a reader looks with qm_cache_peek()
 * before he uses the data. */
bool qm_cache_fill(struct qm_cache *cache, struct qm_fill *fill, const void *data);

/* Copies bytes of a block as qm_cache_demand() does, if it is there, but demands
 * nothing: nothing is counted, filled or made more recent.  Returns whether it was
 * there.
 *
 * It is for who has read a block past the cache, or by a fill that was not kept.  While
 * a write is in flight such data may be newer than what others find in the cache, and
 * this reader must not be ahead of those who come after him. */
bool qm_cache_peek(struct qm_cache *cache, uint64_t block, void *buf, uint32_t offset,
                   uint32_t count);

/* The block could not be read: it leaves the cache; those who wait get EAGAIN, so that
 * each tries by itself and sees its own error.  Consumes fill. */
void qm_cache_fail(struct qm_cache *cache, struct qm_fill *fill);

/* Waits until another thread has filled fill, and copies the bytes.  Returns 0; or
 * EAGAIN, as soon as fill has failed or was detached: use qm_cache_demand_again().
 * Consumes fill either way.  There is no time-out: a fill is always filled or failed.
 */
int qm_cache_wait(struct qm_cache *cache, struct qm_fill *fill, void *buf,
                  uint32_t offset, uint32_t count);

/* Whether block is in either part, filled or being filled.  A hint: it may change. */
bool qm_cache_contains(struct qm_cache *cache, uint64_t block);

/* Starts a prefetch (ATC'08 §3.1): block enters the prefetch cache, without data, on
 * behalf of issuer (a number of the caller's, given back by promotes and by wasted()).
 * Returns 0 (read it, then fill or fail *fill), EEXIST (it is there, in either part),
 * ENOSPC (no prefetch cache) or ENOMEM. */
int qm_cache_prefetch(struct qm_cache *cache, uint64_t block, uint32_t issuer,
                      struct qm_fill **fill);

/* What becomes of a fill that the caller holds, as things are. */
enum qm_wanted {
    QM_UNWANTED, /* evicted, or written to, meanwhile: what it brings is not kept */
    QM_AHEAD,    /* prefetched, and nobody has demanded it yet */
    QM_DEMANDED,
};

enum qm_wanted qm_cache_wanted(struct qm_cache *cache, struct qm_fill *fill);

/* A write through the cache.  The caller announces it, writes the layer below, and
 * tells how it went, in this order, before it acknowledges the write:
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
 * before the end are detached.  If two writes to the same bytes overlap in time, their
 * order below is not known, so each drops the blocks that it wrote to.
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

/* What was read of the device, and what would have been by plain LRU, in blocks since
 * the cache was made: of qm_cache_get_stats(), at less cost. */
struct qm_cache_reads {
    uint64_t device; /* misses and prefetches */
    uint64_t lru;    /* lru_misses */
};

void qm_cache_get_reads(struct qm_cache *cache, struct qm_cache_reads *reads);

#endif
