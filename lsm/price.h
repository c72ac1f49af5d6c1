/* SPDX-License-Identifier: BSD-3-Clause */
/* price.h - what a block more costs a cache that is full.
 *
 * A block that is put into a full LRU cache and never used takes one place for as long
 * as it stays.  The loss is the number of look-ups that the cache misses meanwhile
 * because it is one block smaller.  Of a sample of all blocks, the time of the last
 * look-up is kept, counted in insertions.  A block that comes again after d insertions
 * would have been found by a cache of d blocks; those with d between one and one and a
 * quarter of the cache's blocks tell what a quarter more places would be worth:
 *
 *   price = 4 x (look-ups with C <= d < 1.25 C) / insertions
 *
 * Threads: any.  A look-up of a sampled block takes a lock, the others take none. */
#ifndef QM_LSM_PRICE_H
#define QM_LSM_PRICE_H

#include <stdint.h>

struct price;

struct price *price_new(void);
void price_free(struct price *p);

/* hash: of the block, uniform.  A block was looked up; a block was inserted when the
 * cache holds `blocks` blocks. */
void price_look(struct price *p, uint64_t hash);
void price_insert(struct price *p);
void price_blocks(struct price *p, uint64_t blocks);

double price_now(struct price *p);
/* Blocks inserted since the beginning. */
uint64_t price_insertions(struct price *p);

#endif
