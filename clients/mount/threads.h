/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.h - a context for each thread that reads without having announced one.
 *
 * Its class is a hash of the thread's name, looked up when it is first seen.  A thread
 * that has not read for a while has its context ended, and gets a new one when it reads
 * again; so does the one that read the longest ago when the table is full.  A thread id
 * that the kernel gives to another thread continues the old context until then, which
 * does no harm.  Threads of the kernel have none.
 */
#ifndef QM_MOUNT_THREADS_H
#define QM_MOUNT_THREADS_H

#include <sys/types.h>

#include "clients/libqmctx/device-tag.h"

/* Contexts at the same time. */
#define QM_THREADS_MAX 1024
/* Seconds without a read after which a thread's context ends. */
#define QM_THREADS_IDLE 10

struct qm_threads;

/* NULL if memory is out. */
struct qm_threads *qm_threads_new(struct qm_device *device);
/* Ends all.  No request may come any more.  threads may be NULL. */
void qm_threads_free(struct qm_threads *threads);

/* The context of the thread with that id: a reference, or NULL if it has none, or
 * it cannot be begun.
 * Any thread; waits for the server only if it is to be begun. */
struct qm_tag *qm_threads_tag(struct qm_threads *threads, pid_t tid);

/* Ends those that are idle; to be called now and then. */
void qm_threads_sweep(struct qm_threads *threads);

#endif
