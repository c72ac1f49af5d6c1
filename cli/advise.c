/* SPDX-License-Identifier: BSD-3-Clause */
/* advise.c - quickmine advise: does it pay here?  What is asked for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/advise.h"
#include "cli/cli.h"
#include "cli/sim-timed.h"
#include "cli/sim.h"

#define READS_MOST   UINT64_C(400000)
#define READS_LIMIT  (UINT64_C(1) << 32)
#define TRACES_MAX   64
#define CLASSES_MOST 10

#define SECONDS     60
#define SAMPLE      16
#define SAMPLE_MOST 65536

struct arguments {
    struct advise_request request;
    struct sim_timed timed;
    struct cli_setting latency_us, classes;
    const char *files[TRACES_MAX];
    size_t count;
    const char *html;
    struct advise_live live;
    struct cli_setting seconds, sample;
    bool json;
    char backend[160], processor[160];
};

enum {
    MEMORY = 'm',
    DEVICE = 'd',
    CLIENTS = 'n',
    CLASSES = 'C',
    BLOCK_BYTES = 'b',
    JSON = 'j',
    LATENCY = 0x200,
    THINK,
    READS,
    JOBS,
    HTML,
    LIVE,
    TIER_SIZE,
    SECONDS_LONG,
    ONE_IN,
    PROCESSOR,
};

static const struct argp_option options[] = {
    {"memory", MEMORY, "SIZE[,SIZE...]", 0,
     "memory of the cache: 64M, 1G, ... (from the footprint)", 0},
    {"tier-size", TIER_SIZE, "SIZE[,SIZE...]", 0,
     "with a second tier of that size, too, on the model ssd; at most 4", 0},
    {"device", DEVICE, "NAME[,KEY=VALUE...]", 0,
     "the backend, as the device filter knows it: disk, ssd, san, object-store", 0},
    {"latency", LATENCY, "MS", 0,
     "the backend, by the time of a random read as you measured it, in milliseconds",
     0},
    {"clients", CLIENTS, "N", 0,
     "number of clients that read, each one request at a time (as in the trace)", 0},
    {"think", THINK, "MS", 0,
     "pause between a client's requests, in milliseconds (the mean in the trace)", 0},
    {"processor", PROCESSOR, "KEY=VALUE[,...]", 0,
     "microseconds to compute: request (40), read (20), block (2); and count: of "
     "processors (always one that is free); none: no time",
     0},
    {"block-size", BLOCK_BYTES, "SIZE", 0,
     "block size in bytes, instead of the trace's (512 to 16M)", 0},
    {"reads", READS, "N", 0,
     "simulate the last N read requests of a longer trace (400000)", 0},
    {"classes", CLASSES, "N", 0, "print at most N classes (10; 0: all)", 0},
    {"jobs", JOBS, "N", 0, "number of processes (as many as there are CPUs)", 0},
    {"live", LIVE, "SOCKET", 0,
     "advise on a live server, by the socket of its parameter control", 0},
    {"seconds", SECONDS_LONG, "N", 0, "with --live: how long to record (60)", 0},
    {"sample", ONE_IN, "N", 0, "with --live: record one in N trees of contexts (16)",
     0},
    {"html", HTML, "FILE", 0, "write a page with the curves, too", 0},
    {"json", JSON, NULL, 0, "print an array with an object for each trace", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void add_memory(struct argp_state *state, const char *word)
{
    struct advise_request *q = &((struct arguments *)state->input)->request;
    uint64_t size = cli_size(state, "--memory", word, 1, INT64_MAX);
    size_t i = q->memory_count;

    if (i == ADVISE_MEMORIES)
        argp_error(state, "--memory takes at most %d sizes", ADVISE_MEMORIES);
    for (; i > 0 && q->memories[i - 1] > size; i--)
        q->memories[i] = q->memories[i - 1];
    if (i > 0 && q->memories[i - 1] == size)
        argp_error(state, "--memory: %s is given twice", word);
    q->memories[i] = size;
    q->memory_count++;
}

static void add_tier(struct argp_state *state, const char *word)
{
    struct advise_request *q = &((struct arguments *)state->input)->request;

    if (q->tier_count == ADVISE_TIERS)
        argp_error(state, "--tier-size takes at most %d sizes", ADVISE_TIERS);
    q->tiers[q->tier_count++] = cli_size(state, "--tier-size", word, 1, INT64_MAX);
}

/* What a tier lies on. */
static void set_tier(struct advise_request *q)
{
    struct qm_device_settings settings = {.values = {NULL}};
    char err[200];
    bool none;

    qm_device_settings_set(&settings, "device", "ssd");
    qm_device_settings_complete(&settings, &q->tier_device, &none, err, sizeof err);
}

/* Where the device's times come from. */
static void set_backend(struct argp_state *state, struct arguments *a)
{
    struct advise_request *q = &a->request;
    char err[200];
    bool none;

    if (a->timed.words && a->latency_us.set)
        argp_error(state, "either --device or --latency");
    if (a->timed.words) {
        qm_device_settings_complete(&a->timed.settings, &q->device, &none, err,
                                    sizeof err);
        q->device_size = a->timed.size;
        snprintf(a->backend, sizeof a->backend, "the model '%s' (--device)",
                 qm_device_settings_name(&a->timed.settings));
    } else if (a->latency_us.set) {
        q->device = (struct qm_device_config){
            .stations = ADVISE_PARALLEL,
            .read = {(double)a->latency_us.value * 1e3, ADVISE_SIGMA},
            .scale = 1,
        };
        snprintf(a->backend, sizeof a->backend,
                 "%g ms a read, %d at a time (--latency)",
                 (double)a->latency_us.value / 1e3, ADVISE_PARALLEL);
    } else if (a->live.socket) {
        return; /* the server tells */
    } else {
        argp_error(state,
                   "how fast is the backend? A trace does not tell: say --device "
                   "disk, ssd, san or object-store, or --latency MS");
    }
    q->backend = a->backend;
}

/* In words. */
static void set_processor(struct arguments *a)
{
    const char *from = a->request.processor_from ? "--processor" : "an assumption";

    advise_processor(&a->request.processor, from, a->processor);
    a->request.processor_from = a->processor;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case MEMORY:
        cli_list(state, "--memory", arg, add_memory);
        return 0;
    case TIER_SIZE:
        cli_list(state, "--tier-size", arg, add_tier);
        return 0;
    case DEVICE:
        sim_timed_device(state, &a->timed, arg);
        return 0;
    case LATENCY:
        a->latency_us.set = true;
        a->latency_us.value = cli_milliseconds(state, "--latency", arg);
        if (a->latency_us.value > 100000000)
            argp_error(state, "--latency must be at most 100000 ms, not '%s'", arg);
        return 0;
    case CLIENTS:
        a->request.clients =
            (unsigned)cli_number(state, "--clients", arg, 1, QM_VIRTUAL_CLIENTS_MAX);
        return 0;
    case THINK:
        a->request.think_set = true;
        a->request.think_us =
            strcmp(arg, "0") == 0 ? 0 : cli_milliseconds(state, "--think", arg);
        return 0;
    case PROCESSOR:
        sim_timed_processor(state, arg, &a->request.processor);
        a->request.processor_from = a->processor;
        return 0;
    case BLOCK_BYTES:
        a->request.block_size = cli_block_size(state, arg);
        return 0;
    case READS:
        a->request.most_reads = cli_number(state, "--reads", arg, 2, READS_LIMIT);
        return 0;
    case CLASSES:
        a->classes.value = cli_number(state, "--classes", arg, 0, UINT32_MAX);
        return 0;
    case JOBS:
        a->request.jobs = (unsigned)cli_number(state, "--jobs", arg, 1, 1024);
        return 0;
    case LIVE:
        a->live.socket = arg;
        return 0;
    case SECONDS_LONG:
        a->seconds.set = true;
        a->live.seconds = (unsigned)cli_number(state, "--seconds", arg, 1, 3600);
        return 0;
    case ONE_IN:
        a->sample.set = true;
        a->live.sample = (unsigned)cli_number(state, "--sample", arg, 1, SAMPLE_MOST);
        return 0;
    case HTML:
        if (*arg == '\0' || strcmp(arg, "-") == 0)
            argp_error(state, "--html must name a file, not '%s'", arg);
        a->html = arg;
        return 0;
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->count == TRACES_MAX)
            argp_error(state, "at most %d traces", TRACES_MAX);
        a->files[a->count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->live.socket && a->count > 0)
            argp_error(state, "either a trace or --live");
        if (!a->live.socket && (a->seconds.set || a->sample.set))
            argp_error(state, "--seconds and --sample are for --live");
        if (!a->live.socket && a->count == 0)
            argp_error(state, "which trace? Or say --live SOCKET");
        set_backend(state, a);
        if (a->request.processor_from || !a->live.socket)
            set_processor(a);
        set_tier(&a->request);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "TRACE...\n--live SOCKET",
    .doc =
        "Says whether QuickMine pays for what a trace recorded, with how much memory, "
        "and why: from simulations of plain caching and of the default policy that "
        "take the time of the backend.\vSee quickmine-advise(1).",
};

/* What can be said of one trace before the work of any. */
static int prepare(const struct arguments *a, size_t i, struct advise_request *request)
{
    const char *file = a->live.socket ? a->request.file : a->files[i];

    if (!sim_is_rereadable(file))
        return cli_fail(
            "%s: the trace is read several times, so it must be a file that "
            "is there, and not standard input or a pipe",
            file);
    *request = a->request;
    if (!a->live.socket)
        request->file = request->name = file;
    return advise_check(request);
}

/* Makes the advice on one trace, and prints it unless it goes into an array. */
static int advise(struct arguments *a, size_t i, struct advise_request *request,
                  struct advise_report *report, json_t *all)
{
    json_t *json;
    int status = advise_make(request, report);

    if (status != CLI_OK)
        return status;
    if (!a->json) {
        printf("%s", i > 0 ? "\n" : "");
        advise_print(report, a->classes.value);
        return CLI_OK;
    }
    json = advise_json(report);
    if (!json || json_array_append_new(all, json) != 0)
        return cli_fail("out of memory");
    return CLI_OK;
}

static int advise_all(struct arguments *a, json_t *all)
{
    struct advise_report *reports = calloc(a->count, sizeof *reports);
    struct advise_request *requests = calloc(a->count, sizeof *requests);
    struct advise_html html = {.path = NULL};
    int status = reports && requests ? CLI_OK : cli_fail("out of memory");

    if (status == CLI_OK && a->html)
        status = advise_html_open(a->html, &html);
    if (status == CLI_OK && a->live.socket)
        status = advise_live_record(&a->live, &a->request);
    for (size_t i = 0; i < a->count && status == CLI_OK; i++)
        status = prepare(a, i, &requests[i]);
    for (size_t i = 0; i < a->count && status == CLI_OK; i++)
        status = advise(a, i, &requests[i], &reports[i], all);
    if (status == CLI_OK && a->html)
        status = advise_html_write(&html, reports, a->count);
    advise_html_close(&html);
    for (size_t i = 0; reports && i < a->count; i++)
        advise_report_free(&reports[i]);
    free(requests);
    free(reports);
    return status;
}

int qm_cmd_advise(int argc, char **argv)
{
    struct arguments a = {
        .request = {.most_reads = READS_MOST,
                    .jobs = sim_cpus(),
                    .processor = {.request_ns = ADVISE_REQUEST_NS,
                                  .read_ns = ADVISE_READ_NS,
                                  .block_ns = ADVISE_BLOCK_NS}},
        .classes = {.value = CLASSES_MOST},
        .live = {.seconds = SECONDS, .sample = SAMPLE, .fd = -1},
    };
    json_t *all;
    int status;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.live.socket)
        a.count = 1;
    all = json_array();
    status = advise_all(&a, all);
    sim_timed_free(&a.timed);
    if (a.live.fd != -1)
        close(a.live.fd);
    if (status == CLI_OK && a.json)
        return cli_print_json(all);
    json_decref(all);
    return cli_end_output(status);
}
