/* SPDX-License-Identifier: BSD-3-Clause */
/* changes.c - rows that changed; see changes.h. */
#include "rowcache/readahead/changes.h"

#include <stdlib.h>

enum { HALVE_MS = 30000 };

#define PRIOR 4. /* events: a table with as many is half believed, all tables half */

/* Of a table, or of all. */
struct rates {
    double used, again, seconds; /* of the last minute, the older the less */
    unsigned out;                /* rows at risk */
    uint64_t at, halved_at;      /* seconds is up to at */
    unsigned waiting;            /* rows of a table, */
    uint64_t since;              /* the first of them about since then */
};

struct qm_changes {
    struct qm_items *waiting;   /* values of value_of() */
    struct qm_items *out;       /* at risk: the same */
    struct qm_numbers *numbers; /* of the rows in both */
    struct rates of[QM_CHANGES_TABLES], all;
    uint32_t last; /* the table that changed last */
};

struct qm_changes *qm_changes_new(struct qm_numbers *numbers)
{
    struct qm_changes *changes = calloc(1, sizeof *changes);

    if (!changes)
        return NULL;
    changes->numbers = numbers;
    changes->waiting = qm_items_new(QM_CHANGES_WAITING);
    changes->out = qm_items_new(QM_CHANGES_AT_RISK);
    if (!changes->waiting || !changes->out) {
        qm_changes_free(changes);
        return NULL;
    }
    return changes;
}

void qm_changes_free(struct qm_changes *changes)
{
    if (!changes)
        return;
    qm_items_free(changes->waiting);
    qm_items_free(changes->out);
    free(changes);
}

static bool may_have(const struct qm_changes *changes, struct qm_item item)
{
    return qm_numbers_may_have(changes->numbers, QM_NUMBERS_CHANGED, item.row);
}

/* Its value.  It was not there. */
static uint64_t *add_to(struct qm_changes *changes, struct qm_items *to,
                        struct qm_item item)
{
    qm_numbers_add(changes->numbers, QM_NUMBERS_CHANGED, item.row);
    return qm_items_add(to, item);
}

/* False: it was not there. */
static bool remove_from(struct qm_changes *changes, struct qm_items *from,
                        struct qm_item item)
{
    if (!may_have(changes, item) || !qm_items_remove(from, item))
        return false;
    qm_numbers_remove(changes->numbers, QM_NUMBERS_CHANGED, item.row);
    return true;
}

void qm_changes_clear(struct qm_changes *changes)
{
    struct qm_items *both[] = {changes->waiting, changes->out};
    struct qm_item item;
    uint64_t value;

    for (unsigned i = 0; i < 2; i++)
        while (qm_items_oldest(both[i], &item, &value))
            remove_from(changes, both[i], item);
    for (unsigned i = 0; i < QM_CHANGES_TABLES; i++)
        changes->of[i].out = changes->of[i].waiting = 0;
    changes->all.out = 0;
}

/* Since when, and how often it was taken before. */
static uint64_t value_of(uint64_t now_ms, unsigned tries)
{
    return now_ms * QM_CHANGES_TRIES + tries;
}

static uint64_t since_of(uint64_t value)
{
    return value / QM_CHANGES_TRIES;
}

static unsigned tries_of(uint64_t value)
{
    return value % QM_CHANGES_TRIES;
}

/* --- rates --- */

static void advance(struct rates *r, uint64_t now_ms)
{
    uint64_t halves = (now_ms - r->halved_at) / HALVE_MS;
    double left = halves < 64 ? 1. / (double)(UINT64_C(1) << halves) : 0;

    r->seconds = (r->seconds + r->out * (double)(now_ms - r->at) / 1000) * left;
    r->used *= left;
    r->again *= left;
    r->at = now_ms;
    r->halved_at += halves * HALVE_MS;
}

static struct rates *rates_of(struct qm_changes *changes, uint32_t table)
{
    return &changes->of[table % QM_CHANGES_TABLES];
}

static void enter(struct qm_changes *changes, uint64_t now_ms, struct qm_item item,
                  unsigned tries)
{
    struct rates *both[] = {rates_of(changes, item.table), &changes->all};

    *add_to(changes, changes->out, item) = value_of(now_ms, tries);
    for (unsigned i = 0; i < 2; i++) {
        advance(both[i], now_ms);
        both[i]->out++;
    }
}

/* False: it was not at risk. */
static bool leave(struct qm_changes *changes, uint64_t now_ms, struct qm_item item,
                  bool used, bool again)
{
    struct rates *both[] = {rates_of(changes, item.table), &changes->all};

    if (!remove_from(changes, changes->out, item))
        return false;
    for (unsigned i = 0; i < 2; i++) {
        advance(both[i], now_ms);
        both[i]->out--;
        both[i]->used += used;
        both[i]->again += again;
    }
    return true;
}

/* Rows that are neither read nor changed within the horizon are at risk no longer: many
 * of them are deleted. */
static void forget_old(struct qm_changes *changes, uint64_t now_ms)
{
    struct qm_item oldest;
    uint64_t value;

    while (qm_items_oldest(changes->out, &oldest, &value) &&
           now_ms - since_of(value) >= QM_CHANGES_HORIZON_MS)
        leave(changes, now_ms, oldest, false, false);
}

/* --- rows --- */

static void end_wait(struct qm_changes *changes, struct qm_item item)
{
    if (remove_from(changes, changes->waiting, item))
        rates_of(changes, item.table)->waiting--;
}

static void begin_wait(struct qm_changes *changes, uint64_t now_ms, struct qm_item item,
                       unsigned tries)
{
    struct rates *of = rates_of(changes, item.table);
    struct qm_item oldest;
    uint64_t value;

    /* One that changes all the time does not wait for ever. */
    if (may_have(changes, item) && qm_items_find(changes->waiting, item))
        return;
    if (qm_items_count(changes->waiting) == QM_CHANGES_WAITING &&
        qm_items_oldest(changes->waiting, &oldest, &value))
        end_wait(changes, oldest);
    *add_to(changes, changes->waiting, item) = value_of(now_ms, tries);
    if (of->waiting++ == 0)
        of->since = now_ms;
}

void qm_changes_note(struct qm_changes *changes, uint64_t now_ms, struct qm_item item)
{
    leave(changes, now_ms, item, false, true);
    begin_wait(changes, now_ms, item, 0);
    changes->last = item.table;
}

void qm_changes_read(struct qm_changes *changes, uint64_t now_ms, struct qm_item item)
{
    if (!leave(changes, now_ms, item, true, false))
        end_wait(changes, item);
}

void qm_changes_forget(struct qm_changes *changes, struct qm_item item)
{
    end_wait(changes, item);
}

void qm_changes_wait_again(struct qm_changes *changes, uint64_t now_ms,
                           struct qm_item item)
{
    const uint64_t *value = qm_items_find(changes->out, item);
    unsigned tries = value ? tries_of(*value) + 1 : QM_CHANGES_TRIES;

    if (tries < QM_CHANGES_TRIES && leave(changes, now_ms, item, false, false))
        begin_wait(changes, now_ms, item, tries);
}

bool qm_changes_due(const struct qm_changes *changes, uint64_t now_ms, uint32_t *table)
{
    const struct rates *last = &changes->of[changes->last % QM_CHANGES_TABLES];
    struct qm_item item;
    uint64_t value;

    if (last->waiting >= QM_CHANGES_BATCH &&
        now_ms - last->since >= QM_CHANGES_SOON_MS) {
        *table = changes->last;
        return true;
    }
    if (!qm_items_oldest(changes->waiting, &item, &value) ||
        now_ms - since_of(value) < QM_CHANGES_WAIT_MS)
        return false;
    *table = item.table;
    return true;
}

unsigned qm_changes_take(struct qm_changes *changes, uint64_t now_ms, uint32_t table,
                         int64_t *rows, unsigned most)
{
    struct qm_item item, oldest;
    uint64_t value, other;
    unsigned n = 0;

    forget_old(changes, now_ms);
    for (size_t at = 0;
         n < most && qm_items_each(changes->waiting, &at, &item, &value);) {
        if (now_ms - since_of(value) < QM_CHANGES_SETTLE_MS)
            break; /* so are those behind it */
        if (item.table != table)
            continue;
        end_wait(changes, item);
        if (qm_items_count(changes->out) == QM_CHANGES_AT_RISK &&
            qm_items_oldest(changes->out, &oldest, &other))
            leave(changes, now_ms, oldest, false, false);
        enter(changes, now_ms, item, tries_of(value));
        rows[n++] = item.row;
    }
    rates_of(changes, table)->since = now_ms;
    return n;
}

double qm_changes_share(struct qm_changes *changes, uint64_t now_ms, uint32_t table)
{
    struct rates *of = rates_of(changes, table), *all = &changes->all;
    double events, own, used, again;

    forget_old(changes, now_ms);
    advance(of, now_ms);
    advance(all, now_ms);
    if (all->used < PRIOR || all->seconds <= 0)
        return 0;
    /* The more events there were of the table's rows, or should have been if it was one
     * like all, the more its own rates count. */
    events =
        of->used + of->again + (all->used + all->again) * of->seconds / all->seconds;
    own = of->seconds > 0 ? events / (events + PRIOR) : 0;
    used = (1 - own) * all->used / all->seconds;
    again = (1 - own) * all->again / all->seconds;
    if (own > 0) {
        used += own * of->used / of->seconds;
        again += own * of->again / of->seconds;
    }
    return used / (used + again + 1000. / QM_CHANGES_HORIZON_MS);
}
