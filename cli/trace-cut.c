/* SPDX-License-Identifier: BSD-3-Clause */
/* trace-cut.c - quickmine trace cut: a piece of a trace, as a trace of its own. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim/cut.h"
#include "cli/cli.h"

struct arguments {
    uint64_t skip, count;
    const char *file, *output;
};

enum { OUTPUT = 'o', SKIP = 's', COUNT = 'n' };

static const struct argp_option options[] = {
    {"skip", SKIP, "N", 0, "leave out the first N read requests (0)", 0},
    {"count", COUNT, "N", 0, "take N read requests (all)", 0},
    {"output", OUTPUT, "FILE", 0,
     "where to write; compressed if the name ends in .gz or .zst (standard output)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case SKIP:
        a->skip = cli_number(state, "--skip", arg, 0, UINT64_MAX);
        return 0;
    case COUNT:
        a->count = cli_number(state, "--count", arg, 1, UINT64_MAX);
        return 0;
    case OUTPUT:
        a->output = arg;
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc =
        "Cuts a piece out of a trace: a trace of its own, in which contexts that are "
        "open where it begins are begun again.\vSee quickmine-trace(1).",
};

struct cutting {
    struct qm_cut *cut;
    struct qm_trace_writer *writer;
    const char *output;
    bool complete;
};

static int each_event(void *opaque, const struct qm_event *event)
{
    struct cutting *c = opaque;
    int error = qm_cut_event(c->cut, event, c->writer);

    c->complete = error == -1;
    if (error > 0) {
        cli_fail("%s: cannot be written: %s", c->output, strerror(error));
        error = -1;
    }
    return error;
}

static int cut(const struct arguments *a, struct qm_trace_reader *reader,
               struct cutting *c)
{
    int status, error;
    char err[600];

    c->writer =
        qm_trace_replace(a->output, qm_trace_block_size(reader), err, sizeof err);
    if (!c->writer)
        return cli_fail("%s", err);
    status = cli_trace_each(reader, "cutting", each_event, c);
    if (c->complete) /* the rest of the trace does not matter */
        status = CLI_OK;
    if (status == CLI_OK && !qm_cut_begun(c->cut))
        status = cli_fail("the trace has no more than %" PRIu64 " read requests",
                          qm_cut_reads(c->cut));
    if (status != CLI_OK) {
        qm_trace_abandon(c->writer);
        return status;
    }
    error = qm_trace_close(c->writer);
    if (error)
        status = cli_fail("%s: cannot be written: %s", a->output, strerror(error));
    return status;
}

int qm_cmd_trace_cut(int argc, char **argv)
{
    struct arguments a = {.count = UINT64_MAX, .output = "-"};
    struct qm_trace_reader *reader;
    struct cutting c = {NULL};
    int status = CLI_FAILED;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (cli_same_file(a.file, a.output))
        return cli_fail("%s is both what to read and what to write", a.file);
    reader = cli_trace_open(a.file);
    if (!reader)
        return CLI_FAILED;
    c.output = a.output;
    c.cut = qm_cut_new(a.skip, a.count);
    status = c.cut ? cut(&a, reader, &c) : cli_fail("out of memory");
    qm_cut_free(c.cut);
    qm_trace_free(reader);
    return status;
}
