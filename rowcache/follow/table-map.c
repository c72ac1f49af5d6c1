/* SPDX-License-Identifier: BSD-3-Clause */
/* table-map.c - TABLE_MAP events; see table-map.h. */
#include "rowcache/follow/table-map.h"

#include <stdlib.h>
#include <string.h>

enum metadata { SIGNEDNESS = 1, SIMPLE_KEY = 8, PREFIX_KEY = 9 };

static void clear(struct qm_map *map)
{
    free(map->columns);
    free(map->is_unsigned);
}

void qm_maps_clear(struct qm_maps *maps)
{
    for (unsigned i = 0; i < maps->count; i++)
        clear(maps->map + i);
    free(maps->map);
    *maps = (struct qm_maps){0};
}

const struct qm_map *qm_maps_find(const struct qm_maps *maps, uint64_t id)
{
    for (unsigned i = maps->count; i-- > 0;)
        if (maps->map[i].id == id)
            return maps->map + i;
    return NULL;
}

static bool read_name(struct qm_bytes *b, char *name)
{
    size_t length = qm_bytes_number(b, 1);
    const uint8_t *at = qm_bytes_take(b, length + 1);

    if (!at || at[length] != '\0' || memchr(at, '\0', length))
        return false;
    memcpy(name, at, length + 1);
    return true;
}

static bool read_columns(struct qm_map *map, const uint8_t *types,
                         struct qm_bytes *meta)
{
    for (unsigned i = 0; i < map->columns_count; i++) {
        int size = qm_type_meta(types[i]);
        const uint8_t *at = size < 0 ? NULL : qm_bytes_take(meta, (size_t)size);

        if (!at || !qm_column_set(map->columns + i, types[i], at))
            return false;
    }
    return qm_bytes_left(meta) == 0;
}

/* What is not understood there only leaves the map with less. */
static void read_optional(struct qm_map *map, struct qm_bytes *b)
{
    while (qm_bytes_left(b) > 0) {
        unsigned type = (unsigned)qm_bytes_number(b, 1);
        size_t size = qm_bytes_packed(b);
        const uint8_t *at = qm_bytes_take(b, size);
        struct qm_bytes field = {at, at ? at + size : NULL, !at};

        if (!at)
            return;
        if (type == SIGNEDNESS && !map->is_unsigned && size > 0) {
            map->is_unsigned = malloc(size);
            if (map->is_unsigned) {
                memcpy(map->is_unsigned, at, size);
                map->is_unsigned_size = size;
            }
        } else if ((type == SIMPLE_KEY || type == PREFIX_KEY) && map->key_count < 0) {
            for (map->key_count = 0; qm_bytes_left(&field) > 0; map->key_count++) {
                uint64_t ordinal = qm_bytes_packed(&field);

                if (type == PREFIX_KEY)
                    qm_bytes_packed(&field);
                if (field.failed || map->key_count == QM_KEY_COLUMNS) {
                    map->key_count = -1;
                    break;
                }
                map->key[map->key_count] = (unsigned)ordinal;
            }
        }
    }
}

const char *qm_maps_add(struct qm_maps *maps, struct qm_bytes *b)
{
    struct qm_map map = {.id = qm_bytes_number(b, 6), .key_count = -1};
    const uint8_t *types, *at;
    uint64_t columns, size;

    qm_bytes_number(b, 2); /* flags */
    if (!read_name(b, map.name.schema) || !read_name(b, map.name.table))
        return "a table map without names";
    columns = qm_bytes_packed(b);
    if (b->failed || columns == 0 || columns > QM_COLUMNS_MAX)
        return "a table map without columns";
    types = qm_bytes_take(b, columns);
    size = qm_bytes_packed(b);
    at = qm_bytes_take(b, size);
    if (!at || !qm_bytes_take(b, (columns + 7) / 8))
        return "a table map that is cut short";
    if (maps->count == QM_MAPS_MAX)
        return "too many tables in one statement";
    if (maps->count == maps->size) {
        unsigned more = maps->size ? 2 * maps->size : 4;
        struct qm_map *grown = realloc(maps->map, more * sizeof *grown);

        if (!grown)
            return "no memory";
        maps->map = grown;
        maps->size = more;
    }
    map.columns_count = (unsigned)columns;
    map.columns = calloc(columns, sizeof *map.columns);
    if (!map.columns)
        return "no memory";
    map.readable = read_columns(&map, types, &(struct qm_bytes){at, at + size, false});
    read_optional(&map, b);
    maps->map[maps->count++] = map;
    return NULL;
}

static bool is_numeric(uint8_t type)
{
    return type == QM_TYPE_TINY || type == QM_TYPE_SHORT || type == QM_TYPE_INT24 ||
           type == QM_TYPE_LONG || type == QM_TYPE_LONGLONG ||
           type == QM_TYPE_NEWDECIMAL || type == QM_TYPE_FLOAT ||
           type == QM_TYPE_DOUBLE || type == QM_TYPE_YEAR;
}

static bool sign_agrees(const struct qm_map *map, const struct qm_key_column *column)
{
    unsigned bit = 0;
    bool said;

    if (!map->is_unsigned ||
        (column->print != QM_PRINT_SIGNED && column->print != QM_PRINT_UNSIGNED))
        return true;
    for (unsigned i = 0; i < column->ordinal; i++)
        bit += is_numeric(map->columns[i].type);
    if (bit / 8 >= map->is_unsigned_size)
        return true;
    said = map->is_unsigned[bit / 8] >> (7 - bit % 8) & 1;
    return said == (column->print == QM_PRINT_UNSIGNED);
}

bool qm_map_agrees(const struct qm_map *map, const struct qm_table *table)
{
    if (!map->readable || table->columns != map->columns_count ||
        table->key_count == 0 || table->key_count > QM_KEY_COLUMNS)
        return false;
    if (map->key_count >= 0 && (unsigned)map->key_count != table->key_count)
        return false;
    for (unsigned i = 0; i < table->key_count; i++) {
        if (table->key[i].ordinal >= map->columns_count ||
            (map->key_count >= 0 && map->key[i] != table->key[i].ordinal) ||
            !sign_agrees(map, table->key + i))
            return false;
    }
    return true;
}
