/* SPDX-License-Identifier: BSD-3-Clause */
/* row-event.c - which rows a row event changed; see row-event.h. */
#include "rowcache/follow/row-event.h"

#include <stdlib.h>
#include <string.h>

/* One column's value in an image. */
struct value {
    bool there;        /* the image has the column */
    const uint8_t *at; /* NULL: the value is NULL */
    size_t length;
};

struct image {
    struct value value[QM_COLUMNS_MAX];
};

struct reading {
    const struct qm_binlog_calls *calls;
    const struct qm_map *map;
    const struct qm_table *table; /* NULL: its rows cannot be told apart */
    bool told_all, told_updates;
};

static bool bit(const uint8_t *bits, unsigned i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static bool read_image(const struct qm_map *map, const uint8_t *present,
                       struct qm_bytes *b, struct image *image)
{
    unsigned there = 0, i, n = 0;
    const uint8_t *nulls;

    for (i = 0; i < map->columns_count; i++)
        there += bit(present, i);
    nulls = qm_bytes_take(b, (there + 7) / 8);
    if (!nulls)
        return false;
    for (i = 0; i < map->columns_count; i++) {
        struct value *value = image->value + i;

        *value = (struct value){.there = bit(present, i)};
        if (!value->there || bit(nulls, n++))
            continue;
        if (!qm_value_take(b, map->columns[i], &value->at, &value->length))
            return false;
    }
    return true;
}

static void tell_all(struct reading *r)
{
    const struct qm_binlog_calls *calls = r->calls;

    if (!r->told_all)
        calls->all_changed(calls->opaque, r->map->name.schema, r->map->name.table);
    r->told_all = true;
}

static void tell_each(struct reading *r, const struct qm_name *name, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        r->calls->all_changed(r->calls->opaque, name[i].schema, name[i].table);
}

/* The key of image, with what it lacks from before (NULL: none). */
static bool key_of(const struct reading *r, const struct image *image,
                   const struct image *before, bool swapped, struct qm_keytext *key)
{
    qm_keytext_start(key);
    for (unsigned i = 0; i < r->table->key_count; i++) {
        struct qm_key_column how = r->table->key[i], *column = &how;
        const struct value *value = image->value + column->ordinal;

        if (swapped && how.print == QM_PRINT_UUID)
            how.print = QM_PRINT_UUID_SWAPPED;

        if (!value->there && before)
            value = before->value + column->ordinal;
        if (!value->there || !value->at ||
            !qm_value_print(r->map->columns[column->ordinal], column, value->at,
                            value->length, key))
            return false;
    }
    return !key->failed;
}

static void tell(struct reading *r, const struct qm_keytext *key)
{
    r->calls->changed(r->calls->opaque, r->map->name.schema, r->map->name.table,
                      key->text, key->length);
}

/* Whether an update changed a column that foreign keys reference. */
static bool reference_changed(const struct reading *r, const struct image *before,
                              const struct image *after)
{
    for (unsigned i = 0; i < r->table->referenced_count; i++) {
        unsigned ordinal = r->table->referenced[i];
        const struct value *old, *new;

        if (ordinal >= r->map->columns_count)
            return true;
        old = before->value + ordinal;
        new = after->value + ordinal;
        if (!new->there)
            continue;
        if (!old->there || !old->at != !new->at)
            return true;
        if (old->at &&
            (old->length != new->length || memcmp(old->at, new->at, old->length) != 0))
            return true;
    }
    return false;
}

static void tell_keys(struct reading *r, enum qm_row_event kind,
                      const struct image *first, const struct image *second,
                      bool swapped, struct qm_keytext key[2])
{
    if (!key_of(r, first, NULL, swapped, key)) {
        tell_all(r);
        return;
    }
    tell(r, key);
    if (kind != QM_ROW_UPDATE)
        return;
    if (!key_of(r, second, first, swapped, key + 1))
        tell_all(r);
    else if (key[0].length != key[1].length ||
             memcmp(key[0].text, key[1].text, key[0].length) != 0)
        tell(r, key + 1);
}

static void row(struct reading *r, enum qm_row_event kind, const struct image *first,
                const struct image *second, struct qm_keytext key[2])
{
    if (!r->table) {
        tell_all(r);
        return;
    }
    if (kind == QM_ROW_UPDATE && r->table->on_update_count > 0 && !r->told_updates &&
        reference_changed(r, first, second)) {
        tell_each(r, r->table->on_update, r->table->on_update_count);
        r->told_updates = true;
    }
    tell_keys(r, kind, first, second, false, key);
    for (unsigned i = 0; i < r->table->key_count; i++)
        if (r->table->key[i].print == QM_PRINT_UUID) { /* both of its readings */
            tell_keys(r, kind, first, second, true, key);
            break;
        }
}

static const char *rows(struct reading *r, enum qm_row_event kind,
                        const uint8_t *const present[2], struct qm_bytes *b)
{
    unsigned images = kind == QM_ROW_UPDATE ? 2 : 1;
    struct image *image = malloc(images * sizeof *image);
    struct qm_keytext *key = malloc(2 * sizeof *key);
    const char *why = image && key ? NULL : "no memory";

    while (!why && qm_bytes_left(b) > 0) {
        const uint8_t *start = b->at;

        for (unsigned i = 0; i < images && !why; i++)
            if (!read_image(r->map, present[i], b, image + i))
                why = "a row that is cut short";
        if (!why && b->at == start)
            why = "a row without bytes";
        if (!why)
            row(r, kind, image, images == 2 ? image + 1 : NULL, key);
    }
    free(image);
    free(key);
    return why;
}

const char *qm_row_event(const struct qm_binlog_calls *calls, const struct qm_map *map,
                         enum qm_row_event kind, bool compressed, struct qm_bytes *b)
{
    struct reading r = {.calls = calls, .map = map};
    uint64_t columns = qm_bytes_packed(b);
    const uint8_t *present[2] = {0};
    uint8_t *inflated = NULL;
    struct qm_bytes body;
    const char *why;
    size_t size;

    if (b->failed || columns != map->columns_count)
        return "rows of another table than the map's";
    for (unsigned i = 0; i < (kind == QM_ROW_UPDATE ? 2 : 1); i++)
        if (!(present[i] = qm_bytes_take(b, (columns + 7) / 8)))
            return "a row event that is cut short";
    r.table = calls->table(calls->opaque, map->name.schema, map->name.table);
    if (r.table && kind == QM_ROW_DELETE)
        tell_each(&r, r.table->on_delete, r.table->on_delete_count);
    if (!r.table || !qm_map_agrees(map, r.table)) {
        if (r.table && kind == QM_ROW_UPDATE)
            tell_each(&r, r.table->on_update, r.table->on_update_count);
        tell_all(&r);
        return NULL;
    }
    body = *b;
    if (compressed) {
        inflated = qm_inflate(b, &size);
        if (!inflated)
            return "rows that cannot be inflated";
        body = (struct qm_bytes){inflated, inflated + size, false};
    }
    why = rows(&r, kind, present, &body);
    free(inflated);
    return why;
}
