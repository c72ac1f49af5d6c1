/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-tier.h - quickmine sim --tier-size: what is asked for of a second tier. */
#ifndef QM_CLI_SIM_TIER_H
#define QM_CLI_SIM_TIER_H

#include <argp.h>

#include "cli/cli.h"
#include "plugins/device/settings.h"
#include "sim/tier.h"

/* All zeros is none.  What the options set; check() puts the rest in. */
struct sim_tier {
    uint64_t *sizes;
    char **admits;
    const struct qm_sim_tier_ops **owns; /* beside admits: NULL, or of a LIBRARY:WORD */
    size_t many_sizes, many_admits;
    struct cli_setting write_rate;
    char *words; /* of --tier-device, cut in pieces; NULL: not given */
    struct qm_device_settings settings;
    struct qm_device_config device;
};

/* One of the words of --tier-size, and of --tier-admit. */
void sim_tier_size(struct argp_state *state, struct sim_tier *t, const char *word);
void sim_tier_admit(struct argp_state *state, struct sim_tier *t, const char *word);

/* The argument of --tier-device: NAME[,KEY=VALUE...]. */
void sim_tier_device(struct argp_state *state, struct sim_tier *t, const char *arg);

/* Whether it goes together, and with whether reads take time; ends the program with a
 * sentence if not. */
void sim_tier_check(struct argp_state *state, struct sim_tier *t, bool timed);

/* How many configurations there are: at least 1.  Admission changes fastest. */
size_t sim_tier_count(const struct sim_tier *t);
bool sim_tier_any(const struct sim_tier *t);
/* Number i of these; volume: the bytes of what it is for.  Its strings are t's. */
struct qm_sim_tier_config sim_tier_get(const struct sim_tier *t, size_t i,
                                       uint64_t volume);

void sim_tier_free(struct sim_tier *t);

#endif
