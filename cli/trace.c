/* trace.c - quickmine trace: info, cut or convert. */
#include "cli/cli.h"

static const struct cli_command commands[] = {
    {"info", qm_cmd_trace_info, "describe a trace"},
    {"cut", qm_cmd_trace_cut, "cut a piece out of a trace"},
    {"convert", qm_cmd_trace_convert, "convert from and to other formats"},
    {NULL, NULL, NULL},
};

int qm_cmd_trace(int argc, char **argv)
{
    return cli_dispatch(commands, "quickmine trace", "quickmine-trace(1)", argc, argv);
}
