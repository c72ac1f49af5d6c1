/* SPDX-License-Identifier: BSD-3-Clause */
/* shadow.h - estimates the misses of a plain LRU cache of the same size, and of one
 * that is larger by up to one of QM_SHADOW_BEYOND.
 *
 * It is a directory of the block numbers that such caches would hold.  For a large
 * cache it covers a sample of the blocks, chosen by their hash, and a capacity scaled
 * down by the same factor (Waldspurger et al., "Efficient MRC Construction with
 * SHARDS", FAST'15).  A demand costs a hash, and a look-up if the block is in the
 * sample.
 *
 * Always called with the shard's mutex held.
 */
#ifndef QM_CACHE_SHADOW_H
#define QM_CACHE_SHADOW_H

#include <stddef.h>
#include <stdint.h>

struct qm_ghosts;

#define QM_SHADOW_BEYOND 32

struct qm_shadow {
    struct qm_ghosts *ghosts; /* what the LRU cache holds, and what the larger one has
                                 beyond that; NULL: there is no shadow */
    uint64_t capacity;        /* in blocks */
    uint64_t larger;          /* the same, of the larger one */
    uint64_t made;            /* that there is memory for */
    uint64_t below;           /* a block is in the sample if its hash is below this */
    uint64_t missed;          /* demands of the sample's blocks */
    uint64_t saved;           /* of these, those that the larger one has */
    uint64_t before;          /* misses estimated with a larger sample, */
    uint64_t saved_before;    /* and of these those that the larger one has not */
};

/* blocks: the shard's capacity; all: the whole cache's.  Returns 0 or ENOMEM. */
int qm_shadow_init(struct qm_shadow *s, uint64_t blocks, uint64_t all);
void qm_shadow_destroy(struct qm_shadow *s); /* also if init failed */

/* Upper bound of the memory that it allocates, in bytes. */
size_t qm_shadow_bytes(uint64_t blocks, uint64_t all);

/* Sets the sizes of the shard, `blocks`, of the whole cache, `all`, and of the larger
 * one, if that is more, as far as it may be.  Reserve first:
 * it allocates, and returns 0, or ENOMEM and changes nothing; resize takes at most what
 * was reserved. */
int qm_shadow_reserve(struct qm_shadow *s, uint64_t blocks, uint64_t all);
void qm_shadow_resize(struct qm_shadow *s, uint64_t blocks, uint64_t larger);

/* Records a demand of block.  Does nothing if there is no shadow. */
void qm_shadow_demand(struct qm_shadow *s, uint64_t block);

/* Estimated misses, of all demands so far. */
uint64_t qm_shadow_misses(const struct qm_shadow *s);
uint64_t qm_shadow_larger_misses(const struct qm_shadow *s);

#endif
