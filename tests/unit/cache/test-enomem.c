/* SPDX-License-Identifier: BSD-3-Clause */
/* test-enomem.c - no memory, at each place where the cache asks for some: an error that
 * the header names, nothing leaked (the address sanitizer looks), and it works again
 * when there is memory.
 *
 * Linked with --wrap for malloc, calloc, aligned_alloc and mmap: liburcu's own are not.
 */
#include "cache/eviction.h"
#include <sys/mman.h>

#include "testing.h"
#include "tests/unit/no-memory.h"

#define BLOCK 4096

void *__real_mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset);

void *__wrap_mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    return refuse(size) ? MAP_FAILED : __real_mmap64(at, size, prot, flags, fd, offset);
}

static const struct qm_cache_config config = {
    .block_size = BLOCK,
    .blocks = 3000,
    .prefetch_blocks = 200,
    .shards = 4,
    .eviction = "lru",
    .data = true,
};

TEST(test_new)
{
    for (size_t i = 0; i < POLICIES; i++) {
        struct qm_cache_config c = config;
        struct qm_cache *cache = NULL;
        int err = ENOMEM;
        long n;

        c.eviction = policies[i];
        c.prefetch_adapts = i % 2;
        c.shadow = i / 2 % 2;
        for (n = 0; err == ENOMEM; n++) {
            countdown = n;
            err = qm_cache_new(&c, &cache);
            countdown = -1;
            if (err == ENOMEM)
                assert_null(cache);
        }
        assert_int_equal(err, 0);
        assert_true(n > 10); /* the cache, its shards, and some for each of these */
        qm_cache_free(cache);
    }
}

/* A policy takes what it declares, when it is made, and no more afterwards. */
TEST(test_policies_are_bounded)
{
    static const size_t capacities[] = {0,    1,    2,    3,     7,     8,
                                        9,    100,  512,  513,   1000,  1024,
                                        1025, 5000, 8191, 32768, 65536, 100001};
    static const size_t per_allocation = 16; /* the allocator's own */

    for (size_t i = 0; i < POLICIES; i++)
        for (size_t k = 0; k < sizeof(capacities) / sizeof(capacities[0]); k++) {
            const struct qm_evict_ops *ops = qm_evict_find(policies[i]);
            size_t capacity = capacities[k], before = asked, bytes;
            struct qm_evict_node *nodes = calloc(capacity + 1, sizeof(nodes[0]));
            void *policy;

            assert_non_null(nodes);
            asked_bytes = 0;
            before = asked;
            policy = ops->create(capacity);
            assert_non_null(policy);
            bytes = asked_bytes + (asked - before) * per_allocation;
            assert_true(bytes <= 256 + qm_evict_bytes(ops, capacity));
            before = asked;
            for (size_t b = 0; b < 4 * capacity; b++) {
                struct qm_evict_node *node = &nodes[b];

                if (b >= capacity)
                    node = ops->evict(policy, b);
                node->block = b;
                ops->insert(policy, node);
                if (b % 3 == 0)
                    ops->touch(policy, node);
            }
            assert_int_equal(asked, before);
            ops->destroy(policy);
            free(nodes);
        }
}

TEST(test_no_header)
{
    struct qm_cache *cache = new_cache(&config);
    struct qm_cache_stats before = stats_of(cache), after;
    unsigned char buf[BLOCK] = {0};
    struct qm_lookup found;
    struct qm_fill *fill;

    countdown = 0;
    assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &found), ENOMEM);
    assert_int_equal(qm_cache_prefetch(cache, 1, 0, &fill), ENOMEM);
    countdown = -1;
    after = stats_of(cache);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_false(qm_cache_contains(cache, 1));
    assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &found), 0);
    assert_int_equal(found.todo, QM_FETCH);
    qm_cache_fill(cache, found.fill, buf);
    assert_true(qm_cache_contains(cache, 1));
    qm_cache_free(cache);
}

/* Neither of the two allocations of a slab of buffers: what is filled is not kept. */
TEST(test_no_buffer)
{
    for (int n = 0; n < 2; n++) {
        struct qm_cache *cache = new_cache(&config);
        unsigned char buf[BLOCK] = {0};
        struct qm_lookup found, waiter;
        struct qm_fill *fill;

        assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &found), 0);
        assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &waiter), 0);
        assert_int_equal(qm_cache_prefetch(cache, 2, 0, &fill), 0);
        countdown = n;
        qm_cache_fill(cache, found.fill, buf);
        countdown = 0;
        qm_cache_fill(cache, fill, buf);
        countdown = -1;
        assert_int_equal(qm_cache_wait(cache, waiter.fill, buf, 0, BLOCK), EAGAIN);
        assert_false(qm_cache_contains(cache, 1));
        assert_false(qm_cache_contains(cache, 2));
        assert_int_equal(stats_of(cache).detached, 2);
        assert_int_equal(stats_of(cache).wasted, 1);
        check_identities(cache, 0);
        qm_cache_free(cache);
    }
}

/* A hit asks for none: a thousand of them, and not one allocation. */
TEST(test_hits_do_not_allocate)
{
    struct qm_cache *cache = new_cache(&config);
    unsigned char buf[BLOCK] = {0};
    struct qm_lookup found;
    unsigned long before;

    assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &found), 0);
    qm_cache_fill(cache, found.fill, buf);
    before = asked;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(qm_cache_demand(cache, 1, buf, 0, BLOCK, &found), 0);
        assert_int_equal(found.todo, QM_DONE);
    }
    assert_int_equal(asked, before);
    qm_cache_free(cache);
}

static void read_all(struct qm_cache *cache, uint64_t blocks)
{
    unsigned char buf[BLOCK] = {0};
    struct qm_lookup found;

    for (uint64_t b = 0; b < blocks; b++) {
        assert_int_equal(qm_cache_demand(cache, b, buf, 0, BLOCK, &found), 0);
        if (found.todo == QM_FETCH)
            qm_cache_fill(cache, found.fill, buf);
    }
}

/* Each allocation of growing fails once: the cache stays as large as it was.  Each of
 * shrinking does: it is as small as was asked for. */
TEST(test_resize)
{
    for (size_t i = 0; i < POLICIES; i++) {
        struct qm_cache_config c = config;
        struct qm_cache *cache;
        int err = ENOMEM;
        long n;

        c.eviction = policies[i];
        c.prefetch_adapts = i % 2 == 0;
        c.shadow = true;
        cache = new_cache(&c);
        read_all(cache, 4000);
        for (n = 0; err != 0; n++) {
            countdown = n;
            err = qm_cache_resize(cache, 9000);
            countdown = -1;
            assert_int_equal(err, err == 0 ? 0 : ENOMEM);
            assert_int_equal(qm_cache_capacity(cache), err == 0 ? 9000 : 3000);
            read_all(cache, 100);
        }
        assert_true(n > 4); /* of each shard: policy, balance, shadow */
        read_all(cache, 12000);
        for (n = 0; n < 60; n++) {
            countdown = n;
            err = qm_cache_resize(cache, 1000 + n % 2 * 1000);
            countdown = -1;
            assert_true(err == 0 || err == ENOMEM);
            read_all(cache, 3000);
            assert_true(stats_of(cache).main_blocks <= qm_cache_capacity(cache));
        }
        assert_int_equal(qm_cache_resize(cache, 1000), 0);
        check_identities(cache, 0);
        qm_cache_free(cache);
    }
}
