/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-told.c - the transport whose contexts are told to functions.
 *
 * The instance is never freed: a thread may look for its context while another one
 * closes it.  What it looks at is its own state, which only it frees.
 */
#include "told.h"

#include <string.h>

#include "internal.h"

static struct qmctx instance;
static const struct qm_told *_Atomic to; /* NULL: it is not open */

static int told_begin(struct qmctx *ctx, struct qm_thread *thread, enum qmctx_kind kind,
                      uint64_t klass, const char *name)
{
    uint32_t *handles, handle;

    if (!qm_thread_reserve(thread))
        return -1;
    handles = thread->frames;
    handle = atomic_load(&to)->begin(thread->depth ? handles[thread->depth - 1] : 0,
                                     kind, klass, name);
    if (handle == 0)
        return qm_fail(ENOMEM, "out of memory for a context");
    handles[thread->depth++] = handle;
    atomic_store(&thread->current, handle);
    return 0;
}

static void told_end(struct qmctx *ctx, struct qm_thread *thread)
{
    const uint32_t *handles = thread->frames;
    uint32_t handle = handles[--thread->depth];

    atomic_store(&thread->current, thread->depth ? handles[thread->depth - 1] : 0);
    atomic_load(&to)->end(handle);
}

static void told_gone(struct qmctx *ctx, struct qm_thread *thread)
{
    while (thread->depth > 0)
        told_end(ctx, thread);
}

static bool told_connected(struct qmctx *ctx)
{
    return !qm_is_parents(ctx) && atomic_load(&to)->connected();
}

static void told_forked(struct qmctx *ctx, struct qm_thread *thread)
{
}

static void told_close(struct qmctx *ctx)
{
    atomic_store(&to, NULL);
}

static const struct qm_transport told_transport = {
    .name = "record",
    .thread_bytes = sizeof(struct qm_thread),
    .frame_bytes = sizeof(uint32_t),
    .connected = told_connected,
    .begin = told_begin,
    .end = told_end,
    .thread_gone = told_gone,
    .forked = told_forked,
    .close = told_close,
};

int qm_told_open(const struct qm_told *told, struct qmctx **ctx)
{
    const struct qm_told *nobody = NULL;
    int err;

    *ctx = NULL;
    if (!atomic_compare_exchange_strong(&to, &nobody, told))
        return qm_fail(EBUSY, "another part of the program announces contexts already");
    err = qm_register(&instance, &told_transport);
    if (err) {
        atomic_store(&to, NULL);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    *ctx = &instance;
    return 0;
}

uint32_t qm_told_current(void)
{
    struct qm_thread *thread =
        atomic_load(&to) ? qm_thread_get(&instance, false) : NULL;

    return thread ? (uint32_t)atomic_load(&thread->current) : 0;
}
