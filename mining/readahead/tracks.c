/* SPDX-License-Identifier: BSD-3-Clause */
/* tracks.c - see tracks.h.
 *
 * Of a track that goes forward, blocks below `pos` have been read and those below `end`
 * were asked for; of one that goes backward, those from `pos` and from `end` on.  Of a
 * stride, `pos` and `end` are where reads begin, and a window counts reads.
 */
#include "mining/readahead/tracks.h"

#include <pthread.h>
#include <stdlib.h>

#include "mining/readahead/edges.h"
#include "mining/readahead/noted.h"
#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/worth.h"

#define SKIP_MAX     1024 /* cached blocks that are looked past */
#define STRIDE_MAX   16   /* reads of a stride ahead */
#define STRIDE_FIRST 2
#define CACHE_PART   0.44  /* of the cache, all windows together */
#define FIRST_PART   0.125 /* the same, at first */
#define SLACK        8     /* the part of the windows for which place is kept as well */
#define LEAST_SHARE  16    /* blocks */
#define LOST         0.95  /* what is left of the share when a block was lost */
#define REGAINED     0.05  /* blocks of it that come back for each one asked for */
#define LIVE         256   /* asks in which a track that is being read asks once */
#define LATE_FACTOR  2     /* by which late blocks make a window exceed its target */
#define STALE        4096  /* misses and markers after which a track's reader is gone */
#define CLAIM_EVERY  1024  /* misses after which what is kept is looked at again */
#define OUT_OF_ORDER 8     /* blocks */
#define NEAR_READS                                                                     \
    2 /* reads from the beginning until which a window's growth is fast */
#define BACKWARD_REACH 64 /* blocks of a read, for finding its track */

struct track {
    uint32_t generation; /* even: not in use */
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
struct reach {
    uint64_t lo, hi;
};

struct qm_tracks {
    struct qm_tracks_config config;
    pthread_mutex_t lock; /* a leaf, of all that follows but for reading noted.blocks */
    uint64_t now;         /* counts misses and passes */
    uint64_t asks;
    double share; /* blocks that all windows together may have; 0: any */
    unsigned n;   /* places in use, from the first on */
    struct qm_tracks_stats stats;
    struct qm_worth worth;
    struct qm_edges edges;
    struct reach reach[QM_TRACKS_MAX];
    struct track tracks[QM_TRACKS_MAX];
    struct qm_noted noted;
};

struct qm_tracks *qm_tracks_new(const struct qm_tracks_config *config)
{
    struct qm_tracks *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->config = *config;
    t->share = (double)config->cache_blocks * FIRST_PART;
    pthread_mutex_init(&t->lock, NULL);
    qm_worth_init(&t->worth);
    return t;
}

void qm_tracks_free(struct qm_tracks *t)
{
    if (t)
        pthread_mutex_destroy(&t->lock);
    free(t);
}

uint64_t qm_tracks_bytes(void)
{
    return sizeof(struct qm_tracks);
}

static bool is_cached(const struct qm_tracks *t, uint64_t block)
{
    return t->config.cached && t->config.cached(t->config.cached_opaque, block);
}

static uint64_t below(uint64_t block, uint64_t n)
{
    return block > n ? block - n : 0;
}

static void set_reach(struct qm_tracks *t, const struct track *k)
{
    struct reach *reach = &t->reach[k - t->tracks];
    uint64_t low = k->pos < k->end ? k->pos : k->end;
    uint64_t high = k->pos < k->end ? k->end : k->pos;

    if (k->stride)
        *reach = (struct reach){low, high};
    else if (k->step > 0)
        *reach = (struct reach){below(low, OUT_OF_ORDER), high + QM_EDGES_NEAR};
    else
        *reach = (struct reach){below(low, QM_EDGES_NEAR + BACKWARD_REACH),
                                high + OUT_OF_ORDER};
}

static bool belongs(const struct track *k, uint64_t block, uint32_t count)
{
    if (k->stride)
        return (int64_t)(block - k->pos) % k->step == 0;
    if (k->step < 0)
        return block + count + QM_EDGES_NEAR >= k->end;
    return true;
}

static struct track *find(struct qm_tracks *t, uint64_t block, uint32_t count)
{
    for (unsigned i = 0; i < t->n; i++)
        if (block >= t->reach[i].lo && block <= t->reach[i].hi &&
            belongs(&t->tracks[i], block, count))
            return &t->tracks[i];
    return NULL;
}

static void unmark(struct qm_tracks *t, struct track *k)
{
    if (k->marked)
        qm_noted_remove(&t->noted, k->marker);
    k->marked = false;
}

/* Nobody waits for the marker any more; whether it is used is still worth knowing. */
static void keep_sample(struct qm_tracks *t, struct track *k)
{
    struct qm_note *n = k->marked ? qm_noted_find(&t->noted, k->marker) : NULL;

    if (n)
        n->marker = false;
    k->marked = false;
}

/* A place for a new track: a free one, or that of the one used longest ago. */
static struct track *place(struct qm_tracks *t)
{
    struct track *oldest = &t->tracks[0];

    if (t->n < QM_TRACKS_MAX)
        return &t->tracks[t->n++];
    for (unsigned i = 1; i < t->n; i++)
        if (t->tracks[i].used < oldest->used)
            oldest = &t->tracks[i];
    keep_sample(t, oldest);
    return oldest;
}

static struct qm_turn turn_of(const struct qm_tracks *t, const struct track *k)
{
    return (struct qm_turn){true, (uint16_t)(k - t->tracks), k->generation};
}

static uint32_t clamp(uint64_t n, uint32_t least, uint32_t most)
{
    return n > most ? most : n < least ? least : (uint32_t)n;
}

/* Whether a miss where a track is says nothing of its reader any more. */
static bool is_gone(const struct qm_tracks *t, const struct track *k)
{
    return t->now - k->used > STALE;
}

/* How far a track has asked ahead of its reader: blocks, or a stride's reads. */
static uint64_t ahead_of(const struct track *k)
{
    return (uint64_t)((int64_t)(k->end - k->pos) / k->step);
}

/* Whether a read goes on exactly where the track's reader was. */
static bool is_next(const struct track *k, uint64_t block, uint32_t count)
{
    return k->stride || k->step > 0 ? block == k->pos : block + count == k->pos;
}

/* Whether a track is being read, as far as one can tell: it has asked of late, or its
 * reader waits for what it asked for. */
static bool is_live(const struct qm_tracks *t, const struct track *k)
{
    if (k->asks < 2 || is_gone(t, k))
        return false;
    if (k->asked + LIVE > t->asks)
        return true;
    return ahead_of(k) > 0 && is_cached(t, k->step > 0 ? k->end - k->step : k->end);
}

/* Says how many blocks the windows have of all that are being read. */
static void claim(struct qm_tracks *t)
{
    uint64_t blocks = 0;

    if (!t->config.reserve)
        return;
    for (unsigned i = 0; i < t->n; i++)
        if (is_live(t, &t->tracks[i]))
            blocks += (uint64_t)t->tracks[i].window *
                      (t->tracks[i].stride ? t->tracks[i].unit : 1);
    t->config.reserve(t->config.opaque, blocks + blocks / SLACK);
}

/* What all windows together may have at most, in a cache of the present size. */
static double most_share(const struct qm_tracks *t)
{
    uint64_t blocks = t->config.capacity ? t->config.capacity(t->config.opaque)
                                         : t->config.cache_blocks;

    return (double)blocks * CACHE_PART;
}

/* The most that a window may have now: what is left for each that is being read. */
static uint32_t most_of(const struct qm_tracks *t)
{
    const uint32_t most = t->config.max_window;
    double share = t->share;
    unsigned live = 1;

    if (t->config.cache_blocks == 0)
        return most;
    if (share > most_share(t)) /* the cache has become smaller */
        share = most_share(t);
    for (unsigned i = 0; i < t->n; i++)
        live += is_live(t, &t->tracks[i]);
    /* Less than the first window is not worth a read, however many there are. */
    return clamp((uint64_t)(share / live), t->config.first_window, most);
}

static uint32_t first_of(const struct qm_tracks *t, const struct track *k)
{
    uint64_t first = (uint64_t)k->unit * 2;

    if (k->stride)
        return STRIDE_FIRST;
    if (first < t->config.first_window)
        first = t->config.first_window;
    return clamp(first, 1, most_of(t));
}

static void start(struct qm_tracks *t, struct track *k, uint64_t block, uint32_t count,
                  int32_t step, bool stride, unsigned reads)
{
    uint32_t generation = k->generation + 1;

    *k = (struct track){
        .generation = generation ? generation : 1,
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
static struct track *detect(struct qm_tracks *t, struct qm_strides *strides,
                            struct qm_own own, uint64_t block, uint32_t count)
{
    struct qm_run run = qm_edges_read(&t->edges, block, count);
    unsigned reads = run.reads;
    int32_t step = run.step;
    bool stride = false;
    struct track *k;

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
static void set_own(struct track *k, struct qm_own own)
{
    k->own = !k->stride && k->step > 0 && own.reads > 1 ? own.blocks : 0;
    if (k->own > 0)
        k->two = own.reads == 2;
}

/* Where its reader is behind a read; whether that is ahead of where he was. */
static bool move(struct track *k, uint64_t block, uint32_t count)
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
static bool take_marker(struct qm_tracks *t, struct track *k, uint64_t block)
{
    if (!k->marked || k->marker != block)
        return false;
    unmark(t, k);
    return true;
}

/* Forgets a track; its place is the next to be taken. */
static void drop(struct qm_tracks *t, struct track *k)
{
    keep_sample(t, k);
    k->generation++;
    k->used = 0;
    t->reach[k - t->tracks] = (struct reach){1, 0};
}

/* What was asked for is gone before its reader came: it took more space than there was,
 * or more than could be queued. */
static void give_up_share(struct qm_tracks *t)
{
    t->share *= LOST;
    if (t->share < LEAST_SHARE)
        t->share = LEAST_SHARE;
}

/* What was asked for in a window has been used, or will be. */
static void regain_share(struct qm_tracks *t, uint32_t blocks)
{
    const double most = most_share(t);

    t->share += blocks * REGAINED;
    if (t->share > most)
        t->share = most;
}

/* A track's reader misses a block; whether its window is to be moved. */
static bool resume(struct qm_tracks *t, struct track *k, uint64_t block, uint32_t count)
{
    bool asked = k->step > 0 ? block < k->end : block >= k->end;
    bool marker = take_marker(t, k, block);
    uint64_t next;

    if (!move(k, block, count))
        return marker;
    if (!asked || k->pos == k->end)
        return true;
    give_up_share(t);
    next = k->step > 0 ? k->pos : k->pos - 1;
    if (k->stride || !t->config.cached || is_cached(t, next))
        return marker; /* it alone is missing */
    k->end = k->pos;
    return true;
}

struct qm_turn qm_tracks_miss(struct qm_tracks *t, struct qm_strides *strides,
                              struct qm_own own, uint64_t block, uint32_t count)
{
    struct qm_turn turn = {.wanted = false};
    struct track *k;

    pthread_mutex_lock(&t->lock);
    if (++t->now % CLAIM_EVERY == 0)
        claim(t); /* streams end without a word */
    k = find(t, block, count);
    if (k && is_gone(t, k) && !is_next(k, block, count)) {
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

bool qm_tracks_has_note(struct qm_tracks *t, uint64_t block)
{
    return qm_noted_has(&t->noted, block);
}

/* The track that a note is of, or NULL if it is gone. */
static struct track *track_of(struct qm_tracks *t, const struct qm_note *note)
{
    struct track *k = &t->tracks[note->track];

    return k->generation == note->generation ? k : NULL;
}

struct qm_turn qm_tracks_pass(struct qm_tracks *t, struct qm_own own, uint64_t block,
                              uint32_t count)
{
    struct qm_turn turn = {.wanted = false};
    struct qm_note *note;
    struct track *k;

    pthread_mutex_lock(&t->lock);
    note = qm_noted_find(&t->noted, block);
    k = note ? track_of(t, note) : NULL;
    if (k) {
        k->used = ++t->now;
        move(k, block, k->stride ? k->unit : count);
        if (take_marker(t, k, block)) {
            turn = turn_of(t, k);
            set_own(k, own);
        }
        set_reach(t, k);
    }
    pthread_mutex_unlock(&t->lock);
    return turn;
}

/* How large the window should be; see tracks.h. */
static void size_window(const struct qm_tracks *t, struct track *k)
{
    const uint32_t most = k->stride ? STRIDE_MAX : most_of(t);
    const uint32_t first = first_of(t, k);
    uint64_t target = t->config.good_window;

    if (t->config.efficient && 2 * t->config.efficient(t->config.opaque) > target)
        target = 2 * t->config.efficient(t->config.opaque);
    if (k->late)
        target *= LATE_FACTOR;
    if (k->asks == 0)
        k->window = first;
    else if (k->window < target)
        k->window = clamp((uint64_t)k->window * (k->asks <= NEAR_READS ? 4 : 2), 1,
                          clamp(target, 1, UINT32_MAX));
    k->window = clamp(k->window, first < most ? first : most, most);
    k->late = false;
}

/* What a move of a window asks for: ranges in the order in which they are read. */
struct asking {
    struct qm_candidate *ranges;
    unsigned n, max;
    uint32_t blocks;
};

/* The window of a stride: reads that lie apart. */
static void ask_reads(struct qm_tracks *t, struct track *k, struct asking *a)
{
    const uint64_t step = (uint64_t)(int64_t)k->step;
    uint64_t ahead = ahead_of(k);
    uint32_t count;

    for (; ahead < k->window && a->n < a->max; ahead++, k->end += step) {
        if (k->step < 0 && k->end < (uint64_t) - (int64_t)k->step)
            break;
        for (count = 0; count < k->unit && !is_cached(t, k->end + count); count++)
            ;
        if (count == 0)
            continue;
        a->ranges[a->n++] = (struct qm_candidate){.block = k->end, .count = count};
        a->blocks += count;
    }
}

/* The window of a track that goes forward or backward: what is not cached of the blocks
 * from its end on. */
static void ask_blocks(struct qm_tracks *t, struct track *k, struct asking *a)
{
    const uint64_t ahead = ahead_of(k);
    const bool up = k->step > 0;
    uint64_t left = k->window > ahead ? k->window - ahead : 0;
    unsigned skipped = 0;
    bool open = false;

    while (left > 0 && (up || k->end > 0)) {
        const uint64_t block = up ? k->end : k->end - 1;

        if (is_cached(t, block)) {
            if (++skipped > SKIP_MAX)
                break;
            open = false;
            left -= a->n > 0; /* what lies before the first is no part of it */
        } else {
            if (!open && a->n == a->max)
                break;
            if (a->n == 0 && skipped > k->window)
                break; /* too far ahead: it is read on when the reader comes there */
            if (!open)
                a->ranges[a->n++] = (struct qm_candidate){.block = block};
            open = true;
            a->ranges[a->n - 1].block = up ? a->ranges[a->n - 1].block : block;
            a->ranges[a->n - 1].count++;
            a->blocks++;
            left--;
        }
        k->end += up ? 1 : UINT64_MAX;
    }
}

/* The block that a's ranges have at a distance of `ahead` or less from the track's end,
 * the first such in the order of reading; else their last. */
static uint64_t block_ahead(const struct track *k, const struct asking *a,
                            uint64_t ahead)
{
    const struct qm_candidate *last = &a->ranges[a->n - 1];

    if (k->stride && ahead > 0)
        return a->ranges[ahead < a->n ? a->n - ahead : 0].block;
    if (k->stride)
        return last->block;
    for (unsigned i = 0; i < a->n; i++) {
        const struct qm_candidate *r = &a->ranges[i];
        uint64_t top = r->block + r->count - 1;

        if (k->step > 0 && top + ahead >= k->end)
            return r->block + ahead >= k->end ? r->block : k->end - ahead;
        if (k->step < 0 && r->block <= k->end + ahead)
            return top <= k->end + ahead ? top : k->end + ahead;
    }
    return k->step > 0 ? last->block + last->count - 1 : last->block;
}

/* How far ahead of its reader a block is: the next is 1. */
static uint64_t distance(const struct track *k, uint64_t block)
{
    if (k->stride)
        return (uint64_t)((int64_t)(block - k->pos) / k->step) + 1;
    return k->step > 0 ? block - k->pos + 1 : k->pos - block;
}

static void add_note(struct qm_tracks *t, const struct track *k, uint64_t block,
                     enum qm_worth_bucket bucket, bool marker)
{
    qm_noted_add(&t->noted, block,
                 (struct qm_note){
                     .generation = k->generation,
                     .track = (uint16_t)(k - t->tracks),
                     .bucket = (uint8_t)bucket,
                     .distance = (uint8_t)qm_worth_distance(distance(k, block)),
                     .marker = marker,
                 });
}

/* Notes the marker, and samples of what is asked for. */
static void note(struct qm_tracks *t, struct track *k, const struct asking *a,
                 enum qm_worth_bucket bucket, bool grows)
{
    const struct qm_candidate *first = &a->ranges[0], *last = &a->ranges[a->n - 1];
    const bool up = k->step > 0;
    uint64_t marker = block_ahead(
        k, a, grows ? UINT32_MAX : k->window / 2 + (k->stride ? 0 : k->unit));

    add_note(t, k, up ? first->block : first->block + first->count - 1, bucket, false);
    add_note(t, k, up ? last->block + last->count - 1 : last->block, bucket, false);
    add_note(t, k, block_ahead(k, a, k->window / 4), bucket, false);
    keep_sample(t, k);
    k->marked = true;
    k->marker = marker;
    add_note(t, k, marker, bucket, true);
}

/* Nothing is asked for, since the window was larger before: again at its end. */
static void mark_last(struct qm_tracks *t, struct track *k, enum qm_worth_bucket bucket)
{
    if (k->marked || k->stride || ahead_of(k) == 0)
        return;
    k->marked = true;
    k->marker = k->step > 0 ? k->end - 1 : k->end;
    add_note(t, k, k->marker, bucket, true);
}

static bool comes_sooner(const struct track *k, uint32_t window)
{
    return k->asks == 0 || k->window > window;
}

/* Asks for what the track's window lacks; the lock is held. */
static unsigned ask(struct qm_tracks *t, struct track *k, struct asking *a)
{
    const enum qm_worth_bucket bucket =
        k->stride
            ? qm_worth_of_stride(k->length)
            : qm_worth_of_run(k->own > 0, k->two, k->own > 0 ? k->own : k->length);
    const uint32_t before = k->window;
    float likely = 1;
    uint32_t reach;
    bool grows;

    size_window(t, k);
    grows = comes_sooner(k, before);
    reach = qm_worth_reach(&t->worth, bucket, k->window);
    if (reach == 0) {
        k->window = before;
        return 0; /* it is asked for again when a block is missed */
    }
    k->window = reach;
    if (k->stride)
        ask_reads(t, k, a);
    else
        ask_blocks(t, k, a);
    set_reach(t, k);
    if (a->n == 0) {
        mark_last(t, k, bucket);
        return 0;
    }
    regain_share(t, a->blocks);
    note(t, k, a, bucket, grows);
    for (unsigned i = 0; i < a->n; i++) {
        float worth = qm_worth_get(&t->worth, bucket,
                                   qm_worth_distance(distance(k, a->ranges[i].block)));

        /* What lies further ahead is no likelier. */
        a->ranges[i].probability = worth < likely ? worth : likely;
        likely = a->ranges[i].probability;
        a->ranges[i].stream = true;
    }
    k->asks++;
    k->asked = ++t->asks;
    claim(t);
    t->stats.windows++;
    t->stats.blocks += a->blocks;
    return a->n;
}

unsigned qm_tracks_ask(struct qm_tracks *t, struct qm_turn turn,
                       struct qm_candidate *ranges, unsigned max)
{
    struct asking a = {ranges, 0, max < QM_TRACKS_RANGES ? max : QM_TRACKS_RANGES, 0};
    struct track *k = &t->tracks[turn.track];
    unsigned n = 0;

    if (!turn.wanted)
        return 0;
    pthread_mutex_lock(&t->lock);
    if (k->generation == turn.generation)
        n = ask(t, k, &a);
    pthread_mutex_unlock(&t->lock);
    return n;
}

void qm_tracks_refused(struct qm_tracks *t, uint64_t block, uint32_t count)
{
    struct track *k;

    pthread_mutex_lock(&t->lock);
    k = find(t, block, 1);
    if (k && !k->stride) {
        if (k->step > 0 && block >= k->pos && block < k->end)
            k->end = block;
        else if (k->step < 0 && block + count <= k->pos && block + count > k->end)
            k->end = block + count;
        if (k->marked && (k->step > 0 ? k->marker >= k->end : k->marker < k->end))
            unmark(t, k);
        set_reach(t, k);
    }
    pthread_mutex_unlock(&t->lock);
}

void qm_tracks_ended(struct qm_tracks *t, uint64_t block, enum qm_fate fate)
{
    struct qm_note *n;
    struct track *k;

    if (!qm_noted_has(&t->noted, block))
        return;
    pthread_mutex_lock(&t->lock);
    n = qm_noted_find(&t->noted, block);
    if (n) {
        qm_worth_learn(&t->worth, n->bucket, n->distance, fate != QM_FATE_UNUSED);
        k = track_of(t, n);
        if (k) {
            k->late |= fate == QM_FATE_LATE;
        }
        /* A marker that is read is taken when the stream is told of that. */
        if (!n->marker || fate == QM_FATE_UNUSED || !k)
            qm_noted_remove(&t->noted, block);
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
