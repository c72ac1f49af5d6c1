/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.h - a second tier: a read cache on a local SSD that survives crashes, as a
 * library.
 *
 * A tier holds copies of blocks of one volume in one file or partition.  Blocks that
 * leave memory are inserted; a miss in memory looks here before it goes to the backend.
 * The library knows neither NBD nor prefetching, and does I/O on its own file only.
 *
 *   qm_tier_open()         opens or makes a tier, and recovers what it holds
 *   qm_tier_read()         looks up blocks, and reads those that it has, in parallel
 *   qm_tier_insert()       hands over a block that was evicted from memory
 *   qm_tier_write_begin()  before each change of the volume, and ..._end() after it
 *   qm_tier_flush_begin()  before each flush of the volume, and ..._end() after it
 *   qm_tier_close()        ends it, at the server's end or while service goes on
 *
 * THE RULE.  A block of which the backend has a newer version is never served, not even
 * for a write that was not acknowledged, and whatever dies when.  The caller's part in
 * it:
 *
 *   1. From qm_tier_open() to qm_tier_close() no byte of the volume changes but between
 *      qm_tier_write_begin() and ..._end(): by writes, zeroing and trims, of this
 *      program and of all others.  The caller says, by the states in struct
 *      qm_tier_config, what happened to the volume while the tier was not open; what it
 *      cannot say is found out block by block: see enum qm_tier_verify.
 *   2. A ticket is taken (qm_tier_ticket()) while the evicted data certainly equals the
 *      volume's, or a write is in flight that was begun before: in a cache, before the
 *      block is unlinked or under the same lock.  The cache is brought up to date
 *      before qm_tier_write_end().
 *   3. If qm_tier_open() fails, and the volume is served without the tier, either a
 *      witness was configured (see struct qm_tier_config), or the file is removed
 *      before the tier is used again.
 *
 * Two kinds of crash.  If the process dies, all that it has written is still in the
 * kernel: a change marks the copy that it outdates by one buffered pwrite() before
 * qm_tier_write_begin() returns, so that a restarted server drops just those blocks. If
 * the machine dies (it has another boot id afterwards), writes of the last seconds are
 * lost: a write-intent map has one bit for each 4 MiB of the volume, which is durable
 * before the first change in them, and all blocks of marked regions are dropped.  Bits
 * are cleared some time after a flush of the volume that covers the region's changes.
 * format.h has the details, and what cannot be told.
 *
 * Failure.  An I/O error or a wrong checksum is a miss.  After repeated errors, and at
 * the first that would break the rule, the tier is *dead*: its contents are marked
 * invalid, one warning says so, reads miss, inserts fail, writes cost nothing; it
 * remains to be closed.
 *
 * Threads.  Every function may be called by any number of threads at the same time
 * unless its comment says otherwise.  The library starts threads of its own in
 * qm_tier_open(), so a daemon opens a tier after it has forked.  No function but
 * qm_tier_read(), _write_begin(), _sync(), _drain(), _resize(), _open() and _close()
 * waits for I/O.  Memory is allocated in qm_tier_open() and qm_tier_resize() only.
 *
 * Errors are returned as errno values; 0 is success.  Nothing here prints or exits.
 */
#ifndef QM_TIER_H
#define QM_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_TIER_STATE 128 /* bytes of a volume's state, as text, terminated */

struct qm_tier;
struct qm_tier_io; /* io.h; only for tests */

/* What a tier holds copies of.  A tier of another identity is reinitialised, with a
 * warning that says what differs. */
struct qm_tier_identity {
    const char *volume;  /* its UUID or name: 1 to 255 bytes */
    uint64_t size;       /* of the volume, in bytes */
    uint32_t block_size; /* bytes; a power of two, 512 to 16 MiB */
    uint64_t generation; /* changed when others may have written to the volume */
};

enum qm_tier_admit {
    QM_TIER_ADMIT_AUTO, /* blocks of no scan, and when the tier is full, those that a
                           frequency sketch has seen before (admit.h) */
    QM_TIER_ADMIT_ALL,  /* all that is inserted and within write_rate */
    QM_TIER_ADMIT_NONE, /* nothing: what the tier holds is served and kept up to date */
};

/* What becomes of a block that the tier holds when all of it is written.  The copy is
 * dropped in any case before the volume changes (the rule above); the new data may be
 * inserted afterwards, as hot as the copy was, and within write_rate and queue. */
enum qm_tier_update {
    QM_TIER_UPDATE_NONE, /* it is not */
    QM_TIER_UPDATE_ALL,  /* it is, each time */
    QM_TIER_UPDATE_AUTO, /* it is, but not again and again without a read between
                            (admit.h) */
};

/* Both keep the copy of a block that is read until its slot is needed; they differ in
 * what that is worth. */
enum qm_tier_mode {
    QM_TIER_INCLUSIVE, /* a block that was read is hot: it stays when others of its
                          segment are evicted */
    QM_TIER_EXCLUSIVE, /* a block that was read is in memory now, one copy is enough:
                          it is evicted with the others.  When memory evicts it while
                          the copy is still there, nothing is written, either */
};

/* Whether what the tier holds when it is opened is believed.  Blocks that are not are
 * *unverified*: misses, until qm_tier_verify() has seen the volume's data of them. */
enum qm_tier_verify {
    QM_TIER_VERIFY_AUTO, /* if the state before is the one that the tier has recorded */
    QM_TIER_VERIFY_ALWAYS, /* it is not */
    QM_TIER_VERIFY_NEVER,  /* it is: the caller knows that nobody has written to the
                              volume without the tier; but not after
                              qm_tier_disclaim(), nor what was still unverified when
                              the tier was used last */
};

/* qm_tier_config_init() sets the defaults; path, size and identity have none. */
struct qm_tier_config {
    struct qm_tier_identity identity;
    const char
        *path;        /* a regular file, made if it is not there (mode 0600), or a block
                         device.  One that holds something else than a tier is refused */
    uint64_t size;    /* bytes, metadata included; 0: all of a block device */
    uint32_t segment; /* bytes of a segment, the unit of eviction; 0: a 64th of size,
                         256 KiB to 8 MiB, at least 8 blocks.  Ignored for a tier that
                         is there */
    const char
        *witness; /* a small file (made if it is not there, mode 0600), best on
                     another file system: it says which tier file, in which state, is
                     the right one, so that an older copy that was put back, or a
                     tier that died or could not be opened, is not believed.  NULL:
                     none.  format.h says what is then not noticed */
    enum qm_tier_verify verify; /* default: NEVER, the caller vouches for the volume */
    /* Texts that stand for states of the volume; NULL or "": not known.  The caller
     * promises that no program has changed the volume since it was last in a state of
     * that text.  A state may stand for all changes by the tier's own server
     * (a number that changes when another server owns the volume) and stays as it is;
     * or it changes with each write, then observe is needed, too. */
    const char *before; /* which the tier must have recorded */
    const char *known;  /* which it records */
    /* Writes the state of now to text, if it is certain that every later change gives
     * another one; false: not known now.  Called between changes, seconds apart, before
     * the first change after a state was recorded, and when the tier is closed;
     * possibly with a lock held: it must not call the library.  NULL: states do not
     * change by writes. */
    bool (*observe)(void *opaque, char text[QM_TIER_STATE]);
    enum qm_tier_admit admit;
    enum qm_tier_mode mode;
    enum qm_tier_update update; /* default: NONE */
    uint64_t write_rate; /* bytes a day that may be written; 0: no bound.  Up to an
                            hour's share is saved up */
    double bloom;        /* false-positive rate of a Bloom filter in front of the index,
                            above 0 and below 1; 0 (default): none */
    unsigned threads; /* which read for qm_tier_read() of several blocks; default 4, at
                         most 64 */
    uint32_t queue;   /* blocks that wait to be written; default: what 8 MiB hold, 16 to
                         1024 */
    unsigned sync_ms; /* between two syncs of the file; default 5000 */
    unsigned errors;  /* this many I/O errors or wrong checksums, with no 4096 successes
                         between, and the tier is dead; default 16 */
    bool direct;      /* O_DIRECT for data, if the file system has it; default: true */
    bool ring; /* with O_DIRECT: several blocks are read by io_uring, if it can be
                  had, and not by threads; default: true */

    /* For simulation.  data = false: no file (path is NULL) and no bytes (buffers are
     * NULL), but the same decisions; implies threadless. */
    bool data;       /* default: true */
    bool threadless; /* no threads: qm_tier_insert() writes before it returns, and
                        qm_tier_tick() does what is done in the background.  All is
                        repeatable if the caller has one thread.  Default: false */
    uint64_t (*now)(void *opaque); /* nanoseconds; NULL: CLOCK_MONOTONIC */

    /* One sentence for the log, without a newline.  Called from any thread, also from
     * within qm_tier_open(), possibly with locks held: it must not call the library.
     * NULL: not told.  Each kind of problem is told once. */
    void (*warn)(void *opaque, const char *message);
    /* Whether a tier of the volume `had`, which is called otherwise, is of this one all
     * the same: then it has this name from now on.  If not, why may say what differs.
     * Called in qm_tier_open().  NULL: it is not. */
    bool (*same_volume)(void *opaque, const char *had, char *why, size_t len);
    void *opaque; /* for all of these */

    const struct qm_tier_io *io; /* NULL: the file; else the tests' */
    const char *boot_id;         /* NULL: the kernel's; else the tests' */
};

void qm_tier_config_init(struct qm_tier_config *config);

/* Checks config without touching files.  If it is wrong, puts one sentence that says
 * what is allowed into err (at most len bytes, always terminated).  Returns 0 (err is
 * "") or EINVAL. */
int qm_tier_check(const struct qm_tier_config *config, char *err, size_t len);

/* Opens a tier; config and its strings are copied.  What can be recovered is served
 * when this returns; stats.recovered says how much.  A tier that is damaged, of another
 * identity or an older copy is emptied, with a warning.  On error err has one sentence:
 *
 *   EINVAL  config is wrong, or the file holds something else: nothing was changed
 *   EBUSY   another process has this tier open: nothing was changed
 *   ENOMEM, EIO, ENOSPC, EACCES, ...
 *
 * After all but EINVAL and EBUSY the tier's old contents are invalidated as far as that
 * can be done (see rule 3). */
int qm_tier_open(const struct qm_tier_config *config, struct qm_tier **tier, char *err,
                 size_t len);

enum qm_tier_end {
    QM_TIER_KEEP, /* the volume will not change until it is opened again: contents stay
                   */
    QM_TIER_FORGET, /* service goes on without the tier: contents are invalidated, and
                       the file can be removed */
};

/* Ends all threads, releases what is queued (with QM_TIER_KEEP: after it was written),
 * syncs, unlocks and frees.  NULL: nothing.  No other thread may be inside the library
 * for this tier, nor any write be in flight.  Returns 0, or the error of the last sync:
 * contents are still never wrong. */
int qm_tier_close(struct qm_tier *tier, enum qm_tier_end end);

/* ---- Reads
 * ---------------------------------------------------------------------------- */

struct qm_tier_read {
    uint64_t block;
    void *buf;  /* block_size bytes; aligned to 4096, a copy is saved */
    bool ahead; /* read before its demand: does not make it frequent */
    bool hit; /* out: buf is filled.  Else it may have been overwritten with anything */
};

/* Reads those of n blocks that the tier holds, in parallel.  Returns the number of
 * hits.  A hit is data that was the volume's at some time during the call. */
size_t qm_tier_read(struct qm_tier *tier, struct qm_tier_read *reads, size_t n);

/* What was read from the volume, n blocks (the last one of the volume filled up with
 * zeros), while the tier was open: of those that are unverified, the copies that are
 * the same are hits from now on, and the others are dropped. */
void qm_tier_verify(struct qm_tier *tier, uint64_t block, const void *data, uint64_t n);
/* The volume will be changed without the tier: what state it has recorded is erased,
 * durably, and none is recorded any more, so that what it holds is unverified when it
 * is opened again, whatever is said then.  Returns 0 or an error: then it must be
 * forgotten. */
int qm_tier_disclaim(struct qm_tier *tier);
/* How many blocks are unverified: if none, the above is superfluous. */
uint64_t qm_tier_unverified(struct qm_tier *tier);

/* Whether the tier holds block.  A hint: it may change at any time.  Does no I/O. */
bool qm_tier_contains(struct qm_tier *tier, uint64_t block);

/* Block, which memory has because it was read ahead, was used: counts as if it had been
 * read from here on demand, for admission and for what is evicted.  Does no I/O. */
void qm_tier_touch(struct qm_tier *tier, uint64_t block);

/* ---- Inserts
 * -------------------------------------------------------------------------- */

#define QM_TIER_FREQUENCY_UNKNOWN 0xffffffffu

struct qm_tier_insert {
    uint64_t block;
    const void *data;   /* block_size bytes */
    uint64_t ticket;    /* see rule 2 */
    uint32_t frequency; /* accesses of late as the caller counts them, of about the same
                           scale as a 4-bit sketch; _UNKNOWN: the tier's own sketch */
    bool scan;          /* read by a scan: not admitted by QM_TIER_ADMIT_AUTO */

    /* NULL: data is copied by the call.  Else data stays valid until release(cookie),
     * which is called once, from any thread, and must not call the library; also if the
     * block is dropped later.  Not called if qm_tier_insert() fails. */
    void (*release)(void *cookie);
    void *cookie;
};

/* The present moment in the order of writes.  Takes no lock. */
uint64_t qm_tier_ticket(struct qm_tier *tier);

/* Queues a block to be written.  Never waits for I/O (but if threadless).  Returns 0,
 * or, always counted in the statistics and never a reason to worry:
 *
 *   EEXIST  the tier holds it
 *   EPERM   not admitted
 *   EDQUOT  the write rate is used up
 *   ESTALE  a write to it began after the ticket, or is in flight
 *   EAGAIN  the queue is full
 *   ENODEV  the tier is dead
 *   EINVAL  block lies beyond the volume */
int qm_tier_insert(struct qm_tier *tier, const struct qm_tier_insert *insert);

/* ---- Changes of the volume
 * -------------------------------------------------------------- */

/* A change of more blocks than this drops what is held of them and brings no new data;
 * and an insert of any block whose ticket is older than its end is refused. */
#define QM_TIER_WIDE 1024

/* The caller's, from _begin() to _end(), which different threads may call. */
struct qm_tier_write {
    uint64_t offset, count; /* bytes */
    uint64_t first, last;   /* the library's: blocks */
    uint64_t stamp;
    bool tracked, wide;
    bool renews;                       /* some blocks' new data is to be inserted */
    uint8_t renewed[QM_TIER_WIDE / 2]; /* 4 bits a block: its heat + 1 if it is; or 0 */
};

enum qm_tier_result {
    QM_TIER_WROTE,   /* data was written, all of it, and data is given, or NULL: nothing
                        is inserted */
    QM_TIER_DROPPED, /* failed, trimmed, zeroed: data is NULL */
};

/* Drops all blocks that bytes [offset, offset + count) touch, and makes sure that they
 * stay dropped after a crash of the process or the machine.  To be called before the
 * layer below is asked to change them; trims, too.  Usually takes one buffered pwrite()
 * for each block that the tier holds, nothing for others; the first write to a region
 * of 4 MiB waits until its bit is durable.  Always succeeds: if it cannot be made sure,
 * the tier dies first. */
void qm_tier_write_begin(struct qm_tier *tier, struct qm_tier_write *write,
                         uint64_t offset, uint64_t count);
/* data is the caller's again when this returns: what is to be inserted of it has been
 * copied to the queue.  Waits for no I/O (but if threadless). */
void qm_tier_write_end(struct qm_tier *tier, struct qm_tier_write *write,
                       enum qm_tier_result result, const void *data);

/* Sync points.  _begin() before the layer below is flushed, _end() with its outcome:
 * after success, regions whose last change ended before _begin() may be unmarked.
 * Flushes that overlap are counted as one or not at all. */
uint64_t qm_tier_flush_begin(struct qm_tier *tier);
void qm_tier_flush_end(struct qm_tier *tier, uint64_t token, bool success);

/* The volume has changes from before qm_tier_open() that no flush has covered: should
 * the machine crash before one does, nothing is kept.  As a change of all of it, but
 * that nothing is dropped now. */
void qm_tier_unflushed(struct qm_tier *tier);

/* ---- Operation
 * -------------------------------------------------------------------------- */

/* Waits until all that was queued before is written and can be read. */
void qm_tier_drain(struct qm_tier *tier);

/* Drains, and makes all durable.  Returns 0 or an error. */
int qm_tier_sync(struct qm_tier *tier);

/* What the background threads do from time to time: sync, unmark regions, look whether
 * the file is still there.  For threadless tiers; harmless for others.  urgent: regions
 * are unmarked as soon as it is allowed, without waiting until they have cooled down.
 */
void qm_tier_tick(struct qm_tier *tier, bool urgent);

/* Changes the size while it serves.  Shrinking drops the blocks behind the new end.
 * Returns 0, EINVAL (too small, too large, or larger than the device), ENOMEM, ENODEV,
 * or an I/O error; after an error the tier has its old size or is dead.  May take a
 * while; calls may not overlap. */
int qm_tier_resize(struct qm_tier *tier, uint64_t size);

/* Counters since open.  Always, when no thread is inside the library and the queue is
 * drained:
 *
 *   lookups == hits + misses
 *   qm_tier_insert() == inserted + voided + exists + refused + scans + over_rate
 *                       + stale + full + failed
 */
struct qm_tier_stats {
    uint64_t lookups, hits, misses;
    uint64_t inserted; /* blocks written and indexed */
    uint64_t exists, refused, scans, over_rate, stale, full; /* why not, as returned */
    uint64_t voided;    /* queued and dropped: written to meanwhile, or there already */
    uint64_t failed;    /* queued and dropped: not written because of an error */
    uint64_t handed_on; /* blocks admitted since a write moved hot data; a part of
                           inserted, voided and failed */
    uint64_t kept;      /* hot blocks that stayed where they are when others of their
                           segment left */
    uint64_t evicted;   /* blocks that left to make room */
    uint64_t invalidated;   /* blocks dropped by writes and trims */
    uint64_t bytes_written; /* to the file, for endurance: data and metadata */
    uint64_t write_rate;    /* as configured */
    uint64_t syncs, regions_marked, regions_cleared;
    uint64_t stalls; /* qm_tier_write_begin() that waited for the disk */
    uint64_t read_errors, write_errors, wrong_checksums;
    uint64_t
        lost_in_crash; /* of these checksums, blocks that a crash of the machine had
                          not let reach the disk: no sign of a failing device */
    uint64_t recovered, dropped; /* blocks found at open and kept, or not kept */
    uint64_t unverified;         /* blocks that are, now */
    uint64_t unread;             /* misses of blocks that were unverified */
    uint64_t verified,
        outdated; /* unverified blocks that were right, and that were not */
    uint64_t recovery_ns;
    uint64_t age_ns; /* of the oldest segment, since open or since it was filled */

    uint64_t size;     /* of the file */
    uint64_t capacity; /* blocks */
    uint64_t blocks;   /* held now */
    uint64_t queued;
    uint64_t regions;      /* marked now */
    uint64_t memory;       /* bytes allocated by the tier */
    uint64_t index_memory; /* of these, what grows with capacity: at most 24 a block,
                              and a Bloom filter beside */
    uint64_t epoch;        /* how often this tier was opened */
    bool direct;           /* O_DIRECT is in use */
    unsigned rings;        /* of io_uring, in use; 0: threads read several blocks */
    bool dead;
    bool unsafe; /* dead, and could not be marked invalid anywhere: the file must be
                    removed before the next start.  Tried again in the background */
    char reason[160]; /* why it is dead, else "" */
};

void qm_tier_get_stats(struct qm_tier *tier, struct qm_tier_stats *stats);

#endif
