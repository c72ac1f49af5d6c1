/* sim.c - quickmine sim: the storage cache, simulated on a trace.
 *
 * All runs that are asked for go side by side, event by event, so that the trace is
 * read once and need not be held.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim.h"
#include "cache/eviction.h"
#include "cli/cli.h"

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
    struct list policies, sizes, levels;
    struct cli_setting cache_blocks, share, on_promote, degree;
    const char *eviction;
    uint64_t warmup;
    bool json;
    const char *file;
};

enum {
    POLICY = 'p',
    CACHE_SIZE = 'c',
    LEVEL = 'l',
    JSON = 'j',
    CACHE_BLOCKS = 0x200,
    EVICTION,
    SHARE,
    PREFETCH_ON,
    DEGREE,
    WARMUP,
};

static const struct argp_option options[] = {
    {"policy", POLICY, "NAME[,NAME...]", 0, "what prefetches (none,quickmine)", 0},
    {"cache-size", CACHE_SIZE, "SIZE[,SIZE...]", 0, "memory of the cache: 64M, 1G, ...",
     0},
    {"cache-blocks", CACHE_BLOCKS, "N", 0, "blocks of the cache, instead of its size",
     0},
    {"level", LEVEL, "LEVEL[,LEVEL...]", 0,
     "whose reads make a sequence: innermost (default), query, transaction, thread, "
     "connection, none",
     0},
    {"eviction", EVICTION, "NAME", 0, "policy of the main cache (lru)", 0},
    {"prefetch-share", SHARE, "PERCENT", 0,
     "the prefetch cache's part of the blocks (4)", 0},
    {"prefetch-on", PREFETCH_ON, "WHEN", 0,
     "'miss', or 'promote': on a miss and on a promote (default; miss in the preset)",
     0},
    {"degree", DEGREE, "N", 0, "blocks prefetched for an access at most (1 to 64)", 0},
    {"warmup", WARMUP, "N", 0, "do not count the first N read requests", 0},
    {"json", JSON, NULL, 0, "print an array with an object a run", 0},
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

static void add_policy(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.word = NULL};

    if (!qm_prefetcher_find(word))
        argp_error(state, "there is no policy '%s'; there are: %s", word,
                   qm_prefetcher_names());
    item.word = strdup(word);
    if (!item.word)
        argp_failure(state, CLI_FAILED, ENOMEM, "arguments");
    append(state, &a->policies, item);
}

static void add_size(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.number = cli_size(state, "--cache-size", word, 1, INT64_MAX)};

    append(state, &a->sizes, item);
}

static void add_level(struct argp_state *state, const char *word)
{
    struct arguments *a = state->input;
    union item item = {.number = (uint64_t)cli_level(state, word)};

    append(state, &a->levels, item);
}

static void set(struct cli_setting *setting, uint64_t value)
{
    setting->set = true;
    setting->value = value;
}

/* What was not asked for, and what does not go together. */
static void complete(struct argp_state *state, struct arguments *a)
{
    if (!a->file)
        argp_error(state, "which trace?");
    if (a->cache_blocks.set && a->sizes.count > 0)
        argp_error(state, "either --cache-size or --cache-blocks");
    if (!a->cache_blocks.set && a->sizes.count == 0)
        argp_error(state, "how large is the cache? Say --cache-size or --cache-blocks");
    if (a->cache_blocks.set)
        append(state, &a->sizes, (union item){.number = 0});
    if (a->levels.count == 0)
        append(state, &a->levels, (union item){.number = QM_LEVEL_INNERMOST});
    if (a->policies.count == 0) {
        add_policy(state, "none");
        add_policy(state, "quickmine");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

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
    case LEVEL:
        cli_list(state, "--level", arg, add_level);
        return 0;
    case CACHE_BLOCKS:
        set(&a->cache_blocks,
            cli_number(state, "--cache-blocks", arg, 1, UINT64_C(1) << 40));
        return 0;
    case EVICTION:
        if (!qm_evict_find(arg))
            argp_error(state, "there is no eviction policy '%s'; there are: %s", arg,
                       qm_evict_names());
        a->eviction = arg;
        return 0;
    case SHARE:
        set(&a->share, cli_percent(state, "--prefetch-share", arg));
        return 0;
    case PREFETCH_ON:
        if (strcmp(arg, "miss") != 0 && strcmp(arg, "promote") != 0)
            argp_error(state, "--prefetch-on must be miss or promote, not '%s'", arg);
        set(&a->on_promote, strcmp(arg, "promote") == 0);
        return 0;
    case DEGREE:
        set(&a->degree, cli_number(state, "--degree", arg, 1, 64));
        return 0;
    case WARMUP:
        a->warmup = cli_number(state, "--warmup", arg, 0, UINT64_MAX);
        return 0;
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "one trace only, not '%s' as well", arg);
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        complete(state, a);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&cli_mining_argp, 0, "Mining:", 1},
                                             {NULL, 0, NULL, 0}};
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc = "Simulates the server's cache and prefetching on a trace, once for each "
           "combination of cache size, level and policy, and prints what was counted."
           "\vSee quickmine-sim(1).",
    .children = children,
};

struct runs {
    struct qm_sim **sims;
    size_t count;
};

static void runs_free(struct runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        qm_sim_free(runs->sims[i]);
    free(runs->sims);
}

static struct qm_sim *make_run(const struct arguments *a, uint64_t block_size,
                               uint64_t size, enum qm_level level, const char *policy)
{
    struct qm_sim_config config;
    struct qm_sim *sim;
    char err[256];

    if (a->mining.paper)
        qm_sim_paper(&config);
    else
        qm_sim_defaults(&config);
    cli_mining_apply(&a->mining, &config.mining);
    config.policy = policy;
    config.level = level;
    config.cache_size = size;
    config.block_size = block_size;
    config.warmup = a->warmup;
    if (a->eviction)
        config.eviction = a->eviction;
    if (a->cache_blocks.set)
        config.cache_blocks = a->cache_blocks.value;
    if (a->share.set)
        config.prefetch_share = a->share.value;
    if (a->on_promote.set)
        config.on_promote = a->on_promote.value;
    if (a->degree.set)
        config.mining.degree = (unsigned)a->degree.value;
    sim = qm_sim_new(&config, err, sizeof err);
    if (!sim)
        cli_fail("%s", err);
    return sim;
}

static int make_runs(const struct arguments *a, uint64_t block_size, struct runs *runs)
{
    size_t total = a->sizes.count * a->levels.count * a->policies.count;

    runs->sims = calloc(total, sizeof *runs->sims);
    if (!runs->sims)
        return cli_fail("out of memory");
    for (size_t i = 0; i < total; i++) {
        size_t policy = i % a->policies.count, rest = i / a->policies.count;
        struct qm_sim *sim =
            make_run(a, block_size, a->sizes.items[rest / a->levels.count].number,
                     (enum qm_level)a->levels.items[rest % a->levels.count].number,
                     a->policies.items[policy].word);

        if (!sim)
            return CLI_FAILED;
        runs->sims[runs->count++] = sim;
    }
    return CLI_OK;
}

static int each_event(void *opaque, const struct qm_event *event)
{
    struct runs *runs = opaque;
    int error = 0;

    for (size_t i = 0; i < runs->count && !error; i++)
        error = qm_sim_event(runs->sims[i], event);
    return error;
}

/* A share of 0 is not known. */
static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : -1;
}

static json_t *json_ratio(double r)
{
    return r < 0 ? json_null() : json_real(r);
}

static json_t *run_json(struct qm_sim *sim)
{
    const struct qm_sim_config *c = qm_sim_config(sim);
    struct qm_sim_result r;

    qm_sim_result(sim, &r);
    return json_pack(
        "{s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:I,"
        " s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
        " s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "policy", c->policy, "level", qm_level_name(c->level), "eviction", c->eviction,
        "preset", c->paper ? "paper" : NULL, "cache_size", (json_int_t)c->cache_size,
        "block_size", (json_int_t)c->block_size, "cache_blocks",
        (json_int_t)r.cache_blocks, "prefetch_blocks", (json_int_t)r.prefetch_blocks,
        /* counts */
        "requests", (json_int_t)r.requests, "writes", (json_int_t)r.writes, "reads",
        (json_int_t)r.reads, "hits", (json_int_t)r.hits, "promotes",
        (json_int_t)r.promotes, "misses", (json_int_t)r.misses, "prefetches",
        (json_int_t)r.prefetches, "used", (json_int_t)r.used, "wasted",
        (json_int_t)r.wasted,
        /* ratios, and mining */
        "miss_ratio", json_ratio(ratio(r.misses, r.reads)), "accuracy",
        json_ratio(ratio(r.used, r.prefetches)), "coverage",
        json_ratio(ratio(r.promotes, r.promotes + r.misses)), "device_reads",
        (json_int_t)(r.misses + r.prefetches), "rules", (json_int_t)r.mining.rules,
        "prefixes", (json_int_t)r.mining.prefixes, "rules_bytes",
        (json_int_t)r.mining.rules_bytes, "sequences", (json_int_t)r.mining.sequences,
        "lookups", (json_int_t)r.mining.lookups, "matches",
        (json_int_t)r.mining.matches);
}

static int print_json(const struct runs *runs)
{
    json_t *array = json_array();

    for (size_t i = 0; i < runs->count; i++)
        if (json_array_append_new(array, run_json(runs->sims[i])) == -1) {
            json_decref(array);
            return cli_fail("out of memory");
        }
    return cli_print_json(array);
}

static void print_ratio(double r, int width)
{
    if (r < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*.4f", width, r);
}

static int print_table(const struct runs *runs)
{
    printf("%-10s %-11s %9s %9s %10s %10s %10s %10s %7s %10s %10s %8s %8s %10s %9s\n",
           "policy", "level", "blocks", "prefetch", "reads", "hits", "promotes",
           "misses", "miss", "prefetches", "used", "accuracy", "coverage", "device",
           "rules");
    for (size_t i = 0; i < runs->count; i++) {
        const struct qm_sim_config *c = qm_sim_config(runs->sims[i]);
        struct qm_sim_result r;

        qm_sim_result(runs->sims[i], &r);
        printf("%-10s %-11s %9" PRIu64 " %9" PRIu64 " %10" PRIu64 " %10" PRIu64
               " %10" PRIu64 " %10" PRIu64,
               c->policy, qm_level_name(c->level), r.cache_blocks, r.prefetch_blocks,
               r.reads, r.hits, r.promotes, r.misses);
        print_ratio(ratio(r.misses, r.reads), 7);
        printf(" %10" PRIu64 " %10" PRIu64, r.prefetches, r.used);
        print_ratio(ratio(r.used, r.prefetches), 8);
        print_ratio(ratio(r.promotes, r.promotes + r.misses), 8);
        printf(" %10" PRIu64 " %9" PRIu64 "\n", r.misses + r.prefetches,
               r.mining.rules);
    }
    return cli_end_output(CLI_OK);
}

/* Whether the warm-up has ended; it is the same in all runs. */
static int check_warmup(const struct runs *runs)
{
    struct qm_sim_result r;

    qm_sim_result(runs->sims[0], &r);
    if (!r.warming)
        return CLI_OK;
    return cli_fail("the trace's %" PRIu64
                    " read requests do not suffice for the warm-up",
                    r.requests);
}

static int run(const struct arguments *a, struct qm_trace_reader *reader)
{
    uint64_t block_size = a->mining.block_size.set ? a->mining.block_size.value
                                                   : qm_trace_block_size(reader);
    struct runs runs = {NULL, 0};
    int status = make_runs(a, block_size, &runs);

    if (status == CLI_OK)
        status = cli_trace_each(reader, "simulating", each_event, &runs);
    if (status == CLI_OK)
        status = check_warmup(&runs);
    if (status == CLI_OK)
        status = a->json ? print_json(&runs) : print_table(&runs);
    runs_free(&runs);
    return status;
}

int qm_cmd_sim(int argc, char **argv)
{
    struct arguments a = {0};
    struct qm_trace_reader *reader;
    int status = CLI_FAILED;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    reader = cli_trace_open(a.file);
    if (reader)
        status = run(&a, reader);
    qm_trace_free(reader);
    for (size_t i = 0; i < a.policies.count; i++)
        free(a.policies.items[i].word);
    free(a.policies.items);
    free(a.sizes.items);
    free(a.levels.items);
    return status;
}
