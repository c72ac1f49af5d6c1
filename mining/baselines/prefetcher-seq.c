/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-seq.c - adaptive sequential readahead as in Linux (ATC'08 §5.1, SEQ).
 *
 * A stream is read sequentially when it has read K contiguous blocks.  From then on two
 * windows of adjacent blocks lie before its reader: the current window, in which it
 * reads, and the read-ahead window behind that.  What is in them is prefetched once,
 * when they are made.  S.curHit and S.reaHit count how many of each window's blocks
 * the reader found in the cache.  When it reaches the read-ahead window, this becomes
 * the current one (and S.reaHit S.curHit), and a new read-ahead window of 2 * S.curHit
 * blocks is made behind it, where S.curHit is of the window that the reader has just
 * left; at most 128 KiB.  So readahead doubles as long as it is used, and shrinks when
 * blocks are gone before they are read.  A block that does not follow the one before
 * ends it all, as in Linux 2.6; the same block again does not count.
 *
 * The paper leaves open K, and how it begins: K is 3, so that more than 32 KiB have
 * been read, which is the threshold of RUN; the first current window has K blocks, as
 * if K had been used of one before it, and so the first read-ahead window 2 * K.  No
 * window has less than K blocks, so one bad window does not end readahead, nor more
 * than 128 KiB, or one block if blocks are larger.
 *
 * In the paper the server sees one stream of everything, which is level none; at other
 * levels each context has its own windows, which is what a file has in Linux.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/registry.h"
#include "mining/core/span.h"

#define WINDOW_BYTES  131072 /* at most in the read-ahead window */
#define WINDOW_MAX    64     /* blocks, however small */
#define CONTIGUOUS    3      /* K */
#define BLOCK_ASSUMED 16384  /* bytes, if not told */

struct seq {
    struct qm_prefetcher base;
    unsigned max, min; /* blocks in a window */
};

struct qm_stream {
    unsigned length;               /* contiguous blocks read; counts to K */
    uint64_t last;                 /* the block read last, if length > 0 */
    struct qm_span current, ahead; /* the windows, once length is K */
    unsigned current_hits, ahead_hits;
    struct qm_span wanted; /* to be prefetched */
};

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    uint64_t block_size = config->block_size ? config->block_size : BLOCK_ASSUMED;
    uint64_t max = WINDOW_BYTES / block_size;
    struct seq *q = calloc(1, sizeof *q);

    if (!q) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    q->base.ops = &qm_prefetcher_seq;
    q->max = max < 1 ? 1 : max > WINDOW_MAX ? WINDOW_MAX : (unsigned)max;
    q->min = q->max < CONTIGUOUS ? q->max : CONTIGUOUS;
    *p = &q->base;
    err[0] = '\0';
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    free(p);
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return calloc(1, sizeof(struct qm_stream));
}

/* The size of the read-ahead window after `hits` hits in the current one. */
static unsigned size_after(const struct seq *q, unsigned hits)
{
    return hits > q->max / 2 ? q->max : 2 * hits < q->min ? q->min : 2 * hits;
}

/* The first windows, before a reader that has just read s->last. */
static void open_windows(const struct seq *q, struct qm_stream *s)
{
    s->current.from = s->last + 1;
    s->current.to = s->current.from + q->min;
    s->ahead.from = s->current.to;
    s->ahead.to = s->ahead.from + size_after(q, CONTIGUOUS);
    s->current_hits = s->ahead_hits = 0;
    s->wanted.from = s->current.from;
    s->wanted.to = s->ahead.to;
}

/* The reader has reached the read-ahead window. */
static void advance_windows(const struct seq *q, struct qm_stream *s)
{
    unsigned size = size_after(q, s->current_hits);

    s->current = s->ahead;
    s->current_hits = s->ahead_hits;
    s->ahead.from = s->current.to;
    s->ahead.to = s->ahead.from + size;
    s->ahead_hits = 0;
    s->wanted = s->ahead;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    const struct seq *q = (const struct seq *)p;
    unsigned hit = outcome != QM_ACCESS_MISS;

    *work = NULL;
    s->wanted = (struct qm_span){0};
    if (s->length > 0 && block == s->last) {
        return;
    }
    if (s->length == 0 || block != s->last + 1) {
        *s = (struct qm_stream){.length = 1, .last = block};
        return;
    }
    s->last = block;
    if (s->length < CONTIGUOUS) {
        s->length++;
        if (s->length == CONTIGUOUS) {
            open_windows(q, s);
        }
    } else if (qm_span_has(s->current, block)) {
        s->current_hits += hit;
    } else {
        s->ahead_hits += hit;
        advance_windows(q, s);
    }
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    return qm_span_take(&s->wanted, out);
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    *work = NULL;
    free(s);
}

const struct qm_prefetcher_ops qm_prefetcher_seq = {
    .name = "seq",
    .summary = "adaptive sequential readahead with two windows, as in Linux",
    .flags = QM_ASK_ALWAYS,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = qm_idle_stats,
    .rules = NULL,
};
