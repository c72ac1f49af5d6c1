/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-attached.c - the contexts that threads have open over a direct connection.
 *
 * Each thread has a stack of them for the direct instance itself, and one for each that
 * is attached to it: an instance that only begins and ends contexts, for requests that
 * another part of the program sends.  What those requests go by is the stack's top,
 * which is kept apart (qm_thread.current): an instance may be closed, and the stack
 * freed, by another thread than the one whose next request looks for its context.
 */
#include <stdlib.h>
#include <string.h>

#include "direct.h"

/* The direct instance whose requests the contexts are of. */
static struct direct *target(const struct qmctx *ctx)
{
    return qm_direct_of((struct qmctx *)ctx->over);
}

int qm_stack_begin(struct qmctx *ctx, struct qm_thread *thread, enum qmctx_kind kind,
                   uint64_t klass, const char *name)
{
    qmctx_id *ids;
    int err;

    if (!qm_thread_reserve(thread))
        return -1;
    ids = thread->frames;
    err = qm_context_open(target(ctx), thread->depth ? ids[thread->depth - 1] : 0, kind,
                          klass, name, &ids[thread->depth]);
    if (err)
        return qm_fail(err, "out of memory for a context");
    atomic_store(&thread->current, ids[thread->depth++]);
    return 0;
}

void qm_stack_end(struct qmctx *ctx, struct qm_thread *thread)
{
    const qmctx_id *ids = thread->frames;
    qmctx_id id = ids[--thread->depth];

    atomic_store(&thread->current, thread->depth ? ids[thread->depth - 1] : 0);
    /* The program may have closed it by its handle already. */
    (void)qm_context_close(target(ctx), id);
}

void qm_stack_gone(struct qmctx *ctx, struct qm_thread *thread)
{
    while (thread->depth > 0)
        qm_stack_end(ctx, thread);
}

static bool attached_connected(struct qmctx *ctx)
{
    struct qmctx *to = &target(ctx)->base;

    return !qm_is_parents(to) && to->transport->connected(to);
}

/* The direct instance gives up what is shared with the parent. */
static void attached_forked(struct qmctx *ctx, struct qm_thread *thread)
{
}

static void attached_close(struct qmctx *ctx)
{
    free(ctx);
}

const struct qm_transport qm_transport_attached = {
    .name = "attached",
    .thread_bytes = sizeof(struct qm_thread),
    .frame_bytes = sizeof(qmctx_id),
    .connected = attached_connected,
    .begin = qm_stack_begin,
    .end = qm_stack_end,
    .thread_gone = qm_stack_gone,
    .forked = attached_forked,
    .close = attached_close,
};

int qmctx_attach(struct qmctx *to, struct qmctx **ctx)
{
    struct qmctx *a;
    int err;

    *ctx = NULL;
    if (!qm_is_direct(to))
        return qm_fail(EINVAL, "only a direct connection can be attached to");
    a = calloc(1, sizeof *a);
    if (!a)
        return qm_fail(ENOMEM, "out of memory");
    a->over = to;
    err = qm_register(a, &qm_transport_attached);
    if (err) {
        free(a);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    *ctx = a;
    return 0;
}
