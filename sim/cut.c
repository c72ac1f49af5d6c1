/* SPDX-License-Identifier: BSD-3-Clause */
/* cut.c - a piece of a trace, as a trace of its own (see cut.h).
 *
 * Until the piece begins, the tree of open contexts is kept, as that of the simulator
 * under a prefetcher that does nothing.  From then on the events need only be copied.
 */
#include "sim/cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/prefetcher.h"

/* What a context's B said; its kind and its parent are the context's. */
struct begun {
    uint64_t ctx;
    uint64_t order; /* of the beginnings: a parent comes before what is nested in it */
    char klass[];
};

struct qm_cut {
    uint64_t skip, count;
    uint64_t reads;
    bool begun;
    uint64_t contexts;                /* seen so far */
    struct qm_prefetcher *prefetcher; /* none */
    struct qm_context **open;         /* by slot */
    uint32_t room;
};

struct qm_cut *qm_cut_new(uint64_t skip, uint64_t count)
{
    struct qm_cut *cut = calloc(1, sizeof *cut);
    struct qm_mining_config config;
    char err[256];

    if (!cut)
        return NULL;
    *cut = (struct qm_cut){.skip = skip, .count = count, .begun = skip == 0};
    qm_mining_defaults(&config);
    if (qm_prefetcher_find("none")->create(&config, &cut->prefetcher, err,
                                           sizeof err) == 0)
        return cut;
    free(cut);
    return NULL;
}

static void ended(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qm_cut *cut = opaque;

    (void)work; /* never any */
    cut->open[context->id] = NULL;
    free(context->user);
}

/* Makes open[slot] exist.  Returns 0 or ENOMEM. */
static int make_room(struct qm_cut *cut, uint32_t slot)
{
    uint32_t room = slot < 32 ? 64 : slot > UINT32_MAX / 2 ? 0 : slot * 2;
    struct qm_context **open;

    if (slot < cut->room)
        return 0;
    open = room ? reallocarray(cut->open, room, sizeof *open) : NULL;
    if (!open)
        return ENOMEM;
    memset(open + cut->room, 0, (room - cut->room) * sizeof *open);
    cut->open = open;
    cut->room = room;
    return 0;
}

/* A context begins before the piece does. */
static int note_begin(struct qm_cut *cut, const struct qm_event *e)
{
    size_t size = strlen(e->klass) + 1;
    struct begun *begun;
    int error = make_room(cut, e->slot);

    if (error)
        return error;
    begun = malloc(sizeof *begun + size);
    if (!begun)
        return ENOMEM;
    *begun = (struct begun){.ctx = e->ctx, .order = cut->contexts++};
    memcpy(begun->klass, e->klass, size);
    error = qm_context_begin(cut->prefetcher, QM_LEVEL_INNERMOST,
                             e->parent_slot ? cut->open[e->parent_slot] : NULL, e->kind,
                             0, e->slot, begun, &cut->open[e->slot]);
    if (error)
        free(begun);
    return error;
}

static int by_order(const void *a, const void *b)
{
    const struct begun *x = (*(struct qm_context *const *)a)->user;
    const struct begun *y = (*(struct qm_context *const *)b)->user;

    return x->order < y->order ? -1 : x->order > y->order;
}

static int write_begin(const struct qm_context *c, uint64_t us,
                       struct qm_trace_writer *writer)
{
    const struct begun *begun = c->user;
    const struct begun *parent = c->parent ? c->parent->user : NULL;
    struct qm_event e = {
        .type = QM_TRACE_BEGIN,
        .us = us,
        .ctx = begun->ctx,
        .kind = c->kind,
        .parent = parent ? parent->ctx : 0,
        .klass = begun->klass,
    };

    return qm_trace_write(writer, &e);
}

/* The piece begins, at time us. */
static int begin_piece(struct qm_cut *cut, uint64_t us, struct qm_trace_writer *writer)
{
    struct qm_context **open = calloc((size_t)cut->room + 1, sizeof *open);
    size_t n = 0;
    int error = 0;

    if (!open)
        return ENOMEM;
    for (uint32_t slot = 0; slot < cut->room; slot++)
        if (cut->open[slot])
            open[n++] = cut->open[slot];
    qsort(open, n, sizeof *open, by_order);
    for (size_t i = 0; i < n && !error; i++)
        error = write_begin(open[i], us, writer);
    free(open);
    cut->begun = true;
    return error;
}

int qm_cut_event(struct qm_cut *cut, const struct qm_event *event,
                 struct qm_trace_writer *writer)
{
    if (event->type == QM_TRACE_READ) {
        if (cut->reads >= cut->skip && cut->reads - cut->skip == cut->count)
            return -1;
        if (cut->reads++ == cut->skip && !cut->begun) {
            int error = begin_piece(cut, event->us, writer);

            if (error)
                return error;
        }
    }
    if (cut->begun)
        return qm_trace_write(writer, event);
    if (event->type == QM_TRACE_BEGIN)
        return note_begin(cut, event);
    if (event->type == QM_TRACE_END)
        qm_context_end(cut->prefetcher, cut->open[event->slot], ended, cut);
    return 0;
}

bool qm_cut_begun(const struct qm_cut *cut)
{
    return cut->begun;
}

uint64_t qm_cut_reads(const struct qm_cut *cut)
{
    return cut->reads;
}

void qm_cut_free(struct qm_cut *cut)
{
    if (!cut)
        return;
    for (uint32_t slot = 0; slot < cut->room; slot++) {
        struct qm_context *c = cut->open[slot];

        if (!c)
            continue;
        while (c->parent)
            c = c->parent;
        qm_context_end(cut->prefetcher, c, ended, cut);
    }
    cut->prefetcher->ops->destroy(cut->prefetcher);
    free(cut->open);
    free(cut);
}
