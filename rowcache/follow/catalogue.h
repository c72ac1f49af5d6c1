/* SPDX-License-Identifier: BSD-3-Clause */
/* catalogue.h - what information_schema says of tables: keys, and cascading foreign
 * keys.
 *
 * It says what is so now, while the log may be read later: what was asked when the
 * server's log was at P is sure for transactions after P, until the next definition in
 * the log.  For those up to P a table's rows cannot be told apart, and cascades are
 * those of both the last answer and the one before.
 */
#ifndef QM_ROWCACHE_CATALOGUE_H
#define QM_ROWCACHE_CATALOGUE_H

#include "rowcache/follow/binlog.h"
#include "rowcache/follow/connection.h"

struct qm_catalogue;

struct qm_catalogue *qm_catalogue_new(void);
void qm_catalogue_free(struct qm_catalogue *catalogue);
/* As qm_binlog_calls.defined. */
void qm_catalogue_defined(struct qm_catalogue *catalogue, const char *schema,
                          const char *table);
/* Asks if it has to.  *table is NULL if rows cannot be told apart but nothing else
 * changes. False, with why: it is not known what else changes. */
bool qm_catalogue_table(struct qm_catalogue *catalogue,
                        struct qm_connection *connection, struct qm_gtid transaction,
                        const char *schema, const char *table,
                        const struct qm_table **found, char *why);

#endif
