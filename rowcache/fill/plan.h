/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - how the rows of a table are found by a key: one connection's own. */
#ifndef QM_ROWCACHE_PLAN_H
#define QM_ROWCACHE_PLAN_H

#include <mysql.h>
#include <stdint.h>

#include "rowcache/fill/json.h"
#include "rowcache/fill/name.h"

struct qm_plan_column {
    char name[QM_NAME_LENGTH + 1];
    bool integer, number, real, bytes, bits; /* real: a number, too */
};

struct qm_plan {
    struct qm_plan *next;
    char schema[QM_NAME_LENGTH + 1], table[QM_NAME_LENGTH + 1],
        index[QM_NAME_LENGTH + 1];
    uint64_t generation, loaded; /* of the table; ns */
    unsigned id;                 /* of the statement, if it has one */
    bool has_id;
    enum qm_plan_state {
        QM_PLAN_LOADED,
        QM_PLAN_PREPARED,
        QM_PLAN_IMMEDIATE, /* it has no statement: each read sends it */
    } state;
    bool lasting; /* its rows are what they were until the binary log says otherwise */
    unsigned count; /* 0: it has no such key */
    struct qm_plan_column column[QM_NAME_PARTS];
};

/* Asks for the key's columns.  Returns 0, or mysql_errno().  count is 0 and why says
 * what is missing, if there is no such table or key. */
unsigned qm_plan_load(struct qm_plan *plan, MYSQL *mysql, char *why, size_t why_size);
/* Appends a name, which may hold anything, in backquotes. */
void qm_plan_add_name(struct qm_text *text, const char *name);
/* The text of PREPARE. */
void qm_plan_prepare(const struct qm_plan *plan, MYSQL *mysql, struct qm_text *text);
/* The text of EXECUTE, or EXECUTE IMMEDIATE.  False: no row can have these values. */
bool qm_plan_execute(const struct qm_plan *plan, const struct qm_row_name *name,
                     MYSQL *mysql, struct qm_text *text);
/* Whether these values can be written in this one way only, so that no row is certain
 * to be absent under another key: integers, with no zero nor plus before them. */
bool qm_plan_is_plain(const struct qm_plan *plan, const struct qm_row_name *name);

#endif
