/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - entries by their keys' hashes, and the lists that entries are in.
 *
 * A line is a cache line of eight words: seven entries, and the first of a chain of
 * those that are too many.  A word is an entry's address and, where an address has no
 * bits, 16 bits of its key's hash.  So a look-up waits for memory twice, for the line
 * and for the entry, and mostly once if the key has no entry.
 *
 * Lines are in the order of the hashes, in which the disk layer has its records, too: a
 * range of hashes is a range of lines. */
#include <errno.h>
#include <string.h>

#include "rowcache/store/internal.h"

enum {
    FIRST = 8,
    FULL = 6,
    TAG_BITS = 16,
    TAG_SHIFT = 48
}; /* lines; entries a line, in the mean */

#define MOST (UINT64_C(1) << 31) /* lines */

_Static_assert(sizeof(void *) == sizeof(uint64_t), "an address is a word");

static struct table_line *make_lines(uint64_t n)
{
    return store_pages_alloc(n * sizeof(struct table_line));
}

int store_table_init(struct table *t, uint64_t bytes)
{
    store_arena_init(&t->arena, bytes);
    t->n = FIRST;
    t->count = 0;
    t->lines = make_lines(t->n);
    return t->lines ? 0 : ENOMEM;
}

void store_table_free(struct table *t)
{
    for (uint64_t i = 0; t->lines && i < t->n; i++) {
        struct table_walk w = store_table_walk(t, i);

        for (struct entry *e; (e = store_table_next(&w));)
            store_entry_free(t, e);
    }
    store_arena_destroy(&t->arena);
    store_pages_free(t->lines, store_table_bytes(t));
    t->lines = NULL;
}

struct entry *store_entry_alloc(struct table *t, uint16_t key_len, uint32_t value_len,
                                bool ends)
{
    struct entry made = {.key_len = key_len, .value_len = value_len, .ends = ends};
    bool in_chunk;
    struct entry *e = store_arena_alloc(&t->arena, store_entry_size(&made), &in_chunk);

    if (!e)
        return NULL;
    if ((uintptr_t)e >> TAG_SHIFT) { /* no room for a tag: not on today's machines */
        store_arena_free(&t->arena, e, in_chunk);
        return NULL;
    }
    *e = made;
    e->in_chunk = in_chunk;
    return e;
}

void store_entry_free(struct table *t, struct entry *e)
{
    store_arena_free(&t->arena, e, e->in_chunk);
}

static struct table_line *line_of(const struct table *t, struct store_hash hash)
{
    return &t->lines[store_table_line(t, hash.high)];
}

static uint64_t tag_of(struct store_hash hash)
{
    return hash.low >> (32 - TAG_BITS);
}

static uint64_t word_of(const struct entry *e, struct store_hash hash)
{
    return (uint64_t)(uintptr_t)e | tag_of(hash) << TAG_SHIFT;
}

static struct entry *entry_of(uint64_t word)
{
    return (struct entry *)(uintptr_t)(word & ((UINT64_C(1) << TAG_SHIFT) - 1));
}

static bool has_key(const struct entry *e, struct store_hash hash, const void *key,
                    size_t key_len)
{
    if (!key)
        return store_hash_same(store_entry_hash(e), hash);
    return e->key_len == key_len && memcmp(e->bytes, key, key_len) == 0;
}

/* key NULL: any of that hash. */
static struct entry *find(const struct table *t, struct store_hash hash,
                          const void *key, size_t key_len)
{
    const struct table_line *l = line_of(t, hash);
    uint64_t tag = tag_of(hash);
    struct entry *e;

    for (unsigned i = 0; i < TABLE_SLOTS; i++) {
        if (l->slots[i] >> TAG_SHIFT != tag || !(e = entry_of(l->slots[i])))
            continue;
        __builtin_prefetch((char *)e + 64);
        __builtin_prefetch((char *)e + 128);
        if (has_key(e, hash, key, key_len))
            return e;
    }
    for (e = l->chain; e && !has_key(e, hash, key, key_len);)
        e = e->next;
    return e;
}

struct entry *store_table_find(const struct table *t, struct store_hash hash,
                               const void *key, size_t key_len)
{
    return find(t, hash, key, key_len);
}

bool store_table_has(const struct table *t, struct store_hash hash)
{
    return find(t, hash, NULL, 0) != NULL;
}

struct table_walk store_table_walk(const struct table *t, uint64_t line)
{
    return (struct table_walk){.line = &t->lines[line]};
}

struct entry *store_table_next(struct table_walk *w)
{
    struct entry *e = NULL;

    while (!e && w->at < TABLE_SLOTS)
        e = entry_of(w->line->slots[w->at++]);
    if (e)
        return e;
    if (w->at == TABLE_SLOTS) {
        w->at++;
        w->next = w->line->chain;
    }
    e = w->next;
    if (e)
        w->next = e->next;
    return e;
}

static void enter(struct table *t, struct entry *e)
{
    struct store_hash hash = store_entry_hash(e);
    struct table_line *l = line_of(t, hash);

    for (unsigned i = 0; i < TABLE_SLOTS; i++) {
        if (!l->slots[i]) {
            l->slots[i] = word_of(e, hash);
            return;
        }
    }
    e->next = l->chain;
    l->chain = e;
}

static void enlarge(struct table *t)
{
    struct table larger = {.n = t->n + t->n / 4};

    if (larger.n > MOST || !(larger.lines = make_lines(larger.n)))
        return;
    for (uint64_t i = 0; i < t->n; i++) {
        struct table_walk w = store_table_walk(t, i);

        for (struct entry *e; (e = store_table_next(&w));)
            enter(&larger, e);
    }
    store_pages_free(t->lines, store_table_bytes(t));
    t->lines = larger.lines;
    t->n = larger.n;
}

void store_table_add(struct table *t, struct entry *e)
{
    if (t->count >= FULL * t->n)
        enlarge(t);
    enter(t, e);
    t->count++;
}

/* The word of an entry, or NULL: it is in the chain. */
static uint64_t *slot_of(struct table_line *l, const struct entry *e)
{
    for (unsigned i = 0; i < TABLE_SLOTS; i++)
        if (entry_of(l->slots[i]) == e)
            return &l->slots[i];
    return NULL;
}

static struct entry **link_to(struct table_line *l, const struct entry *e)
{
    struct entry **link = &l->chain;

    while (*link != e)
        link = &(*link)->next;
    return link;
}

void store_table_remove(struct table *t, struct entry *e)
{
    struct table_line *l = line_of(t, store_entry_hash(e));
    uint64_t *slot = slot_of(l, e);

    t->count--;
    if (!slot) {
        *link_to(l, e) = e->next;
        return;
    }
    *slot = 0;
    if (l->chain) {
        *slot = word_of(l->chain, store_entry_hash(l->chain));
        l->chain = l->chain->next;
    }
}

void store_table_replace(struct table *t, struct entry *old, struct entry *e)
{
    struct store_hash hash = store_entry_hash(old);
    struct table_line *l = line_of(t, hash);
    uint64_t *slot = slot_of(l, old);

    if (slot) {
        *slot = word_of(e, hash);
        return;
    }
    e->next = old->next;
    *link_to(l, old) = e;
}

void store_list_push(struct entry_list *l, struct entry *e)
{
    e->newer = NULL;
    e->older = l->newest;
    if (l->newest)
        l->newest->newer = e;
    else
        l->oldest = e;
    l->newest = e;
    l->bytes += store_entry_bytes(e);
    l->count++;
}

void store_list_remove(struct entry_list *l, struct entry *e)
{
    if (e->newer)
        e->newer->older = e->older;
    else
        l->newest = e->older;
    if (e->older)
        e->older->newer = e->newer;
    else
        l->oldest = e->newer;
    l->bytes -= store_entry_bytes(e);
    l->count--;
}

void store_list_replace(struct entry_list *l, struct entry *old, struct entry *e)
{
    e->newer = old->newer;
    e->older = old->older;
    if (e->newer)
        e->newer->older = e;
    else
        l->newest = e;
    if (e->older)
        e->older->newer = e;
    else
        l->oldest = e;
    l->bytes += store_entry_bytes(e) - store_entry_bytes(old);
}
