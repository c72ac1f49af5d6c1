/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.h - the open contexts, and the sequences of blocks read in them.
 *
 * A slot holds at most one open context: one of the wire's slots, a plain connection's
 * own, or the one for all reads at level `none`.  Contexts form trees by nesting; the
 * lock of the root's slot guards the whole tree.  Two readers contend for a lock only
 * if their contexts are nested in the same root.
 *
 * Threads: the session's lock (sessions.h) serializes beginning and ending contexts in
 * the slots of a session.  A plain connection's slot needs no lock for that: the first
 * read begins its context, the end of the connection ends it.  Everything else may be
 * called by any thread at any time.
 *
 * Sequences are used with the read lock, which is taken before a tree's lock.
 * While it is closed, the prefetcher, the level and the miner can be replaced.
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
#include "server/rwlock.h"
#include "server/miner.h"
#include "server/record.h"
#include "server/stats.h"

/* The classes of the contexts around one, innermost first, each once, without its own.
 * Classes are never removed, so this outlives the contexts. */
struct qms_around {
    uint16_t count;
    uint16_t klass[QMS_AROUND_MAX]; /* indexes */
};

/* Aligned, since adjacent slots belong to different readers. */
struct qms_slot {
    _Alignas(64) pthread_mutex_t tree; /* of the tree whose root's slot this is */
    unsigned client;                   /* number, constant */
    /* Slot of the root of the open context; NULL: none is open.  Changes under that
     * root's lock only. */
    _Atomic(struct qms_slot *) root;
    /* All that follows is guarded by the root's lock. */
    struct qm_context *context;
    struct qms_class *klass;
    uint64_t id;   /* unique since the server started */
    uint64_t kept; /* blocks in its stream's sequence */
    uint64_t held; /* of kept: blocks counted in qms_contexts.held */
    bool recorded; /* the trace has its begin */
    struct qms_around around;
};

void qms_slot_init(struct qms_slot *slot, unsigned client);
void qms_slot_destroy(struct qms_slot *slot); /* nothing is open in it */

struct qms_contexts {
    struct qms_rwlock lock; /* of the engine, and of level, mining and miner */
    const struct qm_engine *engine;
    enum qm_level level;
    bool mining; /* false: the prefetcher neither learns nor prefetches */
    struct qms_classes *classes;
    struct qms_miner *miner;       /* NULL: nothing to learn */
    struct qms_recorder *recorder; /* NULL: not recording; it never changes */
    /* A recording for a while, if there is no other: NULL, or of one in shadow_one_in
     * of the trees of contexts.  Both change with the write lock. */
    _Atomic(struct qms_recorder *) shadow;
    uint64_t shadow_one_in;
    struct qms_stats *stats;
    uint64_t held_max;   /* limit of blocks in a client's open sequences, see
                            contexts.c */
    struct qms_slot all; /* at level none: of the only sequence */
    _Atomic uint64_t next_id, open;
    _Atomic uint64_t held[QMS_CLIENTS]; /* blocks in sequences of open contexts */
    _Atomic unsigned holders;           /* clients for which held is not 0 */
};

/* Initializes all but what the caller has set: pointers, level, mining, held_max.
 * Returns 0 or ENOMEM. */
int qms_contexts_init(struct qms_contexts *contexts);
/* All contexts must have been ended. */
void qms_contexts_destroy(struct qms_contexts *contexts);

/* Begins a context in slot, where none is open, nested in the one that is open in
 * parent; a root if parent is NULL or has none open.  Returns 0 or ENOMEM. */
int qms_context_begin(struct qms_contexts *contexts, struct qms_slot *slot,
                      struct qms_slot *parent, enum qm_kind kind,
                      struct qms_class *klass);

/* Ends the context that is open in slot, if any, and all that is nested in it. */
void qms_context_end(struct qms_contexts *contexts, struct qms_slot *slot);

/* The caller has the write lock.  The sequences of slot's context, if it is a root,
 * and of all that is nested in it end, and what they have read is queued for the
 * present miner; they begin anew with another prefetcher, at another level.  slot NULL:
 * of the one context of level none. */
void qms_contexts_restart(struct qms_contexts *contexts, struct qms_slot *slot,
                          struct qm_prefetcher *prefetcher, enum qm_level level);

/* With the write lock: a recording has begun, and the slot's context, if one is
 * open, begins in it, after those that it is nested in. */
void qms_context_record_open(struct qms_contexts *contexts, struct qms_slot *slot);

/* The context that a request belonged to when it arrived. */
struct qms_ref {
    struct qms_slot *slot;   /* NULL: no context */
    struct qms_class *klass; /* never NULL */
    uint64_t id;             /* 0: no context */
    struct qms_around around;
    uint32_t blocks; /* of the request, from the one on that is accessed next */
};

/* Finds the context of a request that arrives, and records the request.  slot may be
 * NULL.  type: QM_TRACE_READ or QM_TRACE_WRITE. */
void qms_context_arrive(struct qms_contexts *contexts, struct qms_slot *slot, char type,
                        uint64_t offset, uint64_t count, struct qms_ref *ref);

/* Extends the context's sequence by a block of the request.  access: how the block was
 * found.  Fills in candidates for prefetching, and returns how many.  The caller is
 * with the read lock. */
unsigned qms_context_access(struct qms_contexts *contexts, const struct qms_ref *ref,
                            uint64_t block, enum qm_access access,
                            struct qm_candidate candidates[QM_CANDIDATES_MAX]);

#endif
