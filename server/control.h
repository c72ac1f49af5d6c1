/* control.h - the control window of the tagged export (quickmine-protocol(7)).
 *
 * What a connection sends there is judged here, before anything takes effect: a message
 * is good as a whole or changes nothing.
 */
#ifndef QMS_CONTROL_H
#define QMS_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/sessions.h"

/* The sessions that a connection is a member of.  They are only added, by requests of
 * the connection, which may run in parallel; so a reader needs no lock. */
#define QMS_MEMBER_MAX 8

struct qms_member {
    pthread_mutex_t lock; /* of adding */
    _Atomic unsigned count;
    struct qms_session *sessions[QMS_MEMBER_MAX];
};

void qms_member_init(struct qms_member *member);
/* Leaves all sessions; no request of the connection is in flight. */
void qms_member_leave(struct qms_sessions *sessions, struct qms_member *member);
/* It has left them. */
void qms_member_destroy(struct qms_member *member);

/* The slot of that number of the wire, if it is one of the connection's; else NULL. */
struct qms_slot *qms_member_slot(struct qms_sessions *sessions,
                                 struct qms_member *member, unsigned number);

/* A request to change data begins over the connection.  Returns in how many sessions it
 * is counted, for the end; or -1: one of them is fenced, and the request is to be
 * refused with ESHUTDOWN. */
int qms_member_change_begin(struct qms_member *member);
void qms_member_change_end(struct qms_member *member, int counted);

/* What the header says of the server. */
struct qms_device {
    uint64_t size; /* bytes */
    uint32_t block_size;
    bool ordered, readonly;
    uint64_t instance;
    uint8_t boot_id[16];
};

/* Makes the connection a member of an existing session, before its first request.
 * False: there is none of that number, or it is fenced. */
bool qms_member_join(struct qms_sessions *sessions, struct qms_member *member,
                     uint64_t id);

/* The header, for a READ; makes the connection a member of a session. */
void qms_control_header(struct qms_sessions *sessions, struct qms_member *member,
                        const struct qms_device *device, struct qm_wire_header *header);

/* A WRITE into the window: count bytes at offset.  Returns 0, EINVAL or ENOMEM; or
 * ESHUTDOWN, for a fence that need not wait on.  A fence waits; nothing else does. */
int qms_control_write(struct qms_sessions *sessions, struct qms_member *member,
                      const void *buf, uint32_t count, uint64_t offset);

/* A CACHE in the window.  Returns 0 or EINVAL. */
int qms_control_hint(struct qms_sessions *sessions, struct qms_member *member,
                     uint32_t count, uint64_t offset);

#endif
