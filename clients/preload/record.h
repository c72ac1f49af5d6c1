/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - a trace of what a program reads and writes in files that stay where they
 * are.
 *
 * What QMCTX_PRELOAD_RECORD and _RECORD_FILES ask for.  Nothing else changes: each call
 * goes to the kernel as without the library, and afterwards (or, of an asynchronous
 * request, before it is submitted) an event is written to the trace, in the context
 * that the thread has begun.
 *
 * All files are one device in the trace: each 16 GiB of a file, when first accessed, is
 * given the next 16 GiB of it.  It is recorded what the process does in which the
 * library was loaded; not what its children do.
 *
 * Functions may be called by any thread at any time, leave errno alone, and take one
 * lock (record.c), within which the registry lock of libqmctx is not taken.  In a
 * signal handler that has interrupted what holds the lock, nothing is recorded.
 */
#ifndef QM_PRELOAD_RECORD_H
#define QM_PRELOAD_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/libqmctx/qmctx.h"

/* Reads the environment, and creates the trace; ends the process with a sentence if it
 * makes no sense. */
void qm_record_configure(void);
/* In a child of fork(): nothing is recorded any more. */
void qm_record_forked(void);

extern _Atomic bool qm_recording;
void qm_record_opened_(int fd);
void qm_record_duplicated_(int fd, int copy);
void qm_record_forget_(int fd);
void qm_record_(int fd, bool write, off_t offset, size_t length);

/* The descriptor of the trace, which is no descriptor to the program, so that one that
 * closes all that it has does not lose it: or -1, also in a child of vfork(), whose
 * descriptors are its own. */
int qm_record_kept(void);
/* The program is about to make fd something else: the trace gets another descriptor. */
void qm_record_make_way(int fd);
/* These descriptors are about to be closed. */
void qm_record_forget_range(unsigned first, unsigned last);

/* fd has just been opened. */
static inline void qm_record_opened(int fd)
{
    if (fd >= 0 && atomic_load_explicit(&qm_recording, memory_order_relaxed))
        qm_record_opened_(fd);
}

/* copy is fd's duplicate now.  Takes no lock: dup() may be called in a signal handler.
 */
static inline void qm_record_duplicated(int fd, int copy)
{
    if (copy >= 0 && atomic_load_explicit(&qm_recording, memory_order_relaxed))
        qm_record_duplicated_(fd, copy);
}

/* fd is about to be closed, or is something else now. */
static inline void qm_record_forget(int fd)
{
    if (fd >= 0 && atomic_load_explicit(&qm_recording, memory_order_relaxed))
        qm_record_forget_(fd);
}

/* length bytes were read or written there, or are about to be.  Returns length, which
 * may be 0 or below: then nothing was. */
static inline ssize_t qm_record(int fd, bool write, off_t offset, ssize_t length)
{
    if (length > 0 && atomic_load_explicit(&qm_recording, memory_order_relaxed))
        qm_record_(fd, write, offset, (size_t)length);
    return length;
}

/* Whether it is recorded: where a caller would have to find out the offset first. */
bool qm_is_recorded(int fd);

/* If the socket is that of a mount in the place of what is recorded (PATH.ctx, of one
 * of its paths or what is below one): true, and *result is that of qmctx_announce().
 * The contexts are those of the trace. */
bool qm_record_announce(const char *socket, struct qmctx **ctx, int *result);

/* record-contexts.c, all with the lock held: the contexts that were begun. */

/* The calling thread's innermost, or 0. */
uint64_t qm_record_context(void);

struct qm_event;
/* Writes an event that has a kind, or an offset; its time is set here. */
void qm_record_event(struct qm_event *event);
void qm_record_lock(void);
void qm_record_unlock(void);
/* An instance for contexts; 0, or -1 with qmctx_error(). */
int qm_record_contexts(struct qmctx **ctx);

#endif
