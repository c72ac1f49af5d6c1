/* SPDX-License-Identifier: BSD-3-Clause */
/* statement.h - what the plugin wants to know of a statement's text.
 *
 * All of it follows from the text's template (template.h), which takes a pass over the
 * text: some thousand instructions.  Applications send few texts again and again, the
 * same (prepared statements above all) or with other numbers in them.  So what the last
 * ones were is kept, with the texts themselves: one that is the same, byte by byte or
 * but for decimal numbers that stand alone, is not passed over again.
 *
 * Threads: what is kept belongs to one thread.
 */
#ifndef QM_STATEMENT_H
#define QM_STATEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "mysql-patch/plugin/template.h"

enum {
    QM_STATEMENT_SEVERAL = 1, /* several statements, or a compound one */
    QM_STATEMENT_EXECUTE = 2, /* the SQL commands EXECUTE and EXECUTE IMMEDIATE */
    QM_STATEMENT_STARTS = 4,  /* a transaction, explicitly */
    /* Whatever the session's options say afterwards, no transaction goes on: with
     * autocommit off they look the same before and after a COMMIT.  Of the statements
     * that commit implicitly, those that an application may use. */
    QM_STATEMENT_COMMITS = 8,
    /* It belongs to no transaction when none has begun: the first statement proper
     * gives that its class, not the one that all begin with. */
    QM_STATEMENT_CONTROLS = 16,
};

struct qm_statement {
    uint64_t klass;
    unsigned flags;
};

#define QM_STATEMENTS_KEPT 16  /* of each sort; a power of two */
#define QM_STATEMENT_KEPT  384 /* bytes of text; longer ones are not kept */

struct qm_kept_statement {
    size_t len; /* 0: none */
    struct qm_statement statement;
    char text[QM_STATEMENT_KEPT];
};

/* Zeros: nothing is kept yet. */
struct qm_statements {
    uint64_t same, alike; /* how many were found so */
    struct qm_kept_statement texts[QM_STATEMENTS_KEPT];
    struct qm_kept_statement masked[QM_STATEMENTS_KEPT]; /* 0 for each number */
};

/* What is to be known of len bytes of SQL. */
struct qm_statement qm_statement_of(struct qm_statements *s, const char *sql,
                                    size_t len);
/* The same, of a text's template. */
struct qm_statement qm_statement_of_template(const struct qm_template *t);

#endif
