/* SPDX-License-Identifier: BSD-3-Clause */
/* changes.h - rows that changed: those of a table are gathered, to be read together,
 * and what that would save is known without reading any of them.  In virtual time.
 *
 * A row that changed waits QM_CHANGES_WAIT_MS, or QM_CHANGES_SOON_MS if
 * QM_CHANGES_BATCH rows of its table wait: not longer than that, so that the database
 * still has them in memory.  Then it is taken, with all of its table that wait, and is
 * at risk: until a client reads it, which reading it ahead would have saved, or it
 * changes again, which would have made that useless.  Both are counted, of each table
 * and of all, with the time that rows were at risk; so it does not matter whether those
 * that were taken are read ahead.
 *
 * No locks, and no calls back. */
#ifndef QM_ROWCACHE_CHANGES_H
#define QM_ROWCACHE_CHANGES_H

#include "rowcache/readahead/items.h"
#include "rowcache/readahead/numbers.h"

enum {
    QM_CHANGES_TABLES = 1024,  /* others share the numbers of these */
    QM_CHANGES_WAITING = 8192, /* rows; when they are more, the oldest are forgotten */
    QM_CHANGES_AT_RISK = 65536,
    QM_CHANGES_WAIT_MS = 1000,
    QM_CHANGES_SOON_MS = 200,
    QM_CHANGES_BATCH = 16,
    QM_CHANGES_SETTLE_MS = 50, /* newer ones are not taken: their commit may not be
                                   complete */
    QM_CHANGES_HORIZON_MS = 60000,
    QM_CHANGES_TRIES = 4,
};

struct qm_changes;

/* NULL: out of memory.  numbers are the caller's, and outlive it. */
struct qm_changes *qm_changes_new(struct qm_numbers *numbers);
void qm_changes_free(struct qm_changes *changes);
void qm_changes_clear(struct qm_changes *changes); /* keeps what is known of tables */

/* The row was changed, or inserted. */
void qm_changes_note(struct qm_changes *changes, uint64_t now_ms, struct qm_item item);
/* A client read it, which was not kept, or only since it was read ahead. */
void qm_changes_read(struct qm_changes *changes, uint64_t now_ms, struct qm_item item);
/* It is read ahead by other means, and need not wait. */
void qm_changes_forget(struct qm_changes *changes, struct qm_item item);

/* It was taken, and could not be read ahead: it waits again, but is taken
 * QM_CHANGES_TRIES times at most until it changes again. */
void qm_changes_wait_again(struct qm_changes *changes, uint64_t now_ms,
                           struct qm_item item);

/* A table whose rows have waited long enough.  False: there is none. */
bool qm_changes_due(const struct qm_changes *changes, uint64_t now_ms, uint32_t *table);
/* Takes up to most of that table's rows that wait, the oldest first. */
unsigned qm_changes_take(struct qm_changes *changes, uint64_t now_ms, uint32_t table,
                         int64_t *rows, unsigned most);
/* Which share of the rows that are taken now a client will read within the horizon
 * before they change again, 0 to 1, if they are at risk as until now.  A table of which
 * little is known is taken for one like all.  0: too few were read, of all. */
double qm_changes_share(struct qm_changes *changes, uint64_t now_ms, uint32_t table);

#endif
