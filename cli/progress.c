/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - progress on a terminal, and a trace read with it. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static double since(const struct timespec *then, const struct timespec *now)
{
    return (double)(now->tv_sec - then->tv_sec) +
           (double)(now->tv_nsec - then->tv_nsec) / 1e9;
}

void cli_progress_start(struct cli_progress *p, const char *what)
{
    *p = (struct cli_progress){.what = what, .terminal = isatty(STDERR_FILENO)};
    clock_gettime(CLOCK_MONOTONIC, &p->begun);
    p->shown = p->begun;
}

void cli_progress_show(struct cli_progress *p, uint64_t at, uint64_t total)
{
    struct timespec now;

    if (!p->terminal)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (since(&p->begun, &now) < 1 || since(&p->shown, &now) < 0.2)
        return;
    if (total > 0)
        fprintf(stderr, "\r%s: %.1f %%\033[K", p->what,
                100.0 * (double)at / (double)total);
    else
        fprintf(stderr, "\r%s: %.1f MB\033[K", p->what, (double)at / 1e6);
    fflush(stderr);
    p->shown = now;
    p->visible = true;
}

void cli_progress_stop(struct cli_progress *p)
{
    if (p->visible)
        fputs("\r\033[K", stderr);
    p->visible = false;
}

struct qm_trace_reader *cli_trace_open(const char *path)
{
    char err[600];
    struct qm_trace_reader *reader = qm_trace_open(path, err, sizeof err);

    if (!reader)
        cli_fail("%s", err);
    return reader;
}

int cli_trace_each(struct qm_trace_reader *reader, const char *what,
                   int (*each)(void *opaque, const struct qm_event *event),
                   void *opaque)
{
    struct cli_progress progress;
    struct qm_event event;
    uint64_t at, size;
    int n, error = 0;

    cli_progress_start(&progress, what);
    for (uint64_t i = 1; !error && (n = qm_trace_next(reader, &event)) == 1; i++) {
        error = each(opaque, &event);
        if (i % 4096 == 0) {
            qm_trace_position(reader, &at, &size);
            cli_progress_show(&progress, at, size);
        }
    }
    cli_progress_stop(&progress);
    if (error == -1)
        return CLI_FAILED;
    if (error)
        return cli_fail("at line %" PRIu64 " of the trace: %s", qm_trace_line(reader),
                        strerror(error));
    return n == 0 ? CLI_OK : cli_fail("%s", qm_trace_error(reader));
}
