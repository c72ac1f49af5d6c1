/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.h - which contexts of a backend are open: connection > transaction > query.
 *
 * A backend is one thread, and so all of this is its own; nothing here is locked, and
 * nothing raises an error or allocates PostgreSQL's memory, so that it may be called
 * from transaction callbacks and while an error is being handled.
 *
 * A unit of work that has a query's context is a *frame*: a planner's, executor's or
 * utility's call.  Frames nest as the calls do.  All that is between qm_frame_enter()
 * and qm_frame_leave() is of the frame, but for what frames within it do.
 */
#ifndef QM_POSTGRESQL_CONTEXTS_H
#define QM_POSTGRESQL_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/libqmctx/qmctx.h"

enum qm_level {
    QM_LEVEL_OFF,
    QM_LEVEL_CONNECTION,
    QM_LEVEL_TRANSACTION,
    QM_LEVEL_QUERY
};

/* What has happened, in all: read by others while it is being written. */
struct qm_counts {
    _Atomic uint64_t begun[QMCTX_QUERY + 1]; /* by kind */
    _Atomic uint64_t ended, failed;
};

/* Whom contexts are announced to (NULL: to nobody, and all functions do nothing), what
 * the outermost context is, and where it is counted; all stay the caller's. */
void qm_contexts_start(struct qmctx *transport, enum qmctx_kind kind, uint64_t klass,
                       const char *name, struct qm_counts *counts);
/* This is a helper of another backend: instead of the connection's, and the
 * transaction's and the query's of the first frame, there is that backend's context of
 * this shared id (qmctx_begin_shared()).  To be called after qm_contexts_start(). */
void qm_contexts_help(int process, uint64_t id);
/* Ends all contexts; from now on nothing is begun. */
void qm_contexts_stop(void);

/* Contexts as deep as this; those that are open and too deep end with their frame or
 * transaction, or here and now if no frame is entered and level is QM_LEVEL_OFF. */
void qm_contexts_level(enum qm_level level);

/* Begins the outermost context, unless it is open. */
void qm_connection_enter(void);

/* Begins a query's context of a class, and the connection's and the transaction's
 * around it if they are not open; the transaction's class is that of its first query.
 * Returns what qm_frame_leave() wants. */
int qm_frame_enter(uint64_t klass);

/* Ends the context of the frame and of those within it, which an error may have left
 * entered.  keep: an outermost frame's context stays open, so that a frame of the same
 * class that comes next continues it; for work that follows without anything between.
 */
void qm_frame_leave(int frame, bool keep);

/* Ends the context that was kept, if there is one and no frame is entered. */
void qm_kept_end(void);

/* The transaction has ended.  Frames that are entered (a procedure's CALL that commits,
 * a VACUUM) go on in the next one: their contexts are begun anew. */
void qm_transaction_over(void);

#endif
