/* SPDX-License-Identifier: BSD-3-Clause */
/* test-model.c - one shard against a naive model: the same outcome, the same victims,
 * the same bytes and the same counts, operation by operation, on random sequences.
 *
 * The model keeps the main part as a set of which a naive policy says who goes, the
 * prefetch part as an array in LRU order, and the device as an array of versions; it
 * shares no code and no idea with the cache but cache.h.
 */
#include "naive.h"
#include "testing.h"

#define BLOCK     512
#define UNIVERSE  64
#define MAX_FILLS 24

struct entry {
    uint64_t block;
    uint32_t issuer;
    bool filled;
    int fill; /* number of the fill, while filling */
};

struct part {
    struct entry e[UNIVERSE]; /* most recently entered first */
    size_t used, capacity;
};

struct outstanding {
    struct qm_fill *fill;
    uint64_t block;
    bool attached; /* the model still has the block in a part, filling by this fill */
    unsigned char data[BLOCK];
};

struct model {
    struct part main, prefetch;
    struct naive *order; /* of the main part */
    unsigned char device[UNIVERSE][BLOCK];
    struct outstanding fills[MAX_FILLS];
    size_t held;
    uint64_t hits, prefetch_hits, misses, prefetches, used, wasted, failed, detached;
    uint64_t wasted_sum, seen_sum; /* of what wasted() should be told, and was */
};

static void on_wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct model *m = opaque;

    m->seen_sum = m->seen_sum * 31 + block * 1000 + issuer;
}

static void model_wasted(struct model *m, const struct entry *e)
{
    m->wasted++;
    m->wasted_sum = m->wasted_sum * 31 + e->block * 1000 + e->issuer;
}

static struct entry *part_find(struct part *p, uint64_t block)
{
    for (size_t i = 0; i < p->used; i++)
        if (p->e[i].block == block)
            return &p->e[i];
    return NULL;
}

static struct entry part_take(struct part *p, struct entry *e)
{
    struct entry taken = *e;
    size_t i = e - p->e;

    memmove(e, e + 1, (p->used - i - 1) * sizeof(*e));
    p->used--;
    return taken;
}

static void detach(struct model *m, const struct entry *e)
{
    if (!e->filled)
        m->fills[e->fill].attached = false;
}

static void part_put(struct model *m, struct part *p, struct entry e)
{
    struct entry victim;
    uint64_t left;

    if (p == &m->main && naive_enter(m->order, e.block, &left)) {
        victim = part_take(p, part_find(p, left));
        detach(m, &victim);
    } else if (p == &m->prefetch && p->used == p->capacity) {
        victim = part_take(p, &p->e[p->used - 1]);
        model_wasted(m, &victim);
        detach(m, &victim);
    }
    memmove(p->e + 1, p->e, p->used * sizeof(e));
    p->e[0] = e;
    p->used++;
}

static void drop(struct model *m, uint64_t block)
{
    struct entry *e;

    if ((e = part_find(&m->main, block))) {
        detach(m, e);
        part_take(&m->main, e);
        naive_drop(m->order, block);
    } else if ((e = part_find(&m->prefetch, block))) {
        model_wasted(m, e);
        detach(m, e);
        part_take(&m->prefetch, e);
    }
}

static void add_fill(struct model *m, struct qm_fill *fill, uint64_t block)
{
    struct outstanding *o = &m->fills[m->held++];

    assert_non_null(fill);
    o->fill = fill;
    o->block = block;
    o->attached = true;
    memcpy(o->data, m->device[block], BLOCK);
}

static void end_fill(struct model *m, struct qm_cache *cache, size_t n, bool ok)
{
    struct outstanding o = m->fills[n], *moved = &m->fills[--m->held];
    struct part *parts[] = {&m->main, &m->prefetch};

    if (ok)
        qm_cache_fill(cache, o.fill, o.data);
    else
        qm_cache_fail(cache, o.fill);
    if (o.attached) {
        struct entry *e = part_find(&m->main, o.block);

        if (!e)
            e = part_find(&m->prefetch, o.block);
        assert_non_null(e);
        e->filled = true;
        if (!ok)
            drop(m, o.block);
    }
    if (!ok)
        m->failed++;
    else if (!o.attached)
        m->detached++;
    if (moved != &m->fills[n]) {
        m->fills[n] = *moved;
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < parts[k]->used; i++)
                if (!parts[k]->e[i].filled && parts[k]->e[i].fill == (int)m->held)
                    parts[k]->e[i].fill = n;
    }
}

static void do_demand(struct model *m, struct qm_cache *cache, uint64_t block,
                      uint64_t *seed, bool data)
{
    unsigned char buf[BLOCK];
    uint32_t offset = rnd_below(seed, BLOCK),
             count = 1 + rnd_below(seed, BLOCK - offset);
    struct qm_lookup found;
    struct entry *e, moved;

    assert_int_equal(
        qm_cache_demand(cache, block, data ? buf : NULL, offset, count, &found), 0);
    if ((e = part_find(&m->main, block))) {
        moved = *e;
        naive_hit(m->order, block);
        m->hits++;
        assert_int_equal(found.outcome, QM_HIT);
    } else if ((e = part_find(&m->prefetch, block))) {
        moved = part_take(&m->prefetch, e);
        part_put(m, &m->main, moved);
        m->prefetch_hits++;
        m->used++;
        assert_int_equal(found.outcome, QM_PREFETCH_HIT);
        assert_int_equal(found.issuer, moved.issuer);
    } else {
        part_put(m, &m->main, (struct entry){.block = block, .fill = m->held});
        m->misses++;
        assert_int_equal(found.outcome, QM_MISS);
        assert_int_equal(found.todo, QM_FETCH);
        add_fill(m, found.fill, block);
        return;
    }
    if (moved.filled) {
        assert_int_equal(found.todo, QM_DONE);
        assert_null(found.fill);
    } else {
        assert_int_equal(found.todo, QM_WAIT);
        end_fill(m, cache, moved.fill, true);
        assert_int_equal(
            qm_cache_wait(cache, found.fill, data ? buf : NULL, offset, count), 0);
    }
    if (data)
        assert_memory_equal(buf, m->device[block] + offset, count);
}

static void do_prefetch(struct model *m, struct qm_cache *cache, uint64_t block,
                        uint64_t *seed)
{
    uint32_t issuer = rnd_below(seed, 100);
    struct qm_fill *fill = NULL;
    int err = qm_cache_prefetch(cache, block, issuer, &fill);

    if (m->prefetch.capacity == 0) {
        assert_int_equal(err, ENOSPC);
    } else if (part_find(&m->main, block) || part_find(&m->prefetch, block)) {
        assert_int_equal(err, EEXIST);
    } else {
        assert_int_equal(err, 0);
        part_put(m, &m->prefetch,
                 (struct entry){.block = block, .issuer = issuer, .fill = m->held});
        m->prefetches++;
        add_fill(m, fill, block);
    }
}

/* Filled blocks stay and get the bytes; filling ones, and all if it is dropped, go. */
static void do_write(struct model *m, struct qm_cache *cache, uint64_t *seed)
{
    static unsigned char data[UNIVERSE * BLOCK];
    uint64_t size = rnd_below(seed, 4) ? 3 * BLOCK : UNIVERSE * BLOCK;
    uint64_t offset = rnd_below(seed, UNIVERSE * BLOCK);
    uint64_t count = rnd_below(seed, size);
    enum qm_write_result result = rnd_below(seed, 3);
    unsigned char *device = &m->device[0][0];
    struct qm_cache_write w;

    if (count > UNIVERSE * BLOCK - offset)
        count = UNIVERSE * BLOCK - offset;
    for (uint64_t i = 0; i < count; i++)
        data[i] = rnd(seed);
    qm_cache_write_begin(cache, &w, offset, count);
    if (result == QM_WRITE_ZEROS)
        memset(device + offset, 0, count);
    else
        memcpy(device + offset, data, count);
    qm_cache_write_end(cache, &w, result, result == QM_WRITE_DATA ? data : NULL);
    if (count == 0)
        return;
    uint64_t sum = m->wasted_sum, seen = m->seen_sum;
    for (uint64_t b = offset / BLOCK; b <= (offset + count - 1) / BLOCK; b++) {
        struct entry *e = part_find(&m->main, b);

        if (!e)
            e = part_find(&m->prefetch, b);
        if (e && (!e->filled || result == QM_WRITE_DROP))
            drop(m, b);
    }
    /* In which order a long write drops is not promised. */
    if (m->wasted_sum != sum)
        m->wasted_sum = m->seen_sum;
    else
        assert_int_equal(seen, sum);
}

static void check(struct model *m, struct qm_cache *cache, uint64_t budget)
{
    struct qm_cache_stats s = stats_of(cache);

    assert_int_equal(s.hits, m->hits);
    assert_int_equal(s.prefetch_hits, m->prefetch_hits);
    assert_int_equal(s.misses, m->misses);
    assert_int_equal(s.prefetches, m->prefetches);
    assert_int_equal(s.used, m->used);
    assert_int_equal(s.wasted, m->wasted);
    assert_int_equal(s.failed, m->failed);
    assert_int_equal(s.detached, m->detached);
    assert_int_equal(s.main_blocks, m->main.used);
    assert_int_equal(s.prefetch_blocks, m->prefetch.used);
    assert_int_equal(m->seen_sum, m->wasted_sum);
    for (uint64_t b = 0; b < UNIVERSE; b++)
        assert_int_equal(qm_cache_contains(cache, b),
                         part_find(&m->main, b) || part_find(&m->prefetch, b));
    check_identities(cache, budget);
}

static void run(const char *eviction, uint64_t seed, size_t steps, bool data)
{
    struct model *m = calloc(1, sizeof(*m));
    uint64_t blocks, prefetch;
    struct qm_cache *cache;

    assert_non_null(m);
    blocks = 1 + rnd_below(&seed, 40);
    prefetch = rnd_below(&seed, 4) ? rnd_below(&seed, blocks) : 0;
    m->main.capacity = blocks - prefetch;
    m->prefetch.capacity = prefetch;
    m->order = naive_new(eviction, blocks - prefetch);
    cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                .blocks = blocks,
                                                .prefetch_blocks = prefetch,
                                                .shards = 1,
                                                .eviction = eviction,
                                                .data = data,
                                                .wasted = on_wasted,
                                                .opaque = m});
    for (size_t i = 0; i < steps; i++) {
        uint64_t block = rnd_below(&seed, 2) ? rnd_below(&seed, UNIVERSE)
                                             : rnd_below(&seed, UNIVERSE / 4);
        unsigned op = rnd_below(&seed, 100);

        if (m->held == MAX_FILLS - 1)
            end_fill(m, cache, rnd_below(&seed, m->held), true);
        if (op < 60)
            do_demand(m, cache, block, &seed, data);
        else if (op < 75)
            do_prefetch(m, cache, block, &seed);
        else if (op < 80)
            do_write(m, cache, &seed);
        else if (m->held > 0)
            end_fill(m, cache, rnd_below(&seed, m->held), op < 98);
        if (i % 16 == 0)
            check(m, cache, 0);
    }
    while (m->held > 0)
        end_fill(m, cache, 0, true);
    check(m, cache, 0);
    qm_cache_free(cache);
    naive_free(m->order);
    free(m);
}

TEST(test_random)
{
    for (uint64_t seed = 1; seed <= qm_rounds(300); seed++)
        run("lru", seed, 3000, true);
}

TEST(test_random_without_data)
{
    for (uint64_t seed = 1001; seed <= 1000 + qm_rounds(100); seed++)
        run("lru", seed, 3000, false);
}

TEST(test_random_policies)
{
    static const char *const others[] = {"lfu", "mru", "arc", "s3fifo", "wtinylfu"};

    for (uint64_t seed = 2000; seed < 2000 + qm_rounds(500); seed++)
        run(others[seed % 5], seed, 3000, seed % 4 != 0);
}
