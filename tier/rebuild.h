/* SPDX-License-Identifier: BSD-3-Clause */
/* rebuild.h - tells writes that move data from others: compactions, rebuilt tables.
 *
 * A compaction of an LSM tree reads files and writes what was in them to new places,
 * where it is read from then on.  The tier held the old places, and by their heat the
 * data has earned the new ones: if it is admitted while it is written, nothing needs to
 * be read for it from the backend later.
 *
 * *Runs.*  Blocks that are read, or written, one after the other by any number of
 * requests.  Reads: what memory did not answer, prefetches included; up to 3 blocks
 * may be missing, and count as hot, since memory had them.  A run is found by the block
 * that it goes on with, in a table in which a new run replaces another one.
 *
 * *Moved data.*  A write belongs to a rebuild if its run is long enough (RUN_BYTES),
 * and less was written in runs than was read in runs before, the last of it a minute
 * ago at most; and it is hot if the tier, or memory, held half of what runs have read
 * of late (WINDOW_BYTES): the inputs of a compaction are read while its outputs are
 * written, and both in the order of their keys.
 *
 * *Whether it pays.*  Other writes look the same and are never read: InnoDB's
 * doublewrite buffer, and pages that a pool goes on holding after it has written them.
 * So of the blocks only a sample is admitted, one in 16 or fewer, until half of the
 * sample turn out to be read before others of the sample take their places; then all
 * are.  While fewer are read, an eighth of the sample is admitted.
 *
 * *Threads.*  Every read of the tier and every write comes by here, so most decide by
 * atomic words alone: a run is one word, as is a block of the sample.  The lock is for
 * those whose run is long enough, and for what becomes of the sample.  Of runs that two
 * threads extend at the same moment one may be lost: it begins anew.
 */
#ifndef QM_TIER_REBUILD_H
#define QM_TIER_REBUILD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct qm_tier;
struct qm_tier_read;
struct qm_tier_write;

#define REBUILD_RUNS   256
#define REBUILD_SAMPLE 256

enum rebuild_verdict { REBUILD_UNKNOWN, REBUILD_PAYS, REBUILD_PAYS_NOT };

struct rebuild {
    _Atomic uint64_t one_in; /* blocks of which one is in the sample */
    /* next:48 (the block that it goes on with) blocks:16 (at most); 0: no run */
    _Atomic uint64_t reads[REBUILD_RUNS], writes[REBUILD_RUNS];
    _Atomic uint64_t sample[REBUILD_SAMPLE]; /* blocks that were handed on and not read
                                                since, plus one; 0: none.  Changed with
                                                the lock */
    _Atomic int verdict; /* enum rebuild_verdict; changed with the lock */

    pthread_mutex_t lock;  /* of what follows */
    uint64_t seen, hot;    /* blocks of runs that were read of late, and the hot ones */
    uint64_t owed;         /* blocks read in runs, less those written in runs */
    uint64_t last;         /* when a run was read, ns */
    unsigned used, unused; /* of the sample, of late */
};

/* The tier is of another size, or opened.  With log.lock, or alone. */
void rebuild_size(struct qm_tier *t);
/* n blocks were looked up. */
void rebuild_read(struct qm_tier *t, const struct qm_tier_read *reads, size_t n);
/* A write has ended; whether it moved hot data.  Then each of its blocks that is to be
 * admitted is asked for. */
bool rebuild_moved(struct qm_tier *t, const struct qm_tier_write *w);
bool rebuild_wants(struct qm_tier *t, uint64_t block);
/* It was admitted. */
void rebuild_handed_on(struct qm_tier *t, uint64_t block);

#endif
