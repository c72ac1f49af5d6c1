/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the parts of fill share: a thread of the pool, and its connection.
 */
#ifndef QM_ROWCACHE_FILL_INTERNAL_H
#define QM_ROWCACHE_FILL_INTERNAL_H

#include <pthread.h>

#include "rowcache/fill/fill.h"
#include "rowcache/fill/plan.h"

struct worker {
    struct qm_fill *fill;
    pthread_t thread;
    bool started;
    uint64_t table; /* the hash of the one that it reads; 0: none */
    MYSQL *mysql;
    uint32_t server;             /* @@server_id; of what mysql is connected to */
    struct qm_gtid_list reached; /* what it has committed at least */
    struct qm_gtid_list
        slave;             /* its @@gtid_slave_pos: the domains that it replicates */
    uint64_t connected;    /* qm_rows_now() */
    struct qm_plan *plans; /* the last used first */
    unsigned count, prepared;
};

struct qm_fill {
    struct qm_fill_settings settings;
    struct qm_rows *rows;
    _Atomic uint64_t *tick;
    void (*done)(void *opaque, struct qm_fill_job *job);
    void *opaque;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct qm_fill_job *first, *last;
    struct qm_fill_job *behind; /* that wait for their server; by next, in no order */
    struct qm_fill_ahead *ahead_first, **ahead_last;
    unsigned ahead_waiting, ahead_running;
    bool ending;
    uint64_t failed_at;            /* of the last connection that could not be opened */
    char refusal[400];             /* why: a reply */
    _Atomic uint32_t first_server; /* @@server_id of the first that was met */
    _Atomic bool several;          /* another one was, too */
    struct {
        uint32_t server;
        struct qm_gtid_list reached, slave;
        uint64_t at; /* qm_rows_now() */
    } met;           /* the last server that was asked what it has committed */
    struct qm_fill_stats stats; /* but for these: */
    /* Changed with the lock, read without. */
    struct {
        _Atomic unsigned waiting, busy;
        _Atomic double work_us;
    } load;
    struct worker worker[];
};

/* fill.c */
/* The processors' time that this thread has used, us. */
double qm_fill_work(void);

/* read.c */
void qm_fill_hang_up(struct worker *w);
void qm_fill_remember_error(struct qm_fill *fill, const char *error);
void qm_fill_read(struct worker *w, struct qm_fill_job *job);
/* No connection is tried yet: the last try failed.  The lock is held. */
bool qm_fill_pauses(const struct qm_fill *fill);
uint64_t qm_fill_pause_end(const struct qm_fill *fill); /* until when; the same */
/* False, with a reply in error. */
bool qm_fill_connect(struct worker *w, char *error, size_t size);
/* Whether the server lacks what is applied, or what the job's reader has seen; asks it
 * if need be.  True, too, without a connection: it could not be asked. */
bool qm_fill_is_behind(struct worker *w, const struct qm_fill_job *job);
/* The plan for the job, loaded and prepared; NULL: the job has its error. */
struct qm_plan *qm_fill_plan(struct worker *w, struct qm_fill_job *job,
                             const struct qm_rows_token *token);
/* The reply for an error of the connection; a lost one is closed. */
void qm_fill_explain(struct worker *w, struct qm_fill_job *job, const char *what);
bool qm_fill_run(MYSQL *mysql, const struct qm_text *text);
enum qm_json_kind qm_fill_kind(const MYSQL_FIELD *field);
/* Takes the result of SELECT @@gtid_binlog_pos. */
bool qm_fill_position(struct worker *w, struct qm_fill_job *job);
/* Reads what is left of several results, so that the next query can be sent. */
void qm_fill_skip(struct worker *w);

/* ahead.c */
void qm_fill_read_ahead(struct worker *w, struct qm_fill_ahead *ahead);

#endif
