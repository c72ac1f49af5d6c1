/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the parts of a tier share.
 *
 *   tier.c     opening, closing, threads, errors, death
 *   recover.c  superblock, identity, witness; reads footers into the index
 *   index.c    block -> slot, in shards
 *   log.c      segments: filling, footers, eviction
 *   queue.c    inserted blocks that wait for the log
 *   read.c     lookups and the threads that read
 *   journal.c  changes of the volume: stamps, invalidation
 *   intent.c   the write-intent map, flushes
 *   verify.c   what others may have changed before
 *   admit.c    frequency sketch, write budget, Bloom filter
 *   reuse.c    how often offered and evicted blocks are read again
 *   resize.c   grows and shrinks
 *   format.c   the file's format; io.c the file; ring.c reads of it by io_uring
 *
 * Locks, in the order in which they may be nested: log.lock, verify.lock, shard.lock.
 * intent.lock, queue.lock, reader.lock, reuse.lock, die_lock are leaves, but that
 * tier_die() may be called with any held except itself.
 *
 * A segment is *pinned* by a thread that uses one of its slots outside a shard's lock,
 * to read its data or to set its tag.  It is pinned under the lock of the shard while
 * the index has the slot.  A slot is filled anew only when its block is not in the
 * index and no pin from before that is left.  Pins have two phases, so that those of
 * blocks that stay in a segment, which come all the time, are not waited for.
 */
#ifndef QM_TIER_INTERNAL_H
#define QM_TIER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tier/admit.h"
#include "tier/format.h"
#include "tier/io.h"
#include "tier/rebuild.h"
#include "tier/reuse.h"
#include "tier/tier.h"
#include "tier/witness.h"

#define NO_SEGMENT UINT32_MAX

enum segment_state { SEGMENT_FREE, SEGMENT_FILLING, SEGMENT_SEALED, SEGMENT_EVICTING };

struct segment {
    /* By phase.  A call of qm_tier_read() pins a segment up to 64 times, and the number
     * of threads that call it has no bound here. */
    _Atomic uint32_t pins[2];
    _Atomic uint32_t live;    /* blocks in the index */
    uint32_t next, prev;      /* in the list of free or sealed ones; log.lock */
    uint8_t state;            /* log.lock */
    _Atomic uint8_t doubtful; /* a crash of the machine may have taken its data */
    _Atomic uint8_t phase;    /* of new pins */
    uint64_t filled;          /* when, ns */
    _Atomic uint64_t incarnation;
};

/* Segments never move: a table of chunks. */
#define CHUNK_BITS 10
#define CHUNK      (1u << CHUNK_BITS)

/* An entry of the index: 16 bytes, in an open hash table with linear probing. */
struct entry {
    uint64_t a; /* 0: none; else used:1 heat:3 restored:1 check_hi:11 block:48 */
    uint64_t b; /* slot:32 check_lo:32 */
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct entry *entries;
    uint64_t size, used;
};

struct slot {
    uint64_t block, check;
    uint32_t segment, slot;
    unsigned heat;
    bool restored;
    uint8_t phase; /* of the pin, if there is one */
};

/* A block that waits to be written. */
struct item {
    uint64_t block, ticket;
    const void *data;
    void (*release)(void *cookie);
    void *cookie;
    unsigned heat; /* that it has from the beginning */
};

struct list {
    uint32_t head, tail; /* oldest first */
    uint32_t n;
};

struct counters {
    _Atomic uint64_t lookups, hits, misses, inserted, exists, refused, scans, over_rate,
        stale, full, voided, failed, handed_on, kept, evicted, invalidated,
        bytes_written, syncs, regions_marked, regions_cleared, stalls, read_errors,
        write_errors, wrong_checksums, lost_in_crash, recovered, dropped, unread,
        verified, outdated;
};

/* Blocks hash to stamps: when a write to one of them began or ended last, and how many
 * are in flight.  A collision makes an insert ESTALE that need not be. */
#define STAMPS 16384

struct stamp {
    _Atomic uint64_t last;
    _Atomic uint32_t in_flight;
};

#define BUSY 4096 /* counters of writes in flight, to which regions hash */

struct batch; /* read.c */

struct qm_tier {
    struct qm_tier_config config;
    struct qm_tier_geometry g; /* segments change under log.lock */
    struct qm_tier_io io;
    struct qm_tier_witness witness; /* die_lock */
    struct qm_tier_super super;     /* die_lock */
    struct counters n;
    uint64_t seed; /* of the index' hash */
    uint64_t recovery_ns;
    _Atomic uint64_t memory, index_memory, blocks, size;
    _Atomic bool filled; /* no segment is free */

    struct shard *shards;
    unsigned shard_bits;
    struct segment *_Atomic *chunks;
    uint32_t chunks_max;

    struct {
        pthread_mutex_t lock;
        struct list free, sealed;
        uint32_t filling;  /* or NO_SEGMENT */
        uint32_t used;     /* its slots below this are taken */
        uint32_t unlisted; /* of these, not in the footer that is in the file */
        uint64_t incarnation;
        struct qm_tier_footer *footer; /* of filling, with entries */
        struct qm_tier_footer *victim; /* of a segment that is looked at */
        uint8_t *tags;
        uint8_t *taken; /* of filling: slots that keep their blocks */
        void *staging;  /* batch_slots blocks, aligned */
        uint32_t batch_slots;
        uint64_t no_space_until; /* ns; after ENOSPC */
    } log;

    struct {
        pthread_mutex_t lock;
        pthread_cond_t filled, drained;
        struct item *items; /* ring */
        char *copies;       /* a buffer for each, NULL without data */
        uint32_t size, head, n;
        bool stop, draining;
        bool asleep; /* its thread must be woken for a single item, too */
        pthread_t thread;
        bool running;
    } queue;

    struct {
        pthread_mutex_t lock;
        pthread_cond_t work, buffers_free;
        struct batch *first;
        void **buffers;
        unsigned free, total;
        pthread_t *threads;
        unsigned running;
        bool stop;
    } reader;

    struct {
        _Atomic uint64_t now; /* the order of writes; tickets are of it */
        struct stamp *stamps;
        _Atomic uint64_t floor;   /* the stamp of all */
        _Atomic uint32_t wide;    /* in flight */
        _Atomic uint32_t writing; /* all that are in flight */
    } journal;

    struct {
        pthread_mutex_t lock;
        _Atomic uint64_t *bits; /* of slots: unverified */
        uint64_t slots;         /* that have a bit */
        _Atomic uint64_t left;  /* bits that are set */
    } verify;

    struct {
        pthread_mutex_t lock; /* of the thread that erases it; before die_lock */
        /* In the file, and the next change erases it; die_lock. */
        _Atomic bool recorded;
        _Atomic bool disclaimed; /* none is recorded any more; die_lock */
    } state;

    struct {
        pthread_mutex_t lock;
        _Atomic uint64_t *marked; /* durable in the file */
        _Atomic uint64_t *wanted; /* will be durable with the next write of its page */
        _Atomic uint64_t *uncovered; /* changes ended since the last flush began */
        _Atomic uint64_t *warm;      /* changed since the last round of clearing */
        _Atomic uint64_t *changed;   /* changed since candidates were chosen */
        uint64_t *candidates;        /* to be cleared after a sync; keeper.sync_lock */
        uint64_t round;              /* when the last round of clearing was, ns */
        uint64_t words;
        _Atomic uint64_t regions;
        _Atomic uint32_t *busy;
        struct qm_tier_map_page *page;
        uint64_t flushing; /* token of the flush that is followed, 0: none; lock */
        uint64_t token;
        bool covered; /* a flush has ended well: what is not uncovered may be cleared */
    } intent;

    struct qm_tier_admission admission;
    struct rebuild rebuild;
    struct reuse reuse;

    struct {
        pthread_mutex_t lock;
        pthread_cond_t wake;
        pthread_t thread;
        bool running, stop;
        pthread_mutex_t sync_lock; /* one clears at a time; before intent.lock */
        uint64_t synced;           /* bytes_written at the last sync */
    } keeper;
    char boot_id[40];
    bool found; /* the file had a tier when it was opened */

    pthread_mutex_t die_lock;
    _Atomic bool dead, unsafe;
    char reason[160]; /* die_lock */
    _Atomic unsigned error_score;
    _Atomic unsigned successes;
    _Atomic uint32_t told; /* kinds of warnings: bits of enum warning */
};

enum warning {
    WARN_READ = 1,
    WARN_WRITE = 2,
    WARN_CHECKSUM = 4,
    WARN_SPACE = 8,
    WARN_GONE = 16,
    WARN_WITNESS = 32,
    WARN_OUTDATED = 64,
};

#define COUNT(t, what) atomic_fetch_add_explicit(&(t)->n.what, 1, memory_order_relaxed)
#define ADD(t, what, many)                                                             \
    atomic_fetch_add_explicit(&(t)->n.what, (many), memory_order_relaxed)

static inline struct segment *segment_of(struct qm_tier *t, uint32_t number)
{
    return &atomic_load_explicit(&t->chunks[number >> CHUNK_BITS],
                                 memory_order_acquire)[number & (CHUNK - 1)];
}

static inline void unpin(struct qm_tier *t, const struct slot *slot)
{
    atomic_fetch_sub(&segment_of(t, slot->segment)->pins[slot->phase], 1);
}

static inline bool tier_dead(struct qm_tier *t)
{
    return atomic_load(&t->dead);
}

/* tier.c */
void tier_warn(struct qm_tier *t, unsigned once, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The tier is not to be believed from now on: returns when that is stored, or cannot
 * be. */
void tier_die(struct qm_tier *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns when no tier_die() is running. */
void tier_wait_dead(struct qm_tier *t);
/* An error of the disk: warns once, and after many calls tier_die(). */
void tier_error(struct qm_tier *t, enum warning kind, int error);
void tier_success(struct qm_tier *t);
uint64_t tier_now(struct qm_tier *t);
void *tier_alloc(struct qm_tier *t, size_t bytes); /* zeros */
void *tier_pages(struct qm_tier *t, size_t bytes); /* aligned to 4096; not cleared */
int tier_write(struct qm_tier *t, enum qm_tier_file file, const void *buf, size_t n,
               uint64_t at, bool durable); /* counts bytes */
int tier_sync(struct qm_tier *t);

/* index.c */
int index_new(struct qm_tier *t, uint64_t slots);
void index_free(struct qm_tier *t);
/* Makes room for that many slots. ENOMEM changes nothing. */
int index_resize(struct qm_tier *t, uint64_t slots);
/* Fetches what index_add() of a block will look at. */
void index_prefetch(struct qm_tier *t, uint64_t block);
/* Finds block and pins its segment. */
bool index_find(struct qm_tier *t, uint64_t block, struct slot *found);
bool index_contains(struct qm_tier *t, uint64_t block);
/* Whether block is still where it was found; if so, and heat, makes it hotter. */
bool index_confirm(struct qm_tier *t, const struct slot *found, bool heat);
/* Makes a block that is still where it was found cooler. */
void index_cool(struct qm_tier *t, const struct slot *found);
/* Adds a block, unless it is there (EEXIST), was written to since ticket (ESTALE), or
 * there is no room (ENOSPC). */
int index_add(struct qm_tier *t, const struct slot *slot, uint64_t ticket);
/* Removes a block if it is in that slot; no pin. */
bool index_remove_from(struct qm_tier *t, uint64_t block, uint32_t segment,
                       uint32_t slot);
/* The same question without removing. */
bool index_is_at(struct qm_tier *t, uint64_t block, uint32_t segment, uint32_t slot,
                 struct slot *found);
/* Up to most blocks of [first, last], from a cursor on that begins as zeros; 0: the
 * end. Blocks that are removed meanwhile move others, which a pass may then miss. */
struct cursor {
    unsigned shard;
    uint64_t at;
};
uint64_t index_gather(struct qm_tier *t, struct cursor *cursor, uint64_t first,
                      uint64_t last, uint64_t *blocks, uint64_t most);
/* Calls each() for all blocks, with their shard's lock held: it must not call the
 * index. */
void index_each(struct qm_tier *t, void (*each)(void *, const struct slot *),
                void *opaque);

/* log.c; all but those of tags with log.lock */
int log_new(struct qm_tier *t);
void log_free(struct qm_tier *t);
int log_add_segments(struct qm_tier *t, uint32_t from, uint32_t to);
void log_push(struct qm_tier *t, struct list *list, uint32_t segment);
void log_unlink(struct qm_tier *t, struct list *list, uint32_t segment);
/* Writes items, and releases those with release.  Takes log.lock. */
void log_write(struct qm_tier *t, const struct item *items, uint32_t n);
/* Writes the footer of the segment that is being filled, if it is behind. */
int log_footer(struct qm_tier *t);
/* Empties a segment, which is in no list. */
int log_empty(struct qm_tier *t, uint32_t segment);
/* Sets tags to dead: of the slots [slot, slot + n). */
int log_kill(struct qm_tier *t, uint32_t segment, uint32_t slot, uint32_t n);

/* queue.c */
int queue_new(struct qm_tier *t);
void queue_free(struct qm_tier *t);
void queue_stop(struct qm_tier *t);
/* qm_tier_insert(), of a block that is so hot. */
int queue_insert(struct qm_tier *t, const struct qm_tier_insert *insert, unsigned heat);
int queue_start(struct qm_tier *t);

/* read.c */
int reader_new(struct qm_tier *t);
void reader_free(struct qm_tier *t);
int reader_start(struct qm_tier *t);
void reader_stop(struct qm_tier *t);

/* journal.c */
int journal_new(struct qm_tier *t);
void journal_free(struct qm_tier *t);
bool journal_is_stale(struct qm_tier *t, uint64_t block, uint64_t ticket);
/* Drops one block because its copy is bad. */
void journal_drop(struct qm_tier *t, uint64_t block);

/* verify.c */
int verify_new(struct qm_tier *t);
void verify_free(struct qm_tier *t);
/* Whether what the file has is right, as far as the caller's states say. */
bool verify_is_proven(const struct qm_tier *t);
/* A slot is unverified from now on: in recovery. */
void verify_expect(struct qm_tier *t, uint32_t segment, uint32_t slot);
bool verify_pending(struct qm_tier *t, uint32_t segment, uint32_t slot);
/* It is not any more.  Returns whether it was. */
bool verify_done(struct qm_tier *t, uint32_t segment, uint32_t slot);
/* For functions that kill tags; see verify.c. */
bool verify_lock(struct qm_tier *t);
void verify_unlock(struct qm_tier *t, bool locked);
/* Before a change of the volume, which is counted in journal.writing. */
void state_change(struct qm_tier *t);
/* Records the state if it can be known now.  False: later, perhaps. */
bool state_observe(struct qm_tier *t);
/* At the end: waits a little until it can be. */
void state_settle(struct qm_tier *t);

/* intent.c */
int intent_new(struct qm_tier *t);
void intent_free(struct qm_tier *t);
int intent_format(struct qm_tier *t); /* writes an empty map */
int intent_load(struct qm_tier *t);   /* reads it */
bool intent_is_marked(struct qm_tier *t, uint64_t block);
void intent_forget(struct qm_tier *t); /* all unmarked, in memory */
void intent_begin(struct qm_tier *t, uint64_t offset, uint64_t count);
void intent_end(struct qm_tier *t, uint64_t offset, uint64_t count);
/* Clears what may be cleared; the file is synced in it if there is something. */
int intent_clear(struct qm_tier *t, bool urgent);

/* recover.c */
int recover_open(struct qm_tier *t, char *err, size_t len);
int super_write(struct qm_tier *t, enum qm_tier_state state);
int super_resize(struct qm_tier *t, uint32_t segments);
int super_store(struct qm_tier *t, bool durable); /* as it is; with die_lock */
/* Makes the tier's contents invalid, one way or another.  False: no way worked. */
bool super_invalidate(struct qm_tier *t);

#endif
