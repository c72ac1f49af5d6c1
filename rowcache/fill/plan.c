/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - how the rows of a table are found by a key; see plan.h. */
#include "rowcache/fill/plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rowcache/fill/steady.h"

static void add(struct qm_text *text, const char *words)
{
    qm_text_add(text, words, strlen(words));
}

static void add_escaped(struct qm_text *text, MYSQL *mysql, const char *value,
                        size_t length)
{
    char *escaped = malloc(2 * length + 1);

    if (!escaped) {
        text->failed = true;
        return;
    }
    add(text, "'");
    qm_text_add(text, escaped,
                mysql_real_escape_string(mysql, escaped, value, (unsigned long)length));
    add(text, "'");
    free(escaped);
}

void qm_plan_add_name(struct qm_text *text, const char *name)
{
    add(text, "`");
    for (; *name; name++) {
        if (*name == '`')
            add(text, "`");
        qm_text_add(text, name, 1);
    }
    add(text, "`");
}

static bool is_one_of(const char *type, const char *const *types)
{
    for (; *types; types++)
        if (strcmp(type, *types) == 0)
            return true;
    return false;
}

static void describe(struct qm_plan_column *column, MYSQL_ROW row)
{
    static const char *const integers[] = {"tinyint", "smallint", "mediumint",
                                           "int",     "bigint",   NULL};
    static const char *const reals[] = {"float", "double", NULL};
    static const char *const bytes[] = {"binary",     "varbinary", "tinyblob", "blob",
                                        "mediumblob", "longblob",  NULL};

    snprintf(column->name, sizeof column->name, "%s", row[0]);
    column->integer = is_one_of(row[1], integers);
    column->real = is_one_of(row[1], reals);
    column->number = column->real || strcmp(row[1], "decimal") == 0;
    column->bytes = is_one_of(row[1], bytes);
    column->bits = strcmp(row[1], "bit") == 0;
}

/* Whether the binary log tells of each change of the table's rows.  Other engines show
 * rows that are elsewhere, or in other tables (MERGE); and MariaDB changes tables of
 * its own without a word of their rows (GRANT). */
static bool is_logged(const char *schema, const char *engine)
{
    static const char *const engines[] = {"InnoDB",    "MyISAM",  "Aria",
                                          "MEMORY",    "ARCHIVE", "ROCKSDB",
                                          "BLACKHOLE", "TokuDB",  NULL};

    return engine && is_one_of(engine, engines) && strcasecmp(schema, "mysql") != 0;
}

/* Whether a value of that expression depends on a column of type TIME: it may become
 * one of the current day. */
static bool names_time(const char *expression, MYSQL_RES *columns)
{
    bool named = false;
    MYSQL_ROW row;

    mysql_data_seek(columns, 0);
    while (!named && (row = mysql_fetch_row(columns))) {
        struct qm_text name = {0};

        if (strcmp(row[1], "time") != 0)
            continue;
        qm_plan_add_name(&name, row[6]);
        qm_text_add(&name, "", 1);
        named = name.failed || strstr(expression, name.bytes);
        qm_text_free(&name);
    }
    return named;
}

/* Whether the table's rows are what they were until the log tells of a change.
 * columns: as qm_plan_load() asks for them. */
static bool is_lasting(const char *schema, MYSQL_RES *columns)
{
    bool lasting = true;
    MYSQL_ROW row;

    for (my_ulonglong i = 0; lasting && (mysql_data_seek(columns, i), true) &&
                             (row = mysql_fetch_row(columns));
         i++)
        lasting = is_logged(schema, row[5]) &&
                  (!row[3] || !strstr(row[3], "VIRTUAL") ||
                   (qm_is_steady(row[4]) && !names_time(row[4], columns)));
    return lasting;
}

unsigned qm_plan_load(struct qm_plan *plan, MYSQL *mysql, char *why, size_t why_size)
{
    struct qm_text text = {0};
    const char *index = plan->index[0] ? plan->index : "PRIMARY";
    MYSQL_RES *result;
    MYSQL_ROW row;
    bool there = false;

    /* MariaDB opens this table alone where its names are constants in WHERE; for a join
     * it opens all tables, also if they are constants in ON.  LIMIT keeps the inner
     * SELECT from becoming a join. */
    add(&text, "SELECT s.COLUMN_NAME, c.DATA_TYPE, s.SUB_PART, c.EXTRA,"
               " c.GENERATION_EXPRESSION, (SELECT ENGINE FROM information_schema.TABLES"
               " WHERE TABLE_SCHEMA = ");
    add_escaped(&text, mysql, plan->schema, strlen(plan->schema));
    add(&text, " AND TABLE_NAME = ");
    add_escaped(&text, mysql, plan->table, strlen(plan->table));
    add(&text,
        " LIMIT 1), c.COLUMN_NAME FROM information_schema.COLUMNS c LEFT JOIN (SELECT "
        "COLUMN_NAME,"
        " SUB_PART, SEQ_IN_INDEX FROM information_schema.STATISTICS WHERE TABLE_SCHEMA "
        "= ");
    add_escaped(&text, mysql, plan->schema, strlen(plan->schema));
    add(&text, " AND TABLE_NAME = ");
    add_escaped(&text, mysql, plan->table, strlen(plan->table));
    add(&text, " AND BINARY TABLE_NAME = ");
    add_escaped(&text, mysql, plan->table, strlen(plan->table));
    add(&text, " AND NON_UNIQUE = 0 AND INDEX_NAME = ");
    add_escaped(&text, mysql, index, strlen(index));
    add(&text, " LIMIT 64) s ON s.COLUMN_NAME = c.COLUMN_NAME");
    add(&text, " WHERE c.TABLE_SCHEMA = ");
    add_escaped(&text, mysql, plan->schema, strlen(plan->schema));
    add(&text, " AND c.TABLE_NAME = ");
    add_escaped(&text, mysql, plan->table, strlen(plan->table));
    /* Where names have no case, a row has one key all the same: what the log says. */
    add(&text, " AND BINARY c.TABLE_SCHEMA = ");
    add_escaped(&text, mysql, plan->schema, strlen(plan->schema));
    add(&text, " AND BINARY c.TABLE_NAME = ");
    add_escaped(&text, mysql, plan->table, strlen(plan->table));
    add(&text, " ORDER BY s.SEQ_IN_INDEX");
    plan->count = 0;
    plan->lasting = false;
    plan->state = QM_PLAN_LOADED;
    if (text.failed ||
        mysql_real_query(mysql, text.bytes, (unsigned long)text.length) != 0 ||
        !(result = mysql_store_result(mysql))) {
        qm_text_free(&text);
        return mysql_errno(mysql) ? mysql_errno(mysql) : 2008 /* CR_OUT_OF_MEMORY */;
    }
    qm_text_free(&text);
    plan->lasting = is_lasting(plan->schema, result);
    mysql_data_seek(result, 0);
    while ((row = mysql_fetch_row(result))) {
        there = true;
        if (!row[0])
            continue;
        if (row[2] || plan->count == QM_NAME_PARTS) { /* a part of a column */
            plan->count = 0;
            break;
        }
        describe(&plan->column[plan->count++], row);
    }
    mysql_free_result(result);
    if (!there)
        snprintf(why, why_size, "ERR there is no table '%s.%s'", plan->schema,
                 plan->table);
    else if (plan->index[0])
        snprintf(why, why_size, "ERR table '%s.%s' has no unique key '%s'",
                 plan->schema, plan->table, plan->index);
    else
        snprintf(why, why_size,
                 "ERR table '%s.%s' has no primary key: its rows have no names",
                 plan->schema, plan->table);
    return 0;
}

/* The SELECT, in quotes. */
static void add_statement(struct qm_text *text, const struct qm_plan *plan,
                          MYSQL *mysql)
{
    struct qm_text select = {0};

    /* The query cache may have the old row until a moment after the commit. */
    add(&select, "SELECT SQL_NO_CACHE * FROM ");
    qm_plan_add_name(&select, plan->schema);
    add(&select, ".");
    qm_plan_add_name(&select, plan->table);
    for (unsigned i = 0; i < plan->count; i++) {
        add(&select, i == 0 ? " WHERE " : " AND ");
        qm_plan_add_name(&select, plan->column[i].name);
        add(&select, " = ?");
    }
    add(&select, " LIMIT 2");
    text->failed |= select.failed;
    if (!text->failed)
        add_escaped(text, mysql, select.bytes, select.length);
    qm_text_free(&select);
}

void qm_plan_prepare(const struct qm_plan *plan, MYSQL *mysql, struct qm_text *text)
{
    char head[32];

    snprintf(head, sizeof head, "PREPARE q%u FROM ", plan->id);
    add(text, head);
    add_statement(text, plan, mysql);
}

static size_t count_digits(const char *value, size_t length)
{
    size_t n = 0;

    while (n < length && isdigit((unsigned char)value[n]))
        n++;
    return n;
}

/* "e100" or "e-7", behind a number that is no integer. */
static bool is_exponent(const char *value, size_t length)
{
    size_t at = length > 1 && (value[1] == '-' || value[1] == '+') ? 2 : 1, digits;

    if (length < 2 || (value[0] != 'e' && value[0] != 'E'))
        return false;
    digits = count_digits(value + at, length - at);
    return digits > 0 && digits <= 3 && at + digits == length;
}

static bool is_number(const char *value, size_t length,
                      const struct qm_plan_column *column)
{
    size_t at = length > 0 && *value == '-', digits;

    digits = count_digits(value + at, length - at);
    at += digits;
    if (!column->integer && at < length && value[at] == '.') {
        size_t more = count_digits(value + at + 1, length - at - 1);

        at += 1 + more;
        digits += more;
    }
    return digits > 0 && digits <= (column->integer ? 20 : 65) &&
           (at == length || (column->real && is_exponent(value + at, length - at)));
}

static void add_hex(struct qm_text *text, const char *value, size_t length)
{
    char two[3];

    add(text, "x'");
    for (size_t i = 0; i < length; i++) {
        snprintf(two, sizeof two, "%02x", (unsigned char)value[i]);
        add(text, two);
    }
    add(text, "'");
}

/* A BIT is a number where it is compared; bytes would be text.  False: it is longer
 * than any. */
static bool add_bits(struct qm_text *text, const char *value, size_t length)
{
    uint64_t number = 0;
    char digits[24];

    if (length > sizeof number)
        return false;
    for (size_t i = 0; i < length; i++)
        number = number << 8 | (unsigned char)value[i];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    add(text, digits);
    return true;
}

bool qm_plan_execute(const struct qm_plan *plan, const struct qm_row_name *name,
                     MYSQL *mysql, struct qm_text *text)
{
    char head[32];

    snprintf(head, sizeof head, "EXECUTE q%u", plan->id);
    add(text, plan->state == QM_PLAN_PREPARED ? head : "EXECUTE IMMEDIATE ");
    if (plan->state != QM_PLAN_PREPARED)
        add_statement(text, plan, mysql);
    add(text, " USING ");
    for (unsigned i = 0; i < plan->count; i++) {
        const char *value = name->values + name->part[i].at;
        size_t length = name->part[i].length;
        const struct qm_plan_column *column = &plan->column[i];

        if (i > 0)
            add(text, ", ");
        if (column->integer || column->number) {
            if (!is_number(value, length, column))
                return false;
            qm_text_add(text, value, length);
        } else if (column->bits) {
            if (!add_bits(text, value, length))
                return false;
        } else if (column->bytes) {
            add_hex(text, value, length);
        } else {
            add_escaped(text, mysql, value, length);
        }
    }
    add(text, ";SELECT @@gtid_binlog_pos");
    return true;
}

bool qm_plan_is_plain(const struct qm_plan *plan, const struct qm_row_name *name)
{
    for (unsigned i = 0; i < plan->count; i++) {
        const char *value = name->values + name->part[i].at;
        size_t length = name->part[i].length;
        bool negative = length > 0 && *value == '-';

        if (!plan->column[i].integer)
            return false;
        value += negative;
        length -= negative;
        if (length == 0 || (*value == '0' && (length > 1 || negative)))
            return false;
    }
    return true;
}
