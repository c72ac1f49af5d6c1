/* SPDX-License-Identifier: BSD-3-Clause */
/* name.c - a client's key, taken apart; see name.h. */
#include "rowcache/fill/name.h"

#include <stdio.h>
#include <string.h>

static bool copy(char *to, const char *from, size_t length)
{
    if (length == 0 || length > QM_NAME_LENGTH || memchr(from, '\0', length))
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static const char *last_of(const char *key, size_t length, char c)
{
    return memrchr(key, c, length);
}

static const char *parse_values(struct qm_row_name *name, const char *at,
                                const char *end)
{
    struct qm_keytext text;
    size_t used = 0;

    qm_keytext_start(&text);
    for (;;) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        const char *to = colon ? colon : end;
        long n;

        if (name->parts == QM_NAME_PARTS)
            return "the key has too many columns";
        n = qm_keytext_decode(at, (size_t)(to - at), name->values + used,
                              sizeof name->values - used);
        if (n < 0)
            return "a % in a key is followed by two hexadecimal digits";
        name->part[name->parts].at = used;
        name->part[name->parts++].length = (size_t)n;
        qm_keytext_add(&text, name->values + used, (size_t)n);
        used += (size_t)n;
        if (!colon)
            break;
        at = colon + 1;
    }
    if (text.failed)
        return "the key is too long";
    memcpy(name->key + name->values_at, text.text, text.length);
    name->length = name->values_at + text.length;
    return NULL;
}

const char *qm_row_name_parse(struct qm_row_name *name, const char *key, size_t length,
                              const char *default_schema)
{
    static const char form[] =
        "a key is schema.table:value, schema.table.index:value or table_value";
    const char *end = key + length, *colon = memchr(key, ':', length), *dot, *second;
    int n;

    name->index[0] = '\0';
    name->parts = 0;
    if (length > QM_KEY_MAX)
        return "the key is too long";
    if (!colon)
        colon = last_of(key, length, '_');
    if (!colon)
        return form;
    dot = memchr(key, '.', (size_t)(colon - key));
    if (dot) {
        second = memchr(dot + 1, '.', (size_t)(colon - dot - 1));
        if (!copy(name->schema, key, (size_t)(dot - key)) ||
            !copy(name->table, dot + 1,
                  (size_t)((second ? second : colon) - dot - 1)) ||
            (second && !copy(name->index, second + 1, (size_t)(colon - second - 1))))
            return form;
    } else {
        if (!default_schema)
            return "a key without a schema needs the setting schema";
        if (!copy(name->schema, default_schema, strlen(default_schema)) ||
            !copy(name->table, key, (size_t)(colon - key)))
            return form;
    }
    n = snprintf(name->key, sizeof name->key, "%s.%s", name->schema, name->table);
    name->table_length = (size_t)n;
    n += snprintf(name->key + n, sizeof name->key - (size_t)n,
                  "%s%s:", name->index[0] ? "." : "", name->index);
    name->values_at = (size_t)n;
    return parse_values(name, colon + 1, end);
}
