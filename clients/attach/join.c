/* SPDX-License-Identifier: BSD-3-Clause */
/* join.c - see join.h.
 *
 * Events are cut at the borders of regions, so that a request finds all that concern it
 * in the lists of its regions.  A region's list is in order of arrival.
 */
#include "clients/attach/join.h"

#include <stdlib.h>

#include <utlist.h>

#define LISTS      8192 /* a power of two */
#define MOST_BYTES (UINT64_C(1) << 62)

/* Bytes [from, to) of one region. */
struct piece {
    uint64_t from, to, context, ns;
    bool asked;                  /* it is a request that no event was there for */
    struct piece *prev, *next;   /* of its list */
    struct piece *older, *newer; /* of all */
};

struct list {
    struct piece *first;
    unsigned count;
};

struct qm_join {
    struct qm_join_calls calls;
    struct list lists[LISTS];
    struct piece *oldest;
    unsigned count;
    uint64_t front; /* ns; when the newest read was submitted whose request has come */
    struct qm_join_stats stats;
};

struct qm_join *qm_join_new(const struct qm_join_calls *calls)
{
    struct qm_join *j = calloc(1, sizeof *j);

    if (j)
        j->calls = *calls;
    return j;
}

static struct list *list_of(const struct qm_join *j, uint64_t offset)
{
    uint64_t region = offset / QM_JOIN_REGION;

    return (struct list *)&j->lists[(region ^ region >> 13) % LISTS];
}

static void hold(struct qm_join *j, uint64_t context)
{
    if (context != 0)
        j->calls.hold(j->calls.opaque, context);
}

static void release(struct qm_join *j, uint64_t context)
{
    if (context != 0)
        j->calls.release(j->calls.opaque, context);
}

/* Takes a piece out and frees it; its reference is the caller's. */
static void take_out(struct qm_join *j, struct piece *p)
{
    struct list *list = list_of(j, p->from);

    DL_DELETE(list->first, p);
    list->count--;
    DL_DELETE2(j->oldest, p, older, newer);
    j->count--;
    free(p);
}

static void drop(struct qm_join *j, struct piece *p)
{
    release(j, p->context);
    take_out(j, p);
}

void qm_join_free(struct qm_join *j)
{
    if (!j)
        return;
    while (j->oldest)
        drop(j, j->oldest);
    free(j);
}

/* Adds a piece behind all others, or behind `after`, of which it is a part. */
static void add(struct qm_join *j, const struct piece *piece, struct piece *after)
{
    struct list *list = list_of(j, piece->from);
    struct piece *p;

    if (!after && list->count >= QM_JOIN_REGION_MOST) {
        drop(j, list->first);
        j->stats.dropped++;
    } else if (!after && j->count >= QM_JOIN_MOST) {
        drop(j, j->oldest);
        j->stats.dropped++;
    }
    p = malloc(sizeof *p);
    if (!p) {
        release(j, piece->context);
        j->stats.dropped++;
        return;
    }
    *p = *piece;
    if (after) {
        DL_APPEND_ELEM(list->first, after, p);
        DL_APPEND_ELEM2(j->oldest, after, p, older, newer);
    } else {
        DL_APPEND(list->first, p);
        DL_APPEND2(j->oldest, p, older, newer);
    }
    list->count++;
    j->count++;
}

/* Takes the bytes [from, to), which are within the piece, out of it.  The reference
 * stays the piece's, unless nothing is left of it: then it is released. */
static void cut(struct qm_join *j, struct piece *p, uint64_t from, uint64_t to)
{
    if (p->from < from && to < p->to) {
        struct piece rest = *p;

        rest.from = to;
        hold(j, rest.context);
        p->to = from;
        add(j, &rest, p);
    } else if (p->from < from) {
        p->to = from;
    } else if (to < p->to) {
        p->from = to;
    } else {
        drop(j, p);
    }
}

static void age(struct qm_join *j, uint64_t now)
{
    const struct piece *p;

    while ((p = j->oldest) &&
           (p->asked ? p->ns + QM_JOIN_ASKED < now : p->ns + QM_JOIN_LATE < j->front)) {
        j->stats.aged += !p->asked;
        drop(j, j->oldest);
    }
}

/* The first piece of the list, an event or a request, for the byte at `at`; *end is
 * brought down to where it ends, or another that is before it in the list begins. */
static struct piece *find(const struct list *list, bool asked, uint64_t at,
                          uint64_t *end)
{
    struct piece *p;

    DL_FOREACH(list->first, p)
    {
        if (p->asked != asked || p->to <= at || p->from >= *end)
            continue;
        if (p->from > at) {
            *end = p->from;
            continue;
        }
        if (p->to < *end)
            *end = p->to;
        return p;
    }
    return NULL;
}

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Where the region of a byte ends. */
static uint64_t region_end(uint64_t at)
{
    return (at / QM_JOIN_REGION + 1) * QM_JOIN_REGION;
}

void qm_join_event(struct qm_join *j, uint64_t context, uint64_t offset, uint64_t bytes,
                   uint64_t ns)
{
    uint64_t end = offset < MOST_BYTES && bytes < MOST_BYTES ? offset + bytes : 0;
    bool late = false;

    for (uint64_t at = offset, stop; at < end; at = stop) {
        struct piece *asked;

        stop = min(end, region_end(at));
        asked = find(list_of(j, at), true, at, &stop);
        if (asked && ns <= asked->ns) {
            cut(j, asked, at, stop);
            late = true;
            continue;
        }
        hold(j, context);
        add(j, &(struct piece){.from = at, .to = stop, .context = context, .ns = ns},
            NULL);
    }
    j->stats.late += late;
    release(j, context);
}

bool qm_join_knows(const struct qm_join *j, uint64_t offset, uint64_t bytes)
{
    for (uint64_t at = offset, stop; at < offset + bytes; at = stop) {
        stop = min(offset + bytes, region_end(at));
        if (!find(list_of(j, at), false, at, &stop))
            return false;
    }
    return true;
}

/* Puts bytes, with a reference, behind the pieces. */
static size_t append(struct qm_join *j, struct qm_join_piece *pieces, size_t count,
                     size_t most, const struct qm_join_piece *new)
{
    struct qm_join_piece *last = count > 0 ? &pieces[count - 1] : NULL;

    if (last && last->context == new->context) {
        last->bytes += new->bytes;
        release(j, new->context);
        return count;
    }
    if (count < most) {
        pieces[count] = *new;
        return count + 1;
    }
    release(j, last->context);
    release(j, new->context);
    last->context = 0;
    last->bytes += new->bytes;
    return count;
}

size_t qm_join_request(struct qm_join *j, uint64_t offset, uint64_t bytes, uint64_t ns,
                       struct qm_join_piece *pieces, size_t most)
{
    size_t count = 0;
    bool unknown = false;

    for (uint64_t at = offset, stop; at < offset + bytes; at = stop) {
        struct qm_join_piece new = {.offset = at};
        struct piece *event;

        stop = min(offset + bytes, region_end(at));
        event = find(list_of(j, at), false, at, &stop);
        if (event) {
            new.context = event->context;
            hold(j, new.context);
            if (event->ns > j->front)
                j->front = event->ns;
            cut(j, event, at, stop);
        } else {
            unknown = true;
            add(j, &(struct piece){.from = at, .to = stop, .ns = ns, .asked = true},
                NULL);
        }
        new.bytes = stop - at;
        count = append(j, pieces, count, most, &new);
    }
    j->stats.requests++;
    j->stats.split += count > 1;
    j->stats.unknown += unknown;
    age(j, ns);
    return count;
}

void qm_join_get_stats(const struct qm_join *j, struct qm_join_stats *stats)
{
    *stats = j->stats;
}
