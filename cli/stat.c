/* stat.c - quickmine stat: a live server's statistics, once. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/server.h"

struct arguments {
    bool json, classes;
    const char *target;
};

enum { JSON = 'j', CLASSES = 'c' };

static const struct argp_option options[] = {
    {"json", JSON, NULL, 0, "print the server's JSON document", 0},
    {"classes", CLASSES, NULL, 0, "print a line for each class of contexts, too", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case JSON:
        a->json = true;
        return 0;
    case CLASSES:
        a->classes = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->target)
            argp_error(state, "one server only, not '%s' as well", arg);
        a->target = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which server? Give its NBD URI or its statistics' socket");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "URI|SOCKET",
    .doc = "Prints a live server's statistics.\vSee quickmine-stat(1).",
};

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

static void print_text(const json_t *s)
{
    uint64_t hits = cli_count(s, "hits"), promotes = cli_count(s, "promotes");
    uint64_t misses = cli_count(s, "misses"), blocks = hits + promotes + misses;
    uint64_t prefetches = cli_count(s, "prefetches");
    const json_t *latency = json_object_get(s, "latency_us");
    const json_t *load = json_object_get(s, "load");

    printf("server       %s, policy %s, level %s, eviction %s; up %.1f s\n",
           cli_text(s, "version"), cli_text(s, "policy"), cli_text(s, "level"),
           cli_text(s, "eviction"), (double)cli_count(s, "uptime_us") / 1e6);
    printf("cache        %" PRIu64 " blocks of %" PRIu64 " bytes, %" PRIu64
           " of them for prefetches; %.1f MiB held\n",
           cli_count(s, "cache_blocks"), cli_count(s, "block_size"),
           cli_count(s, "prefetch_blocks"),
           (double)cli_count(s, "cache_bytes") / (1 << 20));
    printf("requests     %" PRIu64 " reads, %.1f MiB; %" PRIu64 " writes, %.1f MiB\n",
           cli_count(s, "reads"), (double)cli_count(s, "read_bytes") / (1 << 20),
           cli_count(s, "writes"), (double)cli_count(s, "write_bytes") / (1 << 20));
    printf("blocks       %" PRIu64 ": %" PRIu64 " hits (%.1f %%), %" PRIu64
           " promotes (%.1f %%), %" PRIu64 " misses (%.1f %%)\n",
           blocks, hits, percent(hits, blocks), promotes, percent(promotes, blocks),
           misses, percent(misses, blocks));
    printf("prefetches   %" PRIu64 " issued, %" PRIu64 " used (%.1f %%), %" PRIu64
           " wasted, %" PRIu64 " failed, %" PRIu64 " dropped\n",
           prefetches, cli_count(s, "used"), percent(cli_count(s, "used"), prefetches),
           cli_count(s, "wasted"), cli_count(s, "failed"), cli_count(s, "dropped"));
    printf("device       %" PRIu64 " reads, %" PRIu64
           " blocks; %.1f times as slow as at "
           "its best, so %" PRIu64 " %% may be prefetched (%" PRIu64 " withheld)\n",
           cli_count(s, "device_reads"), cli_count(s, "device_blocks"),
           cli_real(load, "slowness"), cli_count(load, "percent"),
           cli_count(s, "withheld"));
    printf("read latency mean %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n",
           cli_real(latency, "mean"), cli_real(latency, "p50"),
           cli_real(latency, "p90"), cli_real(latency, "p99"),
           cli_real(latency, "max"));
    printf("rules        %" PRIu64 " of %" PRIu64 " prefixes, %.1f MiB; %" PRIu64
           " lookups, %" PRIu64 " found\n",
           cli_count(s, "rules"), cli_count(s, "prefixes"),
           (double)cli_count(s, "rules_bytes") / (1 << 20), cli_count(s, "lookups"),
           cli_count(s, "matches"));
    printf("mining       %" PRIu64 " sequences learned, %" PRIu64 " shed\n",
           cli_count(s, "sequences"), cli_count(s, "sequences_shed"));
    printf("contexts     %" PRIu64 " open, %" PRIu64 " begun; %" PRIu64
           " sessions, %" PRIu64 " connections\n",
           cli_count(s, "contexts_open"), cli_count(s, "contexts_begun"),
           cli_count(s, "sessions"), cli_count(s, "connections"));
    printf("recorded     %" PRIu64 " events, %" PRIu64 " dropped\n",
           cli_count(s, "recorded"), cli_count(s, "record_dropped"));
}

int qm_cmd_stat(int argc, char **argv)
{
    struct arguments a = {.json = false};
    struct cli_server *server;
    json_t *stats;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    server = cli_server_open(a.target);
    if (!server)
        return CLI_FAILED;
    stats = cli_server_stats(server);
    cli_server_close(server);
    if (!stats)
        return CLI_FAILED;
    if (a.json)
        return cli_print_json(stats);
    print_text(stats);
    if (a.classes) {
        putchar('\n');
        cli_print_classes(stats, NULL, 0);
    }
    json_decref(stats);
    return cli_end_output(CLI_OK);
}
