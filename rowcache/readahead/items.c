/* SPDX-License-Identifier: BSD-3-Clause */
/* items.c - a bounded map from rows to numbers; see items.h. */
#include "rowcache/readahead/items.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR = 16 }; /* a power of two, at most the least number of buckets */

/* The list goes through entries by their index plus 1; 0 ends it. */
struct entry {
    struct qm_item item;
    uint64_t value;
    unsigned before, after;
    unsigned chain; /* the next one of this bucket, or the next free one */
};

struct qm_items {
    unsigned bound, count, buckets;
    unsigned first, last, free;
    struct entry *entry; /* from 1 */
    unsigned *bucket;
};

struct qm_items *qm_items_new(unsigned bound)
{
    struct qm_items *items = calloc(1, sizeof *items);

    if (!items)
        return NULL;
    items->bound = bound ? bound : 1;
    for (items->buckets = 16; items->buckets < 2 * items->bound;)
        items->buckets *= 2;
    items->entry = calloc(items->bound + 1, sizeof *items->entry);
    items->bucket = calloc(items->buckets, sizeof *items->bucket);
    if (!items->entry || !items->bucket) {
        qm_items_free(items);
        return NULL;
    }
    qm_items_clear(items);
    return items;
}

void qm_items_free(struct qm_items *items)
{
    if (!items)
        return;
    free(items->entry);
    free(items->bucket);
    free(items);
}

void qm_items_clear(struct qm_items *items)
{
    memset(items->bucket, 0, items->buckets * sizeof *items->bucket);
    for (unsigned i = 1; i <= items->bound; i++)
        items->entry[i].chain = i < items->bound ? i + 1 : 0;
    items->free = 1;
    items->count = items->first = items->last = 0;
}

unsigned qm_items_count(const struct qm_items *items)
{
    return items->count;
}

/* Rows that are neighbours have neighbouring buckets, for they often come together; in
 * an order by the rows' hash, so that every 16th row has not the same. */
static unsigned *bucket_of(const struct qm_items *items, struct qm_item item)
{
    uint64_t near = (uint64_t)item.row % NEAR;
    uint64_t hash =
        ((uint64_t)item.row / NEAR ^ (uint64_t)item.table << 40) * 0x9e3779b97f4a7c15u;

    return items->bucket +
           (((hash >> 32) * NEAR + (near ^ hash >> 60)) & (items->buckets - 1));
}

static bool same(struct qm_item a, struct qm_item b)
{
    return a.row == b.row && a.table == b.table;
}

uint64_t *qm_items_find(const struct qm_items *items, struct qm_item item)
{
    if (items->count == 0) /* it spares waiting for the memory */
        return NULL;
    for (unsigned i = *bucket_of(items, item); i; i = items->entry[i].chain)
        if (same(items->entry[i].item, item))
            return &items->entry[i].value;
    return NULL;
}

bool qm_items_remove(struct qm_items *items, struct qm_item item)
{
    unsigned *at = bucket_of(items, item), i;
    struct entry *entry;

    while (*at && !same(items->entry[*at].item, item))
        at = &items->entry[*at].chain;
    i = *at;
    if (!i)
        return false;
    entry = items->entry + i;
    *at = entry->chain;
    *(entry->before ? &items->entry[entry->before].after : &items->first) =
        entry->after;
    *(entry->after ? &items->entry[entry->after].before : &items->last) = entry->before;
    entry->chain = items->free;
    items->free = i;
    items->count--;
    return true;
}

uint64_t *qm_items_add(struct qm_items *items, struct qm_item item)
{
    uint64_t *there = qm_items_find(items, item);
    unsigned *bucket, i;

    if (there)
        return there;
    if (!items->free)
        qm_items_remove(items, items->entry[items->first].item);
    i = items->free;
    items->free = items->entry[i].chain;
    bucket = bucket_of(items, item);
    items->entry[i] = (struct entry){item, 0, items->last, 0, *bucket};
    *bucket = i;
    *(items->last ? &items->entry[items->last].after : &items->first) = i;
    items->last = i;
    items->count++;
    return &items->entry[i].value;
}

bool qm_items_oldest(const struct qm_items *items, struct qm_item *item,
                     uint64_t *value)
{
    size_t at = 0;

    return qm_items_each(items, &at, item, value);
}

bool qm_items_each(const struct qm_items *items, size_t *at, struct qm_item *item,
                   uint64_t *value)
{
    unsigned i = *at ? items->entry[*at].after : items->first;

    if (!i)
        return false;
    *at = i;
    *item = items->entry[i].item;
    *value = items->entry[i].value;
    return true;
}
