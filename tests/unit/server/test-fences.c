/* SPDX-License-Identifier: BSD-3-Clause */
/* test-fences.c - fences of sessions. */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/harness.h"

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

FIXTURE(innermost, fixture_make(QM_LEVEL_INNERMOST), fixture_undo(it))

TEST_ON(test_fence, innermost, struct fixture *f)
{
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
}

static bool is_gone(void)
{
    return true;
}

/* One that is not waited for any more leaves the session fenced, and nothing else. */
TEST_ON(test_fence_of_one_who_is_gone, innermost, struct fixture *f)
{
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
}

TEST_ON(test_bad_fences, innermost, struct fixture *f)
{
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
}

struct owner {
    struct fixture *f;
    struct client *c;
    pthread_t thread;
    char name;
    int error;
    _Atomic bool done;
};

static int own(struct fixture *f, struct client *c, char name)
{
    struct qm_wire_own r = {.op = htole32(QM_WIRE_OWN), .session = htole64(c->session)};

    memset(r.owner, name, sizeof r.owner);
    return client_send(f, c, (struct qm_wire_record *)&r, 1);
}

static void *send_own(void *opaque)
{
    struct owner *o = opaque;

    o->error = own(o->f, o->c, o->name);
    atomic_store(&o->done, true);
    return NULL;
}

static void start_own(struct owner *o, struct fixture *f, struct client *c, char name)
{
    *o = (struct owner){.f = f, .c = c, .name = name};
    assert_int_equal(pthread_create(&o->thread, NULL, send_own, o), 0);
}

static int end_own(struct owner *o)
{
    pthread_join(o->thread, NULL);
    return o->error;
}

static bool may_change(struct client *c)
{
    int n = qms_member_change_begin(&c->member);

    if (n != -1)
        qms_member_change_end(&c->member, n);
    return n != -1;
}

/* A successor's first word fences all that its owner had, and nobody else. */
TEST_ON(test_own, innermost, struct fixture *f)
{
    struct client first, second, other, nobodys, next;
    struct owner o;
    int n, m;

    client_arrive(f, &first);
    client_arrive(f, &second);
    client_arrive(f, &other);
    client_arrive(f, &nobodys);
    assert_int_equal(own(f, &first, 'a'), 0);
    assert_true(may_change(&first));
    n = qms_member_change_begin(&first.member);
    m = qms_member_change_begin(&other.member);
    assert_int_equal(own(f, &other, 'b'), 0);
    start_own(&o, f, &second, 'a');
    await_refusal(&first);
    assert_false(atomic_load(&o.done));
    qms_member_change_end(&first.member, n);
    assert_int_equal(end_own(&o), 0);
    assert_false(may_change(&first));
    assert_true(may_change(&second));
    assert_true(may_change(&other));
    assert_true(may_change(&nobodys));
    qms_member_change_end(&other.member, m);
    /* Once more is no harm; an owner is for good. */
    assert_int_equal(own(f, &second, 'a'), 0);
    assert_int_equal(own(f, &second, 'b'), EINVAL);
    assert_true(may_change(&second));
    assert_true(may_change(&other));
    /* One that is fenced owns nothing that is newer. */
    assert_int_equal(own(f, &first, 'a'), ESHUTDOWN);
    assert_true(may_change(&second));
    client_leave(f, &second);
    client_arrive(f, &next);
    assert_int_equal(own(f, &next, 'a'), 0);
    assert_true(may_change(&next));
    client_leave(f, &first);
    client_leave(f, &other);
    client_leave(f, &nobodys);
    client_leave(f, &next);
    assert_int_equal(qms_sessions_count(&f->sessions), 0);
}

/* A third comes while the second waits for the first: the last one stays, the second
 * hears that it does not. */
TEST_ON(test_own_in_turn, innermost, struct fixture *f)
{
    struct client first, second, third;
    struct owner two, three;
    int n;

    client_arrive(f, &first);
    client_arrive(f, &second);
    client_arrive(f, &third);
    assert_int_equal(own(f, &first, 'a'), 0);
    n = qms_member_change_begin(&first.member);
    start_own(&two, f, &second, 'a');
    await_refusal(&first);
    start_own(&three, f, &third, 'a');
    await_refusal(&second);
    qms_member_change_end(&first.member, n);
    assert_int_equal(end_own(&two), ESHUTDOWN);
    assert_int_equal(end_own(&three), 0);
    assert_true(may_change(&third));
    assert_false(may_change(&second));
    client_leave(f, &first);
    client_leave(f, &second);
    client_leave(f, &third);
}

TEST_ON(test_bad_owners, innermost, struct fixture *f)
{
    struct client a, b;
    struct qm_wire_own good, r[2];

    client_arrive(f, &a);
    client_arrive(f, &b);
    good = (struct qm_wire_own){
        .op = htole32(QM_WIRE_OWN), .session = htole64(a.session), .owner = {1}};
    assert_int_equal(own(f, &a, 0), EINVAL);
    for (unsigned i = sizeof good.op; i < sizeof good; i++) {
        r[0] = good;
        ((char *)&r[0])[i] ^= 1;
        if (i < offsetof(struct qm_wire_own, owner) ||
            i >= offsetof(struct qm_wire_own, reserved))
            assert_int_equal(client_send(f, &a, (struct qm_wire_record *)r, 1), EINVAL);
    }
    r[0] = r[1] = good;
    assert_int_equal(client_send(f, &a, (struct qm_wire_record *)r, 2), EINVAL);
    /* None of them had an effect. */
    assert_int_equal(own(f, &b, 'b'), 0);
    assert_int_equal(own(f, &a, 'a'), 0);
    assert_true(may_change(&a));
    assert_true(may_change(&b));
    client_leave(f, &a);
    client_leave(f, &b);
}

/* The session ends in the moment in which its fence need not wait any more. */
TEST_ON(test_fence_meets_the_end, innermost, struct fixture *f)
{
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
}
