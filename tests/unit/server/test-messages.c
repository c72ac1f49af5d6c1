/* SPDX-License-Identifier: BSD-3-Clause */
/* test-messages.c - control messages, and hints that stand for them: the good and the
 * bad. */
#include <endian.h>
#include <errno.h>

#include "tests/harness.h"

#include "fixture.h"

FIXTURE(innermost, fixture_make(QM_LEVEL_INNERMOST), fixture_undo(it))

/* Every record in which something is wrong is refused, and so is all of its message. */
TEST_ON(test_bad_records, innermost, struct fixture *f)
{
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
}

/* A message is judged in order: what an earlier record opens or ends counts. */
TEST_ON(test_messages_of_several, innermost, struct fixture *f)
{
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
}

static int hint(struct fixture *f, struct client *c, unsigned op, unsigned kind,
                unsigned slot, unsigned parent, uint64_t count)
{
    return qms_control_hint(&f->sessions, &c->member, count,
                            qm_wire_hint(op, kind, slot, parent) - QM_WIRE_CONTROL);
}

TEST_ON(test_hints, innermost, struct fixture *f)
{
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
}
