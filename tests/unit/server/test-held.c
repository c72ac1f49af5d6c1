/* SPDX-License-Identifier: BSD-3-Clause */
/* test-held.c - what is kept of the reads of open contexts, and for whom. */

#include "tests/harness.h"

#include "fixture.h"

static unsigned client_of(struct fixture *f, struct client *c)
{
    return f->sessions.slots[c->first].client;
}

/* A hit in the context of the client's n-th slot; returns what the client holds. */
static uint64_t grow_in(struct fixture *f, struct client *c, unsigned n, uint64_t block)
{
    struct qms_slot *slot = qms_member_slot(&f->sessions, &c->member, c->first + n);
    struct qms_ref ref = {.slot = slot, .klass = slot->klass, .id = slot->id};

    qms_context_access(&f->contexts, &ref, block, QM_ACCESS_HIT, NULL);
    return atomic_load(&f->contexts.held[client_of(f, c)]);
}

/* However much is read in contexts that never end, what is kept of it is bounded. */
TEST(test_what_is_held_is_bounded)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client c;
    uint64_t most = 0, held;

    client_arrive(f, &c);
    for (unsigned s = 0; s < 4; s++)
        assert_int_equal(client_begin(f, &c, c.first + s, 0), 0);
    for (uint64_t i = 0; i < 100000; i++) {
        held = grow_in(f, &c, i % 4, i);
        if (held > most)
            most = held;
    }
    assert_in_range(most, 4000, 5000 + 64);
    client_leave(f, &c);
    fixture_undo(f); /* all has come out in the end */
}

/* One who holds all that can be held keeps nobody from holding as much as is his: with
 * two, half; and then gets no more than half himself. */
TEST(test_what_is_held_is_shared)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client hog, other, third;
    uint64_t most = 0, held;

    client_arrive(f, &hog);
    client_arrive(f, &other);
    for (unsigned s = 0; s < 4; s++)
        assert_int_equal(client_begin(f, &hog, hog.first + s, 0), 0);
    assert_int_equal(client_begin(f, &other, other.first, 0), 0);
    for (uint64_t i = 0; i < 4900; i++)
        grow_in(f, &hog, i % 4, i);
    for (uint64_t i = 0; i < 2500; i++)
        held = grow_in(f, &other, 0, i);
    assert_in_range(held, 2500 - 64, 2500); /* not cut once */
    for (uint64_t i = 0; i < 20000; i++) {
        held = grow_in(f, &hog, i % 4, i);
        if (i > 4000 && held > most)
            most = held;
    }
    assert_in_range(most, 2000, 2500 + 64);
    assert_in_range(atomic_load(&f->contexts.held[client_of(f, &other)]), 2500 - 64,
                    2500);
    assert_int_equal(atomic_load(&f->contexts.holders), 2);
    /* When one has left, it is the other's again. */
    client_leave(f, &hog);
    client_arrive(f, &third);
    for (uint64_t i = 0; i < 2000; i++)
        held = grow_in(f, &other, 0, i);
    assert_in_range(held, 4500 - 128, 4500);
    client_leave(f, &other);
    client_leave(f, &third);
    fixture_undo(f);
}

/* The prefetcher is told who there is, and whose each sequence is; also of one that
 * begins anew since its context has grown too much. */
TEST(test_owners)
{
    struct fixture *f = fixture_make(QM_LEVEL_TRANSACTION);
    struct client a, b;
    unsigned own_a, own_b;

    assert_int_equal(f->fake.there, 0);
    client_arrive(f, &a);
    client_arrive(f, &b);
    own_a = qms_client_owner(client_of(f, &a));
    own_b = qms_client_owner(client_of(f, &b));
    assert_in_range(own_a, 1, QM_OWNERS - 1);
    assert_in_range(own_b, 1, QM_OWNERS - 1);
    assert_int_not_equal(own_a, own_b);
    assert_int_equal(f->fake.there, 1 << own_a | 1 << own_b);
    assert_int_equal(client_begin(f, &a, a.first, 0), 0);
    assert_int_equal(client_begin(f, &b, b.first, 0), 0);
    for (uint64_t i = 0; i < 5300; i++)
        grow_in(f, &a, 0, i);
    fake_wait_busy(&f->fake);
    client_leave(f, &a);
    assert_int_equal(f->fake.there, 1 << own_b);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned, 2);
    assert_int_equal(f->fake.last_owner, own_a);
    f->miner = qms_miner_start(&f->fake.base, 1 << 20, 0);
    f->contexts.miner = f->miner;
    client_read(f, &b, b.first, 1);
    client_leave(f, &b);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned, 3);
    assert_int_equal(f->fake.last_owner, own_b);
    assert_int_equal(f->fake.there, 0);
    f->miner = qms_miner_start(&f->fake.base, 1, 0);
    fixture_undo(f);
}

static size_t keeps_four(const struct qm_stream *stream)
{
    return 4;
}

/* A prefetcher that keeps nothing, or little, is not made to forget. */
static void keeping_little(bool keeps)
{
    struct qm_prefetcher_ops ops;
    struct fixture *f;
    struct client c;
    struct qms_slot *slot;
    struct fake fake;

    fake_init(&fake);
    ops = *fake.base.ops;
    fake_check_and_destroy(&fake);
    ops.kept = keeps ? keeps_four : NULL;
    f = fixture_make_with(QM_LEVEL_INNERMOST, &ops);
    client_arrive(f, &c);
    assert_int_equal(client_begin(f, &c, c.first, 0), 0);
    slot = qms_member_slot(&f->sessions, &c.member, c.first);
    for (uint64_t i = 0; i < 100000; i++) {
        struct qms_ref ref = {.slot = slot, .klass = slot->klass, .id = slot->id};

        qms_context_access(&f->contexts, &ref, i, QM_ACCESS_HIT, NULL);
    }
    assert_int_equal(f->fake.works, 0);
    assert_int_equal(f->fake.learned, 0);
    assert_int_equal(atomic_load(&f->contexts.holders), 0);
    client_leave(f, &c);
    fixture_undo(f);
}

TEST(test_what_keeps_little_is_left_alone)
{
    keeping_little(false);
    keeping_little(true);
}
