/* SPDX-License-Identifier: BSD-3-Clause */
/* cold.c - how often keys on disk were asked for since their records were written.
 *
 * Under LFU a key on disk has a frequency.  Its record has the one that it was written
 * with; what was added by gets is here, so that a get of a cold key writes nothing.
 *
 * A table of 32-bit slots: a count and a tag of the key's hash.  A key has two buckets
 * of a cache line each, and its slot is in one of them.  Two keys with the same bucket
 * and tag share a count: that is one look-up in 100,000.
 *
 * While there is room, counts are exact.  Without room, as many calls are taken from
 * all slots of the two buckets as the new key would add (Misra and Gries): keys that
 * come often keep most of their counts, those that came once are forgotten. */
#include <errno.h>

#include "rowcache/store/internal.h"

enum { COUNT_BITS = 10, SLOTS = 16, SIZE = SLOTS * sizeof(uint32_t) };

_Static_assert(COLD_MOST == (1 << COUNT_BITS) - 1, "what a slot can count");

static uint32_t count_of(uint32_t slot)
{
    return slot & COLD_MOST;
}

static uint32_t tag_of(struct store_hash hash)
{
    return (uint32_t)(hash.high >> 32) & ~COLD_MOST;
}

static uint32_t *bucket(const struct cold *c, uint32_t bits)
{
    return &c->slots[((uint64_t)bits * c->buckets >> 32) * SLOTS];
}

static void buckets_of(const struct cold *c, struct store_hash hash, uint32_t *at[2])
{
    at[0] = bucket(c, hash.low);
    at[1] = bucket(c, (uint32_t)hash.high);
}

int store_cold_init(struct cold *c, uint64_t keys, uint64_t bytes)
{
    uint64_t buckets = keys / (SLOTS * 9 / 10) + 1;

    *c = (struct cold){.buckets = buckets < bytes / SIZE ? buckets : bytes / SIZE};
    if (c->buckets == 0)
        return 0;
    c->slots = store_pages_alloc(c->buckets * SIZE);
    if (!c->slots) {
        c->buckets = 0;
        return ENOMEM;
    }
    return 0;
}

uint64_t store_cold_bytes(const struct cold *c)
{
    return c->buckets * SIZE;
}

void store_cold_free(struct cold *c)
{
    store_pages_free(c->slots, store_cold_bytes(c));
    *c = (struct cold){0};
}

static uint32_t *find(const struct cold *c, struct store_hash hash)
{
    uint32_t *at[2], tag = tag_of(hash);

    if (c->buckets == 0)
        return NULL;
    buckets_of(c, hash, at);
    for (unsigned b = 0; b < 2; b++)
        for (unsigned i = 0; i < SLOTS; i++)
            if ((at[b][i] & ~COLD_MOST) == tag && count_of(at[b][i]) > 0)
                return &at[b][i];
    return NULL;
}

uint32_t store_cold_count(const struct cold *c, struct store_hash hash)
{
    const uint32_t *slot = find(c, hash);

    return slot ? count_of(*slot) : 0;
}

void store_cold_remove(struct cold *c, struct store_hash hash)
{
    uint32_t *slot = find(c, hash);

    if (slot)
        *slot = 0;
}

/* An empty slot, in the bucket that has more of them; or NULL. */
static uint32_t *find_room(const struct cold *c, struct store_hash hash)
{
    uint32_t *at[2], *room[2] = {NULL, NULL};
    unsigned empty[2] = {0, 0};

    buckets_of(c, hash, at);
    for (unsigned b = 0; b < 2; b++) {
        for (unsigned i = 0; i < SLOTS; i++) {
            if (count_of(at[b][i]) == 0) {
                room[b] = &at[b][i];
                empty[b]++;
            }
        }
    }
    return room[empty[1] > empty[0]];
}

bool store_cold_add(struct cold *c, struct store_hash hash, uint32_t n)
{
    uint32_t *slot = find(c, hash);

    if (n == 0)
        return true;
    if (c->buckets == 0 || n > COLD_MOST || (slot && n > COLD_MOST - count_of(*slot)))
        return false;
    if (!slot) {
        if (!(slot = find_room(c, hash)))
            return false;
        *slot = tag_of(hash);
    }
    *slot += n;
    return true;
}

/* Takes one from each count of the two buckets. */
static void fade(struct cold *c, struct store_hash hash)
{
    uint32_t *at[2];

    buckets_of(c, hash, at);
    for (unsigned b = 0; b < 2; b++)
        for (unsigned i = 0; i < SLOTS; i++)
            if (count_of(at[b][i]) > 0)
                at[b][i]--;
}

bool store_cold_seen(struct cold *c, struct store_hash hash)
{
    if (store_cold_add(c, hash, 1))
        return true;
    if (c->buckets == 0 || store_cold_count(c, hash) == COLD_MOST)
        return false;
    fade(c, hash);
    return true;
}
