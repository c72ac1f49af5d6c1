/* SPDX-License-Identifier: BSD-3-Clause */
/* agent.h - what the files of `quickmine agent` share. */
#ifndef QM_CLI_AGENT_H
#define QM_CLI_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/bpf/agent.h"

/* Prints, a sentence a line, what this machine allows of what the agent needs, and what
 * else can be used where it does not.  Returns whether the agent can work. */
bool agent_check(void);

/* Whether processes have the numbers here that the kernel knows them by. */
bool agent_sees_all_processes(void);

/* Lets this process have the descriptors that 4,096 registrations take, if it may. */
void agent_allow_descriptors(void);

/* Takes reads down in a trace (agent-record.c). */
struct agent_record;

/* Returns NULL with a sentence in err. */
struct agent_record *agent_record_open(const char *path, uint64_t block_size, char *err,
                                       size_t len);
/* Fills in sink, io, flush and opaque. */
void agent_record_use(struct agent_record *record, struct qm_agent_config *config);
/* Completes the trace.  Returns 0 or an errno value. */
int agent_record_close(struct agent_record *record);

/* Tells a server of reads (agent-hints.c). */
struct agent_hints;

/* uri: of the server, as for qmctx_connect().  Returns NULL with a sentence in err. */
struct agent_hints *agent_hints_open(const char *uri, char *err, size_t len);
void agent_hints_use(struct agent_hints *hints, struct qm_agent_config *config);
/* Of the server's device, in bytes. */
uint64_t agent_hints_size(const struct agent_hints *hints);
void agent_hints_close(struct agent_hints *hints);

#endif
