/* contexts.h - the open contexts, and what is read in them.
 *
 * A slot is a place where one context may be open: one of the wire's slots, a plain
 * connection's own, or the one that takes every read at level `none`.  Contexts form
 * trees by nesting; all that happens within a tree happens under one lock, that of the
 * slot where its root is.  So two readers meet on a lock only if their contexts are
 * nested in the same root.
 *
 * Who calls what: beginning and ending contexts in slots of one session is serialized
 * by the session's lock (sessions.h); of a plain connection's slot, by nothing (the
 * first read begins it, the end of the connection ends it).  Everything else may be
 * called by any thread at any time.
 */
#ifndef QMS_CONTEXTS_H
#define QMS_CONTEXTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "mining/core/context.h"
#include "server/classes.h"
#include "server/clients.h"
#include "server/miner.h"
#include "server/record.h"
#include "server/stats.h"

/* The classes of the contexts around one, innermost first, none twice, and none that is
 * its own.  Classes are never removed, so this is good for longer than the contexts. */
struct qms_around {
    uint16_t count;
    uint16_t klass[QMS_AROUND_MAX]; /* indexes */
};

/* Slots side by side are of different readers, so their cache lines are, too. */
struct qms_slot {
    _Alignas(64) pthread_mutex_t tree; /* of the tree whose root's slot this is */
    unsigned client;                   /* whose it is; does not change */
    /* Where the root of the context that is open here is; NULL: none is open.  Changes
     * under that root's lock alone. */
    _Atomic(struct qms_slot *) root;
    /* All that follows is guarded by the root's lock. */
    struct qm_context *context;
    struct qms_class *klass;
    uint64_t id;   /* unique since the server started */
    uint64_t kept; /* blocks that its stream keeps */
    uint64_t held; /* of these, so many are counted in qms_contexts.clients */
    bool recorded; /* the trace has its begin */
    struct qms_around around;
};

void qms_slot_init(struct qms_slot *slot, unsigned client);
void qms_slot_destroy(struct qms_slot *slot); /* nothing is open in it */

struct qms_contexts {
    const struct qm_engine *engine;
    enum qm_level level;
    bool mining; /* false: the prefetcher learns nothing and wants nothing */
    struct qms_classes *classes;
    struct qms_miner *miner;       /* NULL: nothing to learn */
    struct qms_recorder *recorder; /* NULL: not recording */
    struct qms_stats *stats;
    uint64_t held_max;   /* blocks that open contexts of a client may hold, see
                            contexts.c */
    struct qms_slot all; /* at level none: the one sequence */
    _Atomic uint64_t next_id, open;
    _Atomic uint64_t held[QMS_CLIENTS]; /* blocks of sequences of open contexts */
    _Atomic unsigned holders;           /* clients that hold any */
};

/* Fills in the rest of what the caller began to fill in (pointers, level, mining,
 * held_max). Returns 0 or ENOMEM. */
int qms_contexts_init(struct qms_contexts *contexts);
/* All contexts have been ended by who began them. */
void qms_contexts_destroy(struct qms_contexts *contexts);

/* Begins a context in slot, where none is open, nested in the one that is open in
 * parent (NULL: a root).  If parent has none after all, it becomes a root.  Returns 0
 * or ENOMEM. */
int qms_context_begin(struct qms_contexts *contexts, struct qms_slot *slot,
                      struct qms_slot *parent, enum qm_kind kind,
                      struct qms_class *klass);

/* Ends the context that is open in slot, if any, and all that is nested in it. */
void qms_context_end(struct qms_contexts *contexts, struct qms_slot *slot);

/* What a request was found to belong to when it arrived. */
struct qms_ref {
    struct qms_slot *slot;   /* NULL: no context */
    struct qms_class *klass; /* never NULL */
    uint64_t id;             /* 0: no context */
    struct qms_around around;
};

/* A request arrives: finds out what it belongs to and records it.  slot may be NULL.
 * type: QM_TRACE_READ or QM_TRACE_WRITE. */
void qms_context_arrive(struct qms_contexts *contexts, struct qms_slot *slot, char type,
                        uint64_t offset, uint64_t count, struct qms_ref *ref);

/* A block of the request was found so.  Extends the context's sequence; fills in the
 * candidates for prefetching, if any are wanted, and returns how many. */
unsigned qms_context_access(struct qms_contexts *contexts, const struct qms_ref *ref,
                            uint64_t block, enum qm_access access,
                            uint64_t candidates[QM_CANDIDATES_MAX]);

#endif
