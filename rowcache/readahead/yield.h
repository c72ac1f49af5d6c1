/* SPDX-License-Identifier: BSD-3-Clause */
/* yield.h - which ways to read ahead earn what they cost: decisions only, in virtual
 * time.
 *
 * An arm is one way to find rows for one table.  Of the rows that an arm fetched, a
 * share is used.  It earns
 *
 *   share * (time of a client's read) > (the database's time for a fetched row) * price
 *
 * where both times are measured.  The price is LOW when the pool of connections is idle
 * and the database as fast as it was at its best, and LOW + 1 when it is all busy or
 * much slower: above 1, an arm takes more of the database's time off than it puts on.
 *
 * Most of that time may be a disk's.  So an arm also has to earn
 *
 *   share * (work of a client's read) > (work of a fetched row) * price of work
 *
 * where work is the processors' time, as far as it is known here: the database's is in
 * proportion to it.  That price is LOW up to .3 of the processors' time, and higher by
 * 1.25 from .5 on: then clients' reads and writes wait for a processor.  Where no work
 * is known, the first price rises instead, by 3.
 *
 * A new arm is watched: rows that it wants are not fetched, but noted, at most
 * QM_RULE_YIELD_WATCH_ROWS of them at a time.  A read that misses such a row would have
 * found it, unless it came so soon that the row would still have been on its way.  When
 * QM_RULE_YIELD_TRIAL_ROWS are judged, the arm is on if it would earn what a row costs
 * other arms, or can cost at least; else it is off.  To watch costs the database
 * nothing.  On, the arm is judged by what it fetches and by what that costs, when
 * QM_RULE_YIELD_TRIAL_ROWS have come: the first SELECT's time says little.  Until then,
 * at most twice as many of its rows are out.  One that does not earn goes off, and is
 * watched again after a while, each time twice as long; what its rows took counts half
 * as much each time, as it may have become less.
 *
 * A row that is used is judged at once, one that is not, late: soon after a trial began
 * all that are judged are used.  So a row that is out counts as not used by the part of
 * its time that has passed, until twice that time has passed since the trial began.
 *
 * For an arm whose share the caller foresees, a trial only finds out what a row costs:
 * it ends with the first rows, at most QM_RULE_YIELD_COST_ROWS.  One SELECT's time may
 * say little, so that cost begins as the mean of all such arms. */
#ifndef QM_ROWCACHE_YIELD_H
#define QM_ROWCACHE_YIELD_H

#include <stdbool.h>
#include <stdint.h>

enum qm_rule_yield_state {
    QM_RULE_YIELD_TRIAL,
    QM_RULE_YIELD_ON,
    QM_RULE_YIELD_OFF,
    QM_RULE_YIELD_WATCHED
};

/* Of a row that was watched: it would have been used; it would not, in its time; or
 * that is not known. */
enum qm_rule_yield_outcome {
    QM_RULE_YIELD_USED,
    QM_RULE_YIELD_UNUSED,
    QM_RULE_YIELD_UNKNOWN
};

enum {
    QM_RULE_YIELD_ARMS = 4096, /* more are never allowed anything */
    QM_RULE_YIELD_TRIAL_ROWS = 48,
    QM_RULE_YIELD_WATCH_ROWS = 384,
    QM_RULE_YIELD_SOON_MS = 20,
    QM_RULE_YIELD_COST_ROWS = 32,   /* that tell a foreseen arm's cost */
    QM_RULE_YIELD_RETRY_MS = 10000, /* the first time; at most: */
    QM_RULE_YIELD_RETRY_MOST_MS = 300000,
};

struct qm_rule_yield;

struct qm_rule_yield_arm {
    uint32_t table;
    uint8_t rule, slot; /* as the caller counts them */
    enum qm_rule_yield_state state;
    double used, judged;  /* of late ones more than of early ones */
    bool of_watched;      /* those are rows that were watched */
    unsigned watched;     /* rows that are watched, and not judged */
    uint64_t watched_ms;  /* the sum of when they were noted */
    double soon;          /* share of what is used that is used soon */
    unsigned unpaid;      /* rows until it is judged by what its rows cost */
    unsigned paid;        /* rows that cost_us is of, up to some */
    double cost_us;       /* of a row; 0: not known */
    double work_us;       /* of a row; 0: not known */
    bool foreseen, tried; /* a trial has told its cost */
    double share;         /* foreseen */
    unsigned out;         /* allowed, and not judged */
    unsigned fresh;       /* of them: came */
    uint64_t since;       /* the sum of when those came, ms */
    uint64_t began;       /* its trial, ms */
    uint64_t retry_at, retry_ms;
    unsigned chain;
};

/* A row is judged as not used after judge_ms.  watches: arms are watched before they
 * are on trial. */
struct qm_rule_yield *qm_rule_yield_new(unsigned judge_ms, bool watches);
void qm_rule_yield_free(struct qm_rule_yield *yield);

/* Its number, from 1 on; 0: there are too many. */
unsigned qm_rule_yield_find(struct qm_rule_yield *yield, uint32_t table, unsigned rule,
                            unsigned slot);
/* NULL: there is none of that number. */
const struct qm_rule_yield_arm *qm_rule_yield_get(const struct qm_rule_yield *yield,
                                                  unsigned arm);

/* Which share of its rows will be used; what was judged decides no more. */
void qm_rule_yield_foresee(struct qm_rule_yield *yield, unsigned arm, double share);

/* At most that many rows would be watched, or allowed, now, whichever are wanted: the
 * caller need not look for more.  As the next two, it may turn the arm on or off, since
 * time has passed. */
unsigned qm_rule_yield_room(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm);
/* All arms of that table are as if they were new, but for what is out. */
void qm_rule_yield_forget(struct qm_rule_yield *yield, uint32_t table);
/* How many of these rows are to be watched now, and not fetched; 0: the arm is not
 * watched, or enough of its rows are. */
unsigned qm_rule_yield_to_watch(struct qm_rule_yield *yield, uint64_t now_ms,
                                unsigned arm, unsigned rows);
/* One of them is watched from now on: until qm_rule_yield_judge_watched(), which is
 * told since when. */
void qm_rule_yield_watch(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm);
void qm_rule_yield_judge_watched(struct qm_rule_yield *yield, uint64_t now_ms,
                                 unsigned arm, uint64_t since_ms,
                                 enum qm_rule_yield_outcome outcome);
/* One that was judged as not used would have been, after all. */
void qm_rule_yield_late_watched(struct qm_rule_yield *yield, uint64_t now_ms,
                                unsigned arm);
/* How many of these rows may be fetched now.  Each of them is then judged once, or
 * given back. */
unsigned qm_rule_yield_allow(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm,
                             unsigned rows);
/* Rows that were allowed are not there, or were not asked for. */
void qm_rule_yield_give_back(struct qm_rule_yield *yield, unsigned arm, unsigned rows);
/* That many came, for which the database took us, and processors work_us; 0: that is
 * not known. */
void qm_rule_yield_paid(struct qm_rule_yield *yield, unsigned arm, unsigned rows,
                        double us, double work_us);
/* A row that was allowed came; one that came then is not out any more, whether it was
 * judged or given back. */
void qm_rule_yield_came(struct qm_rule_yield *yield, unsigned arm, uint64_t now_ms);
void qm_rule_yield_left(struct qm_rule_yield *yield, unsigned arm, uint64_t came_ms);
/* A row was used; or was not in the time that it has for that. */
void qm_rule_yield_judge(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm,
                         bool used);
/* One that was judged as not used is, after all. */
void qm_rule_yield_late(struct qm_rule_yield *yield, uint64_t now_ms, unsigned arm);

/* A row of it was used that long after it came, or after it was watched. */
void qm_rule_yield_lead(struct qm_rule_yield *yield, unsigned arm, uint64_t ms);
/* Some of its rows are used within QM_RULE_YIELD_SOON_MS, as far as is known. */
bool qm_rule_yield_is_soon(const struct qm_rule_yield *yield, unsigned arm);

/* How many rows its share is of: those that were judged, and part of those that are
 * out. */
double qm_rule_yield_judged(const struct qm_rule_yield *yield, uint64_t now_ms,
                            unsigned arm);

/* A client's read waited that long for the database. */
void qm_rule_yield_read(struct qm_rule_yield *yield, double us);
/* A client's read takes processors that long, as they measure the work of rows. */
void qm_rule_yield_work(struct qm_rule_yield *yield, double us);
/* The share of the pool's connections that clients' reads have now, 0 to 1. */
void qm_rule_yield_busy(struct qm_rule_yield *yield, double busy);
/* The busy part of the processors in the last quarter of a second, 0 to 1. */
void qm_rule_yield_processors(struct qm_rule_yield *yield, double busy);
/* Clients' reads and writes begin to wait for a processor. */
bool qm_rule_yield_is_scarce(const struct qm_rule_yield *yield);
/* The higher of the two. */
double qm_rule_yield_price(const struct qm_rule_yield *yield);
double qm_rule_yield_read_us(const struct qm_rule_yield *yield);

#endif
