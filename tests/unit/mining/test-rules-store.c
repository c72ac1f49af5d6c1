/* SPDX-License-Identifier: BSD-3-Clause */
/* Where records are, in memory or in Berkeley DB: against arrays that just have them.
 */
#include "testing.h"

#include "mining/quickmine/rules-store.h"

enum { PREFIXES = 400, LONGEST = 3 * QM_STORE_MOST };

struct naive_record {
    bool there;
    uint64_t used; /* when */
    size_t size;
    unsigned char bytes[LONGEST];
};

/* Mostly short, as they are; the first byte says how many suffixes there are. */
static size_t random_record(struct rng *rng, unsigned char *bytes)
{
    const uint64_t longest[] = {16, 16, 16, 40, 40, 100, QM_STORE_MOST + 3, LONGEST};
    size_t size = 1 + rng_below(rng, longest[rng_below(rng, 8)]);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(rng_next(rng) & 0x7f);
    }
    return size < LONGEST ? size : LONGEST;
}

static size_t cells_of(size_t size)
{
    return size <= 16 ? 1 : 1 + (size - 16 + 11) / 12;
}

TEST(test_cells)
{
    const uint64_t rooms[] = {0, 15, 16, 1000, 1 << 20};
    struct rng rng = {11};
    for (int round = 0; round < 5; round++) {
        struct {
            uint32_t record;
            size_t size;
            unsigned char bytes[LONGEST];
        } *v = calloc(PREFIXES, sizeof *v), new;
        struct qm_cells cells;
        size_t used = 0, refused = 0, max = rooms[round] / 16;
        assert_non_null(v);
        assert_int_equal(qm_cells_init(&cells, rooms[round]), 0);
        for (int step = 0; step < 20000; step++) {
            size_t i = rng_below(&rng, PREFIXES);
            new.size = random_record(&rng, new.bytes);
            size_t need = cells_of(new.size),
                   had = v[i].record ? cells_of(v[i].size) : 0;
            if (v[i].record != 0 && rng_below(&rng, 3) == 0) {
                qm_cells_free(&cells, v[i].record, v[i].size);
                v[i].record = 0;
                used -= had;
            } else if (used - had + need > max) { /* what is there stays */
                refused++;
                if (v[i].record != 0) {
                    assert_false(qm_cells_replace(&cells, v[i].record, v[i].size,
                                                  new.bytes, new.size));
                } else {
                    assert_int_equal(qm_cells_add(&cells, new.bytes, new.size), 0);
                }
            } else {
                if (v[i].record != 0) {
                    assert_true(qm_cells_replace(&cells, v[i].record, v[i].size,
                                                 new.bytes, new.size));
                    new.record = v[i].record;
                } else {
                    new.record = qm_cells_add(&cells, new.bytes, new.size);
                    assert_int_not_equal(new.record, 0);
                }
                v[i] = new;
                used += need - had;
            }
            i = rng_below(&rng, PREFIXES);
            if (v[i].record != 0) {
                size_t most = rng_below(&rng, LONGEST + 1);
                size_t n = v[i].size < most ? v[i].size : most;
                assert_int_equal(
                    qm_cells_read(&cells, v[i].record, v[i].size, new.bytes, most), n);
                assert_memory_equal(new.bytes, v[i].bytes, n);
            }
            assert_true(qm_cells_bytes(&cells) <= rooms[round]);
        }
        assert_int_equal(refused > 0, round < 4);
        qm_cells_fini(&cells);
        free(v);
    }
}

static void put_record(struct qm_store *store, const struct naive_record *r)
{
    assert_int_equal(qm_store_reserve(store, r->size), 0);
    memcpy(store->record, r->bytes, r->size);
}

static void check_entry(const struct qm_store *store, const struct qm_lru_entry *e)
{
    assert_true(e->record != 0 || e->stored);
    assert_true(e->stored || e->changed);
    assert_true(e->record != 0 || !e->changed);
    assert_true(e->record == 0 || (e->size > 0 && e->size <= QM_STORE_MOST));
}

static int count_one(void *opaque, const void *key, size_t key_size, const void *data,
                     size_t size)
{
    ++*(size_t *)opaque;
    return 0;
}

/* Order, contents, and that each cell in use and each of Berkeley DB's belongs to a
 * prefix. */
static void check_store(struct qm_store *store, const struct naive_record *naive)
{
    size_t n = 0, cells = 0, stored = 0, found = 0, cap = 0, size;
    unsigned char *buf = NULL;
    bool cold = store->lru.cold != 0;
    uint64_t used = 0;
    uint32_t mark = store->lru.first_mark;
    for (uint32_t id = store->lru.entries[0].newer; id != 0;
         id = store->lru.entries[id].newer) {
        const struct qm_lru_entry *e = &store->lru.entries[id];
        cold = cold && store->lru.cold != id;
        assert_true(e->record == 0 || !cold);
        if (id == mark) {
            mark = (uint32_t)e->b;
            continue;
        }
        const struct naive_record *r = &naive[e->a];
        check_entry(store, e);
        assert_true(r->there && e->b == e->a + 1 && r->used > used);
        used = r->used;
        cells += e->record != 0 ? cells_of(e->size) : 0;
        stored += e->stored;
        assert_int_equal(qm_store_copy(store, id, &buf, &cap, &size), 0);
        assert_int_equal(size, r->size);
        assert_memory_equal(buf, r->bytes, size);
        n++;
    }
    for (size_t i = 0; i < PREFIXES; i++) {
        n -= naive[i].there;
    }
    assert_int_equal(n, 0);
    assert_int_equal(cells, store->cells.used - 1 - store->cells.n_free);
    assert_int_equal(qm_bdb_each(&store->bdb, count_one, &found), 0);
    assert_int_equal(found, stored);
    free(buf);
}

static void replace(struct qm_store *store, uint32_t id, struct naive_record *r,
                    struct rng *rng)
{
    size_t size;
    assert_int_equal(qm_store_read(store, id, &size), 0);
    assert_int_equal(size, r->size);
    assert_memory_equal(store->record, r->bytes, size);
    r->size = random_record(rng, r->bytes);
    put_record(store, r);
    assert_int_equal(qm_store_update(store, id, r->size), 0);
}

static void look(struct qm_store *store, uint32_t id, const struct naive_record *r)
{
    unsigned char start[QM_STORE_START];
    size_t size, n = r->size < QM_STORE_START ? r->size : QM_STORE_START;
    assert_int_equal(qm_store_look(store, id, start, &size), 0);
    assert_int_equal(size, n);
    assert_memory_equal(start, r->bytes, n);
}

static void take_away(struct qm_store *store, uint32_t id, struct naive_record *r)
{
    uint64_t suffixes = 999;
    assert_int_equal(qm_store_remove(store, id, &suffixes), 0);
    assert_int_equal(suffixes, r->bytes[0]);
    r->there = false;
}

TEST(test_store)
{
    const uint64_t pools[] = {1, 64, 1000, 5000, 64 << 10};
    struct rng rng = {12};
    for (int round = 0; round < 5; round++) {
        struct naive_record *naive = calloc(PREFIXES, sizeof *naive);
        struct qm_store store;
        assert_non_null(naive);
        assert_int_equal(qm_store_open(&store, pools[round], 0, rng_next(&rng)), 0);
        for (uint64_t step = 1; step < 10000; step++) {
            uint64_t a = rng_below(&rng, PREFIXES / (1 + rng_below(&rng, 9)));
            struct naive_record *r = &naive[a];
            uint32_t id = qm_lru_find(&store.lru, a, a + 1);
            assert_int_equal(id != 0, r->there);
            if (id == 0) {
                r->there = true;
                r->size = random_record(&rng, r->bytes);
                put_record(&store, r);
                assert_int_equal(qm_store_add(&store, a, a + 1, r->size), 0);
            } else if (rng_below(&rng, 8) == 0) {
                take_away(&store, id, r);
            } else if (rng_below(&rng, 3) == 0) {
                look(&store, id, r);
            } else {
                replace(&store, id, r, &rng);
            }
            r->used = step;
            if (rng_below(&rng, 50) == 0) {
                assert_int_equal(qm_lru_mark(&store.lru, step), 0);
            }
            if (rng_below(&rng, 100) == 0 && (id = qm_lru_oldest(&store.lru)) != 0) {
                take_away(&store, id, &naive[store.lru.entries[id].a]);
            }
            if (step % 100 == 0) {
                check_store(&store, naive);
            }
        }
        check_store(&store, naive);
        qm_store_close(&store);
        free(naive);
    }
}

/* Prefixes that are there; those whose records are in memory, and in Berkeley DB. */
static void count(const struct qm_store *store, unsigned n[3])
{
    n[0] = n[1] = n[2] = 0;
    for (uint32_t id = store->lru.entries[0].newer; id != 0;
         id = store->lru.entries[id].newer) {
        n[0]++;
        n[1] += store->lru.entries[id].record != 0;
        n[2] += store->lru.entries[id].stored;
    }
}

/* Berkeley DB sees what does not fit and no more, and what is loaded fills memory. */
TEST(test_only_the_rest)
{
    enum { POOL = 1280, FITS = POOL / 4 * 3 / 16 };
    const struct naive_record one = {.size = 16};
    for (int load = 0; load < 2; load++) {
        struct qm_store store;
        unsigned n[3];
        uint32_t id;
        size_t size;
        assert_int_equal(qm_store_open(&store, POOL, 0, 1), 0);
        for (unsigned a = 0; a < 2 * FITS; a++) {
            put_record(&store, &one);
            if (load) {
                assert_int_equal(qm_lru_insert(&store.lru, a, a + 1, &id), 0);
                assert_int_equal(qm_store_load(&store, id, one.size), 0);
            } else {
                assert_int_equal(qm_store_add(&store, a, a + 1, one.size), 0);
            }
            count(&store, n);
            assert_int_equal(n[0], a + 1);
            assert_int_equal(n[1], a < FITS ? a + 1 : FITS);
            assert_int_equal(n[2], a < FITS ? 0 : a + 1 - FITS);
        }
        /* What is changed comes to memory, where the longest unused goes. */
        const struct qm_lru_entry *e = store.lru.entries;
        uint32_t oldest = qm_lru_oldest_record(&store.lru);
        id = qm_lru_find(&store.lru, load ? 2 * FITS - 1 : 0, load ? 2 * FITS : 1);
        assert_int_equal(e[id].record, 0);
        assert_int_equal(qm_store_read(&store, id, &size), 0);
        assert_int_equal(qm_store_update(&store, id, size), 0);
        assert_int_not_equal(e[id].record, 0);
        assert_false(e[id].changed);
        assert_int_equal(e[oldest].record, 0);
        count(&store, n);
        assert_int_equal(n[1], FITS);
        assert_int_equal(n[2], FITS + 1);
        qm_store_close(&store);
    }
}
