/* SPDX-License-Identifier: BSD-3-Clause */
/* tracks.c - see tracks.h: which tracks there are, and where their readers are. */
#include "mining/readahead/tracks.h"

#include <stdlib.h>

#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/windows.h"

#define CLAIM_EVERY    1024 /* misses after which what is kept is looked at again */
#define OUT_OF_ORDER   8    /* blocks */
#define BACKWARD_REACH 64   /* blocks of a read, for finding its track */

/* For each track: sets of edges, and notes, of which it has a few at a time. */
#define EDGE_SETS 2
#define NOTE_BITS 4
#define NOTES     (1u << NOTE_BITS)

static uint64_t bytes_of(unsigned most)
{
    const uint64_t edges =
        (uint64_t)EDGE_SETS * QM_DETECTOR_WAYS * sizeof(struct qm_edge);
    const uint64_t notes = NOTES * (sizeof(struct qm_note) + sizeof(uint64_t));

    /* Extents count when there are some. */
    return sizeof(struct qm_tracks) - sizeof(struct qm_extents *) +
           most * (sizeof(struct qm_track) + sizeof(struct qm_track_reach) + edges +
                   notes);
}

/* How many tracks there is memory for. */
static unsigned within(uint64_t bytes)
{
    unsigned most = QM_TRACKS_MAX;

    while (most > QM_TRACKS_LEAST && bytes_of(most) > bytes)
        most /= 2;
    return most;
}

/* Of the tracks beyond the first n, those that were used later than one of these take
 * its place. */
static void keep_latest(struct qm_tracks *t, unsigned n)
{
    for (unsigned i = n; i < t->n; i++) {
        unsigned oldest = 0;

        for (unsigned k = 1; k < n; k++)
            if (t->tracks[k].used < t->tracks[oldest].used)
                oldest = k;
        if (t->tracks[i].used <= t->tracks[oldest].used)
            continue;
        t->tracks[oldest] = t->tracks[i];
        t->reach[oldest] = t->reach[i];
    }
    if (t->n > n)
        t->n = n;
}

/* Makes places for `most` tracks.  Markers are forgotten: a stream goes on when its
 * reader has come to the end of its window. */
static bool resize(struct qm_tracks *t, unsigned most)
{
    unsigned bits = NOTE_BITS;
    struct qm_track *tracks = calloc(most, sizeof *tracks);
    struct qm_track_reach *reach = calloc(most, sizeof *reach);

    while (NOTES * most >> bits > 1)
        bits++;
    if (!tracks || !reach || !qm_outcomes_resize(&t->noted, bits)) {
        free(tracks);
        free(reach);
        return false;
    }
    keep_latest(t, most);
    for (unsigned i = 0; i < t->n; i++) {
        tracks[i] = t->tracks[i];
        tracks[i].marked = false;
        reach[i] = t->reach[i];
    }
    free(t->tracks);
    free(t->reach);
    t->tracks = tracks;
    t->reach = reach;
    t->most = most;
    return qm_detector_resize(&t->edges, EDGE_SETS * most);
}

static void release(struct qm_tracks *t)
{
    qm_outcomes_free(&t->noted);
    qm_detector_free(&t->edges);
    free(t->tracks);
    qm_extents_free(t->extents);
    free(t->reach);
    free(t);
}

struct qm_tracks *qm_tracks_new(const struct qm_tracks_config *config)
{
    struct qm_tracks *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    if (!resize(t, QM_TRACKS_MAX)) {
        release(t);
        return NULL;
    }
    t->config = *config;
    qm_windows_init(t);
    pthread_mutex_init(&t->lock, NULL);
    qm_yield_init(&t->worth);
    return t;
}

void qm_tracks_free(struct qm_tracks *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    release(t);
}

void qm_tracks_set_bytes(struct qm_tracks *t, uint64_t bytes)
{
    const unsigned most = within(bytes);

    pthread_mutex_lock(&t->lock);
    if (most != t->most)
        (void)resize(t, most);
    pthread_mutex_unlock(&t->lock);
}

uint64_t qm_tracks_bytes(struct qm_tracks *t)
{
    uint64_t bytes;

    pthread_mutex_lock(&t->lock);
    bytes = bytes_of(t->most) + (t->extents ? sizeof(struct qm_extents) : 0);
    pthread_mutex_unlock(&t->lock);
    return bytes;
}

uint64_t qm_tracks_bytes_within(uint64_t bytes)
{
    return bytes_of(within(bytes));
}

static uint64_t below(uint64_t block, uint64_t n)
{
    return block > n ? block - n : 0;
}

static void set_reach(struct qm_tracks *t, const struct qm_track *k)
{
    struct qm_track_reach *reach = &t->reach[k - t->tracks];
    uint64_t low = k->pos < k->end ? k->pos : k->end;
    uint64_t high = k->pos < k->end ? k->end : k->pos;

    if (k->stride)
        *reach = (struct qm_track_reach){low, high};
    else if (k->step > 0)
        *reach =
            (struct qm_track_reach){below(low, OUT_OF_ORDER), high + QM_DETECTOR_NEAR};
    else
        *reach = (struct qm_track_reach){below(low, QM_DETECTOR_NEAR + BACKWARD_REACH),
                                         high + OUT_OF_ORDER};
}

static bool belongs(const struct qm_track *k, uint64_t block, uint32_t count)
{
    if (k->stride)
        return (int64_t)(block - k->pos) % k->step == 0;
    if (k->step < 0)
        return block + count + QM_DETECTOR_NEAR >= k->end;
    return true;
}

static struct qm_track *find(struct qm_tracks *t, uint64_t block, uint32_t count)
{
    for (unsigned i = 0; i < t->n; i++)
        if (block >= t->reach[i].lo && block <= t->reach[i].hi &&
            belongs(&t->tracks[i], block, count))
            return &t->tracks[i];
    return NULL;
}

/* A place for a new track: a free one, or that of the one used longest ago. */
static struct qm_track *place(struct qm_tracks *t)
{
    struct qm_track *oldest = &t->tracks[0];

    if (t->n < t->most)
        return &t->tracks[t->n++];
    for (unsigned i = 1; i < t->n; i++)
        if (t->tracks[i].used < oldest->used)
            oldest = &t->tracks[i];
    qm_window_keep_sample(t, oldest);
    return oldest;
}

static struct qm_turn turn_of(const struct qm_tracks *t, const struct qm_track *k)
{
    return (struct qm_turn){true, (uint16_t)(k - t->tracks), k->generation};
}

/* Whether a read goes on exactly where the track's reader was. */
static bool is_next(const struct qm_track *k, uint64_t block, uint32_t count)
{
    return k->stride || k->step > 0 ? block == k->pos : block + count == k->pos;
}

static void start(struct qm_tracks *t, struct qm_track *k, uint64_t block,
                  uint32_t count, int32_t step, bool stride, unsigned reads)
{
    *k = (struct qm_track){
        .generation = ++t->generations,
        .step = step,
        .stride = stride,
        .two = reads == 2,
        .length = stride ? reads : (uint64_t)reads * count,
        .unit = count,
        .used = t->now,
        .pos = stride || step < 0 ? block : block + count,
    };
    if (stride)
        k->pos += (uint64_t)(int64_t)step;
    k->end = k->pos;
    set_reach(t, k);
    t->stats.streams++;
}

/* A read that belongs to no track: perhaps it makes one. */
static struct qm_track *detect(struct qm_tracks *t, struct qm_strides *strides,
                               struct qm_own own, uint64_t block, uint32_t count)
{
    struct qm_run run = qm_detector_read(&t->edges, block, count);
    unsigned reads = run.reads;
    int32_t step = run.step;
    bool stride = false;
    struct qm_track *k;

    if (reads < 2 && own.reads > 1) {
        reads = own.reads; /* it went through what is cached */
        step = 1;
    }
    if (reads < 2) {
        step = qm_strides_read(strides, block, &reads);
        stride = true;
        if (step == 0 || (step < 0 && block < (uint64_t) - (int64_t)step))
            return NULL;
        if (step == 1 || step == -1 || step == (int64_t)count ||
            step == -(int64_t)count) {
            stride = false; /* its edge was forgotten meanwhile */
            step = step > 0 ? 1 : -1;
        }
    }
    k = place(t);
    start(t, k, block, count, step, stride, reads);
    return k;
}

/* Whether one context reads the track, and how much of it. */
static void set_own(struct qm_track *k, struct qm_own own)
{
    k->own = !k->stride && k->step > 0 && own.reads > 1 ? own.blocks : 0;
    if (k->own > 0)
        k->two = own.reads == 2;
}

/* Where its reader is behind a read; whether that is ahead of where he was. */
static bool move(struct qm_track *k, uint64_t block, uint32_t count)
{
    uint64_t next = k->stride     ? block + (uint64_t)(int64_t)k->step
                    : k->step > 0 ? block + count
                                  : block;

    if (k->step > 0 ? next <= k->pos : next >= k->pos)
        return false;
    k->length += (uint64_t)((int64_t)(next - k->pos) / k->step);
    k->two = false;
    k->pos = next;
    if (k->step > 0 ? k->pos > k->end : k->pos < k->end)
        k->end = k->pos;
    return true;
}

/* Takes the block's marker off, if it is one of this track's. */
static bool take_marker(struct qm_tracks *t, struct qm_track *k, uint64_t block)
{
    if (!k->marked || k->marker != block)
        return false;
    qm_window_unmark(t, k);
    return true;
}

/* Forgets a track; its place is the next to be taken. */
static void drop(struct qm_tracks *t, struct qm_track *k)
{
    qm_window_keep_sample(t, k);
    k->generation = ++t->generations;
    k->used = 0;
    t->reach[k - t->tracks] = (struct qm_track_reach){1, 0};
}

/* A track's reader misses a block; whether its window is to be moved. */
static bool resume(struct qm_tracks *t, struct qm_track *k, uint64_t block,
                   uint32_t count)
{
    bool asked = k->step > 0 ? block < k->end : block >= k->end;
    bool marker = take_marker(t, k, block);
    uint64_t next;

    if (!move(k, block, count))
        return marker;
    if (!asked || k->pos == k->end)
        return true;
    qm_windows_lost(t);
    next = k->step > 0 ? k->pos : k->pos - 1;
    if (k->stride || !t->config.cached || qm_tracks_is_cached(t, next))
        return marker; /* it alone is missing */
    k->end = k->pos;
    return true;
}

struct qm_turn qm_tracks_miss(struct qm_tracks *t, struct qm_strides *strides,
                              struct qm_own own, uint64_t block, uint32_t count)
{
    struct qm_turn turn = {.wanted = false};
    struct qm_track *k;

    pthread_mutex_lock(&t->lock);
    if (++t->now % CLAIM_EVERY == 0)
        qm_windows_claim(t); /* streams end without a word */
    k = find(t, block, count);
    if (k && qm_track_is_gone(t, k) && !is_next(k, block, count)) {
        drop(t, k);
        k = NULL;
    }
    if (k) {
        k->used = t->now;
        if (resume(t, k, block, count))
            turn = turn_of(t, k);
        set_reach(t, k);
    } else if ((k = detect(t, strides, own, block, count))) {
        turn = turn_of(t, k);
    }
    if (turn.wanted)
        set_own(k, own);
    pthread_mutex_unlock(&t->lock);
    return turn;
}

void qm_tracks_tell(struct qm_tracks *t, const struct qm_extent *extents, unsigned n)
{
    pthread_mutex_lock(&t->lock);
    if (!t->extents)
        t->extents = qm_extents_new();
    if (t->extents)
        qm_extents_tell(t->extents, extents, n);
    pthread_mutex_unlock(&t->lock);
}

void qm_tracks_forget(struct qm_tracks *t, uint64_t block, uint64_t count)
{
    if (!qm_tracks_knows_files(t))
        return;
    pthread_mutex_lock(&t->lock);
    qm_extents_forget(t->extents, block, count);
    pthread_mutex_unlock(&t->lock);
}

bool qm_tracks_knows_files(struct qm_tracks *t)
{
    return atomic_load_explicit(&t->extents, memory_order_relaxed) != NULL;
}

uint64_t qm_tracks_in_file(struct qm_tracks *t, uint64_t block, uint32_t *count,
                           uint64_t *before)
{
    const struct qm_extents_place *p;
    uint64_t at = QM_EXTENTS_NONE;

    pthread_mutex_lock(&t->lock);
    p = t->extents ? qm_extents_at_block(t->extents, block) : NULL;
    if (p) {
        *before = block - p->block;
        at = p->file + *before;
        if (*count > p->count - *before)
            *count = (uint32_t)(p->count - *before);
    }
    pthread_mutex_unlock(&t->lock);
    return at;
}

uint64_t qm_tracks_on_device(struct qm_tracks *t, uint64_t at, uint32_t *count)
{
    const struct qm_extents_place *p;
    uint64_t block = at;

    if (at < QM_EXTENTS_BASE)
        return at;
    pthread_mutex_lock(&t->lock);
    p = t->extents ? qm_extents_at_file(t->extents, at) : NULL;
    block = p ? p->block + (at - p->file) : QM_EXTENTS_NONE;
    if (p && *count > p->count - (at - p->file))
        *count = (uint32_t)(p->count - (at - p->file));
    pthread_mutex_unlock(&t->lock);
    return block;
}

bool qm_tracks_has_note(struct qm_tracks *t, uint64_t block)
{
    return qm_outcomes_has(&t->noted, block);
}

/* The track that a note is of, or NULL if it is gone. */
static struct qm_track *track_of(struct qm_tracks *t, const struct qm_note *note)
{
    struct qm_track *k = &t->tracks[note->track];

    return k->generation == note->generation ? k : NULL;
}

/* Where a block of the device is to a track; QM_EXTENTS_NONE: in no file any more. */
static uint64_t position(const struct qm_tracks *t, const struct qm_track *k,
                         uint64_t block)
{
    const struct qm_extents_place *p;

    if (k->pos < QM_EXTENTS_BASE)
        return block;
    p = qm_extents_at_block(t->extents, block);
    return p ? p->file + (block - p->block) : QM_EXTENTS_NONE;
}

struct qm_turn qm_tracks_pass(struct qm_tracks *t, struct qm_own own, uint64_t block,
                              uint32_t count)
{
    struct qm_turn turn = {.wanted = false};
    struct qm_note *note;
    struct qm_track *k;

    pthread_mutex_lock(&t->lock);
    note = qm_outcomes_find(&t->noted, block);
    k = note ? track_of(t, note) : NULL;
    if (k) {
        uint64_t at = position(t, k, block);

        k->used = ++t->now;
        if (at != QM_EXTENTS_NONE)
            move(k, at, k->stride ? k->unit : count);
        if (take_marker(t, k, at)) {
            turn = turn_of(t, k);
            set_own(k, own);
        }
        set_reach(t, k);
    }
    pthread_mutex_unlock(&t->lock);
    return turn;
}

unsigned qm_tracks_ask(struct qm_tracks *t, struct qm_turn turn,
                       struct qm_candidate *ranges, unsigned max)
{
    struct qm_track *k;
    unsigned n = 0;

    if (!turn.wanted)
        return 0;
    pthread_mutex_lock(&t->lock);
    k = turn.track < t->n ? &t->tracks[turn.track] : NULL;
    if (k && k->generation == turn.generation) {
        n = qm_window_ask(t, k, ranges, max);
        set_reach(t, k);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

void qm_tracks_refused(struct qm_tracks *t, uint64_t block, uint32_t count)
{
    const struct qm_extents_place *p;
    struct qm_track *k;

    pthread_mutex_lock(&t->lock);
    p = t->extents ? qm_extents_at_block(t->extents, block) : NULL;
    k = p ? find(t, p->file + (block - p->block), 1) : NULL;
    if (k)
        block = p->file + (block - p->block);
    else
        k = find(t, block, 1);
    if (k && !k->stride) {
        if (k->step > 0 && block >= k->pos && block < k->end)
            k->end = block;
        else if (k->step < 0 && block + count <= k->pos && block + count > k->end)
            k->end = block + count;
        if (k->marked && (k->step > 0 ? k->marker >= k->end : k->marker < k->end))
            qm_window_unmark(t, k);
        set_reach(t, k);
    }
    pthread_mutex_unlock(&t->lock);
}

void qm_tracks_ended(struct qm_tracks *t, uint64_t block, enum qm_fate fate)
{
    struct qm_note *n;
    struct qm_track *k;

    if (!qm_outcomes_has(&t->noted, block))
        return;
    pthread_mutex_lock(&t->lock);
    n = qm_outcomes_find(&t->noted, block);
    if (n) {
        qm_yield_learn(&t->worth, n->bucket, n->distance, fate != QM_FATE_UNUSED);
        k = track_of(t, n);
        if (k) {
            k->late |= fate == QM_FATE_LATE;
        }
        /* A marker that is read is taken when the stream is told of that. */
        if (!n->marker || fate == QM_FATE_UNUSED || !k)
            qm_outcomes_remove(&t->noted, block);
        if (k && n->marker && fate == QM_FATE_UNUSED)
            k->marked = false;
    }
    pthread_mutex_unlock(&t->lock);
}

void qm_tracks_get_stats(struct qm_tracks *t, struct qm_tracks_stats *stats)
{
    pthread_mutex_lock(&t->lock);
    *stats = t->stats;
    pthread_mutex_unlock(&t->lock);
}
