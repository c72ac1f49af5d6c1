/* SPDX-License-Identifier: BSD-3-Clause */
/* feed.c - a trace's contexts as one prefetcher sees them, at one level. */
#include "sim/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void qm_feed_learn(void *opaque, struct qm_work *work)
{
    struct qm_feed *feed = opaque;
    int error;

    if (!work)
        return;
    error = feed->prefetcher->ops->learn(feed->prefetcher, work);
    if (error && !feed->error)
        feed->error = error;
}

static void forget(struct qm_feed *feed, struct qm_context *context)
{
    if (context != feed->all)
        feed->open[context->id] = NULL;
}

static void ended(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qm_feed *feed = opaque;

    qm_feed_learn(feed, work);
    forget(feed, context);
}

static void dropped(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qm_feed *feed = opaque;

    if (work)
        feed->prefetcher->ops->discard(feed->prefetcher, work);
    forget(feed, context);
}

int qm_feed_init(struct qm_feed *feed, struct qm_prefetcher *prefetcher,
                 enum qm_level level)
{
    *feed = (struct qm_feed){.prefetcher = prefetcher, .level = level};
    if (level != QM_LEVEL_NONE)
        return 0;
    /* It reads for itself, so it must have a sequence of its own. */
    return qm_context_begin(prefetcher, QM_LEVEL_INNERMOST, NULL, QM_CONNECTION, 0, 0,
                            NULL, &feed->all);
}

/* Makes open[slot] exist.  Returns 0 or ENOMEM. */
static int make_room(struct qm_feed *feed, uint32_t slot)
{
    uint32_t room = feed->room ? feed->room : 64;
    struct qm_context **open;

    if (slot < feed->room)
        return 0;
    while (room <= slot) {
        if (room > UINT32_MAX / 2)
            return ENOMEM;
        room *= 2;
    }
    open = realloc(feed->open, room * sizeof *open);
    if (!open)
        return ENOMEM;
    memset(open + feed->room, 0, (room - feed->room) * sizeof *open);
    feed->open = open;
    feed->room = room;
    return 0;
}

int qm_feed_context(struct qm_feed *feed, const struct qm_event *event)
{
    struct qm_context *parent = NULL;
    uint32_t klass;
    int error;

    if (feed->level == QM_LEVEL_NONE)
        return 0;
    if (event->type == QM_TRACE_END) {
        qm_context_end(feed->prefetcher, feed->open[event->slot], ended, feed);
        return feed->error;
    }
    if (event->parent_slot != 0)
        parent = feed->open[event->parent_slot];
    error = make_room(feed, event->slot);
    if (!error)
        error = qm_classes_number(&feed->classes, event->klass, &klass);
    if (!error)
        error = qm_context_begin(feed->prefetcher, feed->level, parent, event->kind,
                                 klass, event->slot, NULL, &feed->open[event->slot]);
    return error;
}

struct qm_context *qm_feed_target(struct qm_feed *feed, const struct qm_event *event)
{
    if (feed->level == QM_LEVEL_NONE)
        return feed->all;
    if (event->slot == 0)
        return NULL;
    return qm_context_target(feed->level, feed->open[event->slot]);
}

uint32_t qm_feed_class(struct qm_feed *feed, const struct qm_event *event)
{
    if (feed->level == QM_LEVEL_NONE || event->slot == 0)
        return 0;
    return feed->open[event->slot]->klass + 1;
}

int qm_feed_access(struct qm_feed *feed, struct qm_context *target, uint64_t block,
                   enum qm_access outcome)
{
    struct qm_work *work = NULL;

    if (!target || !target->stream)
        return 0;
    feed->prefetcher->ops->access(feed->prefetcher, target->stream, block, outcome,
                                  &work);
    qm_feed_learn(feed, work);
    return feed->error;
}

int qm_feed_finish(struct qm_feed *feed, bool all_ends)
{
    if (feed->all)
        qm_context_end(feed->prefetcher, feed->all, all_ends ? ended : dropped, feed);
    feed->all = NULL;
    for (uint32_t slot = 0; slot < feed->room; slot++) {
        struct qm_context *c = feed->open[slot];

        if (!c)
            continue;
        while (c->parent)
            c = c->parent;
        qm_context_end(feed->prefetcher, c, dropped, feed);
    }
    free(feed->open);
    feed->open = NULL;
    feed->room = 0;
    qm_classes_clear(&feed->classes);
    return feed->error;
}
