/* SPDX-License-Identifier: BSD-3-Clause */
/* cascades.h - which tables' rows change, unlogged, with another table's. */
#ifndef QM_ROWCACHE_CASCADES_H
#define QM_ROWCACHE_CASCADES_H

#include "rowcache/follow/binlog.h"
#include "rowcache/follow/connection.h"

struct qm_cascades;
/* Of which loads a table's cascades are. */
struct qm_cascades_version {
    uint64_t now, before;
};

struct qm_cascades *qm_cascades_new(void);
void qm_cascades_free(struct qm_cascades *cascades);
/* A definition was in the log: they may be others. */
void qm_cascades_defined(struct qm_cascades *cascades);
bool qm_cascades_load(struct qm_cascades *cascades, struct qm_connection *connection,
                      struct qm_gtid transaction, char *why);
/* Sets on_delete, on_update and referenced, if they are not of that version already. */
bool qm_cascades_of(const struct qm_cascades *cascades, const struct qm_name *name,
                    char *const *columns, unsigned columns_count,
                    struct qm_table *table, struct qm_cascades_version *version);

#endif
