/* SPDX-License-Identifier: BSD-3-Clause */
/* fixture.h - sessions, contexts and a miner, with a prefetcher whose inside a test can
 * see (fake.h), and clients that speak to them as over the control socket.
 *
 * What fails fails the test.
 */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "fake.h"
#include "server/control.h"

struct fixture {
    struct fake fake;
    struct qms_stats *stats;
    struct qms_classes *classes;
    struct qms_miner *miner;
    struct qm_engine engine;
    struct qms_contexts contexts;
    struct qms_clients clients;
    struct qms_sessions sessions;
};

/* ops: instead of the fake's own; NULL: those. */
struct fixture *fixture_make_with(enum qm_level level,
                                  const struct qm_prefetcher_ops *ops);
struct fixture *fixture_make(enum qm_level level);
/* Ends what is left, and checks that nothing is. */
void fixture_undo(struct fixture *f);

unsigned fixture_open_contexts(struct fixture *f);

/* A connection, and the session that it got. */
struct client {
    struct qms_member member;
    uint64_t session;
    unsigned first, count;
};

/* Gets the session and its slots, anew. */
void client_header(struct fixture *f, struct client *c);
void client_arrive(struct fixture *f, struct client *c);
void client_leave(struct fixture *f, struct client *c);

struct qm_wire_record client_record(const struct client *c, unsigned op, unsigned slot,
                                    unsigned parent, unsigned kind, uint64_t klass,
                                    const char *name);
/* These return what the server makes of it: 0 or an errno value. */
int client_send(struct fixture *f, struct client *c, const struct qm_wire_record *r,
                unsigned n);
int client_begin(struct fixture *f, struct client *c, unsigned slot, unsigned parent);
int client_end(struct fixture *f, struct client *c, unsigned slot);

/* Reads a block in a slot, and tells what it belonged to. */
uint64_t client_read(struct fixture *f, struct client *c, unsigned slot,
                     uint64_t block);

#endif
