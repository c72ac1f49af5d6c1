/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.h - what the tests of the cache share. */
#ifndef QM_TESTS_CACHE_TESTING_H
#define QM_TESTS_CACHE_TESTING_H

#include <errno.h>
#include <stdbool.h>

#include "tests/harness.h"

#include "cache/cache.h"
#include "tests/unit/random.h"

/* All eviction policies, in the order of their list. */
static const char *const policies[] = {"lru",    "lfu",      "mru",     "arc",
                                       "s3fifo", "wtinylfu", "adaptive"};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static inline struct qm_cache *new_cache(const struct qm_cache_config *config)
{
    struct qm_cache *cache = NULL;

    assert_int_equal(qm_cache_new(config, &cache), 0);
    assert_non_null(cache);
    return cache;
}

static inline struct qm_cache_stats stats_of(struct qm_cache *cache)
{
    struct qm_cache_stats stats;

    qm_cache_get_stats(cache, &stats);
    return stats;
}

/* The identities that cache.h promises, when nobody is inside and `fills` are held. */
static inline void check_identities(struct qm_cache *cache, uint64_t budget)
{
    struct qm_cache_stats s = stats_of(cache);

    assert_int_equal(s.prefetches, s.used + s.wasted + s.prefetch_blocks);
    if (budget > 0)
        assert_true(s.bytes <= budget);
}

#endif
