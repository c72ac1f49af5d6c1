/* SPDX-License-Identifier: BSD-3-Clause */
/* table-lines.h - the lines of a table of pairs, and which of them a key is in: for
 * table.c, which fills them, and table-size.c, which has more of them or fewer.
 */
#ifndef QM_MARKOV_TABLE_LINES_H
#define QM_MARKOV_TABLE_LINES_H

#include <stdatomic.h>

#include "mining/markov/table.h"

enum {
    WAYS = QM_MARKOV_FOUND_MAX,
    LINE = 64, /* bytes */
    BLOCK_BITS = 34,
    TAG_BITS = 16,
    TAGS = 1 << TAG_BITS,
    SINCE_MAX = 3,
    AGE_MAX = 15,
    FADE_EVERY = 4,
    HELD_PER_LINE = 2,
    LEVELS = 5,     /* a table begins with a 32nd of its lines, */
    FIRST_MIN = 64, /* but a page of them if it has that */
    NEXT_BITS = 56,
    /* Blocks that are tried to find out what a table's keys are of: no more than an
     * eighth of the keys that it can tell apart, so that few are taken for another, and
     * no more than take some seconds. */
    ADOPT_PART = 8,
    ADOPT_MAX = 1 << 26,
    ADOPT_MARGIN = 1024, /* beyond the blocks that are known to follow others */
};

struct line {
    _Alignas(LINE) _Atomic uint64_t words[WAYS];
};

struct qm_markov {
    void *memory; /* that the lines are in */
    struct line *lines;
    uint64_t first;               /* lines in use at first, */
    atomic_uint_least64_t active; /* or as many if there may be less: none is split */
    unsigned levels;              /* n is first << levels */
    uint64_t n;                   /* lines there can be */
    atomic_uint_least64_t most;   /* lines that may be in use now; to n */
    atomic_uint_least64_t extent; /* level << NEXT_BITS | next: see struct extent */
    atomic_flag splitting;
    atomic_uint owners; /* that are there */
    atomic_uint_least64_t held, evicted;
};

struct word {
    uint64_t block;
    unsigned tag, count, since, age, owner;
};

static inline struct word unpack(uint64_t w)
{
    return (struct word){
        .block = w & (QM_MARKOV_BLOCKS - 1),
        .tag = w >> BLOCK_BITS & (TAGS - 1),
        .count = w >> 50 & 15,
        .since = w >> 54 & 3,
        .age = w >> 56 & 15,
        .owner = w >> 60,
    };
}

static inline uint64_t pack(const struct word *w)
{
    return w->block | (uint64_t)w->tag << BLOCK_BITS | (uint64_t)w->count << 50 |
           (uint64_t)w->since << 54 | (uint64_t)w->age << 56 | (uint64_t)w->owner << 60;
}

static inline uint64_t load(const struct line *line, unsigned i)
{
    return atomic_load_explicit(&line->words[i], memory_order_relaxed);
}

/* Readers of a line that does not change must not take it from each other's caches. */
static inline void store(struct line *line, unsigned i, uint64_t was,
                         const struct word *w)
{
    uint64_t is = pack(w);

    if (is != was)
        atomic_store_explicit(&line->words[i], is, memory_order_relaxed);
}

static inline unsigned tag_of(uint64_t key)
{
    return key & (TAGS - 1);
}

/* How far the table has grown: there are first << level lines, and those that come of
 * the lines before next, which have been split. */
struct extent {
    unsigned level;
    uint64_t next;
};

static inline struct extent extent_of(const struct qm_markov *p)
{
    uint64_t e = atomic_load_explicit(&p->extent, memory_order_acquire);

    return (struct extent){
        .level = (unsigned)(e >> NEXT_BITS),
        .next = e & ((UINT64_C(1) << NEXT_BITS) - 1),
    };
}

static inline uint64_t active_lines(const struct qm_markov *p)
{
    return atomic_load_explicit(&p->active, memory_order_relaxed);
}

static inline uint64_t lines_in_use(const struct qm_markov *p)
{
    struct extent e = extent_of(p);

    return (p->first << e.level) + e.next - (p->first - active_lines(p));
}

/* Where a key of that tag is that was in line start, below first, in the beginning;
 * NULL: it is not in the sample. */
static inline struct line *line_at(const struct qm_markov *p, uint64_t start,
                                   unsigned tag)
{
    struct extent e = extent_of(p);
    uint64_t i = start + p->first * (tag & ((1u << e.level) - 1));

    if (start >= active_lines(p))
        return NULL;
    if (i < e.next && tag >> e.level & 1)
        i += p->first << e.level;
    return &p->lines[i];
}

/* By the key's high bits; its low bits are the tag. */
static inline struct line *line_of(const struct qm_markov *p, uint64_t key)
{
    uint64_t start = (uint64_t)((unsigned __int128)key * p->first >> 64);

    return line_at(p, start, tag_of(key));
}

static inline bool goes_before(const struct word *a, const struct word *b)
{
    return a->count < b->count || (a->count == b->count && a->age > b->age);
}

/* table-size.c: takes a line more, unless that is being done, or all are in use. */
void qm_markov_split_next(struct qm_markov *p);

#endif
