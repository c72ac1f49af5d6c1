/* SPDX-License-Identifier: BSD-3-Clause */
/* lately.c - which rows were read or asked for lately; see lately.h. */
#include "rowcache/readahead/lately.h"

#include <stdlib.h>
#include <string.h>

/* When each row was noted, plus 1; 0: it was not.  These are the lower 32 bits, so that
 * a block is one line of a processor's cache: what was noted 49 days ago may be taken
 * for recent once. */
struct block {
    uint32_t when[QM_LATELY_BLOCK];
};

struct qm_lately {
    struct qm_items *items; /* blocks; of each, its place */
    struct block *block;
    unsigned bound, again_ms;
};

struct qm_lately *qm_lately_new(unsigned blocks, unsigned again_ms)
{
    struct qm_lately *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->bound = blocks ? blocks : 1;
    r->again_ms = again_ms;
    r->items = qm_items_new(r->bound);
    r->block = calloc(r->bound, sizeof *r->block);
    if (!r->items || !r->block) {
        qm_lately_free(r);
        return NULL;
    }
    return r;
}

void qm_lately_free(struct qm_lately *r)
{
    if (!r)
        return;
    qm_items_free(r->items);
    free(r->block);
    free(r);
}

void qm_lately_clear(struct qm_lately *r)
{
    qm_items_clear(r->items);
}

/* Rounded down, below 0, too. */
static int64_t block_of(int64_t row)
{
    return row >= 0 ? row / QM_LATELY_BLOCK : -(-(row + 1) / QM_LATELY_BLOCK) - 1;
}

static unsigned place_of(int64_t row)
{
    return (unsigned)((uint64_t)row % QM_LATELY_BLOCK);
}

/* NULL: it is not there. */
static struct block *find(const struct qm_lately *r, uint32_t table, int64_t block)
{
    const uint64_t *at = qm_items_find(r->items, (struct qm_item){table, block});

    return at ? &r->block[*at] : NULL;
}

static struct block *add(struct qm_lately *r, uint32_t table, int64_t block)
{
    uint64_t at = qm_items_count(r->items);
    struct qm_item oldest;

    if (at >= r->bound && qm_items_oldest(r->items, &oldest, &at))
        qm_items_remove(r->items, oldest);
    *qm_items_add(r->items, (struct qm_item){table, block}) = at;
    memset(&r->block[at], 0, sizeof r->block[at]);
    return &r->block[at];
}

void qm_lately_note(struct qm_lately *r, uint64_t now_ms, struct qm_item item)
{
    struct block *block = find(r, item.table, block_of(item.row));

    if (!block)
        block = add(r, item.table, block_of(item.row));
    block->when[place_of(item.row)] = (uint32_t)(now_ms + 1);
}

void qm_lately_forget(struct qm_lately *r, struct qm_item item)
{
    struct block *block = find(r, item.table, block_of(item.row));

    if (block)
        block->when[place_of(item.row)] = 0;
}

/* The blocks stay: their places are those of others' numbers. */
void qm_lately_forget_table(struct qm_lately *r, uint32_t table)
{
    struct qm_item item;
    uint64_t place;

    for (size_t at = 0; qm_items_each(r->items, &at, &item, &place);)
        if (item.table == table)
            memset(&r->block[place], 0, sizeof r->block[place]);
}

static bool is_recent(const struct qm_lately *r, uint64_t now_ms,
                      const struct block *block, int64_t row)
{
    uint32_t when = block ? block->when[place_of(row)] : 0;

    return when > 0 && (uint32_t)(now_ms + 1) - when < r->again_ms;
}

bool qm_lately_has(struct qm_lately *r, uint64_t now_ms, struct qm_item item)
{
    return is_recent(r, now_ms, find(r, item.table, block_of(item.row)), item.row);
}

unsigned qm_lately_others(struct qm_lately *r, uint64_t now_ms, uint32_t table,
                          int64_t first, int64_t last, bool down, int64_t *rows,
                          unsigned most)
{
    const struct block *block = NULL;
    int64_t looked = 0;
    unsigned n = 0;

    for (int64_t i = 0; i <= last - first && n < most; i++) {
        int64_t row = down ? last - i : first + i;

        if (i == 0 || block_of(row) != looked) {
            looked = block_of(row);
            block = find(r, table, looked);
        }
        if (!is_recent(r, now_ms, block, row))
            rows[n++] = row;
    }
    return n;
}
