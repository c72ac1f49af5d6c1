/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - entries by their keys' hashes, and the lists that entries are in.
 *
 * A bucket holds the hashes with the same highest bits, so buckets are in the order in
 * which the disk layer has its records, and a range of hashes is a range of buckets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/store/internal.h"

enum { FIRST_BITS = 6, MOST_BITS = 40 };

int store_table_init(struct table *t)
{
    t->bits = FIRST_BITS;
    t->count = 0;
    t->buckets = calloc((size_t)1 << t->bits, sizeof *t->buckets);
    return t->buckets ? 0 : ENOMEM;
}

void store_table_free(struct table *t)
{
    for (size_t i = 0; t->buckets && i < (size_t)1 << t->bits; i++) {
        struct entry *next;

        for (struct entry *e = t->buckets[i]; e; e = next) {
            next = e->next;
            free(e);
        }
    }
    free(t->buckets);
    t->buckets = NULL;
}

static struct entry **bucket(const struct table *t, struct store_hash hash)
{
    return &t->buckets[hash.high >> (64 - t->bits)];
}

struct entry *store_table_find(const struct table *t, struct store_hash hash,
                               const void *key, size_t key_len)
{
    struct entry *e = *bucket(t, hash);

    while (e && !(e->hash.high == hash.high && e->hash.low == hash.low &&
                  e->key_len == key_len && memcmp(e->bytes, key, key_len) == 0))
        e = e->next;
    return e;
}

bool store_table_has(const struct table *t, struct store_hash hash)
{
    const struct entry *e = *bucket(t, hash);

    while (e && !(e->hash.high == hash.high && e->hash.low == hash.low))
        e = e->next;
    return e != NULL;
}

static void enlarge(struct table *t)
{
    struct table larger = {.bits = t->bits + 1};

    if (larger.bits > MOST_BITS ||
        !(larger.buckets = calloc((size_t)1 << larger.bits, sizeof *larger.buckets)))
        return;
    for (size_t i = 0; i < (size_t)1 << t->bits; i++) {
        struct entry *next;

        for (struct entry *e = t->buckets[i]; e; e = next) {
            struct entry **b = bucket(&larger, e->hash);

            next = e->next;
            e->next = *b;
            *b = e;
        }
    }
    free(t->buckets);
    t->buckets = larger.buckets;
    t->bits = larger.bits;
}

void store_table_add(struct table *t, struct entry *e)
{
    struct entry **b;

    if (t->count >= (size_t)1 << t->bits)
        enlarge(t);
    b = bucket(t, e->hash);
    e->next = *b;
    *b = e;
    t->count++;
}

static struct entry **link_to(const struct table *t, const struct entry *e)
{
    struct entry **link = bucket(t, e->hash);

    while (*link != e)
        link = &(*link)->next;
    return link;
}

void store_table_remove(struct table *t, struct entry *e)
{
    *link_to(t, e) = e->next;
    t->count--;
}

void store_table_replace(struct table *t, struct entry *old, struct entry *e)
{
    struct entry **link = link_to(t, old);

    e->next = old->next;
    *link = e;
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
