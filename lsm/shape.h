/* SPDX-License-Identifier: BSD-3-Clause */
/* shape.h - the blocks of a table file while it is written: first keys, sizes, heat.
 *
 * Heat is the number of reads an interval that a block is expected to get: the sum over
 * its keys of what the collector says of their ranges.  A block of a flushed file,
 * whose few keys lie far apart, is judged by these keys and not by all that lies
 * between.  A shape is used by one thread at a time. */
#ifndef QM_LSM_SHAPE_H
#define QM_LSM_SHAPE_H

#include "lsm/feature.h"

struct shape {
    struct collector *collector;
    struct table *table;
    int level;
    uint32_t
        cut;     /* bytes after which a block is taken to end; 0: shape_block() tells */
    bool failed; /* no memory: n blocks are fewer than there are */

    uint32_t n, room;
    struct keys firsts; /* n, and one more while a block is open */
    uint32_t *raw;      /* bytes before compression */
    float *heat;
    uint64_t entries;

    struct keys last; /* one: the last key */
    bool open;
    uint32_t range, open_raw;
    float open_heat, key_heat;
    struct keys sample;
    uint32_t spacing, since;

    const struct trees *trees; /* see shape_predict() */
    uint32_t from, steps;
    struct moment moment;
};

struct shape *shape_new(struct collector *c, int level, uint32_t cut);
void shape_free(struct shape *s);

/* Of each block, heat is the highest probability that a range of its keys is read in
 * one of `steps` intervals behind the next `from` ones. */
void shape_predict(struct shape *s, const struct trees *trees, uint32_t from,
                   uint32_t steps);

/* An entry whose key and value have `bytes` bytes. */
void shape_key(struct shape *s, const void *key, size_t len, size_t bytes);
/* The ends of later blocks are estimated: a block ends after `bytes` bytes. */
void shape_cut(struct shape *s, uint32_t bytes);
/* A block of `raw` bytes ends here. */
void shape_block(struct shape *s, uint64_t raw);
/* The file is whole; the collector learns from it. */
void shape_finish(struct shape *s);

#endif
