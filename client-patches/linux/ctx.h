/* SPDX-License-Identifier: BSD-3-Clause */
/* ctx.h - the system calls of a kernel with application contexts.
 *
 * A context is a unit of a program's work: it belongs to the process that began it, and
 * is named by a handle, a positive number that is never given out twice.  I/O is done
 * for a context by naming it (ctx_pread, ctx_pwrite), or for the calling thread's
 * current one (ctx_set), which covers whatever a library does below, page-cache reads
 * and their readahead included, and io_uring requests that the thread submits while it
 * is set.
 *
 * A context ends with ctx_end(), with the context around it, when its process ends, and
 * with execve(2).  A new thread and a new process have no current context.
 *
 * All of these return -1 and set errno on failure: ENOSYS, the kernel has no contexts;
 * ENOENT, the handle is not of an open context of this process; EAGAIN, too many
 * contexts are open; ELOOP, too deeply nested; EINVAL.  Contexts are advice: who cannot
 * have one works on without.
 */
#ifndef QM_CTX_H
#define QM_CTX_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#if defined __has_include
#if __has_include(<linux/app_ctx.h>)
#include <linux/app_ctx.h>
#endif
#endif

#ifndef APP_CTX_NAME_MAX /* the headers are of another kernel */
#define APP_CTX_NAME_MAX 439

enum { APP_CTX_BEGIN = 1, APP_CTX_END = 2, APP_CTX_SET = 3, APP_CTX_GET = 4 };

enum {
    APP_CTX_CONNECTION = 1,
    APP_CTX_THREAD = 2,
    APP_CTX_TRANSACTION = 3,
    APP_CTX_QUERY = 4
};

struct app_ctx_attr {
    uint32_t kind;
    uint32_t name_len;
    uint64_t parent;
    uint64_t class_id;
    uint64_t name; /* a pointer */
};
#endif

#ifndef __NR_ctx_action
#ifdef __x86_64__
#define __NR_ctx_action   451
#define __NR_ctx_pread64  452
#define __NR_ctx_pwrite64 453
#else /* no number is a system call's: ENOSYS */
#define __NR_ctx_action   -1
#define __NR_ctx_pread64  -1
#define __NR_ctx_pwrite64 -1
#endif
#endif

static inline long ctx_action(int action, int64_t ctx, const struct app_ctx_attr *attr,
                              size_t size)
{
    return syscall(__NR_ctx_action, action, ctx, attr, size);
}

/* Begins a context in another one, or in none (0); klass and name (UTF-8, cut where it
 * is too long; or none: NULL, 0) are what it has in common with others of its kind.
 * Returns its handle.  It is nobody's current one yet. */
static inline int64_t ctx_begin(unsigned kind, int64_t parent, uint64_t klass,
                                const char *name, size_t name_len)
{
    struct app_ctx_attr attr = {0};

    attr.kind = kind;
    attr.name_len = name_len < APP_CTX_NAME_MAX ? name_len : APP_CTX_NAME_MAX;
    attr.parent = parent;
    attr.class_id = klass;
    attr.name = (uintptr_t)name;
    return ctx_action(APP_CTX_BEGIN, 0, &attr, sizeof attr);
}

/* Ends a context, and those within it, whoever's current ones they are. */
static inline int ctx_end(int64_t ctx)
{
    return ctx_action(APP_CTX_END, ctx, NULL, 0);
}

/* Makes a context the calling thread's current one; 0: none.  Returns the former one.
 */
static inline int64_t ctx_set(int64_t ctx)
{
    return ctx_action(APP_CTX_SET, ctx, NULL, 0);
}

/* The calling thread's current context, or 0. */
static inline int64_t ctx_get(void)
{
    return ctx_action(APP_CTX_GET, 0, NULL, 0);
}

static inline ssize_t ctx_pread(int fd, void *buf, size_t count, off_t pos, int64_t ctx)
{
    return syscall(__NR_ctx_pread64, fd, buf, count, pos, ctx);
}

static inline ssize_t ctx_pwrite(int fd, const void *buf, size_t count, off_t pos,
                                 int64_t ctx)
{
    return syscall(__NR_ctx_pwrite64, fd, buf, count, pos, ctx);
}

#endif
