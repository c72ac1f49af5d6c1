/* SPDX-License-Identifier: BSD-3-Clause */
/* auto.h - read-ahead that learns which of its rules pays for which table: decisions
 * only, in virtual time.
 *
 * The rules are SEER-MCache's (seer.h), each divided into arms (yield.h), for each
 * table:
 *
 *   SA  the rows 1 to 4, 5 to 16 and 17 to 50 behind the one that was read, and as many
 *       before it
 *   TA  the rows of the table that changed in the last T, at once; and, together, those
 *       of them that this arm does not ask for (changes.h)
 *   FA  for each foreign key, the row that it references, and the 9 that follow that
 *   M   rows that the caller predicts (qm_auto_predicted)
 *
 * A read that misses, and one that finds a row that was read ahead, asks all arms of
 * its table.  What the arms that are on, or on trial, want is put into requests, one
 * for each table, so that several reads' rows come by one SELECT.  A row costs the less
 * the more come with it: while a request is out, others wait for more rows, unless
 * theirs are read soon (qm_rule_yield_is_soon); and a read of what was read ahead wants
 * no rows of an SA arm before they are half of its band.
 *
 * A row that came is out until a client reads it (used), it has gone, or JUDGE_MS have
 * passed; then its arm is judged.  It is remembered after that, and counts when it is
 * used late. */
#ifndef QM_ROWCACHE_AUTO_H
#define QM_ROWCACHE_AUTO_H

#include "rowcache/readahead/seer.h"
#include "rowcache/readahead/yield.h"

enum qm_auto_rule { QM_AUTO_SA, QM_AUTO_TA, QM_AUTO_FA, QM_AUTO_MINED, QM_AUTO_RULES };

enum {
    QM_AUTO_ROWS = 256,         /* of a request */
    QM_AUTO_QUEUE = 16,         /* requests */
    QM_AUTO_PATIENCE_MS = 1000, /* for which a request waits for the pool */
    QM_AUTO_GATHER_MS = QM_RULE_YIELD_SOON_MS,
    QM_AUTO_BANDS = 6,   /* of SA */
    QM_AUTO_FOREIGN = 8, /* keys of a table, for FA */
};

struct qm_auto_settings {
    unsigned rules; /* 1 << QM_AUTO_SA | ... */
    unsigned t_ms;  /* of TA */
    unsigned judge_ms;
    bool watches;        /* arms are watched before they are on trial (yield.h) */
    unsigned again_ms;   /* a row is not asked for again in that time */
    unsigned fresh, old; /* bounds, in rows: out, remembered */
    unsigned recent;     /* in blocks of rows: asked for */
};

void qm_auto_settings_init(struct qm_auto_settings *settings);

/* Rows of one table to read, and for which arm each. */
struct qm_auto_request {
    uint32_t table;
    unsigned count;
    bool soon;      /* some are likely to be read at once */
    uint64_t since; /* ms; its first row was asked for */
    int64_t row[QM_AUTO_ROWS];
    uint16_t arm[QM_AUTO_ROWS];
};

enum qm_auto_read {
    QM_AUTO_MISS,
    QM_AUTO_AHEAD, /* it was read ahead, and this is its first read */
    QM_AUTO_HIT
};

struct qm_auto_stats {
    /* by rule; rows */
    uint64_t asked[QM_AUTO_RULES], fetched[QM_AUTO_RULES], used[QM_AUTO_RULES],
        wasted[QM_AUTO_RULES];
    double us[QM_AUTO_RULES]; /* that the database took */
    uint64_t dropped;         /* rows for which no request had room, or that left one */
};

struct qm_auto_calls {
    void *opaque;
    /* False: nothing is known of it, and SA and FA ask for nothing. */
    bool (*describe)(void *opaque, struct qm_item item, struct qm_seer_row *row);
    /* A predicted row that was fetched was used, or was not in its time.  NULL: it does
     * not matter. */
    void (*ended)(void *opaque, struct qm_item item, bool used);
};

struct qm_auto;

struct qm_auto *qm_auto_new(const struct qm_auto_settings *settings,
                            const struct qm_auto_calls *calls);
void qm_auto_free(struct qm_auto *ra);
/* Rows that wait for a rule that is not among these are dropped. */
void qm_auto_set_rules(struct qm_auto *ra, unsigned rules);

/* A client's read.  hit: it was kept; else it waited for us. */
enum qm_auto_read qm_auto_read(struct qm_auto *ra, uint64_t now_ms, struct qm_item item,
                               bool hit, double us);
/* False: no row of that number, of whatever table, was read ahead and not used, so a
 * hit of it says nothing.  Any thread may ask, without the lock of the others; what
 * another thread has just read ahead may be missed once. */
bool qm_auto_may_be_ahead(const struct qm_auto *ra, int64_t row);
/* That row may be read soon. */
void qm_auto_predicted(struct qm_auto *ra, uint64_t now_ms, struct qm_item item);
/* A row was changed or inserted. */
void qm_auto_modified(struct qm_auto *ra, uint64_t now_ms, struct qm_item item);
/* A row is kept no more, for a reason that says nothing of what read it ahead; all. */
void qm_auto_dropped(struct qm_auto *ra, struct qm_item item);
void qm_auto_dropped_all(struct qm_auto *ra);
/* All rows of a table have gone; those of it that wait are dropped. */
void qm_auto_emptied(struct qm_auto *ra, uint64_t now_ms, uint32_t table);
/* A client's read takes processors that long, as they measure the work of rows. */
void qm_auto_work(struct qm_auto *ra, double us);
/* That number will be another table's: what was learned of it is forgotten, and its
 * rows that wait are dropped. */
void qm_auto_forget_table(struct qm_auto *ra, uint32_t table);
/* The share of the connections that clients' reads have. */
void qm_auto_busy(struct qm_auto *ra, double busy);
/* The busy part of the processors in the last quarter of a second, 0 to 1. */
void qm_auto_processors(struct qm_auto *ra, double busy);
/* To be called now and then. */
void qm_auto_tick(struct qm_auto *ra, uint64_t now_ms);

/* The first row of the oldest request has waited for QM_AUTO_PATIENCE_MS: it may not be
 * read soon any more. */
bool qm_auto_is_late(const struct qm_auto *ra, uint64_t now_ms);
/* Takes the oldest request.  out: an earlier one has not been answered; then one whose
 * rows are not read soon stays for QM_AUTO_GATHER_MS, where more rows are added to it.
 */
bool qm_auto_next(struct qm_auto *ra, uint64_t now_ms, bool out,
                  struct qm_auto_request *request);
/* The database was not asked for a request that was taken: its rows may be asked for
 * again. */
void qm_auto_not_asked(struct qm_auto *ra, uint64_t now_ms,
                       const struct qm_auto_request *request);
/* The rows of that request that were not there yet and came, for which the database
 * took us, and processors work_us, as far as it is known.  us 0, and count 0: it
 * failed; rows that changed are asked for again then, a few times. */
void qm_auto_fetched(struct qm_auto *ra, uint64_t now_ms,
                     const struct qm_auto_request *request, const int64_t *rows,
                     unsigned count, double us, double work_us);
/* Forgets which rows were read ahead; keeps what was learned. */
void qm_auto_forget(struct qm_auto *ra);

void qm_auto_get_stats(const struct qm_auto *ra, struct qm_auto_stats *stats);
/* The arms, for INFO. */
const struct qm_rule_yield *qm_auto_yield(const struct qm_auto *ra);

#endif
