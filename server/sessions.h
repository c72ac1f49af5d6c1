/* sessions.h - who may use which slots (quickmine-protocol(7)).
 *
 * A session is a range of slots that nobody else may use, and a number that is hard to
 * guess, by which further connections join it.  It ends, and the contexts in it, when
 * its last member connection leaves.
 *
 * Locks: the table's lock guards the list of sessions and who is a member; a session's
 * own lock serializes what happens to its slots, and is taken without the table's.
 */
#ifndef QMS_SESSIONS_H
#define QMS_SESSIONS_H

#include <pthread.h>
#include <stdint.h>
#include <urcu/list.h>

#include "client-patches/protocol/quickmine-protocol.h"
#include "server/contexts.h"
#include "server/forest.h"

struct qms_session {
    struct cds_list_head list; /* in order of first */
    uint64_t id;               /* not 0 */
    unsigned first, count;     /* slots */
    unsigned members;          /* connections; 0: it is ending, nobody may join */
    unsigned client;           /* number, of clients */
    pthread_mutex_t lock;      /* of what follows, and of the slots' contexts */
    struct qms_forest *forest; /* node n is slot first + n - 1 */
};

struct qms_sessions {
    struct qms_contexts *contexts;
    struct qms_clients *clients;
    struct qms_classes *classes;
    struct qms_stats *stats;
    pthread_mutex_t lock; /* of the list, and of all members */
    struct cds_list_head list;
    unsigned count;         /* in the list */
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

/* A new session with one member; NULL if there are no slots left, or no memory. */
struct qms_session *qms_session_new(struct qms_sessions *sessions);
/* The session of that number, with one member more; NULL if there is none. */
struct qms_session *qms_session_join(struct qms_sessions *sessions, uint64_t id);
/* One member less; the session may be gone then. */
void qms_session_leave(struct qms_sessions *sessions, struct qms_session *session);

/* Carries out n messages, all or none.  The caller is a member.  Returns 0; EINVAL if
 * a parent is not open by the time that it is needed, or nesting is too deep; ENOMEM.
 */
int qms_session_apply(struct qms_sessions *sessions, struct qms_session *session,
                      const struct qms_message *messages, size_t n);

unsigned qms_sessions_count(struct qms_sessions *sessions);

#endif
