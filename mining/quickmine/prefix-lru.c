/* SPDX-License-Identifier: BSD-3-Clause */
/* prefix-lru.c - prefixes in the order of their last use (see prefix-lru.h). */
#include "mining/quickmine/prefix-lru.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FIRST_ENTRIES 64
#define FIRST_TABLE   128
#define EXPECTED_MAX  (1u << 20)
#define ID_MAX        (UINT32_MAX / 2)

struct qm_lru_copy {
    uint32_t used;
    uint32_t first_mark;
    uint64_t count;
    struct qm_lru_entry entries[];
};

static uint32_t hash_of(const struct qm_lru *lru, uint64_t a, uint64_t b)
{
    uint64_t key[2] = {a, b};
    return (uint32_t)XXH3_64bits_withSeed(key, sizeof key, lru->seed);
}

/* At most two thirds full, so that a probe stays short. */
static bool too_full(uint64_t count, uint64_t size)
{
    return count * 3 > size * 2;
}

int qm_lru_init(struct qm_lru *lru, uint64_t expected, uint64_t seed)
{
    memset(lru, 0, sizeof *lru);
    if (expected > EXPECTED_MAX) {
        expected = EXPECTED_MAX;
    }
    uint32_t size = FIRST_TABLE;
    while (too_full(expected, size)) {
        size *= 2;
    }
    lru->seed = seed;
    lru->mask = size - 1;
    lru->table = calloc(size, sizeof *lru->table);
    lru->cap = (uint32_t)expected + FIRST_ENTRIES;
    lru->entries = malloc(lru->cap * sizeof *lru->entries);
    if (!lru->table || !lru->entries) {
        qm_lru_fini(lru);
        return ENOMEM;
    }
    lru->entries[0] = (struct qm_lru_entry){0};
    lru->used = 1;
    return 0;
}

void qm_lru_fini(struct qm_lru *lru)
{
    free(lru->table);
    free(lru->entries);
    memset(lru, 0, sizeof *lru);
}

/* Where a & b is in the table, or is to be. */
static uint32_t slot_of(const struct qm_lru *lru, uint64_t a, uint64_t b, uint32_t hash)
{
    for (uint32_t at = hash & lru->mask;; at = (at + 1) & lru->mask) {
        const struct qm_lru_slot *slot = &lru->table[at];
        const struct qm_lru_entry *e = &lru->entries[slot->id];
        if (slot->id == 0 || (slot->hash == hash && e->a == a && e->b == b)) {
            return at;
        }
    }
}

uint32_t qm_lru_find(const struct qm_lru *lru, uint64_t a, uint64_t b)
{
    return lru->table[slot_of(lru, a, b, hash_of(lru, a, b))].id;
}

static void link_newest(struct qm_lru *lru, uint32_t id)
{
    struct qm_lru_entry *e = lru->entries;
    e[id].newer = 0;
    e[id].older = e[0].older;
    e[e[0].older].newer = id;
    e[0].older = id;
    if (lru->cold == 0) {
        lru->cold = id;
    }
}

static void unlink_entry(struct qm_lru *lru, uint32_t id)
{
    struct qm_lru_entry *e = lru->entries;
    e[e[id].older].newer = e[id].newer;
    e[e[id].newer].older = e[id].older;
    if (lru->cold == id) {
        lru->cold = e[id].newer;
    }
}

static uint32_t take_entry(struct qm_lru *lru)
{
    uint32_t id = lru->free;
    if (id != 0) {
        lru->free = lru->entries[id].older;
        return id;
    }
    if (lru->used == lru->cap) {
        if (lru->cap >= ID_MAX) {
            return 0;
        }
        uint32_t cap = lru->cap * 2;
        struct qm_lru_entry *entries = realloc(lru->entries, cap * sizeof *entries);
        if (!entries) {
            return 0;
        }
        lru->entries = entries;
        lru->cap = cap;
    }
    return lru->used++;
}

static void give_entry(struct qm_lru *lru, uint32_t id)
{
    lru->entries[id].older = lru->free;
    lru->free = id;
}

static int grow_table(struct qm_lru *lru)
{
    uint32_t old_size = lru->mask + 1;
    struct qm_lru_slot *old = lru->table;
    if (old_size > UINT32_MAX / 2) {
        return ENOMEM;
    }
    struct qm_lru_slot *table = calloc(2 * (size_t)old_size, sizeof *table);
    if (!table) {
        return ENOMEM;
    }
    uint32_t mask = 2 * old_size - 1;
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i].id != 0) {
            uint32_t at = old[i].hash & mask;
            while (table[at].id != 0) {
                at = (at + 1) & mask;
            }
            table[at] = old[i];
        }
    }
    lru->table = table;
    lru->mask = mask;
    free(old);
    return 0;
}

int qm_lru_insert(struct qm_lru *lru, uint64_t a, uint64_t b, uint32_t *id)
{
    if (too_full(lru->count + 1, (uint64_t)lru->mask + 1)) {
        int r = grow_table(lru);
        if (r != 0) {
            return r;
        }
    }
    *id = take_entry(lru);
    if (*id == 0) {
        return ENOMEM;
    }
    uint32_t hash = hash_of(lru, a, b);
    lru->entries[*id] = (struct qm_lru_entry){.a = a, .b = b};
    lru->table[slot_of(lru, a, b, hash)] = (struct qm_lru_slot){*id, hash};
    link_newest(lru, *id);
    lru->count++;
    return 0;
}

void qm_lru_touch(struct qm_lru *lru, uint32_t id)
{
    unlink_entry(lru, id);
    link_newest(lru, id);
}

/* Empties a slot and moves up those behind it that would no longer be found. */
static void empty_slot(struct qm_lru *lru, uint32_t slot)
{
    uint32_t next = slot;
    for (;;) {
        next = (next + 1) & lru->mask;
        if (lru->table[next].id == 0) {
            break;
        }
        uint32_t home = lru->table[next].hash;
        if (((next - home) & lru->mask) >= ((next - slot) & lru->mask)) {
            lru->table[slot] = lru->table[next];
            slot = next;
        }
    }
    lru->table[slot].id = 0;
}

void qm_lru_remove(struct qm_lru *lru, uint32_t id)
{
    const struct qm_lru_entry *e = &lru->entries[id];
    empty_slot(lru, slot_of(lru, e->a, e->b, hash_of(lru, e->a, e->b)));
    unlink_entry(lru, id);
    give_entry(lru, id);
    lru->count--;
}

uint32_t qm_lru_oldest(struct qm_lru *lru)
{
    uint32_t id = lru->entries[0].newer;
    while (id != 0 && id == lru->first_mark) {
        lru->first_mark = (uint32_t)lru->entries[id].b;
        if (lru->first_mark == 0) {
            lru->last_mark = 0;
        }
        unlink_entry(lru, id);
        give_entry(lru, id);
        id = lru->entries[0].newer;
    }
    return id;
}

uint32_t qm_lru_oldest_record(struct qm_lru *lru)
{
    while (lru->cold != 0 && lru->entries[lru->cold].record == 0) {
        lru->cold = lru->entries[lru->cold].newer;
    }
    return lru->cold;
}

int qm_lru_mark(struct qm_lru *lru, uint64_t time)
{
    uint32_t newest = lru->entries[0].older;
    if (newest == 0 || newest == lru->last_mark) {
        return 0; /* nothing was used since the last one */
    }
    uint32_t id = take_entry(lru);
    if (id == 0) {
        return ENOMEM;
    }
    lru->entries[id] = (struct qm_lru_entry){.a = time};
    if (lru->last_mark != 0) {
        lru->entries[lru->last_mark].b = id;
    } else {
        lru->first_mark = id;
    }
    lru->last_mark = id;
    link_newest(lru, id);
    return 0;
}

uint32_t qm_lru_expired(struct qm_lru *lru, uint64_t now, uint64_t after)
{
    uint32_t id = qm_lru_oldest(lru);
    if (id == 0 || lru->first_mark == 0) {
        return 0;
    }
    uint64_t time = lru->entries[lru->first_mark].a;
    return now > time && now - time >= after ? id : 0;
}

size_t qm_lru_bytes(const struct qm_lru *lru)
{
    return lru->used * sizeof *lru->entries +
           ((size_t)lru->mask + 1) * sizeof *lru->table;
}

int qm_lru_copy(const struct qm_lru *lru, struct qm_lru_copy **copy)
{
    size_t bytes = lru->used * sizeof *lru->entries;
    struct qm_lru_copy *c = malloc(sizeof *c + bytes);
    *copy = c;
    if (!c) {
        return ENOMEM;
    }
    c->used = lru->used;
    c->first_mark = lru->first_mark;
    c->count = lru->count;
    memcpy(c->entries, lru->entries, bytes);
    return 0;
}

int qm_lru_list(struct qm_lru_copy *copy, struct qm_lru_place **list, size_t *n)
{
    struct qm_lru_place *places = malloc((copy->count + 1) * sizeof *places);
    *list = places;
    *n = 0;
    if (places) {
        uint32_t mark = copy->first_mark;
        for (uint32_t id = copy->entries[0].newer; id; id = copy->entries[id].newer) {
            const struct qm_lru_entry *e = &copy->entries[id];
            if (id == mark) {
                mark = (uint32_t)e->b;
            } else {
                places[*n] = (struct qm_lru_place){e->a, e->b, *n};
                ++*n;
            }
        }
    }
    free(copy);
    return places ? 0 : ENOMEM;
}
