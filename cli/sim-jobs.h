/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-jobs.h - the runs of quickmine sim, shared between processes. */
#ifndef QM_CLI_SIM_JOBS_H
#define QM_CLI_SIM_JOBS_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/sim.h"

/* Which runs a process simulates.  NULL: all of them, and it is the only process. */
struct sim_share;

bool sim_share_has(const struct sim_share *share, size_t run);
/* Says where the share's process is in the trace. */
void sim_share_progress(struct sim_share *share, const struct qm_trace_reader *reader);

/* Simulates the runs of a share, in this process.  Prints what goes wrong; returns an
 * exit status. */
int sim_simulate_share(struct sim_runs *runs, struct sim_share *share,
                       struct qm_trace_reader *reader);

/* Simulates all runs in runs->jobs processes, or as many as there are runs, each of
 * which reads file by itself.  As above. */
int sim_simulate_jobs(struct sim_runs *runs, const char *file);

#endif
