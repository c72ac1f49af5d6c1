/* sim-runs.c - simulates the runs of quickmine sim.
 *
 * All runs go side by side, event by event, so that the trace is read once and need not
 * be held.
 */
#include <inttypes.h>
#include <stdlib.h>

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

int sim_simulate(struct sim_runs *runs, struct qm_trace_reader *reader)
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
