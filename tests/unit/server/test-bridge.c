/* SPDX-License-Identifier: BSD-3-Clause */
/* test-bridge.c - requests of whose blocks some in the middle are cached, or being
 * read: read over with the others, if they are few, and what was read of them
 * forgotten.
 */
#include <errno.h>

#include "tests/harness.h"

#include "bare.h"

#define BLOCK  BARE_BLOCK
#define BRIDGE 3 /* blocks */

/* The server has seen a hundred reads, each of 28 s and 4 s a block: the time in which
 * one begins is that of 2 * BRIDGE + 1 blocks.  Beside them, the test's own reads,
 * which take no time, do not count. */
static void took(struct bare *b)
{
    const uint64_t block_ns = UINT64_C(4000000000);
    const uint64_t begin_ns = (2 * BRIDGE + 1) * block_ns;

    qm_latency_destroy(&b->s.latency);
    qm_latency_init(&b->s.latency);
    for (uint64_t i = 0; i < 100; i++)
        qm_latency_took(&b->s.latency, QM_PLACE_BACKEND, (i % 16 + 1) * BLOCK,
                        begin_ns + (i % 16 + 1) * block_ns);
}

static struct bare *make(void)
{
    struct bare *b = bare_new(200, 8);

    took(b);
    return b;
}

FIXTURE(bridging, make(), bare_free(it))

static void cache(struct bare *b, uint64_t block, unsigned n)
{
    bare_check(b, block * BLOCK, n * BLOCK);
}

static bool is_cached(struct bare *b, uint64_t block)
{
    return qm_cache_contains(b->s.cache, block);
}

/* How many calls a read takes, which gets what the disk has. */
static unsigned calls_for(struct bare *b, uint64_t offset, uint32_t count)
{
    unsigned before = b->call_count;

    took(b);
    bare_check(b, offset, count);
    return b->call_count - before;
}

/* With the length of the gap: not if nothing is known, or reads are of one size. */
TEST_ON(test_gaps, bridging, struct bare *b)
{
    for (unsigned gap = 1; gap <= BRIDGE + 1; gap++) {
        const uint64_t first = 10 * (gap - 1);

        cache(b, first + 1, gap);
        assert_int_equal(calls_for(b, first * BLOCK, (gap + 2) * BLOCK),
                         gap <= BRIDGE ? 1 : 2);
        for (uint64_t i = 0; i < gap + 2; i++)
            assert_true(is_cached(b, first + i));
        assert_int_equal(calls_for(b, first * BLOCK, (gap + 2) * BLOCK), 0);
    }
    for (unsigned known = 0; known < 2; known++) {
        unsigned before;

        cache(b, 41 + 3 * known, 1);
        qm_latency_destroy(&b->s.latency);
        qm_latency_init(&b->s.latency);
        for (unsigned i = 0; known && i < 100; i++)
            qm_latency_took(&b->s.latency, QM_PLACE_BACKEND, BLOCK, 1000000000);
        before = b->call_count;
        bare_check(b, (40 + 3 * known) * BLOCK, 3 * BLOCK);
        assert_int_equal(b->call_count - before, 2);
    }
}

/* Several gaps, each short; and no call has more blocks than the disk allows. */
TEST_ON(test_several, bridging, struct bare *b)
{
    cache(b, 5, 2);
    cache(b, 8, 3);
    cache(b, 13, 1);
    assert_int_equal(calls_for(b, 4 * BLOCK, 12 * BLOCK), 1);
    for (uint64_t block = 21; block < 40; block += 2)
        cache(b, block, 1);
    assert_int_equal(calls_for(b, 20 * BLOCK, 20 * BLOCK), 2);
    for (unsigned i = b->call_count - 2; i < b->call_count; i++)
        assert_true(b->calls[i].count <= b->s.max_bytes);
}

/* What is cached at either end is not read; nor is the end of the disk passed. */
TEST_ON(test_ends, bridging, struct bare *b)
{
    cache(b, 4, 1);
    cache(b, 6, 1);
    cache(b, 8, 1);
    assert_int_equal(calls_for(b, 4 * BLOCK, 5 * BLOCK), 1);
    assert_int_equal(bare_calls(b, BARE_READ, 4), 1);
    assert_int_equal(bare_calls(b, BARE_READ, 6), 2);
    assert_int_equal(bare_calls(b, BARE_READ, 8), 1);
    cache(b, BARE_BLOCKS - 2, 1);
    assert_int_equal(calls_for(b, (BARE_BLOCKS - 3) * BLOCK, 2 * BLOCK + BARE_TAIL), 1);
    cache(b, 31, 1);
    assert_int_equal(calls_for(b, 30 * BLOCK + 7, 3 * BLOCK - 11), 1);
}

/* The bytes of a block that is cached are the cache's, whatever the disk has: it may
 * have those of a write that nobody has seen. */
TEST(test_whose_bytes)
{
    for (unsigned aligned = 0; aligned < 2; aligned++) {
        struct bare *b = bare_new(200, 8);
        const unsigned skip = aligned ? 0 : 9;
        unsigned char before[3 * BLOCK];
        struct bare_trap *writing;
        struct bare_job *writer;

        cache(b, 5, 1);
        memcpy(before, b->disk + 4 * BLOCK, sizeof before);
        writing = bare_trap(b, BARE_WRITE, 5, true);
        writer = bare_start(b, BARE_WRITE, 5 * BLOCK, BLOCK);
        bare_await(b, writing);
        took(b);
        assert_int_equal(
            bare_join(bare_start(b, BARE_READ, 4 * BLOCK + skip, 3 * BLOCK - skip),
                      before + skip),
            0);
        assert_int_equal(bare_calls(b, BARE_READ, 5), 2);
        assert_int_equal(
            bare_join(bare_start(b, BARE_READ, 5 * BLOCK, BLOCK), before + BLOCK), 0);
        bare_open(b, writing);
        assert_int_equal(bare_join(writer, NULL), 0);
        cache(b, 4, 3);
        bare_free(b);
    }
}

/* A block that another reads is waited for, and asked for if that fails. */
TEST(test_being_read)
{
    for (unsigned fails = 0; fails < 2; fails++) {
        struct bare *b = make();
        struct bare_trap *reading = bare_trap(b, BARE_READ, 5, false);
        struct bare_job *first, *second;

        reading->error = fails ? EIO : 0;
        first = bare_start(b, BARE_READ, 5 * BLOCK, BLOCK);
        bare_await(b, reading);
        second = bare_start(b, BARE_READ, 4 * BLOCK, 3 * BLOCK);
        bare_await_waiter(b, 5, 1, 3);
        bare_open(b, reading);
        assert_int_equal(bare_join(first, NULL), fails ? EIO : 0);
        assert_int_equal(bare_join(second, b->disk + 4 * BLOCK), 0);
        assert_int_equal(bare_calls(b, BARE_READ, 4), 1);
        assert_int_equal(bare_calls(b, BARE_READ, 5), 2 + fails);
        cache(b, 4, 3);
        bare_free(b);
    }
}

/* An error of what is read over is nobody's: what is wanted is read without it. */
TEST(test_errors)
{
    for (unsigned aligned = 0; aligned < 2; aligned++) {
        struct bare *b = make();
        const unsigned skip = aligned ? 0 : 9;

        cache(b, 6, 1);
        cache(b, 9, 2);
        bare_fail(b, BARE_READ, 9);
        assert_int_equal(calls_for(b, 4 * BLOCK + skip, 9 * BLOCK - skip), 1 + 3);
        assert_int_equal(bare_calls(b, BARE_READ, 6), 2);
        assert_int_equal(calls_for(b, 4 * BLOCK, 9 * BLOCK), 0);
        /* Of what is wanted it is the asker's. */
        cache(b, 21, 1);
        bare_fail(b, BARE_READ, 22);
        bare_fail(b, BARE_READ, 22);
        assert_int_equal(bare_do(b, BARE_READ, 20 * BLOCK + skip, 3 * BLOCK - skip),
                         EIO);
        assert_true(is_cached(b, 21));
        assert_false(is_cached(b, 22));
        assert_int_equal(calls_for(b, 21 * BLOCK, BLOCK), 0);
        cache(b, 20, 3);
        /* Nor is it forgotten when what follows is read well. */
        cache(b, 31, 1);
        bare_fail(b, BARE_READ, 30);
        bare_fail(b, BARE_READ, 30);
        took(b);
        assert_int_equal(bare_do(b, BARE_READ, 30 * BLOCK + skip, 3 * BLOCK - skip),
                         EIO);
        assert_false(is_cached(b, 30));
        cache(b, 30, 3);
        bare_free(b);
    }
}

static _Atomic size_t refused; /* bytes of which there is no memory */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return size == atomic_load(&refused) ? NULL : __real_malloc(size);
}

/* Without memory to save what is there, that is not read over. */
TEST_ON(test_without_memory, bridging, struct bare *b)
{
    const unsigned skip = 9;

    cache(b, 5, 1);
    cache(b, 7, 1);
    refused = 3 * BLOCK; /* of 4 to 6; the reader has 4 blocks */
    assert_int_equal(calls_for(b, 4 * BLOCK, 4 * BLOCK), 2);
    assert_int_equal(bare_calls(b, BARE_READ, 5), 1);
    cache(b, 15, 1);
    cache(b, 17, 1);
    took(b);
    assert_int_equal(bare_do(b, BARE_READ, 14 * BLOCK + skip, 4 * BLOCK - skip),
                     ENOMEM);
    assert_int_equal(bare_do(b, BARE_READ, 24 * BLOCK + skip, 3 * BLOCK - skip),
                     ENOMEM);
    refused = 0;
    assert_false(is_cached(b, 14) || is_cached(b, 16));
    cache(b, 14, 4);
    cache(b, 24, 3);
}

/* Reads a block, and has the thread that prefetches hang meanwhile, at block 40: what
 * is wanted later stays queued. */
static struct bare_trap *hang(struct bare *b, uint64_t block)
{
    struct bare_trap *prefetching = bare_trap(b, BARE_PREFETCH, 40, false);

    b->fake.wants[0] = 40;
    b->fake.want_n = 1;
    cache(b, block, 1);
    b->fake.want_n = 0;
    bare_await(b, prefetching);
    return prefetching;
}

/* With prefetches behind them, which end well, or badly. */
TEST(test_joined)
{
    for (unsigned fails = 0; fails < 2; fails++) {
        struct bare *b = bare_new(64, 16);
        struct bare_trap *prefetching = hang(b, 11);

        memcpy(b->fake.wants, (uint64_t[]){13, 14}, 2 * sizeof(uint64_t));
        b->fake.want_n = 2;
        if (fails)
            bare_fail(b, BARE_READ, 14);
        assert_int_equal(calls_for(b, 10 * BLOCK, 3 * BLOCK), fails ? 3 : 1);
        b->fake.want_n = 0;
        assert_int_equal(is_cached(b, 13), !fails);
        assert_int_equal(is_cached(b, 14), !fails);
        cache(b, 10, 5);
        bare_open(b, prefetching);
        bare_await_quiet(b);
        bare_free(b);
    }
}

/* Begins to fill blocks until the cache has no room for another.  Returns how many. */
static unsigned fill_up(struct bare *b, struct qm_fill **held)
{
    struct qm_lookup found;
    unsigned n = 0;
    char nowhere;

    while (qm_cache_demand(b->s.cache, 1000 + n, &nowhere, 0, 0, &found) == 0) {
        held[n] = found.fill;
        assert_true(++n < 4096);
    }
    return n;
}

static void make_room(struct bare *b, struct qm_fill **held, unsigned n)
{
    while (n > 0)
        qm_cache_fail(b->s.cache, held[--n]);
}

/* What the cache has no room for is read with the others: between two that are for the
 * cache; and all. */
TEST(test_without_room)
{
    struct bare *b = bare_new(32, 16);
    struct bare_trap *prefetching = bare_trap(b, BARE_PREFETCH, 40, false);
    struct qm_fill *held[4096];
    unsigned n;

    memcpy(b->fake.wants, (uint64_t[]){40, 6}, 2 * sizeof(uint64_t));
    b->fake.want_n = 2;
    cache(b, 0, 1);
    b->fake.want_n = 0;
    bare_await(b, prefetching); /* and 6 is queued */
    n = fill_up(b, held);
    qm_cache_fail(b->s.cache, held[--n]);
    assert_int_equal(calls_for(b, 4 * BLOCK + 5, 3 * BLOCK - 9), 1);
    assert_true(is_cached(b, 4) && is_cached(b, 6));
    assert_false(is_cached(b, 5));
    n += fill_up(b, held + n);
    for (unsigned skip = 0; skip < 10; skip += 9)
        assert_int_equal(calls_for(b, 10 * BLOCK + skip, 3 * BLOCK - 2 * skip), 1);
    assert_int_equal(calls_for(b, 20 * BLOCK + 10, 20), 1);
    assert_int_equal(b->calls[b->call_count - 1].count, 20);
    for (unsigned skip = 0; skip < 10; skip += 9) {
        bare_fail(b, BARE_READ, 24);
        assert_int_equal(bare_do(b, BARE_READ, 23 * BLOCK + skip, 2 * BLOCK), EIO);
    }
    assert_int_equal(qms_stats_get(b->s.stats, QMS_PAST), 1 + 2 * 3 + 1 + 2 + 3);
    make_room(b, held, n);
    bare_open(b, prefetching);
    bare_await_quiet(b);
    bare_free(b);
}

/* Nor is such a read ahead of others while a write is in flight. */
TEST(test_without_room_nor_ahead)
{
    for (unsigned skip = 0; skip < 10; skip += 9) {
        struct bare *b = bare_new(32, 16);
        struct bare_trap *reading = bare_trap(b, BARE_READ, 4, false), *writing;
        struct bare_job *reader, *writer;
        unsigned char before[3 * BLOCK];
        struct qm_fill *held[4096];
        unsigned n = fill_up(b, held);

        memcpy(before, b->disk + 3 * BLOCK, sizeof before);
        reader = bare_start(b, BARE_READ, 3 * BLOCK + skip, 3 * BLOCK - skip);
        bare_await(b, reading);
        make_room(b, held, n);
        cache(b, 4, 1); /* by another, and kept */
        writing = bare_trap(b, BARE_WRITE, 4, true);
        writer = bare_start(b, BARE_WRITE, 4 * BLOCK, BLOCK);
        bare_await(b, writing);
        bare_open(b, reading);
        assert_int_equal(bare_join(reader, before + skip), 0);
        bare_open(b, writing);
        assert_int_equal(bare_join(writer, NULL), 0);
        cache(b, 3, 3);
        bare_free(b);
    }
}

/* A connection that knows less of the last block than the server does reads that past
 * the cache; advice, which wants no bytes of it, not at all. */
TEST_ON(test_cut_advice, bridging, struct bare *b)
{
    const uint64_t last = BARE_BLOCKS - 1;

    b->s.size = BARE_SIZE + 1;
    assert_int_equal(bare_do(b, BARE_PREFETCH, (last - 2) * BLOCK, 2 * BLOCK + 1), 0);
    assert_int_equal(bare_calls(b, BARE_READ, last - 1), 1);
    assert_int_equal(bare_calls(b, BARE_READ, last), 0);
    assert_false(is_cached(b, last));
    assert_int_equal(calls_for(b, last * BLOCK + 7, 20), 1);
    assert_false(is_cached(b, last));
}

/* A tier of which nothing is known to be right yet but these blocks. */
static struct {
    const unsigned char *disk;
    uint64_t has;       /* a bit for each block */
    size_t most;        /* blocks that it was asked for at once */
    uint64_t told[8];   /* blocks that it was told of, and how many; the rest is 0 */
    unsigned told_n[8]; /* each as often as it was */
} tier;

static void attach(struct bare *b, uint64_t has)
{
    memset(&tier, 0, sizeof tier);
    tier.disk = b->disk;
    tier.has = has;
    atomic_store(&b->s.tiers.served, (struct qm_tier *)&tier);
}

size_t __wrap_qm_tier_read(struct qm_tier *t, struct qm_tier_read *reads, size_t n);
size_t __wrap_qm_tier_read(struct qm_tier *t, struct qm_tier_read *reads, size_t n)
{
    size_t hits = 0;

    for (size_t i = 0; i < n; i++) {
        reads[i].hit = tier.has >> reads[i].block & 1;
        if (reads[i].hit)
            memcpy(reads[i].buf, tier.disk + reads[i].block * BLOCK, BLOCK);
        hits += reads[i].hit;
    }
    tier.most = n > tier.most ? n : tier.most;
    return hits;
}

uint64_t __wrap_qm_tier_unverified(struct qm_tier *t);
uint64_t __wrap_qm_tier_unverified(struct qm_tier *t)
{
    return 1;
}

void __wrap_qm_tier_verify(struct qm_tier *t, uint64_t block, const void *data,
                           uint64_t n);
void __wrap_qm_tier_verify(struct qm_tier *t, uint64_t block, const void *data,
                           uint64_t n)
{
    unsigned i = 0;

    while (tier.told_n[i] > 0)
        assert_true(++i < 8);
    tier.told[i] = block;
    tier.told_n[i] = (unsigned)n;
    assert_memory_equal(data, tier.disk + block * BLOCK, n * BLOCK);
}

void __wrap_qm_tier_touch(struct qm_tier *t, uint64_t block);
void __wrap_qm_tier_touch(struct qm_tier *t, uint64_t block)
{
}

/* Whether the i-th that it was told of were these. */
static void check_told(unsigned i, uint64_t block, unsigned n)
{
    assert_int_equal(tier.told[i], block);
    assert_int_equal(tier.told_n[i], n);
}

/* It is told of the blocks that are read for the cache, with the prefetches behind
 * them; not of what is read over, which may be older in the cache, or newer. */
TEST(test_tier_is_told)
{
    struct bare *b = bare_new(64, 16);
    struct bare_trap *prefetching = hang(b, 11);

    attach(b, 0);
    memcpy(b->fake.wants, (uint64_t[]){14, 15}, 2 * sizeof(uint64_t));
    b->fake.want_n = 2;
    assert_int_equal(calls_for(b, 10 * BLOCK, 4 * BLOCK), 1);
    b->fake.want_n = 0;
    check_told(0, 10, 1);
    check_told(1, 12, 4);
    check_told(2, 0, 0);
    bare_open(b, prefetching);
    bare_await_quiet(b);
    bare_free(b);
}

/* Nor of what the cache has no room for: no fill says that it is what the disk has. */
TEST(test_tier_is_not_told_of_what_is_past)
{
    struct bare *b = bare_new(32, 16);
    struct qm_fill *held[4096];
    unsigned n = fill_up(b, held);

    attach(b, 0);
    assert_int_equal(calls_for(b, 10 * BLOCK, 3 * BLOCK), 1);
    check_told(0, 0, 0);
    qm_cache_fail(b->s.cache, held[--n]);
    assert_int_equal(calls_for(b, 20 * BLOCK, 3 * BLOCK), 1);
    check_told(0, 20, 1);
    check_told(1, 0, 0);
    make_room(b, held, n);
    bare_free(b);
}

/* What the tier has of a request is read over, too, and stays what the tier had. */
TEST_ON(test_tier_has_some, bridging, struct bare *b)
{
    attach(b, UINT64_C(1) << 5 | UINT64_C(1) << 6);
    assert_int_equal(calls_for(b, 4 * BLOCK, 4 * BLOCK), 1);
    check_told(0, 4, 1);
    check_told(1, 7, 1);
    check_told(2, 0, 0);
    assert_int_equal(calls_for(b, 4 * BLOCK, 4 * BLOCK), 0);
}

/* Advice has no memory of a client's to read to: it takes no more of its own than a
 * read of the disk does. */
TEST_ON(test_tier_advice, bridging, struct bare *b)
{
    attach(b, UINT64_MAX >> 1);
    assert_int_equal(bare_do(b, BARE_PREFETCH, 0, 60 * BLOCK), 0);
    assert_int_equal(b->call_count, 0);
    for (uint64_t block = 0; block < 60; block++)
        assert_true(is_cached(b, block));
    assert_int_equal(tier.most, b->s.max_bytes / BLOCK);
}
