/* SPDX-License-Identifier: BSD-3-Clause */
/* price.h - how long a block stays in a cache, and what a block more costs one that is
 * full.
 *
 * The clock counts evictions, which nobody tells: an insertion evicts unless there is
 * room, from the beginning or since blocks were erased.  Of a sample of all blocks the
 * time of the last look-up is kept.
 *
 * A block that nobody looks up leaves after `residence` evictions.  That is fewer than
 * the cache has blocks, since blocks that are looked up again pass it, too.  It is
 * where look-ups after a shorter time are hits and those after a longer time are
 * misses: each one on the wrong side moves it.  RocksDB's LRU cache keeps blocks that
 * were hit longer than those that were only inserted, so there are two of them;
 * price_residence() tells that of a new block.
 *
 * A block that is put into a full cache and never used takes one place for as long as
 * it stays.  The loss is the number of look-ups that the cache misses meanwhile because
 * it is one block smaller.  A compaction's blocks come together, as many as half of the
 * cache has or more, so it is the mean of those that half of the places would lose, and
 * not only of those that the last one does: the look-ups that come between half a
 * residence R and one.
 *
 *   price = 2 x (look-ups with R / 2 <= d < R) / evictions x R1 / (mean R)
 *
 * R is that of the block's kind, R1 that of new blocks, and the mean is over the blocks
 * that are evicted, of which those were new that were missed and then not hit.
 *
 * Threads: any.  A look-up of a sampled block takes a lock, the others take none. */
#ifndef QM_LSM_PRICE_H
#define QM_LSM_PRICE_H

#include <stdbool.h>
#include <stdint.h>

struct price;

struct price *price_new(void);
void price_free(struct price *p);

/* hash: of the block, uniform.  A block was looked up; a block was inserted; blocks
 * were erased; the cache has room for `blocks` blocks. */
void price_look(struct price *p, uint64_t hash, bool hit);
void price_insert(struct price *p);
void price_erased(struct price *p, uint64_t blocks);
/* A block is in the cache no more, not for want of a place: its next look-up says
 * nothing. */
void price_forget(struct price *p, uint64_t hash);
void price_blocks(struct price *p, uint64_t blocks);

double price_now(struct price *p);
/* Evictions since the beginning, and those after which a block has left. */
uint64_t price_clock(struct price *p);
uint64_t price_residence(struct price *p);

#endif
