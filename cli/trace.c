/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - quickmine trace: info, cut or convert. */
#include "cli/cli.h"

const struct cli_command cli_trace_commands[] = {
    {"info", qm_cmd_trace_info, "describe a trace", NULL},
    {"cut", qm_cmd_trace_cut, "cut a piece out of a trace", NULL},
    {"convert", qm_cmd_trace_convert, "convert from and to other formats", NULL},
    {NULL, NULL, NULL, NULL},
};

int qm_cmd_trace(int argc, char **argv)
{
    return cli_dispatch(cli_trace_commands, "quickmine trace", "quickmine-trace(1)",
                        argc, argv);
}
