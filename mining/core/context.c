/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - the tree of open contexts (see context.h).
 *
 * A context keeps its target, the context whose sequence its reads extend, from its
 * beginning to its end: what encloses it outlives it, so the pointer stays good, and a
 * read costs the same however deep a client nests.
 */
#include "mining/core/context.h"

#include <errno.h>
#include <stdlib.h>

#include "mining/core/prefetcher.h"

static struct qm_context *find_target(enum qm_level level, struct qm_context *context)
{
    unsigned kind = (unsigned)level;
    if (level == QM_LEVEL_INNERMOST || level == QM_LEVEL_NONE ||
        (unsigned)context->kind == kind || !context->parent) {
        return context;
    }
    struct qm_context *target = context->parent->target;
    return (unsigned)target->kind == kind ? target : context;
}

/* What a context in a transaction reads goes on where the transaction is; and when it
 * has ended, the transaction is where it was. */
static void resume(struct qm_prefetcher *prefetcher, const struct qm_context *context,
                   bool begins)
{
    const struct qm_context *parent = context->parent;

    if (!prefetcher->ops->resume || !parent || parent->kind != QM_TRANSACTION ||
        !parent->stream || !context->stream)
        return;
    if (begins)
        prefetcher->ops->resume(context->stream, parent->stream);
    else
        prefetcher->ops->resume(parent->stream, context->stream);
}

int qm_context_begin(struct qm_prefetcher *prefetcher, enum qm_level level,
                     struct qm_context *parent, enum qm_kind kind, uint32_t klass,
                     uint64_t id, void *user, struct qm_context **context)
{
    struct qm_context *c = calloc(1, sizeof *c);
    if (!c) {
        return ENOMEM;
    }
    c->parent = parent;
    c->kind = kind;
    c->klass = klass;
    c->id = id;
    c->user = user;
    c->target = find_target(level, c);
    CDS_INIT_LIST_HEAD(&c->children);
    CDS_INIT_LIST_HEAD(&c->siblings);
    if (c->target == c) {
        c->stream = prefetcher->ops->begin(prefetcher, klass);
        if (!c->stream) {
            free(c);
            return ENOMEM;
        }
        resume(prefetcher, c, true);
    }
    if (parent) {
        cds_list_add_tail(&c->siblings, &parent->children);
    }
    *context = c;
    return 0;
}

static void restart_one(struct qm_prefetcher *old, struct qm_prefetcher *prefetcher,
                        enum qm_level level, struct qm_context *context,
                        void (*restarted)(void *opaque, struct qm_context *context,
                                          struct qm_work *work),
                        void *opaque)
{
    struct qm_work *work = NULL;
    bool had = context->stream != NULL;
    if (had) {
        old->ops->end(old, context->stream, &work);
        context->stream = NULL;
    }
    context->target = find_target(level, context);
    if (context->target == context) {
        context->stream = prefetcher->ops->begin(prefetcher, context->klass);
    }
    if (had || context->stream) {
        restarted(opaque, context, work);
    }
}

void qm_context_restart(struct qm_prefetcher *old, struct qm_prefetcher *prefetcher,
                        enum qm_level level, struct qm_context *root,
                        void (*restarted)(void *opaque, struct qm_context *context,
                                          struct qm_work *work),
                        void *opaque)
{
    /* A context before those that are nested in it: their targets follow from its. */
    struct qm_context *c = root;
    for (;;) {
        restart_one(old, prefetcher, level, c, restarted, opaque);
        if (!cds_list_empty(&c->children)) {
            c = cds_list_entry(c->children.next, struct qm_context, siblings);
            continue;
        }
        while (c != root && c->siblings.next == &c->parent->children) {
            c = c->parent;
        }
        if (c == root) {
            return;
        }
        c = cds_list_entry(c->siblings.next, struct qm_context, siblings);
    }
}

struct qm_context *qm_context_target(enum qm_level level, struct qm_context *context)
{
    (void)level;
    return context->target;
}

static void end_one(struct qm_prefetcher *prefetcher, struct qm_context *context,
                    void (*ended)(void *opaque, struct qm_context *context,
                                  struct qm_work *work),
                    void *opaque)
{
    struct qm_work *work = NULL;
    if (context->stream) {
        resume(prefetcher, context, false);
        prefetcher->ops->end(prefetcher, context->stream, &work);
        context->stream = NULL;
    }
    if (ended) {
        ended(opaque, context, work);
    } else if (work) {
        prefetcher->ops->discard(prefetcher, work);
    }
    cds_list_del(&context->siblings);
    free(context);
}

void qm_context_end(struct qm_prefetcher *prefetcher, struct qm_context *context,
                    void (*ended)(void *opaque, struct qm_context *context,
                                  struct qm_work *work),
                    void *opaque)
{
    /* Without recursion: how deep contexts are nested is up to the client. */
    struct qm_context *c = context;
    for (;;) {
        while (!cds_list_empty(&c->children)) {
            c = cds_list_entry(c->children.prev, struct qm_context, siblings);
        }
        struct qm_context *parent = c->parent;
        bool last = c == context;
        end_one(prefetcher, c, ended, opaque);
        if (last) {
            return;
        }
        c = parent;
    }
}
