/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.h - threads as contexts, for programs that tell of none.
 *
 * A thread that reads is a context of kind `thread`, whose class is its name.  Nobody
 * says when it ends: one that has not read for QM_THREAD_IDLE does, and when there are
 * QM_THREADS_MAX, the one that has not read for the longest time.
 *
 * Any program can give its threads any names, and a server keeps a class for each, so
 * there are QM_THREAD_NAMES at most: threads of further names have the class "others".
 *
 * Threads: one at a time.
 */
#ifndef QM_BPF_THREADS_H
#define QM_BPF_THREADS_H

#include <stdint.h>

#include "clients/bpf/contexts.h"
#include "clients/bpf/reads.h"

#define QM_THREADS_MAX  4096
#define QM_THREAD_NAMES 256
#define QM_THREAD_IDLE  UINT64_C(30000000000) /* ns */

struct qm_agent_threads;

/* NULL if memory is out. */
struct qm_agent_threads *qm_agent_threads_new(const struct qm_sink *sink);
void qm_agent_threads_free(struct qm_agent_threads *threads);

/* The handle of the thread that makes this read; 0: it has none. */
uint64_t qm_agent_threads_find(struct qm_agent_threads *threads,
                               const struct qm_bpf_read *read);

/* Ends those that have been idle.  now: of the clock of qm_bpf_read.ns. */
void qm_agent_threads_sweep(struct qm_agent_threads *threads, uint64_t now);

#endif
