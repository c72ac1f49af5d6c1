/* SPDX-License-Identifier: BSD-3-Clause */
/* value.h - one column's value in a row image: its size, and its text.
 *
 * The text is what MariaDB prints for the column to a connection with
 * time_zone='+00:00' and utf8mb4, but for leading zeros of ZEROFILL.  A value whose
 * text is not sure has none.
 */
#ifndef QM_ROWCACHE_VALUE_H
#define QM_ROWCACHE_VALUE_H

#include "rowcache/follow/bytes.h"
#include "rowcache/key/keytext.h"

/* Types of columns in the binary log. */
enum qm_type {
    QM_TYPE_TINY = 1,
    QM_TYPE_SHORT = 2,
    QM_TYPE_LONG = 3,
    QM_TYPE_FLOAT = 4,
    QM_TYPE_DOUBLE = 5,
    QM_TYPE_NULL = 6,
    QM_TYPE_LONGLONG = 8,
    QM_TYPE_INT24 = 9,
    QM_TYPE_DATE = 10,
    QM_TYPE_YEAR = 13,
    QM_TYPE_NEWDATE = 14,
    QM_TYPE_VARCHAR = 15,
    QM_TYPE_BIT = 16,
    QM_TYPE_TIMESTAMP2 = 17,
    QM_TYPE_DATETIME2 = 18,
    QM_TYPE_TIME2 = 19,
    QM_TYPE_BLOB_COMPRESSED = 140,
    QM_TYPE_VARCHAR_COMPRESSED = 141,
    QM_TYPE_JSON = 245,
    QM_TYPE_NEWDECIMAL = 246,
    QM_TYPE_ENUM = 247,
    QM_TYPE_SET = 248,
    QM_TYPE_TINY_BLOB = 249,
    QM_TYPE_MEDIUM_BLOB = 250,
    QM_TYPE_LONG_BLOB = 251,
    QM_TYPE_BLOB = 252,
    QM_TYPE_VAR_STRING = 253,
    QM_TYPE_STRING = 254,
    QM_TYPE_GEOMETRY = 255,
};

/* A column as TABLE_MAP describes it. */
struct qm_column {
    uint8_t type;
    uint16_t meta;
};

/* How a key's column is printed: what TABLE_MAP does not say. */
enum qm_print {
    QM_PRINT_UNSURE, /* the text cannot be told from the image */
    QM_PRINT_SIGNED,
    QM_PRINT_UNSIGNED,
    QM_PRINT_DECIMAL,
    QM_PRINT_TIME,  /* all dates and times */
    QM_PRINT_BYTES, /* utf8, ascii, blobs, bits */
    QM_PRINT_LATIN1,
    QM_PRINT_BINARY, /* of a fixed length, filled with zeros */
    QM_PRINT_LABELS, /* enum and set */
    QM_PRINT_UUID,   /* the image does not say in which of two orders its parts are: */
    QM_PRINT_UUID_SWAPPED,
    QM_PRINT_INET4,
    QM_PRINT_INET6,
};

struct qm_key_column {
    unsigned ordinal; /* from 0 */
    enum qm_print print;
    unsigned labels_count;
    char **labels;
};

/* Bytes of metadata in TABLE_MAP, or -1 if the type is not known. */
int qm_type_meta(uint8_t type);
/* Resolves what TABLE_MAP hides in the metadata of strings.  False: unknown. */
bool qm_column_set(struct qm_column *column, uint8_t type, const uint8_t *meta);
/* Takes the value from b, and sets where its bytes are, without a length before them.
 */
bool qm_value_take(struct qm_bytes *b, struct qm_column column, const uint8_t **value,
                   size_t *length);
/* Adds the value's text to key; false if it is not sure. */
bool qm_value_print(struct qm_column column, const struct qm_key_column *how,
                    const uint8_t *value, size_t length, struct qm_keytext *key);

#endif
