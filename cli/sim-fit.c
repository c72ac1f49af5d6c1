/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-fit.c - runs with a memory in all, whose rules take less than they may.
 *
 * What rules take is known when a run has ended, and depends on the cache's size.  So a
 * run that has left memory unused is tried again, with a cache that has it but for a
 * little, as rules may come to take more beside another cache.  Of the tries that
 * keep to the memory, that with the largest cache counts; the first one does keep to
 * it, as it leaves the rules all that they may take.
 */
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/sim.h"

enum {
    TRIES = 3,    /* after the first */
    ENOUGH = 100, /* a hundredth of the memory may be left unused */
    SPARE = 200,  /* a part of it is for rules beyond what they took */
};

/* Runs that are tried again, and where the best of each belongs. */
struct fitting {
    struct sim_runs tries;
    struct sim_run **best;
};

static bool fits(const struct sim_run *run)
{
    uint64_t total = run->config.cache_size, taken = sim_total_bytes(run);

    return !run->config.total_memory || run->result.mining.rules_bytes == 0 ||
           (taken <= total && total - taken <= total / ENOUGH);
}

static bool is_better(const struct sim_run *run, const struct sim_run *than)
{
    return sim_total_bytes(run) <= run->config.cache_size &&
           run->result.cache_blocks > than->result.cache_blocks;
}

/* Of the last tries, those that do not fit are tried with what their rules took. */
static void prepare(struct fitting *f)
{
    size_t kept = 0;

    for (size_t i = 0; i < f->tries.count; i++) {
        const struct sim_run *run = &f->tries.runs[i];
        struct sim_run next = {.config = run->config};

        if (fits(run))
            continue;
        next.config.rules_part =
            run->result.mining.rules_bytes + run->config.cache_size / SPARE;
        f->tries.runs[kept] = next;
        f->best[kept++] = f->best[i];
    }
    f->tries.count = kept;
}

/* Hands over what is better than what there was; the points of the rest go. */
static void keep_better(struct fitting *f)
{
    for (size_t i = 0; i < f->tries.count; i++) {
        struct sim_run *run = &f->tries.runs[i];

        if (is_better(run, f->best[i])) {
            struct sim_run worse = *f->best[i];

            *f->best[i] = *run;
            run->points = worse.points;
        }
        free(run->points);
        run->points = NULL;
    }
}

static int try_again(struct fitting *f, const char *file)
{
    struct qm_trace_reader *reader = cli_trace_open(file);
    int status = CLI_FAILED;

    if (reader)
        status = sim_simulate(&f->tries, file, reader);
    qm_trace_free(reader);
    keep_better(f);
    return status;
}

int sim_simulate_fitting(struct sim_runs *runs, const char *file,
                         struct qm_trace_reader *reader)
{
    struct fitting f = {.tries = *runs};
    int status = sim_simulate(runs, file, reader);

    if (status != CLI_OK || !sim_is_rereadable(file))
        return status;
    f.tries.policies = f.tries.evictions = 1; /* in no such order any more */
    f.tries.runs = calloc(runs->count, sizeof *f.tries.runs);
    f.best = calloc(runs->count, sizeof(struct sim_run *));
    if (!f.tries.runs || !f.best)
        status = cli_fail("out of memory");
    for (size_t i = 0; i < runs->count && status == CLI_OK; i++) {
        f.tries.runs[i].config = runs->runs[i].config;
        f.tries.runs[i].result = runs->runs[i].result;
        f.best[i] = &runs->runs[i];
    }
    for (unsigned i = 0; i < TRIES && status == CLI_OK; i++) {
        prepare(&f);
        if (f.tries.count == 0)
            break;
        status = try_again(&f, file);
    }
    free(f.tries.runs);
    free(f.best);
    return status;
}
