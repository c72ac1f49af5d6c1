/* SPDX-License-Identifier: BSD-3-Clause */
/* quickmine-agent.h - contexts of threads, for an agent on the same machine.
 *
 * Shared by programs and `quickmine agent` (or `quickmine attach`).  A program has one
 * 64-bit word for each of its threads, in static thread-local storage:
 *
 *     generation << 16 | slot          0: no context
 *
 * A BPF program reads the word of the thread that submits a read to the block layer.
 * The word refers to a table of slots, which the program owns and the agent maps
 * read-only.  A change of context is a store into the table, which waits for nothing,
 * and one into the word: no system call.
 *
 * The program connects to the agent's socket (SOCK_SEQPACKET) and sends one
 * qm_agent_hello, with the descriptor of the table (a memfd, sealed against shrinking)
 * as SCM_RIGHTS.  The agent takes the process from SO_PEERCRED, and answers with one
 * qm_agent_welcome.  The registration lasts as long as the connection, on which nothing
 * else is sent.
 *
 * The agent believes nothing: numbers out of range, a slot that has changed meanwhile,
 * or a table that is not what it should be make reads of no context.
 */
#ifndef QUICKMINE_AGENT_H
#define QUICKMINE_AGENT_H

#include <stddef.h>
#include <stdint.h>

#define QM_AGENT_DIRECTORY                                                             \
    "/run/quickmine-agent" /* of the agent, not of the servers                         \
                            */
#define QM_AGENT_SOCKET  QM_AGENT_DIRECTORY "/agent.sock"
#define QM_AGENT_MAGIC   UINT64_C(0x31544e4547414d51) /* "QMAGENT1" in bytes */
#define QM_AGENT_VERSION 1

#define QM_AGENT_SLOT_BITS 16
#define QM_AGENT_SLOT_MASK ((UINT64_C(1) << QM_AGENT_SLOT_BITS) - 1)
#define QM_AGENT_SLOTS_MAX (1u << QM_AGENT_SLOT_BITS) /* slot 0 is not used */
#define QM_AGENT_NAME_MAX  199

/* A slot.  Written by one thread at a time; read by the agent at any time, so the
 * writer stores 0 into word first (release), then the rest, then the new word
 * (release); and the agent copies the slot between two loads of the same word
 * (acquire). */
struct qm_agent_slot {
    uint64_t word;   /* of the context that is described; 0: none, or being changed */
    uint64_t ended;  /* == word: that context has ended; the rest still describes it */
    uint64_t parent; /* word of the context around it, in this table; 0: none */
    uint64_t klass;
    uint16_t kind;     /* enum qm_wire_kind */
    uint16_t name_len; /* at most QM_AGENT_NAME_MAX */
    /* Not 0: the context is another process's, whose word is `parent`: a helper (a
     * parallel worker) reads on behalf of it.  That process must be of the same user.
     */
    uint32_t of_process;
    uint64_t reserved[2];
    char name[QM_AGENT_NAME_MAX + 1]; /* UTF-8, of the class; not terminated */
};

struct qm_agent_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t slots;     /* in the table, at most QM_AGENT_SLOTS_MAX */
    int64_t tls_offset; /* of a thread's word, from its thread pointer; bytes */
    uint64_t reserved[5];
};

struct qm_agent_welcome {
    uint64_t magic;
    uint32_t version;
    uint32_t error; /* an errno value; 0: registered */
    uint64_t reserved[2];
};

_Static_assert(sizeof(struct qm_agent_slot) == 256, "layout");
_Static_assert(offsetof(struct qm_agent_slot, name) == 56, "layout");
_Static_assert(sizeof(struct qm_agent_hello) == 64, "layout");
_Static_assert(sizeof(struct qm_agent_welcome) == 32, "layout");

#endif
