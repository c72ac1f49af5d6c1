/* SPDX-License-Identifier: BSD-3-Clause */
/* recent.c - a small table in order of use. */
#include "mining/core/recent.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 2
#define ITEM_MAX   128 /* of an item */

void qm_recent_fini(struct qm_recent *table)
{
    free(table->items);
    *table = (struct qm_recent){0};
}

void *qm_recent_use(struct qm_recent *table, unsigned i, size_t size)
{
    char *items = table->items, used[ITEM_MAX];

    if (i > 0) {
        memcpy(used, items + i * size, size);
        memmove(items + size, items, i * size);
        memcpy(items, used, size);
    }
    return items;
}

static void grow(struct qm_recent *table, unsigned max, size_t size)
{
    unsigned room = table->room > 0 ? 2 * table->room : ROOM_FIRST;
    void *items = realloc(table->items, (room < max ? room : max) * size);

    if (items) {
        table->items = items;
        table->room = room < max ? room : max;
    }
}

void *qm_recent_add(struct qm_recent *table, unsigned max, size_t size)
{
    if (table->n == table->room && table->n < max) {
        grow(table, max, size);
    }
    if (table->n < table->room) {
        memset(qm_recent_at(table, table->n, size), 0, size);
        table->n++;
    }
    return table->n > 0 ? qm_recent_use(table, table->n - 1, size) : NULL;
}
