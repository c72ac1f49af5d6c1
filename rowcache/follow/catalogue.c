/* SPDX-License-Identifier: BSD-3-Clause */
/* catalogue.c - what information_schema says of tables; see catalogue.h. */
#include "rowcache/follow/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rowcache/follow/cascades.h"

#define WHY     256
#define BUCKETS 1024
#define TABLES  100000 /* kept at most */

struct entry {
    struct entry *next;
    struct qm_name name;
    struct qm_gtid_list asked;           /* where the log was */
    struct qm_cascades_version cascades; /* that the table's were made of */
    struct qm_table table;
    unsigned columns_count;
    char **columns; /* names */
};

struct qm_catalogue {
    struct qm_cascades *cascades;
    unsigned count;
    struct entry *bucket[BUCKETS];
};

struct qm_catalogue *qm_catalogue_new(void)
{
    struct qm_catalogue *catalogue = calloc(1, sizeof *catalogue);

    if (catalogue)
        catalogue->cascades = qm_cascades_new();
    if (catalogue && !catalogue->cascades) {
        free(catalogue);
        return NULL;
    }
    return catalogue;
}

static void free_entry(struct entry *entry)
{
    for (unsigned i = 0; i < entry->table.key_count; i++) {
        for (unsigned j = 0; j < entry->table.key[i].labels_count; j++)
            free(entry->table.key[i].labels[j]);
        free(entry->table.key[i].labels);
    }
    for (unsigned i = 0; i < entry->columns_count; i++)
        free(entry->columns[i]);
    free(entry->columns);
    free(entry->table.on_delete);
    free(entry->table.on_update);
    free(entry->table.referenced);
    free(entry);
}

void qm_catalogue_free(struct qm_catalogue *catalogue)
{
    if (!catalogue)
        return;
    qm_catalogue_defined(catalogue, NULL, NULL);
    qm_cascades_free(catalogue->cascades);
    free(catalogue);
}

static unsigned bucket_of(const char *schema, const char *table)
{
    unsigned hash = 5381;

    for (; *schema; schema++)
        hash = hash * 33 ^ (unsigned char)*schema;
    for (; *table; table++)
        hash = hash * 33 ^ (unsigned char)*table;
    return hash % BUCKETS;
}

void qm_catalogue_defined(struct qm_catalogue *catalogue, const char *schema,
                          const char *table)
{
    qm_cascades_defined(catalogue->cascades);
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct entry **at = catalogue->bucket + i;

        while (*at) {
            struct entry *entry = *at;

            if ((schema && strcmp(entry->name.schema, schema) != 0) ||
                (table && strcmp(entry->name.table, table) != 0)) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            catalogue->count--;
            free_entry(entry);
        }
    }
}

/* What is behind a backslash; a label with a zero has no text. */
static bool unescape(char *c)
{
    static const char escaped[] = "nrZ", plain[] = "\n\r\032";
    const char *found = strchr(escaped, *c);

    if (found && *c)
        *c = plain[found - escaped];
    return *c != '0';
}

/* The labels of "enum('a','b''c','d\\e')", as MariaDB prints them. */
static bool read_labels(struct qm_key_column *column, const char *type)
{
    const char *at = strchr(type, '(');

    column->labels = calloc(strlen(type), sizeof *column->labels);
    if (!at || !column->labels)
        return false;
    for (at++; *at == '\''; at += *at == ',') {
        char *label = malloc(strlen(at) + 1), *to = label;

        if (!label)
            return false;
        column->labels[column->labels_count++] = label;
        for (at++; *at && (*at != '\'' || at[1] == '\''); at++) {
            bool escape = *at == '\\' && at[1];

            if (*at == '\'' || escape)
                at++;
            *to = *at;
            if (escape && !unescape(to))
                return false;
            to++;
        }
        *to = '\0';
        at += *at == '\'';
    }
    return *at == ')';
}

static bool is_one_of(const char *type, const char *const *types)
{
    for (; *types; types++)
        if (strcmp(type, *types) == 0)
            return true;
    return false;
}

static enum qm_print print_of(const char *data_type, const char *column_type,
                              const char *charset)
{
    static const char *const integers[] = {"tinyint", "smallint", "mediumint",
                                           "int",     "bigint",   NULL};
    static const char *const times[] = {"date",      "time", "datetime",
                                        "timestamp", "year", NULL};
    static const char *const bytes[] = {"varbinary", "tinyblob", "blob", "mediumblob",
                                        "longblob",  "bit",      NULL};
    static const char *const utf8[] = {"utf8mb4", "utf8mb3", "utf8", "ascii", NULL};

    if (is_one_of(data_type, integers))
        return strstr(column_type, "unsigned") ? QM_PRINT_UNSIGNED : QM_PRINT_SIGNED;
    if (strcmp(data_type, "decimal") == 0)
        return strstr(column_type, "zerofill") ? QM_PRINT_UNSURE : QM_PRINT_DECIMAL;
    if (is_one_of(data_type, times))
        return QM_PRINT_TIME;
    if (is_one_of(data_type, bytes))
        return QM_PRINT_BYTES;
    if (strcmp(data_type, "binary") == 0)
        return QM_PRINT_BINARY;
    if (strcmp(data_type, "enum") == 0 || strcmp(data_type, "set") == 0)
        return QM_PRINT_LABELS;
    if (strcmp(data_type, "uuid") == 0)
        return QM_PRINT_UUID;
    if (strcmp(data_type, "inet6") == 0)
        return QM_PRINT_INET6;
    if (strcmp(data_type, "inet4") == 0)
        return QM_PRINT_INET4;
    if (charset && is_one_of(charset, utf8))
        return QM_PRINT_BYTES;
    if (charset && strcmp(charset, "latin1") == 0)
        return QM_PRINT_LATIN1;
    return QM_PRINT_UNSURE; /* floats, other character sets */
}

/* A row: name, data type, type, character set, place in the primary key. */
static bool add_column(struct entry *entry, MYSQL_ROW row)
{
    struct qm_table *table = &entry->table;
    struct qm_key_column *key;
    unsigned long place = row[4] ? strtoul(row[4], NULL, 10) : 0;

    entry->columns[entry->columns_count] = strdup(row[0]);
    if (!entry->columns[entry->columns_count++])
        return false;
    if (place == 0)
        return true;
    if (place > QM_KEY_COLUMNS)
        return false;
    key = table->key + place - 1;
    key->ordinal = entry->columns_count - 1;
    key->print = print_of(row[1], row[2], row[3]);
    if (place > table->key_count)
        table->key_count = (unsigned)place;
    if (key->print == QM_PRINT_LABELS && !read_labels(key, row[2]))
        key->print = QM_PRINT_UNSURE;
    return true;
}

static bool load(struct entry *entry, struct qm_connection *connection, char *why)
{
    static const char form[] =
        /* LIMIT keeps the inner SELECT from becoming a join, for which MariaDB opens
         * all tables that there are. */
        "SELECT c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.CHARACTER_SET_NAME,"
        " s.SEQ_IN_INDEX FROM information_schema.COLUMNS c"
        " LEFT JOIN (SELECT COLUMN_NAME, SEQ_IN_INDEX FROM "
        "information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = '%s' AND TABLE_NAME = '%s' AND BINARY TABLE_NAME = '%s'"
        " AND INDEX_NAME = 'PRIMARY' LIMIT 64) s ON s.COLUMN_NAME = c.COLUMN_NAME"
        " WHERE c.TABLE_SCHEMA = '%s' AND c.TABLE_NAME = '%s' AND"
        " BINARY c.TABLE_SCHEMA = '%s' AND BINARY c.TABLE_NAME = '%s'"
        " ORDER BY c.ORDINAL_POSITION";
    char schema[2 * QM_NAME_MAX], table[2 * QM_NAME_MAX];
    char statement[sizeof form + 8 * sizeof schema];
    MYSQL_RES *result;
    MYSQL_ROW row;
    bool good;

    mysql_real_escape_string(connection->mysql, schema, entry->name.schema,
                             strlen(entry->name.schema));
    mysql_real_escape_string(connection->mysql, table, entry->name.table,
                             strlen(entry->name.table));
    snprintf(statement, sizeof statement, form, schema, table, table, schema, table,
             schema, table);
    result = qm_connection_ask(connection, statement, why);
    if (!result)
        return false;
    entry->columns = calloc(mysql_num_rows(result) + 1, sizeof *entry->columns);
    good = entry->columns != NULL;
    while (good && (row = mysql_fetch_row(result)))
        good = add_column(entry, row);
    mysql_free_result(result);
    if (!good) /* its rows are not told apart */
        entry->table.key_count = 0;
    entry->table.columns = entry->columns_count;
    return qm_connection_position(connection, &entry->asked, NULL, why);
}

static struct entry *find(struct qm_catalogue *catalogue,
                          struct qm_connection *connection, const char *schema,
                          const char *table, char *why)
{
    struct entry **at = catalogue->bucket + bucket_of(schema, table), *entry;

    for (entry = *at; entry; entry = entry->next)
        if (strcmp(entry->name.table, table) == 0 &&
            strcmp(entry->name.schema, schema) == 0)
            return entry;
    if (catalogue->count >= TABLES) {
        qm_catalogue_defined(catalogue, NULL, NULL);
        at = catalogue->bucket + bucket_of(schema, table);
    }
    entry = calloc(1, sizeof *entry);
    if (!entry) {
        snprintf(why, WHY, "no memory");
        return NULL;
    }
    snprintf(entry->name.schema, sizeof entry->name.schema, "%s", schema);
    snprintf(entry->name.table, sizeof entry->name.table, "%s", table);
    if (!load(entry, connection, why)) {
        free_entry(entry);
        return NULL;
    }
    entry->next = *at;
    *at = entry;
    catalogue->count++;
    return entry;
}

bool qm_catalogue_table(struct qm_catalogue *catalogue,
                        struct qm_connection *connection, struct qm_gtid transaction,
                        const char *schema, const char *table,
                        const struct qm_table **found, char *why)
{
    struct entry *entry;

    if (!qm_cascades_load(catalogue->cascades, connection, transaction, why))
        return false;
    entry = find(catalogue, connection, schema, table, why);
    if (!entry)
        return false;
    if (!qm_cascades_of(catalogue->cascades, &entry->name, entry->columns,
                        entry->columns_count, &entry->table, &entry->cascades)) {
        snprintf(why, WHY, "no memory");
        return false;
    }
    *found = &entry->table;
    /* Of an earlier table of that name, perhaps: then its columns are not told apart.
     */
    entry->table.columns =
        qm_gtid_covers_one(&entry->asked, transaction) ? 0 : entry->columns_count;
    return true;
}
