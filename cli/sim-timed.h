/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-timed.h - quickmine sim --device: what is asked for of a run that takes time. */
#ifndef QM_CLI_SIM_TIMED_H
#define QM_CLI_SIM_TIMED_H

#include <argp.h>

#include "cli/cli.h"
#include "plugins/device/settings.h"
#include "sim/virtual.h"

/* All zeros is none.  What the options set; complete() and make() put the rest in. */
struct sim_timed {
    char *words; /* of --device, cut in pieces; NULL: nothing takes time */
    struct qm_device_settings settings;
    uint64_t size;           /* of the device; 0: as the trace */
    unsigned *clients, many; /* numbers of clients */
    double speed;
    bool speed_set;
    struct cli_setting think_us, threads, queue;
    struct qm_virtual_processor processor;
    bool processor_set;
    struct qm_virtual_config *configs; /* one for each number of clients */
};

/* Where the last request of the trace in file ends; 1 without requests.  Prints what
 * goes wrong: what_else says how to do without; returns an exit status. */
int sim_find_end(const char *file, const char *what_else, uint64_t *end);

/* Takes a device's NAME[,KEY=VALUE...], the argument of option; *size is changed if it
 * has that key.  Returns the copy that *settings points into, which is the caller's. */
char *sim_timed_parse(struct argp_state *state, const char *option, const char *arg,
                      struct qm_device_settings *settings, uint64_t *size);

/* The argument of --device: NAME[,KEY=VALUE...]. */
void sim_timed_device(struct argp_state *state, struct sim_timed *t, const char *arg);
void sim_timed_clients(struct argp_state *state, struct sim_timed *t, const char *word);

/* The argument of --processor: KEY=VALUE[,KEY=VALUE...], or none. */
void sim_timed_processor(struct argp_state *state, const char *arg,
                         struct qm_virtual_processor *processor);

/* Whether it goes together; ends the program with a sentence if not. */
void sim_timed_check(struct argp_state *state, struct sim_timed *t);

/* Makes the configurations for a trace; how many, in *count: 1 with NULL in *configs if
 * nothing takes time.  Returns an exit status. */
int sim_timed_make(struct sim_timed *t, const char *file,
                   const struct qm_virtual_config **configs, size_t *count);

void sim_timed_free(struct sim_timed *t);

#endif
