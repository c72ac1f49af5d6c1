/* SPDX-License-Identifier: BSD-3-Clause */
/* name.h - the name of a row: a client's key, taken apart.
 *
 *   schema.table:1        by its primary key; :1:2 if that has two columns
 *   schema.table.index:1  by a unique key
 *   table:1               in the schema that is the default
 *   table_1               the same, as SEER-MCache has it
 *
 * In the values ':', '%', blanks and control characters may be, and in the canonical
 * key are, written as %XX. */
#ifndef QM_ROWCACHE_NAME_H
#define QM_ROWCACHE_NAME_H

#include "rowcache/key/keytext.h"

enum { QM_NAME_PARTS = 16, QM_NAME_LENGTH = 64 * 4 };

struct qm_row_name {
    char schema[QM_NAME_LENGTH + 1], table[QM_NAME_LENGTH + 1],
        index[QM_NAME_LENGTH + 1];                 /* index is empty: the primary key */
    char key[3 * QM_NAME_LENGTH + 4 + QM_KEY_MAX]; /* canonical, with the table */
    size_t length, table_length;                   /* of it; of "schema.table" in it */
    size_t values_at;                              /* where the values begin in it */
    unsigned parts;
    struct {
        size_t at, length; /* in values */
    } part[QM_NAME_PARTS];
    char values[QM_KEY_MAX]; /* without escapes */
};

/* Returns NULL, or what is wrong with the key. */
const char *qm_row_name_parse(struct qm_row_name *name, const char *key, size_t length,
                              const char *default_schema);

#endif
