/* SPDX-License-Identifier: BSD-3-Clause */
/* mining-options.c - the options for mining, which mine and sim share.
 *
 * Those that set a policy's parameters are made from the table that the server's are
 * made from (mining/core/parameters.h): names, limits, defaults and help are the same.
 */
#include <string.h>

#include "cli/cli.h"
#include "mining/core/parameters.h"

/* A parameter's key is this and its number; that of the lookahead is 'g'. */
enum { PARAMETER = 0x1000, PRESET = 0x100, BLOCK_SIZE };

static int key_of(unsigned id)
{
    return id == QM_LOOKAHEAD ? 'g' : PARAMETER + (int)id;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct cli_mining *asked = state->input;

    switch (key) {
    case PRESET:
        if (strcmp(arg, "paper") != 0)
            argp_error(state, "the preset must be 'paper', not '%s'", arg);
        asked->paper = true;
        return 0;
    case BLOCK_SIZE:
        asked->block_size.set = true;
        asked->block_size.value = cli_block_size(state, arg);
        return 0;
    default:
        for (unsigned id = 0; id < QM_PARAMETERS; id++)
            if (key == key_of(id)) {
                asked->given |= QM_HEEDS(id);
                cli_parameter(state, qm_parameter((enum qm_parameter_id)id), arg,
                              &asked->config);
                return 0;
            }
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp *cli_mining_argp(unsigned parameters, bool bounds)
{
    static const char *const args[] = {[QM_COUNT] = "N",
                                       [QM_SIZE] = "SIZE",
                                       [QM_FLAG] = "on|off",
                                       [QM_FILE] = "FILE",
                                       [QM_WORD] = "NAME"};
    static char help[QM_PARAMETERS][512];
    static struct argp_option options[QM_PARAMETERS + 4];
    static const struct argp argp = {.options = options, .parser = parse};
    size_t n = 0;

    options[n++] = (struct argp_option){
        "preset",
        PRESET,
        "NAME",
        0,
        "'paper': as in the paper, rules without bounds, mined when a context ends",
        0};
    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        const struct qm_parameter *p = qm_parameter((enum qm_parameter_id)id);
        bool unbounded = !bounds && (id == QM_MAX_PREFIX || id == QM_MAX_SUFFIX);

        if (!(parameters & QM_HEEDS(id)))
            continue;
        qm_parameter_help(p, unbounded ? "0" : NULL, help[id], sizeof help[id]);
        options[n++] =
            (struct argp_option){p->name, key_of(id), args[p->kind], 0, help[id], 0};
        if (id == QM_LOOKAHEAD) /* its name in the paper */
            options[n++] = (struct argp_option){"gap", 0, NULL, OPTION_ALIAS, NULL, 0};
    }
    options[n++] =
        (struct argp_option){"block-size",
                             BLOCK_SIZE,
                             "SIZE",
                             0,
                             "block size in bytes, instead of the trace's (512 to 16M)",
                             0};
    options[n] = (struct argp_option){NULL, 0, NULL, 0, NULL, 0};
    return &argp;
}

void cli_mining_apply(const struct cli_mining *asked, struct qm_mining_config *config)
{
    for (unsigned id = 0; id < QM_PARAMETERS; id++)
        if (asked->given & QM_HEEDS(id))
            qm_parameter_copy(qm_parameter((enum qm_parameter_id)id), config,
                              &asked->config);
}
