/* SPDX-License-Identifier: BSD-3-Clause */
/* train.c - a trace as C-Miner*'s sequence database.
 *
 * The contexts are those that a prefetcher sees (feed.h); this one only cuts what it is
 * told of into segments.
 */
#include "sim/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feed.h"
#include "mining/core/sequence.h"

struct cutter {
    struct qm_prefetcher base;
    struct qm_cminer_db db;
    unsigned segment;
    int error; /* the first one; 0: none */
};

struct qm_stream {
    struct qm_sequence sequence; /* since the last whole segment */
};

struct qm_train {
    struct qm_train_config config;
    struct cutter cutter;
    struct qm_feed feed;
    uint64_t requests; /* reads so far, those that were skipped too */
    bool begun;
    uint64_t start; /* the time of the first event */
};

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct qm_stream *stream = malloc(sizeof *stream);

    (void)p;
    (void)klass;
    if (stream)
        qm_sequence_init(&stream->sequence);
    return stream;
}

static void add_segment(struct cutter *cutter, struct qm_stream *stream)
{
    struct qm_work *segment = qm_sequence_take(&stream->sequence);

    if (segment && !cutter->error)
        cutter->error = qm_cminer_add(&cutter->db, segment->blocks, segment->n);
    free(segment);
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *stream,
                         uint64_t block, enum qm_access outcome, struct qm_work **work)
{
    struct cutter *cutter = (struct cutter *)p;

    (void)outcome;
    *work = NULL;
    if (stream->sequence.seen > 0 && stream->sequence.last[1] == block)
        return;
    qm_sequence_append(&stream->sequence, block);
    if (!stream->sequence.work && !cutter->error)
        cutter->error = ENOMEM;
    if (qm_sequence_fresh(&stream->sequence) >= cutter->segment)
        add_segment(cutter, stream);
}

static void end(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work)
{
    *work = NULL;
    add_segment((struct cutter *)p, stream);
    free(stream);
}

static const struct qm_prefetcher_ops cutter_ops = {
    .name = "cutter",
    .begin = begin,
    .access = access_block,
    .end = end,
};

struct qm_train *qm_train_new(const struct qm_train_config *config)
{
    struct qm_train *train = calloc(1, sizeof *train);

    if (!train)
        return NULL;
    train->config = *config;
    train->cutter.base.ops = &cutter_ops;
    train->cutter.segment = config->segment;
    if (qm_feed_init(&train->feed, &train->cutter.base, config->level) != 0) {
        free(train);
        return NULL;
    }
    return train;
}

static int train_read(struct qm_train *train, const struct qm_event *event)
{
    struct qm_context *target = qm_feed_target(&train->feed, event);
    uint64_t block = event->offset / train->config.block_size;
    uint64_t last = (event->offset + event->length - 1) / train->config.block_size;
    int error = 0;

    for (; block <= last && !error && target; block++) {
        error = qm_feed_access(&train->feed, target, block, QM_ACCESS_MISS);
        if (!error)
            error = train->cutter.error;
    }
    return error;
}

int qm_train_event(struct qm_train *train, const struct qm_event *event)
{
    const struct qm_train_config *c = &train->config;

    if (!train->begun)
        train->start = event->us; /* 0, unless the trace is a part of another */
    train->begun = true;
    if ((c->until > 0 && event->us >= train->start &&
         event->us - train->start >= c->until) ||
        (c->first > 0 && train->requests >= c->skip &&
         train->requests - c->skip >= c->first))
        return -1;
    switch (event->type) {
    case QM_TRACE_BEGIN:
    case QM_TRACE_END:
        return qm_feed_context(&train->feed, event);
    case QM_TRACE_READ:
        return ++train->requests > c->skip ? train_read(train, event) : 0;
    default:
        return 0; /* writes are not mined */
    }
}

int qm_train_finish(struct qm_train *train, struct qm_cminer_db *db)
{
    int error = qm_feed_finish(&train->feed, true);

    if (!error)
        error = train->cutter.error;
    if (!error)
        error = qm_cminer_number(&train->cutter.db);
    if (error)
        return error;
    *db = train->cutter.db;
    memset(&train->cutter.db, 0, sizeof train->cutter.db);
    return 0;
}

uint64_t qm_train_requests(const struct qm_train *train)
{
    uint64_t skip = train->config.skip;

    return train->requests > skip ? train->requests - skip : 0;
}

void qm_train_free(struct qm_train *train)
{
    if (!train)
        return;
    qm_feed_finish(&train->feed, false);
    qm_cminer_db_free(&train->cutter.db);
    free(train);
}
