/* SPDX-License-Identifier: BSD-3-Clause */
/* statement.h - what a statement in the binary log may have changed.
 *
 * Recognised are the few forms whose tables are sure; all else counts as a change of
 * everything.  Names in other than ASCII, executable comments and ANSI quotes are not
 * sure.
 */
#ifndef QM_ROWCACHE_STATEMENT_H
#define QM_ROWCACHE_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>

#define QM_NAME_MAX         256 /* 64 characters of utf8mb3, and more */
#define QM_STATEMENT_TABLES 8

enum qm_statement_kind {
    QM_STATEMENT_NOTHING, /* no row */
    QM_STATEMENT_END,     /* ends a transaction */
    QM_STATEMENT_TABLES_CHANGED,
    QM_STATEMENT_SCHEMA_CHANGED,
    QM_STATEMENT_ALL_CHANGED,
};

struct qm_name {
    char schema[QM_NAME_MAX], table[QM_NAME_MAX];
};

struct qm_statement {
    enum qm_statement_kind kind;
    bool definition; /* what is known of tables is no longer sure */
    unsigned count;
    struct qm_name name[QM_STATEMENT_TABLES];
};

void qm_statement_read(struct qm_statement *statement, const char *text, size_t length,
                       const char *schema);

#endif
