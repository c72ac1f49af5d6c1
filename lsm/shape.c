/* SPDX-License-Identifier: BSD-3-Clause */
/* shape.c - see shape.h. */
#include "lsm/shape.h"

#include <stdlib.h>
#include <string.h>

struct shape *shape_new(struct collector *c, int level, uint32_t cut)
{
    struct shape *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->collector = c;
    s->table = collector_table(c);
    s->level = level;
    s->cut = cut;
    s->range = UINT32_MAX;
    s->spacing = collector_spacing(c);
    return s;
}

void shape_free(struct shape *s)
{
    if (!s)
        return;
    table_put(s->table);
    keys_free(&s->firsts);
    keys_free(&s->last);
    keys_free(&s->sample);
    free(s->raw);
    free(s->heat);
    free(s);
}

void shape_predict(struct shape *s, const struct trees *trees, uint32_t from,
                   uint32_t steps)
{
    s->trees = trees;
    s->from = from;
    s->steps = steps;
    s->moment = features_moment(time(NULL));
}

static void close_block(struct shape *s, uint64_t raw)
{
    if (s->n == s->room) {
        uint32_t room = s->room ? s->room * 2 : 256;
        uint32_t *sizes = realloc(s->raw, room * sizeof *sizes);
        float *heat = sizes ? realloc(s->heat, room * sizeof *heat) : NULL;
        if (sizes)
            s->raw = sizes;
        if (!heat) {
            s->failed = true;
            return;
        }
        s->heat = heat;
        s->room = room;
    }
    s->raw[s->n] = raw > UINT32_MAX ? UINT32_MAX : (uint32_t)raw;
    s->heat[s->n++] = s->open_heat;
    s->open = false;
    s->open_heat = 0;
    s->open_raw = 0;
}

void shape_key(struct shape *s, const void *key, size_t len, size_t bytes)
{
    size_t last_len = 0;
    const uint8_t *last = s->last.n > 0 ? keys_get(&s->last, 0, &last_len) : NULL;
    uint32_t range;

    if (s->failed)
        return;
    if (!s->open && keys_add(&s->firsts, key, len) != 0)
        s->failed = true;
    s->open = true;
    s->open_raw += (uint32_t)bytes;
    s->entries++;
    if (!last || last_len != len || memcmp(last, key, len) != 0) {
        range = s->range == UINT32_MAX
                    ? fences_find(s->table->fences, key, len)
                    : fences_find_from(s->table->fences, s->range, key, len);
        if (range != s->range)
            s->key_heat = s->trees ? (float)features_hot(s->trees, s->from, s->steps,
                                                         s->table, range, &s->moment)
                                   : table_heat(s->table, range);
        s->range = range;
        if (!s->trees)
            s->open_heat += s->key_heat;
        else if (s->open_heat < s->key_heat)
            s->open_heat = s->key_heat;
        if (++s->since == s->spacing) {
            s->since = 0;
            if (keys_add(&s->sample, key, len) != 0)
                s->failed = true;
        }
        keys_clear(&s->last);
        if (keys_add(&s->last, key, len) != 0)
            s->failed = true;
    }
    if (s->cut > 0 && s->open_raw >= s->cut)
        close_block(s, s->open_raw);
}

void shape_cut(struct shape *s, uint32_t bytes)
{
    s->cut = bytes;
}

void shape_block(struct shape *s, uint64_t raw)
{
    if (s->cut == 0 && s->open && !s->failed)
        close_block(s, raw);
}

void shape_finish(struct shape *s)
{
    size_t first_len, last_len;
    const uint8_t *first, *last;

    if (s->open && !s->failed)
        close_block(s, s->open_raw);
    if (s->failed || s->n == 0 || s->last.n == 0)
        return;
    first = keys_get(&s->firsts, 0, &first_len);
    last = keys_get(&s->last, 0, &last_len);
    collector_learn(s->collector, &s->sample, s->entries, first, first_len, last,
                    last_len);
}
