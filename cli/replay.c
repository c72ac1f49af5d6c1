/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c - quickmine replay: a trace against a live server. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sim/replay.h"
#include "cli/cli.h"
#include "cli/server.h"

struct arguments {
    struct qm_replay_config config;
    bool connections_set, json;
    const char *file;
};

enum {
    URI = 'u',
    SPEED = 's',
    CLIENTS = 'n',
    JSON = 'j',
    CONNECTIONS = 0x200,
    WRITES,
    WAIT_MINING,
};

static const struct argp_option options[] = {
    {"uri", URI, "NBD-URI", 0, "the server, without an export's name", 0},
    {"speed", SPEED, "SPEED", 0,
     "max (default): without pauses; recorded: as in the trace; xN: N times that", 0},
    {"clients", CLIENTS, "N", 0,
     "number of clients (1); 1: one request at a time, in the trace's order", 0},
    {"connections", CONNECTIONS, "N", 0,
     "connections to the server (1 to 64; 1 for one client, else four times as many "
     "as clients, at most 64)",
     0},
    {"writes", WRITES, NULL, 0,
     "carry out writes, too: THIS DESTROYS what is on the device", 0},
    {"wait-mining", WAIT_MINING, NULL, 0,
     "when a context ends, wait until the server has mined it", 0},
    {"json", JSON, NULL, 0, "print an object", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case URI:
        a->config.uri = arg;
        return 0;
    case SPEED:
        a->config.speed = cli_speed(state, "--speed", arg);
        return 0;
    case CLIENTS:
        a->config.clients =
            (unsigned)cli_number(state, "--clients", arg, 1, QM_REPLAY_CLIENTS_MAX);
        return 0;
    case CONNECTIONS:
        a->connections_set = true;
        a->config.connections =
            (unsigned)cli_number(state, "--connections", arg, 1, 64);
        return 0;
    case WRITES:
        a->config.writes = true;
        return 0;
    case WAIT_MINING:
        a->config.wait_mining = true;
        return 0;
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->config.uri)
            argp_error(state, "against which server? Say --uri NBD-URI");
        return 0;
    default:
        return cli_trace_argument(key, arg, state, &a->file);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE --uri NBD-URI",
    .doc = "Replays a trace against a live server, with its contexts, and prints "
           "latencies "
           "and what the server counted.\vSee quickmine-replay(1).",
};

static int each_event(void *opaque, const struct qm_event *event)
{
    struct qm_replay *r = opaque;

    return qm_replay_event(r, event) == 0 ? 0 : -1;
}

static json_t *stats_of(struct qm_replay *r)
{
    char *text = qm_replay_stats(r);
    json_t *json;

    if (!text) {
        cli_fail("%s", qm_replay_error(r));
        return NULL;
    }
    json = json_loads(text, 0, NULL);
    free(text);
    if (!json_is_object(json)) {
        cli_fail("the server's statistics are not JSON");
        json_decref(json);
        return NULL;
    }
    return json;
}

/* Pairs of a time and a count, ascending by time: the counts of `after` less those of
 * `before`, in which the same times or fewer are. */
static json_t *histogram_since(const json_t *before, const json_t *after)
{
    json_t *since = json_array();
    size_t i, j = 0;
    json_t *pair;

    json_array_foreach(after, i, pair)
    {
        const json_t *old = json_array_get(before, j);
        json_int_t n = json_integer_value(json_array_get(pair, 1));

        if (old && json_number_value(json_array_get(old, 0)) ==
                       json_number_value(json_array_get(pair, 0))) {
            n -= json_integer_value(json_array_get(old, 1));
            j++;
        }
        if (n > 0)
            json_array_append_new(
                since, json_pack("[O, I]", json_array_get(pair, 0), (json_int_t)n));
    }
    return since;
}

/* The time that percent of those in a histogram do not exceed. */
static json_t *histogram_percentile(const json_t *histogram, json_int_t count,
                                    double percent)
{
    json_t *pair, *time = NULL;
    json_int_t seen = 0;
    size_t i;

    json_array_foreach(histogram, i, pair)
    {
        time = json_array_get(pair, 0);
        seen += json_integer_value(json_array_get(pair, 1));
        if ((double)seen >= percent / 100 * (double)count)
            break;
    }
    return time ? json_incref(time) : json_real(0);
}

/* How long reads took at the server meanwhile. */
static json_t *server_latency_json(const json_t *before, const json_t *after)
{
    const json_t *old = json_object_get(before, "latency_us");
    const json_t *new = json_object_get(after, "latency_us");
    json_t *histogram = histogram_since(json_object_get(old, "histogram"),
                                        json_object_get(new, "histogram"));
    const double old_count = (double)cli_count(old, "count");
    const double new_count = (double)cli_count(new, "count");
    const json_int_t count = (json_int_t)(new_count - old_count);
    double sum = cli_real(new, "mean") * new_count - cli_real(old, "mean") * old_count;
    json_t *json = json_pack("{s:I, s:f, s:o, s:o, s:o, s:o}", "count", count, "mean",
                             count > 0 ? sum / (double)count : 0.0, "p50",
                             histogram_percentile(histogram, count, 50), "p90",
                             histogram_percentile(histogram, count, 90), "p99",
                             histogram_percentile(histogram, count, 99), "p999",
                             histogram_percentile(histogram, count, 99.9));

    json_decref(histogram);
    return json;
}

/* What the server counted meanwhile, and what it holds now. */
static json_t *server_json(const json_t *before, const json_t *after)
{
    static const char *const counts[] = {
        "reads",        "read_bytes",    "hits",      "prefetch_hits",  "promotes",
        "misses",       "prefetches",    "used",      "wasted",         "failed",
        "dropped",      "throttled",     "watched",   "cancelled",      "overtaken",
        "device_reads", "device_blocks", "sequences", "sequences_shed", "lookups",
        "matches",      "contexts_begun"};
    static const char *const values[] = {
        "policy",          "level", "block_size", "cache_blocks",
        "prefetch_blocks", "rules", "prefixes"};
    json_t *json = json_object();
    uint64_t blocks = 0;

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        json_object_set(json, values[i], json_object_get(after, values[i]));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (json_object_get(after, counts[i]))
            json_object_set_new(
                json, counts[i],
                json_integer((json_int_t)(cli_count(after, counts[i]) -
                                          cli_count(before, counts[i]))));
    blocks = cli_count(json, "hits") +
             cli_count_renamed(json, "prefetch_hits", "promotes") +
             cli_count(json, "misses");
    json_object_set_new(
        json, "miss_ratio",
        blocks ? json_real((double)cli_count(json, "misses") / (double)blocks)
               : json_null());
    json_object_set_new(json, "latency_us", server_latency_json(before, after));
    return json;
}

static json_t *latency_json(const struct qm_histogram *h)
{
    return json_pack(
        "{s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "count", (json_int_t)h->count, "mean",
        qm_histogram_mean(h), "p50", (json_int_t)qm_histogram_percentile(h, 50), "p90",
        (json_int_t)qm_histogram_percentile(h, 90), "p99",
        (json_int_t)qm_histogram_percentile(h, 99), "p999",
        (json_int_t)qm_histogram_percentile(h, 99.9), "max", (json_int_t)h->max);
}

static int print_json(const struct qm_replay_config *c,
                      const struct qm_replay_result *r, json_t *server)
{
    return cli_print_json(json_pack(
        "{s:i, s:i, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:o, s:o, s:o, s:o}",
        "clients", (int)c->clients, "connections", (int)c->connections, "speed",
        c->speed, "reads", (json_int_t)r->reads, "bytes_read",
        (json_int_t)r->bytes_read, "writes", (json_int_t)r->writes, "bytes_written",
        (json_int_t)r->bytes_written, "writes_skipped", (json_int_t)r->writes_skipped,
        "contexts", (json_int_t)r->contexts, "seconds", (double)r->elapsed_us / 1e6,
        "max_late_us", (json_int_t)r->max_late_us, "latency_us",
        latency_json(&r->read_us), "due_latency_us",
        c->speed > 0 ? latency_json(&r->read_due_us) : json_null(), "write_latency_us",
        latency_json(&r->write_us), "server", server));
}

static void print_latency(const char *name, const struct qm_histogram *h)
{
    printf("%s mean %.1f us, p50 %" PRIu64 ", p90 %" PRIu64 ", p99 %" PRIu64
           ", p99.9 %" PRIu64 ", max %" PRIu64 "\n",
           name, qm_histogram_mean(h), qm_histogram_percentile(h, 50),
           qm_histogram_percentile(h, 90), qm_histogram_percentile(h, 99),
           qm_histogram_percentile(h, 99.9), h->max);
}

static int print_text(const struct qm_replay_config *c,
                      const struct qm_replay_result *r, json_t *s)
{
    double seconds = (double)r->elapsed_us / 1e6;
    uint64_t hits = cli_count(s, "hits"),
             prefetch_hits = cli_count_renamed(s, "prefetch_hits", "promotes");
    uint64_t misses = cli_count(s, "misses"), blocks = hits + prefetch_hits + misses;
    double percent = blocks ? 100 / (double)blocks : 0;

    printf("replayed      %" PRIu64
           " reads, %.1f MiB, in %.3f s: %.1f reads a second\n",
           r->reads, (double)r->bytes_read / (1 << 20), seconds,
           seconds > 0 ? (double)r->reads / seconds : 0);
    if (r->writes > 0)
        printf("              %" PRIu64 " writes, %.1f MiB\n", r->writes,
               (double)r->bytes_written / (1 << 20));
    if (r->writes_skipped > 0)
        printf("              %" PRIu64 " writes left out (see --writes)\n",
               r->writes_skipped);
    printf("              %" PRIu64 " contexts, %u clients, %u connections\n",
           r->contexts, c->clients, c->connections);
    if (c->speed > 0)
        printf("              at most %" PRIu64 " us late\n", r->max_late_us);
    print_latency("read latency ", &r->read_us);
    if (c->speed > 0)
        print_latency("since due    ", &r->read_due_us);
    if (r->writes > 0)
        print_latency("write latency", &r->write_us);
    printf("server        policy %s, level %s\n", cli_text(s, "policy"),
           cli_text(s, "level"));
    printf("              %" PRIu64 " blocks: %" PRIu64 " hits (%.1f %%), %" PRIu64
           " prefetch hits (%.1f %%), %" PRIu64 " misses (%.1f %%)\n",
           blocks, hits, percent * (double)hits, prefetch_hits,
           percent * (double)prefetch_hits, misses, percent * (double)misses);
    printf("              %" PRIu64 " prefetches, %" PRIu64 " used, %" PRIu64
           " wasted, %" PRIu64 " dropped; %" PRIu64 " device reads, %" PRIu64
           " blocks\n",
           cli_count(s, "prefetches"), cli_count(s, "used"), cli_count(s, "wasted"),
           cli_count(s, "dropped"), cli_count(s, "device_reads"),
           cli_count(s, "device_blocks"));
    json_decref(s);
    return cli_end_output(CLI_OK);
}

static int run(const struct arguments *a, struct qm_trace_reader *reader,
               struct qm_replay *replay)
{
    struct qm_replay_result *result = calloc(1, sizeof *result);
    json_t *before = stats_of(replay), *after = NULL;
    int status = CLI_FAILED;

    if (!result)
        cli_fail("out of memory");
    else if (before)
        status = cli_trace_each(reader, "replaying", each_event, replay);
    if (result && before && qm_replay_finish(replay, result) == -1)
        status = cli_fail("%s", qm_replay_error(replay));
    if (status == CLI_OK && !(after = stats_of(replay)))
        status = CLI_FAILED;
    if (status == CLI_OK)
        status = (a->json ? print_json : print_text)(&a->config, result,
                                                     server_json(before, after));
    json_decref(before);
    json_decref(after);
    free(result);
    return status;
}

/* A server may carry out a connection's requests one after the other, and contexts
 * share connections by chance, however many clients there are: with as many connections
 * as clients, reads of 5 ms were found to take 10. */
static unsigned connections_for(unsigned clients)
{
    if (clients == 1)
        return 1;
    return clients < 16 ? 4 * clients : 64;
}

int qm_cmd_replay(int argc, char **argv)
{
    struct arguments a = {.config = {.clients = 1}};
    struct qm_trace_reader *reader;
    struct qm_replay *replay;
    char err[500];
    int status = CLI_FAILED;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (!a.connections_set)
        a.config.connections = connections_for(a.config.clients);
    reader = cli_trace_open(a.file);
    if (!reader)
        return CLI_FAILED;
    replay = qm_replay_new(&a.config, err, sizeof err);
    if (replay)
        status = run(&a, reader, replay);
    else
        cli_fail("%s", err);
    qm_replay_free(replay);
    qm_trace_free(reader);
    return status;
}
