/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.c - quickmine stat: a live server's statistics, once. */
#include <inttypes.h>
#include <string.h>

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
    default:
        return cli_server_argument(key, arg, state, &a->target);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "URI|SOCKET",
    .doc = "Prints a live server's statistics.\vSee quickmine-stat(1).",
};

/* What a policy keeps, and so what its numbers mean. */
struct learning {
    const char *policy;
    bool rules;     /* what it has learned, and its memory */
    bool prefixes;  /* by prefix, looked up and found or not */
    bool sequences; /* mined, beside the readers */
};

static const struct learning learnings[] = {
    {"none", false, false, false},   {"seq", false, false, false},
    {"run", false, false, false},    {"amp", false, false, false},
    {"auto", true, false, false},    {"readahead", false, false, false},
    {"ppm", true, false, false},     {"mithril", true, true, true},
    {"quickmine", true, true, true}, {"cminer", true, true, true},
};

/* Of a policy that this command does not know, what has a count. */
static struct learning learning_of(const json_t *s)
{
    const char *policy = cli_text(s, "policy");

    for (size_t i = 0; i < sizeof learnings / sizeof *learnings; i++)
        if (strcmp(policy, learnings[i].policy) == 0)
            return learnings[i];
    return (struct learning){policy, cli_count(s, "rules") > 0,
                             cli_count(s, "prefixes") > 0,
                             cli_count(s, "sequences") > 0};
}

static double mebibytes(const json_t *s, const char *key)
{
    return (double)cli_count(s, key) / (1 << 20);
}

static uint64_t blocks_read(const json_t *s)
{
    return cli_count(s, "hits") + cli_count_renamed(s, "prefetch_hits", "promotes") +
           cli_count(s, "misses");
}

static bool does_prefetch(const json_t *s)
{
    return cli_flag(s, "prefetching", strcmp(cli_text(s, "policy"), "none") != 0) &&
           !cli_flag(s, "uncached", false);
}

/* All that was read is in the cache: none of it had to leave for something else. */
static bool all_fits(const json_t *s)
{
    return json_object_get(s, "evicted") && cli_count(s, "evicted") == 0 &&
           blocks_read(s) > 0 && !cli_flag(s, "uncached", false);
}

static void print_cache(const json_t *s)
{
    printf("cache        %" PRIu64 " blocks of %" PRIu64 " bytes",
           cli_count(s, "cache_blocks"), cli_count(s, "block_size"));
    if (does_prefetch(s))
        printf(", %" PRIu64 " of them for prefetches", cli_count(s, "prefetch_blocks"));
    if (json_object_get(s, "held_blocks"))
        printf("; %" PRIu64 " blocks held", cli_count(s, "held_blocks"));
    printf("; %.1f MiB of memory\n", mebibytes(s, "cache_bytes"));
    if (cli_flag(s, "uncached", false))
        printf(
            "             not in use: the plugin does not promise that connections see "
            "each other's writes\n");
    else if (all_fits(s))
        printf("             all blocks that were read fit in the cache\n");
}

static void print_blocks(const json_t *s)
{
    uint64_t hits = cli_count(s, "hits"),
             prefetch_hits = cli_count_renamed(s, "prefetch_hits", "promotes");
    uint64_t misses = cli_count(s, "misses"), blocks = blocks_read(s);

    printf("requests     %" PRIu64 " reads, %.1f MiB; %" PRIu64 " writes, %.1f MiB\n",
           cli_count(s, "reads"), mebibytes(s, "read_bytes"), cli_count(s, "writes"),
           mebibytes(s, "write_bytes"));
    if (blocks == 0) {
        printf("blocks       none was read yet\n");
        return;
    }
    printf("blocks       %" PRIu64 ": %" PRIu64 " hits (%.1f %%), %" PRIu64
           " prefetch hits (%.1f %%), %" PRIu64 " misses (%.1f %%)\n",
           blocks, hits, cli_percentage(hits, blocks), prefetch_hits,
           cli_percentage(prefetch_hits, blocks), misses,
           cli_percentage(misses, blocks));
}

/* Candidates that were not prefetched because the device was busy, or because
 * prefetching did not pay; the server does not tell which. */
static uint64_t throttled(const json_t *s)
{
    return cli_count_renamed(s, "throttled", "withheld");
}

/* Why there are no prefetches. */
static const char *why_none(const json_t *s)
{
    if (cli_flag(s, "uncached", false))
        return "nothing is cached";
    if (!does_prefetch(s))
        return strcmp(cli_text(s, "policy"), "none") == 0
                   ? "policy none does not prefetch"
                   : "prefetching=off";
    if (blocks_read(s) == 0)
        return "no block was read yet";
    if (throttled(s) > 0)
        return "the device was busy, or prefetching did not pay: all candidates were "
               "throttled";
    if (cli_count(s, "watched") > 0)
        return "it is not known yet whether prefetching pays: all candidates were "
               "watched";
    if (cli_count(s, "over_rate") > 0)
        return "prefetch-rate allowed none";
    if (cli_count(s, "dropped") > 0)
        return "the queue was full";
    if (all_fits(s))
        return "all blocks that were read fit in the cache";
    return "no candidate was found so far";
}

static void print_prefetches(const json_t *s)
{
    uint64_t issued = cli_count(s, "prefetches"), used = cli_count(s, "used");

    if (issued == 0)
        printf("prefetches   none: %s\n", why_none(s));
    else
        printf("prefetches   %" PRIu64 " issued, %" PRIu64 " used (%.1f %%), %" PRIu64
               " wasted, %" PRIu64 " failed\n",
               issued, used, cli_percentage(used, issued), cli_count(s, "wasted"),
               cli_count(s, "failed"));
    if (issued + cli_count(s, "dropped") + throttled(s) + cli_count(s, "watched") > 0)
        printf("candidates   %" PRIu64 " dropped (full queue), %" PRIu64
               " throttled (busy device, or does not pay), %" PRIu64
               " watched (not known yet whether it pays)\n",
               cli_count(s, "dropped"), throttled(s), cli_count(s, "watched"));
    if (strcmp(cli_text(s, "prefetch_rate"), "off") != 0 &&
        json_object_get(s, "prefetch_rate"))
        printf("budget       %s; %" PRIu64 " blocks over it\n",
               cli_text(s, "prefetch_rate"), cli_count(s, "over_rate"));
}

/* Requests of the device, and how many a day that is: by what they are charged. */
static void print_device(const json_t *s)
{
    const char *clock = json_object_get(s, "reset_us") ? "reset_us" : "uptime_us";
    double days = (double)cli_count(s, clock) / 86400e6;
    uint64_t reads = cli_count(s, "device_reads"),
             ahead = cli_count(s, "prefetch_reads");

    printf("device       %" PRIu64 " reads, %" PRIu64 " blocks", reads,
           cli_count(s, "device_blocks"));
    if (json_object_get(s, "prefetch_reads") && days > 0)
        printf("; a day: %.0f demand reads, %.0f prefetch reads, %.0f writes",
               (double)(reads > ahead ? reads - ahead : 0) / days, (double)ahead / days,
               (double)cli_count(s, "writes") / days);
    putchar('\n');
}

/* How many classes have that state. */
static unsigned count_state(const json_t *s, const char *state)
{
    unsigned n = 0;
    size_t i;
    json_t *k;

    json_array_foreach(json_object_get(s, "classes"), i, k) n +=
        strcmp(cli_text(k, "state"), state) == 0;
    return n;
}

static void print_throttle(const json_t *s)
{
    const json_t *load = json_object_get(s, "load");
    uint64_t percent = cli_count(load, "percent");
    unsigned reduced = count_state(s, "reduced"), off = count_state(s, "off");
    const bool resting = cli_flag(s, "prefetch_resting", false);

    if (!does_prefetch(s))
        return;
    if (!cli_flag(s, "throttle", true)) {
        printf("throttle     off (throttle=off)\n");
        return;
    }
    if (resting)
        printf("throttle     nothing is prefetched for a while: in this cache it costs "
               "more than it saves");
    else if (percent == 100)
        printf("throttle     not active: all candidates are prefetched");
    else if (percent == 0)
        printf("throttle     only a probe now and then is prefetched");
    else
        printf("throttle     %" PRIu64 " %% of candidates are prefetched", percent);
    if (percent < 100 && !resting)
        printf(
            ": the device was busy; its last reads took %.1f times as long as when it "
            "is idle",
            cli_real(load, "slowness"));
    if (reduced + off > 0)
        printf("; of %zu classes %u %s off and %u reduced, since their prefetches go "
               "unused",
               json_array_size(json_object_get(s, "classes")), off,
               off == 1 ? "is" : "are", reduced);
    putchar('\n');
}

static void print_learned(const json_t *s)
{
    const struct learning l = learning_of(s);

    if (l.rules) {
        printf("rules        %" PRIu64, cli_count(s, "rules"));
        if (l.prefixes)
            printf(" with %" PRIu64 " prefixes", cli_count(s, "prefixes"));
        printf(", %.1f MiB", mebibytes(s, "rules_bytes"));
        if (l.prefixes)
            printf("; %" PRIu64 " lookups, %" PRIu64 " found", cli_count(s, "lookups"),
                   cli_count(s, "matches"));
        if (cli_count(s, "rules_save_errors") > 0)
            printf("; saving failed %" PRIu64 " times",
                   cli_count(s, "rules_save_errors"));
        putchar('\n');
    }
    if (l.sequences) {
        printf("mining       %" PRIu64 " sequences learned, %" PRIu64 " shed",
               cli_count(s, "sequences"), cli_count(s, "sequences_shed"));
        if (cli_count(s, "sequences_failed") > 0)
            printf(", %" PRIu64 " failed", cli_count(s, "sequences_failed"));
        putchar('\n');
    }
}

/* Nothing without one. */
static void print_tier(const json_t *s)
{
    uint64_t hits = cli_count(s, "tier_hits");

    if (!json_object_get(s, "tier_size"))
        return;
    printf("tier         ");
    if (cli_flag(s, "tier_dead", false))
        printf("detached: %s; ", cli_text(s, "tier_reason"));
    printf("%" PRIu64 " of %" PRIu64 " blocks, %" PRIu64
           " of them from before; %" PRIu64 " hits (%.1f %%), %" PRIu64
           " inserted, %.1f MiB written",
           cli_count(s, "tier_blocks"), cli_count(s, "tier_capacity"),
           cli_count(s, "tier_recovered"), hits,
           cli_percentage(hits, hits + cli_count(s, "tier_misses")),
           cli_count(s, "tier_inserted"), mebibytes(s, "tier_written_bytes"));
    if (cli_count(s, "tier_unverified") > 0)
        printf("; %" PRIu64 " to be compared", cli_count(s, "tier_unverified"));
    if (cli_count(s, "tier_outdated") > 0)
        printf("; %" PRIu64 " outdated", cli_count(s, "tier_outdated"));
    if (cli_count(s, "tier_errors") > 0)
        printf("; %" PRIu64 " errors", cli_count(s, "tier_errors"));
    putchar('\n');
}

static void print_text(const json_t *s)
{
    const json_t *latency = json_object_get(s, "latency_us");

    printf("server       %s, policy %s, level %s, eviction %s; up %.1f s\n",
           cli_text(s, "version"), cli_text(s, "policy"), cli_text(s, "level"),
           cli_text(s, "eviction"), (double)cli_count(s, "uptime_us") / 1e6);
    print_cache(s);
    print_blocks(s);
    print_prefetches(s);
    print_throttle(s);
    print_tier(s);
    print_device(s);
    if (cli_count(latency, "count") > 0)
        printf("read latency mean %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n",
               cli_real(latency, "mean"), cli_real(latency, "p50"),
               cli_real(latency, "p90"), cli_real(latency, "p99"),
               cli_real(latency, "max"));
    print_learned(s);
    printf("contexts     %" PRIu64 " open, %" PRIu64 " begun; %" PRIu64
           " sessions, %" PRIu64 " connections\n",
           cli_count(s, "contexts_open"), cli_count(s, "contexts_begun"),
           cli_count(s, "sessions"), cli_count(s, "connections"));
    if (json_object_get(s, "record_error"))
        printf("recorded     %" PRIu64 " events, then no more: %s\n",
               cli_count(s, "recorded"), cli_text(s, "record_error"));
    else if (cli_count(s, "recorded") + cli_count(s, "record_dropped") > 0)
        printf("recorded     %" PRIu64 " events, %" PRIu64 " dropped\n",
               cli_count(s, "recorded"), cli_count(s, "record_dropped"));
}

int qm_cmd_stat(int argc, char **argv)
{
    struct arguments a = {.json = false};
    struct cli_server *server;
    json_t *stats;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    server = cli_server_new(a.target);
    if (!server)
        return CLI_FAILED;
    stats = cli_server_stats(server);
    cli_server_free(server);
    if (!stats)
        return CLI_FAILED;
    if (a.json)
        return cli_print_json(stats);
    print_text(stats);
    if (a.classes) {
        putchar('\n');
        cli_print_classes(stats);
    }
    json_decref(stats);
    return cli_end_output(CLI_OK);
}
