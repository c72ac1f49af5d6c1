/* SPDX-License-Identifier: BSD-3-Clause */
/* test-pins.c - a segment is pinned by more readers than 16 bits can count, and by one
 * who looked at its phase before eviction changed that: eviction must not take it for
 * one that nobody reads. */
#include "testing.h"
#include "tier/internal.h"

#define BLOCK   16384u
#define READERS 65536u /* 1,024 threads that read 64 blocks each */

TEST(test_many)
{
    struct qm_tier_config c = dataless(BLOCK, UINT64_C(16) << 20, QM_TIER_ADMIT_ALL);
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_insert insert = {.block = 1, .ticket = qm_tier_ticket(t)};
    struct segment *segment;
    struct slot s;

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

static struct {
    struct segment *segment; /* that is pinned until somebody waits; NULL: none */
    unsigned phase, waits;
} pinned;

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (pinned.segment) {
        atomic_fetch_sub(&pinned.segment->pins[pinned.phase], 1);
        pinned.segment = NULL;
        pinned.waits++;
    }
    return 0;
}

/* A reader has looked at the phase, an eviction has changed it, and then he has pinned
 * a block that stayed: the next eviction waits for him, whichever phase it begins in.
 */
TEST(test_each_phase)
{
    for (unsigned phase = 0; phase < 2; phase++) {
        struct qm_tier_config c =
            dataless(BLOCK, UINT64_C(16) << 20, QM_TIER_ADMIT_ALL);
        struct qm_tier_insert insert = {.block = 1};
        struct qm_tier *t;
        struct slot s;

        c.threadless = true;
        t = open_ok(&c);
        insert.ticket = qm_tier_ticket(t);
        assert_int_equal(qm_tier_insert(t, &insert), 0);
        assert_int_equal(qm_tier_sync(t), 0);
        assert_true(index_find(t, 1, &s));
        unpin(t, &s);
        pinned.segment = segment_of(t, s.segment);
        pinned.phase = phase;
        pinned.waits = 0;
        atomic_fetch_add(&pinned.segment->pins[phase], 1);
        /* Up to its first eviction: the second begins in the other phase. */
        while (qm_tier_contains(t, 1)) {
            insert.block++;
            insert.ticket = qm_tier_ticket(t);
            while (qm_tier_insert(t, &insert) == EAGAIN)
                qm_tier_drain(t);
        }
        assert_true(stats(t).evicted > 0);
        assert_int_equal(pinned.waits, 1);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}
