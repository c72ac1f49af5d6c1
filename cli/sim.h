/* sim.h - the runs of quickmine sim: what is asked for, and what came of it. */
#ifndef QM_CLI_SIM_H
#define QM_CLI_SIM_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/sim.h"

struct sim_run {
    struct qm_sim_config config;
    struct qm_sim_result result;
};

struct sim_runs {
    struct sim_run *runs; /* in the order of the output */
    size_t count;
};

/* Simulates all runs on the trace in file, which reader has just opened.  Prints what
 * goes wrong; returns an exit status. */
int sim_simulate(struct sim_runs *runs, const char *file,
                 struct qm_trace_reader *reader);

/* Print the results; return an exit status. */
int sim_print_table(const struct sim_runs *runs);
int sim_print_json(const struct sim_runs *runs);

#endif
