/* SPDX-License-Identifier: BSD-3-Clause */
/* trace-convert.c - quickmine trace convert: from and to other formats. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "trace/format.h"

struct arguments {
    const struct qm_format *from, *to;
    struct qm_format_options options;
    const char *file, *output;
};

enum {
    FROM = 'f',
    TO = 't',
    OUTPUT = 'o',
    BLOCK_SIZE = 'b',
    DEVICE = 'd',
    ACTION = 'a'
};

static const struct argp_option options[] = {
    {"from", FROM, "FORMAT", 0, "native (default), blkparse, fio or blocks", 0},
    {"to", TO, "FORMAT", 0, "the same", 0},
    {"output", OUTPUT, "FILE", 0,
     "where to write; compressed if the name ends in .gz or .zst (standard output)", 0},
    {"block-size", BLOCK_SIZE, "SIZE", 0,
     "bytes of a block: of the list of blocks, and in the header of the trace (16K)",
     0},
    {"device", DEVICE, "NAME", 0,
     "the device (8,0) or file to read, or what to call it when writing", 0},
    {"action", ACTION, "LETTER", 0, "blkparse: the action that counts (Q)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static const struct qm_format *format(struct argp_state *state, const char *option,
                                      const char *arg)
{
    const struct qm_format *f = qm_format_find(arg);

    if (!f)
        argp_error(state, "%s must be one of %s, not '%s'", option, qm_format_names(),
                   arg);
    return f;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case FROM:
        a->from = format(state, "--from", arg);
        return 0;
    case TO:
        a->to = format(state, "--to", arg);
        return 0;
    case OUTPUT:
        a->output = arg;
        return 0;
    case BLOCK_SIZE:
        a->options.block_size = cli_block_size(state, arg);
        return 0;
    case DEVICE:
        if (*arg == '\0' || strpbrk(arg, " \t\n"))
            argp_error(state, "--device must be a word, not '%s'", arg);
        a->options.device = arg;
        return 0;
    case ACTION:
        if (strlen(arg) != 1)
            argp_error(state, "--action must be one letter, not '%s'", arg);
        a->options.action = *arg;
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc = "Converts a trace from and to other programs' formats.\v"
           "See quickmine-trace(1).",
};

/* Copies all events.  Returns an exit status. */
static int copy(struct qm_source *source, struct qm_sink *sink, const char *to)
{
    struct cli_progress progress;
    struct qm_event event;
    uint64_t at, size;
    int n, error = 0;

    cli_progress_start(&progress, "converting");
    for (uint64_t i = 1; !error && (n = source->format->next(source, &event)) == 1;
         i++) {
        error = sink->format->write(sink, &event);
        if (i % 4096 == 0) {
            source->format->position(source, &at, &size);
            cli_progress_show(&progress, at, size);
        }
    }
    cli_progress_stop(&progress);
    if (error)
        return cli_fail("%s: cannot be written: %s", to, strerror(error));
    return n == 0 ? CLI_OK : cli_fail("%s", source->format->error(source));
}

static int convert(const struct arguments *a, struct qm_source *source)
{
    struct qm_format_options to = a->options;
    uint64_t skipped;
    struct qm_sink *sink;
    char err[600];
    int status, error;

    to.block_size = source->block_size;
    sink = a->to->create(a->output, &to, err, sizeof err);
    if (!sink)
        return cli_fail("%s", err);
    status = copy(source, sink, a->output);
    skipped = sink->skipped;
    error = a->to->close(sink, status == CLI_OK);
    if (error && status == CLI_OK)
        status = cli_fail("%s: cannot be written: %s", a->output, strerror(error));
    if (status == CLI_OK && source->skipped > 0)
        fprintf(stderr,
                "%" PRIu64
                " events of the trace that are no reads or writes of the device "
                "left out\n",
                source->skipped);
    if (status == CLI_OK && skipped > 0)
        fprintf(stderr, "%" PRIu64 " writes left out: the format has none\n", skipped);
    return status;
}

int qm_cmd_trace_convert(int argc, char **argv)
{
    struct arguments a = {
        .from = &qm_format_native, .to = &qm_format_native, .output = "-"};
    struct qm_source *source;
    char err[600];
    int status;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (cli_same_file(a.file, a.output))
        return cli_fail("%s is both what to read and what to write", a.file);
    source = a.from->open(a.file, &a.options, err, sizeof err);
    if (!source)
        return cli_fail("%s", err);
    status = convert(&a, source);
    a.from->free(source);
    return status;
}
