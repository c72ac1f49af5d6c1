/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.c - quickmine sim: the storage cache, simulated on a trace.  What is asked for.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/eviction.h"
#include "cli/cli.h"
#include "cli/sim-extents.h"
#include "cli/sim-tier.h"
#include "cli/sim-timed.h"
#include "cli/sim.h"
#include "mining/core/parameters.h"

/* A list of words, sizes or levels. */
struct list {
    union item {
        char *word;
        uint64_t number;
    } * items;
    size_t count;
};

struct arguments {
    struct cli_mining mining;
    struct list policies, sizes, totals, levels, evictions;
    struct cli_setting cache_blocks, share, share_adapts, on_prefetch_hit, throttle,
        admission, jobs;
    struct qm_budget budget;
    struct sim_timed timed;
    struct sim_tier tier;
    const char *extents_file;
    struct sim_extents extents;
    unsigned ablate; /* of enum qm_ablation */
    uint64_t warmup, series_us;
    bool json, explain;
    const char *file;
};

enum {
    POLICY = 'p',
    CACHE_SIZE = 'c',
    LEVEL = 'l',
    JSON = 'j',
    CACHE_BLOCKS = 0x200,
    TOTAL_MEMORY,
    EVICTION,
    SHARE,
    PREFETCH_ON,
    THROTTLE,
    ABLATE,
    WARMUP,
    SERIES,
    JOBS,
    EXPLAIN,
    ADMISSION,
    DEVICE,
    CLIENTS,
    THINK,
    SPEED,
    PREFETCH_THREADS,
    PREFETCH_QUEUE,
    TIER_SIZE,
    TIER_ADMIT,
    TIER_WRITE_RATE,
    PREFETCH_RATE,
    TIER_DEVICE,
    PROCESSOR,
    EXTENTS,
};

static const struct argp_option options[] = {
    {"policy", POLICY, "NAME[,NAME...]", 0,
     "what prefetches (none,auto; none,quickmine in the preset)", 0},
    {"cache-size", CACHE_SIZE, "SIZE[,SIZE...]", 0, "memory of the cache: 64M, 1G, ...",
     0},
    {"total-memory", TOTAL_MEMORY, "SIZE[,SIZE...]", 0,
     "the same, with rules whose memory is said, and refused for others", 0},
    {"cache-blocks", CACHE_BLOCKS, "N", 0, "blocks of the cache, instead of its size",
     0},
    {"level", LEVEL, "LEVEL[,LEVEL...]", 0,
     "which contexts' reads form a sequence: innermost (default), query, transaction, "
     "thread, "
     "connection, none",
     0},
    {"eviction", EVICTION, "NAME[,NAME...]", 0,
     "policy of the main cache (adaptive; lru in the preset)", 0},
    {"prefetch-share", SHARE, "auto|PERCENT", 0,
     "the prefetch cache's share of the blocks: fixed, or adaptive (auto; 4 in the "
     "preset)",
     0},
    {"prefetch-on", PREFETCH_ON, "WHEN", 0,
     "'miss', or 'prefetch-hit': on both (default; miss in the preset)", 0},
    {"throttle", THROTTLE, "on|off", 0,
     "classes that do not benefit prefetch less (on; off in the preset)", 0},
    {"admission", ADMISSION, "on|off", 0,
     "prefetch what is probable enough at the load of the device (on; off in the "
     "preset)",
     0},
    {"prefetch-rate", PREFETCH_RATE, "off|N/PERIOD", 0,
     "prefetch reads a period of s, min, h or day at most (off)", 0},
    {"ablate", ABLATE, "PART[,PART...]", 0,
     "parts of policy ppm to leave out, to see what they are worth", 0},
    {"without", ABLATE, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0}, /* old name */
    {"warmup", WARMUP, "N", 0, "do not count the first N read requests", 0},
    {"jobs", JOBS, "N", 0, "number of processes (as many as there are CPUs)", 0},
    {"json", JSON, NULL, 0, "print an array with an object for each run", 0},
    {"series", SERIES, "SECONDS", 0,
     "with --json: the counts at each multiple of SECONDS of the trace's time, too", 0},
    {"explain", EXPLAIN, NULL, 0, "count the misses by reason, too", 0},
    {"device", DEVICE, "NAME[,KEY=VALUE...]", 0,
     "reads take time, as over the device filter: disk, ssd, san, object-store", 0},
    {"clients", CLIENTS, "N[,N...]", 0,
     "number of clients that make requests, each one at a time", 0},
    {"think", THINK, "MS", 0, "pause between a client's requests, in milliseconds", 0},
    {"speed", SPEED, "SPEED", 0,
     "max (default): without the trace's pauses; recorded: at its own times; xN: N "
     "times as fast",
     0},
    {"prefetch-threads", PREFETCH_THREADS, "N|auto", 0,
     "prefetches in flight at most: as many as pay (auto), or a fixed number", 0},
    {"prefetch-queue", PREFETCH_QUEUE, "N|auto", 0,
     "prefetches that may wait: it follows those in flight (auto), or a fixed number",
     0},
    {"processor", PROCESSOR, "KEY=VALUE[,...]", 0,
     "time to compute, in microseconds: request, read, block; and count: of processors "
     "(none: it takes no time)",
     0},
    {"extents", EXTENTS, "FILE", 0,
     "where files lie: lines with an offset and a length in bytes, an empty line after "
     "each file",
     0},
    {"tier-size", TIER_SIZE, "SIZE[,SIZE...]", 0,
     "a second tier of that size below the cache; 0: none", 0},
    {"tier-admit", TIER_ADMIT, "WORD[,WORD...]", 0,
     "what enters it: auto (default), all, none; to compare with: lru, bcache, or "
     "another cache: DIRECTORY/LIBRARY:WORD",
     0},
    {"tier-write-rate", TIER_WRITE_RATE, "SIZE", 0,
     "bytes a day that may be written to it (no bound)", 0},
    {"tier-device", TIER_DEVICE, "NAME[,KEY=VALUE...]", 0,
     "with --device: what it lies on (ssd)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void append(struct argp_state *state, struct list *list, union item item)
{
    union item *items = reallocarray(list->items, list->count + 1, sizeof item);

    if (!items) {
        argp_failure(state, CLI_FAILED, ENOMEM, "arguments");
        return;
    }
    list->items = items;
    list->items[list->count++] = item;
}

static void append_word(struct argp_state *state, struct list *list, const char *word)
{
    union item item = {.word = strdup(word)};

    if (!item.word)
        argp_failure(state, CLI_FAILED, ENOMEM, "arguments");
    append(state, list, item);
}

static void add_policy(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    if (!qm_prefetcher_find(word) && strcmp(word, QM_PERFECT) != 0)
        argp_error(state, "there is no policy '%s'; there are: %s, %s", word,
                   qm_prefetcher_names(), QM_PERFECT);
    append_word(state, &a->policies, word);
}

static void add_ablation(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    if (!qm_ablation_find(word))
        argp_error(state, "policy ppm has no part '%s'; it has: %s", word,
                   qm_ablation_names());
    a->ablate |= qm_ablation_find(word);
}

static void add_eviction(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    if (!qm_evict_find(word) && strcmp(word, QM_BELADY) != 0)
        argp_error(state, "there is no eviction policy '%s'; there are: %s, %s", word,
                   qm_evict_names(), QM_BELADY);
    append_word(state, &a->evictions, word);
}

static void add_size(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.number = cli_size(state, "--cache-size", word, 1, INT64_MAX)};

    append(state, &a->sizes, item);
}

static void add_total(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.number = cli_size(state, "--total-memory", word, 1, INT64_MAX)};

    append(state, &a->totals, item);
}

static void add_level(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.number = (uint64_t)cli_level(state, word)};

    append(state, &a->levels, item);
}

static void add_clients(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    sim_timed_clients(state, &a->timed, word);
}

static void add_tier_size(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    sim_tier_size(state, &a->tier, word);
}

static void add_tier_admit(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;

    sim_tier_admit(state, &a->tier, word);
}

static uint64_t number_or_auto(struct argp_state *state, const char *option,
                               const char *arg, uint64_t most)
{
    char *end;

    if (strcmp(arg, "auto") == 0)
        return QM_PREFETCH_AUTO;
    if (strspn(arg, "0123456789") != strlen(arg) || strtoull(arg, &end, 10) < 1 ||
        strtoull(arg, &end, 10) > most)
        argp_error(state, "%s must be a number from 1 to %llu, or auto, not '%s'",
                   option, (unsigned long long)most, arg);
    return strtoull(arg, &end, 10);
}

static void set(struct cli_setting *setting, uint64_t value)
{
    setting->set = true;
    setting->value = value;
}

/* What was not asked for, and what does not go together. */
static void complete(struct argp_state *state, struct arguments *a)
{
    struct qm_params params;

    if (a->cache_blocks.set + (a->sizes.count > 0) + (a->totals.count > 0) > 1)
        argp_error(state, "either --cache-size, --total-memory or --cache-blocks");
    if (!a->cache_blocks.set && a->sizes.count == 0 && a->totals.count == 0)
        argp_error(state, "how large is the cache? Say --cache-size, --total-memory or "
                          "--cache-blocks");
    if (a->cache_blocks.set)
        append(state, &a->sizes, (union item){.number = 0});
    sim_timed_check(state, &a->timed);
    sim_tier_check(state, &a->tier, a->timed.words != NULL);
    if (a->series_us > 0 && a->timed.words)
        argp_error(state, "--series is by the trace's time, and not for --device");
    if (a->series_us > 0 && !a->json)
        argp_error(state, "--series is printed with --json only");
    if (a->levels.count == 0)
        append(state, &a->levels, (union item){.number = QM_LEVEL_INNERMOST});
    (a->mining.paper ? qm_params_paper : qm_params_defaults)(&params);
    if (a->policies.count == 0) {
        add_policy(state, "none");
        add_policy(state, params.policy);
    }
    if (a->evictions.count == 0)
        add_eviction(state, params.eviction);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    bool on;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->mining;
        return 0;
    case POLICY:
        cli_list(state, "--policy", arg, add_policy);
        return 0;
    case CACHE_SIZE:
        cli_list(state, "--cache-size", arg, add_size);
        return 0;
    case TOTAL_MEMORY:
        cli_list(state, "--total-memory", arg, add_total);
        return 0;
    case LEVEL:
        cli_list(state, "--level", arg, add_level);
        return 0;
    case CACHE_BLOCKS:
        set(&a->cache_blocks,
            cli_number(state, "--cache-blocks", arg, 1, UINT64_C(1) << 40));
        return 0;
    case EVICTION:
        cli_list(state, "--eviction", arg, add_eviction);
        return 0;
    case SHARE:
        set(&a->share_adapts, strcmp(arg, "auto") == 0);
        a->share.set = false;
        if (!a->share_adapts.value)
            set(&a->share, cli_percent(state, "--prefetch-share", arg));
        return 0;
    case PREFETCH_ON:
        if (!qm_params_read_prefetch_on(arg, &on))
            argp_error(state, "--prefetch-on must be miss or prefetch-hit, not '%s'",
                       arg);
        set(&a->on_prefetch_hit, on);
        return 0;
    case ABLATE:
        cli_list(state, "--ablate", arg, add_ablation);
        return 0;
    case THROTTLE:
        set(&a->throttle, cli_on_off(state, "--throttle", arg));
        return 0;
    case ADMISSION:
        set(&a->admission, cli_on_off(state, "--admission", arg));
        return 0;
    case PREFETCH_RATE:
        if (!qm_budget_parse(arg, &a->budget))
            argp_error(state, "--prefetch-rate must be " QM_BUDGET_ALLOWED ", not '%s'",
                       arg);
        return 0;
    case WARMUP:
        a->warmup = cli_number(state, "--warmup", arg, 0, UINT64_MAX);
        return 0;
    case JOBS:
        set(&a->jobs, cli_number(state, "--jobs", arg, 1, 1024));
        return 0;
    case SERIES:
        a->series_us = cli_seconds(state, "--series", arg);
        return 0;
    case EXPLAIN:
        a->explain = true;
        return 0;
    case DEVICE:
        sim_timed_device(state, &a->timed, arg);
        return 0;
    case CLIENTS:
        cli_list(state, "--clients", arg, add_clients);
        return 0;
    case THINK:
        set(&a->timed.think_us, cli_milliseconds(state, "--think", arg));
        return 0;
    case SPEED:
        a->timed.speed = cli_speed(state, "--speed", arg);
        a->timed.speed_set = true;
        return 0;
    case PREFETCH_THREADS:
        set(&a->timed.threads,
            number_or_auto(state, "--prefetch-threads", arg, QM_INFLIGHT_MOST));
        return 0;
    case PREFETCH_QUEUE:
        set(&a->timed.queue, number_or_auto(state, "--prefetch-queue", arg, 65536));
        return 0;
    case PROCESSOR:
        sim_timed_processor(state, arg, &a->timed.processor);
        a->timed.processor_set = true;
        return 0;
    case TIER_SIZE:
        cli_list(state, "--tier-size", arg, add_tier_size);
        return 0;
    case TIER_ADMIT:
        cli_list(state, "--tier-admit", arg, add_tier_admit);
        return 0;
    case TIER_WRITE_RATE:
        set(&a->tier.write_rate,
            cli_size(state, "--tier-write-rate", arg, 1, (UINT64_C(1) << 60) - 1));
        return 0;
    case TIER_DEVICE:
        sim_tier_device(state, &a->tier, arg);
        return 0;
    case EXTENTS:
        a->extents_file = arg;
        return 0;
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_END:
        complete(state, a);
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

/* All but those of the server's files: what is learned ends with the simulation. */
#define PARAMETERS                                                                     \
    (QM_HEEDS(QM_LOOKAHEAD) | QM_HEEDS(QM_DEGREE) | QM_HEEDS(QM_MAX_PREFIX) |          \
     QM_HEEDS(QM_MAX_SUFFIX) | QM_HEEDS(QM_GRACE) | QM_HEEDS(QM_SEGMENT) |             \
     QM_HEEDS(QM_SKIP_HITS) | QM_HEEDS(QM_RULES_MEMORY) | QM_HEEDS(QM_TRAINED) |       \
     QM_HEEDS(QM_RETRAIN) | QM_HEEDS(QM_READAHEAD_PRESET) |                            \
     QM_HEEDS(QM_READAHEAD_CAP) | QM_HEEDS(QM_READAHEAD_CAP_DISK) |                    \
     QM_HEEDS(QM_READAHEAD_CAP_SSD))

static struct argp_child children[] = {{NULL, 0, "Mining:", 1}, /* cli_mining_argp() */
                                       {NULL, 0, NULL, 0}};
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc = "Simulates the server's cache and prefetching on a trace, once for each "
           "combination of cache size, level, tier, policy and eviction, and prints "
           "what was "
           "counted."
           "\vSee quickmine-sim(1).",
    .children = children,
};

/* What all runs have in common. */
static struct qm_sim_config common_config(const struct arguments *a,
                                          uint64_t block_size)
{
    struct qm_sim_config config;

    if (a->mining.paper)
        qm_sim_paper(&config);
    else
        qm_sim_defaults(&config);
    cli_mining_apply(&a->mining, &config.params.mining);
    config.block_size = block_size;
    config.warmup = a->warmup;
    config.explain = a->explain;
    if (a->cache_blocks.set)
        config.cache_blocks = a->cache_blocks.value;
    if (a->share_adapts.set)
        config.params.share_adapts = a->share_adapts.value;
    if (a->share.set)
        config.params.prefetch_share = a->share.value;
    if (a->on_prefetch_hit.set)
        config.params.on_prefetch_hit = a->on_prefetch_hit.value;
    if (a->throttle.set)
        config.params.throttle = a->throttle.value;
    if (a->admission.set)
        config.params.admission = a->admission.value;
    config.params.budget = a->budget;
    config.params.mining.ablate = a->ablate;
    config.extents = a->extents.items;
    config.extent_count = a->extents.n;
    return config;
}

static bool is_heeded(const struct arguments *a, enum qm_parameter_id id)
{
    for (size_t i = 0; i < a->policies.count; i++) {
        const char *name = a->policies.items[i].word;
        const struct qm_prefetcher_ops *ops = qm_prefetcher_find(name);

        if (ops ? qm_parameter_heeded(qm_parameter(id), ops) : id == QM_DEGREE)
            return true; /* without operations: QM_PERFECT */
    }
    return false;
}

/* Names what was given and changes nothing, as the server does: else it would look as
 * if other values were as good. */
static void warn_of_ignored(const struct arguments *a)
{
    for (unsigned i = 0; i < QM_PARAMETERS; i++) {
        const enum qm_parameter_id id = (enum qm_parameter_id)i;

        if (a->mining.given & QM_HEEDS(id) && !is_heeded(a, id))
            fprintf(stderr,
                    "quickmine sim: warning: no policy of these runs heeds --%s\n",
                    qm_parameter(id)->name);
    }
}

/* A run for each combination; the eviction policy changes fastest. */
static int make_runs(struct arguments *a, uint64_t block_size, struct sim_runs *runs)
{
    struct qm_sim_config config = common_config(a, block_size);
    const struct list *sizes = a->totals.count > 0 ? &a->totals : &a->sizes;
    const struct qm_virtual_config *timed;
    const size_t tiers = sim_tier_count(&a->tier);
    size_t loads, total;
    uint64_t volume = 0;

    if (sim_timed_make(&a->timed, a->file, &timed, &loads) != CLI_OK)
        return CLI_FAILED;
    if (timed)
        volume = timed->size;
    else if (sim_tier_any(&a->tier) &&
             sim_find_end(a->file, " with --tier-size, or its end is not known",
                          &volume) != CLI_OK)
        return CLI_FAILED;
    total = sizes->count * a->levels.count * loads * tiers * a->policies.count *
            a->evictions.count;
    runs->runs = calloc(total, sizeof *runs->runs);
    if (!runs->runs)
        return cli_fail("out of memory");
    for (size_t i = 0; i < total; i++) {
        size_t n = i;

        config.params.eviction = a->evictions.items[n % a->evictions.count].word;
        n /= a->evictions.count;
        config.params.policy = a->policies.items[n % a->policies.count].word;
        n /= a->policies.count;
        config.tier = sim_tier_get(&a->tier, n % tiers, volume);
        n /= tiers;
        config.timed = timed ? &timed[n % loads] : NULL;
        n /= loads;
        config.params.level =
            (enum qm_level)a->levels.items[n % a->levels.count].number;
        n /= a->levels.count;
        config.cache_size = sizes->items[n].number;
        config.total_memory = sizes == &a->totals;
        runs->runs[runs->count++].config = config;
    }
    return CLI_OK;
}

unsigned sim_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static int run(struct arguments *a, struct qm_trace_reader *reader)
{
    uint64_t block_size = a->mining.block_size.set ? a->mining.block_size.value
                                                   : qm_trace_block_size(reader);
    struct sim_runs runs = {.series_us = a->series_us,
                            .policies = a->policies.count,
                            .evictions = a->evictions.count,
                            .jobs = a->jobs.set ? (unsigned)a->jobs.value : sim_cpus()};
    int status = make_runs(a, block_size, &runs);

    if (status == CLI_OK)
        status = sim_simulate(&runs, a->file, reader);
    if (status == CLI_OK)
        status = a->json ? sim_print_json(&runs) : sim_print_table(&runs);
    sim_runs_free(&runs);
    return status;
}

static void free_words(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].word);
    free(list->items);
}

int qm_cmd_sim(int argc, char **argv)
{
    struct arguments a = {0};
    struct qm_trace_reader *reader;
    int status = CLI_FAILED;

    children[0].argp = cli_mining_argp(PARAMETERS, true);
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    warn_of_ignored(&a);
    if (a.extents_file && sim_extents_read(a.extents_file, &a.extents) != CLI_OK)
        reader = NULL;
    else
        reader = cli_trace_open(a.file);
    if (reader)
        status = run(&a, reader);
    qm_trace_free(reader);
    sim_extents_free(&a.extents);
    free_words(&a.policies);
    free_words(&a.evictions);
    free(a.sizes.items);
    free(a.totals.items);
    free(a.levels.items);
    sim_timed_free(&a.timed);
    sim_tier_free(&a.tier);
    return status;
}
