/* SPDX-License-Identifier: BSD-3-Clause */
/* test-params.c - how parameters are read, and what memory follows from them. */
#include "tests/harness.h"

#include "engine/memory.h"
#include "engine/params.h"

TEST(test_prefetch_on)
{
    bool on;

    assert_true(qm_params_read_prefetch_on("prefetch-hit", &on));
    assert_true(on);
    assert_true(qm_params_read_prefetch_on("promote", &on)); /* the old name */
    assert_true(on);
    assert_true(qm_params_read_prefetch_on("miss", &on));
    assert_false(on);
    assert_false(qm_params_read_prefetch_on("hit", &on));
}

/* At most a quarter of the cache, and half of what prefetches leave of it. */
TEST(test_batch)
{
    assert_int_equal(qm_params_batch(4000, 0), QM_BATCH_MAX);
    assert_int_equal(qm_params_batch(1000, 500), 250);
    assert_int_equal(qm_params_batch(1000, 0), 250);
    assert_int_equal(qm_params_batch(1000, 900), 50);
    assert_int_equal(qm_params_batch(3, 1), 1);
}

/* Policies that keep rules in a table that grows have a part of the cache's memory. */
TEST(test_rules_bytes)
{
    static const char *const without[] = {"none", "readahead", "seq"};
    const uint64_t bytes = UINT64_C(256) << 20;
    struct qm_params params;

    qm_params_defaults(&params);
    assert_int_equal(qm_params_rules_bytes(&params, qm_prefetcher_find("auto"), bytes),
                     qm_memory_first_rules(bytes));
    assert_int_equal(qm_params_rules_bytes(&params, qm_prefetcher_find("ppm"), bytes),
                     qm_memory_first_rules(bytes));
    for (unsigned i = 0; i < sizeof without / sizeof without[0]; i++)
        assert_int_equal(
            qm_params_rules_bytes(&params, qm_prefetcher_find(without[i]), bytes), 0);
}
