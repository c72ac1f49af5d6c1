/* SPDX-License-Identifier: BSD-3-Clause */
/* test-ids.c - the set of used numbers: exact, and small for numbers in sequence. */
#include <stdbool.h>

#include "tests/harness.h"

#include <errno.h>

#include "trace/ids.h"

TEST(sequence)
{
    struct qm_ids ids = {0};

    for (uint64_t i = 1; i <= 100000; i++)
        assert_int_equal(qm_ids_add(&ids, i), 0);
    assert_int_equal(ids.intervals, 1);
    for (uint64_t i = 1; i <= 100000; i += 99)
        assert_int_equal(qm_ids_add(&ids, i), EEXIST);
    qm_ids_clear(&ids);
    assert_int_equal(ids.intervals, 0);
}

/* Numbers that fill the gaps of others join them. */
TEST(joins)
{
    struct qm_ids ids = {0};

    for (uint64_t i = 2; i <= 2000; i += 2)
        assert_int_equal(qm_ids_add(&ids, i), 0);
    assert_int_equal(ids.intervals, 1000);
    for (uint64_t i = 1999; i >= 3; i -= 2)
        assert_int_equal(qm_ids_add(&ids, i), 0);
    assert_int_equal(ids.intervals, 1);
    assert_int_equal(qm_ids_add(&ids, 2001), 0);
    assert_int_equal(qm_ids_add(&ids, 1), 0);
    assert_int_equal(ids.intervals, 1);
    for (uint64_t i = 1; i <= 2001; i++)
        assert_int_equal(qm_ids_add(&ids, i), EEXIST);
    qm_ids_clear(&ids);
}

TEST(limits)
{
    struct qm_ids ids = {0};

    assert_int_equal(qm_ids_add(&ids, UINT64_MAX), 0);
    assert_int_equal(qm_ids_add(&ids, 0), 0);
    assert_int_equal(ids.intervals, 2);
    assert_int_equal(qm_ids_add(&ids, UINT64_MAX - 1), 0);
    assert_int_equal(qm_ids_add(&ids, 1), 0);
    assert_int_equal(ids.intervals, 2);
    assert_int_equal(qm_ids_add(&ids, UINT64_MAX), EEXIST);
    assert_int_equal(qm_ids_add(&ids, 0), EEXIST);
    qm_ids_clear(&ids);
}

/* Against a plain array, in random order. */
TEST(random_order)
{
    enum { RANGE = 4000 };
    bool used[RANGE + 2] = {false};
    struct qm_ids ids = {0};
    uint32_t x = 1;

    for (int i = 0; i < 3 * RANGE; i++) {
        uint64_t id;
        size_t runs = 0;

        x = x * 1664525 + 1013904223;
        id = (x >> 8) % RANGE + 1;
        assert_int_equal(qm_ids_add(&ids, id), used[id] ? EEXIST : 0);
        used[id] = true;
        if (i % 16 != 0)
            continue;
        for (size_t j = 1; j <= RANGE; j++)
            runs += used[j] && !used[j + 1];
        assert_int_equal(ids.intervals, runs);
    }
    qm_ids_clear(&ids);
}
