/* SPDX-License-Identifier: BSD-3-Clause */
/* test-sessions.c - sessions: their slots, and who joins them. */
#include <errno.h>
#include <pthread.h>

#include "tests/harness.h"

#include "fixture.h"

FIXTURE(innermost, fixture_make(QM_LEVEL_INNERMOST), fixture_undo(it))

TEST_ON(test_sessions_share_no_slot, innermost, struct fixture *f)
{
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
}

/* However they come and go, there is room for 1,023, and a few have many slots. */
TEST_ON(test_room_for_sessions, innermost, struct fixture *f)
{
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
}

TEST_ON(test_joining, innermost, struct fixture *f)
{
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
}

/* A refused message does not make its sender a member. */
TEST_ON(test_refused_joining, innermost, struct fixture *f)
{
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
}

TEST_ON(test_too_many_sessions, innermost, struct fixture *f)
{
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
TEST_ON(test_slots_come_late, innermost, struct fixture *f)
{
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
}
