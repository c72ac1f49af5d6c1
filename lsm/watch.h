/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - what a block cache's look-ups tell: of which file, block and level.
 *
 * RocksDB 7 names a block of a table file by two words: one of the file, and one that
 * is the exclusive or of another word of the file with a quarter of the block's offset.
 * With both words known, each look-up tells the file and, by its blocks' sizes, the
 * block; each insertion which keys die with the file.  Words that fit no known file are
 * ignored: files that were there before, other databases, index and filter blocks.
 *
 * A watch belongs to a cache; the files of all databases on that cache are in it.  A
 * look-up takes no lock but that of price.h, for a sample of the blocks.
 *
 * Threads: any; but a file is added, ended and forgotten by one thread at a time. */
#ifndef QM_LSM_WATCH_H
#define QM_LSM_WATCH_H

#include "lsm/choice.h"
#include "lsm/price.h"
#include "lsm/shape.h"

/* A column family: keys of its own. */
struct family {
    struct collector *collector;
    struct choice choice;
    _Atomic bool
        keyed;     /* the program tells the keys that it reads: look-ups do not count */
    bool followed; /* which ranges are read one after the other */
    const struct trees *trees;     /* the mode leaper's; NULL: the counters say */
    struct dump *dump;             /* of intervals; or NULL */
    uint32_t number;               /* in it */
    uint64_t dumped;               /* intervals */
    _Atomic uint32_t largest;      /* keys of a block, in the mean */
    _Atomic uint64_t hits, misses; /* of data blocks of known files */
    _Atomic uint64_t used;         /* warmed blocks that were looked up in time */
    _Atomic uint64_t late;         /* blocks not warmed that were looked up */
    _Atomic uint64_t blocks;       /* that are tracked */
};

struct watch;
struct file;

struct watch *watch_new(void);
void watch_free(struct watch *w);
struct price *watch_price(struct watch *w);

/* From the cache: two words that name a block. */
void watch_look(struct watch *w, const uint64_t name[2], bool hit);
void watch_insert(struct watch *w, const uint64_t name[2]);
/* It was erased. */
void watch_erased(struct watch *w, const uint64_t name[2]);

/* A new file; first is the name of its block at offset 0, warmed[i] is 1 if block i was
 * put into the cache.  max_blocks: more are not tracked in the family.  NULL: no
 * memory. */
struct file *watch_add(struct watch *w, struct family *family, const uint64_t first[2],
                       const struct shape *shape, uint64_t data_size,
                       const uint8_t *warmed, uint64_t max_blocks);

/* A block of the file is in the cache; watch_insert() tells so of later ones. */
void watch_adopt(struct file *f, const uint64_t name[2]);

/* Names of inserted blocks that there is room for, of all files: 32 MiB.  Those beyond
 * are not told by watch_names(). */
#define WATCH_NAMES (UINT64_C(4) << 20)

/* The names of the file's blocks that were inserted, for as long as it is there: how
 * many, and in *names a copy that the caller frees.  With cold, only those of blocks
 * that were not looked up for `cold` intervals; with hot, which has a flag for each
 * block, only those of others.  Without memory there are none. */
uint64_t watch_names(struct file *f, unsigned cold, const uint8_t *hot,
                     uint64_t (**names)[2]);
/* For cold_check(): first keys of the file's n blocks, 0 if they are not tracked. */
const struct keys *watch_firsts(const struct file *f, uint32_t *n);
struct family *watch_family(const struct file *f);

/* Between them a pointer may be used that watch_forget() waits for. */
unsigned watch_enter(struct watch *w);
void watch_leave(struct watch *w, unsigned token);

/* The file is gone. */
void watch_remove(struct watch *w, struct file *f);
/* All files of a family are forgotten.  Waits for all that are in watch_look(), or
 * between the two above. */
void watch_forget(struct watch *w, struct family *family);

/* Ends an interval: look-ups of known files become reads of key ranges, and what became
 * of new blocks is learned when they would have left the cache, or when `window` whole
 * intervals have passed since: an interval that a file was born in does not count. */
void watch_tick(struct watch *w, struct family *family, double window);

#endif
