/* SPDX-License-Identifier: BSD-3-Clause */
/* arena.c - see arena.h.
 *
 * Blocks have boundary tags (Knuth), free ones are in lists by size (TLSF, Masmano and
 * others, ECRTS 2004): classes of 16 bytes up to 1 KiB, and 16 classes a power of two
 * above.  A free block is taken from its size's class, if one of the first there is
 * large enough, else from a class whose blocks all are, and its rest is given back; one
 * that is freed is joined with free neighbours.  An empty chunk is given back to the
 * kernel, but one. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rowcache/store/arena.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(p, size)   ASAN_POISON_MEMORY_REGION(p, size)
#define UNPOISON(p, size) ASAN_UNPOISON_MEMORY_REGION(p, size)
#else
#define POISON(p, size)   ((void)0)
#define UNPOISON(p, size) ((void)0)
#endif

/* A block's size is a multiple of 16, its head included; its lowest bits are flags. */
struct arena_block {
    size_t head;
    /* Of a free block; its last 8 bytes are its size, too. */
    struct arena_block *next, *previous;
};

enum { IS_FREE = 1, BEHIND_FREE = 2, FLAGS = 15, LEAST = 32 };
enum { SMALL = 1024, LARGE = 64 << 10, MAPPED = 4 << 20 };
enum { LOOKS = 8 }; /* blocks of a class of several sizes that are looked at */

/* Chunks: with fewer, they have pages of 4 KiB, of which those that are not used take
 * no memory.  The addresses of so few are mostly known to the processor. */
enum { HUGE_LEAST = 4 };

struct arena_chunk {
    struct arena_chunk *next, *previous;
    size_t aligns; /* the first block's bytes behind its head are at a multiple of 16 */
};

/* Behind the last block is a head of size 0. */
enum { ROOM = STORE_ARENA_CHUNK - sizeof(struct arena_chunk) - STORE_ARENA_HEAD };

_Static_assert(ROOM % 16 == 0 && sizeof(struct arena_chunk) % 16 == 8, "alignment");

void store_arena_init(struct arena *a, uint64_t bytes)
{
    *a = (struct arena){.most = bytes / STORE_ARENA_CHUNK};
}

static size_t size_of(const struct arena_block *b)
{
    return b->head & ~(size_t)FLAGS;
}

static struct arena_block *at(struct arena_block *b, size_t bytes)
{
    return (struct arena_block *)((char *)b + bytes);
}

static size_t *last_of(struct arena_block *b)
{
    return (size_t *)((char *)b + size_of(b)) - 1;
}

/* The class that a block of that size is in. */
static unsigned class_of(size_t size)
{
    unsigned power;

    if (size < SMALL)
        return (unsigned)(size / 16);
    power = 63 - (unsigned)__builtin_clzl(size);
    return SMALL / 16 + (power - 10) * 16 + (unsigned)(size >> (power - 4)) % 16;
}

/* The first class of which all blocks have that size. */
static unsigned class_for(size_t size)
{
    if (size < SMALL)
        return class_of(size);
    return class_of(size + ((size_t)1 << (63 - __builtin_clzl(size) - 4)) - 1);
}

static void list(struct arena *a, struct arena_block *b)
{
    unsigned class = class_of(size_of(b));

    b->previous = NULL;
    b->next = a->free[class];
    if (b->next)
        b->next->previous = b;
    a->free[class] = b;
    a->some[class / 64] |= UINT64_C(1) << class % 64;
}

static void unlist(struct arena *a, struct arena_block *b)
{
    unsigned class = class_of(size_of(b));

    if (b->next)
        b->next->previous = b->previous;
    if (b->previous)
        b->previous->next = b->next;
    else if (!(a->free[class] = b->next))
        a->some[class / 64] &= ~(UINT64_C(1) << class % 64);
}

/* A block that is not in a list becomes free. */
static void set_free(struct arena *a, struct arena_block *b, size_t size)
{
    b->head = size | IS_FREE | (b->head & BEHIND_FREE);
    UNPOISON(last_of(b), sizeof(size_t));
    *last_of(b) = size;
    at(b, size)->head |= BEHIND_FREE;
    list(a, b);
}

static bool add_chunk(struct arena *a)
{
    const size_t size = STORE_ARENA_CHUNK;
    char *all = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct arena_chunk *c;
    struct arena_block *b;
    size_t before;

    if (all == MAP_FAILED)
        return false;
    /* The kernel maps downwards: with the upper of two places, chunks are adjacent, and
     * count as one of the mappings that a process may have. */
    before = size - (uintptr_t)all % size;
    munmap(all, before);
    if (before < size)
        munmap(all + before + size, size - before);
    c = (struct arena_chunk *)(all + before);
    /* Where the kernel gives huge pages by default, chunks have to decline them. */
    (void)madvise(c, size, a->most >= HUGE_LEAST ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    *c = (struct arena_chunk){.next = a->chunks};
    if (a->chunks)
        a->chunks->previous = c;
    a->chunks = c;
    a->count++;
    a->has_empty = true;
    b = (struct arena_block *)(c + 1);
    b->head = 0;
    at(b, ROOM)->head = 0;
    set_free(a, b, ROOM);
    return true;
}

static void drop_chunk(struct arena *a, struct arena_chunk *c)
{
    if (c->next)
        c->next->previous = c->previous;
    if (c->previous)
        c->previous->next = c->next;
    else
        a->chunks = c->next;
    a->count--;
    UNPOISON(c, STORE_ARENA_CHUNK);
    munmap(c, STORE_ARENA_CHUNK);
}

void store_arena_destroy(struct arena *a)
{
    while (a->chunks)
        drop_chunk(a, a->chunks);
}

static struct arena_block *first_from(const struct arena *a, unsigned class)
{
    unsigned word = class / 64;
    uint64_t bits;

    if (class >= STORE_ARENA_CLASSES)
        return NULL;
    bits = a->some[word] & UINT64_MAX << class % 64;
    while (bits == 0 && ++word < STORE_ARENA_CLASSES / 64)
        bits = a->some[word];
    return bits ? a->free[word * 64 + (unsigned)__builtin_ctzl(bits)] : NULL;
}

/* Entries are mostly of one size: without a look at their own class, a block that one
 * has left would not do for the next. */
static struct arena_block *fitting(const struct arena *a, size_t all)
{
    struct arena_block *b = a->free[class_of(all)];

    for (unsigned i = 0; b && i < LOOKS; i++, b = b->next)
        if (size_of(b) >= all)
            return b;
    return first_from(a, class_for(all));
}

void *store_arena_alloc(struct arena *a, size_t size, bool *in_chunk)
{
    size_t all = (size + STORE_ARENA_HEAD + 15) / 16 * 16, rest;
    struct arena_block *b = NULL;

    if (all < LEAST)
        all = LEAST;
    if (size <= LARGE) {
        b = fitting(a, all);
        if (!b && a->count < a->most && add_chunk(a))
            b = fitting(a, all);
    }
    *in_chunk = b != NULL;
    if (!b)
        return malloc(size);
    if (size_of(b) == ROOM)
        a->has_empty = false;
    unlist(a, b);
    rest = size_of(b) - all;
    if (rest < LEAST) {
        all += rest;
        rest = 0;
    }
    b->head = all | (b->head & BEHIND_FREE);
    if (rest > 0) {
        UNPOISON(at(b, all), sizeof *b);
        at(b, all)->head = 0;
        set_free(a, at(b, all), rest);
    } else {
        at(b, all)->head &= ~(size_t)BEHIND_FREE;
    }
    POISON((char *)b + STORE_ARENA_HEAD, all - STORE_ARENA_HEAD);
    UNPOISON((char *)b + STORE_ARENA_HEAD, size);
    return (char *)b + STORE_ARENA_HEAD;
}

void store_arena_free(struct arena *a, void *p, bool in_chunk)
{
    struct arena_block *b, *next;
    size_t all;

    if (!in_chunk) {
        free(p);
        return;
    }
    b = (struct arena_block *)((char *)p - STORE_ARENA_HEAD);
    all = size_of(b);
    POISON(p, all - STORE_ARENA_HEAD);
    UNPOISON(b, sizeof *b);
    next = at(b, all);
    if (next->head & IS_FREE) {
        unlist(a, next);
        all += size_of(next);
    }
    if (b->head & BEHIND_FREE) {
        size_t before = *((size_t *)b - 1);

        b = (struct arena_block *)((char *)b - before);
        unlist(a, b);
        all += before;
    }
    if (all < ROOM) {
        set_free(a, b, all);
        return;
    }
    if (a->has_empty) {
        drop_chunk(a, (struct arena_chunk *)b - 1);
        return;
    }
    set_free(a, b, all);
    a->has_empty = true;
}

void *store_pages_alloc(size_t size)
{
    void *p;

    if (size < MAPPED) {
        size = (size + 63) / 64 * 64;
        p = aligned_alloc(64, size);
        return p ? memset(p, 0, size) : NULL;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

void store_pages_free(void *p, size_t size)
{
    if (!p || size < MAPPED)
        free(p);
    else
        munmap(p, size);
}
