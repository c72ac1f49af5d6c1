/* SPDX-License-Identifier: BSD-3-Clause */
/* windows.c - see windows.h. */
#include "mining/readahead/windows.h"

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
#define NEAR_READS                                                                     \
    2 /* reads from the beginning until which a window's growth is fast */

void qm_windows_init(struct qm_tracks *t)
{
    t->share = (double)t->config.cache_blocks * FIRST_PART;
}

void qm_window_unmark(struct qm_tracks *t, struct qm_track *k)
{
    if (k->marked)
        qm_outcomes_remove(&t->noted, qm_track_device(t, k->marker));
    k->marked = false;
}

void qm_window_keep_sample(struct qm_tracks *t, struct qm_track *k)
{
    struct qm_note *n =
        k->marked ? qm_outcomes_find(&t->noted, qm_track_device(t, k->marker)) : NULL;

    if (n)
        n->marker = false;
    k->marked = false;
}

static uint32_t clamp(uint64_t n, uint32_t least, uint32_t most)
{
    return n > most ? most : n < least ? least : (uint32_t)n;
}

/* How far a track has asked ahead of its reader: blocks, or a stride's reads. */
static uint64_t ahead_of(const struct qm_track *k)
{
    return (uint64_t)((int64_t)(k->end - k->pos) / k->step);
}

/* Whether a track is being read, as far as one can tell: it has asked of late, or its
 * reader waits for what it asked for. */
static bool is_live(const struct qm_tracks *t, const struct qm_track *k)
{
    if (k->asks < 2 || qm_track_is_gone(t, k))
        return false;
    if (k->asked + LIVE > t->asks)
        return true;
    return ahead_of(k) > 0 &&
           qm_tracks_is_cached(t, k->step > 0 ? k->end - k->step : k->end);
}

void qm_windows_claim(struct qm_tracks *t)
{
    uint64_t blocks = 0;

    if (!t->config.reserve)
        return;
    for (unsigned i = 0; i < t->n; i++)
        if (is_live(t, &t->tracks[i]) && ahead_of(&t->tracks[i]) > 0)
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

void qm_windows_lost(struct qm_tracks *t)
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

static uint32_t first_of(const struct qm_tracks *t, const struct qm_track *k)
{
    uint64_t first = (uint64_t)k->unit * 2;

    if (k->stride)
        return STRIDE_FIRST;
    if (first < t->config.first_window)
        first = t->config.first_window;
    return clamp(first, 1, most_of(t));
}

/* How large the window should be; see tracks.h. */
static void size_window(const struct qm_tracks *t, struct qm_track *k)
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

/* Whether the count-th block of a stride's read is to be asked for. */
static bool is_wanted(const struct qm_tracks *t, uint64_t at, uint32_t count)
{
    const uint64_t block = qm_track_device(t, at + count);

    return block != QM_EXTENTS_NONE && block == qm_track_device(t, at) + count &&
           !qm_tracks_is_cached(t, at + count);
}

/* The window of a stride: reads that lie apart. */
static void ask_reads(struct qm_tracks *t, struct qm_track *k, struct asking *a)
{
    const uint64_t step = (uint64_t)(int64_t)k->step;
    uint64_t ahead = ahead_of(k);
    uint32_t count;

    for (; ahead < k->window && a->n < a->max; ahead++, k->end += step) {
        if (k->step < 0 && k->end < (uint64_t) - (int64_t)k->step)
            break;
        for (count = 0; count < k->unit && is_wanted(t, k->end, count); count++)
            ;
        if (count == 0)
            continue;
        a->ranges[a->n++] = (struct qm_candidate){.block = k->end, .count = count};
        a->blocks += count;
    }
}

/* The window of a track that goes forward or backward: what is not cached of the blocks
 * from its end on. */
static void ask_blocks(struct qm_tracks *t, struct qm_track *k, struct asking *a)
{
    const uint64_t ahead = ahead_of(k);
    const bool up = k->step > 0;
    uint64_t left = k->window > ahead ? k->window - ahead : 0;
    uint64_t next = QM_EXTENTS_NONE; /* on the device */
    unsigned skipped = 0;
    bool open = false;

    while (left > 0 && (up || k->end > 0)) {
        const uint64_t block = up ? k->end : k->end - 1;
        const uint64_t device = qm_track_device(t, block);

        if (device == QM_EXTENTS_NONE)
            break;
        open = open && device == next;
        next = up ? device + 1 : device - 1;
        if (qm_tracks_is_cached(t, block)) {
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
static uint64_t block_ahead(const struct qm_track *k, const struct asking *a,
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
static uint64_t distance(const struct qm_track *k, uint64_t block)
{
    if (k->stride)
        return (uint64_t)((int64_t)(block - k->pos) / k->step) + 1;
    return k->step > 0 ? block - k->pos + 1 : k->pos - block;
}

static void add_note(struct qm_tracks *t, const struct qm_track *k, uint64_t block,
                     enum qm_yield_bucket bucket, bool marker)
{
    if (qm_track_device(t, block) == QM_EXTENTS_NONE)
        return;
    qm_outcomes_add(&t->noted, qm_track_device(t, block),
                    (struct qm_note){
                        .generation = k->generation,
                        .track = (uint16_t)(k - t->tracks),
                        .bucket = (uint8_t)bucket,
                        .distance = (uint8_t)qm_yield_distance(distance(k, block)),
                        .marker = marker,
                    });
}

/* Notes the marker, and samples of what is asked for. */
static void note(struct qm_tracks *t, struct qm_track *k, const struct asking *a,
                 enum qm_yield_bucket bucket, bool grows)
{
    const struct qm_candidate *first = &a->ranges[0], *last = &a->ranges[a->n - 1];
    const bool up = k->step > 0;
    uint64_t marker = block_ahead(
        k, a, grows ? UINT32_MAX : k->window / 2 + (k->stride ? 0 : k->unit));

    add_note(t, k, up ? first->block : first->block + first->count - 1, bucket, false);
    add_note(t, k, up ? last->block + last->count - 1 : last->block, bucket, false);
    add_note(t, k, block_ahead(k, a, k->window / 4), bucket, false);
    qm_window_keep_sample(t, k);
    k->marked = true;
    k->marker = marker;
    add_note(t, k, marker, bucket, true);
}

/* Nothing is asked for, since the window was larger before: again at its end. */
static void mark_last(struct qm_tracks *t, struct qm_track *k,
                      enum qm_yield_bucket bucket)
{
    if (k->marked || k->stride || ahead_of(k) == 0)
        return;
    k->marked = true;
    k->marker = k->step > 0 ? k->end - 1 : k->end;
    add_note(t, k, k->marker, bucket, true);
}

static bool comes_sooner(const struct qm_track *k, uint32_t window)
{
    return k->asks == 0 || k->window > window;
}

unsigned qm_window_ask(struct qm_tracks *t, struct qm_track *k,
                       struct qm_candidate *ranges, unsigned max)
{
    struct asking asking = {
        .ranges = ranges,
        .max = max < QM_TRACKS_RANGES ? max : QM_TRACKS_RANGES,
    };
    struct asking *a = &asking;
    const enum qm_yield_bucket bucket =
        k->stride
            ? qm_yield_of_stride(k->length)
            : qm_yield_of_run(k->own > 0, k->two, k->own > 0 ? k->own : k->length);
    const uint32_t before = k->window;
    float likely = 1;
    uint32_t reach;
    bool grows;

    size_window(t, k);
    grows = comes_sooner(k, before);
    reach = qm_yield_reach(&t->worth, bucket, k->window);
    if (reach == 0) {
        k->window = before;
        return 0; /* it is asked for again when a block is missed */
    }
    k->window = reach;
    if (k->stride)
        ask_reads(t, k, a);
    else
        ask_blocks(t, k, a);
    if (a->n == 0) {
        mark_last(t, k, bucket);
        return 0;
    }
    regain_share(t, a->blocks);
    note(t, k, a, bucket, grows);
    for (unsigned i = 0; i < a->n; i++) {
        float worth = qm_yield_get(&t->worth, bucket,
                                   qm_yield_distance(distance(k, a->ranges[i].block)));

        /* What lies further ahead is no likelier. */
        a->ranges[i].probability = worth < likely ? worth : likely;
        likely = a->ranges[i].probability;
        a->ranges[i].stream = true;
        a->ranges[i].block = qm_track_device(t, a->ranges[i].block);
    }
    k->asks++;
    k->asked = ++t->asks;
    qm_windows_claim(t);
    t->stats.windows++;
    t->stats.blocks += a->blocks;
    return a->n;
}
