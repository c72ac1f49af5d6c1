/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-runs.c - simulates the runs of quickmine sim.
 *
 * All runs of a process go side by side, event by event, so that it reads the trace
 * once and need not hold it.  What knows the future needs a pass over the trace before
 * that.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/sim-jobs.h"

struct simulation {
    struct sim_runs *runs;
    struct qm_sim **sims; /* one a run; NULL: another process has it */
    uint64_t next_us;     /* when the next point of the series is due */
    uint64_t last_us;     /* the latest time of an event */
    struct qm_trace_reader *reader;
    struct sim_share *share;
    uint64_t events;
};

static void simulation_free(struct simulation *s)
{
    for (size_t i = 0; s->sims && i < s->runs->count; i++)
        qm_sim_free(s->sims[i]);
    free(s->sims);
}

static int make_simulators(struct simulation *s)
{
    char err[256];

    s->sims = calloc(s->runs->count, sizeof(struct qm_sim *));
    if (!s->sims)
        return cli_fail("out of memory");
    for (size_t i = 0; i < s->runs->count; i++) {
        if (!sim_share_has(s->share, i))
            continue;
        s->sims[i] = qm_sim_new(&s->runs->runs[i].config, err, sizeof err);
        if (!s->sims[i])
            return cli_fail("%s", err);
    }
    return CLI_OK;
}

/* Adds a point to the series of a run.  Returns 0 or ENOMEM. */
static int add_point(struct sim_run *run, struct qm_sim *sim, uint64_t us)
{
    struct sim_point *points;
    struct sim_point point = {.us = us};

    qm_sim_result(sim, &point.result);
    if (point.result.warming)
        return 0;
    points = run->points;
    if ((run->point_count & (run->point_count - 1)) == 0) /* full: a power of two */
        points = reallocarray(points, run->point_count ? 2 * run->point_count : 1,
                              sizeof point);
    if (!points)
        return ENOMEM;
    run->points = points;
    points[run->point_count++] = point;
    return 0;
}

static int add_points(struct simulation *s, uint64_t us)
{
    int error = 0;

    for (size_t i = 0; i < s->runs->count && !error; i++)
        if (s->sims[i])
            error = add_point(&s->runs->runs[i], s->sims[i], us);
    return error;
}

/* The trace has come to time us.  Of several points that are due, between which nothing
 * happened, the first and the last will do. */
static int series_until(struct simulation *s, uint64_t us)
{
    uint64_t every = s->runs->series_us, last = us - us % every;
    int error = 0;

    if (us > s->last_us)
        s->last_us = us;
    if (us < s->next_us)
        return 0;
    if (s->next_us > 0) /* at 0 there is nothing yet */
        error = add_points(s, s->next_us);
    if (!error && last > s->next_us)
        error = add_points(s, last);
    s->next_us = last > UINT64_MAX - every ? UINT64_MAX : last + every;
    return error;
}

static int each_event(void *opaque, const struct qm_event *event)
{
    struct simulation *s = opaque;
    int error = 0;

    if (s->runs->series_us > 0)
        error = series_until(s, event->us);
    for (size_t i = 0; i < s->runs->count && !error; i++)
        if (s->sims[i])
            error = qm_sim_event(s->sims[i], event);
    if (error == ERANGE) {
        cli_fail("the request of %" PRIu64 " bytes at %" PRIu64
                 " lies beyond the device's end: give --device a larger size=",
                 event->length, event->offset);
        return -1; /* said */
    }
    if (++s->events % 4096 == 0)
        sim_share_progress(s->share, s->reader);
    return error;
}

/* Takes the results, if the warm-up has ended. */
static int finish(struct simulation *s)
{
    for (size_t i = 0; i < s->runs->count; i++) {
        struct qm_sim_result *r = &s->runs->runs[i].result;

        if (!s->sims[i])
            continue;
        if (qm_sim_finish(s->sims[i]) != 0)
            return cli_fail("out of memory");
        qm_sim_result(s->sims[i], r);
        if (r->warming)
            return cli_fail("the trace's %" PRIu64
                            " read requests do not suffice for the warm-up",
                            r->requests);
    }
    if (s->runs->series_us > 0 && add_points(s, s->last_us) != 0)
        return cli_fail("out of memory");
    return CLI_OK;
}

int sim_simulate_share(struct sim_runs *runs, struct sim_share *share,
                       struct qm_trace_reader *reader)
{
    struct simulation s = {.runs = runs, .share = share, .reader = reader};
    int status = make_simulators(&s);

    if (status == CLI_OK)
        status = cli_trace_each(reader, "simulating", each_event, &s);
    if (status == CLI_OK)
        status = finish(&s);
    simulation_free(&s);
    return status;
}

/* Makes the future that the runs need to know; NULL with CLI_OK if none does. */
static int make_future(const struct sim_runs *runs, struct qm_future **future)
{
    struct qm_future *f = NULL;

    for (size_t i = 0; i < runs->count; i++) {
        const struct qm_sim_config *c = &runs->runs[i].config;
        bool perfect = strcmp(c->params.policy, QM_PERFECT) == 0;
        bool belady = strcmp(c->params.eviction, QM_BELADY) == 0;

        if (!perfect && !belady)
            continue;
        if (!f)
            f = qm_future_new(c->block_size);
        if (!f || (perfect && qm_future_want_sequences(f, c->params.level) != 0)) {
            qm_future_free(f);
            return cli_fail("out of memory");
        }
        if (belady)
            qm_future_want_next_uses(f);
    }
    *future = f;
    return CLI_OK;
}

static int note_event(void *opaque, const struct qm_event *event)
{
    return qm_future_event(opaque, event);
}

/* The first pass. */
static int look_ahead(struct sim_runs *runs, struct qm_future *future, const char *file)
{
    struct qm_trace_reader *reader = cli_trace_open(file);
    int status = CLI_FAILED;

    if (reader)
        status = cli_trace_each(reader, "looking ahead", note_event, future);
    qm_trace_free(reader);
    if (status == CLI_OK && qm_future_finish(future) != 0)
        status = cli_fail("out of memory");
    for (size_t i = 0; i < runs->count; i++)
        runs->runs[i].config.future = future;
    return status;
}

bool sim_is_rereadable(const char *file)
{
    struct stat st;

    return strcmp(file, "-") != 0 && stat(file, &st) == 0 && S_ISREG(st.st_mode);
}

int sim_simulate(struct sim_runs *runs, const char *file,
                 struct qm_trace_reader *reader)
{
    bool again = sim_is_rereadable(file);
    struct qm_future *future = NULL;
    int status = make_future(runs, &future);

    if (future && !again)
        status = cli_fail("%s and %s read the trace twice, so it must be a file, and "
                          "not standard input or a pipe",
                          QM_PERFECT, QM_BELADY);
    else if (future)
        status = look_ahead(runs, future, file);
    if (status == CLI_OK) {
        if (runs->jobs > 1 && runs->count > 1 && again)
            status = sim_simulate_jobs(runs, file);
        else
            status = sim_simulate_share(runs, NULL, reader);
    }
    qm_future_free(future);
    return status;
}

void sim_runs_free(struct sim_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        free(runs->runs[i].points);
    free(runs->runs);
}
