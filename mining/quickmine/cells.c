/* SPDX-License-Identifier: BSD-3-Clause */
/* cells.c - records in memory, in cells of 16 bytes (see cells.h). */
#include "mining/quickmine/cells.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART 12 /* bytes in a cell that another follows */
#define LAST 16 /* in one that is the last */

struct qm_cell {
    union {
        struct {
            unsigned char part[PART];
            uint32_t next; /* of a free cell, too */
        };
        unsigned char last[LAST];
    };
};
static_assert(sizeof(struct qm_cell) == LAST, "as small as can be");

/* Cells that memory is reserved for at a time, so that growing never takes long. */
#define AT_ONCE (1u << 22)

int qm_cells_init(struct qm_cells *cells, uint64_t bytes)
{
    uint64_t max = bytes / LAST;

    memset(cells, 0, sizeof *cells);
    cells->used = 1;
    cells->max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX - 1;
    cells->cap = cells->max < AT_ONCE ? cells->max : AT_ONCE;
    cells->v = malloc(((size_t)cells->cap + 1) * sizeof *cells->v);
    return cells->v ? 0 : ENOMEM;
}

void qm_cells_fini(struct qm_cells *cells)
{
    free(cells->v);
    memset(cells, 0, sizeof *cells);
}

static size_t cells_of(size_t size)
{
    return size <= LAST ? 1 : 1 + (size - LAST + PART - 1) / PART;
}

/* Whether n more can be taken. */
static bool make_room(struct qm_cells *cells, size_t n)
{
    while (cells->cap - (cells->used - 1) + (uint64_t)cells->n_free < n) {
        if (cells->cap == cells->max) {
            return false;
        }
        uint32_t cap = cells->cap < cells->max / 2 ? 2 * cells->cap : cells->max;
        struct qm_cell *v = realloc(cells->v, ((size_t)cap + 1) * sizeof *v);
        if (!v) {
            return false;
        }
        cells->v = v;
        cells->cap = cap;
    }
    return true;
}

static uint32_t take(struct qm_cells *cells)
{
    uint32_t at = cells->free;

    if (at == 0) {
        return cells->used++;
    }
    cells->free = cells->v[at].next;
    cells->n_free--;
    return at;
}

/* Frees a chain of n cells. */
static void give(struct qm_cells *cells, uint32_t first, size_t n)
{
    uint32_t last = first;

    for (size_t i = 1; i < n; i++) {
        last = cells->v[last].next;
    }
    cells->v[last].next = cells->free;
    cells->free = first;
    cells->n_free += (uint32_t)n;
}

/* Writes a record over a chain of `have` cells.  There is room for what it lacks. */
static void write_chain(struct qm_cells *cells, uint32_t at, size_t have,
                        const unsigned char *bytes, size_t size)
{
    size_t need = cells_of(size);

    for (size_t i = 1; i < need; i++) {
        if (i >= have) {
            cells->v[at].next = take(cells);
        }
        memcpy(cells->v[at].part, bytes, PART);
        at = cells->v[at].next;
        bytes += PART;
        size -= PART;
    }
    if (need < have) {
        give(cells, cells->v[at].next, have - need);
    }
    memcpy(cells->v[at].last, bytes, size);
}

uint32_t qm_cells_add(struct qm_cells *cells, const unsigned char *bytes, size_t size)
{
    if (!make_room(cells, cells_of(size))) {
        return 0;
    }
    uint32_t record = take(cells);
    write_chain(cells, record, 1, bytes, size);
    return record;
}

bool qm_cells_replace(struct qm_cells *cells, uint32_t record, size_t old_size,
                      const unsigned char *bytes, size_t size)
{
    size_t have = cells_of(old_size), need = cells_of(size);

    if (need > have && !make_room(cells, need - have)) {
        return false;
    }
    write_chain(cells, record, have, bytes, size);
    return true;
}

size_t qm_cells_read(const struct qm_cells *cells, uint32_t record, size_t size,
                     unsigned char *bytes, size_t max)
{
    size_t n = size < max ? size : max, left = n;
    uint32_t at = record;

    for (; size > LAST && left > PART; size -= PART, left -= PART) {
        memcpy(bytes, cells->v[at].part, PART);
        at = cells->v[at].next;
        bytes += PART;
    }
    memcpy(bytes, cells->v[at].last, left);
    return n;
}

void qm_cells_free(struct qm_cells *cells, uint32_t record, size_t size)
{
    give(cells, record, cells_of(size));
}

size_t qm_cells_bytes(const struct qm_cells *cells)
{
    return (size_t)(cells->used - 1) * sizeof *cells->v;
}
