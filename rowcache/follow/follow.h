/* SPDX-License-Identifier: BSD-3-Clause */
/* follow.h - follows MariaDB's binary log, and says which rows have changed.
 *
 * Two threads.  The follower reads the log as a replica does, from the server's
 * position at the start, and calls back in the log's order.  The probe asks the server,
 * several times in each max-lag, how far its log is and how far its engines have
 * committed.
 *
 * - What one transaction changed is said before applied() says its GTID.
 * - A server sends a transaction's events before its engine has committed it, with
 * semi- synchronous replication by seconds.  A read that began after its events were
 * applied may therefore still see the row as it was.  settled() says up to which
 * transaction that is over; a row that changed later must not be stored.
 * - fresh() says: everything that was committed at that time has been applied.  The
 * time is of this machine's CLOCK_BOOTTIME, taken before the server was asked, so no
 * two clocks are compared.
 * - What cannot be known for sure is said as more: the whole table, or everything.
 * - following(false) comes as soon as the connection is lost; following(true) when
 * everything has been applied that the server had logged at the time of the new
 * connection.
 * - A server that has restarted is followed anew, with a gap: it may have lost what it
 * had logged.
 *
 * What a server does not log (SET sql_log_bin=0, filters, RESET MASTER followed by as
 * many transactions as were followed before) cannot be followed.
 */
#ifndef QM_ROWCACHE_FOLLOW_H
#define QM_ROWCACHE_FOLLOW_H

#include "rowcache/follow/gtid.h"

struct qm_follow_server {
    const char *host;        /* or NULL, with a socket */
    unsigned port;           /* 0: 3306 */
    const char *unix_socket; /* or NULL */
};

/* TLS to MariaDB: ca or cert switches it on.  Without key, cert's file has the key.
 * verify: the server's certificate; if verify_given, it holds without ca and cert, too,
 * where the client library decides by itself whether there is TLS. */
struct qm_tls {
    const char *ca, *cert, *key; /* or NULL */
    bool verify, verify_given;
};

struct st_mysql;
/* Before it is connected. */
void qm_tls_set(struct st_mysql *mysql, const struct qm_tls *tls);

struct qm_follow_settings {
    const struct qm_follow_server *servers; /* the next one is tried when one fails */
    unsigned servers_count;
    const char *user,
        *password; /* it needs REPLICATION SLAVE and BINLOG MONITOR; and SELECT
                                   on all tables: what it cannot see cascades unseen */
    struct qm_tls tls;
    uint32_t server_id;  /* as a replica's, unique; 0: made up */
    unsigned max_lag_ms; /* fresh() comes at least four times in it, if all is well */
    unsigned timeout_ms; /* for connecting, and until a silent server counts as lost */
};

/* All are called from the two threads, but never two at once, and must not wait. */
struct qm_follow_callbacks {
    void *opaque;
    /* A row, by the text of its primary key (keytext.h); number counts transactions. */
    void (*changed)(void *opaque, uint64_t number, const char *schema,
                    const char *table, const char *key, size_t length);
    /* All rows of a table; of a schema (table NULL); of all (schema NULL, too). */
    void (*all_changed)(void *opaque, uint64_t number, const char *schema,
                        const char *table);
    /* As all_changed of all, because transactions may have been missed. */
    void (*gap)(void *opaque, uint64_t number, const char *why);
    void (*applied)(void *opaque, uint64_t number, const struct qm_gtid_list *position);
    void (*settled)(void *opaque, uint64_t number);
    void (*fresh)(void *opaque, uint64_t boottime_ns);
    void (*following)(void *opaque, bool following, const char *why);
    void (*server)(void *opaque,
                   uint32_t id); /* whose log it is, from now on; or NULL */
    void (*message)(void *opaque,
                    const char *text); /* one line, for the operator's log */
};

struct qm_follow_info {
    struct qm_gtid_list applied;
    uint64_t events, transactions, rows, tables, gaps, connects;
    unsigned server; /* which of the list */
    bool following;
};

struct qm_follow;

/* Returns NULL, with errno, if there is no memory or no thread.  Strings are copied. */
struct qm_follow *qm_follow_start(const struct qm_follow_settings *settings,
                                  const struct qm_follow_callbacks *callbacks);
/* Ends both threads and frees; no callback comes after it. */
void qm_follow_stop(struct qm_follow *follow);
/* From now on, as settings.max_lag_ms. */
void qm_follow_set_max_lag(struct qm_follow *follow, unsigned max_lag_ms);
void qm_follow_info(struct qm_follow *follow, struct qm_follow_info *info);
/* Waits until position is applied.  False: not within that time. */
bool qm_follow_wait(struct qm_follow *follow, const struct qm_gtid_list *position,
                    unsigned timeout_ms);

#endif
