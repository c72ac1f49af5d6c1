/* SPDX-License-Identifier: BSD-3-Clause */
/* binlog.h - reads the events of MariaDB's binary log: bytes in, calls out, no I/O.
 *
 * Whatever the bytes are, nothing outside them is read.  What cannot be told for sure
 * is told as more: a table, a schema, or everything.
 */
#ifndef QM_ROWCACHE_BINLOG_H
#define QM_ROWCACHE_BINLOG_H

#include "rowcache/follow/gtid.h"
#include "rowcache/follow/statement.h"
#include "rowcache/follow/value.h"

#define QM_KEY_COLUMNS 16

/* The facts about a table that the log does not contain. */
struct qm_table {
    unsigned columns;   /* of the table: else this is not the table of that image */
    unsigned key_count; /* 0: rows cannot be told apart */
    struct qm_key_column key[QM_KEY_COLUMNS];
    /* Tables whose rows change, unlogged, when this one's rows are deleted; or updated
     * in one of the referenced columns.  InnoDB does that below the log. */
    unsigned on_delete_count, on_update_count, referenced_count;
    struct qm_name *on_delete, *on_update;
    unsigned *referenced; /* ordinals */
};

struct qm_binlog_calls {
    void *opaque;
    /* NULL: its rows cannot be told apart.  Valid until definitions() or the next
     * event. */
    const struct qm_table *(*table)(void *opaque, const char *schema,
                                    const char *table);
    void (*changed)(void *opaque, const char *schema, const char *table,
                    const char *key, size_t length);
    void (*all_changed)(void *opaque, const char *schema, const char *table);
    /* The definition of a table may have changed; of a schema's tables (table NULL), of
     * all. */
    void (*defined)(void *opaque, const char *schema, const char *table);
    void (*begin)(void *opaque, struct qm_gtid gtid);
    /* A transaction is whole, with that position in the log's file. */
    void (*end)(void *opaque, struct qm_gtid gtid, const char *file, uint64_t position);
    /* A file of the log begins, or is gone on with, which was made then (seconds). */
    void (*file)(void *opaque, const char *file, uint32_t made);
    /* The server has nothing more: all up to this position was sent. */
    void (*idle)(void *opaque);
};

struct qm_binlog;

struct qm_binlog *qm_binlog_new(const struct qm_binlog_calls *calls);
void qm_binlog_free(struct qm_binlog *binlog);
/* A new connection. crc: its events end with a CRC32.  lower_case: as
 * lower_case_table_names is, names in statements are not as they are stored. */
void qm_binlog_reset(struct qm_binlog *binlog, bool crc, bool lower_case);
/* One event.  NULL, or what is wrong: nothing more can be told from this connection. */
const char *qm_binlog_event(struct qm_binlog *binlog, const uint8_t *event,
                            size_t size);

#endif
