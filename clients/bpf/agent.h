/* SPDX-License-Identifier: BSD-3-Clause */
/* agent.h - the reads of local block devices, with the contexts that cause them.
 *
 * Joins what the kernel tells of reads (watch.h) with what programs tell of their
 * threads (registrar.h, contexts.h), and hands each read on with its context.  A thread
 * of a process that has not registered, or has no current context, is a context by
 * itself if that is asked for.
 *
 * The agent reads the kernel's ring in short intervals while there is something in it,
 * and sleeps when there has been nothing for a while.  Whatever happens to it, the
 * devices work on; only the contexts are missing.
 *
 * Threads: one at a time.
 */
#ifndef QM_BPF_AGENT_H
#define QM_BPF_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/bpf/contexts.h"
#include "clients/bpf/reads.h"

struct qm_agent_config {
    const char *socket; /* where programs register; NULL: nowhere */
    const dev_t *devices;
    unsigned device_count;
    bool writes;  /* tell of these, too */
    bool threads; /* a thread without a context of its own is one */
    struct qm_sink sink;
    /* A read, or write, of a disk: `context` is a handle of the sink, or 0. */
    void (*io)(void *opaque, uint64_t context, const struct qm_bpf_read *read);
    /* All events so far were passed on; called when the ring has been emptied. */
    void (*flush)(void *opaque);
    /* Called by qm_agent_run() some 50 times a second, also while nothing is read: to
     * go on with what could not be done at once.  May be NULL. */
    void (*tend)(void *opaque);
    void *opaque; /* of these three */
};

struct qm_agent;

/* Returns 0, or an errno value with a sentence in err. */
int qm_agent_open(struct qm_agent **agent, const struct qm_agent_config *config,
                  char *err, size_t len);
void qm_agent_close(struct qm_agent *agent);

/* Works until stop_fd is readable. */
void qm_agent_run(struct qm_agent *agent, int stop_fd);

/* For a program that drains the ring when it needs to know, in place of
 * qm_agent_run(): hands on what is in the ring, without waiting, and returns whether
 * there was anything. */
bool qm_agent_drain(struct qm_agent *agent);
/* How far the ring has been filled, and whether what was in it then has been handed on:
 * a read whose request has arrived is before the mark, or it was lost. */
uint64_t qm_agent_mark(const struct qm_agent *agent);
bool qm_agent_is_past(const struct qm_agent *agent, uint64_t mark);
/* Like qm_agent_drain(), and the rest of the agent's work: programs that register,
 * contexts that have ended.  To be called some 50 times a second, and when the
 * descriptor is readable; -1: there is none. */
void qm_agent_tend(struct qm_agent *agent);
int qm_agent_fd(const struct qm_agent *agent);

struct qm_agent_stats {
    uint64_t reads, writes;
    uint64_t in_context; /* reads with a context that a program told */
    uint64_t in_thread;  /* reads whose context is their thread */
    uint64_t lost;       /* that found the ring full */
    struct qm_agent_contexts_stats contexts;
};

void qm_agent_get_stats(const struct qm_agent *agent, struct qm_agent_stats *stats);

#endif
