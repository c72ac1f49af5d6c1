/* SPDX-License-Identifier: BSD-3-Clause */
/* index.c - where in the file a block is: open hash tables with linear probing, 16
 * bytes an entry at a load of at most 4/5, so 20 bytes a block.  A tier that was made
 * much smaller has many shards of few blocks, which need more: see size_for().
 *
 * A table always has a free entry, or a search in it would not end.
 *
 * Shards, each with a lock, since readers, writers and the log meet here.  The hash is
 * seeded, so that nobody can choose blocks that collide.  A removal shifts entries back
 * instead of leaving tombstones. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_TABLE (4u << 20)

#define USED     (UINT64_C(1) << 63)
#define HEAT     (UINT64_C(7) << 60)
#define ONE      (UINT64_C(1) << 60)
#define RESTORED (UINT64_C(1) << 59)
#define BLOCK    ((UINT64_C(1) << QM_TIER_BLOCK_BITS) - 1)
#define CHECK_HI (QM_TIER_CHECK_BITS - 32)

static uint64_t hash(const struct qm_tier *t, uint64_t block)
{
    uint64_t h = block ^ t->seed;

    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

static struct shard *shard_of(struct qm_tier *t, uint64_t h)
{
    return &t->shards[t->shard_bits ? h >> (64 - t->shard_bits) : 0];
}

/* Where an entry would be if it were alone: the hash' lower bits, scaled. */
static uint64_t home(const struct qm_tier *t, const struct shard *s, uint64_t h)
{
    return (uint64_t)(((unsigned __int128)(h << t->shard_bits) * s->size) >> 64);
}

static uint64_t next(const struct shard *s, uint64_t i)
{
    return i + 1 == s->size ? 0 : i + 1;
}

static struct entry *find(const struct qm_tier *t, const struct shard *s, uint64_t h,
                          uint64_t block)
{
    for (uint64_t i = home(t, s, h); s->entries[i].a; i = next(s, i))
        if ((s->entries[i].a & BLOCK) == block)
            return &s->entries[i];
    return NULL;
}

/* The table has a free entry, and another one. */
static void put(const struct qm_tier *t, struct shard *s, uint64_t h, struct entry e)
{
    uint64_t i = home(t, s, h);

    while (s->entries[i].a)
        i = next(s, i);
    s->entries[i] = e;
    s->used++;
}

static void take(const struct qm_tier *t, struct shard *s, struct entry *e)
{
    uint64_t hole = (uint64_t)(e - s->entries), i = hole;

    for (;;) {
        uint64_t wants;

        i = next(s, i);
        if (!s->entries[i].a)
            break;
        wants = home(t, s, hash(t, s->entries[i].a & BLOCK));
        /* It may move to the hole unless its home lies behind it, cyclically. */
        if (hole <= i ? wants <= hole || wants > i : wants <= hole && wants > i) {
            s->entries[hole] = s->entries[i];
            hole = i;
        }
    }
    s->entries[hole].a = 0;
    s->used--;
}

static struct slot unpack(const struct qm_tier *t, const struct entry *e)
{
    uint32_t slot = (uint32_t)(e->b >> 32);

    return (struct slot){
        .block = e->a & BLOCK,
        .check = (e->a >> QM_TIER_BLOCK_BITS & ((1u << CHECK_HI) - 1)) << 32 |
                 (e->b & UINT32_MAX),
        .segment = slot / t->g.slots,
        .slot = slot % t->g.slots,
        .heat = (unsigned)((e->a & HEAT) / ONE),
        .restored = e->a & RESTORED,
    };
}

static struct entry pack(const struct qm_tier *t, const struct slot *s)
{
    return (struct entry){
        .a = USED | s->heat * ONE | (s->restored ? RESTORED : 0) |
             (s->check >> 32) << QM_TIER_BLOCK_BITS | s->block,
        .b = (uint64_t)(s->segment * t->g.slots + s->slot) << 32 |
             (s->check & UINT32_MAX),
    };
}

static bool same_place(struct entry e, struct entry f)
{
    return ((e.a ^ f.a) & ~(HEAT | RESTORED)) == 0 && e.b == f.b;
}

/* The entries of a table for n blocks. */
static uint64_t entries_for(uint64_t n)
{
    return n + n / 4 + 2;
}

/* The entries of each table where there are `slots` slots.  Shards do not get the same
 * number of blocks: the standard deviation is the square root of the mean, and eight of
 * these above it are never seen.  From 1024 blocks a shard on, the load of 4/5 has room
 * for that; the number of shards stays when a tier becomes smaller. */
static uint64_t size_for(unsigned bits, uint64_t slots)
{
    uint64_t each = (slots >> bits) + 1, root = 1;

    while (root * root < each)
        root++;
    if (bits > 0 && each < 1024)
        return each + 8 * root + 2;
    return entries_for(each);
}

/* Large tables are of large pages, of which the kernel gives zeroed ones when they are
 * touched. */
static struct entry *make_table(uint64_t size)
{
    size_t bytes = size * sizeof(struct entry);
    void *p;

    if (bytes < HUGE_TABLE)
        return calloc(size, sizeof(struct entry));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void free_table(struct entry *table, uint64_t size)
{
    if (size * sizeof(struct entry) < HUGE_TABLE)
        free(table);
    else
        munmap(table, size * sizeof(struct entry));
}

int index_new(struct qm_tier *t, uint64_t slots)
{
    while (t->shard_bits < 6 && slots >> (t->shard_bits + 1) >= 4096)
        t->shard_bits++;
    t->shards = aligned_alloc(64, sizeof(struct shard) << t->shard_bits);
    if (!t->shards)
        return ENOMEM;
    memset(t->shards, 0, sizeof(struct shard) << t->shard_bits);
    for (unsigned i = 0; i < 1u << t->shard_bits; i++)
        pthread_mutex_init(&t->shards[i].lock, NULL);
    return index_resize(t, slots);
}

void index_free(struct qm_tier *t)
{
    for (unsigned i = 0; t->shards && i < 1u << t->shard_bits; i++) {
        pthread_mutex_destroy(&t->shards[i].lock);
        free_table(t->shards[i].entries, t->shards[i].size);
    }
    free(t->shards);
}

/* Nobody adds blocks meanwhile: that is done with log.lock, or while opening. */
int index_resize(struct qm_tier *t, uint64_t slots)
{
    unsigned n = 1u << t->shard_bits;
    struct entry *tables[64] = {0};
    uint64_t sizes[64];

    for (unsigned i = 0; i < n; i++) {
        uint64_t holds;

        pthread_mutex_lock(&t->shards[i].lock);
        holds = entries_for(t->shards[i].used);
        pthread_mutex_unlock(&t->shards[i].lock);
        sizes[i] = size_for(t->shard_bits, slots);
        if (sizes[i] < holds)
            sizes[i] = holds;
        tables[i] = make_table(sizes[i]);
        if (!tables[i]) {
            while (i-- > 0)
                free_table(tables[i], sizes[i]);
            return ENOMEM;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        struct shard *s = &t->shards[i];
        struct shard old;

        pthread_mutex_lock(&s->lock);
        old.entries = s->entries;
        old.size = s->size;
        s->entries = tables[i];
        s->size = sizes[i];
        s->used = 0;
        for (uint64_t k = 0; k < old.size; k++)
            if (old.entries[k].a)
                put(t, s, hash(t, old.entries[k].a & BLOCK), old.entries[k]);
        pthread_mutex_unlock(&s->lock);
        atomic_fetch_add(&t->index_memory,
                         (uint64_t)sizeof(struct entry) * (sizes[i] - old.size));
        free_table(old.entries, old.size);
    }
    return 0;
}

void index_prefetch(struct qm_tier *t, uint64_t block)
{
    uint64_t h = hash(t, block);
    const struct shard *s = shard_of(t, h);

    __builtin_prefetch(&s->entries[home(t, s, h)], 1);
}

bool index_find(struct qm_tier *t, uint64_t block, struct slot *found)
{
    uint64_t h = hash(t, block);
    struct shard *s = shard_of(t, h);
    struct entry *e;

    pthread_mutex_lock(&s->lock);
    e = find(t, s, h, block);
    if (e) {
        *found = unpack(t, e);
        found->phase = segment_of(t, found->segment)->phase;
        atomic_fetch_add(&segment_of(t, found->segment)->pins[found->phase], 1);
    }
    pthread_mutex_unlock(&s->lock);
    return e;
}

bool index_contains(struct qm_tier *t, uint64_t block)
{
    uint64_t h = hash(t, block);
    struct shard *s = shard_of(t, h);
    bool there;

    pthread_mutex_lock(&s->lock);
    there = find(t, s, h, block);
    pthread_mutex_unlock(&s->lock);
    return there;
}

bool index_confirm(struct qm_tier *t, const struct slot *found, bool heat)
{
    uint64_t h = hash(t, found->block);
    struct shard *s = shard_of(t, h);
    struct entry *e;
    bool same;

    pthread_mutex_lock(&s->lock);
    e = find(t, s, h, found->block);
    same = e && same_place(*e, pack(t, found));
    if (same && heat) {
        if ((e->a & HEAT) != HEAT)
            e->a += ONE;
        e->a |= RESTORED;
    }
    pthread_mutex_unlock(&s->lock);
    return same;
}

void index_cool(struct qm_tier *t, const struct slot *found)
{
    uint64_t h = hash(t, found->block);
    struct shard *s = shard_of(t, h);
    struct entry *e;

    pthread_mutex_lock(&s->lock);
    e = find(t, s, h, found->block);
    if (e && same_place(*e, pack(t, found)) && (e->a & HEAT))
        e->a -= ONE;
    pthread_mutex_unlock(&s->lock);
}

int index_add(struct qm_tier *t, const struct slot *slot, uint64_t ticket)
{
    uint64_t h = hash(t, slot->block);
    struct shard *s = shard_of(t, h);
    int r = 0;

    pthread_mutex_lock(&s->lock);
    if (ticket != UINT64_MAX && journal_is_stale(t, slot->block, ticket)) {
        r = ESTALE;
    } else if (find(t, s, h, slot->block)) {
        r = EEXIST;
    } else if (s->used + s->used / 16 + 2 > s->size) {
        r = ENOSPC;
    } else {
        put(t, s, h, pack(t, slot));
        atomic_fetch_add(&segment_of(t, slot->segment)->live, 1);
        atomic_fetch_add_explicit(&t->blocks, 1, memory_order_relaxed);
        admit_bloom_add(t, slot->block);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* With the lock of the shard. */
static void remove_entry(struct qm_tier *t, struct shard *s, struct entry *e,
                         uint32_t segment)
{
    (void)verify_done(t, segment, (uint32_t)(e->b >> 32) % t->g.slots);
    take(t, s, e);
    atomic_fetch_sub(&segment_of(t, segment)->live, 1);
    atomic_fetch_sub_explicit(&t->blocks, 1, memory_order_relaxed);
}

static bool is_at(struct qm_tier *t, struct entry *e, uint32_t segment, uint32_t slot)
{
    return e && (uint32_t)(e->b >> 32) == segment * t->g.slots + slot;
}

bool index_remove_from(struct qm_tier *t, uint64_t block, uint32_t segment,
                       uint32_t slot)
{
    uint64_t h = hash(t, block);
    struct shard *s = shard_of(t, h);
    struct entry *e;
    bool there;

    pthread_mutex_lock(&s->lock);
    e = find(t, s, h, block);
    there = is_at(t, e, segment, slot);
    if (there)
        remove_entry(t, s, e, segment);
    pthread_mutex_unlock(&s->lock);
    return there;
}

bool index_is_at(struct qm_tier *t, uint64_t block, uint32_t segment, uint32_t slot,
                 struct slot *found)
{
    uint64_t h = hash(t, block);
    struct shard *s = shard_of(t, h);
    struct entry *e;
    bool there;

    pthread_mutex_lock(&s->lock);
    e = find(t, s, h, block);
    there = is_at(t, e, segment, slot);
    if (there)
        *found = unpack(t, e);
    pthread_mutex_unlock(&s->lock);
    return there;
}

void index_each(struct qm_tier *t, void (*each)(void *, const struct slot *),
                void *opaque)
{
    for (unsigned i = 0; i < 1u << t->shard_bits; i++) {
        struct shard *s = &t->shards[i];

        pthread_mutex_lock(&s->lock);
        for (uint64_t k = 0; k < s->size; k++)
            if (s->entries[k].a) {
                struct slot slot = unpack(t, &s->entries[k]);

                each(opaque, &slot);
            }
        pthread_mutex_unlock(&s->lock);
    }
}

uint64_t index_gather(struct qm_tier *t, struct cursor *cursor, uint64_t first,
                      uint64_t last, uint64_t *blocks, uint64_t most)
{
    uint64_t n = 0;

    while (cursor->shard < 1u << t->shard_bits && n < most) {
        struct shard *s = &t->shards[cursor->shard];

        pthread_mutex_lock(&s->lock);
        for (; cursor->at < s->size && n < most; cursor->at++) {
            uint64_t block = s->entries[cursor->at].a & BLOCK;

            if (s->entries[cursor->at].a && block >= first && block <= last)
                blocks[n++] = block;
        }
        if (cursor->at >= s->size) {
            cursor->shard++;
            cursor->at = 0;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return n;
}
