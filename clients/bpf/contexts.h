/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.h - the contexts of registered processes, from their threads' words.
 *
 * A process registers with a table of slots (clients/protocol/quickmine-agent.h).  Here
 * a word that came with a read becomes a context of a sink: a server's session, or a
 * trace. A context is begun in the sink at its first read, with what is around it; it
 * ends when the table says so, when its slot has another, or when its process is
 * forgotten.
 *
 * Nothing of a table is believed: a slot is copied while it stands still, numbers are
 * checked, and what is wrong makes a read of no context.  A process has at most
 * QM_AGENT_CONTEXTS_OPEN contexts open, and the processes of a user other than root
 * together QM_AGENT_CONTEXTS_USER; more are no context.
 *
 * Threads: one at a time.
 */
#ifndef QM_BPF_CONTEXTS_H
#define QM_BPF_CONTEXTS_H

#include <stdint.h>
#include <sys/types.h>

#include "clients/protocol/quickmine-agent.h"

#define QM_AGENT_CONTEXTS_OPEN  8192  /* of a process */
#define QM_AGENT_CONTEXTS_USER  16384 /* of a user */
#define QM_AGENT_CONTEXTS_ALL   65536 /* of all */
#define QM_AGENT_CONTEXTS_DEPTH 32    /* of nesting */
#define QM_AGENT_CONTEXTS_SWEEP 2048  /* looked at by one part of a sweep */

/* Where contexts go.  A handle is the sink's, not 0. */
struct qm_sink {
    /* Begins a context within parent (0: none).  name is terminated, perhaps "".
     * Returns its handle, or 0 if it cannot. */
    uint64_t (*begin)(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name);
    /* Ends one.  What is nested in it has been ended. */
    void (*end)(void *opaque, uint64_t handle);
    void *opaque;
};

struct qm_agent_contexts;

/* NULL if memory is out. */
struct qm_agent_contexts *qm_agent_contexts_new(const struct qm_sink *sink);
void qm_agent_contexts_free(struct qm_agent_contexts *contexts);

/* A process registers a table: a descriptor that stays the caller's.  One that is
 * registered registers anew.  Returns 0; EINVAL: the hello or the descriptor is not
 * what it has to be; or an errno value. */
int qm_agent_contexts_register(struct qm_agent_contexts *contexts, pid_t process,
                               uid_t user, const struct qm_agent_hello *hello,
                               int table);
/* The process is gone; its contexts end. */
void qm_agent_contexts_forget(struct qm_agent_contexts *contexts, pid_t process);

/* The handle of the context that a thread's word stands for; 0: none. */
uint64_t qm_agent_contexts_find(struct qm_agent_contexts *contexts, pid_t process,
                                uint64_t word);

/* Ends contexts that have ended: those of as many processes as have
 * QM_AGENT_CONTEXTS_SWEEP together, or of one; the next call goes on with the others.
 * To be called now and then. */
void qm_agent_contexts_sweep(struct qm_agent_contexts *contexts);

struct qm_agent_contexts_stats {
    uint64_t processes, open;
    uint64_t begun;
    uint64_t stale; /* words whose slot had changed by the time that it was looked at */
    uint64_t bad;   /* words or slots that make no sense */
};

void qm_agent_contexts_get_stats(const struct qm_agent_contexts *contexts,
                                 struct qm_agent_contexts_stats *stats);

#endif
