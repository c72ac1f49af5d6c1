/* SPDX-License-Identifier: BSD-3-Clause */
/* paper.c - see paper.h.
 *
 * What Linux keeps of a file is where the last window begins and ends, and how large
 * the part behind its marker is (PG_readahead).  A read of the marker asks for the next
 * window, asynchronously; a miss right behind the window does the same.
 */
#include "mining/readahead/paper.h"

struct stream {
    uint64_t next;    /* behind the last read */
    uint64_t end;     /* behind the last window; 0: there is none */
    uint64_t marker;  /* 0: none */
    uint32_t window;  /* blocks */
    uint32_t request; /* of the last read */
};

void qm_paper_fini(struct qm_paper *p)
{
    qm_recent_fini(&p->streams);
}

/* Where `most` blocks from `from` on lie. */
static struct qm_layout layout_of(const struct qm_paper_config *c, uint64_t from,
                                  uint32_t most)
{
    struct qm_layout layout = {.segment = most};
    bool ssd;

    if (!c->place)
        return layout;
    layout.ssd = c->place(c->opaque, from) == QM_PLACE_TIER;
    for (uint32_t i = 1; i < most; i++) {
        ssd = c->place(c->opaque, from + i) == QM_PLACE_TIER;
        if (ssd != layout.ssd) {
            layout.mixed = true;
            layout.segment = i;
            break;
        }
    }
    return layout;
}

/* The stream of which `what` says it is at block, made the first; or NULL. */
static struct stream *find(struct qm_paper *p, uint64_t block,
                           bool (*is_at)(const struct stream *s, uint64_t block))
{
    for (unsigned i = 0; i < p->streams.n; i++)
        if (is_at(qm_recent_at(&p->streams, i, sizeof(struct stream)), block))
            return qm_recent_use(&p->streams, i, sizeof(struct stream));
    return NULL;
}

static bool continues(const struct stream *s, uint64_t block)
{
    return s->next == block || (s->end != 0 && s->end == block);
}

static bool is_marker(const struct stream *s, uint64_t block)
{
    return s->marker != 0 && s->marker == block;
}

/* The window behind the last one, and the marker at its first block. */
static struct qm_span next_window(const struct qm_paper_config *c, struct stream *s,
                                  uint64_t from)
{
    struct qm_layout layout;

    if (c->aware) {
        layout = layout_of(c, from, 4 * s->window);
        s->window = qm_aware_next(s->window, s->request, &layout, &c->caps);
    } else {
        s->window = qm_linux_next(s->window, &c->caps);
    }
    s->marker = from;
    s->end = from + s->window;
    return (struct qm_span){from, s->end};
}

/* The first window: what a miss reads, without the request itself. */
static struct qm_span first_window(const struct qm_paper_config *c, struct stream *s,
                                   uint64_t block, uint32_t count, bool sequential)
{
    uint32_t size = count;
    struct qm_layout layout;

    if (c->aware) {
        layout = layout_of(c, block + count, count);
        size = qm_aware_first(count, &layout, &c->caps);
    } else if (sequential) {
        size = qm_linux_first(count, &c->caps);
    }
    s->window = size;
    s->end = block + size;
    s->marker = size > count ? block + count : 0;
    return (struct qm_span){block + count, block + size};
}

struct qm_span qm_paper_miss(struct qm_paper *p, const struct qm_paper_config *c,
                             uint64_t block, uint32_t count)
{
    struct stream *s = find(p, block, continues);
    bool sequential = s != NULL, windowed;

    if (!s) {
        s = qm_recent_add(&p->streams, QM_PAPER_STREAMS, sizeof *s);
        if (!s)
            return (struct qm_span){0};
        *s = (struct stream){0};
    }
    windowed = s->end == block && s->window > s->request;
    s->next = block + count;
    s->request = count;
    if (sequential && windowed)
        return next_window(c, s, block + count);
    return first_window(c, s, block, count, sequential);
}

struct qm_span qm_paper_pass(struct qm_paper *p, const struct qm_paper_config *c,
                             uint64_t block, uint32_t count)
{
    struct stream *s = find(p, block, is_marker);

    if (!s)
        return (struct qm_span){0};
    s->next = block + count;
    s->request = count;
    return next_window(c, s, s->end);
}
