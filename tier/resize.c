/* SPDX-License-Identifier: BSD-3-Clause */
/* resize.c - grows and shrinks a tier that is in use, by whole segments. */
#include "tier/internal.h"

#include <errno.h>

/* All under log.lock, which keeps the log's thread away. */
static int grow(struct qm_tier *t, const struct qm_tier_geometry *g)
{
    uint32_t was = t->g.segments;
    int r = index_resize(t, (uint64_t)g->slots * g->segments);

    if (r == 0)
        r = log_add_segments(t, was, g->segments);
    if (r == 0 && !t->io.fixed)
        r = t->io.resize(t->io.opaque, qm_tier_file_bytes(g));
    if (r != 0)
        return r;
    /* A device may have old footers there, of this very tier. */
    for (uint32_t i = was; r == 0 && t->io.fixed && i < g->segments; i++) {
        static const struct qm_tier_footer none;

        r = tier_write(t, QM_TIER_META, &none, sizeof none, qm_tier_footer_at(g, i),
                       false);
    }
    if (r == 0 && t->io.fixed)
        r = tier_sync(t);
    if (r != 0)
        return r;
    r = super_resize(t, g->segments);
    if (r != 0)
        return r;
    t->g.segments = g->segments;
    rebuild_size(t);
    reuse_size(t);
    t->size = qm_tier_file_bytes(g);
    for (uint32_t i = was; i < g->segments; i++)
        log_push(t, &t->log.free, i);
    t->filled = false;
    return 0;
}

static int empty(struct qm_tier *t, uint32_t number)
{
    struct segment *s = segment_of(t, number);
    int r = 0;

    if (number == t->log.filling) {
        (void)log_footer(t);
        t->log.filling = NO_SEGMENT;
        s->state = SEGMENT_SEALED;
    } else if (s->state == SEGMENT_SEALED) {
        log_unlink(t, &t->log.sealed, number);
    } else {
        log_unlink(t, &t->log.free, number);
        return 0;
    }
    r = log_empty(t, number);
    if (r != 0)
        log_push(t, &t->log.sealed, number);
    else
        s->state = SEGMENT_FREE;
    return r;
}

static int shrink(struct qm_tier *t, const struct qm_tier_geometry *g)
{
    uint32_t was = t->g.segments, i = was;
    int r = 0;

    while (i > g->segments && (r = empty(t, i - 1)) == 0)
        i--;
    if (r == 0)
        r = super_resize(t, g->segments);
    if (r != 0) {
        for (; i < was; i++)
            log_push(t, &t->log.free, i);
        return r;
    }
    t->g.segments = g->segments;
    rebuild_size(t);
    reuse_size(t);
    t->size = qm_tier_file_bytes(g);
    if (!t->io.fixed)
        r = t->io.resize(t->io.opaque, t->size);
    (void)index_resize(t, (uint64_t)g->slots * g->segments); /* it is large enough */
    return r;
}

int qm_tier_resize(struct qm_tier *t, uint64_t size)
{
    struct qm_tier_geometry g;
    uint64_t segments;
    int r = 0;

    if (t->io.fixed && size > t->io.size)
        return EINVAL;
    pthread_mutex_lock(&t->log.lock);
    segments =
        size < t->g.segments_at ? 0 : (size - t->g.segments_at) / t->g.segment_bytes;
    if (tier_dead(t))
        r = ENODEV;
    else if (segments > UINT32_MAX ||
             !qm_tier_geometry_of(&g, t->g.slots, (uint32_t)segments,
                                  t->config.identity.size, t->g.block_size))
        r = EINVAL;
    else if (g.segments > t->g.segments)
        r = grow(t, &g);
    else if (g.segments < t->g.segments)
        r = shrink(t, &g);
    pthread_mutex_unlock(&t->log.lock);
    return r;
}
