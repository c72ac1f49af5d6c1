/* SPDX-License-Identifier: BSD-3-Clause */
/* fill.h - reads rows from MariaDB: a pool of threads, each with a connection.
 *
 * A job is the caller's until it is given, and again when done() is called with it, by
 * a thread of the pool.  What was read is stored in the rows before that. */
#ifndef QM_ROWCACHE_FILL_H
#define QM_ROWCACHE_FILL_H

#include <stdatomic.h>

#include "rowcache/fill/json.h"
#include "rowcache/fill/name.h"
#include "rowcache/follow/follow.h"
#include "rowcache/rows.h"

struct qm_fill_settings {
    struct qm_follow_server server;
    const char *user, *password;
    struct qm_tls tls;
    unsigned connections, queue, timeout_ms;
};

enum qm_fill_outcome {
    QM_FILL_ROW,
    QM_FILL_ABSENT,
    QM_FILL_ERROR,
    QM_FILL_BEHIND, /* within the pool alone */
};

struct qm_fill_job {
    struct qm_fill_job *next, *prev;
    bool waits;     /* for a thread */
    uint64_t table; /* a hash of its name */
    struct qm_row_name name;
    uint64_t queued;       /* qm_rows_now() */
    _Atomic uint64_t sent; /* the tick when its SELECT was sent; 0: not yet */
    enum qm_fill_outcome outcome;
    bool kept;           /* the row is in the cache when done() is called */
    struct qm_text text; /* the row; or the error, as Redis words it, without '-' */
    struct qm_gtid_list position;
    /* What its reader has seen, or NULL; until it is done.  A server that has not
     * committed it must not be asked.  That may be another one than the one whose log
     * is followed; told: or that one, if it is a replica. */
    const struct qm_gtid_list *seen;
    bool told;
    uint64_t again; /* qm_rows_now() when it is tried again, as the server was behind */
};

/* Rows of one table to read ahead of any request; and the keys of a table that
 * read-ahead needs. */
enum { QM_FILL_AHEAD = 256, QM_FILL_FOREIGN = 16 };

struct qm_fill_foreign {
    char column[QM_NAME_LENGTH + 1], schema[QM_NAME_LENGTH + 1],
        table[QM_NAME_LENGTH + 1];
};

/* Its primary key is one integer column, if failed is false. */
struct qm_fill_table {
    int64_t first, last; /* keys; last < first: it is empty */
    unsigned foreign_count;
    struct qm_fill_foreign foreign[QM_FILL_FOREIGN]; /* that reference such keys */
};

struct qm_fill_ahead {
    struct qm_fill_ahead *next;
    char schema[QM_NAME_LENGTH + 1], table[QM_NAME_LENGTH + 1];
    struct qm_fill_table *describe; /* NULL: it is for rows */
    unsigned count;
    int64_t row[QM_FILL_AHEAD];
    uint8_t source[QM_FILL_AHEAD]; /* of the token */
    unsigned life_ms[QM_FILL_AHEAD];
    void (*done)(struct qm_fill_ahead *ahead); /* by a thread of the pool */
    /* The answer. */
    bool failed;
    double us;                    /* that the database took */
    double work_us;               /* of processors, by the thread that read them */
    unsigned kept, got;           /* were kept already; came from the database */
    int64_t there[QM_FILL_AHEAD]; /* first those that were kept */
};

struct qm_fill_stats {
    uint64_t queries, errors, connects, refused;
    uint64_t ahead_queries;            /* of queries: those of read-ahead */
    unsigned waiting, connected, busy; /* busy: with reads, not with read-ahead */
    double work_us;  /* of processors, by a thread for a read; of late; 0: not known */
    char error[400]; /* the last one */
};

struct qm_fill;

/* tick: is raised before each SELECT is sent. */
struct qm_fill *qm_fill_start(const struct qm_fill_settings *settings,
                              struct qm_rows *rows, _Atomic uint64_t *tick,
                              void (*done)(void *opaque, struct qm_fill_job *job),
                              void *opaque);
/* False: too many wait. */
bool qm_fill_give(struct qm_fill *fill, struct qm_fill_job *job);
/* As qm_fill_give() for a read that nobody waits for yet: as many may wait as the pool
 * has connections. */
bool qm_fill_give_early(struct qm_fill *fill, struct qm_fill_job *job);
/* The job is the caller's again, and will not be done.  False: a thread has it. */
bool qm_fill_take_back(struct qm_fill *fill, struct qm_fill_job *job);
/* Takes a job only if no read waits for a connection.  False: one waits, too many jobs
 * are given already, or the rows could not be kept. */
bool qm_fill_give_ahead(struct qm_fill *fill, struct qm_fill_ahead *ahead);
void qm_fill_get_stats(struct qm_fill *fill, struct qm_fill_stats *stats);
/* Of them, busy and work_us, without a lock, so perhaps a read late. */
void qm_fill_get_load(const struct qm_fill *fill, unsigned *busy, double *work_us);
/* Whether the pool has met several servers, by their @@server_id. */
bool qm_fill_has_several(const struct qm_fill *fill);
/* False: qm_fill_give_ahead() would hardly take a job now.  Takes no lock. */
bool qm_fill_may_give_ahead(const struct qm_fill *fill);
/* Those that wait are done with an error. */
void qm_fill_stop(struct qm_fill *fill);

#endif
