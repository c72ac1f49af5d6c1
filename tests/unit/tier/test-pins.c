/* SPDX-License-Identifier: BSD-3-Clause */
/* test-pins.c - a segment is pinned by more readers than 16 bits can count: eviction
 * must not take it for one that nobody reads. */
#include "testing.h"
#include "tier/internal.h"

#define BLOCK   16384u
#define READERS 65536u /* 1,024 threads that read 64 blocks each */

static void test_many(void **state)
{
    struct qm_tier_config c = dataless(BLOCK, UINT64_C(16) << 20, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_insert insert = {.block = 1, .ticket = qm_tier_ticket(t)};
    struct segment *segment;
    struct slot s;

    (void)state;
    assert_int_equal(qm_tier_insert(t, &insert), 0);
    assert_int_equal(qm_tier_sync(t), 0);
    for (unsigned i = 0; i < READERS; i++)
        assert_true(index_find(t, 1, &s));
    segment = segment_of(t, s.segment);
    assert_int_equal(atomic_load(&segment->pins[s.phase]), READERS);
    for (unsigned i = 0; i < READERS; i++)
        unpin(t, &s);
    assert_int_equal(atomic_load(&segment->pins[0]) + atomic_load(&segment->pins[1]),
                     0);
    qm_tier_close(t, QM_TIER_KEEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
