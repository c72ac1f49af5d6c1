/* SPDX-License-Identifier: BSD-3-Clause */
/* test-fences.c - fences of sessions. */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"

static struct qm_wire_record fence_record(uint64_t session)
{
    return (struct qm_wire_record){.op = htole32(QM_WIRE_FENCE),
                                   .session = htole64(session)};
}

struct fencer {
    struct fixture *f;
    struct client c; /* a member of nothing */
    uint64_t session;
    pthread_t thread;
    int error;
    _Atomic bool done;
};

static void *send_fence(void *opaque)
{
    struct fencer *e = opaque;
    struct qm_wire_record r = fence_record(e->session);

    e->error = client_send(e->f, &e->c, &r, 1);
    atomic_store(&e->done, true);
    return NULL;
}

static void start_fence(struct fencer *e, struct fixture *f, uint64_t session)
{
    memset(e, 0, sizeof *e);
    e->f = f;
    e->session = session;
    qms_member_init(&e->c.member);
    assert_int_equal(pthread_create(&e->thread, NULL, send_fence, e), 0);
}

static int end_fence(struct fencer *e)
{
    pthread_join(e->thread, NULL);
    client_leave(e->f, &e->c);
    return e->error;
}

/* Waits until a connection is refused changes. */
static void await_refusal(struct client *c)
{
    int n;

    for (int i = 0; (n = qms_member_change_begin(&c->member)) != -1; i++) {
        qms_member_change_end(&c->member, n);
        assert_true(i < 60000);
        usleep(1000);
    }
}

static void test_fence(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client a, b, both, late = {0};
    struct qm_wire_record r;
    struct fencer e, again;
    int n;

    client_arrive(f, &a);
    client_arrive(f, &b);
    client_arrive(f, &both);
    r = client_record(&a, QM_WIRE_JOIN, 0, 0, 0, 0, "");
    assert_int_equal(client_send(f, &both, &r, 1), 0);
    n = qms_member_change_begin(&both.member);
    assert_int_equal(n, 2);
    start_fence(&e, f, a.session);
    await_refusal(&a);
    assert_int_equal(qms_member_change_begin(&both.member), -1);
    start_fence(&again, f, a.session);
    assert_false(atomic_load(&e.done));
    /* Nobody joins it any more; its contexts are none the worse. */
    qms_member_init(&late.member);
    assert_int_equal(client_send(f, &late, &r, 1), EINVAL);
    assert_false(qms_member_join(&f->sessions, &late.member, a.session));
    assert_int_equal(client_begin(f, &a, a.first, 0), 0);
    assert_int_not_equal(client_read(f, &a, a.first, 1), 0);
    qms_member_change_end(&both.member, n);
    assert_int_equal(end_fence(&e), 0);
    assert_int_equal(end_fence(&again), 0);
    /* What was refused was counted nowhere: this one ends at once, too. */
    start_fence(&e, f, both.session);
    assert_int_equal(end_fence(&e), 0);
    n = qms_member_change_begin(&b.member);
    assert_int_equal(n, 1);
    qms_member_change_end(&b.member, n);
    client_leave(f, &a);
    client_leave(f, &b);
    client_leave(f, &both);
    client_leave(f, &late);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

static bool is_gone(void)
{
    return true;
}

/* One that is not waited for any more leaves the session fenced, and nothing else. */
static void test_fence_of_one_who_is_gone(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client a;
    struct fencer e;
    int n;

    client_arrive(f, &a);
    f->sessions.gone = is_gone;
    n = qms_member_change_begin(&a.member);
    start_fence(&e, f, a.session);
    assert_int_equal(end_fence(&e), ESHUTDOWN);
    assert_int_equal(qms_member_change_begin(&a.member), -1);
    qms_member_change_end(&a.member, n);
    client_leave(f, &a);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

static void test_bad_fences(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);
    struct client a, b;
    struct qm_wire_record good, r[2];

    client_arrive(f, &a);
    client_arrive(f, &b);
    good = fence_record(b.session);
    r[0] = fence_record(a.session); /* its own */
    assert_int_equal(client_send(f, &a, r, 1), EINVAL);
    r[0] = r[1] = good;
    assert_int_equal(client_send(f, &a, r, 2), EINVAL);
    r[1] = client_record(&b, QM_WIRE_JOIN, 0, 0, 0, 0, "");
    assert_int_equal(client_send(f, &a, r, 2), EINVAL);
    for (unsigned i = sizeof r[0].op; i < sizeof r[0]; i++) {
        r[0] = good;
        ((char *)&r[0])[i] ^= 1;
        if (i < offsetof(struct qm_wire_record, session) ||
            i >= offsetof(struct qm_wire_record, klass))
            assert_int_equal(client_send(f, &a, r, 1), EINVAL);
        else /* of no session */
            assert_int_equal(client_send(f, &a, r, 1), 0);
    }
    r[0] = fence_record(0);
    assert_int_equal(client_send(f, &a, r, 1), EINVAL);
    assert_int_equal(atomic_load(&a.member.count), 1);
    qms_member_change_end(&b.member, qms_member_change_begin(&b.member));
    assert_int_equal(client_send(f, &a, &good, 1), 0);
    assert_int_equal(qms_member_change_begin(&b.member), -1);
    client_leave(f, &a);
    client_leave(f, &b);
    fixture_undo(f);
}

/* The session ends in the moment in which its fence need not wait any more. */
static void test_fence_meets_the_end(void **state)
{
    struct fixture *f = fixture_make(QM_LEVEL_INNERMOST);

    for (int i = 0; i < 300; i++) {
        struct client a;
        struct fencer e;
        int n;

        client_arrive(f, &a);
        n = qms_member_change_begin(&a.member);
        start_fence(&e, f, a.session);
        if (i % 2)
            await_refusal(&a);
        qms_member_change_end(&a.member, n);
        client_leave(f, &a);
        assert_int_equal(end_fence(&e), 0);
    }
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
    fixture_undo(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_fence_of_one_who_is_gone),
        cmocka_unit_test(test_bad_fences),
        cmocka_unit_test(test_fence_meets_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
