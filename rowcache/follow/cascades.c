/* SPDX-License-Identifier: BSD-3-Clause */
/* cascades.c - cascading foreign keys, from information_schema; see cascades.h. */
#include "rowcache/follow/cascades.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One column of a foreign key. */
struct edge {
    struct qm_name parent, child;
    char column[QM_NAME_MAX]; /* of the parent */
    bool on_delete, on_update;
};

struct graph {
    uint64_t version;
    struct qm_gtid_list asked; /* where the log was */
    size_t count;
    struct edge *edge;
};

struct qm_cascades {
    uint64_t versions;
    bool stale;
    struct graph now, before; /* before counts up to where the log was */
};

struct qm_cascades *qm_cascades_new(void)
{
    struct qm_cascades *cascades = calloc(1, sizeof *cascades);

    if (cascades)
        cascades->stale = true;
    return cascades;
}

void qm_cascades_free(struct qm_cascades *cascades)
{
    if (!cascades)
        return;
    free(cascades->now.edge);
    free(cascades->before.edge);
    free(cascades);
}

void qm_cascades_defined(struct qm_cascades *cascades)
{
    cascades->stale = true;
}

static bool acts(const char *rule)
{
    return !rule || (strcmp(rule, "RESTRICT") != 0 && strcmp(rule, "NO ACTION") != 0);
}

static bool load(struct graph *graph, struct qm_connection *connection, char *why)
{
    /* The rules are not shown to a user who may only SELECT; the keys are.  A rule that
     * is not shown counts as one that changes rows. */
    static const char statement[] =
        "SELECT k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.TABLE_SCHEMA,"
        " k.TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE"
        " FROM information_schema.KEY_COLUMN_USAGE k"
        " LEFT JOIN information_schema.REFERENTIAL_CONSTRAINTS r"
        " ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA"
        " AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME AND k.TABLE_NAME = r.TABLE_NAME"
        " WHERE k.REFERENCED_TABLE_NAME IS NOT NULL";
    MYSQL_RES *result = qm_connection_ask(connection, statement, why);
    MYSQL_ROW row;

    if (!result)
        return false;
    graph->edge = calloc(mysql_num_rows(result) + 1, sizeof *graph->edge);
    while (graph->edge && (row = mysql_fetch_row(result))) {
        struct edge *edge = graph->edge + graph->count++;

        snprintf(edge->parent.schema, QM_NAME_MAX, "%s", row[0]);
        snprintf(edge->parent.table, QM_NAME_MAX, "%s", row[1]);
        snprintf(edge->child.schema, QM_NAME_MAX, "%s", row[2]);
        snprintf(edge->child.table, QM_NAME_MAX, "%s", row[3]);
        snprintf(edge->column, QM_NAME_MAX, "%s", row[4]);
        edge->on_delete = acts(row[5]);
        edge->on_update = acts(row[6]);
        graph->count -= !edge->on_delete && !edge->on_update;
    }
    mysql_free_result(result);
    if (!graph->edge) {
        snprintf(why, 256, "no memory");
        return false;
    }
    return qm_connection_position(connection, &graph->asked, NULL, why);
}

bool qm_cascades_load(struct qm_cascades *cascades, struct qm_connection *connection,
                      struct qm_gtid transaction, char *why)
{
    struct graph graph = {0};

    if (cascades->before.edge &&
        !qm_gtid_covers_one(&cascades->now.asked, transaction)) {
        free(cascades->before.edge);
        cascades->before = (struct graph){0};
    }
    if (!cascades->stale)
        return true;
    if (!load(&graph, connection, why)) {
        free(graph.edge);
        return false;
    }
    graph.version = ++cascades->versions;
    free(cascades->before.edge);
    cascades->before = cascades->now;
    cascades->now = graph;
    cascades->stale = false;
    return true;
}

static bool same(const struct qm_name *a, const struct qm_name *b)
{
    return strcmp(a->table, b->table) == 0 && strcmp(a->schema, b->schema) == 0;
}

struct names {
    struct qm_name *name;
    unsigned count, size;
};

static bool add(struct names *names, const struct qm_name *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (same(names->name + i, name))
            return true;
    if (names->count == names->size) {
        unsigned size = names->size ? 2 * names->size : 4;
        struct qm_name *grown = realloc(names->name, size * sizeof *grown);

        if (!grown)
            return false;
        names->name = grown;
        names->size = size;
    }
    names->name[names->count++] = *name;
    return true;
}

/* The children by the first step, and whatever cascades from them. */
static bool reach(const struct graph *graph, const struct qm_name *from, bool first,
                  bool update, struct names *names)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct edge *edge = graph->edge + i;

        if (same(&edge->parent, from) &&
            (!first || (update ? edge->on_update : edge->on_delete)) &&
            !add(names, &edge->child))
            return false;
    }
    return true;
}

static bool collect(const struct qm_cascades *cascades, const struct qm_name *from,
                    bool update, struct names *names)
{
    const struct graph *graphs[] = {&cascades->now, &cascades->before};

    for (int g = 0; g < 2; g++)
        if (!reach(graphs[g], from, true, update, names))
            return false;
    for (unsigned i = 0; i < names->count; i++) {
        struct qm_name name = names->name[i];

        for (int g = 0; g < 2; g++)
            if (!reach(graphs[g], &name, false, update, names))
                return false;
    }
    return true;
}

/* The ordinals of the parent's columns that updates cascade from. */
static bool references(const struct graph *graph, const struct qm_name *name,
                       char *const *columns, unsigned columns_count,
                       struct qm_table *table)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct edge *edge = graph->edge + i;
        unsigned ordinal = 0, *grown;

        if (!edge->on_update || !same(&edge->parent, name))
            continue;
        while (ordinal < columns_count &&
               strcasecmp(columns[ordinal], edge->column) != 0)
            ordinal++; /* one that is not there counts as changed */
        grown = realloc(table->referenced,
                        (table->referenced_count + 1) * sizeof *table->referenced);
        if (!grown)
            return false;
        table->referenced = grown;
        table->referenced[table->referenced_count++] = ordinal;
    }
    return true;
}

bool qm_cascades_of(const struct qm_cascades *cascades, const struct qm_name *name,
                    char *const *columns, unsigned columns_count,
                    struct qm_table *table, struct qm_cascades_version *version)
{
    struct names on_delete = {0}, on_update = {0};
    bool good;

    if (version->now == cascades->now.version &&
        version->before == cascades->before.version)
        return true;
    free(table->on_delete);
    free(table->on_update);
    table->referenced_count = 0;
    good = collect(cascades, name, false, &on_delete) &&
           collect(cascades, name, true, &on_update) &&
           references(&cascades->now, name, columns, columns_count, table) &&
           references(&cascades->before, name, columns, columns_count, table);
    table->on_delete = on_delete.name;
    table->on_delete_count = on_delete.count;
    table->on_update = on_update.name;
    table->on_update_count = on_update.count;
    if (good)
        *version = (struct qm_cascades_version){cascades->now.version,
                                                cascades->before.version};
    else
        version->now = version->before = 0;
    return good;
}
