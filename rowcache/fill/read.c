/* SPDX-License-Identifier: BSD-3-Clause */
/* read.c - a pool thread's connection to MariaDB, and reading rows by it; see fill.h.
 *
 * Each connection has plans (plan.h) whose statements are prepared on it.  One that
 * fails is closed; for a second after that all jobs get its error at once, so that
 * nothing piles up in front of a database that is away. */
#include <errmsg.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/fill/internal.h"

enum {
    PLANS = 1024,      /* of a connection */
    STATEMENTS = 8000, /* of all; MariaDB's default is 16382, for all clients */
    BACKOFF_MS = 1000,
    MEET_MS = 5, /* between questions of what a server has committed */
    UNFOLLOWED_MS = 5000,
};

/* --- a thread's connection --- */

static void forget_plans(struct worker *w)
{
    while (w->plans) {
        struct qm_plan *plan = w->plans;

        w->plans = plan->next;
        free(plan);
    }
    w->count = w->prepared = 0; /* their statements stay until the numbers are reused */
}

void qm_fill_hang_up(struct worker *w)
{
    if (!w->mysql)
        return;
    mysql_close(w->mysql);
    w->mysql = NULL;
    forget_plans(w);
    pthread_mutex_lock(&w->fill->lock);
    w->fill->stats.connected--;
    pthread_mutex_unlock(&w->fill->lock);
}

void qm_fill_remember_error(struct qm_fill *fill, const char *error)
{
    pthread_mutex_lock(&fill->lock);
    fill->stats.errors++;
    snprintf(fill->stats.error, sizeof fill->stats.error, "%s", error);
    pthread_mutex_unlock(&fill->lock);
}

uint64_t qm_fill_pause_end(const struct qm_fill *fill)
{
    return fill->failed_at + BACKOFF_MS * UINT64_C(1000000);
}

bool qm_fill_pauses(const struct qm_fill *fill)
{
    return fill->failed_at != 0 && qm_rows_now() < qm_fill_pause_end(fill);
}

/* None is tried for a while. */
static void remember_refusal(struct qm_fill *fill, const char *error)
{
    pthread_mutex_lock(&fill->lock);
    fill->failed_at = qm_rows_now();
    snprintf(fill->refusal, sizeof fill->refusal, "%s", error);
    pthread_mutex_unlock(&fill->lock);
    qm_fill_remember_error(fill, error);
}

static void set_options(MYSQL *mysql, const struct qm_fill_settings *s)
{
    unsigned seconds = (s->timeout_ms + 999) / 1000;
    my_bool no = 0;

    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
    mysql_options(mysql, MYSQL_OPT_RECONNECT, &no);
    mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    /* The key's text is computed from these, as the follower does.  NAMES: init_connect
     * or a server that does not listen to clients may have chosen others. */
    mysql_options(mysql, MYSQL_INIT_COMMAND,
                  "SET NAMES utf8mb4, sql_mode = '', time_zone = '+00:00',"
                  " autocommit = 1, sql_select_limit = 18446744073709551615,"
                  " old_mode = '', lc_time_names = 'en_US', default_week_format = 0");
    /* What is read uncommitted, and rolled back, never gets into the binary log. */
    mysql_options(mysql, MYSQL_INIT_COMMAND,
                  "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    qm_tls_set(mysql, &s->tls);
}

static void read_position(struct qm_gtid_list *list, const char *text)
{
    if (!text || !qm_gtid_parse(list, text, strlen(text)))
        list->count = 0;
}

/* Who the server is, and what it has committed.  A name may lead to several servers:
 * after a failover, or by a proxy. */
static bool meet(struct worker *w)
{
    /* Unlike @@gtid_binlog_pos, without what is logged and not yet committed. */
    static const char question[] =
        "SELECT @@server_id, @@gtid_current_pos, @@gtid_slave_pos";
    MYSQL_RES *result =
        mysql_query(w->mysql, question) == 0 ? mysql_store_result(w->mysql) : NULL;
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;

    if (row) {
        uint32_t none = 0;

        w->server = row[0] ? (uint32_t)strtoull(row[0], NULL, 10) : 0;
        read_position(&w->reached, row[1]);
        read_position(&w->slave, row[2]);
        if (!atomic_compare_exchange_strong(&w->fill->first_server, &none, w->server) &&
            none != w->server)
            w->fill->several = true;
    }
    mysql_free_result(result);
    return row != NULL;
}

/* Whether the server replicates a domain of which it lacks what was told.  Of others it
 * has all that there is, or nothing. */
static bool lacks_told(const struct worker *w, const struct qm_gtid_list *told)
{
    for (unsigned i = 0; i < told->count; i++)
        for (unsigned j = 0; j < w->slave.count; j++)
            if (told->last[i].domain == w->slave.last[j].domain &&
                !qm_gtid_covers_one(&w->reached, told->last[i]))
                return true;
    return false;
}

/* What a reader has seen came from the server itself, unless there are several. Another
 * than the one whose log is followed may lack what is applied. */
static bool lacks(const struct worker *w, const struct qm_fill_job *job)
{
    struct qm_rows *rows = w->fill->rows;

    if (job->seen && job->told && lacks_told(w, job->seen))
        return true;
    if (job->seen && w->fill->several && !job->told &&
        !qm_gtid_covers(&w->reached, job->seen))
        return true;
    return qm_rows_is_other(rows, w->server) && !qm_rows_is_within(rows, &w->reached);
}

/* What another thread was told by the same server holds here, too.  False: it was not
 * asked just now. */
static bool take_met(struct worker *w, uint64_t now)
{
    struct qm_fill *fill = w->fill;
    bool recent;

    pthread_mutex_lock(&fill->lock);
    recent = fill->met.server == w->server && fill->met.at != 0 &&
             now - fill->met.at < MEET_MS * UINT64_C(1000000);
    if (recent) {
        w->reached = fill->met.reached;
        w->slave = fill->met.slave;
    }
    pthread_mutex_unlock(&fill->lock);
    return recent;
}

bool qm_fill_is_behind(struct worker *w, const struct qm_fill_job *job)
{
    struct qm_fill *fill = w->fill;
    uint64_t now;

    /* Whether it is a replica may have changed since it was asked. */
    if (!lacks(w, job) &&
        !(job->seen && job->told && !qm_gtid_covers(&w->reached, job->seen)))
        return false;
    now = qm_rows_now();
    if (!take_met(w, now)) {
        if (!meet(w)) {
            qm_fill_hang_up(w);
            return true;
        }
        pthread_mutex_lock(&fill->lock);
        fill->met.server = w->server;
        fill->met.reached = w->reached;
        fill->met.slave = w->slave;
        fill->met.at = now;
        pthread_mutex_unlock(&fill->lock);
    }
    return lacks(w, job);
}

bool qm_fill_has_several(const struct qm_fill *fill)
{
    return fill->several;
}

/* False, with a reply in error. */
bool qm_fill_connect(struct worker *w, char *error, size_t size)
{
    struct qm_fill *fill = w->fill;
    const struct qm_fill_settings *s = &fill->settings;
    bool soon;

    if (w->mysql)
        return true;
    pthread_mutex_lock(&fill->lock);
    soon = qm_fill_pauses(fill);
    if (soon)
        snprintf(error, size, "%s", fill->refusal);
    pthread_mutex_unlock(&fill->lock);
    if (soon)
        return false;
    w->mysql = mysql_init(NULL);
    if (!w->mysql) {
        snprintf(error, size, "TRYAGAIN out of memory");
        return false;
    }
    set_options(w->mysql, s);
    if (!mysql_real_connect(w->mysql, s->server.host, s->user, s->password, NULL,
                            s->server.port, s->server.unix_socket,
                            CLIENT_MULTI_STATEMENTS)) {
        snprintf(error, size, "TRYAGAIN the database cannot be reached: %s",
                 mysql_error(w->mysql));
        mysql_close(w->mysql);
        w->mysql = NULL;
        remember_refusal(fill, error);
        return false;
    }
    if (!meet(w)) {
        snprintf(error, size, "TRYAGAIN the database cannot be asked: %s",
                 mysql_error(w->mysql));
        mysql_close(w->mysql);
        w->mysql = NULL;
        remember_refusal(fill, error);
        return false;
    }
    w->connected = qm_rows_now();
    pthread_mutex_lock(&fill->lock);
    fill->failed_at = 0;
    fill->stats.connected++;
    fill->stats.connects++;
    pthread_mutex_unlock(&fill->lock);
    return true;
}

/* --- plans --- */

static struct qm_plan *find_plan(struct worker *w, const struct qm_row_name *name)
{
    for (struct qm_plan **at = &w->plans; *at; at = &(*at)->next) {
        struct qm_plan *plan = *at;

        if (strcmp(plan->table, name->table) != 0 ||
            strcmp(plan->schema, name->schema) != 0 ||
            strcmp(plan->index, name->index) != 0)
            continue;
        *at = plan->next;
        plan->next = w->plans;
        w->plans = plan;
        return plan;
    }
    return NULL;
}

/* The reply for an error of the connection; a lost one is closed. */
void qm_fill_explain(struct worker *w, struct qm_fill_job *job, const char *what)
{
    unsigned code = mysql_errno(w->mysql);
    bool lost = code >= CR_MIN_ERROR && code <= CR_MAX_ERROR;
    bool later = lost || code == ER_LOCK_WAIT_TIMEOUT || code == ER_LOCK_DEADLOCK ||
                 code == ER_SERVER_SHUTDOWN || code == ER_CON_COUNT_ERROR ||
                 code == ER_CONNECTION_KILLED || code == ER_STATEMENT_TIMEOUT ||
                 code == ER_QUERY_INTERRUPTED || code == ER_NEED_REPREPARE ||
                 code == ER_TABLE_DEF_CHANGED;
    char error[400];

    snprintf(error, sizeof error, "%s %s: %s (%u)", later ? "TRYAGAIN" : "ERR", what,
             mysql_error(w->mysql), code);
    qm_text_add(&job->text, error, strlen(error));
    job->outcome = QM_FILL_ERROR;
    qm_fill_remember_error(w->fill, error);
    if (lost || code == ER_SERVER_SHUTDOWN || code == ER_CONNECTION_KILLED)
        qm_fill_hang_up(w);
}

bool qm_fill_run(MYSQL *mysql, const struct qm_text *text)
{
    if (text->failed) {
        return false;
    }
    return mysql_real_query(mysql, text->bytes, (unsigned long)text->length) == 0;
}

/* The server bounds the statements of all its clients together
 * (max_prepared_stmt_count), so the pool takes a share.  False: the database gave an
 * error. */
static bool prepare(struct worker *w, struct qm_plan *plan)
{
    struct qm_text text = {0};
    bool good;

    plan->state = QM_PLAN_IMMEDIATE;
    if (!plan->has_id && w->prepared * w->fill->settings.connections >= STATEMENTS)
        return true;
    if (!plan->has_id)
        plan->id = w->prepared++;
    plan->has_id = true;
    qm_plan_prepare(plan, w->mysql, &text);
    good = qm_fill_run(w->mysql, &text);
    qm_text_free(&text);
    if (good)
        plan->state = QM_PLAN_PREPARED;
    return good || mysql_errno(w->mysql) == ER_MAX_PREPARED_STMT_COUNT_REACHED;
}

/* The plan for the job, loaded and prepared; NULL: the job has its error. */
struct qm_plan *qm_fill_plan(struct worker *w, struct qm_fill_job *job,
                             const struct qm_rows_token *token)
{
    struct qm_row_name *name = &job->name;
    struct qm_plan *plan = find_plan(w, name);
    uint64_t now = qm_rows_now();
    char why[800];

    if (!plan) {
        if (w->count >= PLANS)
            forget_plans(w);
        plan = calloc(1, sizeof *plan);
        if (!plan) {
            qm_text_add(&job->text, "TRYAGAIN out of memory", 22);
            return NULL;
        }
        memcpy(plan->schema, name->schema, sizeof plan->schema);
        memcpy(plan->table, name->table, sizeof plan->table);
        memcpy(plan->index, name->index, sizeof plan->index);
        plan->next = w->plans;
        w->plans = plan;
        w->count++;
    }
    if (plan->count == 0 || plan->generation != token->generation ||
        (!qm_rows_is_following(w->fill->rows) &&
         now - plan->loaded > UNFOLLOWED_MS * UINT64_C(1000000))) {
        if (qm_plan_load(plan, w->mysql, why, sizeof why) != 0) {
            qm_fill_explain(w, job, "the table's keys cannot be read");
            return NULL;
        }
        plan->generation = token->generation;
        plan->loaded = now;
    }
    if (plan->count == 0) {
        qm_text_add(&job->text, why, strlen(why));
        return NULL;
    }
    if (plan->count != name->parts) {
        snprintf(why, sizeof why, "ERR the key of '%s.%s' has %u columns, not %u",
                 name->schema, name->table, plan->count, name->parts);
        qm_text_add(&job->text, why, strlen(why));
        return NULL;
    }
    if (plan->state != QM_PLAN_LOADED)
        return plan;
    if (!prepare(w, plan)) {
        plan->count = 0; /* it is loaded again */
        qm_fill_explain(w, job, "the table cannot be read");
        return NULL;
    }
    return plan;
}

/* --- rows --- */

enum qm_json_kind qm_fill_kind(const MYSQL_FIELD *field)
{
    switch (field->type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
        return QM_JSON_NUMBER;
    case MYSQL_TYPE_BIT:
        return QM_JSON_BITS;
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_TIME:
    case MYSQL_TYPE_DATETIME:
    case MYSQL_TYPE_TIMESTAMP:
        return QM_JSON_TEXT;
    default:
        return field->charsetnr == 63 ? QM_JSON_BYTES : QM_JSON_TEXT;
    }
}

/* One column's value in the text of the key. */
static void add_key(struct qm_keytext *key, const struct qm_plan_column *column,
                    const char *value, size_t length)
{
    bool negative = column->integer && length > 0 && *value == '-';

    if (column->integer && !negative)
        while (length > 1 && *value == '0')
            value++, length--;
    qm_keytext_add(key, value, length);
}

/* Whether the row's own key is the text that was asked for. */
static bool is_canonical(const struct qm_plan *plan, const struct qm_row_name *name,
                         const MYSQL_FIELD *fields, unsigned n, MYSQL_ROW row,
                         const unsigned long *lengths)
{
    struct qm_keytext key;

    qm_keytext_start(&key);
    for (unsigned i = 0; i < plan->count; i++) {
        unsigned j = 0;

        while (j < n && strcasecmp(fields[j].name, plan->column[i].name) != 0)
            j++;
        if (j == n || !row[j])
            return false;
        add_key(&key, &plan->column[i], row[j], lengths[j]);
    }
    return !key.failed && key.length == name->length - name->values_at &&
           memcmp(key.text, name->key + name->values_at, key.length) == 0;
}

/* The row of the result into the job.  False: the job has its error.  *storable: the
 * answer is that of the key that was asked for. */
static bool take_row(struct worker *w, struct qm_fill_job *job,
                     const struct qm_plan *plan, bool *storable)
{
    MYSQL_RES *result = mysql_store_result(w->mysql);
    MYSQL_FIELD *fields;
    MYSQL_ROW row;
    unsigned n;

    if (!result) {
        qm_fill_explain(w, job, "the row cannot be read");
        return false;
    }
    if (mysql_num_rows(result) > 1) {
        static const char many[] = "TRYAGAIN the table's definition has changed";

        mysql_free_result(result);
        qm_text_add(&job->text, many, sizeof many - 1);
        return false;
    }
    row = mysql_fetch_row(result);
    fields = mysql_fetch_fields(result);
    n = mysql_num_fields(result);
    job->outcome = row ? QM_FILL_ROW : QM_FILL_ABSENT;
    if (row) {
        unsigned long *lengths = mysql_fetch_lengths(result);

        *storable = is_canonical(plan, &job->name, fields, n, row, lengths);
        qm_json_start(&job->text);
        for (unsigned i = 0; i < n; i++)
            qm_json_add(&job->text, fields[i].name, fields[i].name_length,
                        qm_fill_kind(&fields[i]), row[i], lengths[i]);
        qm_json_end(&job->text);
    } else {
        *storable = qm_plan_is_plain(plan, &job->name);
    }
    mysql_free_result(result);
    return true;
}

bool qm_fill_position(struct worker *w, struct qm_fill_job *job)
{
    MYSQL_RES *result =
        mysql_next_result(w->mysql) == 0 ? mysql_store_result(w->mysql) : NULL;
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;

    if (!result) {
        job->text.length = 0;
        qm_fill_explain(w, job, "the position in the binary log cannot be read");
        return false;
    }
    if (!row || !row[0] || !qm_gtid_parse(&job->position, row[0], strlen(row[0])))
        job->position.count = 0;
    mysql_free_result(result);
    return true;
}

/* Reads what is left of several results, so that the next query can be sent. */
void qm_fill_skip(struct worker *w)
{
    while (w->mysql && mysql_more_results(w->mysql)) {
        MYSQL_RES *result;

        if (mysql_next_result(w->mysql) != 0) {
            qm_fill_hang_up(w);
            return;
        }
        result = mysql_store_result(w->mysql);
        mysql_free_result(result);
    }
}

/* The column's character set lacks a character, or a number is beyond all doubles. */
static bool cannot_be(unsigned code)
{
    return code == ER_CANT_AGGREGATE_2COLLATIONS || code == ER_ILLEGAL_VALUE_FOR_TYPE;
}

void qm_fill_read(struct worker *w, struct qm_fill_job *job)
{
    struct qm_fill *fill = w->fill;
    struct qm_row_name *name = &job->name;
    struct qm_rows_token token = qm_rows_begin(
        fill->rows, name->key, name->table_length, name->key, name->length);
    struct qm_text text = {0};
    struct qm_plan *plan;
    bool storable = false, good;

    plan = qm_fill_plan(w, job, &token);
    if (!plan)
        return;
    /* Before the server is asked where it is: who joins later may have been given what
     * it lacks. */
    atomic_store(&job->sent, atomic_fetch_add(fill->tick, 1) + 1);
    if (qm_fill_is_behind(w, job)) {
        atomic_store(&job->sent, 0);
        job->outcome = QM_FILL_BEHIND;
        /* The name may lead to a better one by now. */
        if (w->mysql && qm_rows_is_other(fill->rows, w->server) &&
            qm_rows_now() - w->connected > BACKOFF_MS * UINT64_C(1000000))
            qm_fill_hang_up(w);
        return;
    }
    if (!qm_plan_execute(plan, name, w->mysql, &text)) {
        qm_text_free(&text);
        job->outcome = QM_FILL_ABSENT; /* no number has this text */
        return;
    }
    pthread_mutex_lock(&fill->lock);
    fill->stats.queries++;
    pthread_mutex_unlock(&fill->lock);
    good = qm_fill_run(w->mysql, &text);
    qm_text_free(&text);
    if (!good && cannot_be(mysql_errno(w->mysql))) {
        job->outcome = QM_FILL_ABSENT;
        return;
    }
    if (!good) {
        plan->count = 0; /* perhaps the table is another one now: it is loaded again */
        qm_fill_explain(w, job, "the row cannot be read");
        return;
    }
    if (!take_row(w, job, plan, &storable) || !qm_fill_position(w, job)) {
        job->outcome = QM_FILL_ERROR;
        plan = w->mysql ? plan : NULL;
        if (plan)
            plan->count = 0;
        qm_fill_skip(w);
        return;
    }
    qm_fill_skip(w);
    if (job->text.failed) {
        qm_text_free(&job->text);
        qm_text_add(&job->text, "TRYAGAIN out of memory", 22);
        job->outcome = QM_FILL_ERROR;
        return;
    }
    if (storable && plan->lasting && name->index[0] == '\0')
        job->kept =
            qm_rows_put(fill->rows, &token, name->key, name->length,
                        job->outcome == QM_FILL_ROW ? QM_ROWS_ROW : QM_ROWS_ABSENT,
                        job->text.bytes, job->text.length, &job->position);
}
