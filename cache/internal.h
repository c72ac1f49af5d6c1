/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the files of the cache share.
 *
 * A cache is a number of shards; a block belongs to one by its number's hash, and so do
 * the memory that holds it, its place in an eviction order, and its counters.  Shards
 * share nothing but the list of writes in flight.
 *
 * Finding a block takes no lock: each shard has a lock-free hash table, read under RCU.
 * A reader that finds a block which is `hittable` copies its bytes and notes the access
 * in a ring; everything else happens under the shard's mutex:
 *
 *   - changes of the table, the eviction orders, a block's part or its references;
 *   - noted accesses are applied (drained) before any decision that depends on order,
 *     and before a block leaves the main cache.
 *
 * Memory.  Blocks (headers) and buffers (bytes) come from slabs, which never change
 * shards.  What leaves the table goes to limbo until a grace period has passed, then to
 * a free list.  So a pointer to a header is always one to a header of that shard,
 * though perhaps of another block by now: rings rely on it.  Both are limited in
 * number, and what is in limbo counts; that bounds the memory.  Slabs are given back
 * when the cache shrinks (trim.c), and never otherwise.
 *
 * Locks, in order: the mutex of resizing, the lock of the lists of slabs, a shard's
 * mutex, the mutex of the writes in flight.  No thread
 * holds two shards' mutexes, and none waits for a grace period with a mutex held (the
 * one of the grace periods themselves is taken with no other).
 */
#ifndef QM_CACHE_INTERNAL_H
#define QM_CACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/balance.h"
#include "cache/cache.h"
#include "cache/eviction.h"
#include "cache/hash.h"
#include "cache/rcu.h"
#include "cache/shadow.h"

#define QM_CACHE_LINE     64
#define QM_HUGE_PAGE      (UINT64_C(2) << 20)
#define QM_MIN_BLOCK_SIZE 512
#define QM_MAX_BLOCK_SIZE (16u << 20)
#define QM_MAX_SHARDS     1024
#define QM_MAX_STRIPES    64
#define QM_MAX_BLOCKS     (UINT64_C(1) << 32)

/* A thread-local variable that is reached without a call.  A plugin can have only a few
 * bytes of these: the C library reserves little static TLS for libraries that are
 * loaded later. */
#define QM_TLS_FAST __attribute__((tls_model("initial-exec")))

/* Describes the memory for the bytes of a block.  Separate from the bytes, because
 * readers may still copy them while the descriptor is linked into limbo. */
struct qm_buf {
    struct qm_buf *next; /* in limbo or in the free list */
    unsigned char *bytes;
};

struct qm_block {
    struct cds_lfht_node node;
    struct qm_evict_node
        evict; /* has the block's number, constant while in the table */
    /* Duplicates buf->bytes; saves readers a cache miss.  Set when filled, replaced by
     * writes (RCU). */
    _Atomic(unsigned char *) bytes;
    atomic_bool hittable;       /* filled and in the main cache */
    _Atomic unsigned char hits; /* since it came, at most QM_CACHE_EARLY_HITS; a
                                   reader that is held up may set it back */

    /* The rest only with the shard's mutex held; but hand_over() writes to `leaving`,
     * one memory location with `filled`, when nobody else has the block any more. */
    bool filled : 1;       /* bytes is valid (or would be, in a cache without data) */
    bool leaving : 1;      /* in limbo: to be handed over, evict.aux has the number */
    unsigned char part;    /* enum qm_part */
    uint32_t issuer;       /* of the prefetch */
    uint32_t refs;         /* struct qm_fill given out: the owner's and the waiters' */
    uint32_t waiting;      /* threads inside qm_cache_wait() */
    struct qm_buf *buf;    /* NULL: none */
    struct qm_block *next; /* in limbo or in the free list */
};

/* Accesses that are noted but not applied yet.  A thread always uses the same ring of a
 * shard, possibly with other threads; `busy` is tried, never waited for. */
#define QM_RING_SLOTS 28
struct qm_ring {
    atomic_flag busy;
    _Atomic uint32_t used;      /* slots; changed only while busy */
    _Atomic uint64_t hits;      /* changed only while busy */
    _Atomic uint64_t contended; /* hits that found the ring busy: counted, not noted */
    struct qm_block *slot[QM_RING_SLOTS];
} __attribute__((aligned(QM_CACHE_LINE)));

struct qm_block_slab {
    struct qm_block_slab *next;
    size_t count;
    struct qm_block blocks[];
};

/* Only the first slab of a shard may have fewer buffers than it has room for. */
struct qm_buf_slab {
    struct qm_buf_slab *next;
    unsigned char *bytes; /* a mapping of its own */
    size_t room;          /* buffers that there is a place for */
    size_t count;         /* made, from the first on; the others' bytes were never
                             written to, or were given back */
    struct qm_buf bufs[];
};

/* What a shard of a given capacity may grow to. */
struct qm_limits {
    uint64_t bufs;    /* its capacity and a reserve, see qm_limits_get() */
    uint64_t blocks;  /* likewise */
    uint64_t buckets; /* of the hash table */
    uint64_t batch;   /* objects in limbo that are worth a grace period */
    uint64_t bufs_a_slab;
    uint64_t bytes; /* upper bound of the shard's memory, struct qm_shard included */
};

struct qm_trim; /* trim.c */

struct qm_shard_stats {
    uint64_t hits, prefetch_hits, misses, prefetches, used, wasted, evicted, failed,
        detached;
};

struct qm_shard {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* a fill that readers wait for was ended or detached */
    struct qm_cache *cache;
    struct cds_lfht *table;
    struct qm_ring *rings; /* cache->stripes of them */

    const struct qm_evict_ops *main_ops, *prefetch_ops;
    void *main, *prefetch; /* policies */
    struct qm_balance balance;
    struct qm_held held;
    struct qm_shadow shadow;

    struct qm_limits limits;
    _Atomic uint64_t batch; /* limits.batch, for threads without the mutex */
    uint64_t made;          /* blocks that the policies and ghosts have memory for */
    uint64_t main_made;     /* of them, the main one */
    size_t made_bytes;      /* that are counted for it */
    uint64_t most_buckets;  /* that the table can ever have */
    uint64_t odd_slabs;     /* buffer slabs with less room than limits.bufs_a_slab */
    bool resized;           /* ever: slabs are made of full size then */
    struct qm_trim *trim;   /* NULL: no slab is about to be given back */
    struct qm_block_slab *block_slabs;
    struct qm_buf_slab *buf_slabs;
    uint64_t blocks_made, bufs_made;
    struct qm_block *free_blocks, *limbo_blocks;
    struct qm_buf *free_bufs, *limbo_bufs;
    _Atomic uint64_t limbo; /* blocks and bare buffers there */
    /* Taken out of limbo by the thread that waits for a grace period. */
    struct qm_block *graced_blocks;
    struct qm_buf *graced_bufs;
    /* Counts blocks that were made visible; increased after that, with the mutex held.
     * A thread that did not find a block, and under the mutex reads the same count as
     * before its look-up, need not look again. */
    _Atomic uint64_t published;
    uint64_t buckets; /* of the table; grown after inserting */
    bool growing;
    uint64_t bytes; /* held now, the shard itself included */
    struct qm_shard_stats stats;
} __attribute__((aligned(2 * QM_CACHE_LINE)));

struct qm_cache {
    struct qm_cache_config config;
    unsigned shard_count, stripes; /* powers of two */
    struct qm_shard *shards;
    _Atomic uint64_t reserved; /* blocks, of each shard: qm_cache_reserve() */
    _Atomic uint64_t blocks;   /* present capacity; config.blocks is the first one */

    pthread_mutex_t resize_lock; /* one thread resizes */
    uint64_t compared;           /* qm_cache_compare()'s; resize_lock */
    pthread_rwlock_t slabs_lock; /* slabs go with it held for writing, and their lists
                                    are followed with it held for reading, or with the
                                    shard's mutex */

    pthread_mutex_t grace_lock;
    pthread_cond_t grace_ended;
    bool grace; /* some thread waits for a grace period, for all */

    pthread_mutex_t writes_lock;
    struct qm_cache_write *writes; /* in flight */
    _Atomic uint64_t writes_count; /* how many; changed with writes_lock held */
};

/* ---- budget.c: how large things are */

/* The number of shards that a cache gets: fewer than wanted if they would be too small.
 */
unsigned qm_budget_shards(uint64_t blocks, uint64_t prefetch_blocks, unsigned wanted);
unsigned qm_budget_stripes(unsigned wanted_shards);
/* beside: bytes of the shard's ghosts and shadow, qm_budget_beside(). */
void qm_limits_get(struct qm_limits *limits, uint64_t blocks, uint32_t block_size,
                   bool data, unsigned stripes, size_t policy_bytes, size_t beside);
/* The batch of a cache with data. */
uint64_t qm_limits_batch(uint64_t blocks);
/* Bytes of a shard without blocks. */
size_t qm_budget_shard_bytes(uint64_t blocks, unsigned stripes, size_t policy_bytes,
                             size_t beside);
size_t qm_budget_beside(uint64_t blocks, uint64_t all, bool adapts, bool shadow);
size_t qm_budget_block_slab(uint64_t count);
size_t qm_budget_buf_slab(uint64_t count, uint32_t block_size);
#define QM_BLOCKS_A_SLAB 256
#define QM_MIN_BUCKETS   256

/* ---- slab.c: blocks and buffers.  Mutex held. */

/* A block in no part, without references, not filled; NULL if memory or the limit is
 * exhausted. */
struct qm_block *qm_slab_block(struct qm_shard *shard);
struct qm_buf *qm_slab_buf(struct qm_shard *shard);
/* Returns a buffer that was never published to the free list: no reader can have it. */
void qm_slab_unused_buf(struct qm_shard *shard, struct qm_buf *buf);
/* Retires what was published: it becomes free after a grace period. */
void qm_slab_retire_block(struct qm_shard *shard, struct qm_block *block);
void qm_slab_retire_buf(struct qm_shard *shard, struct qm_buf *buf);

/* How often a thread waits so before it does without. */
#define QM_RECLAIM_TRIES 4
/* Waits for a grace period and frees what is in limbo; mutex NOT held, and not within
 * an RCU read-side section.  If another thread is already doing so, waits for that one
 * (if `wait`), or returns at once.  Returns whether there may be more free memory than
 * before. */
bool qm_slab_reclaim(struct qm_shard *shard, bool wait);
void qm_slab_destroy(struct qm_shard *shard);
size_t qm_slab_mapped(const struct qm_buf_slab *slab, uint32_t block_size);

/* ---- trim.c */

/* Resizing works on this many blocks at a time while it holds the mutex. */
#define QM_STEP 64

/* Gives back what the shard has beyond its limits; the cache's resize_lock is held, no
 * other.  Returns 0; EAGAIN if fills in flight have something of it; or ENOMEM. */
int qm_shard_trim(struct qm_shard *shard);

/* Mutex held: whether what was just free is about to be given back, and has been set
 * aside. */
bool qm_trim_takes_block(struct qm_shard *shard, struct qm_block *block);
bool qm_trim_takes_buf(struct qm_shard *shard, struct qm_buf *buf);

/* ---- shard.c */

/* blocks: capacity of both parts.  prefetch_blocks: initial size of the prefetch
 * partition.  Returns 0 or ENOMEM. */
int qm_shard_init(struct qm_shard *shard, struct qm_cache *cache, uint64_t blocks,
                  uint64_t prefetch_blocks);
void qm_shard_destroy(struct qm_shard *shard);

static inline struct qm_shard *qm_shard_of(struct qm_cache *cache, uint64_t hash)
{
    return &cache->shards[(hash >> 32) & (cache->shard_count - 1)];
}

/* The block of that number, or NULL.  Within an RCU read-side section. */
struct qm_block *qm_shard_find(struct qm_shard *shard, uint64_t hash, uint64_t number);

/* Notes a hit on block, found in the same RCU read-side section, and counts it. */
void qm_shard_record(struct qm_shard *shard, struct qm_block *block, bool count);

/* The following with the mutex held. */

/* Applies noted accesses to the eviction order.  Returns whether no ring was in use, so
 * that all are empty. */
bool qm_shard_drain(struct qm_shard *shard);
/* Evicts a block of part `from`, which is not empty, in favour of block incoming or
 * QM_EVICT_NOBODY. */
void qm_shard_evict(struct qm_shard *shard, enum qm_part from, uint64_t incoming);
/* Tells the main part's policy its target capacity. */
void qm_shard_resize_main(struct qm_shard *shard);
/* Block from, which has no references, is to; the latter is free. */
void qm_shard_move(struct qm_shard *shard, struct qm_block *from, struct qm_block *to);
/* Puts block, which must be in no part, into `part`; evicts another if it is full. */
void qm_shard_enter(struct qm_shard *shard, struct qm_block *block, enum qm_part part);
/* Moves block from the prefetch part to the main part. */
void qm_shard_promote(struct qm_shard *shard, struct qm_block *block);
/* Makes block, which has just entered a part, visible. */
void qm_shard_publish(struct qm_shard *shard, struct qm_block *block, uint64_t hash);
/* Removes block, which must be in a part, for another reason than eviction. */
void qm_shard_discard(struct qm_shard *shard, struct qm_block *block);
/* Completes the fill of block with buf (NULL in a cache without data). */
void qm_shard_filled(struct qm_shard *shard, struct qm_block *block,
                     struct qm_buf *buf);
/* Publishes buf.  Readers that began before may still copy from the former buffer. */
static inline void qm_block_set_buf(struct qm_block *block, struct qm_buf *buf)
{
    block->buf = buf;
    atomic_store_explicit(&block->bytes, buf ? buf->bytes : NULL, memory_order_release);
}
/* Drops a reference. */
void qm_shard_unref(struct qm_shard *shard, struct qm_block *block);

/* Doubles the hash table if it has more blocks than buckets.  Mutex NOT held. */
void qm_shard_grow(struct qm_shard *shard);

/* ---- writes.c */

/* Whether a write to any byte of block number is in flight. */
bool qm_writes_overlap(struct qm_cache *cache, uint64_t number);

#endif
