/* SPDX-License-Identifier: BSD-3-Clause */
/* watched.c - see watched.h. */
#include "rowcache/readahead/watched.h"

#include <stdlib.h>

struct qm_watched {
    struct qm_items *fresh, *judged; /* since_ms << 16 | arm */
    unsigned bound;
    struct qm_numbers *numbers; /* of the rows in both */
};

struct qm_watched *qm_watched_new(unsigned bound, struct qm_numbers *numbers)
{
    struct qm_watched *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->bound = bound;
    w->numbers = numbers;
    w->fresh = qm_items_new(bound);
    w->judged = qm_items_new(bound);
    if (!w->fresh || !w->judged) {
        qm_watched_free(w);
        return NULL;
    }
    return w;
}

void qm_watched_free(struct qm_watched *w)
{
    if (!w)
        return;
    qm_items_free(w->fresh);
    qm_items_free(w->judged);
    free(w);
}

bool qm_watched_may_have(const struct qm_watched *w, int64_t row)
{
    return qm_numbers_may_have(w->numbers, QM_NUMBERS_WATCHED, row);
}

bool qm_watched_is_full(const struct qm_watched *w)
{
    return qm_items_count(w->fresh) >= w->bound;
}

bool qm_watched_add(struct qm_watched *w, struct qm_item item, unsigned arm,
                    uint64_t now_ms)
{
    if (qm_watched_is_full(w))
        return false;
    if (qm_watched_may_have(w, item.row)) {
        if (qm_items_find(w->fresh, item))
            return false;
        if (qm_items_remove(w->judged, item))
            qm_numbers_remove(w->numbers, QM_NUMBERS_WATCHED, item.row);
    }
    *qm_items_add(w->fresh, item) = now_ms << 16 | arm;
    qm_numbers_add(w->numbers, QM_NUMBERS_WATCHED, item.row);
    return true;
}

static void tell(struct qm_watched_row *row, struct qm_item item, uint64_t value,
                 bool judged)
{
    *row = (struct qm_watched_row){item, value & 0xffff, value >> 16, judged};
}

static void take_from(struct qm_watched *w, struct qm_items *from, struct qm_item item,
                      uint64_t value, struct qm_watched_row *row)
{
    tell(row, item, value, from == w->judged);
    qm_items_remove(from, item);
    qm_numbers_remove(w->numbers, QM_NUMBERS_WATCHED, item.row);
}

bool qm_watched_take(struct qm_watched *w, struct qm_item item,
                     struct qm_watched_row *row)
{
    struct qm_items *all[] = {w->fresh, w->judged};

    if (!qm_watched_may_have(w, item.row))
        return false;
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t *value = qm_items_find(all[i], item);

        if (value) {
            take_from(w, all[i], item, *value, row);
            return true;
        }
    }
    return false;
}

bool qm_watched_expire(struct qm_watched *w, uint64_t by_ms, struct qm_watched_row *row)
{
    struct qm_watched_row displaced;
    struct qm_item item;
    uint64_t value;

    if (!qm_items_oldest(w->fresh, &item, &value) || value >> 16 > by_ms)
        return false;
    take_from(w, w->fresh, item, value, row);
    row->judged = true;
    if (qm_items_count(w->judged) >= w->bound) {
        struct qm_item oldest;
        uint64_t of;

        qm_items_oldest(w->judged, &oldest, &of);
        take_from(w, w->judged, oldest, of, &displaced);
    }
    *qm_items_add(w->judged, item) = value;
    qm_numbers_add(w->numbers, QM_NUMBERS_WATCHED, item.row);
    return true;
}

bool qm_watched_take_any(struct qm_watched *w, struct qm_watched_row *row)
{
    struct qm_items *all[] = {w->fresh, w->judged};
    struct qm_item item;
    uint64_t value;

    for (unsigned i = 0; i < 2; i++)
        if (qm_items_oldest(all[i], &item, &value)) {
            take_from(w, all[i], item, value, row);
            return true;
        }
    return false;
}
