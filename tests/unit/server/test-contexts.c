/* SPDX-License-Identifier: BSD-3-Clause */
/* test-contexts.c - sessions, control messages, and what contexts make of reads. */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"

static void test_sessions_share_no_slot(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    static struct client clients[QM_WIRE_SLOT_MAX / 16 + 2];
    static unsigned char used[QM_WIRE_SLOT_MAX + 1];
    unsigned n = 0;

    memset(used, 0, sizeof used);
    do {
        struct client *c = &clients[n++];

        client_arrive(f, c);
        for (unsigned s = c->first; s < c->first + c->count; s++) {
            assert_in_range(s, QM_WIRE_SLOT_MIN, QM_WIRE_SLOT_MAX);
            assert_int_equal(used[s]++, 0);
        }
        if (c->count != 0) {
            assert_in_range(c->count, 16, 4096);
            assert_int_equal(c->count & (c->count - 1), 0);
            assert_int_not_equal(c->session, 0);
        }
    } while (clients[n - 1].count != 0);
    assert_int_equal(clients[0].count, 4096);
    assert_int_equal(clients[1].count, 2048);
    assert_int_equal(clients[2].count, 1024);
    assert_int_equal(clients[999].count, 16);
    assert_int_equal(n, 1023 + 1);
    assert_int_not_equal(clients[n - 1].session, 0);
    /* One of those in the middle goes; there is room again. */
    client_leave(f, &clients[1]);
    client_arrive(f, &clients[1]);
    assert_true(clients[1].count >= 16);
    for (unsigned i = 0; i < n; i++)
        client_leave(f, &clients[i]);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

/* However they come and go, there is room for 1,023, and a few have many slots. */
static void test_room_for_sessions(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    static struct client clients[1023];
    static unsigned char used[QM_WIRE_SLOT_MAX + 1];
    struct client *open[1023];
    unsigned n = 0;

    srandom(1);
    for (unsigned i = 0; i < 1023; i++)
        open[i] = &clients[i];
    for (unsigned round = 0; round < 60; round++) {
        unsigned wanted = random() % (round % 3 == 0 ? 1024 : 20);

        while (n > wanted) { /* any of them goes */
            unsigned i = random() % n;

            struct client *gone = open[i];

            client_leave(f, gone);
            open[i] = open[--n];
            open[n] = gone;
        }
        for (; n < wanted; n++) {
            client_arrive(f, open[n]);
            assert_in_range(open[n]->count, 16, 4096 / (n + 1) + 16);
        }
        memset(used, 0, sizeof used);
        for (unsigned i = 0; i < n; i++)
            for (unsigned s = 0; s < open[i]->count; s++)
                assert_int_equal(used[open[i]->first + s]++, 0);
    }
    while (n > 0)
        client_leave(f, open[--n]);
    fixture_undo(f);
}

static void test_begin_read_end(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
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
    fixture_undo(f);
}

/* At level transaction, what a nested query reads extends the transaction's sequence.
 */
static void test_levels(void **state)
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

static void test_level_none_is_one_sequence(void **state)
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

/* Every record in which something is wrong is refused, and so is all of its message. */
static void test_bad_records(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client c, other;
    struct qm_wire_record good, bad[16], two[2];
    unsigned n = 0;

    client_arrive(f, &c);
    client_arrive(f, &other);
    good = client_record(&c, QM_WIRE_BEGIN, c.first, 0, QM_WIRE_THREAD, 1, "good");
    bad[n] = good, bad[n++].session ^= htole64(1);
    bad[n] = good, bad[n++].session = 0;
    bad[n] = good, bad[n++].session = htole64(other.session);
    bad[n] = good, bad[n++].op = 0;
    bad[n] = good, bad[n++].op = htole32(5);
    bad[n] = good, bad[n++].slot = 0;
    bad[n] = good, bad[n++].slot = htole16(c.first + c.count);
    bad[n] = good, bad[n++].slot = htole16(QM_WIRE_SLOT_CONTROL);
    bad[n] = good, bad[n++].kind = 0;
    bad[n] = good, bad[n++].kind = htole16(5);
    bad[n] = good, bad[n++].parent = good.slot;
    bad[n] = good, bad[n++].parent = htole16(c.first + 1); /* not open */
    bad[n] = good, bad[n++].parent = htole16(other.first);
    bad[n] = good, bad[n++].name_len = htole16(QM_WIRE_NAME_MAX + 1);
    bad[n] = good, bad[n++].name_len = 0; /* but there is one */
    bad[n] = good, bad[n++].reserved[39] = 1;
    assert_int_equal(client_begin(f, &other, other.first, 0), 0);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(client_send(f, &c, &bad[i], 1), EINVAL);
        two[0] = good;
        two[1] = bad[i];
        assert_int_equal(client_send(f, &c, two, 2), EINVAL);
        assert_int_equal(fixture_open_contexts(f), 1);
    }
    /* END and JOIN use less. */
    bad[0] = client_record(&c, QM_WIRE_END, c.first, 0, QM_WIRE_QUERY, 0, "");
    bad[1] = client_record(&c, QM_WIRE_END, c.first, 0, 0, 7, "");
    bad[2] = client_record(&c, QM_WIRE_END, c.first, 0, 0, 0, "x");
    bad[3] = client_record(&c, QM_WIRE_END, 0, 0, 0, 0, "");
    bad[4] = client_record(&c, QM_WIRE_JOIN, c.first, 0, 0, 0, "");
    bad[5] = client_record(&c, QM_WIRE_END, c.first, c.first + 1, 0, 0, "");
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(client_send(f, &c, &bad[i], 1), EINVAL);
    /* Sizes and places. */
    assert_int_equal(qms_control_write(&f->sessions, &c.member, &good, 511, 0), EINVAL);
    assert_int_equal(qms_control_write(&f->sessions, &c.member, &good, 0, 0), EINVAL);
    assert_int_equal(qms_control_write(&f->sessions, &c.member, &good, 512, 1), EINVAL);
    assert_int_equal(qms_control_write(&f->sessions, &c.member, &good, 512, 1024), 0);
    assert_int_equal(fixture_open_contexts(f), 2);
    client_leave(f, &c);
    client_leave(f, &other);
    fixture_undo(f);
}

/* A message is judged in order: what an earlier record opens or ends counts. */
static void test_messages_of_several(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client c;
    struct qm_wire_record r[3];

    client_arrive(f, &c);
    r[0] = client_record(&c, QM_WIRE_BEGIN, c.first + 1, c.first, QM_WIRE_QUERY, 1, "");
    r[1] = client_record(&c, QM_WIRE_BEGIN, c.first, 0, QM_WIRE_THREAD, 1, "");
    assert_int_equal(client_send(f, &c, r, 2), EINVAL); /* the parent comes later */
    assert_int_equal(fixture_open_contexts(f), 0);
    r[2] = r[0];
    assert_int_equal(client_send(f, &c, r + 1, 2), 0);
    assert_int_equal(fixture_open_contexts(f), 2);
    r[0] = client_record(&c, QM_WIRE_END, c.first, 0, 0, 0, "");
    r[1] = client_record(&c, QM_WIRE_BEGIN, c.first + 2, c.first + 1, QM_WIRE_QUERY, 1,
                         "");
    assert_int_equal(client_send(f, &c, r, 2),
                     EINVAL); /* it has ended with the first */
    assert_int_equal(fixture_open_contexts(f), 2);
    /* Within what it ends itself, a slot cannot begin. */
    assert_int_equal(client_begin(f, &c, c.first, c.first + 1), EINVAL);
    assert_int_equal(fixture_open_contexts(f), 2);
    client_leave(f, &c);
    fixture_undo(f);
}

static void test_joining(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client a, b = {0};
    struct qm_wire_record join;

    client_arrive(f, &a);
    assert_int_equal(client_begin(f, &a, a.first, 0), 0);
    qms_member_init(&b.member);
    assert_int_equal(client_read(f, &b, a.first, 1), 0); /* not b's slot, yet */
    b.session = a.session;
    join = client_record(&b, QM_WIRE_JOIN, 0, 0, 0, 0, "");
    assert_int_equal(client_send(f, &b, &join, 1), 0);
    assert_int_not_equal(client_read(f, &b, a.first, 1), 0);
    client_header(f, &b); /* a member has its session */
    assert_int_equal(b.session, a.session);
    client_leave(f, &a);
    assert_int_equal(fixture_open_contexts(f), 1); /* b still speaks for it */
    client_leave(f, &b);
    assert_int_equal(fixture_open_contexts(f), 0);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    /* It is gone: nobody can join any more. */
    qms_member_init(&b.member);
    assert_int_equal(client_send(f, &b, &join, 1), EINVAL);
    client_leave(f, &b);
    fixture_undo(f);
}

/* A refused message does not make its sender a member. */
static void test_refused_joining(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client a, b = {0};

    client_arrive(f, &a);
    qms_member_init(&b.member);
    b.session = a.session;
    assert_int_equal(client_begin(f, &b, a.first + a.count, 0), EINVAL);
    assert_int_equal(atomic_load(&b.member.count), 0);
    assert_int_equal(client_begin(f, &b, a.first, 0), 0);
    assert_int_equal(atomic_load(&b.member.count), 1);
    client_leave(f, &b);
    client_leave(f, &a);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

static void test_too_many_sessions(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client c[QMS_MEMBER_MAX + 1], all = {0};
    struct qm_wire_record join;

    qms_member_init(&all.member);
    for (unsigned i = 0; i <= QMS_MEMBER_MAX; i++) {
        client_arrive(f, &c[i]);
        join = client_record(&c[i], QM_WIRE_JOIN, 0, 0, 0, 0, "");
        assert_int_equal(client_send(f, &all, &join, 1),
                         i < QMS_MEMBER_MAX ? 0 : EINVAL);
    }
    for (unsigned i = 0; i <= QMS_MEMBER_MAX; i++)
        client_leave(f, &c[i]);
    client_leave(f, &all);
    fixture_undo(f);
}

static int hint(struct fixture *f, struct client *c, unsigned op, unsigned kind,
                unsigned slot, unsigned parent, uint64_t count)
{
    return qms_control_hint(&f->sessions, &c->member, count,
                            qm_wire_hint(op, kind, slot, parent) - QM_WIRE_CONTROL);
}

static void test_hints(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client c = {0};

    qms_member_init(&c.member);
    assert_int_equal(hint(f, &c, QM_WIRE_BEGIN, 4, 1, 0, 512), EINVAL); /* no session */
    client_header(f, &c);
    assert_int_equal(
        hint(f, &c, QM_WIRE_BEGIN, 4, c.first, 0, 512 * QM_WIRE_HINT_CLASSES), 0);
    assert_int_equal(hint(f, &c, QM_WIRE_BEGIN, 4, c.first + 1, c.first, 512), 0);
    assert_int_equal(fixture_open_contexts(f), 2);
    assert_int_equal(
        qms_class_find(f->classes, QM_QUERY, QM_WIRE_HINT_CLASSES - 1, NULL, 0)->index,
        2); /* it was the first class */
    assert_int_equal(hint(f, &c, QM_WIRE_BEGIN, 4, c.first, 0, 513), EINVAL);
    assert_int_equal(hint(f, &c, QM_WIRE_BEGIN, 5, c.first, 0, 512), EINVAL);
    assert_int_equal(hint(f, &c, QM_WIRE_BEGIN, 4, c.first + c.count, 0, 512), EINVAL);
    assert_int_equal(hint(f, &c, QM_WIRE_END, 4, c.first, 0, 512), EINVAL);
    assert_int_equal(hint(f, &c, QM_WIRE_END, 0, c.first, 0, 1024), EINVAL);
    assert_int_equal(hint(f, &c, QM_WIRE_JOIN, 0, 0, 0, 512), EINVAL);
    assert_int_equal(hint(f, &c, 0, 0, 0, 0, 512), EINVAL);
    assert_int_equal(qms_control_hint(&f->sessions, &c.member, 512, 0), EINVAL);
    assert_int_equal(qms_control_hint(&f->sessions, &c.member, 512,
                                      QM_WIRE_HINT | UINT64_C(2) << 43 |
                                          (uint64_t)c.first << 24 | 1),
                     EINVAL);
    assert_int_equal(fixture_open_contexts(f), 2);
    assert_int_equal(hint(f, &c, QM_WIRE_END, 0, c.first, 0, 512), 0);
    assert_int_equal(fixture_open_contexts(f), 0);
    client_leave(f, &c);
    fixture_undo(f);
}

/* What was read is learned by another thread, when a sequence ends and when one is cut.
 */
static void test_readers_do_not_mine(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
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
    fixture_undo(f);
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
            assert_int_equal(client_begin(r->f, &r->c, slot, 0), 0);
            break;
        case 1: /* may fail: the parent may be nested or ended by now */
            client_begin(r->f, &r->c, slot, r->c.first + (n / 64) % 8);
            break;
        case 2:
            assert_int_equal(client_end(r->f, &r->c, slot), 0);
            break;
        default:
            client_read(r->f, &r->c, slot, n % 1000);
        }
    }
    return NULL;
}

static void test_race(void **state)
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
static void test_read_outlives_its_context(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
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
    fixture_undo(f);
}

static _Atomic bool reading;

struct reader {
    struct fixture *f;
    struct client c;
    pthread_t thread;
};

static void *read_in_all_slots(void *opaque)
{
    struct reader *e = opaque;
    unsigned found = 0;

    while (found == 0 || atomic_load(&reading)) {
        for (unsigned slot = QM_WIRE_SLOT_MIN; slot <= QM_WIRE_SLOT_MAX; slot += 16)
            found += qms_member_slot(&e->f->sessions, &e->c.member, slot) != NULL;
    }
    return NULL;
}

/* A session that had no slots gets some, while its connection is used. */
static void test_slots_come_late(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    static struct client clients[1023];
    struct reader e = {.f = f};
    uint64_t number;

    for (unsigned i = 0; i < 1023; i++) {
        client_arrive(f, &clients[i]);
        assert_true(clients[i].count > 0);
    }
    client_arrive(f, &e.c);
    number = e.c.session;
    assert_int_not_equal(number, 0);
    assert_int_equal(e.c.count, 0);
    assert_int_equal(client_begin(f, &e.c, 0, 0), EINVAL);
    assert_int_equal(client_begin(f, &e.c, clients[0].first, 0), EINVAL);
    assert_null(qms_member_slot(&f->sessions, &e.c.member, QM_WIRE_SLOT_MIN));
    assert_int_equal(qms_sessions_count(&f->sessions), 1024);
    atomic_store(&reading, true);
    assert_int_equal(pthread_create(&e.thread, NULL, read_in_all_slots, &e), 0);
    client_header(f, &e.c);
    assert_int_equal(e.c.count, 0); /* still none */
    client_leave(f, &clients[500]);
    client_header(f, &e.c);
    assert_int_equal(e.c.session, number);
    assert_in_range(e.c.count, 16, 4096);
    assert_int_equal(client_begin(f, &e.c, e.c.first, 0), 0);
    assert_int_not_equal(client_read(f, &e.c, e.c.first, 1), 0);
    atomic_store(&reading, false);
    pthread_join(e.thread, NULL);
    assert_int_equal(qms_sessions_count(&f->sessions), 1023);
    client_leave(f, &e.c);
    for (unsigned i = 0; i < 1023; i++)
        if (i != 500)
            client_leave(f, &clients[i]);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions_share_no_slot),
        cmocka_unit_test(test_room_for_sessions),
        cmocka_unit_test(test_begin_read_end),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_level_none_is_one_sequence),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_messages_of_several),
        cmocka_unit_test(test_joining),
        cmocka_unit_test(test_refused_joining),
        cmocka_unit_test(test_too_many_sessions),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_readers_do_not_mine),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_read_outlives_its_context),
        cmocka_unit_test(test_slots_come_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
