/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-kernel.c - the transport that sets the thread's current context in the
 * kernel (client-patches/linux/ctx.h), for kernels that have such contexts.
 *
 * A thread's contexts are a stack of frames, each of one of the kernel's contexts, and
 * of what was current before it.  Nothing is kept beside: the kernel tells the device's
 * server, and ends all contexts with the process.
 *
 * The program itself, or another instance, may have set the current context.  The
 * outermost frame begins in it, and a frame that ends while another context is current
 * leaves it so.
 */
#include <stdlib.h>
#include <string.h>

#include "client-patches/linux/ctx.h"
#include "internal.h"

struct frame {
    int64_t handle; /* 0: there was none to be had */
    int64_t outer;  /* the thread's current one when this was begun */
};

/* Where the system call's number is another one's (Linux 6.5 on: cachestat(2), here
 * with null pointers), that fails as well. */
static bool has_contexts(void)
{
    return ctx_get() >= 0;
}

/* Makes handle current, or nothing if it has ended.  Returns what was. */
static int64_t set_current(int64_t handle)
{
    int64_t was = ctx_set(handle);

    return was == -1 ? ctx_set(0) : was;
}

static struct frame *frames_of(const struct qm_thread *thread)
{
    return thread->frames;
}

/* What a new context is to lie within. */
static int64_t enclosing(const struct qm_thread *thread)
{
    for (unsigned i = thread->depth; i > 0; i--)
        if (frames_of(thread)[i - 1].handle)
            return frames_of(thread)[i - 1].handle;
    return ctx_get();
}

static int kernel_begin(struct qmctx *ctx, struct qm_thread *thread,
                        enum qmctx_kind kind, uint64_t klass, const char *name)
{
    size_t name_len = name ? qm_name_len(name, APP_CTX_NAME_MAX) : 0;
    struct frame f = {0};

    if (!qm_thread_reserve(thread))
        return -1;
    f.handle = ctx_begin(kind, enclosing(thread), klass, name, name_len);
    /* The one around it may have been ended, by another thread or the program. */
    if (f.handle == -1 && errno == ENOENT)
        f.handle = ctx_begin(kind, 0, klass, name, name_len);
    if (f.handle > 0)
        f.outer = ctx_set(f.handle);
    if (f.handle == -1 || f.outer == -1)
        f = (struct frame){0};
    frames_of(thread)[thread->depth++] = f;
    return 0;
}

static void kernel_end(struct qmctx *ctx, struct qm_thread *thread)
{
    struct frame f = frames_of(thread)[--thread->depth];
    int64_t was;

    if (!f.handle)
        return;
    /* First what is current: nothing that this thread reads may lack a context for the
     * one within having ended. */
    was = set_current(f.outer);
    if (was != f.handle)
        set_current(was);
    ctx_end(f.handle);
}

static void kernel_thread_gone(struct qmctx *ctx, struct qm_thread *thread)
{
    if (qm_thread_get(ctx, false) == thread) {
        while (thread->depth > 0)
            kernel_end(ctx, thread);
    } else {
        /* What has ended counts as none, though it stays that thread's current one. */
        while (thread->depth > 0)
            ctx_end(frames_of(thread)[--thread->depth].handle);
    }
}

/* A new process has no contexts. */
static void kernel_forked(struct qmctx *ctx, struct qm_thread *thread)
{
}

static bool kernel_connected(struct qmctx *ctx)
{
    return true;
}

static void kernel_close(struct qmctx *ctx)
{
    free(ctx);
}

const struct qm_transport qm_transport_kernel = {
    .name = "kernel",
    .thread_bytes = sizeof(struct qm_thread),
    .frame_bytes = sizeof(struct frame),
    .connected = kernel_connected,
    .begin = kernel_begin,
    .end = kernel_end,
    .thread_gone = kernel_thread_gone,
    .forked = kernel_forked,
    .close = kernel_close,
};

int qm_announce_to_kernel(struct qmctx **ctx)
{
    struct qmctx *kernel;
    int err;

    if (!has_contexts())
        return qm_fail(ENOSYS,
                       "this kernel has no contexts (quickmine-ctx(7) tells which "
                       "has), and no mount's socket is named");
    kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return qm_fail(ENOMEM, "out of memory");
    err = qm_register(kernel, &qm_transport_kernel);
    if (err) {
        free(kernel);
        return qm_fail(err, "no thread-local storage: %s", strerror(err));
    }
    *ctx = kernel;
    return 0;
}
