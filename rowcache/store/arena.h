/* SPDX-License-Identifier: BSD-3-Clause */
/* arena.h - memory of entries, in huge pages.
 *
 * Entries of a large store lie all over its memory, and each look-up touches some of
 * them.  In pages of 4 KiB the processor would have to find most of their addresses
 * first.  An arena has chunks of 2 MiB, aligned, for which it asks the kernel for huge
 * pages (madvise(2), MADV_HUGEPAGE) unless they are few, and finds room in them as
 * malloc() would.  Without huge pages it works as well, and is slower.
 *
 * A block takes its size and STORE_ARENA_HEAD bytes, rounded up to 16: as many as of
 * malloc().  Large blocks, and those for which the chunks have no room, are malloc()'s.
 *
 * Not for several threads at a time. */
#ifndef QM_STORE_ARENA_H
#define QM_STORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STORE_ARENA_CHUNK = 2 << 20,
    STORE_ARENA_HEAD = 8,
    STORE_ARENA_CLASSES = 64 + 12 * 16,
};

struct arena_block;
struct arena_chunk;

struct arena {
    struct arena_block *free[STORE_ARENA_CLASSES];
    uint64_t some[STORE_ARENA_CLASSES / 64]; /* bits: that list is not empty */
    struct arena_chunk *chunks;
    size_t count, most; /* chunks */
    bool has_empty;     /* one of them, at most */
};

/* bytes: that all chunks take, at most. */
void store_arena_init(struct arena *a, uint64_t bytes);
void store_arena_destroy(struct arena *a); /* all blocks must be freed */
/* NULL: no memory.  Aligned as malloc()'s.  *in_chunk: as store_arena_free() is to be
 * told. */
void *store_arena_alloc(struct arena *a, size_t size, bool *in_chunk);
void store_arena_free(struct arena *a, void *p, bool in_chunk);

/* Zeroed bytes, aligned to a cache line, in huge pages if they are many; NULL: no
 * memory. */
void *store_pages_alloc(size_t size);
void store_pages_free(void *p, size_t size);

#endif
