/* SPDX-License-Identifier: BSD-3-Clause */
/* value.c - sizes of values in row images, and which printer is for which type; see
 * value.h.
 */
#include "rowcache/follow/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rowcache/follow/print.h"

int qm_type_meta(uint8_t type)
{
    switch (type) {
    case QM_TYPE_TINY:
    case QM_TYPE_SHORT:
    case QM_TYPE_INT24:
    case QM_TYPE_LONG:
    case QM_TYPE_LONGLONG:
    case QM_TYPE_NULL:
    case QM_TYPE_YEAR:
    case QM_TYPE_DATE:
    case QM_TYPE_NEWDATE:
        return 0;
    case QM_TYPE_FLOAT:
    case QM_TYPE_DOUBLE:
    case QM_TYPE_TIMESTAMP2:
    case QM_TYPE_DATETIME2:
    case QM_TYPE_TIME2:
    case QM_TYPE_TINY_BLOB:
    case QM_TYPE_MEDIUM_BLOB:
    case QM_TYPE_LONG_BLOB:
    case QM_TYPE_BLOB:
    case QM_TYPE_BLOB_COMPRESSED:
    case QM_TYPE_GEOMETRY:
    case QM_TYPE_JSON:
        return 1;
    case QM_TYPE_VARCHAR:
    case QM_TYPE_VARCHAR_COMPRESSED:
    case QM_TYPE_VAR_STRING:
    case QM_TYPE_BIT:
    case QM_TYPE_NEWDECIMAL:
    case QM_TYPE_ENUM:
    case QM_TYPE_SET:
    case QM_TYPE_STRING:
        return 2;
    default: /* among others times as before MySQL 5.6, whose size is not said */
        return -1;
    }
}

bool qm_column_set(struct qm_column *column, uint8_t type, const uint8_t *meta)
{
    column->type = type;
    switch (qm_type_meta(type)) {
    case -1:
        return false;
    case 0:
        column->meta = 0;
        return true;
    case 1:
        column->meta = meta[0];
        break;
    default:
        column->meta = (uint16_t)qm_little(meta, 2);
    }
    switch (type) {
    case QM_TYPE_STRING:
    case QM_TYPE_ENUM:
    case QM_TYPE_SET: {
        /* The real type, with two bits of the length if that is more than 255. */
        uint8_t real = meta[0];
        uint16_t length = meta[1];

        if ((real & 0x30) != 0x30) {
            length = (uint16_t)(length | ((real & 0x30) ^ 0x30) << 4);
            real |= 0x30;
        }
        if (real != QM_TYPE_STRING && real != QM_TYPE_ENUM && real != QM_TYPE_SET)
            return false;
        column->type = real;
        column->meta = length;
        return real == QM_TYPE_STRING || (length >= 1 && length <= 8);
    }
    case QM_TYPE_NEWDECIMAL:
        return meta[0] >= 1 && meta[0] <= 65 && meta[1] <= meta[0];
    case QM_TYPE_BIT: /* bits over whole bytes, bytes */
        return meta[0] < 8 && meta[1] <= 8;
    case QM_TYPE_TIMESTAMP2:
    case QM_TYPE_DATETIME2:
    case QM_TYPE_TIME2:
        return column->meta <= 6;
    case QM_TYPE_FLOAT:
        return column->meta == 4;
    case QM_TYPE_DOUBLE:
        return column->meta == 8;
    case QM_TYPE_BLOB:
    case QM_TYPE_TINY_BLOB:
    case QM_TYPE_MEDIUM_BLOB:
    case QM_TYPE_LONG_BLOB:
    case QM_TYPE_BLOB_COMPRESSED:
    case QM_TYPE_GEOMETRY:
    case QM_TYPE_JSON:
        return column->meta >= 1 && column->meta <= 4;
    default:
        return true;
    }
}

/* Bytes of the length before a value; 0 if there is none. */
static size_t length_bytes(struct qm_column column)
{
    switch (column.type) {
    case QM_TYPE_VARCHAR:
    case QM_TYPE_VARCHAR_COMPRESSED:
    case QM_TYPE_VAR_STRING:
    case QM_TYPE_STRING:
        return column.meta > 255 ? 2 : 1;
    case QM_TYPE_BLOB:
    case QM_TYPE_TINY_BLOB:
    case QM_TYPE_MEDIUM_BLOB:
    case QM_TYPE_LONG_BLOB:
    case QM_TYPE_BLOB_COMPRESSED:
    case QM_TYPE_GEOMETRY:
    case QM_TYPE_JSON:
        return column.meta;
    default:
        return 0;
    }
}

static size_t fixed_length(struct qm_column column)
{
    size_t fraction = (column.meta + 1u) / 2;

    switch (column.type) {
    case QM_TYPE_TINY:
    case QM_TYPE_YEAR:
        return 1;
    case QM_TYPE_SHORT:
        return 2;
    case QM_TYPE_INT24:
    case QM_TYPE_DATE:
    case QM_TYPE_NEWDATE:
        return 3;
    case QM_TYPE_LONG:
    case QM_TYPE_FLOAT:
        return 4;
    case QM_TYPE_LONGLONG:
    case QM_TYPE_DOUBLE:
        return 8;
    case QM_TYPE_TIMESTAMP2:
        return 4 + fraction;
    case QM_TYPE_DATETIME2:
        return 5 + fraction;
    case QM_TYPE_TIME2:
        return 3 + fraction;
    case QM_TYPE_ENUM:
    case QM_TYPE_SET:
        return column.meta;
    case QM_TYPE_BIT:
        return (column.meta >> 8) + ((column.meta & 255) ? 1u : 0u);
    case QM_TYPE_NEWDECIMAL:
        return qm_decimal_size(column.meta & 255, column.meta >> 8);
    default:
        return 0;
    }
}

bool qm_value_take(struct qm_bytes *b, struct qm_column column, const uint8_t **value,
                   size_t *length)
{
    size_t before = length_bytes(column);

    *length = before ? qm_bytes_number(b, before) : fixed_length(column);
    *value = qm_bytes_take(b, *length);
    return *value != NULL;
}

static bool print_integer(struct qm_column column, bool is_signed, const uint8_t *value,
                          size_t length, struct qm_keytext *key)
{
    uint64_t number = qm_little(value, length);
    char text[24];
    int n;

    if (column.type != QM_TYPE_TINY && column.type != QM_TYPE_SHORT &&
        column.type != QM_TYPE_INT24 && column.type != QM_TYPE_LONG &&
        column.type != QM_TYPE_LONGLONG)
        return false;
    if (is_signed) {
        unsigned unused = 64 - 8 * (unsigned)length;

        n = snprintf(text, sizeof text, "%" PRId64,
                     (int64_t)(number << unused) >> unused);
    } else {
        n = snprintf(text, sizeof text, "%" PRIu64, number);
    }
    qm_keytext_add(key, text, (size_t)n);
    return true;
}

static bool print_labels(struct qm_column column, const struct qm_key_column *how,
                         const uint8_t *value, size_t length, struct qm_keytext *key)
{
    uint64_t number = qm_little(value, length);
    char text[QM_KEY_MAX];
    size_t n = 0;

    if (column.type == QM_TYPE_ENUM) { /* 0 is the error value '' */
        if (number > how->labels_count)
            return false;
        if (number > 0)
            qm_keytext_add(key, how->labels[number - 1],
                           strlen(how->labels[number - 1]));
        else
            qm_keytext_add(key, "", 0);
        return true;
    }
    if (column.type != QM_TYPE_SET ||
        (how->labels_count < 64 && number >> how->labels_count))
        return false;
    for (unsigned i = 0; i < how->labels_count && i < 64; i++) {
        size_t size = strlen(how->labels[i]);

        if (!(number >> i & 1))
            continue;
        if (n + size + 1 > sizeof text)
            return false;
        if (n > 0)
            text[n++] = ',';
        memcpy(text + n, how->labels[i], size);
        n += size;
    }
    qm_keytext_add(key, text, n);
    return true;
}

static bool is_bytes(uint8_t type)
{
    return type == QM_TYPE_VARCHAR || type == QM_TYPE_VAR_STRING ||
           type == QM_TYPE_STRING || type == QM_TYPE_BLOB ||
           type == QM_TYPE_TINY_BLOB || type == QM_TYPE_MEDIUM_BLOB ||
           type == QM_TYPE_LONG_BLOB || type == QM_TYPE_BIT;
}

/* Zeros at a fixed binary value's end are not logged. */
static bool print_filled(struct qm_column column, const struct qm_key_column *how,
                         const uint8_t *value, size_t length, struct qm_keytext *key)
{
    uint8_t whole[1024];
    char text[64];
    size_t size = column.meta;

    if (column.type != QM_TYPE_STRING || length > size || size > sizeof whole)
        return false;
    memcpy(whole, value, length);
    memset(whole + length, 0, size - length);
    switch (how->print) {
    case QM_PRINT_BINARY:
        qm_keytext_add(key, (const char *)whole, size);
        return true;
    case QM_PRINT_UUID:
    case QM_PRINT_UUID_SWAPPED:
        if (size != 16)
            return false;
        qm_print_uuid(whole, how->print == QM_PRINT_UUID_SWAPPED, text);
        break;
    case QM_PRINT_INET6:
        if (size != 16)
            return false;
        qm_print_inet6(whole, text);
        break;
    default:
        if (size != 4)
            return false;
        snprintf(text, sizeof text, "%u.%u.%u.%u", whole[0], whole[1], whole[2],
                 whole[3]);
    }
    qm_keytext_add(key, text, strlen(text));
    return true;
}

bool qm_value_print(struct qm_column column, const struct qm_key_column *how,
                    const uint8_t *value, size_t length, struct qm_keytext *key)
{
    char text[QM_PRINT_MAX];
    long n;

    switch (how->print) {
    case QM_PRINT_SIGNED:
    case QM_PRINT_UNSIGNED:
        if (!print_integer(column, how->print == QM_PRINT_SIGNED, value, length, key))
            return false;
        break;
    case QM_PRINT_DECIMAL:
        if (column.type != QM_TYPE_NEWDECIMAL)
            return false;
        n = qm_print_decimal(column.meta & 255, column.meta >> 8, value, text);
        qm_keytext_add(key, text, (size_t)n);
        break;
    case QM_PRINT_TIME:
        n = qm_print_time(column.type, column.meta, value, text);
        if (n < 0)
            return false;
        qm_keytext_add(key, text, (size_t)n);
        break;
    case QM_PRINT_BYTES:
        if (!is_bytes(column.type))
            return false;
        qm_keytext_add(key, (const char *)value, length);
        break;
    case QM_PRINT_LATIN1: {
        char wide[3 * 1024];

        if (!is_bytes(column.type) || length > sizeof wide / 3)
            return false;
        n = qm_print_latin1(value, length, wide);
        qm_keytext_add(key, wide, (size_t)n);
        break;
    }
    case QM_PRINT_BINARY:
    case QM_PRINT_UUID:
    case QM_PRINT_UUID_SWAPPED:
    case QM_PRINT_INET4:
    case QM_PRINT_INET6:
        if (!print_filled(column, how, value, length, key))
            return false;
        break;
    case QM_PRINT_LABELS:
        if (!print_labels(column, how, value, length, key))
            return false;
        break;
    case QM_PRINT_UNSURE:
        return false;
    }
    return !key->failed;
}
