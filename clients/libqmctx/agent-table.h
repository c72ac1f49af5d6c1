/* SPDX-License-Identifier: BSD-3-Clause */
/* agent-table.h - the table of slots that a process shows to an agent
 * (clients/protocol/quickmine-agent.h).
 *
 * Each thread has a chunk of slots to itself, so that beginning a context takes no
 * lock. Within a chunk slots are used in turn: what has ended can be read there for as
 * long as possible, since the agent looks at it a little later.  A word is used once
 * only.
 */
#ifndef QMCTX_AGENT_TABLE_H
#define QMCTX_AGENT_TABLE_H

#include <pthread.h>
#include <stdint.h>

#include "clients/libqmctx/own-fd.h"
#include "clients/protocol/quickmine-agent.h"

#define QM_AGENT_CHUNK  64 /* slots */
#define QM_AGENT_CHUNKS (QM_AGENT_SLOTS_MAX / QM_AGENT_CHUNK)
#define QM_AGENT_TABLES 65536 /* that do not use each other's words */

/* A thread's slots. */
struct qm_agent_chunk {
    uint64_t generation;         /* of the last word */
    uint64_t used;               /* a bit for each slot whose context is open */
    unsigned first;              /* slot */
    unsigned last;               /* that was begun last, from first on */
    struct qm_agent_chunk *next; /* that is free */
    char apart[88]; /* each context writes to its chunk: no cache line is of two */
};

struct qm_agent_table {
    int fd;
    struct qm_own_fd own; /* what fd is */
    uint64_t number;      /* of the tables of this process */
    struct qm_agent_slot *slots;
    pthread_mutex_t lock; /* of what follows */
    struct qm_agent_chunk *free;
    unsigned made; /* of chunks */
    struct qm_agent_chunk chunks[QM_AGENT_CHUNKS];
};

/* NULL with errno set. */
struct qm_agent_table *qm_agent_table_new(void);
void qm_agent_table_free(struct qm_agent_table *table);

/* A chunk for a thread, or NULL if all are taken; and back, with no context open. */
struct qm_agent_chunk *qm_agent_chunk_take(struct qm_agent_table *table);
void qm_agent_chunk_give(struct qm_agent_table *table, struct qm_agent_chunk *chunk);

/* What a slot shows; see struct qm_agent_slot. */
struct qm_agent_shown {
    uint64_t parent; /* a word of the chunk, or of of_process; or 0 */
    uint64_t klass;
    unsigned kind;
    uint32_t of_process;
    const char *name; /* copied, and perhaps cut; may be NULL */
};

/* Begins a context: returns its word, or 0 if all slots of the chunk have open ones. */
uint64_t qm_agent_slot_begin(struct qm_agent_table *table, struct qm_agent_chunk *chunk,
                             const struct qm_agent_shown *shown);
void qm_agent_slot_end(struct qm_agent_table *table, struct qm_agent_chunk *chunk,
                       uint64_t word);

#endif
