/* SPDX-License-Identifier: BSD-3-Clause */
/* readahead-internal.h - what the files of the server's read-ahead share:
 *
 *   readahead.c         what it is told, what it asks for, settings
 *   readahead-tables.c  tables: keys, foreign keys, what the rules ask of a row
 *   readahead-info.c    its numbers
 *
 * All functions want readahead.lock held, but for readahead_read_integer(). */
#ifndef QM_ROWCACHE_READAHEAD_INTERNAL_H
#define QM_ROWCACHE_READAHEAD_INTERNAL_H

#include "rowcache/readahead/cpu.h"
#include "rowcache/readahead/items.h"
#include "rowcache/readahead/miner.h"
#include "rowcache/server/server.h"

enum {
    READAHEAD_TABLES = 1024,
    /* When there are more, one makes room that was not read for that long; a table
     * whose definition is not known, perhaps because it is gone, sooner. */
    READAHEAD_IDLE_MS = 600000,
    READAHEAD_GONE_MS = 10000,
};

struct table {
    UT_hash_handle hh;
    uint32_t id;
    char schema[QM_NAME_LENGTH + 1], table[QM_NAME_LENGTH + 1];
    char key[2 * QM_NAME_LENGTH + 2]; /* schema.table */
    bool known, asked;
    uint64_t changes;  /* of its definition */
    uint64_t retry_at; /* ms */
    uint64_t used_at;  /* ms; was read, or is referenced by a row that was */
    unsigned jobs;     /* that the pool has */
    struct qm_fill_table info;
};

struct readahead {
    struct server *server;
    pthread_mutex_t lock;
    enum readahead_preset preset;
    unsigned rules, given;
    struct qm_seer *seer;
    struct qm_items *ahead; /* by seer, and not yet read: by which rule */
    struct qm_auto *learner;
    struct qm_miner *miner;
    struct table *tables, *by_id[READAHEAD_TABLES];
    unsigned count;
    uint64_t full_until; /* ms; no table has made room */
    /* The row whose read is being told. */
    struct qm_item current;
    const char *row;
    size_t row_length;
    struct event *ticking; /* for the gates */
    unsigned ticks;
    struct qm_cpu cpu, cpu_now; /* at the last second, and at the last tick */
    struct readahead_stats stats;
};

struct job {
    struct qm_fill_ahead fill; /* first */
    struct readahead *ra;
    struct table *table;
    uint64_t changes;
    enum readahead_preset preset;
    union {
        struct qm_seer_request seer;
        struct qm_auto_request learner;
    } request;
};

/* For what a table's keys are. */
struct table_job {
    struct job job; /* first */
    struct qm_fill_table info;
};

/* To be asked under the lock, so that it never goes back for seer. */
uint64_t readahead_clock_ms(void);
struct table *readahead_find_table(struct readahead *ra, const char *key,
                                   size_t length);
/* As readahead_find_table(), and adds it, in the place of an unused one if there are
 * too many.  NULL: all are used, or it is no name. */
struct table *readahead_get_table(struct readahead *ra, uint64_t ms, const char *key,
                                  size_t length);
/* For the pool to read, of a table; size is a struct job's, or of one that begins with
 * it.  NULL: out of memory. */
void *readahead_new_job(struct readahead *ra, struct table *t, size_t size,
                        void (*done)(struct qm_fill_ahead *fill));
/* Frees a job that the pool has not, or has no more. */
void readahead_free_job(struct job *job);
/* Those of a table that seer read ahead; NULL: of all. */
void readahead_waste_table(struct readahead *ra, const struct table *t);
/* Has the pool read what the table's keys are, unless it has been asked lately. */
void readahead_ask_of_table(struct readahead *ra, struct table *t, uint64_t ms);
/* qm_seer_calls.describe */
bool readahead_describe(void *opaque, struct qm_item item, struct qm_seer_row *row);
/* A number as it is printed: no zeros before it, no other sign than -. */
bool readahead_read_integer(const char *text, size_t length, int64_t *value);

#endif
