/* sessions.h - who may use which slots (quickmine-protocol(7)).
 *
 * A session is a range of slots that nobody else may use, and a number that is hard to
 * guess, by which further connections join it.  It ends, and the contexts in it, when
 * its last member connection leaves.
 *
 * A session may have no slots, if there were none left.  It gets some when its client
 * asks again and there are.
 *
 * A session can be fenced: from then on it cannot be joined, and requests to change
 * data over its members' connections are refused.  So these requests are counted, reads
 * are not.
 *
 * Locks: the table's lock guards the lists of sessions and who is a member; a session's
 * own lock serializes what happens to its slots, and is taken before the table's; its
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
#include "server/contexts.h"
#include "server/forest.h"

struct qms_session {
    struct cds_list_head list; /* with slots: in order of first */
    uint64_t id;               /* not 0 */
    /* Slots.  Set once, count last: who finds that it is not 0 may use the rest. */
    unsigned first;
    _Atomic unsigned count;
    unsigned client;  /* with slots: number, of clients */
    unsigned members; /* connections; 0: it is ending, nobody may join */
    unsigned refs;    /* one for being in a list, one for each fence that waits */

    pthread_mutex_t lock;      /* of what follows, and of the slots' contexts */
    struct qms_forest *forest; /* node n is slot first + n - 1 */

    pthread_mutex_t change_lock; /* of what follows */
    pthread_cond_t unchanging;   /* fenced, and changes is 0 */
    unsigned changes;            /* requests that are being carried out */
    bool fenced;                 /* changes with the table's lock, too */
};

struct qms_sessions {
    struct qms_contexts *contexts;
    struct qms_clients *clients;
    struct qms_classes *classes;
    struct qms_stats *stats;
    /* Whether a fence need not wait on, because its connection is closed or the server
     * stops; asked by its thread now and then, without a lock.  NULL: it waits. */
    bool (*gone)(void);
    pthread_mutex_t lock; /* of the lists, and of all members */
    struct cds_list_head list;
    unsigned count; /* in the list */
    struct cds_list_head slotless;
    unsigned slotless_count;
    struct qms_slot *slots; /* by the wire's number */
};

/* A record, decoded, whose numbers are within their ranges (slot and parent within the
 * session's). */
struct qms_message {
    enum qm_wire_op op;
    unsigned slot, parent;
    enum qm_kind kind;
    uint64_t klass;
    const char *name; /* name_len bytes, the caller's */
    size_t name_len;
};

/* Returns 0 or ENOMEM. */
int qms_sessions_init(struct qms_sessions *sessions, struct qms_contexts *contexts,
                      struct qms_clients *clients, struct qms_classes *classes,
                      struct qms_stats *stats);
/* Ends the sessions of connections that never said good-bye. */
void qms_sessions_destroy(struct qms_sessions *sessions);

/* A new session with one member, and with slots if there are any; NULL if there is no
 * memory. */
struct qms_session *qms_session_new(struct qms_sessions *sessions);
/* Gives a session slots that has none, if there are any.  The caller is a member. */
void qms_session_lend(struct qms_sessions *sessions, struct qms_session *session);
/* The session of that number, with one member more; NULL if there is none, or it is
 * fenced. */
struct qms_session *qms_session_join(struct qms_sessions *sessions, uint64_t id);
/* One member less; the session may be gone then. */
void qms_session_leave(struct qms_sessions *sessions, struct qms_session *session);

/* Carries out n messages, all or none.  The caller is a member.  Returns 0; EINVAL if
 * a parent is not open by the time that it is needed, or nesting is too deep; ENOMEM.
 */
int qms_session_apply(struct qms_sessions *sessions, struct qms_session *session,
                      const struct qms_message *messages, size_t n);

/* A request to change data begins, and ends, over a connection that is a member all the
 * while.  False: the session is fenced; then the request has not begun. */
bool qms_session_change_begin(struct qms_session *session);
void qms_session_change_end(struct qms_session *session);

/* Fences the session of that number, and waits for the requests that have begun.  The
 * calling thread's is none of them.  Returns 0, also if there is no such session; or
 * ESHUTDOWN: `gone` was true.  The session stays fenced then. */
int qms_session_fence(struct qms_sessions *sessions, uint64_t id);

unsigned qms_sessions_count(struct qms_sessions *sessions);

#endif
