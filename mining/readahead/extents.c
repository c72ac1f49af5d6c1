/* SPDX-License-Identifier: BSD-3-Clause */
/* extents.c - see extents.h.
 *
 * Of those that are not forgotten, neighbours share a block at most.  So by their
 * first blocks they are sorted by their last ones as well.
 */
#include "mining/readahead/extents.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX (UINT64_C(1) << 62)

_Static_assert(QM_EXTENTS_MAX <= UINT16_MAX + 1, "their numbers fit");

struct qm_extents *qm_extents_new(void)
{
    struct qm_extents *e = calloc(1, sizeof *e);

    if (e)
        e->next = QM_EXTENTS_BASE;
    return e;
}

void qm_extents_free(struct qm_extents *e)
{
    free(e);
}

static struct qm_extents_place *in_order(struct qm_extents *e, unsigned i)
{
    return &e->places[e->order[i]];
}

static uint64_t end_of(const struct qm_extents_place *p)
{
    return p->block + p->count;
}

/* How many of those that are known begin at `block` or before. */
static unsigned up_to(const struct qm_extents *e, uint64_t block)
{
    unsigned lo = 0, hi = e->known;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (e->places[e->order[mid]].block <= block)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct qm_extents_place *qm_extents_at_block(const struct qm_extents *e,
                                                   uint64_t block)
{
    const unsigned n = up_to(e, block);
    const struct qm_extents_place *p = n > 0 ? &e->places[e->order[n - 1]] : NULL;

    return p && block < end_of(p) ? p : NULL;
}

const struct qm_extents_place *qm_extents_at_file(const struct qm_extents *e,
                                                  uint64_t file)
{
    const struct qm_extents_place *p;
    unsigned lo = 0, hi = e->n;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (e->places[(e->oldest + mid) % QM_EXTENTS_MAX].file <= file)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    p = &e->places[(e->oldest + lo - 1) % QM_EXTENTS_MAX];
    return !p->forgotten && file - p->file < p->count ? p : NULL;
}

static bool shares_an_end(const struct qm_extents_place *p, uint64_t block,
                          uint64_t count)
{
    return p->count > 1 && count > 1 &&
           (end_of(p) == block + 1 || p->block == block + count - 1);
}

/* Forgets what overlaps; ends: also what shares only an end. */
static void forget(struct qm_extents *e, uint64_t block, uint64_t count, bool ends)
{
    unsigned from = up_to(e, block), to, kept;

    while (from > 0 && end_of(in_order(e, from - 1)) > block)
        from--;
    kept = from;
    for (to = from; to < e->known && in_order(e, to)->block < block + count; to++) {
        struct qm_extents_place *p = in_order(e, to);

        if (!ends && shares_an_end(p, block, count))
            e->order[kept++] = e->order[to];
        else
            p->forgotten = true;
    }
    memmove(&e->order[kept], &e->order[to], (e->known - to) * sizeof *e->order);
    e->known -= to - kept;
}

void qm_extents_forget(struct qm_extents *e, uint64_t block, uint64_t count)
{
    forget(e, block, count, true);
}

/* There is a free place, if there was none. */
static void forget_oldest(struct qm_extents *e)
{
    const struct qm_extents_place *p = &e->places[e->oldest];

    if (e->n < QM_EXTENTS_MAX)
        return;
    for (unsigned i = up_to(e, p->block); !p->forgotten && i-- > 0;)
        if (in_order(e, i) == p) {
            memmove(&e->order[i], &e->order[i + 1],
                    (e->known - i - 1) * sizeof *e->order);
            e->known--;
            break;
        }
    e->oldest = (e->oldest + 1) % QM_EXTENTS_MAX;
    e->n--;
}

static void add(struct qm_extents *e, struct qm_extent x)
{
    unsigned at, i;

    if (x.count > UINT32_MAX)
        x.count = UINT32_MAX;
    forget(e, x.block, x.count, false);
    forget_oldest(e);
    at = (e->oldest + e->n++) % QM_EXTENTS_MAX;
    e->places[at] = (struct qm_extents_place){
        .file = e->next, .block = x.block, .count = (uint32_t)x.count};
    e->next += x.count;
    i = up_to(e, x.block);
    memmove(&e->order[i + 1], &e->order[i], (e->known - i) * sizeof *e->order);
    e->order[i] = (uint16_t)at;
    e->known++;
}

/* Whether x is the end of the extent that was told last. */
static bool goes_on(const struct qm_extents *e, const struct qm_extent *x)
{
    const struct qm_extents_place *p;

    if (e->n == 0)
        return false;
    p = &e->places[(e->oldest + e->n - 1) % QM_EXTENTS_MAX];
    return !p->forgotten && x->block >= p->block && x->block + x->count == end_of(p);
}

static bool is_valid(const struct qm_extent *x)
{
    return x->count > 0 && x->block < QM_BLOCKS_MAX &&
           x->count <= QM_BLOCKS_MAX - x->block;
}

void qm_extents_tell(struct qm_extents *e, const struct qm_extent *told, unsigned n)
{
    struct qm_extent x = {0, 0};
    bool known;

    if (e->next > NUMBERS_MAX) {
        e->n = e->known = 0;
        e->next = QM_EXTENTS_BASE;
    }
    known = n > 0 && is_valid(&told[0]) && goes_on(e, &told[0]);
    if (!known)
        e->next += QM_EXTENTS_GAP;
    for (unsigned i = 0; i < n; i++) {
        struct qm_extent y = told[i];

        if (!is_valid(&y))
            continue;
        if (x.count > 0 && y.block >= x.block && y.block <= x.block + x.count) {
            if (y.block + y.count <= x.block + x.count)
                continue;
            if (!known) { /* it adjoins */
                x.count = y.block + y.count - x.block;
                continue;
            }
            y.count -= x.block + x.count - y.block;
            y.block = x.block + x.count;
        }
        if (x.count > 0 && !known)
            add(e, x);
        known = known && x.count == 0;
        x = y;
    }
    if (x.count > 0 && !known)
        add(e, x);
}
