/* SPDX-License-Identifier: BSD-3-Clause */
/* future.c - what a trace holds (see future.h).
 *
 * The sequences of a level come from a prefetcher that is told of all accesses as in a
 * simulation, and only takes notes: so they are the simulation's by construction.  Its
 * stream numbers are the order of the beginnings, by which the second pass finds them
 * again.
 */
#include "sim/future.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

#include "sim/column.h"
#include "sim/feed.h"

/* A distinct block, in the first pass. */
struct distinct {
    uint64_t block;
    uint32_t number;
    uint32_t last; /* its latest access */
    bool lost;     /* no memory for the hash table */
    UT_hash_handle hh;
};

/* The prefetcher that takes notes at a level, and its notes. */
struct notes {
    struct qm_prefetcher base;
    bool wanted;
    struct qm_feed feed;
    struct qm_column first;     /* by sequence */
    struct qm_column following; /* by access */
};

struct qm_stream {
    uint32_t number;
    uint32_t last; /* its latest access; QM_FUTURE_NEVER: none yet */
};

struct qm_future {
    uint64_t block_size;
    struct distinct *distinct;   /* hash table */
    uint32_t distinct_count;     /* also after the first pass */
    bool want_next, want_blocks; /* which of the following there are */
    struct qm_column next;       /* by access: the next use */
    struct qm_column numbers;    /* by access: the number of its block */
    uint64_t *blocks;            /* by that number */
    struct notes levels[QM_LEVEL_NONE + 1];
};

static struct qm_stream *note_begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct notes *notes = (struct notes *)p;
    struct qm_stream *stream = malloc(sizeof *stream);

    (void)klass;
    if (!stream)
        return NULL;
    *stream = (struct qm_stream){.number = notes->first.count, .last = QM_FUTURE_NEVER};
    if (qm_column_append(&notes->first, QM_FUTURE_NEVER) != 0) {
        free(stream);
        return NULL;
    }
    return stream;
}

/* The current access is in the columns already, so there is room for what is noted. */
static void note_access(struct qm_prefetcher *p, struct qm_stream *stream,
                        uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    struct notes *notes = (struct notes *)p;
    uint32_t now = notes->following.count - 1;

    (void)block;
    (void)outcome;
    if (stream->last == QM_FUTURE_NEVER)
        *qm_column_at(&notes->first, stream->number) = now;
    else
        *qm_column_at(&notes->following, stream->last) = now;
    stream->last = now;
    *work = NULL;
}

static void note_end(struct qm_prefetcher *p, struct qm_stream *stream,
                     struct qm_work **work)
{
    (void)p;
    free(stream);
    *work = NULL;
}

/* What qm_feed calls; there is never any work. */
static const struct qm_prefetcher_ops note_ops = {
    .name = "notes",
    .begin = note_begin,
    .access = note_access,
    .end = note_end,
};

struct qm_future *qm_future_new(uint64_t block_size)
{
    struct qm_future *f = calloc(1, sizeof *f);

    if (f)
        f->block_size = block_size;
    return f;
}

void qm_future_want_next_uses(struct qm_future *f)
{
    f->want_next = true;
}

int qm_future_want_sequences(struct qm_future *f, enum qm_level level)
{
    struct notes *notes = &f->levels[level];

    if (notes->wanted)
        return 0;
    f->want_blocks = true;
    notes->wanted = true;
    notes->base.ops = &note_ops;
    return qm_feed_init(&notes->feed, &notes->base, level);
}

/* The block, new or not; NULL if memory is out. */
static struct distinct *find(struct qm_future *f, uint64_t block)
{
    struct distinct *d;

    HASH_FIND(hh, f->distinct, &block, sizeof block, d);
    if (d)
        return d;
    d = malloc(sizeof *d);
    if (!d)
        return NULL;
    *d = (struct distinct){
        .block = block, .number = f->distinct_count, .last = QM_FUTURE_NEVER};
    HASH_ADD(hh, f->distinct, block, sizeof d->block, d);
    if (d->lost) {
        free(d);
        return NULL;
    }
    f->distinct_count++;
    return d;
}

static int add_next_use(struct qm_future *f, struct distinct *d)
{
    uint32_t now = f->next.count;

    if (d->last != QM_FUTURE_NEVER)
        *qm_column_at(&f->next, d->last) = now;
    d->last = now;
    return qm_column_append(&f->next, QM_FUTURE_NEVER);
}

static int access_block(struct qm_future *f, const struct qm_event *event,
                        uint64_t block)
{
    struct distinct *d = find(f, block);
    int error = d ? 0 : ENOMEM;

    if (!error && f->want_next)
        error = add_next_use(f, d);
    if (!error && f->want_blocks)
        error = qm_column_append(&f->numbers, d->number);
    for (int level = 0; level <= QM_LEVEL_NONE && !error; level++) {
        struct notes *notes = &f->levels[level];

        if (!notes->wanted)
            continue;
        error = qm_column_append(&notes->following, QM_FUTURE_NEVER);
        if (!error)
            error = qm_feed_access(&notes->feed, qm_feed_target(&notes->feed, event),
                                   block, QM_ACCESS_MISS);
    }
    return error;
}

int qm_future_event(struct qm_future *f, const struct qm_event *event)
{
    int error = 0;

    if (event->type == QM_TRACE_READ) {
        uint64_t block = event->offset / f->block_size;
        uint64_t last = (event->offset + event->length - 1) / f->block_size;

        for (; block <= last && !error; block++)
            error = access_block(f, event, block);
    } else if (event->type != QM_TRACE_WRITE) {
        for (int level = 0; level <= QM_LEVEL_NONE && !error; level++)
            if (f->levels[level].wanted)
                error = qm_feed_context(&f->levels[level].feed, event);
    }
    return error;
}

/* Ends the contexts, which frees their streams. */
static void finish_levels(struct qm_future *f)
{
    for (int level = 0; level <= QM_LEVEL_NONE; level++)
        if (f->levels[level].wanted)
            qm_feed_finish(&f->levels[level].feed, false);
}

static void forget_distinct(struct qm_future *f)
{
    struct distinct *d, *next;

    HASH_ITER(hh, f->distinct, d, next)
    {
        HASH_DEL(f->distinct, d);
        free(d);
    }
}

int qm_future_finish(struct qm_future *f)
{
    finish_levels(f);
    if (f->want_blocks && f->distinct_count > 0) {
        f->blocks = calloc(f->distinct_count, sizeof f->blocks[0]);
        if (!f->blocks)
            return ENOMEM;
        for (struct distinct *d = f->distinct; d; d = d->hh.next)
            f->blocks[d->number] = d->block;
    }
    forget_distinct(f);
    return 0;
}

void qm_future_free(struct qm_future *f)
{
    if (!f)
        return;
    finish_levels(f);
    forget_distinct(f);
    for (int level = 0; level <= QM_LEVEL_NONE; level++) {
        qm_column_clear(&f->levels[level].first);
        qm_column_clear(&f->levels[level].following);
    }
    qm_column_clear(&f->next);
    qm_column_clear(&f->numbers);
    free(f->blocks);
    free(f);
}

bool qm_future_has_next_uses(const struct qm_future *f)
{
    return f->want_next;
}

bool qm_future_has_sequences(const struct qm_future *f, enum qm_level level)
{
    return f->levels[level].wanted;
}

static uint32_t look_up(const struct qm_column *column, uint32_t i)
{
    return i < column->count ? *qm_column_at(column, i) : QM_FUTURE_NEVER;
}

uint32_t qm_future_next_use(const struct qm_future *f, uint32_t access)
{
    return look_up(&f->next, access);
}

uint32_t qm_future_first(const struct qm_future *f, enum qm_level level,
                         uint32_t sequence)
{
    return look_up(&f->levels[level].first, sequence);
}

uint32_t qm_future_following(const struct qm_future *f, enum qm_level level,
                             uint32_t access)
{
    return look_up(&f->levels[level].following, access);
}

uint64_t qm_future_block(const struct qm_future *f, uint32_t access)
{
    return f->blocks[*qm_column_at(&f->numbers, access)];
}
