/* SPDX-License-Identifier: BSD-3-Clause */
/* told.h - an instance whose contexts are told to functions, and to nobody else.
 *
 * For programs of ours that have another use for contexts than a server's: the preload
 * library writes them to a trace.  There is one such instance in a process at a time.
 */
#ifndef QMCTX_TOLD_H
#define QMCTX_TOLD_H

#include "clients/libqmctx/qmctx.h"

#pragma GCC visibility push(default)

struct qm_told {
    /* Returns a handle of the context, which is nested in parent (0: in none); or 0:
     * out of memory.  name may be NULL. */
    uint32_t (*begin)(uint32_t parent, enum qmctx_kind kind, uint64_t klass,
                      const char *name);
    /* May be called by another thread than that of begin(), with the registry lock
     * held: it must not call libqmctx. */
    void (*end)(uint32_t handle);
    bool (*connected)(void);
};

/* told must remain.  0, or -1 with qmctx_error(). */
int qm_told_open(const struct qm_told *told, struct qmctx **ctx);
/* The calling thread's innermost context, or 0.  Takes no lock. */
uint32_t qm_told_current(void);

#pragma GCC visibility pop

#endif
