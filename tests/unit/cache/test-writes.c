/* SPDX-License-Identifier: BSD-3-Clause */
/* test-writes.c - reads, fills and writes of the same block in every order that
 * matters.
 *
 * Everything runs in one thread, which plays all parts, so each interleaving is exactly
 * the one that is written down.  `device` is the layer below.  What a write does while
 * nothing else goes on is compared with the model (test-model.c).
 */
#include "cache/internal.h"
#include "testing.h"

#define BLOCK  512
#define BLOCKS 64

static unsigned char device[BLOCKS * BLOCK];
static uint64_t seed = 1;

struct fixture {
    struct qm_cache *cache;
    uint64_t wasted;
};

static void on_wasted(void *opaque, uint64_t block, uint32_t issuer)
{
    struct fixture *f = opaque;

    f->wasted++;
}

static struct fixture *set_up(uint64_t blocks, uint64_t prefetch_blocks)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->cache = new_cache(&(struct qm_cache_config){.block_size = BLOCK,
                                                   .blocks = blocks,
                                                   .prefetch_blocks = prefetch_blocks,
                                                   .shards = 1,
                                                   .eviction = "lru",
                                                   .data = true,
                                                   .wasted = on_wasted,
                                                   .opaque = f});
    for (size_t i = 0; i < sizeof(device); i++)
        device[i] = rnd(&seed);
    return f;
}

static void tear_down(struct fixture *f)
{
    check_identities(f->cache, 0);
    assert_int_equal(stats_of(f->cache).wasted, f->wasted);
    qm_cache_free(f->cache);
    free(f);
}

static const unsigned char *below(uint64_t block)
{
    return device + block * BLOCK;
}

/* A read of the layer below, which takes its copy now. */
struct reading {
    struct qm_fill *fill;
    unsigned char data[BLOCK];
};

static struct reading begin_read(struct fixture *f, uint64_t block)
{
    struct reading r;
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(f->cache, block, r.data, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_FETCH);
    r.fill = found.fill;
    memcpy(r.data, below(block), BLOCK);
    return r;
}

static bool end_read(struct fixture *f, const struct reading *r)
{
    return qm_cache_fill(f->cache, r->fill, r->data);
}

static void load(struct fixture *f, uint64_t block)
{
    struct reading r = begin_read(f, block);

    end_read(f, &r);
}

static struct qm_fill *wait_for(struct fixture *f, uint64_t block)
{
    struct qm_lookup found;
    unsigned char buf[BLOCK];

    assert_int_equal(qm_cache_demand(f->cache, block, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_WAIT);
    return found.fill;
}

static void expect_again(struct fixture *f, struct qm_fill *waiter)
{
    unsigned char buf[BLOCK];

    assert_int_equal(qm_cache_wait(f->cache, waiter, buf, 0, BLOCK), EAGAIN);
}

static void expect_cached(struct fixture *f, uint64_t block, const unsigned char *data)
{
    struct qm_lookup found;
    unsigned char buf[BLOCK];

    assert_int_equal(qm_cache_demand(f->cache, block, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_DONE);
    assert_memory_equal(buf, data, BLOCK);
}

/* What counts: whoever begins to read now gets what is below, from wherever. */
static void expect_current(struct fixture *f, uint64_t block)
{
    struct qm_lookup found;
    unsigned char buf[BLOCK];

    assert_int_equal(qm_cache_demand(f->cache, block, buf, 0, BLOCK, &found), 0);
    assert_int_not_equal(found.todo, QM_WAIT);
    if (found.todo == QM_DONE)
        assert_memory_equal(buf, below(block), BLOCK);
    else
        qm_cache_fill(f->cache, found.fill, below(block));
}

struct write {
    struct qm_cache_write w;
    unsigned char data[BLOCKS * BLOCK];
    uint64_t offset, count;
};

static struct write *begin_write(struct fixture *f, uint64_t offset, uint64_t count)
{
    struct write *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->offset = offset;
    w->count = count;
    for (uint64_t i = 0; i < count; i++)
        w->data[i] = rnd(&seed);
    qm_cache_write_begin(f->cache, &w->w, offset, count);
    return w;
}

static void write_below(struct write *w)
{
    memcpy(device + w->offset, w->data, w->count);
}

static void end_write(struct fixture *f, struct write *w, enum qm_write_result result)
{
    qm_cache_write_end(f->cache, &w->w, result,
                       result == QM_WRITE_DATA ? w->data : NULL);
    free(w);
}

static void write_through(struct fixture *f, uint64_t offset, uint64_t count)
{
    struct write *w = begin_write(f, offset, count);

    write_below(w);
    end_write(f, w, QM_WRITE_DATA);
}

/* When a read begins and ends relative to a write's begin, its way below, and its end.
 * Kept is only what lies wholly before or after; after the end everybody sees the new
 * bytes, in any case. */
TEST(test_fill_and_write)
{
    for (int read_begins = 0; read_begins <= 3; read_begins++)
        for (int read_ends = read_begins; read_ends <= 3; read_ends++)
            for (int partial = 0; partial <= 1; partial++) {
                struct fixture *f = set_up(8, 2);
                uint64_t offset = 3 * BLOCK + (partial ? 100 : 0);
                struct reading r = {0};
                struct write *w = NULL;
                bool overlap = read_begins < 3 && read_ends > 0;

                /* Steps: 0 before begin; 1 begun; 2 written below; 3 ended. */
                for (int step = 0; step <= 3; step++) {
                    if (step == 1)
                        w = begin_write(f, offset, partial ? 50 : BLOCK);
                    else if (step == 2)
                        write_below(w);
                    else if (step == 3)
                        end_write(f, w, QM_WRITE_DATA);
                    if (step == read_begins)
                        r = begin_read(f, 3);
                    if (step == read_ends) {
                        end_read(f, &r);
                        assert_int_equal(qm_cache_contains(f->cache, 3), !overlap);
                    }
                }
                assert_int_equal(qm_cache_contains(f->cache, 3), !overlap);
                assert_int_equal(stats_of(f->cache).detached, overlap);
                if (!overlap)
                    expect_cached(f, 3, below(3));
                expect_current(f, 3);
                expect_cached(f, 3, below(3));
                tear_down(f);
            }
}

FIXTURE(usual, set_up(8, 2), tear_down(it))

/* Waiters of a fill that a write overtook: they are sent to read again; who comes after
 * the end does not even meet the old fill. */
TEST_ON(test_waiters_of_a_stale_fill, usual, struct fixture *f)
{
    struct reading old = begin_read(f, 3), fresh;
    struct qm_fill *before = wait_for(f, 3), *during, *after;
    struct write *w = begin_write(f, 3 * BLOCK, BLOCK);
    unsigned char buf[BLOCK];

    write_below(w);
    during = wait_for(f, 3);
    end_write(f, w, QM_WRITE_DATA);
    fresh = begin_read(f, 3); /* not QM_WAIT */
    after = wait_for(f, 3);
    end_read(f, &old);
    expect_again(f, before);
    expect_again(f, during);
    end_read(f, &fresh);
    assert_int_equal(qm_cache_wait(f->cache, after, buf, 0, BLOCK), 0);
    assert_memory_equal(buf, below(3), BLOCK);
    expect_cached(f, 3, below(3));
}

/* Filled while the write was in flight: refused at once. */
TEST_ON(test_waiter_of_a_refused_fill, usual, struct fixture *f)
{
    struct reading r = begin_read(f, 3);
    struct qm_fill *waiter = wait_for(f, 3);
    struct write *w = begin_write(f, 3 * BLOCK + 1, 1);

    end_read(f, &r);
    expect_again(f, waiter);
    assert_false(qm_cache_contains(f->cache, 3));
    write_below(w);
    end_write(f, w, QM_WRITE_DATA);
    expect_current(f, 3);
}

/* Filled, then written, then the waiter looks: any of the two versions, whole. */
TEST_ON(test_waiter_of_a_block_written_since, usual, struct fixture *f)
{
    struct reading r = begin_read(f, 3);
    struct qm_fill *updated = wait_for(f, 3), *dropped;
    unsigned char buf[BLOCK];
    struct write *w;

    end_read(f, &r);
    write_through(f, 3 * BLOCK, BLOCK);
    assert_int_equal(qm_cache_wait(f->cache, updated, buf, 0, BLOCK), 0);
    assert_memory_equal(buf, below(3), BLOCK);

    r = begin_read(f, 4);
    dropped = wait_for(f, 4);
    end_read(f, &r);
    w = begin_write(f, 4 * BLOCK, BLOCK);
    write_below(w);
    end_write(f, w, QM_WRITE_DROP);
    assert_false(qm_cache_contains(f->cache, 4));
    assert_int_equal(qm_cache_wait(f->cache, dropped, buf, 0, BLOCK), 0);
    assert_memory_equal(buf, r.data, BLOCK);
}

/* Two writes to the same bytes at the same time, in both orders of their ends: nobody
 * knows which is below now. */
TEST(test_conflict)
{
    for (int order = 0; order < 2; order++) {
        struct fixture *f = set_up(8, 2);
        struct write *a, *b, *first, *second;
        struct reading r;

        load(f, 3);
        load(f, 4);
        a = begin_write(f, 3 * BLOCK, BLOCK + 10);
        b = begin_write(f, 3 * BLOCK + 200, 100);
        write_below(b);
        write_below(a);
        first = order ? a : b;
        second = order ? b : a;
        end_write(f, first, QM_WRITE_DATA);
        assert_false(qm_cache_contains(f->cache, 3));
        r = begin_read(f, 3); /* while the other is in flight */
        end_write(f, second, QM_WRITE_DATA);
        end_read(f, &r);
        assert_false(qm_cache_contains(f->cache, 3));
        for (uint64_t n = 3; n <= 4; n++)
            expect_current(f, n);
        tear_down(f);
    }
}

/* Writes of the same block that share no byte do not conflict: each puts in its own. */
TEST_ON(test_same_block_without_conflict, usual, struct fixture *f)
{
    struct write *a, *b, *empty;

    load(f, 3);
    a = begin_write(f, 3 * BLOCK, 100);
    b = begin_write(f, 3 * BLOCK + 100, 100);
    empty = begin_write(f, 3 * BLOCK + 50, 0);
    write_below(b);
    write_below(a);
    end_write(f, b, QM_WRITE_DATA);
    assert_true(qm_cache_contains(f->cache, 3));
    end_write(f, empty, QM_WRITE_DATA);
    end_write(f, a, QM_WRITE_DATA);
    expect_cached(f, 3, below(3));
}

/* Evicted and filled again while a write is in flight. */
TEST(test_evicted_during_write)
{
    struct fixture *f = set_up(1, 0);
    struct write *w;
    struct reading r;

    load(f, 3);
    w = begin_write(f, 3 * BLOCK, BLOCK);
    expect_cached(f, 3, below(3)); /* the old bytes, still */
    load(f, 5);
    r = begin_read(f, 3);
    write_below(w);
    end_write(f, w, QM_WRITE_DATA);
    end_read(f, &r);
    assert_false(qm_cache_contains(f->cache, 3));
    expect_current(f, 3);
    tear_down(f);
}

/* Far more blocks than the cache has: another way through it, the same result. */
TEST(test_long_ranges)
{
    static const enum qm_write_result results[] = {QM_WRITE_ZEROS, QM_WRITE_DROP};

    for (int i = 0; i < 4; i++) {
        struct fixture *f = set_up(24, 8);
        uint64_t end = i < 2 ? UINT64_MAX : sizeof(device);
        struct qm_fill *prefetching;
        struct write *w;

        for (uint64_t b = 0; b < 16; b++)
            load(f, b * 3);
        assert_int_equal(qm_cache_prefetch(f->cache, 61, 7, &prefetching), 0);
        w = begin_write(f, BLOCK + 9, 0);
        end_write(f, w, QM_WRITE_DATA);
        w = calloc(1, sizeof(*w));
        assert_non_null(w);
        qm_cache_write_begin(f->cache, &w->w, 6 * BLOCK + 9, end - 6 * BLOCK - 9);
        memset(device + 6 * BLOCK + 9, 0, sizeof(device) - 6 * BLOCK - 9);
        end_write(f, w, results[i % 2]);
        assert_false(qm_cache_contains(f->cache, 61));
        qm_cache_fail(f->cache, prefetching);
        expect_cached(f, 0, below(0));
        expect_cached(f, 3, below(3));
        for (uint64_t b = 6; b <= 45; b += 3) {
            assert_int_equal(qm_cache_contains(f->cache, b),
                             results[i % 2] == QM_WRITE_ZEROS);
            expect_current(f, b);
        }
        tear_down(f);
    }
}

/* A reader whose fill was evicted, and so not kept, is not ahead of the next one. */
TEST(test_peek)
{
    struct fixture *f = set_up(2, 1);
    unsigned char buf[BLOCK], old[BLOCK];
    struct qm_fill *prefetched;
    struct reading r, other;
    struct write *w;

    assert_false(qm_cache_peek(f->cache, 3, buf, 0, BLOCK));
    r = begin_read(f, 3);
    load(f, 5);
    assert_false(qm_cache_peek(f->cache, 3, buf, 0, BLOCK));
    other = begin_read(f, 3);
    assert_false(qm_cache_peek(f->cache, 3, buf, 0, BLOCK)); /* not filled yet */
    memcpy(old, below(3), BLOCK);
    assert_true(end_read(f, &other));
    w = begin_write(f, 3 * BLOCK, BLOCK);
    write_below(w);
    memcpy(r.data, below(3), BLOCK);
    assert_false(end_read(f, &r));
    assert_true(qm_cache_peek(f->cache, 3, r.data, 0, BLOCK));
    assert_memory_equal(r.data, old, BLOCK);
    expect_cached(f, 3, old);
    end_write(f, w, QM_WRITE_DATA);
    assert_true(qm_cache_peek(f->cache, 3, buf, 7, 9));
    assert_memory_equal(buf, below(3) + 7, 9);

    /* It demands nothing. */
    assert_int_equal(qm_cache_prefetch(f->cache, 6, 1, &prefetched), 0);
    qm_cache_fill(f->cache, prefetched, below(6));
    assert_true(qm_cache_peek(f->cache, 6, buf, 0, BLOCK));
    assert_memory_equal(buf, below(6), BLOCK);
    assert_int_equal(stats_of(f->cache).prefetch_hits, 0);
    assert_int_equal(stats_of(f->cache).hits, 1);
    assert_int_equal(stats_of(f->cache).misses, 3);
    tear_down(f);
}
