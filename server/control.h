/* SPDX-License-Identifier: BSD-3-Clause */
/* control.h - the control window of the tagged export (quickmine-protocol(7)).
 *
 * A message is checked as a whole before any of its records takes effect: an invalid
 * one changes nothing.
 */
#ifndef QMS_CONTROL_H
#define QMS_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/sessions.h"

/* The sessions that a connection is a member of.  The connection's requests, which may
 * run in parallel, only add to them, so readers need no lock. */
#define QMS_MEMBER_MAX 8

struct qms_member {
    pthread_mutex_t lock; /* of adding */
    _Atomic unsigned count;
    struct qms_session *sessions[QMS_MEMBER_MAX];
};

void qms_member_init(struct qms_member *member);
/* Leaves all sessions; no request of the connection is in flight. */
void qms_member_leave(struct qms_sessions *sessions, struct qms_member *member);
/* qms_member_leave() was called. */
void qms_member_destroy(struct qms_member *member);

/* The slot of that number of the wire, if it is one of the connection's; else NULL. */
struct qms_slot *qms_member_slot(struct qms_sessions *sessions,
                                 struct qms_member *member, unsigned number);

/* A request to change data begins over the connection.  Returns the number of sessions
 * that count it, to be passed to qms_member_change_end(); or -1: one of them is fenced,
 * and the request must be refused with ESHUTDOWN. */
int qms_member_change_begin(struct qms_member *member);
void qms_member_change_end(struct qms_member *member, int counted);

/* The header's facts about the server and its device. */
struct qms_device {
    uint64_t size;     /* bytes, for this connection */
    uint64_t size_now; /* bytes, that the last one found */
    uint32_t block_size;
    bool ordered, readonly;
    uint64_t instance;
    uint8_t boot_id[16];
    uint8_t volume[16]; /* 0: unknown */
};

/* Makes the connection a member of an existing session, before its first request.
 * False: there is none of that number, or it is fenced. */
bool qms_member_join(struct qms_sessions *sessions, struct qms_member *member,
                     uint64_t id);

/* The header, for a READ; makes the connection a member of a session. */
void qms_control_header(struct qms_sessions *sessions, struct qms_member *member,
                        const struct qms_device *device, struct qm_wire_header *header);

/* A WRITE into the window: count bytes at offset.  Returns 0, EINVAL or ENOMEM; or
 * ESHUTDOWN, for a fence whose connection was closed or whose server stops.  Only a
 * fence waits, and what names an owner. */
int qms_control_write(struct qms_sessions *sessions, struct qms_member *member,
                      const void *buf, uint32_t count, uint64_t offset);

/* A CACHE in the window.  Returns 0 or EINVAL. */
int qms_control_hint(struct qms_sessions *sessions, struct qms_member *member,
                     uint32_t count, uint64_t offset);

#endif
