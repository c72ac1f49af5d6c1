/* SPDX-License-Identifier: BSD-3-Clause */
/* advise-make.c - the simulations of quickmine advise.
 *
 * First the trace is surveyed.  Of a long one only the last read requests are
 * simulated, all of them in a row and with all their contexts: a sample of blocks would
 * tear apart what follows what, which is what is learned; and a sample of contexts
 * would leave out that they disturb each other at the device.  So the work is bounded:
 * a fixed number of runs over a fixed number of requests.
 *
 * Then the levels are compared at one memory, the curves are made at the best of them,
 * and classes are counted at one point of the curves.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/advise.h"
#include "cli/cli.h"
#include "cli/sim.h"
#include "engine/params.h"
#include "sim/cut.h"
#include "sim/survey.h"

/* Memories from the footprint: this many, each twice the last, the last of which holds
 * all of it with metadata and rules. */
enum { MEMORIES = 7 };
#define ALL_OF_IT     1.25
#define ALIKE         1.02 /* means of levels */
#define STEP          (UINT64_C(256) << 10)
#define NO_CACHE_MOST 1024
/* Seconds between a client's reads: whose times make no sense must not make virtual
 * time end. */
#define THINK_MOST 3600.0

static const char *const plain_evictions[ADVISE_PLAIN] = {"lru", "wtinylfu",
                                                          "adaptive"};

struct maker {
    const struct advise_request *request;
    struct advise_report *report;
    struct qm_survey survey; /* of what is simulated */
    struct qm_virtual_config timed;
    char file[64]; /* the copy of a part; or request->file: see path() */
    int copy;      /* -1: none */
};

static const char *path(const struct maker *m)
{
    return m->copy == -1 ? m->request->file : m->file;
}

/* ---- the trace */

static int survey_event(void *opaque, const struct qm_event *event)
{
    return qm_survey_event(opaque, event);
}

static int survey(struct maker *m, const char *what)
{
    struct qm_trace_reader *reader = cli_trace_open(path(m));
    uint64_t block_size = m->request->block_size;
    int status;

    if (!reader)
        return CLI_FAILED;
    qm_survey_clear(&m->survey);
    qm_survey_init(&m->survey, block_size ? block_size : qm_trace_block_size(reader));
    status = cli_trace_each(reader, what, survey_event, &m->survey);
    qm_trace_free(reader);
    return status;
}

struct copying {
    struct qm_cut *cut;
    struct qm_trace_writer *writer;
};

static int copy_event(void *opaque, const struct qm_event *event)
{
    struct copying *c = opaque;

    return qm_cut_event(c->cut, event, c->writer);
}

/* Copies the trace's reads from number `skip` on to a file in memory. */
static int copy_part(struct maker *m, uint64_t skip)
{
    struct qm_trace_reader *reader = cli_trace_open(m->request->file);
    struct copying c = {.cut = qm_cut_new(skip, UINT64_MAX)};
    char err[600];
    int status = CLI_FAILED, error;

    m->copy = memfd_create("trace", MFD_CLOEXEC);
    snprintf(m->file, sizeof m->file, "/proc/self/fd/%d", m->copy);
    if (m->copy == -1 || !c.cut)
        cli_fail("out of memory");
    else if (reader)
        c.writer =
            qm_trace_create(m->file, qm_trace_block_size(reader), err, sizeof err);
    if (c.writer) {
        status = cli_trace_each(reader, "cutting", copy_event, &c);
        error = qm_trace_close(c.writer);
        if (status == CLI_OK && error)
            status = cli_fail("a copy of the trace's end: %s", strerror(error));
    } else if (reader && m->copy != -1 && c.cut) {
        cli_fail("%s", err);
    }
    qm_cut_free(c.cut);
    qm_trace_free(reader);
    return status;
}

static int read_trace(struct maker *m)
{
    const struct advise_request *q = m->request;
    struct advise_report *r = m->report;
    unsigned clients;
    int status = survey(m, "reading");

    if (status != CLI_OK)
        return status;
    if (m->survey.reads < 2)
        return cli_fail("%s has %s: there is nothing to advise on", q->name,
                        m->survey.reads ? "one read" : "no reads");
    r->block_size = m->survey.block_size;
    r->reads = r->simulated = m->survey.reads;
    r->writes = m->survey.writes;
    r->untagged = m->survey.untagged;
    r->blocks = m->survey.blocks;
    r->footprint = m->survey.footprint.read * m->survey.block_size;
    r->seconds = qm_survey_seconds(&m->survey);
    if (r->reads > q->most_reads) {
        status = copy_part(m, r->reads - q->most_reads);
        if (status == CLI_OK)
            status = survey(m, "reading");
        r->simulated = m->survey.reads;
    }
    r->simulated_footprint = m->survey.footprint.read * m->survey.block_size;
    clients = qm_survey_clients(&m->survey, QM_VIRTUAL_CLIENTS_MAX);
    /* All that a client did between two reads when this was recorded. */
    r->think_us = q->think_us;
    if (!q->think_set) {
        double mean = clients * qm_survey_seconds(&m->survey) / (double)r->simulated;

        r->think_us = (uint64_t)(fmin(mean, THINK_MOST) * 1e6);
    }
    r->clients = q->clients ? q->clients : clients;
    if (q->sample > 1 && q->clients == 0) /* as many load the backend */
        r->clients = clients < QM_VIRTUAL_CLIENTS_MAX / q->sample
                         ? clients * q->sample
                         : QM_VIRTUAL_CLIENTS_MAX;
    m->timed = (struct qm_virtual_config){
        .device = q->device,
        .size = q->device_size ? q->device_size : m->survey.end,
        .clients = r->clients,
        .think_ns = r->think_us * 1000,
        .threads = QM_PREFETCH_AUTO,
        .queue = QM_PREFETCH_AUTO,
        .processor = q->processor,
    };
    if (m->survey.end > m->timed.size)
        status =
            cli_fail("a request of %s lies beyond the device's end: give --device a "
                     "size= of at least %" PRIu64,
                     q->name, m->survey.end);
    return status;
}

/* ---- runs */

static struct qm_sim_config config_of(const struct maker *m, uint64_t memory)
{
    struct qm_sim_config config;

    qm_sim_defaults(&config);
    config.block_size = m->report->block_size;
    config.cache_size = memory;
    config.warmup = m->report->simulated / 2;
    config.timed = &m->timed;
    return config;
}

static struct qm_sim_config plain_config(const struct maker *m, uint64_t memory,
                                         const char *eviction)
{
    struct qm_sim_config config = config_of(m, memory);

    config.params.policy = "none";
    config.params.eviction = eviction;
    return config;
}

static struct qm_sim_config ahead_config(const struct maker *m, uint64_t memory,
                                         enum qm_level level)
{
    struct qm_sim_config config = config_of(m, memory);

    config.params.level = level;
    return config;
}

static int simulate(struct maker *m, struct sim_run *runs, size_t count)
{
    struct sim_runs all = {.runs = runs,
                           .count = count,
                           .policies = 1,
                           .evictions = 1,
                           .jobs = m->request->jobs};
    struct qm_trace_reader *reader;
    int status;

    /* The copy is read by name, which names the same file in a process of its own. */
    reader = cli_trace_open(path(m));
    if (!reader)
        return CLI_FAILED;
    status = sim_simulate(&all, path(m), reader);
    qm_trace_free(reader);
    return status;
}

static struct qm_advise_cost cost_of(const struct sim_run *run)
{
    const struct qm_sim_result *r = &run->result;
    const double reads = r->reads ? (double)r->reads : 1;

    return (struct qm_advise_cost){
        .eviction = run->config.params.eviction,
        .mean_us = r->timed.mean,
        .p50_us = r->timed.p50,
        .p99_us = r->timed.p99,
        .misses = (double)r->misses / reads,
        .ahead = (double)r->prefetch_hits / reads,
        .device = (double)(r->timed.demand_blocks + r->timed.prefetch_blocks) / reads,
    };
}

/* ---- memories and levels */

static uint64_t round_up(double bytes)
{
    uint64_t steps = (uint64_t)(bytes / (double)STEP);

    return (steps + ((double)(steps * STEP) < bytes)) * STEP;
}

static size_t choose_memories(const struct maker *m, uint64_t *memories)
{
    const struct advise_request *q = m->request;
    double all = (double)m->report->simulated_footprint * ALL_OF_IT;
    size_t n = 0;

    if (q->memory_count > 0) {
        memcpy(memories, q->memories, q->memory_count * sizeof *memories);
        return q->memory_count;
    }
    for (unsigned i = MEMORIES; i-- > 0;) {
        uint64_t memory = round_up(all / (double)(1U << i));
        /* Some blocks for each of the two parts of a cache. */
        uint64_t least = round_up((double)(16 * m->report->block_size) * ALL_OF_IT);

        if (memory < least)
            memory = least;
        if (n == 0 || memory > memories[n - 1])
            memories[n++] = memory;
    }
    return n;
}

/* Those of which there are contexts, and the server's default. */
static size_t choose_levels(const struct maker *m, enum qm_level *levels)
{
    static const struct {
        enum qm_kind kind;
        enum qm_level level;
    } all[] = {{QM_QUERY, QM_LEVEL_QUERY},
               {QM_TRANSACTION, QM_LEVEL_TRANSACTION},
               {QM_THREAD, QM_LEVEL_THREAD},
               {QM_CONNECTION, QM_LEVEL_CONNECTION}};
    size_t n = 0;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (m->survey.contexts[all[i].kind] > 0)
            levels[n++] = all[i].level;
    if (n != 1) /* else it is the only one */
        levels[n++] = QM_LEVEL_INNERMOST;
    return n;
}

static int compare_levels(struct maker *m, uint64_t memory)
{
    struct advise_report *r = m->report;
    enum qm_level levels[ADVISE_LEVELS];
    struct sim_run runs[ADVISE_LEVELS];
    int status = CLI_OK;

    r->level_count = choose_levels(m, levels);
    r->probe = memory;
    memset(runs, 0, sizeof runs);
    for (size_t i = 0; i < r->level_count; i++)
        runs[i].config = ahead_config(m, memory, levels[i]);
    if (r->level_count > 1)
        status = simulate(m, runs, r->level_count);
    for (size_t i = 0; i < r->level_count && status == CLI_OK; i++) {
        r->levels[i] = (struct advise_level){levels[i], cost_of(&runs[i])};
        if (r->levels[i].cost.mean_us < r->levels[r->level].cost.mean_us)
            r->level = i;
    }
    /* The last one is the server's default, which is kept unless that costs something.
     */
    if (status == CLI_OK && r->levels[r->level_count - 1].cost.mean_us <=
                                ALIKE * r->levels[r->level].cost.mean_us)
        r->level = r->level_count - 1;
    return status;
}

/* ---- the curves */

static int make_curves(struct maker *m, const uint64_t *memories, size_t count)
{
    enum { RUNS = ADVISE_PLAIN + 1 };
    struct advise_report *r = m->report;
    const enum qm_level level = r->levels[r->level].level;
    uint64_t few = (uint64_t)r->clients * m->survey.most_blocks;
    /* Without a cache there is none so small that it takes requests apart. */
    struct qm_virtual_config whole = m->timed;
    struct sim_run *runs = calloc(count * RUNS + 1, sizeof *runs);
    int status;

    if (!runs)
        return cli_fail("out of memory");
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < ADVISE_PLAIN; k++)
            runs[i * RUNS + k].config =
                plain_config(m, memories[i], plain_evictions[k]);
        runs[i * RUNS + ADVISE_PLAIN].config = ahead_config(m, memories[i], level);
    }
    runs[count * RUNS].config = plain_config(m, 0, "lru");
    runs[count * RUNS].config.cache_blocks = few < NO_CACHE_MOST ? few : NO_CACHE_MOST;
    whole.batch = QM_BATCH_MAX;
    runs[count * RUNS].config.timed = &whole;
    status = simulate(m, runs, count * RUNS + 1);
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        struct qm_advise_point *p = &r->points[i];

        *p = (struct qm_advise_point){.memory = memories[i],
                                      .plain = cost_of(&runs[i * RUNS]),
                                      .ahead = cost_of(&runs[i * RUNS + ADVISE_PLAIN])};
        for (size_t k = 1; k < ADVISE_PLAIN; k++) {
            struct qm_advise_cost other = cost_of(&runs[i * RUNS + k]);

            if (other.mean_us < p->plain.mean_us)
                p->plain = other;
        }
    }
    r->input = (struct qm_advise_input){
        .points = r->points,
        .count = count,
        .none = cost_of(&runs[count * RUNS]),
        .reads_per_second = r->seconds > 0
                                ? (double)r->reads / r->seconds *
                                      (m->request->sample ? m->request->sample : 1)
                                : 0,
        .policy = runs[ADVISE_PLAIN].config.params.policy,
        .level = qm_level_name(level),
    };
    free(runs);
    return status;
}

/* Both policies again at the memory that will be advised, in case that the backend is
 * not quite as fast as was said. */
static int compare_policies(struct maker *m)
{
    struct advise_report *r = m->report;
    const struct qm_advise_point *p = &r->points[qm_advise_memory(&r->input)];
    const enum qm_level level = r->levels[r->level].level;
    struct qm_virtual_config timed[ADVISE_OTHERS] = {m->timed, m->timed};
    struct sim_run runs[2 * ADVISE_OTHERS];
    int status;

    memset(runs, 0, sizeof runs);
    timed[0].device.scale *= 1 - ADVISE_OFF;
    timed[1].device.scale *= 1 + ADVISE_OFF;
    for (size_t i = 0; i < ADVISE_OTHERS; i++) {
        runs[2 * i].config = plain_config(m, p->memory, p->plain.eviction);
        runs[2 * i + 1].config = ahead_config(m, p->memory, level);
        runs[2 * i].config.timed = runs[2 * i + 1].config.timed = &timed[i];
    }
    status = simulate(m, runs, 2 * ADVISE_OTHERS);
    for (size_t i = 0; i < ADVISE_OTHERS && status == CLI_OK; i++)
        r->others[i] = (struct qm_advise_other){cost_of(&runs[2 * i]).mean_us,
                                                cost_of(&runs[2 * i + 1]).mean_us};
    r->input.others = r->others;
    r->input.other_count = ADVISE_OTHERS;
    if (status == CLI_OK)
        qm_advise(&r->input, &r->advice);
    return status;
}

/* The default policy's curve again, with a tier of each size. */
static int make_tiers(struct maker *m, const uint64_t *memories, size_t count)
{
    const struct advise_request *q = m->request;
    struct advise_report *r = m->report;
    struct sim_run *runs = calloc(count * q->tier_count + 1, sizeof *runs);
    int status;

    if (!runs)
        return cli_fail("out of memory");
    for (size_t i = 0; i < count * q->tier_count; i++) {
        runs[i].config =
            ahead_config(m, memories[i % count], r->levels[r->level].level);
        runs[i].config.tier = (struct qm_sim_tier_config){
            .size = q->tiers[i / count],
            .volume = m->timed.size,
            .device = &q->tier_device,
        };
    }
    status = simulate(m, runs, count * q->tier_count);
    for (size_t i = 0; i < count * q->tier_count && status == CLI_OK; i++)
        r->tiers[i / count][i % count] = cost_of(&runs[i]);
    free(runs);
    return status;
}

/* ---- classes */

struct two {
    struct qm_sim *plain, *ahead;
};

static int two_event(void *opaque, const struct qm_event *event)
{
    struct two *t = opaque;
    int error = qm_sim_event(t->plain, event);

    return error ? error : qm_sim_event(t->ahead, event);
}

static double saved(const struct advise_class *c)
{
    return c->plain_us - c->ahead_us;
}

static int by_saved(const void *a, const void *b)
{
    const double x = saved(a), y = saved(b);

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Both simulations had the same trace, so a class has the same number in both. */
static int take_classes(struct advise_report *r, const struct two *t)
{
    uint32_t count = qm_sim_class_count(t->plain);

    r->classes = calloc((size_t)count + 1, sizeof *r->classes);
    if (!r->classes)
        return cli_fail("out of memory");
    for (uint32_t i = 0; i < count && i < qm_sim_class_count(t->ahead); i++) {
        const char *name;
        const struct qm_sim_class *p = qm_sim_class(t->plain, i, &name);
        const struct qm_sim_class *a = qm_sim_class(t->ahead, i, &name);
        struct advise_class *c = &r->classes[r->class_count];

        if (p->requests == 0)
            continue;
        *c = (struct advise_class){
            .name = name ? strdup(name) : NULL,
            .requests = p->requests,
            .plain_blocks = p->hits + p->prefetch_hits + p->misses,
            .plain_misses = p->misses,
            .ahead_blocks = a->hits + a->prefetch_hits + a->misses,
            .ahead_misses = a->misses,
            .plain_us = p->us,
            .ahead_us = a->us,
        };
        if (name && !c->name)
            return cli_fail("out of memory");
        r->class_count++;
    }
    qsort(r->classes, r->class_count, sizeof *r->classes, by_saved);
    return CLI_OK;
}

static int count_classes(struct maker *m)
{
    struct advise_report *r = m->report;
    const struct qm_advice *a = &r->advice;
    size_t at = a->verdict == QM_PAYS_SMALLER ? a->best_gain : a->advised;
    const struct qm_advise_point *p = &r->points[at];
    struct qm_sim_config plain = plain_config(m, p->memory, p->plain.eviction);
    struct qm_sim_config ahead = ahead_config(m, p->memory, r->levels[r->level].level);
    struct qm_trace_reader *reader = cli_trace_open(path(m));
    struct two two = {NULL, NULL};
    char err[256] = "out of memory";
    int status = CLI_FAILED;

    r->class_memory = p->memory;
    plain.by_class = ahead.by_class = true;
    two.plain = qm_sim_new(&plain, err, sizeof err);
    if (two.plain)
        two.ahead = qm_sim_new(&ahead, err, sizeof err);
    if (!two.ahead)
        cli_fail("%s", err);
    else if (reader)
        status = cli_trace_each(reader, "counting classes", two_event, &two);
    if (status == CLI_OK &&
        (qm_sim_finish(two.plain) != 0 || qm_sim_finish(two.ahead) != 0))
        status = cli_fail("out of memory");
    if (status == CLI_OK)
        status = take_classes(r, &two);
    qm_sim_free(two.plain);
    qm_sim_free(two.ahead);
    qm_trace_free(reader);
    return status;
}

/* ---- the whole */

int advise_check(const struct advise_request *request)
{
    struct advise_report report = {.request = request};
    struct maker m = {.request = request, .report = &report, .copy = -1};
    struct qm_trace_reader *reader;
    struct qm_sim_config config;
    struct qm_sim *sim;
    char err[512];

    if (request->memory_count == 0)
        return CLI_OK;
    reader = cli_trace_open(request->file);
    if (!reader)
        return CLI_FAILED;
    report.block_size =
        request->block_size ? request->block_size : qm_trace_block_size(reader);
    qm_trace_free(reader);
    config = ahead_config(&m, request->memories[0], QM_LEVEL_NONE);
    config.timed = NULL;
    sim = qm_sim_new(&config, err, sizeof err);
    if (!sim)
        return cli_fail("%s: --memory: %s", request->name, err);
    qm_sim_free(sim);
    return CLI_OK;
}

int advise_make(const struct advise_request *request, struct advise_report *report)
{
    struct maker m = {.request = request, .report = report, .copy = -1};
    uint64_t memories[ADVISE_MEMORIES];
    size_t count = 0;
    int status;

    *report = (struct advise_report){.request = request};
    status = read_trace(&m);
    if (status == CLI_OK) {
        count = choose_memories(&m, memories);
        status = compare_levels(&m, memories[count > 3 ? count - 4 : 0]);
    }
    if (status == CLI_OK)
        status = make_curves(&m, memories, count);
    if (status == CLI_OK)
        status = compare_policies(&m);
    if (status == CLI_OK && request->tier_count > 0)
        status = make_tiers(&m, memories, count);
    if (status == CLI_OK)
        status = count_classes(&m);
    qm_survey_clear(&m.survey);
    if (m.copy != -1)
        close(m.copy);
    return status;
}

void advise_report_free(struct advise_report *report)
{
    for (size_t i = 0; i < report->class_count; i++)
        free(report->classes[i].name);
    free(report->classes);
    report->classes = NULL;
    report->class_count = 0;
}
