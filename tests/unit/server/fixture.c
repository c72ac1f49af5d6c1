/* SPDX-License-Identifier: BSD-3-Clause */
/* fixture.c - see fixture.h. */
#include <endian.h>

#include "tests/harness.h"

#include "fixture.h"

struct fixture *fixture_make_with(enum qm_level level,
                                  const struct qm_prefetcher_ops *ops)
{
    struct fixture *f = aligned_alloc(_Alignof(struct fixture), sizeof *f);

    memset(f, 0, sizeof *f);
    fake_init(&f->fake);
    if (ops)
        f->fake.base.ops = ops;
    f->stats = qms_stats_new();
    f->classes = qms_classes_new();
    f->miner = qms_miner_start(&f->fake.base, 1 << 20, 0);
    f->engine.prefetcher = &f->fake.base;
    f->engine.prefetches = true;
    f->contexts.engine = &f->engine;
    f->contexts.level = level;
    f->contexts.mining = true;
    f->contexts.classes = f->classes;
    f->contexts.miner = f->miner;
    f->contexts.stats = f->stats;
    f->contexts.held_max = 5000;
    assert_int_equal(qms_contexts_init(&f->contexts), 0);
    qms_clients_init(&f->clients, &f->fake.base);
    assert_int_equal(qms_sessions_init(&f->sessions, &f->contexts, &f->clients,
                                       f->classes, f->stats),
                     0);
    return f;
}

struct fixture *fixture_make(enum qm_level level)
{
    return fixture_make_with(level, NULL);
}

void fixture_undo(struct fixture *f)
{
    qms_sessions_destroy(&f->sessions);
    qms_contexts_destroy(&f->contexts);
    qms_miner_stop(f->miner);
    qms_clients_destroy(&f->clients);
    assert_int_equal(atomic_load(&f->contexts.open), 0);
    assert_int_equal(atomic_load(&f->contexts.holders), 0);
    for (unsigned i = 0; i < QMS_CLIENTS; i++)
        assert_int_equal(f->clients.users[i], 0);
    fake_check_and_destroy(&f->fake);
    qms_classes_free(f->classes);
    qms_stats_free(f->stats);
    free(f);
}

void client_header(struct fixture *f, struct client *c)
{
    static const struct qms_device device = {.size = 1 << 20, .block_size = 4096};
    struct qm_wire_header header;

    qms_control_header(&f->sessions, &c->member, &device, &header);
    assert_int_equal(le64toh(header.magic), QM_WIRE_MAGIC);
    assert_int_equal(le64toh(header.size), 1 << 20);
    c->session = le64toh(header.session);
    c->first = le32toh(header.slot_first);
    c->count = le32toh(header.slot_count);
}

void client_arrive(struct fixture *f, struct client *c)
{
    qms_member_init(&c->member);
    client_header(f, c);
}

void client_leave(struct fixture *f, struct client *c)
{
    qms_member_leave(&f->sessions, &c->member);
    qms_member_destroy(&c->member);
}

struct qm_wire_record client_record(const struct client *c, unsigned op, unsigned slot,
                                    unsigned parent, unsigned kind, uint64_t klass,
                                    const char *name)
{
    struct qm_wire_record r = {
        .op = htole32(op),
        .slot = htole16(slot),
        .parent = htole16(parent),
        .session = htole64(c->session),
        .klass = htole64(klass),
        .kind = htole16(kind),
        .name_len = htole16(strlen(name)),
    };

    memcpy(r.name, name, strlen(name));
    return r;
}

int client_send(struct fixture *f, struct client *c, const struct qm_wire_record *r,
                unsigned n)
{
    return qms_control_write(&f->sessions, &c->member, r, n * sizeof *r, 0);
}

int client_begin(struct fixture *f, struct client *c, unsigned slot, unsigned parent)
{
    struct qm_wire_record r =
        client_record(c, QM_WIRE_BEGIN, slot, parent, QM_WIRE_QUERY, 1, "");

    return client_send(f, c, &r, 1);
}

int client_end(struct fixture *f, struct client *c, unsigned slot)
{
    struct qm_wire_record r = client_record(c, QM_WIRE_END, slot, 0, 0, 0, "");

    return client_send(f, c, &r, 1);
}

unsigned fixture_open_contexts(struct fixture *f)
{
    return atomic_load(&f->contexts.open);
}

uint64_t client_read(struct fixture *f, struct client *c, unsigned slot, uint64_t block)
{
    struct qm_candidate candidates[QM_CANDIDATES_MAX];
    struct qms_ref ref;

    qms_context_arrive(&f->contexts, qms_member_slot(&f->sessions, &c->member, slot),
                       QM_TRACE_READ, block * 4096, 4096, &ref);
    qms_context_access(&f->contexts, &ref, block, QM_ACCESS_MISS, candidates);
    return ref.id;
}
