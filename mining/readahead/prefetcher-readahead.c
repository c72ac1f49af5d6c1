/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-readahead.c - reads ahead of sequential streams (tracks.h).
 *
 * Of the blocks of one request only the first that misses counts as a read; the others
 * are what it was asked for with.  Hits are passed over: a stream that goes through
 * what is cached is met again behind it.
 *
 * A context that reads a file, of which extents were told (extents.h), is followed in
 * the file: what of its reads adjoins there is sequential, and windows go on where the
 * file does.  One that comes to an extent from the blocks in front of it reads the
 * device, whatever was told, and is followed there.  So wrong extents cost a window.
 *
 * With a preset, a published scheme is followed instead (presets.h), for comparisons.
 *
 * How large a window is worth its time follows from how long reads of the device take
 * (config.speed), and whether it is used from its blocks' fates.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/parameters.h"
#include "mining/core/registry.h"
#include "mining/readahead/extents.h"
#include "mining/readahead/memory.h"
#include "mining/readahead/paper.h"
#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/tracks.h"

#define BLOCK_ASSUMED 16384               /* bytes, if not told */
#define MAX_BYTES     (UINT64_C(8) << 20) /* of a window */
#define GOOD_BYTES    (UINT64_C(512) << 10)
#define FIRST_BYTES   (UINT64_C(64) << 10)
#define FIRST_LEAST   2 /* blocks */

struct readahead {
    struct qm_prefetcher base;
    struct qm_tracks *tracks;
    bool preset; /* instead of tracks: */
    struct qm_paper_config paper;
    uint64_t block_size;
    bool (*speed)(void *opaque, enum qm_place place, double *begin_ns, double *byte_ns);
    void (*reserve)(void *opaque, uint64_t blocks);
    uint64_t (*capacity)(void *opaque);
    bool (*cached)(void *opaque, uint64_t block);
    enum qm_place (*place)(void *opaque, uint64_t block);
    void *opaque;          /* for these five */
    uint64_t cache_blocks; /* if it does not say the capacity */
};

struct qm_stream {
    struct qm_strides strides;
    struct qm_runs runs;
    struct qm_own own;    /* the run that the last request is of, */
    struct qm_span told;  /* which had these blocks */
    bool in_file;         /* and is followed in its file: own is of these */
    struct qm_runs files; /* as runs, by positions in files */
    struct qm_turn turn;
    struct qm_paper paper; /* with a preset */
    struct qm_span wanted; /* the same */
    uint32_t count;        /* blocks of the request from the next access on; 0: one */
    uint64_t from, to;     /* of the request that was last recorded as a read */
};

static struct readahead *of(struct qm_prefetcher *p)
{
    return (struct readahead *)p;
}

/* For tracks: blocks that are transferred in the time that a read takes to begin. */
static uint64_t efficient(void *opaque)
{
    const struct readahead *r = opaque;
    double begin_ns, byte_ns;

    if (!r->speed || !r->speed(r->opaque, QM_PLACE_BACKEND, &begin_ns, &byte_ns) ||
        byte_ns <= 0)
        return 0;
    begin_ns /= byte_ns * (double)r->block_size;
    return begin_ns < (double)(MAX_BYTES) ? (uint64_t)begin_ns : MAX_BYTES;
}

static void reserve(void *opaque, uint64_t blocks)
{
    const struct readahead *r = opaque;

    if (r->reserve)
        r->reserve(r->opaque, blocks);
}

static uint64_t capacity(void *opaque)
{
    const struct readahead *r = opaque;

    return r->capacity ? r->capacity(r->opaque) : r->cache_blocks;
}

static uint32_t blocks_of(const struct readahead *r, uint64_t bytes, uint32_t least)
{
    uint64_t n = bytes / r->block_size;

    return n < least ? least : (uint32_t)n;
}

static uint32_t cap(const struct readahead *r, unsigned kib)
{
    return blocks_of(r, (uint64_t)kib << 10, 1);
}

/* For the schemes of others: where a block lies, or a position in a file. */
static enum qm_place place_of(void *opaque, uint64_t at)
{
    const struct readahead *r = opaque;
    uint32_t one = 1;
    uint64_t block = qm_tracks_on_device(r->tracks, at, &one);

    return block == QM_EXTENTS_NONE ? QM_PLACE_BACKEND : r->place(r->opaque, block);
}

/* For runs of files. */
static bool is_cached(void *opaque, uint64_t at)
{
    const struct readahead *r = opaque;
    uint32_t one = 1;
    uint64_t block = qm_tracks_on_device(r->tracks, at, &one);

    return block != QM_EXTENTS_NONE && r->cached && r->cached(r->opaque, block);
}

/* Returns whether it is one. */
static bool set_preset(struct readahead *r, const struct qm_mining_config *config)
{
    const char *preset = config->readahead_preset;

    if (!preset || strcmp(preset, "none") == 0)
        return true;
    r->preset = true;
    r->paper = (struct qm_paper_config){
        .aware = strcmp(preset, "device-aware") == 0,
        .caps = {.any = cap(r, config->readahead_cap),
                 .disk = cap(r, config->readahead_cap_disk),
                 .ssd = cap(r, config->readahead_cap_ssd)},
        .place = config->place ? place_of : NULL,
        .opaque = r,
    };
    return r->paper.aware || strcmp(preset, "linux") == 0;
}

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    struct readahead *r = calloc(1, sizeof *r);

    if (r) {
        r->base.ops = &qm_prefetcher_readahead;
        r->block_size = config->block_size ? config->block_size : BLOCK_ASSUMED;
        r->speed = config->speed;
        r->reserve = config->reserve;
        r->capacity = config->capacity;
        r->cache_blocks = config->cache_blocks;
        r->opaque = config->opaque;
        r->cached = config->cached;
        r->place = config->place;
        r->tracks = qm_tracks_new(&(struct qm_tracks_config){
            .max_window = blocks_of(r, MAX_BYTES, 1),
            .good_window = blocks_of(r, GOOD_BYTES, 1),
            .first_window = blocks_of(r, FIRST_BYTES, FIRST_LEAST),
            .cache_blocks = config->cache_blocks,
            .cached = config->cached,
            .cached_opaque = config->opaque,
            .efficient = efficient,
            .reserve = reserve,
            .capacity = capacity,
            .opaque = r});
    }
    if (r && r->tracks && !set_preset(r, config)) {
        snprintf(err, len, "readahead-preset must be none, linux or device-aware");
        qm_tracks_free(r->tracks);
        free(r);
        return EINVAL;
    }
    if (!r || !r->tracks) {
        free(r);
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    *p = &r->base;
    err[0] = '\0';
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    qm_tracks_free(of(p)->tracks);
    free(p);
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return calloc(1, sizeof(struct qm_stream));
}

static void request(struct qm_stream *s, uint32_t count)
{
    s->count = count;
}

/* Records the request that begins at block. */
static void begin_request(struct readahead *r, struct qm_stream *s, uint64_t block,
                          uint32_t count)
{
    uint32_t some = count;
    uint64_t at, before;

    s->told = (struct qm_span){block, block + count};
    s->own = qm_runs_read(&s->runs, block, count, r->cached, r->opaque);
    s->in_file = false;
    if (!qm_tracks_knows_files(r->tracks))
        return;
    at = qm_tracks_in_file(r->tracks, block, &some, &before);
    if (at == QM_EXTENTS_NONE || (s->own.reads > 1 && s->own.blocks - count > before))
        return; /* of no file, or its run began before the extent */
    s->in_file = true;
    s->own = qm_runs_read(&s->files, at, some, is_cached, r);
}

/* Where the request goes on with block: there, or in its file, of which *count is cut
 * to what one extent has. */
static uint64_t position(struct readahead *r, const struct qm_stream *s, uint64_t block,
                         uint32_t *count)
{
    uint64_t at, before;

    if (!s->in_file)
        return block;
    at = qm_tracks_in_file(r->tracks, block, count, &before);
    return at == QM_EXTENTS_NONE ? block : at;
}

/* count: 0 if block is of the request before. */
static void follow_paper(struct readahead *r, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, uint32_t count)
{
    if (outcome == QM_ACCESS_PREFETCH_HIT) {
        s->wanted = qm_paper_pass(&s->paper, &r->paper, block, count ? count : 1);
    } else if (count > 0) {
        s->wanted = qm_paper_miss(&s->paper, &r->paper, block, count);
    }
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    struct qm_tracks *tracks = of(p)->tracks;
    const bool same = block >= s->from && block < s->to;
    uint32_t count = s->count ? s->count : 1;
    uint64_t at;

    *work = NULL;
    s->count = 0;
    s->turn.wanted = false;
    s->wanted = (struct qm_span){0};
    if (qm_access_is_hit(outcome))
        return;
    if (!qm_span_has(s->told, block))
        begin_request(of(p), s, block, count);
    if (outcome == QM_ACCESS_MISS && !same) {
        s->from = block;
        s->to = block + count;
    }
    at = position(of(p), s, block, &count);
    if (of(p)->preset) {
        follow_paper(of(p), s, at, outcome, same ? 0 : count);
    } else if (outcome == QM_ACCESS_MISS && !same) {
        s->turn = qm_tracks_miss(tracks, &s->strides, s->own, at, count);
    } else if (qm_tracks_has_note(tracks, block)) {
        s->turn = qm_tracks_pass(tracks, s->own, block, count);
    }
}

/* What a preset wants, in a range for each extent. */
static unsigned take_wanted(struct readahead *r, struct qm_stream *s,
                            struct qm_candidate *ranges, unsigned max)
{
    unsigned n = 0;

    while (s->wanted.from < s->wanted.to && n < max) {
        uint32_t count = (uint32_t)(s->wanted.to - s->wanted.from);
        uint64_t block = qm_tracks_on_device(r->tracks, s->wanted.from, &count);

        if (block == QM_EXTENTS_NONE)
            break;
        s->wanted.from += count;
        ranges[n] = qm_candidate_of(block);
        ranges[n].count = count;
        ranges[n++].stream = true;
    }
    s->wanted = (struct qm_span){0};
    return n;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *ranges, unsigned max)
{
    unsigned n;

    if (of(p)->preset)
        return take_wanted(of(p), s, ranges, max);
    n = qm_tracks_ask(of(p)->tracks, s->turn, ranges, max);
    s->turn.wanted = false;
    return n;
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    *work = NULL;
    qm_paper_fini(&s->paper);
    free(s);
}

static void refused(struct qm_prefetcher *p, uint64_t block, uint32_t count)
{
    if (of(p)->preset)
        return; /* nor would Linux know */
    qm_tracks_refused(of(p)->tracks, block, count);
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
    qm_tracks_ended(of(p)->tracks, block, fate);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t count)
{
    qm_tracks_forget(of(p)->tracks, block, count);
}

static void extents(struct qm_prefetcher *p, const struct qm_extent *told, unsigned n)
{
    qm_tracks_tell(of(p)->tracks, told, n);
}

static void stats(struct qm_prefetcher *p, struct qm_mining_stats *out)
{
    struct qm_tracks_stats tracks;

    qm_tracks_get_stats(of(p)->tracks, &tracks);
    *out = (struct qm_mining_stats){
        .sequences = tracks.streams,
        .rules_bytes = qm_tracks_bytes(of(p)->tracks),
    };
}

uint64_t qm_readahead_set_bytes(struct qm_prefetcher *p, uint64_t bytes)
{
    qm_tracks_set_bytes(of(p)->tracks, bytes);
    return qm_tracks_bytes(of(p)->tracks);
}

bool qm_readahead_scans_file(const struct qm_stream *s, uint64_t block, uint32_t blocks)
{
    return s->in_file && qm_span_has(s->told, block) && s->own.blocks >= blocks;
}

const struct qm_prefetcher_ops qm_prefetcher_readahead = {
    .name = "readahead",
    .summary = "sequential streams, as far ahead as the device's speed calls for",
    .flags = QM_ASK_ALWAYS | QM_NO_HITS | QM_STREAMS | QM_BOUNDED_RULES,
    .parameters = QM_HEEDS(QM_READAHEAD_PRESET) | QM_HEEDS(QM_READAHEAD_CAP) |
                  QM_HEEDS(QM_READAHEAD_CAP_DISK) | QM_HEEDS(QM_READAHEAD_CAP_SSD),
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .request = request,
    .access = access_block,
    .candidates = candidates,
    .refused = refused,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .forget = forget,
    .extents = extents,
    .ended = ended,
    .purge = qm_idle_purge,
    .stats = stats,
    .rules = NULL,
};
