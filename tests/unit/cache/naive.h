/* SPDX-License-Identifier: BSD-3-Clause */
/* naive.h - the eviction policies once more, as slow and as plain as can be.
 *
 * For comparing with those of cache/, block by block.  Each keeps its blocks in arrays
 * in order, looks for them one by one, and does what its paper says; they share nothing
 * with the real ones but the hash function of the sketch.
 */
#ifndef QM_TESTS_CACHE_NAIVE_H
#define QM_TESTS_CACHE_NAIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAIVE_MAX 1024 /* blocks of capacity */

struct naive;

struct naive *naive_new(const char *policy, size_t capacity);
void naive_free(struct naive *n);

bool naive_has(const struct naive *n, uint64_t block);
size_t naive_size(const struct naive *n);

/* block, which is there, was accessed. */
void naive_hit(struct naive *n, uint64_t block);
/* block, which is not there, enters.  Returns whether another left for it. */
bool naive_enter(struct naive *n, uint64_t block, uint64_t *left);
/* block, which is there, is dropped. */
void naive_drop(struct naive *n, uint64_t block);

#endif
