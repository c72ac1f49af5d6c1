/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - sessions and their slots (quickmine-protocol(7)).
 *
 * A session owns a range of slots, and has a number that is hard to guess, by which
 * further connections join it.  The session, and the contexts in it, end when its last
 * member connection leaves.
 *
 * If no slots are left, a new session has none.  It gets some later, when its client
 * asks again.
 *
 * A session can be fenced: from then on it cannot be joined, and requests to change
 * data over its members' connections are refused.  Such requests in flight are counted,
 * so that a fence can wait for them; reads are not.  A session can have an owner, which
 * outlives it: when the owner has a new one, its older ones are fenced.
 *
 * Locks: the table's lock guards the lists of sessions and their members; a session's
 * own lock serializes changes of its slots, and is taken before the table's; its
 * change_lock comes last.
 */
#ifndef QMS_SESSIONS_H
#define QMS_SESSIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "clients/protocol/quickmine-protocol.h"
#include "engine/engine.h"
#include "server/contexts.h"
#include "server/forest.h"

struct qms_session {
    struct cds_list_head list; /* with slots: in order of first */
    uint64_t id;               /* not 0 */
    /* Slots.  Set once, count last: a thread that reads a count other than 0 may use
     * the rest. */
    unsigned first;
    _Atomic unsigned count;
    unsigned client;  /* with slots: number, of clients */
    unsigned members; /* connections; 0: it is ending and cannot be joined */
    unsigned refs;    /* one while it is in a list, one for each fence that waits */
    uint8_t owner[QM_WIRE_OWNER_SIZE];
    uint64_t owned; /* when it got its owner, a number that rises; 0: it has none */

    pthread_mutex_t lock;      /* guards the next, and the slots' contexts */
    struct qms_forest *forest; /* node n is slot first + n - 1 */
    bool hints;                /* it has sent QM_WIRE_READS ... */
    unsigned source;           /* ... and this is its number there */

    pthread_mutex_t change_lock; /* guards what follows */
    pthread_cond_t unchanging;   /* fenced, and changes is 0 */
    unsigned changes;            /* requests to change data, in flight */
    bool fenced;                 /* set with the table's lock held, too */
};

struct qms_sessions {
    struct qms_contexts *contexts;
    struct qms_clients *clients;
    struct qms_classes *classes;
    struct qms_stats *stats;
    /* What QM_WIRE_READS says: `length` bytes at offset are read in slot's context
     * (NULL: in none); before a session's first, which gives the session a number for
     * these; and when one that has sent some has ended.  The former two are called with
     * the session's lock held.  NULL: nothing is made of it. */
    void (*hinted)(void *opaque, unsigned source, struct qms_slot *slot,
                   uint64_t offset, uint32_t length);
    unsigned (*hinting)(void *opaque);
    void (*hinting_ended)(void *opaque, unsigned source);
    /* What QM_WIRE_EXTENTS says: a file lies there.  Called with the session's lock
     * held.  NULL: nothing is made of it. */
    void (*told)(void *opaque, const struct qm_bytes *extents, unsigned n);
    void *opaque; /* for these */
    /* Whether a fence can stop waiting, because its connection is closed or the server
     * stops; called by its thread at intervals, without a lock.  NULL: it waits. */
    bool (*gone)(void);
    pthread_mutex_t lock; /* of the lists, and of all members */
    struct cds_list_head list;
    unsigned count; /* in the list */
    struct cds_list_head slotless;
    unsigned slotless_count;
    uint64_t owns;          /* sessions that have got an owner, ever; lock */
    struct qms_slot *slots; /* by the wire's number */
};

/* A decoded record; its numbers are within their ranges, and slot and parent within the
 * session's. */
struct qms_message {
    enum qm_wire_op op;
    unsigned slot, parent;
    enum qm_kind kind;
    uint64_t klass;
    const char *name; /* name_len bytes, the caller's */
    size_t name_len;
    const struct qm_wire_reads *reads;     /* as they came, need not be aligned; of
                                              QM_WIRE_READS, which has none of the above
                                              but op */
    const struct qm_wire_extents *extents; /* the same, of QM_WIRE_EXTENTS */
};

/* Returns 0 or ENOMEM. */
int qms_sessions_init(struct qms_sessions *sessions, struct qms_contexts *contexts,
                      struct qms_clients *clients, struct qms_classes *classes,
                      struct qms_stats *stats);
/* Ends the sessions of connections that were not closed. */
void qms_sessions_destroy(struct qms_sessions *sessions);

/* A new session with one member, and with slots if any are left; NULL without memory.
 */
struct qms_session *qms_session_new(struct qms_sessions *sessions);
/* Gives slots, if any are left, to a session without.  The caller is a member. */
void qms_session_lend(struct qms_sessions *sessions, struct qms_session *session);
/* The session of that number, with one member more; NULL if there is none, or it is
 * fenced. */
struct qms_session *qms_session_join(struct qms_sessions *sessions, uint64_t id);
/* Removes a member; the last one ends the session. */
void qms_session_leave(struct qms_sessions *sessions, struct qms_session *session);

/* Carries out n messages, all or none.  The caller is a member.  Returns 0; EINVAL if a
 * parent is not open when a message needs it, or nesting is too deep; ENOMEM. */
int qms_session_apply(struct qms_sessions *sessions, struct qms_session *session,
                      const struct qms_message *messages, size_t n);

/* A request to change data begins, and ends, over a connection that stays a member
 * meanwhile.  False: the session is fenced, and the request has not begun. */
bool qms_session_change_begin(struct qms_session *session);
void qms_session_change_end(struct qms_session *session);

/* Fences the session of that number, and waits for its requests in flight, which must
 * not include the calling thread's.  Returns 0, also if there is no such session; or
 * ESHUTDOWN if gone() was true; the session stays fenced then. */
int qms_session_fence(struct qms_sessions *sessions, uint64_t id);
/* The session, which the caller is a member of, is that owner's from now on; fences all
 * that were the owner's before, and waits as above.  Returns 0; EINVAL if it has
 * another owner; ESHUTDOWN as above, or if it was fenced itself meanwhile. */
int qms_session_own(struct qms_sessions *sessions, struct qms_session *session,
                    const uint8_t owner[QM_WIRE_OWNER_SIZE]);

/* Calls each() for every slot of every session.  The caller holds the table's lock. */
void qms_sessions_each_slot(struct qms_sessions *sessions,
                            void (*each)(void *opaque, struct qms_slot *slot),
                            void *opaque);

unsigned qms_sessions_count(struct qms_sessions *sessions);

#endif
