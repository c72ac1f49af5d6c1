/* SPDX-License-Identifier: BSD-3-Clause */
/* test-contexts.c - what contexts make of reads. */
#include <pthread.h>

#include "tests/harness.h"

#include "fixture.h"
#include "tests/unit/check.h"

FIXTURE(innermost, fixture_make(QM_LEVEL_INNERMOST), fixture_undo(it))

TEST_ON(test_begin_read_end, innermost, struct fixture *f)
{
    struct client c;
    uint64_t one, two;

    client_arrive(f, &c);
    assert_int_equal(client_read(f, &c, c.first, 1), 0); /* nothing open */
    assert_int_equal(client_begin(f, &c, c.first, 0), 0);
    one = client_read(f, &c, c.first, 10);
    assert_int_not_equal(one, 0);
    assert_int_equal(client_read(f, &c, c.first, 11), one);
    assert_int_equal(client_begin(f, &c, c.first, 0), 0); /* ends the first */
    two = client_read(f, &c, c.first, 12);
    assert_int_not_equal(two, one);
    assert_int_equal(fixture_open_contexts(f), 1);
    assert_int_equal(client_end(f, &c, c.first), 0);
    assert_int_equal(fixture_open_contexts(f), 0);
    assert_int_equal(client_end(f, &c, c.first), 0); /* harmless, but counted */
    assert_int_equal(qms_stats_get(f->stats, QMS_IGNORED_ENDS), 1);
    assert_int_equal(client_read(f, &c, c.first, 13), 0);
    client_leave(f, &c);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned, 2);
    assert_int_equal(f->fake.learned_blocks, 3);
    f->miner = qms_miner_start(&f->fake.base, 1, 0);
}

/* At level transaction, what a nested query reads extends the transaction's sequence.
 */
TEST(test_levels)
{
    struct fixture *f = fixture_make(QM_LEVEL_TRANSACTION);
    struct client c;
    struct qm_wire_record r[2];

    client_arrive(f, &c);
    r[0] = client_record(&c, QM_WIRE_BEGIN, c.first, 0, QM_WIRE_TRANSACTION, 5, "trx");
    r[1] =
        client_record(&c, QM_WIRE_BEGIN, c.first + 1, c.first, QM_WIRE_QUERY, 6, "q");
    assert_int_equal(client_send(f, &c, r, 2), 0);
    client_read(f, &c, c.first, 1);
    client_read(f, &c, c.first + 1, 2);
    assert_int_equal(client_end(f, &c, c.first + 1), 0);
    client_read(f, &c, c.first, 3);
    client_leave(f, &c);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned, 1);
    assert_int_equal(f->fake.last_n, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(f->fake.last[i], i + 1);
    f->miner = qms_miner_start(&f->fake.base, 1, 0);
    fixture_undo(f);
}

TEST(test_level_none_is_one_sequence)
{
    struct fixture *f = fixture_make(QM_LEVEL_NONE);
    struct client c;

    client_arrive(f, &c);
    assert_int_equal(client_begin(f, &c, c.first, 0), 0);
    client_read(f, &c, c.first, 1);
    client_read(f, &c, 0, 2);
    client_read(f, &c, c.first + 9, 3);
    client_leave(f, &c);
    qms_sessions_destroy(&f->sessions);
    qms_contexts_destroy(&f->contexts);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned, 1);
    assert_int_equal(f->fake.learned_blocks, 3);
    fake_check_and_destroy(&f->fake);
    qms_classes_free(f->classes);
    qms_stats_free(f->stats);
    free(f);
}

/* What was read is learned by another thread, when a sequence ends and when one is cut.
 */
TEST_ON(test_readers_do_not_mine, innermost, struct fixture *f)
{
    struct client c;

    client_arrive(f, &c);
    f->fake.learner = pthread_self();
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(client_begin(f, &c, c.first, 0), 0);
        for (uint64_t i = 0; i < (round == 0 ? 10 : 6000); i++)
            client_read(f, &c, c.first, i);
        assert_int_equal(client_end(f, &c, c.first), 0);
    }
    qms_miner_stop(f->miner);
    assert_in_range(f->fake.learned, 3, 10);
    assert_int_equal(f->fake.learned_blocks, 6010);
    assert_false(pthread_equal(f->fake.learner, pthread_self()));
    f->miner = qms_miner_start(&f->fake.base, 1, 0);
    f->contexts.miner = f->miner;
    client_leave(f, &c);
}

/* Many threads, as many connections of one session: reads race with begins and ends in
 * the same trees. */
#define THREADS 4

struct racer {
    struct fixture *f;
    struct client c;
    unsigned seed;
};

static void *race(void *opaque)
{
    struct racer *r = opaque;

    for (int i = 0; i < 20000; i++) {
        unsigned n = rand_r(&r->seed), slot = r->c.first + n % 8;

        switch (n / 8 % 8) {
        case 0:
            check(client_begin(r->f, &r->c, slot, 0) == 0);
            break;
        case 1: /* may fail: the parent may be nested or ended by now */
            client_begin(r->f, &r->c, slot, r->c.first + (n / 64) % 8);
            break;
        case 2:
            check(client_end(r->f, &r->c, slot) == 0);
            break;
        default:
            client_read(r->f, &r->c, slot, n % 1000);
        }
    }
    return NULL;
}

TEST(test_race)
{
    struct fixture *f = fixture_make(QM_LEVEL_THREAD);
    struct racer racers[THREADS];
    pthread_t threads[THREADS];

    client_arrive(f, &racers[0].c);
    for (int i = 0; i < THREADS; i++) {
        struct qm_wire_record join;

        racers[i].f = f;
        racers[i].seed = i;
        if (i == 0)
            continue;
        racers[i].c = racers[0].c;
        qms_member_init(&racers[i].c.member);
        join = client_record(&racers[i].c, QM_WIRE_JOIN, 0, 0, 0, 0, "");
        assert_int_equal(client_send(f, &racers[i].c, &join, 1), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        client_leave(f, &racers[i].c);
    }
    fixture_undo(f);
}

/* A read that arrives before its slot begins another context is not of that one. */
TEST_ON(test_read_outlives_its_context, innermost, struct fixture *f)
{
    struct qm_candidate candidates[QM_CANDIDATES_MAX];
    struct client c;
    struct qms_ref ref;

    client_arrive(f, &c);
    f->fake.wants[0] = 7;
    f->fake.want_n = 1;
    assert_int_equal(client_begin(f, &c, c.first, 0), 0);
    qms_context_arrive(&f->contexts, qms_member_slot(&f->sessions, &c.member, c.first),
                       QM_TRACE_READ, 0, 4096, &ref);
    assert_int_equal(client_begin(f, &c, c.first, 0), 0); /* ends the first */
    assert_int_equal(
        qms_context_access(&f->contexts, &ref, 1, QM_ACCESS_MISS, candidates), 0);
    client_read(f, &c, c.first, 2);
    assert_int_equal(client_end(f, &c, c.first), 0);
    assert_int_equal(
        qms_context_access(&f->contexts, &ref, 3, QM_ACCESS_MISS, candidates), 0);
    client_leave(f, &c);
    qms_miner_stop(f->miner);
    assert_int_equal(f->fake.learned_blocks, 1);
    assert_int_equal(f->fake.last[0], 2);
    f->miner = qms_miner_start(&f->fake.base, 1, 0);
}
