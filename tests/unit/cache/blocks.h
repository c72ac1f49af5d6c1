/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.h - a small cache of one shard, and demands of blocks whose bytes follow from
 * their number. */
#ifndef QM_TESTS_CACHE_BLOCKS_H
#define QM_TESTS_CACHE_BLOCKS_H

#include "testing.h"

#define BLOCK 4096

static const struct qm_cache_config base = {
    .block_size = BLOCK,
    .blocks = 16,
    .prefetch_blocks = 4,
    .shards = 1,
    .eviction = "lru",
    .data = true,
};

static inline unsigned char *block_data(uint64_t number)
{
    static unsigned char data[BLOCK];

    memset(data, (int)(number * 7 + 1), sizeof(data));
    return data;
}

static inline struct qm_lookup demand(struct qm_cache *cache, uint64_t block)
{
    unsigned char buf[BLOCK];
    struct qm_lookup found;

    assert_int_equal(qm_cache_demand(cache, block, buf, 0, BLOCK, &found), 0);
    if (found.todo == QM_DONE)
        assert_memory_equal(buf, block_data(block), BLOCK);
    return found;
}

static inline enum qm_outcome get(struct qm_cache *cache, uint64_t block)
{
    struct qm_lookup found = demand(cache, block);

    assert_int_not_equal(found.todo, QM_WAIT);
    if (found.todo == QM_FETCH)
        qm_cache_fill(cache, found.fill, block_data(block));
    return found.outcome;
}

#define WITH(field, value)                                                             \
    ({                                                                                 \
        struct qm_cache_config c_ = base;                                              \
        c_.field = (value);                                                            \
        c_;                                                                            \
    })

#endif
