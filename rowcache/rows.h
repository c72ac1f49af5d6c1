/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h - the rows that are kept, and which of them may still be served.
 *
 * The row under a key is the database's row after all transactions that were applied
 * (follow/follow.h) had been committed:
 *
 * - A fill takes a token before its SELECT is sent.  If an event touches the row or its
 *   table before the answer is stored, the answer is not stored.
 * - A row that changed in a transaction that is not settled is not stored: the SELECT
 *   may have seen it as it was before.
 * - An answer may have seen transactions that are not applied yet.  It is stored only
 *   when they are; until then a reader that was given it (struct qm_reader) reads past
 *   the cache.
 * - When the log is not followed, or the last proof of freshness is older than max-lag,
 *   nothing is found; when it is not followed, nothing is stored.
 *
 * Threads: all functions may be called by any; hits take no lock but the store's. */
#ifndef QM_ROWCACHE_ROWS_H
#define QM_ROWCACHE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rowcache/follow/follow.h"
#include "rowcache/store/qmstore.h"

struct qm_rows;

enum qm_rows_kind { QM_ROWS_NONE, QM_ROWS_ROW, QM_ROWS_ABSENT };

/* What one client connection has seen.  Its own thread's. */
struct qm_reader {
    struct qm_gtid_list *seen; /* NULL: nothing that might not be applied */
    bool blind;                /* what it saw could not be noted: it finds nothing */
    bool told;                 /* of seen, by WAITGTID: the database may not have it */
};

enum { QM_ROWS_SOURCES = 5 };

struct qm_rows_token {
    unsigned slot, table;
    uint64_t version, generation;
    bool storable;
    unsigned source;  /* of the fill: 0: a read; others as the caller counts them */
    unsigned life_ms; /* how long the row may stay; 0: until it changes */
};

struct qm_rows_stats {
    uint64_t stored, raced, unsettled, waiting, invalidations, tables_emptied, gaps;
    uint64_t stored_of[QM_ROWS_SOURCES]; /* by the token's source */
    bool following;
    double behind; /* seconds since the last proof of freshness; -1: none */
    char why[160]; /* it is not followed */
    struct qm_gtid_list applied;
};

/* The store is the caller's, and is emptied: what an earlier process kept may be old.
 * Returns NULL where there is no memory. */
struct qm_rows *qm_rows_new(struct qmstore *store, unsigned max_lag_ms);

/* Another place for the rows than a store, from which the caller reads them by itself:
 * qm_rows_get() finds none there.  All but has() are called with a lock held, in the
 * order in which they must have their effect, and do not wait.  What the caller asks
 * of the place after qm_rows_serves() must be asked behind all that the place was told
 * before. */
struct qm_rows_place {
    void *opaque;
    /* length 0: it is known that there is no such row.  False: it is not kept. */
    bool (*put)(void *opaque, const char *key, size_t key_length, const char *value,
                size_t length, unsigned life_ms);
    void (*remove)(void *opaque, const char *key, size_t length);
    void (*clear)(void *opaque);
    /* It may be there.  Any thread. */
    bool (*has)(void *opaque, const char *key, size_t length);
};
struct qm_rows *qm_rows_new_at(const struct qm_rows_place *place, unsigned max_lag_ms);
void qm_rows_free(struct qm_rows *rows);

/* ns of CLOCK_BOOTTIME: after the machine has slept, what is kept is not fresh. */
uint64_t qm_rows_now(void);

/* *value is the caller's, to free(); *text is where the row begins in it.  value NULL:
 * only whether it is kept, and how long it is, without a copy; *text is NULL.  now: of
 * this wake-up, or later. */
enum qm_rows_kind qm_rows_get(struct qm_rows *rows, struct qm_reader *reader,
                              uint64_t now, const char *key, size_t length,
                              void **value, const char **text, size_t *text_length);

/* Before a SELECT is sent.  table is the part of the key before its ':'. */
struct qm_rows_token qm_rows_begin(struct qm_rows *rows, const char *table,
                                   size_t table_length, const char *key, size_t length);
/* After it: position is what it may have seen.  True: it is kept already, and does not
 * wait for the log. */
bool qm_rows_put(struct qm_rows *rows, const struct qm_rows_token *token,
                 const char *key, size_t length, enum qm_rows_kind kind,
                 const char *value, size_t value_length,
                 const struct qm_gtid_list *position);
/* The reader was given what may have seen position. */
void qm_reader_saw(struct qm_reader *reader, const struct qm_gtid_list *position);

/* Whether the reader is given what is kept: else it reads past it. */
bool qm_rows_serves(struct qm_rows *rows, struct qm_reader *reader, uint64_t now);
/* Whether it is kept, and may be served. */
bool qm_rows_has(struct qm_rows *rows, const char *key, size_t length);

/* Drops one key, or all; for the operator. */
bool qm_rows_drop(struct qm_rows *rows, const char *key, size_t length);
void qm_rows_drop_all(struct qm_rows *rows);
bool qm_rows_is_following(struct qm_rows *rows);
/* Whether the server with that @@server_id is another than the one whose log is
 * followed, or was last: it may not have committed yet what is applied. */
bool qm_rows_is_other(struct qm_rows *rows, uint32_t server);
/* Whether position covers all that is applied. */
bool qm_rows_is_within(struct qm_rows *rows, const struct qm_gtid_list *position);
/* It is followed, and not more than max-lag behind. */
bool qm_rows_is_fresh(struct qm_rows *rows, uint64_t now);
void qm_rows_set_max_lag(struct qm_rows *rows, unsigned ms);
void qm_rows_get_stats(struct qm_rows *rows, struct qm_rows_stats *stats);

/* Is called by the follower's thread for each row that changed (and row NULL: for all
 * of a table; table NULL, too: for all tables), after it was dropped.  To be set before
 * there are changes. */
void qm_rows_watch(struct qm_rows *rows,
                   void (*watch)(void *opaque, const char *schema, const char *table,
                                 const char *row, size_t length),
                   void *opaque);

/* Sets the follower's callbacks; opaque is the rows.  message stays the caller's. */
void qm_rows_callbacks(struct qm_rows *rows, struct qm_follow_callbacks *calls);

#endif
