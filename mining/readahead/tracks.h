/* SPDX-License-Identifier: BSD-3-Clause */
/* tracks.h - the sequential streams of a device, and how far ahead of them is read.
 *
 * A *track* is a stream that was detected (detector.h, strides.h): it goes forward,
 * backward or in strides.  Before its reader lies its *window*, up to which blocks were
 * asked for.  One of them is the *marker*: when the reader comes by, the window is
 * moved on, by one range of blocks that are not cached, or several where cached ones
 * lie between.  So of a stream that ends no more than its window was read in vain.
 *
 * It is as large as it is worth (yield.h): as far ahead of the reader as streams of
 * which so much had been read were read on.  What one context has read counts (runs.h),
 * through what is cached as well, or, where several read a stream together, what the
 * track saw.
 *
 * The window begins with a few blocks, and grows by 4 and then by 2 with each marker,
 * to twice the amount that the device transfers in the time that it takes to begin
 * (bandwidth times latency, as measured).  While blocks come late it grows on, to twice
 * that.  It is bounded by max_window and by a share of the cache, which all tracks that
 * are being read divide: an eighth at first, up to 44 % while windows are used,
 * and less after a reader missed what had been asked for, since then it was driven out.
 * The cache is told what the windows have together, to keep place for that: else most
 * of it would be driven out before its readers come.  A window of which nothing is
 * left, or was issued, needs none.
 *
 * Readers that wait, since the device serves others before them, still count: their
 * windows are in the cache.
 *
 * Only misses and the first demands of prefetched blocks are told, so hits cost
 * nothing.  A miss within the window says that what was asked for is not there any
 * more, or never came: then reading ahead begins anew behind it.
 *
 * Of files of which extents are told (extents.h) positions are in the file, so windows
 * go on from one extent to the next, in a range each, and end where the file does.
 *
 * Tracks are found by position, not by context: several connections may read one
 * stream together.  There are at most QM_TRACKS_MAX, or as many as memory was given
 * for; the one used longest ago goes.
 *
 * Threads: all functions lock for themselves, briefly; qm_tracks_has_note() reads two
 * words.  qm_tracks_ended() may be called with the cache's locks held; cached() and
 * speed() are called with the lock held, so they must not wait for those.
 */
#ifndef QM_TRACKS_H
#define QM_TRACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

enum {
    QM_TRACKS_MAX = 128, /* powers of two */
    QM_TRACKS_LEAST = 8,
    QM_TRACKS_RANGES = 16, /* of one move of a window, at most */
};

struct qm_tracks;
struct qm_strides;
struct qm_own;

struct qm_tracks_config {
    uint32_t max_window;   /* blocks; at least 1 */
    uint32_t good_window;  /* blocks: what it grows to at least, if it is used */
    uint32_t first_window; /* blocks, if reads are of one block */
    uint64_t cache_blocks; /* of the cache, at first; 0: not known, and no bound */

    /* Whether a block is cached.  NULL: nobody knows, and it is taken for not cached
     * ahead of a reader. */
    bool (*cached)(void *cached_opaque, uint64_t block);
    void *cached_opaque;
    /* Blocks that the device transfers in the time that a read takes to begin; 0: not
     * known.  NULL: the same. */
    uint64_t (*efficient)(void *opaque);
    /* blocks: what all windows have together, for which there should be place.  NULL:
     * nobody wants to know. */
    void (*reserve)(void *opaque, uint64_t blocks);
    /* The present blocks of the cache, unless their number is not known.  NULL: it does
     * not change. */
    uint64_t (*capacity)(void *opaque);
    void *opaque; /* for these three */
};

/* A track whose window is to be moved. */
struct qm_turn {
    bool wanted;
    uint16_t track;
    uint32_t generation;
};

struct qm_tracks_stats {
    uint64_t streams; /* detected */
    uint64_t windows; /* asked for */
    uint64_t blocks;  /* asked for */
};

/* NULL if memory is out. */
struct qm_tracks *qm_tracks_new(const struct qm_tracks_config *config);
void qm_tracks_free(struct qm_tracks *tracks); /* NULL is fine */

/* Sets how many tracks there can be: as many as there is memory for in that many bytes,
 * QM_TRACKS_LEAST at least and QM_TRACKS_MAX, as at first, at most.  Streams that are
 * being read go on, those used last if there is no place for all.  If memory is out,
 * nothing changes, or only a part of it. */
void qm_tracks_set_bytes(struct qm_tracks *tracks, uint64_t bytes);

/* Bytes that it takes; and that it would take, of as many. */
uint64_t qm_tracks_bytes(struct qm_tracks *tracks);
uint64_t qm_tracks_bytes_within(uint64_t bytes);

/* See qm_prefetcher_ops.extents.  Without memory nothing is made of them. */
void qm_tracks_tell(struct qm_tracks *tracks, const struct qm_extent *extents,
                    unsigned n);
/* The extents of count blocks are not those of a file any more. */
void qm_tracks_forget(struct qm_tracks *tracks, uint64_t block, uint64_t count);

/* Whether any extents were told.  Without a lock. */
bool qm_tracks_knows_files(struct qm_tracks *tracks);

/* Finds the extent that block is of.  Returns its position in its file, cuts *count to
 * where the extent ends, and sets *before to how many of its blocks lie before block;
 * QM_EXTENTS_NONE: there is none. */
uint64_t qm_tracks_in_file(struct qm_tracks *tracks, uint64_t block, uint32_t *count,
                           uint64_t *before);
/* Where up to *count blocks from a position on lie: returns the first, and cuts *count
 * to those that follow it there.  QM_EXTENTS_NONE: it is not known. */
uint64_t qm_tracks_on_device(struct qm_tracks *tracks, uint64_t at, uint32_t *count);

/* A read of count blocks misses the first of them, which is a block of the device or a
 * position in a file; strides are its context's, own is
 * the run of its context that it is of. */
struct qm_turn qm_tracks_miss(struct qm_tracks *tracks, struct qm_strides *strides,
                              struct qm_own own, uint64_t block, uint32_t count);

/* Whether something is to be done when the prefetched block is demanded, or leaves. */
bool qm_tracks_has_note(struct qm_tracks *tracks, uint64_t block);

/* A prefetched block is demanded, and the request has count blocks from there on. */
struct qm_turn qm_tracks_pass(struct qm_tracks *tracks, struct qm_own own,
                              uint64_t block, uint32_t count);

/* Moves the window; fills in at most max ranges (1 or more) and returns how many.  The
 * stream goes on only if this is called. */
unsigned qm_tracks_ask(struct qm_tracks *tracks, struct qm_turn turn,
                       struct qm_candidate *ranges, unsigned max);

/* Of what a move of a window asked for, the count blocks from block on were not issued.
 */
void qm_tracks_refused(struct qm_tracks *tracks, uint64_t block, uint32_t count);

/* What became of a prefetched block. */
void qm_tracks_ended(struct qm_tracks *tracks, uint64_t block, enum qm_fate fate);

void qm_tracks_get_stats(struct qm_tracks *tracks, struct qm_tracks_stats *stats);

#endif
