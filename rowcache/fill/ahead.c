/* SPDX-License-Identifier: BSD-3-Clause */
/* ahead.c - reads rows ahead, and what read-ahead has to know of a table; see fill.h.
 *
 * The rules of freshness are those of a read: each row has its token before the SELECT
 * is sent, and the position is asked after it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/fill/internal.h"

static void add(struct qm_text *text, const char *words)
{
    qm_text_add(text, words, strlen(words));
}

static void add_quoted(struct qm_text *text, MYSQL *mysql, const char *value)
{
    char escaped[2 * QM_NAME_LENGTH + 1];

    mysql_real_escape_string(mysql, escaped, value, (unsigned long)strlen(value));
    add(text, "'");
    add(text, escaped);
    add(text, "'");
}

static void add_table(struct qm_text *text, const struct qm_fill_ahead *ahead)
{
    qm_plan_add_name(text, ahead->schema);
    add(text, ".");
    qm_plan_add_name(text, ahead->table);
}

static bool read_integer(const char *text, int64_t *value)
{
    char back[24];

    *value = text ? strtoll(text, NULL, 10) : 0;
    snprintf(back, sizeof back, "%" PRId64, *value);
    return text && strcmp(text, back) == 0; /* not above 2^63 - 1 */
}

/* --- tables --- */

/* The result of the query, or NULL. */
static MYSQL_RES *query(struct worker *w, struct qm_fill_job *job, struct qm_text *text)
{
    MYSQL_RES *result =
        qm_fill_run(w->mysql, text) ? mysql_store_result(w->mysql) : NULL;

    text->length = 0;
    if (!result)
        qm_fill_explain(w, job, "read-ahead cannot read the table's definition");
    return result;
}

/* A table name, in the tables of information_schema.  Both are constants, so that
 * MariaDB opens this table alone; for a join it opens all that there are. */
static void add_where(struct qm_text *text, MYSQL *mysql, const char *schema,
                      const char *table)
{
    add(text, " WHERE TABLE_SCHEMA = ");
    add_quoted(text, mysql, schema);
    add(text, " AND TABLE_NAME = ");
    add_quoted(text, mysql, table);
}

/* Whether the column that it references is of the primary key.  False: the database
 * gave an error. */
static bool ask_for_primary(struct worker *w, struct qm_fill_job *job,
                            const struct qm_fill_foreign *f, const char *column,
                            bool *primary)
{
    struct qm_text text = {0};
    MYSQL_RES *result;

    add(&text, "SELECT 1 FROM information_schema.STATISTICS");
    add_where(&text, w->mysql, f->schema, f->table);
    add(&text, " AND INDEX_NAME = 'PRIMARY' AND COLUMN_NAME = ");
    add_quoted(&text, w->mysql, column);
    result = query(w, job, &text);
    qm_text_free(&text);
    *primary = result && mysql_num_rows(result) > 0;
    mysql_free_result(result);
    return result != NULL;
}

/* False: the database gave an error. */
static bool read_foreign_keys(struct worker *w, struct qm_fill_job *job,
                              const struct qm_fill_ahead *ahead)
{
    struct qm_fill_table *table = ahead->describe;
    struct qm_text text = {0};
    MYSQL_RES *result;
    MYSQL_ROW row;
    bool good, primary;

    add(&text, "SELECT MIN(COLUMN_NAME), MIN(REFERENCED_TABLE_SCHEMA),"
               " MIN(REFERENCED_TABLE_NAME), MIN(REFERENCED_COLUMN_NAME)"
               " FROM information_schema.KEY_COLUMN_USAGE");
    add_where(&text, w->mysql, ahead->schema, ahead->table);
    add(&text, " AND REFERENCED_TABLE_NAME IS NOT NULL GROUP BY CONSTRAINT_NAME"
               " HAVING COUNT(*) = 1 LIMIT 64");
    result = query(w, job, &text);
    qm_text_free(&text);
    good = result;
    while (good && table->foreign_count < QM_FILL_FOREIGN &&
           (row = mysql_fetch_row(result))) {
        struct qm_fill_foreign *f = &table->foreign[table->foreign_count];

        snprintf(f->column, sizeof f->column, "%s", row[0]);
        snprintf(f->schema, sizeof f->schema, "%s", row[1]);
        snprintf(f->table, sizeof f->table, "%s", row[2]);
        good = ask_for_primary(w, job, f, row[3], &primary);
        table->foreign_count += primary;
    }
    mysql_free_result(result);
    return good;
}

static bool describe(struct worker *w, struct qm_fill_job *job,
                     struct qm_fill_ahead *ahead, const struct qm_plan *plan)
{
    struct qm_fill_table *table = ahead->describe;
    struct qm_text text = {0};
    MYSQL_RES *result;
    MYSQL_ROW row;
    bool good;

    add(&text, "SELECT MIN(");
    qm_plan_add_name(&text, plan->column[0].name);
    add(&text, "), MAX(");
    qm_plan_add_name(&text, plan->column[0].name);
    add(&text, ") FROM ");
    add_table(&text, ahead);
    result = query(w, job, &text);
    row = result ? mysql_fetch_row(result) : NULL;
    good = row && read_integer(row[0], &table->first);
    if (good && !read_integer(row[1], &table->last))
        table->last = INT64_MAX;
    if (row && !row[0]) {
        table->first = 0;
        table->last = -1;
        good = true;
    }
    mysql_free_result(result);
    qm_text_free(&text);
    /* The connection may be lost. */
    return good && w->mysql && read_foreign_keys(w, job, ahead);
}

/* --- rows --- */

struct wanted {
    int64_t row;
    struct qm_rows_token token;
    char key[2 * QM_NAME_LENGTH + 24];
    size_t length;
};

/* Those that are not kept, with their tokens. */
static unsigned choose(struct worker *w, struct qm_fill_ahead *ahead,
                       struct wanted *wanted)
{
    size_t table = strlen(ahead->schema) + 1 + strlen(ahead->table);
    unsigned n = 0;

    for (unsigned i = 0; i < ahead->count; i++) {
        struct wanted *one = &wanted[n];

        one->row = ahead->row[i];
        one->length = (size_t)snprintf(one->key, sizeof one->key, "%s.%s:%" PRId64,
                                       ahead->schema, ahead->table, one->row);
        if (qm_rows_has(w->fill->rows, one->key, one->length)) {
            ahead->there[ahead->kept++] = one->row;
            continue;
        }
        one->token =
            qm_rows_begin(w->fill->rows, one->key, table, one->key, one->length);
        one->token.source = ahead->source[i];
        one->token.life_ms = ahead->life_ms[i];
        n += one->token.storable; /* what could not be kept is not read */
    }
    return n;
}

static void add_select(struct qm_text *text, const struct qm_fill_ahead *ahead,
                       const struct qm_plan *plan, const struct wanted *wanted,
                       unsigned n)
{
    char number[24];

    add(text, "SELECT SQL_NO_CACHE * FROM ");
    add_table(text, ahead);
    add(text, " WHERE ");
    qm_plan_add_name(text, plan->column[0].name);
    for (unsigned i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%s%" PRId64, i == 0 ? " IN (" : ",",
                 wanted[i].row);
        add(text, number);
    }
    add(text, ");SELECT @@gtid_binlog_pos");
}

static const struct wanted *find(const struct wanted *wanted, unsigned n, int64_t row)
{
    for (unsigned i = 0; i < n; i++)
        if (wanted[i].row == row)
            return &wanted[i];
    return NULL;
}

static void keep_rows(struct worker *w, struct qm_fill_ahead *ahead,
                      const struct qm_plan *plan, const struct wanted *wanted,
                      unsigned n, MYSQL_RES *result,
                      const struct qm_gtid_list *position)
{
    const MYSQL_FIELD *fields = mysql_fetch_fields(result);
    unsigned columns = mysql_num_fields(result), key = 0;
    struct qm_text text = {0};
    MYSQL_ROW row;

    while (key < columns && strcasecmp(fields[key].name, plan->column[0].name) != 0)
        key++;
    while (key < columns && (row = mysql_fetch_row(result))) {
        const unsigned long *lengths = mysql_fetch_lengths(result);
        const struct wanted *one;
        int64_t value;

        if (!row[key])
            continue;
        value = strtoll(row[key], NULL, 10); /* with ZEROFILL's zeros */
        one = find(wanted, n, value);
        if (!one || ahead->kept + ahead->got == QM_FILL_AHEAD)
            continue;
        ahead->there[ahead->kept + ahead->got++] = value;
        text.length = 0;
        qm_json_start(&text);
        for (unsigned i = 0; i < columns; i++)
            qm_json_add(&text, fields[i].name, fields[i].name_length,
                        qm_fill_kind(&fields[i]), row[i], lengths[i]);
        qm_json_end(&text);
        if (!text.failed)
            qm_rows_put(w->fill->rows, &one->token, one->key, one->length, QM_ROWS_ROW,
                        text.bytes, text.length, position);
    }
    qm_text_free(&text);
}

static bool read_rows(struct worker *w, struct qm_fill_job *job,
                      struct qm_fill_ahead *ahead, struct qm_plan *plan)
{
    struct wanted *wanted = malloc(ahead->count * sizeof *wanted);
    unsigned n = wanted ? choose(w, ahead, wanted) : 0;
    struct qm_text text = {0};
    MYSQL_RES *result = NULL;
    bool good = wanted && n == 0;

    if (n > 0) {
        add_select(&text, ahead, plan, wanted, n);
        pthread_mutex_lock(&w->fill->lock);
        w->fill->stats.queries++;
        w->fill->stats.ahead_queries++;
        pthread_mutex_unlock(&w->fill->lock);
        result = query(w, job, &text);
        good = result && qm_fill_position(w, job);
        if (good)
            keep_rows(w, ahead, plan, wanted, n, result, &job->position);
        else if (w->mysql) /* else it has gone with the connection */
            plan->count = 0;
        mysql_free_result(result);
        qm_fill_skip(w);
    }
    qm_text_free(&text);
    free(wanted);
    return good;
}

void qm_fill_read_ahead(struct worker *w, struct qm_fill_ahead *ahead)
{
    struct qm_fill_job *job = calloc(1, sizeof *job);
    struct qm_rows_token token;
    struct qm_row_name *name;
    struct qm_plan *plan;
    double worked;
    uint64_t began;

    if (!job)
        return;
    name = &job->name;
    memcpy(name->schema, ahead->schema, sizeof name->schema);
    memcpy(name->table, ahead->table, sizeof name->table);
    name->table_length = (size_t)snprintf(name->key, sizeof name->key, "%s.%s",
                                          name->schema, name->table);
    name->parts = 1;
    token = qm_rows_begin(w->fill->rows, name->key, name->table_length, name->key,
                          name->table_length);
    plan = qm_fill_is_behind(w, job) ? NULL : qm_fill_plan(w, job, &token);
    began = qm_rows_now();
    worked = qm_fill_work(); /* a plan is loaded once, and says nothing of rows */
    if (plan && plan->column[0].integer && ahead->describe)
        ahead->failed = !describe(w, job, ahead, plan);
    else if (plan && plan->column[0].integer)
        ahead->failed = !plan->lasting || !read_rows(w, job, ahead, plan);
    ahead->us = (double)(qm_rows_now() - began) / 1000;
    ahead->work_us = qm_fill_work() - worked;
    qm_text_free(&job->text);
    free(job);
}
