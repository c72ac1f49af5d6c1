/* SPDX-License-Identifier: BSD-3-Clause */
/* table-map.h - TABLE_MAP events: the tables that row events of one statement name. */
#ifndef QM_ROWCACHE_TABLE_MAP_H
#define QM_ROWCACHE_TABLE_MAP_H

#include "rowcache/follow/binlog.h"

#define QM_COLUMNS_MAX 4096
#define QM_MAPS_MAX    1024 /* of one statement */

struct qm_map {
    uint64_t id;
    struct qm_name name;
    bool readable; /* all its columns' sizes are known */
    unsigned columns_count;
    struct qm_column *columns;
    /* Of the optional metadata; -1: not said. */
    int key_count;
    unsigned key[QM_KEY_COLUMNS];
    uint8_t *is_unsigned; /* NULL, or a bit a numeric column, the highest first */
    size_t is_unsigned_size;
};

struct qm_maps {
    unsigned count, size;
    struct qm_map *map;
};

/* NULL, or what is wrong. */
const char *qm_maps_add(struct qm_maps *maps, struct qm_bytes *event);
const struct qm_map *qm_maps_find(const struct qm_maps *maps, uint64_t id);
void qm_maps_clear(struct qm_maps *maps);
/* Whether the table is the one that the map describes, as far as the map says. */
bool qm_map_agrees(const struct qm_map *map, const struct qm_table *table);

#endif
