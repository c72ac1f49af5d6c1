/* SPDX-License-Identifier: BSD-3-Clause */
/* seer.h - the read-ahead of SEER-MCache (Li et al., 2019): decisions only, in virtual
 * time.
 *
 * The names are the paper's.  Monitor sees each read (qm_seer_read) and each change
 * (qm_seer_modified).  A read that misses starts a passive read-ahead, at most one in
 * W: the active rules put requests into Mes-Queue, from which the caller takes them in
 * order (qm_seer_next), reads the rows, and says which there were (qm_seer_fetched).
 * They lie in Pre-Cache until a read claims them or they are pushed to the front end
 * (qm_seer_push).
 *
 * SA: the rows i-N to i+N of the table, within it.  TA: the rows of all tables that
 * changed in the last T.  FA: of up to X tables that the row's foreign keys reference,
 * up to Y rows each; both numbers are drawn anew each time, from 0 on.
 *
 * Key-Counter counts each row's reads for T_h.  When T_h is up and the load gates are
 * open, a proactive read-ahead (algorithm 1) starts from the row with the highest
 * count, with W and the passive trigger off: what is read ahead for it goes into
 * Cache-Buffer, and each row there gives rise to one more read-ahead, whose rows go to
 * the front end.
 *
 * Where the paper is misprinted, or silent:
 * - SA's upper bound is i+N <= L-1, Disk_b's gate is on Disk_b.
 * - Algorithm 1 deletes what it steps over, and so would skip each second item: all are
 * taken.
 * - The start is called the most recently accessed item in one place and the hottest in
 * all others: it is the hottest, of equals the most recent.
 * - FA does not say which rows: those from the referenced one on.
 * - No life times are given: life and life_step are settings.
 */
#ifndef QM_ROWCACHE_SEER_H
#define QM_ROWCACHE_SEER_H

#include "rowcache/readahead/items.h"

enum qm_seer_rule { QM_SEER_SA = 1, QM_SEER_TA = 2, QM_SEER_FA = 4, QM_SEER_ALL = 7 };

struct qm_seer_settings {
    unsigned rules; /* QM_SEER_SA | ... */
    bool proactive;
    unsigned n;                     /* rows, of SA */
    unsigned t_ms;                  /* of TA */
    unsigned x, y;                  /* tables, and rows of each, of FA */
    unsigned w_ms;                  /* between passive read-aheads */
    unsigned th_ms;                 /* Key-Counter's, and between proactive ones */
    double cpu;                     /* of the front end, 0 to 1: closed from there on */
    double disk_idle;               /* of the back end: closed up to there */
    double net;                     /* between them: closed from there on */
    unsigned life_ms, life_step_ms; /* of a row in the front end */
    uint64_t seed;                  /* of FA's numbers */
    unsigned precache, counters;    /* bounds, in rows */
};

/* Table II. */
void qm_seer_settings_init(struct qm_seer_settings *settings);

struct qm_seer_load {
    double cpu, disk_idle, net;
};

#define QM_SEER_FOREIGN 16

/* The facts about a row that the rules need: the table's first and last row, which may
 * be any numbers, and the rows that the row's foreign keys reference. */
struct qm_seer_row {
    int64_t first, last;
    unsigned foreign_count;
    struct qm_item foreign[QM_SEER_FOREIGN];
};

struct qm_seer_calls {
    void *opaque;
    /* False: nothing is known of it, and there is no read-ahead for it. */
    bool (*describe)(void *opaque, struct qm_item item, struct qm_seer_row *row);
};

/* The rows from number + from to number + to that the table has.  False: none. */
bool qm_seer_range(const struct qm_seer_row *row, int64_t number, int from, int to,
                   int64_t *first, int64_t *last);

#define QM_SEER_ROWS 256

/* Rows of one table to read. */
struct qm_seer_request {
    enum qm_seer_rule rule;
    unsigned level; /* 0: passive; 1, 2: algorithm 1's first and second */
    uint32_t table;
    unsigned count;
    int64_t row[QM_SEER_ROWS];
};

struct qm_seer_stats {
    uint64_t passive, in_window, proactive,
        closed; /* started; W had not passed; gates */
    uint64_t requested[3], fetched[3], redundant, claimed, pushed, overflowed;
    /* the first two by rule: SA, TA, FA */
};

struct qm_seer;

struct qm_seer *qm_seer_new(const struct qm_seer_settings *settings,
                            const struct qm_seer_calls *calls);
void qm_seer_free(struct qm_seer *seer);

/* A client's read.  hit: the front end had it.  Returns whether Pre-Cache has it, from
 * which it then goes to the front end. */
bool qm_seer_read(struct qm_seer *seer, uint64_t now_ms, struct qm_item item, bool hit);
/* A row was changed or inserted; what Pre-Cache has of it is old. */
void qm_seer_modified(struct qm_seer *seer, uint64_t now_ms, struct qm_item item);
/* Takes the first request of Mes-Queue. */
bool qm_seer_next(struct qm_seer *seer, struct qm_seer_request *request);
/* That request's rows that there are; count 0: none, or it failed. */
void qm_seer_fetched(struct qm_seer *seer, const struct qm_seer_request *request,
                     const int64_t *rows, unsigned count);
/* Takes the oldest row of Pre-Cache, for the front end. */
bool qm_seer_push(struct qm_seer *seer, struct qm_item *item);
/* Hot-Spot: to be called now and then. */
void qm_seer_tick(struct qm_seer *seer, uint64_t now_ms,
                  const struct qm_seer_load *load);

/* How long a row may stay in the front end from now on: longer with each read in this
 * T_h, shorter for what was not read in it. */
unsigned qm_seer_life(const struct qm_seer *seer, struct qm_item item);
void qm_seer_set_rules(struct qm_seer *seer, unsigned rules, bool proactive);
bool qm_seer_is_proactive(const struct qm_seer *seer); /* one is going on */
void qm_seer_get_stats(const struct qm_seer *seer, struct qm_seer_stats *stats);

#endif
