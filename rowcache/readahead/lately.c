/* SPDX-License-Identifier: BSD-3-Clause */
/* lately.c - which rows were read or asked for lately; see lately.h. */
#include "rowcache/readahead/lately.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of one set share its WAYS places, and a set is one line of a processor's
 * cache.  A block is told by a hash of 22 bits, with its set's number, and 10 bits of
 * its table: for two that are alike, a row of one may be taken for one of the other. */
enum { WAYS = 2, LINE = 64, HASH_BITS = 22, TABLES = 1 << 10, TIMES = UINT16_MAX };

struct block {
    uint32_t name; /* 0: there is none */
    /* When each row was noted, in units of time that begin anew after TIMES, plus 1; 0:
     * it was not.  What was noted TIMES ago, and stayed, is taken for recent again. */
    uint16_t when[QM_LATELY_BLOCK];
};

struct set {
    struct block way[WAYS];
};

struct qm_lately {
    struct set *set;
    unsigned sets;           /* a power of two */
    unsigned unit_ms, again; /* in units */
};

struct qm_lately *qm_lately_new(unsigned blocks, unsigned again_ms)
{
    struct qm_lately *r = calloc(1, sizeof *r);

    _Static_assert(sizeof(struct set) == LINE, "a set is a line of the cache");
    if (!r)
        return NULL;
    for (r->sets = 1; r->sets * WAYS < blocks;)
        r->sets *= 2;
    r->unit_ms = again_ms >= QM_LATELY_STEPS ? again_ms / QM_LATELY_STEPS : 1;
    r->again = (again_ms + r->unit_ms - 1) / r->unit_ms;
    r->set = aligned_alloc(LINE, r->sets * sizeof *r->set);
    if (!r->set) {
        free(r);
        return NULL;
    }
    qm_lately_clear(r);
    return r;
}

void qm_lately_free(struct qm_lately *r)
{
    if (!r)
        return;
    free(r->set);
    free(r);
}

void qm_lately_clear(struct qm_lately *r)
{
    memset(r->set, 0, r->sets * sizeof *r->set);
}

/* Rounded down, below 0, too. */
static int64_t block_of(int64_t row)
{
    return row >= 0 ? row / QM_LATELY_BLOCK : -(-(row + 1) / QM_LATELY_BLOCK) - 1;
}

static unsigned place_of(int64_t row)
{
    return (unsigned)((uint64_t)row - (uint64_t)block_of(row) * QM_LATELY_BLOCK);
}

static uint32_t name_of_table(uint32_t table)
{
    return (table % TABLES) << HASH_BITS;
}

/* Its set, and its name there. */
static struct set *set_of(const struct qm_lately *r, uint32_t table, int64_t block,
                          uint32_t *name)
{
    uint64_t hash = ((uint64_t)block ^ table * UINT64_C(0xc2b2ae3d27d4eb4f)) *
                    UINT64_C(0x9e3779b97f4a7c15);

    *name = name_of_table(table) | (uint32_t)(hash >> 8 & ((1 << HASH_BITS) - 1));
    *name += *name == 0;
    return &r->set[hash >> 32 & (r->sets - 1)];
}

/* NULL: it is not there. */
static struct block *find(const struct qm_lately *r, uint32_t table, int64_t block)
{
    uint32_t name;
    struct set *set = set_of(r, table, block, &name);

    for (unsigned i = 0; i < WAYS; i++)
        if (set->way[i].name == name)
            return &set->way[i];
    return NULL;
}

static uint16_t time_of(const struct qm_lately *r, uint64_t now_ms)
{
    return (uint16_t)(now_ms / r->unit_ms % TIMES + 1);
}

/* In units. */
static unsigned age_of(uint16_t now, uint16_t when)
{
    return now >= when ? now - when : now + TIMES - when;
}

static bool is_recent(const struct qm_lately *r, uint16_t now,
                      const struct block *block, unsigned place)
{
    uint16_t when = block ? block->when[place] : 0;

    return when > 0 && age_of(now, when) < r->again;
}

/* How long ago the last of its rows was noted. */
static unsigned age_of_block(uint16_t now, const struct block *block)
{
    unsigned least = TIMES;

    for (unsigned i = 0; i < QM_LATELY_BLOCK; i++)
        if (block->when[i] > 0 && age_of(now, block->when[i]) < least)
            least = age_of(now, block->when[i]);
    return least;
}

/* In the place of the one of its set that was noted longest ago. */
static struct block *add(struct qm_lately *r, uint16_t now, uint32_t table,
                         int64_t block)
{
    uint32_t name;
    struct set *set = set_of(r, table, block, &name);
    struct block *oldest = &set->way[0];

    for (unsigned i = 1; i < WAYS; i++)
        if (age_of_block(now, &set->way[i]) > age_of_block(now, oldest))
            oldest = &set->way[i];
    *oldest = (struct block){.name = name};
    return oldest;
}

void qm_lately_note(struct qm_lately *r, uint64_t now_ms, struct qm_item item)
{
    struct block *block = find(r, item.table, block_of(item.row));
    uint16_t now = time_of(r, now_ms);

    if (!block)
        block = add(r, now, item.table, block_of(item.row));
    block->when[place_of(item.row)] = now;
}

void qm_lately_forget(struct qm_lately *r, struct qm_item item)
{
    struct block *block = find(r, item.table, block_of(item.row));

    if (block)
        block->when[place_of(item.row)] = 0;
}

void qm_lately_forget_table(struct qm_lately *r, uint32_t table)
{
    for (unsigned i = 0; i < r->sets; i++)
        for (unsigned j = 0; j < WAYS; j++) {
            struct block *block = &r->set[i].way[j];

            if (block->name >> HASH_BITS == name_of_table(table) >> HASH_BITS)
                *block = (struct block){0};
        }
}

bool qm_lately_has(const struct qm_lately *r, uint64_t now_ms, struct qm_item item)
{
    return is_recent(r, time_of(r, now_ms), find(r, item.table, block_of(item.row)),
                     place_of(item.row));
}

unsigned qm_lately_others(const struct qm_lately *r, uint64_t now_ms, uint32_t table,
                          int64_t first, int64_t last, bool down, int64_t *rows,
                          unsigned most)
{
    const struct block *block = NULL;
    uint16_t now = time_of(r, now_ms);
    unsigned n = 0, place = 0, left = 0; /* rows of this block */

    for (int64_t i = 0; i <= last - first && n < most; i++) {
        int64_t row = down ? last - i : first + i;

        if (left == 0) {
            block = find(r, table, block_of(row));
            place = place_of(row);
            left = down ? place + 1 : QM_LATELY_BLOCK - place;
        }
        if (!is_recent(r, now, block, place))
            rows[n++] = row;
        place += down ? UINT_MAX : 1;
        left--;
    }
    return n;
}
