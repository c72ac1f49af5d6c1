/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - see contexts.h.
 *
 * libqmctx keeps a thread's contexts as a stack.  What holds of it here, from the
 * outermost in:
 *
 *   - the connection's, if `connected`;
 *   - the transaction's, if `in_transaction`;
 *   - those of frames[0] to frames[entered - 1], as far as the level allows them: that
 *     of frame i is the one at depth frames[i].outside + 1;
 *   - or, while none is entered and `kept`, that of frames[0].
 *
 * In a helper (a parallel worker) the leader's context takes the connection's place,
 * and frames[0], which is a part of it, has none of its own.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "postgresql/contexts.h"

/* Reads of frames further in count to the innermost that has a context.  The kernel
 * allows 64 contexts in each other. */
#define FRAMES_MAX 48

static struct {
    struct qmctx *transport;
    enum qmctx_kind kind; /* of the outermost context ... */
    uint64_t klass;       /* ... with its class ... */
    const char *name;     /* ... and its name, or NULL */
    struct qm_counts *counts;
    int leader; /* the process that this one helps, and its context; 0: none */
    uint64_t leaders;
} backend;

static enum qm_level level = QM_LEVEL_QUERY;
static bool connected, in_transaction, kept;
static int entered; /* may be more than FRAMES_MAX */
static struct {
    uint64_t klass;
    unsigned outside; /* the depth to return to */
} frames[FRAMES_MAX];

/* A counter has one writer. */
static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter,
                          atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Returns whether it has begun; fails only for want of memory. */
static bool begin(enum qmctx_kind kind, uint64_t klass, const char *name)
{
    bool begun = qmctx_begin(backend.transport, kind, klass, name) == 0;

    add(begun ? &backend.counts->begun[kind] : &backend.counts->failed, 1);
    return begun;
}

static unsigned depth_of_transaction(void)
{
    return (unsigned)connected + in_transaction;
}

static void end_to(unsigned depth)
{
    unsigned open = qmctx_depth(backend.transport);

    if (open <= depth)
        return;
    qmctx_end_to(backend.transport, depth);
    /* The leader's context is counted by the leader. */
    if (depth == 0 && connected && backend.leader != 0)
        depth = 1;
    add(&backend.counts->ended, open - depth);
}

/* What was begun around the frame while it was entered stays. */
static void end_frame(int i)
{
    unsigned around = depth_of_transaction();

    end_to(frames[i].outside > around ? frames[i].outside : around);
}

static void end_all(void)
{
    end_to(0);
    connected = in_transaction = kept = false;
}

/* Begins the context of frames[i], and what has to be around it. */
static void begin_frame(int i)
{
    qm_connection_enter();
    if (backend.leader != 0) {
        frames[i].outside = qmctx_depth(backend.transport);
        if (i > 0 && level >= QM_LEVEL_QUERY)
            begin(QMCTX_QUERY, frames[i].klass, NULL);
        return;
    }
    /* Not within a query's that was begun when the level was another one. */
    if (!in_transaction && level >= QM_LEVEL_TRANSACTION &&
        qmctx_depth(backend.transport) == connected)
        in_transaction = begin(QMCTX_TRANSACTION, frames[i].klass, NULL);
    frames[i].outside = qmctx_depth(backend.transport);
    if (level >= QM_LEVEL_QUERY)
        begin(QMCTX_QUERY, frames[i].klass, NULL);
}

void qm_contexts_start(struct qmctx *transport, enum qmctx_kind kind, uint64_t klass,
                       const char *name, struct qm_counts *counts)
{
    backend.transport = transport;
    backend.kind = kind;
    backend.klass = klass;
    backend.name = name;
    backend.counts = counts;
}

void qm_contexts_help(int process, uint64_t id)
{
    backend.leader = process;
    backend.leaders = id;
}

void qm_contexts_stop(void)
{
    if (backend.transport)
        end_all();
    backend.transport = NULL;
}

void qm_contexts_level(enum qm_level new_level)
{
    level = new_level;
    if (level == QM_LEVEL_OFF && backend.transport && entered == 0)
        end_all();
}

void qm_connection_enter(void)
{
    if (!backend.transport || level == QM_LEVEL_OFF ||
        qmctx_depth(backend.transport) > 0)
        return;
    if (backend.leader != 0)
        connected =
            qmctx_begin_shared(backend.transport, backend.leader, backend.leaders) == 0;
    else
        connected = begin(backend.kind, backend.klass, backend.name);
}

int qm_frame_enter(uint64_t klass)
{
    if (entered == 0 && kept) {
        kept = false;
        if (frames[0].klass == klass)
            return entered++;
        end_frame(0);
    }
    if (entered < FRAMES_MAX) {
        frames[entered].klass = klass;
        frames[entered].outside = 0;
        if (backend.transport && level != QM_LEVEL_OFF)
            begin_frame(entered);
    }
    return entered++;
}

void qm_frame_leave(int frame, bool keep)
{
    entered = frame;
    if (!backend.transport || frame >= FRAMES_MAX)
        return;
    if (level == QM_LEVEL_OFF && frame == 0)
        end_all();
    else if (keep && frame == 0)
        kept = true;
    else
        end_frame(frame);
}

void qm_kept_end(void)
{
    if (!kept || entered > 0)
        return;
    kept = false;
    end_frame(0);
}

void qm_transaction_over(void)
{
    if (!backend.transport)
        return;
    kept = in_transaction = false;
    if (level == QM_LEVEL_OFF) {
        end_all();
        return;
    }
    end_to(depth_of_transaction());
    for (int i = 0; i < entered && i < FRAMES_MAX; i++)
        begin_frame(i);
}
