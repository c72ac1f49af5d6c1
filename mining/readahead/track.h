/* SPDX-License-Identifier: BSD-3-Clause */
/* track.h - what is known of a stream: for tracks.c, which finds it, and windows.c,
 * which asks for what lies before its reader.
 *
 * Of a track that goes forward, blocks below `pos` have been read and those below `end`
 * were asked for; of one that goes backward, those from `pos` and from `end` on.  Of a
 * stride, `pos` and `end` are where reads begin, and a window counts reads.  These are
 * blocks of the device, or, of a file whose extents are known, numbers (extents.h).
 */
#ifndef QM_TRACK_H
#define QM_TRACK_H

#include <pthread.h>

#include <stdatomic.h>

#include "mining/readahead/detector.h"
#include "mining/readahead/extents.h"
#include "mining/readahead/outcomes.h"
#include "mining/readahead/tracks.h"
#include "mining/readahead/yield.h"

/* misses and markers after which a track's reader is gone */
#define QM_TRACK_STALE 4096

struct qm_track {
    uint32_t generation; /* of all tracks, no other has it */
    int32_t step;        /* 1, -1, or a stride's distance */
    bool stride;
    bool late, marked;
    bool two;        /* nothing was read of it since two reads detected it */
    uint64_t length; /* that was read of it: blocks, or a stride's reads */
    uint32_t own;    /* blocks that its present reader read; 0: several do */
    uint32_t unit;   /* blocks of a read; of a stride */
    uint32_t window;
    uint32_t asks;
    uint64_t used;  /* when: of the tracks' counter */
    uint64_t asked; /* the same, of asks */
    uint64_t pos, end;
    uint64_t marker; /* if marked */
};

/* Where a block lies that may belong to a track: apart from it, for finding it fast. */
struct qm_track_reach {
    uint64_t lo, hi;
};

struct qm_tracks {
    struct qm_tracks_config config;
    pthread_mutex_t lock; /* a leaf, of all that follows but for reading noted.blocks */
    uint64_t now;         /* counts misses and passes */
    uint64_t asks;
    uint32_t generations; /* the last one */
    double share;         /* blocks that all windows together may have; 0: any */
    unsigned n;           /* places in use, from the first on */
    unsigned most;        /* places */
    struct qm_tracks_stats stats;
    struct qm_yield worth;
    struct qm_detector edges;
    struct qm_track_reach *reach;
    struct qm_track *tracks;
    struct qm_outcomes noted;             /* by blocks of the device */
    _Atomic(struct qm_extents *) extents; /* NULL until some are told */
};

/* Where a block of a track lies on the device; QM_EXTENTS_NONE: that is not known any
 * more, or its file ends before. */
static inline uint64_t qm_track_device(const struct qm_tracks *t, uint64_t at)
{
    const struct qm_extents_place *p;

    if (at < QM_EXTENTS_BASE)
        return at;
    p = qm_extents_at_file(t->extents, at);
    return p ? p->block + (at - p->file) : QM_EXTENTS_NONE;
}

static inline bool qm_tracks_is_cached(const struct qm_tracks *t, uint64_t at)
{
    const uint64_t block = qm_track_device(t, at);

    return t->config.cached && t->config.cached(t->config.cached_opaque, block);
}

/* Whether a miss where a track is says nothing of its reader any more. */
static inline bool qm_track_is_gone(const struct qm_tracks *t, const struct qm_track *k)
{
    return t->now - k->used > QM_TRACK_STALE;
}

#endif
