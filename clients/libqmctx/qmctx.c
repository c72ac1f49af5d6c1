/* SPDX-License-Identifier: BSD-3-Clause */
/* qmctx.c - the functions that every transport stands behind. */
#include <stdlib.h>
#include <string.h>

#include "clients/protocol/quickmine-agent.h"
#include "internal.h"

int qmctx_announce(const char *where, struct qmctx **ctx)
{
    *ctx = NULL;
    if (!where) {
        where = secure_getenv("QMCTX_TRANSPORT");
        if (!where)
            where = secure_getenv("QMCTX_CARRIER"); /* its old name */
        if (!where || !*where)
            where = "kernel";
    }
    if (strcmp(where, "kernel") == 0)
        return qm_announce_to_kernel(ctx);
    if (strcmp(where, "agent") == 0)
        return qm_announce_to_agent(QM_AGENT_SOCKET, ctx);
    if (strncmp(where, "agent:", 6) == 0)
        return qm_announce_to_agent(where + 6, ctx);
    return qm_announce_to_mount(where, ctx);
}

int qmctx_begin(struct qmctx *ctx, enum qmctx_kind kind, uint64_t klass,
                const char *name)
{
    struct qm_thread *thread;

    if (kind < QMCTX_CONNECTION || kind > QMCTX_QUERY)
        return qm_fail(EINVAL, "%d is no kind of context", (int)kind);
    if (qm_is_parents(ctx))
        return 0;
    thread = qm_thread_get(ctx, true);
    if (!thread)
        return qm_fail(ENOMEM, "out of memory for a thread's contexts");
    return ctx->transport->begin(ctx, thread, kind, klass, name);
}

uint64_t qmctx_shared_id(struct qmctx *ctx)
{
    return qm_is_parents(ctx) || !ctx->transport->shared_id
               ? 0
               : ctx->transport->shared_id(ctx);
}

int qmctx_begin_shared(struct qmctx *ctx, pid_t process, uint64_t id)
{
    struct qm_thread *thread;

    if (!ctx->transport->begin_shared)
        return qm_fail(ENOTSUP, "the transport %s has no contexts of other processes",
                       ctx->transport->name);
    if (process <= 0 || id == 0)
        return qm_fail(EINVAL, "no context of another process");
    if (qm_is_parents(ctx))
        return 0;
    thread = qm_thread_get(ctx, true);
    if (!thread)
        return qm_fail(ENOMEM, "out of memory for a thread's contexts");
    return ctx->transport->begin_shared(ctx, thread, process, id);
}

int qmctx_end(struct qmctx *ctx)
{
    struct qm_thread *thread;

    if (qm_is_parents(ctx))
        return 0;
    thread = qm_thread_get(ctx, false);
    if (!thread || thread->depth == 0)
        return qm_fail(EINVAL, "this thread has no open context");
    ctx->transport->end(ctx, thread);
    return 0;
}

int qmctx_end_to(struct qmctx *ctx, unsigned depth)
{
    struct qm_thread *thread;

    if (qm_is_parents(ctx))
        return 0;
    thread = qm_thread_get(ctx, false);
    while (thread && thread->depth > depth)
        ctx->transport->end(ctx, thread);
    return 0;
}

unsigned qmctx_depth(struct qmctx *ctx)
{
    struct qm_thread *thread = qm_is_parents(ctx) ? NULL : qm_thread_get(ctx, false);

    return thread ? thread->depth : 0;
}

const char *qmctx_transport(const struct qmctx *ctx)
{
    return ctx->transport->name;
}

const char *qmctx_carrier(const struct qmctx *ctx)
{
    return qmctx_transport(ctx);
}

bool qmctx_connected(const struct qmctx *ctx)
{
    return !qm_is_parents(ctx) && ctx->transport->connected((struct qmctx *)ctx);
}

void qmctx_close(struct qmctx *ctx)
{
    if (!ctx)
        return;
    qm_unregister(ctx);
    /* A parent's locks may be held by threads that are not there: its memory stays. */
    if (!qm_is_parents(ctx))
        ctx->transport->close(ctx);
}
