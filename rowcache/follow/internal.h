/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the follower's two threads share.
 *
 * lock is over all of it, and is held during callbacks.  The follower thread alone uses
 * heard, dump, catalogue and binlog, the probe thread alone its connection.
 */
#ifndef QM_ROWCACHE_FOLLOW_INTERNAL_H
#define QM_ROWCACHE_FOLLOW_INTERNAL_H

#include "rowcache/follow/binlog.h"
#include "rowcache/follow/catalogue.h"
#include "rowcache/follow/connection.h"

#define QM_WHY     256
#define QM_PENDING 1024

/* What a server said of itself. */
struct qm_life {
    uint32_t server;     /* its @@server_id */
    uint64_t up;         /* seconds since it started, by its wall clock */
    uint64_t connection; /* the number of ours; they begin at 1 when it starts */
};

/* Whether the server may have started after we last heard of one, `silence` seconds
 * ago.  One that is killed and has not written all that it committed to disk
 * (innodb_flush_log_at_trx_commit=0) lacks afterwards what its log has, and what was
 * kept of that is nowhere in the log.  Its time is in whole seconds, hence two more;
 * and if its clock was set forward since it started, the connections' numbers tell. */
static inline bool qm_may_have_restarted(const struct qm_life *before,
                                         const struct qm_life *now, uint64_t silence)
{
    return now->up < silence + 2 ||
           (now->server == before->server && now->connection < before->connection);
}

/* A place in a server's log. */
struct qm_place {
    uint64_t file; /* the number that its name ends in */
    uint64_t position;
};

/* The last file that was read since the last gap, and when the server made it
 * (seconds). */
struct qm_log_file {
    uint32_t server;
    uint64_t number;
    uint32_t made;
};

/* Transactions that were applied and may not be committed yet: settled when the engines
 * are there. */
struct qm_pending {
    uint64_t number;
    struct qm_place place;
};

struct qm_follow {
    struct qm_follow_settings settings; /* after the start, max_lag_ms alone changes */
    struct qm_follow_callbacks calls;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* applied, stop, connected, max_lag_ms */
    pthread_t follower, probe;
    bool stop;

    struct qm_follow_info info;
    uint64_t number;            /* of the transaction that is being applied */
    bool known;                 /* info.applied is a position to go on from */
    struct qm_gtid_list target; /* to reach before following */
    uint64_t heard;             /* ns; when a server last said something */
    struct qm_life life;        /* of that one */
    struct qm_place seen;       /* how far the log of that one was, at least */
    struct qm_log_file file;
    const char *anew;    /* why a server has to be followed anew; or NULL */
    uint32_t anew_of;    /* ... which */
    uint64_t behind;     /* ns; since when a server lacks what was applied; 0 */
    uint64_t generation; /* of the connection; 0 while there is none */
    uint64_t generations;
    unsigned pending_first, pending_count;
    struct qm_pending pending[QM_PENDING];

    struct qm_connection dump, catalogue, asker;
    struct qm_catalogue *tables;
    struct qm_binlog *binlog;
    struct qm_gtid transaction;
    char broken[QM_WHY]; /* by a callback of the parser */
};

/* "mariadb-bin.000012" and a position.  A name without a number is a file of its own,
 * after all others. */
struct qm_place qm_place_of(const char *file, uint64_t position);
bool qm_place_reaches(struct qm_place at, struct qm_place place);
/* With the lock held. */
void qm_pending_add(struct qm_follow *follow, uint64_t number, struct qm_place place);
void qm_pending_settle(struct qm_follow *follow, struct qm_place committed);

/* What was said last. */
struct qm_saying {
    char text[QM_WHY];
    uint64_t at; /* ns; 0: nothing */
};
/* Whether to say it: the same, for each try, would fill the log. */
bool qm_is_news(struct qm_saying *last, const char *text);

void qm_say(struct qm_follow *follow, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
/* ns of CLOCK_BOOTTIME, as qm_rows_now(): the time that the machine sleeps is time. */
uint64_t qm_monotonic(void);
/* Waits that long, or until changed is signalled.  With the lock held. */
void qm_pause(struct qm_follow *follow, unsigned ms);

void *qm_follow_thread(void *opaque);
void *qm_probe_thread(void *opaque);

#endif
