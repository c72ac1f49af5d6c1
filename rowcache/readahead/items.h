/* SPDX-License-Identifier: BSD-3-Clause */
/* items.h - a bounded map from rows to numbers, oldest first.
 *
 * A list keeps the order of entry.  When it
 * is full, the oldest leaves.
 */
#ifndef QM_ROWCACHE_ITEMS_H
#define QM_ROWCACHE_ITEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row: its table, and its number there, which is its integer key. */
struct qm_item {
    uint32_t table;
    int64_t row;
};

struct qm_items;

struct qm_items *qm_items_new(unsigned bound);
void qm_items_free(struct qm_items *items);
void qm_items_clear(struct qm_items *items);
unsigned qm_items_count(const struct qm_items *items);
/* Its number, or NULL; valid until the next change. */
uint64_t *qm_items_find(const struct qm_items *items, struct qm_item item);
/* Its number, which is 0 if it was not there. */
uint64_t *qm_items_add(struct qm_items *items, struct qm_item item);
bool qm_items_remove(struct qm_items *items, struct qm_item item);
/* The one that entered first.  False: there is none. */
bool qm_items_oldest(const struct qm_items *items, struct qm_item *item,
                     uint64_t *value);
/* The i-th in order of entry, of those that are there; false at the end.  *at begins as
 * 0.  The one that was said may be removed meanwhile, and no other. */
bool qm_items_each(const struct qm_items *items, size_t *at, struct qm_item *item,
                   uint64_t *value);

#endif
