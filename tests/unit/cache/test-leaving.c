/* SPDX-License-Identifier: BSD-3-Clause */
/* test-leaving.c - blocks that leave are handed over: those that should be, with their
 * last data and the number of the moment in which they left, and no others.
 */
#include "testing.h"

#define BLOCK  512
#define BLOCKS 256

struct fixture {
    struct qm_cache *cache;
    uint64_t moment;           /* leaving() returns it */
    unsigned char has[BLOCKS]; /* what evicted() was given of each block, its first byte
                                */
    uint64_t number[BLOCKS];   /* likewise */
    unsigned times[BLOCKS], all; /* how often */
};

static uint64_t leaving(void *opaque, uint64_t block)
{
    struct fixture *f = opaque;

    /* So that all bits are seen to come through. */
    return f->moment << 32 | (uint32_t)~f->moment;
}

static void evicted(void *opaque, uint64_t block, const void *data, uint64_t number)
{
    struct fixture *f = opaque;
    const unsigned char *bytes = data;

    assert_true(block < BLOCKS);
    for (unsigned i = 1; i < BLOCK; i++)
        assert_int_equal(bytes[i], bytes[0]);
    assert_int_equal((uint32_t)number, (uint32_t) ~(number >> 32));
    f->has[block] = bytes[0];
    f->number[block] = number >> 32;
    f->times[block]++;
    f->all++;
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
                                                   .leaving = leaving,
                                                   .evicted = evicted,
                                                   .opaque = f});
    return f;
}

static void tear_down(struct fixture *f)
{
    check_identities(f->cache, 0);
    qm_cache_free(f->cache);
    free(f);
}

static void fill(struct fixture *f, struct qm_fill *fill, unsigned char value)
{
    unsigned char data[BLOCK];

    memset(data, value, BLOCK);
    (void)qm_cache_fill(f->cache, fill, data);
}

static struct qm_fill *begin(struct fixture *f, uint64_t block)
{
    unsigned char data[BLOCK];
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(f->cache, block, data, 0, BLOCK, &found), 0);
    return found.todo == QM_FETCH ? found.fill : NULL;
}

static void demand(struct fixture *f, uint64_t block, unsigned char value)
{
    struct qm_fill *reading = begin(f, block);

    if (reading)
        fill(f, reading, value);
}

static void change(struct fixture *f, uint64_t block, unsigned char value, bool drop)
{
    unsigned char data[BLOCK];
    struct qm_cache_write w;

    memset(data, value, BLOCK);
    qm_cache_write_begin(f->cache, &w, block * BLOCK, BLOCK);
    qm_cache_write_end(f->cache, &w, drop ? QM_WRITE_DROP : QM_WRITE_DATA,
                       drop ? NULL : data);
}

TEST(test_evicted_blocks)
{
    struct fixture *f = set_up(16, 0);

    for (uint64_t block = 0; block < BLOCKS; block++) {
        f->moment = block;
        demand(f, block, (unsigned char)(block * 7));
    }
    /* With the mutex of a shard held nothing is handed over, so some may be on their
     * way. */
    assert_true(f->all >= BLOCKS - 16 - 8);
    qm_cache_flush(f->cache);
    assert_int_equal(f->all, BLOCKS);
    for (uint64_t block = 0; block < BLOCKS; block++) {
        assert_int_equal(f->times[block], 1);
        assert_int_equal(f->has[block], (unsigned char)(block * 7));
        /* Block n is evicted by block n + 16. */
        assert_int_equal(f->number[block],
                         block + 16 < BLOCKS ? block + 16 : BLOCKS - 1);
    }
    assert_true(qm_cache_contains(f->cache, BLOCKS - 1));
    tear_down(f);
}

FIXTURE(four, set_up(4, 0), tear_down(it))

TEST_ON(test_last_data, four, struct fixture *f)
{
    demand(f, 0, 1);
    demand(f, 1, 1);
    change(f, 0, 2, false);
    change(f, 1, 2, true); /* it leaves, but is not handed over */
    for (uint64_t block = 8; block < 12; block++)
        demand(f, block, 3);
    change(f, 0, 4, false); /* it has left: what it had then is handed over */
    for (uint64_t block = 12; block < 64; block++)
        demand(f, block, 3);
    qm_cache_flush(f->cache);
    assert_int_equal(f->times[0], 1);
    assert_int_equal(f->has[0], 2);
    assert_int_equal(f->times[1], 0);
}

TEST_ON(test_blocks_without_data, four, struct fixture *f)
{
    struct qm_fill *early = begin(f, 0), *failed = begin(f, 1);

    qm_cache_fail(f->cache, failed);
    for (uint64_t block = 8; block < 64; block++)
        demand(f, block, 3);
    fill(f, early, 1); /* it was evicted before */
    qm_cache_flush(f->cache);
    assert_int_equal(f->times[0], 0);
    assert_int_equal(f->times[1], 0);
    assert_int_equal(f->all, 56);
}

/* A reader that waits has a reference, with which its block leaves. */
TEST_ON(test_evicted_with_a_reference, four, struct fixture *f)
{
    struct qm_fill *owner = begin(f, 0);
    unsigned char data[BLOCK];
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(f->cache, 0, data, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_WAIT);
    fill(f, owner, 5);
    for (uint64_t block = 8; block < 64; block++)
        demand(f, block, 3);
    assert_int_equal(f->times[0], 0);
    assert_int_equal(qm_cache_wait(f->cache, found.fill, data, 0, BLOCK), 0);
    assert_int_equal(data[7], 5);
    qm_cache_flush(f->cache);
    assert_int_equal(f->times[0], 1);
    assert_int_equal(f->has[0], 5);
}

TEST(test_prefetched_blocks)
{
    struct fixture *f = set_up(16, 4);
    struct qm_fill *ahead;

    for (uint64_t block = 0; block < 8; block++) {
        assert_int_equal(qm_cache_prefetch(f->cache, block, 0, &ahead), 0);
        fill(f, ahead, 1);
        if (block == 2)
            demand(f, block, 9); /* it has its data */
    }
    for (uint64_t block = 64; block < 128; block++)
        demand(f, block, 3);
    qm_cache_flush(f->cache);
    for (uint64_t block = 0; block < 8; block++)
        assert_int_equal(f->times[block], block == 2);
    assert_int_equal(f->has[2], 1);
    tear_down(f);
}

TEST(test_shrinking)
{
    struct fixture *f = set_up(64, 0);

    for (uint64_t block = 0; block < 64; block++)
        demand(f, block, (unsigned char)block);
    assert_int_equal(qm_cache_resize(f->cache, 8), 0);
    qm_cache_flush(f->cache);
    for (uint64_t block = 0; block < 64; block++) {
        assert_int_equal(f->times[block], 1);
        assert_int_equal(f->has[block], (unsigned char)block);
    }
    tear_down(f);
}
