/* sim-runs.c - simulates the runs of quickmine sim.
 *
 * All runs go side by side, event by event, so that the trace is read once and need not
 * be held.  What knows the future needs a pass over the trace before that.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/sim.h"

struct simulators {
    struct qm_sim **sims;
    size_t count;
};

static void simulators_free(struct simulators *s)
{
    for (size_t i = 0; i < s->count; i++)
        qm_sim_free(s->sims[i]);
    free(s->sims);
}

static int make_simulators(const struct sim_runs *runs, struct simulators *s)
{
    char err[256];

    s->sims = calloc(runs->count, sizeof(struct qm_sim *));
    if (!s->sims)
        return cli_fail("out of memory");
    for (size_t i = 0; i < runs->count; i++) {
        s->sims[i] = qm_sim_new(&runs->runs[i].config, err, sizeof err);
        if (!s->sims[i])
            return cli_fail("%s", err);
        s->count++;
    }
    return CLI_OK;
}

static int each_event(void *opaque, const struct qm_event *event)
{
    struct simulators *s = opaque;
    int error = 0;

    for (size_t i = 0; i < s->count && !error; i++)
        error = qm_sim_event(s->sims[i], event);
    return error;
}

/* Takes the results, if the warm-up has ended. */
static int finish(struct sim_runs *runs, const struct simulators *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct qm_sim_result *r = &runs->runs[i].result;

        qm_sim_result(s->sims[i], r);
        if (r->warming)
            return cli_fail("the trace's %" PRIu64
                            " read requests do not suffice for the warm-up",
                            r->requests);
    }
    return CLI_OK;
}

/* Whether file can be read again from its beginning. */
static bool is_rereadable(const char *file)
{
    struct stat st;

    return strcmp(file, "-") != 0 && stat(file, &st) == 0 && S_ISREG(st.st_mode);
}

static int simulate(struct sim_runs *runs, struct qm_trace_reader *reader)
{
    struct simulators s = {NULL, 0};
    int status = make_simulators(runs, &s);

    if (status == CLI_OK)
        status = cli_trace_each(reader, "simulating", each_event, &s);
    if (status == CLI_OK)
        status = finish(runs, &s);
    simulators_free(&s);
    return status;
}

/* Makes the future that the runs need to know; NULL with CLI_OK if none does. */
static int make_future(const struct sim_runs *runs, struct qm_future **future)
{
    struct qm_future *f = NULL;

    for (size_t i = 0; i < runs->count; i++) {
        const struct qm_sim_config *c = &runs->runs[i].config;
        bool perfect = strcmp(c->policy, QM_PERFECT) == 0;
        bool belady = strcmp(c->eviction, QM_BELADY) == 0;

        if (!perfect && !belady)
            continue;
        if (!f)
            f = qm_future_new(c->block_size);
        if (!f || (perfect && qm_future_want_sequences(f, c->level) != 0)) {
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
static int look_ahead(struct qm_future *future, struct qm_trace_reader *reader)
{
    int status = cli_trace_each(reader, "looking ahead", note_event, future);

    if (status == CLI_OK && qm_future_finish(future) != 0)
        status = cli_fail("out of memory");
    return status;
}

/* Two passes, for the runs that know future. */
static int simulate_knowing(struct sim_runs *runs, const char *file,
                            struct qm_trace_reader *reader, struct qm_future *future)
{
    struct qm_trace_reader *again;
    int status;

    if (!is_rereadable(file))
        return cli_fail("%s and %s read the trace twice, so it must be a file, and not "
                        "standard input or a pipe",
                        QM_PERFECT, QM_BELADY);
    status = look_ahead(future, reader);
    if (status != CLI_OK)
        return status;
    for (size_t i = 0; i < runs->count; i++)
        runs->runs[i].config.future = future;
    again = cli_trace_open(file);
    if (!again)
        return CLI_FAILED;
    status = simulate(runs, again);
    qm_trace_free(again);
    return status;
}

int sim_simulate(struct sim_runs *runs, const char *file,
                 struct qm_trace_reader *reader)
{
    struct qm_future *future = NULL;
    int status = make_future(runs, &future);

    if (status == CLI_OK)
        status = future ? simulate_knowing(runs, file, reader, future)
                        : simulate(runs, reader);
    qm_future_free(future);
    return status;
}
