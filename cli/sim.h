/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.h - the runs of quickmine sim: what is asked for, and what came of it. */
#ifndef QM_CLI_SIM_H
#define QM_CLI_SIM_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/sim.h"

/* What was counted of all before that time of the trace. */
struct sim_point {
    uint64_t us;
    struct qm_sim_result result;
};

struct sim_run {
    struct qm_sim_config config;
    struct qm_sim_result result;
    /* The series: with sim_runs.series_us, from the end of the warm-up on. */
    struct sim_point *points;
    size_t point_count;
};

struct sim_runs {
    struct sim_run *runs; /* in the order of the output */
    size_t count;
    size_t policies, evictions; /* how many of each; run i has number i / evictions %
                                   policies and number i % evictions */
    unsigned jobs;      /* processes to simulate in, if file can be read again */
    uint64_t series_us; /* a point at each multiple of it; 0: no series */
};

/* Simulates all runs on the trace in file, which reader has just opened.  Prints what
 * goes wrong; returns an exit status. */
int sim_simulate(struct sim_runs *runs, const char *file,
                 struct qm_trace_reader *reader);

/* How many processors this process may use; 1 if there are more than a set holds. */
unsigned sim_cpus(void);

/* Whether file can be read again from its beginning. */
bool sim_is_rereadable(const char *file);

void sim_runs_free(struct sim_runs *runs);

/* Print the results; return an exit status. */
int sim_print_table(const struct sim_runs *runs);
int sim_print_json(const struct sim_runs *runs);

#endif
