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

/* Takes reads down in a trace (agent-record.c). */
struct agent_record;

/* Returns NULL with a sentence in err. */
struct agent_record *agent_record_open(const char *path, uint64_t block_size, char *err,
                                       size_t len);
/* Fills in sink, io, flush and opaque. */
void agent_record_use(struct agent_record *record, struct qm_agent_config *config);
/* The first error of writing, or 0. */
int agent_record_error(const struct agent_record *record);
/* Completes the trace.  Returns 0 or an errno value. */
int agent_record_close(struct agent_record *record);

#endif
