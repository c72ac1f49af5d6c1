/* SPDX-License-Identifier: BSD-3-Clause */
/* tracks-world.h - readers of a device, for the tests of streams and their windows. */
#ifndef QM_TRACKS_WORLD_H
#define QM_TRACKS_WORLD_H

#include "testing.h"

#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/tracks.h"

enum { FIRST = 4, GOOD = 32, MOST = 256, DEVICE = 1 << 20 };

/* A cache that keeps everything, and what was asked for. */
struct world {
    struct qm_tracks *tracks;
    struct qm_strides strides;
    struct qm_runs runs; /* of the one context */
    bool shared;         /* contexts are no help: each read is another's */
    bool cached[DEVICE], ahead[DEVICE], read[DEVICE];
    uint64_t efficient, reserved;
    uint64_t last; /* the first block of what was asked for last */
    unsigned asks, ranges, asked, misses;
    uint64_t capacity; /* of the cache, at present */
    unsigned unread;   /* blocks that are ahead */
    uint32_t longest;  /* of the ranges */
};

static inline bool is_cached(void *opaque, uint64_t block)
{
    struct world *w = opaque;

    return block < DEVICE && w->cached[block];
}

static inline uint64_t efficient(void *opaque)
{
    struct world *w = opaque;

    return w->efficient;
}

static inline void reserve(void *opaque, uint64_t blocks)
{
    struct world *w = opaque;

    w->reserved = blocks;
}

static inline uint64_t capacity(void *opaque)
{
    struct world *w = opaque;

    return w->capacity;
}

static struct world *w; /* the test's */

static inline void make(uint64_t cache_blocks)
{
    struct qm_tracks_config config = {
        .max_window = MOST,
        .good_window = GOOD,
        .first_window = FIRST,
        .cache_blocks = cache_blocks,
        .cached = is_cached,
        .efficient = efficient,
        .reserve = reserve,
        .capacity = capacity,
    };

    w = calloc(1, sizeof *w);
    assert_non_null(w);
    config.cached_opaque = config.opaque = w;
    w->capacity = cache_blocks;
    w->tracks = qm_tracks_new(&config);
    assert_non_null(w->tracks);
}

static inline void unmake(void)
{
    qm_tracks_free(w->tracks);
    free(w);
}

/* Of a test whose cache has any size. */
static inline int set_up(void **state)
{
    make(0);
    return 0;
}

static inline int tear_down(void **state)
{
    unmake();
    return 0;
}

/* A reader requests count blocks.  late: those that were read ahead have not come when
 * they are demanded. */
static inline void reads(uint64_t block, uint32_t count, bool late)
{
    struct qm_candidate ranges[QM_TRACKS_RANGES];
    struct qm_own own = {1, count};
    bool first = true, told = false;

    for (uint64_t b = block; b < block + count; b++) {
        struct qm_turn turn = {.wanted = false};
        uint32_t left = (uint32_t)(block + count - b);
        unsigned n;

        w->read[b] = true;
        if (!told && !w->shared && (w->ahead[b] || !w->cached[b])) {
            own = qm_runs_read(&w->runs, b, left, is_cached, w);
            told = true;
        }
        if (w->ahead[b]) {
            w->ahead[b] = false;
            w->unread--;
            qm_tracks_ended(w->tracks, b, late ? QM_FATE_LATE : QM_FATE_USED);
            if (qm_tracks_has_note(w->tracks, b))
                turn = qm_tracks_pass(w->tracks, own, b, left);
        } else if (!w->cached[b]) {
            w->cached[b] = true;
            w->misses++;
            if (first)
                turn = qm_tracks_miss(w->tracks, &w->strides, own, b, left);
            first = false;
        }
        n = qm_tracks_ask(w->tracks, turn, ranges, QM_TRACKS_RANGES);
        w->asks += n > 0;
        w->ranges += n;
        if (n > 0)
            w->last = ranges[0].block;
        for (unsigned i = 0; i < n; i++) {
            assert_true(ranges[i].count >= 1);
            assert_true(ranges[i].probability > 0 && ranges[i].probability <= 1);
            w->longest = ranges[i].count > w->longest ? ranges[i].count : w->longest;
            for (uint32_t k = 0; k < ranges[i].count; k++) {
                uint64_t asked = ranges[i].block + k;

                if (asked >= DEVICE)
                    break;
                assert_false(w->cached[asked]); /* never across what is cached */
                w->cached[asked] = w->ahead[asked] = true;
                w->unread++;
                w->asked++;
            }
        }
    }
}

/* Runs of two, which are many streams; elsewhere than a test's own. */
static inline void read_pairs(struct rng *rng, unsigned n)
{
    const bool shared = w->shared;

    w->shared = true;
    for (unsigned i = 0; i < n; i++) {
        uint64_t b = DEVICE / 2 + rng_below(rng, DEVICE / 2 - 2 * MOST);

        w->cached[b] = w->cached[b + 1] = w->ahead[b] = w->ahead[b + 1] = false;
        reads(b, 1, false);
        reads(b + 1, 1, false);
    }
    w->shared = shared;
}

#endif
