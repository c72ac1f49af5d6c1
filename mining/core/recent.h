/* SPDX-License-Identifier: BSD-3-Clause */
/* recent.h - a small table in order of use: the item used last is the first.
 *
 * For the sequential streams that one context has going.  It takes no memory until
 * there is an item, and grows by doubling, because most contexts are short and there
 * are many of them.  All calls for one table must give the same size, that of an item.
 *
 * No locking.
 */
#ifndef QM_RECENT_H
#define QM_RECENT_H

#include <stddef.h>

struct qm_recent {
    void *items;
    unsigned n, room;
};

/* Frees the table, not what its items own. */
void qm_recent_fini(struct qm_recent *table);

static inline void *qm_recent_at(const struct qm_recent *table, unsigned i, size_t size)
{
    return (char *)table->items + i * size;
}

/* Makes item i the first, and returns it.  Pointers to items are void after that, and
 * after qm_recent_add(). */
void *qm_recent_use(struct qm_recent *table, unsigned i, size_t size);

/* Returns the first item, which is new and all zero; or, if there are max items already
 * or memory is out, the one that was used longest ago, as it was.  NULL: memory is out
 * and there is none. */
void *qm_recent_add(struct qm_recent *table, unsigned max, size_t size);

#endif
