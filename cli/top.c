/* top.c - quickmine top: a live server's rates, again and again. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/server.h"

struct arguments {
    uint64_t seconds, count; /* count 0: until interrupted */
    bool json;
    const char *target;
};

enum { INTERVAL = 'i', COUNT = 'n', JSON = 'j' };

static const struct argp_option options[] = {
    {"interval", INTERVAL, "SECONDS", 0, "time between two pictures (1 to 3600; 1)", 0},
    {"count", COUNT, "N", 0, "end after N pictures", 0},
    {"json", JSON, NULL, 0, "print the server's JSON document each time, on a line", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case INTERVAL:
        a->seconds = cli_number(state, "--interval", arg, 1, 3600);
        return 0;
    case COUNT:
        a->count = cli_number(state, "--count", arg, 1, UINT64_MAX);
        return 0;
    case JSON:
        a->json = true;
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
    .doc = "Shows what a live server does, a second at a time.\vSee quickmine-top(1).",
};

/* How many lines the terminal has. */
static size_t screen_lines(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0)
        return size.ws_row;
    return 24;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* What changed between two documents.  A server that was started anew counts from 0. */
static uint64_t difference(const json_t *now, const json_t *before, const char *key)
{
    uint64_t n = cli_count(now, key), was = cli_count(before, key);

    return n >= was ? n - was : n;
}

static void print_rates(const json_t *now, const json_t *before)
{
    double seconds = (double)difference(now, before, "uptime_us") / 1e6;
    double per = seconds > 0 ? 1 / seconds : 0;
#define CHANGE(key) difference(now, before, key)
    uint64_t hits = CHANGE("hits"), promotes = CHANGE("promotes");
    uint64_t misses = CHANGE("misses"), blocks = hits + promotes + misses;
    const json_t *latency = json_object_get(now, "latency_us");

    printf("%s: policy %s, level %s; up %.0f s; %" PRIu64 " connections, %" PRIu64
           " contexts open\n",
           cli_text(now, "version"), cli_text(now, "policy"), cli_text(now, "level"),
           (double)cli_count(now, "uptime_us") / 1e6, cli_count(now, "connections"),
           cli_count(now, "contexts_open"));
    printf("reads/s %9.1f  MiB/s %8.1f  writes/s %8.1f  device reads/s %8.1f\n",
           per * (double)CHANGE("reads"),
           per * (double)CHANGE("read_bytes") / (1 << 20),
           per * (double)CHANGE("writes"), per * (double)CHANGE("device_reads"));
    printf("hit %5.1f %%  promote %5.1f %%  miss %5.1f %%  since start: mean %.1f us, "
           "p99 %.1f us\n",
           percent(hits, blocks), percent(promotes, blocks), percent(misses, blocks),
           cli_real(latency, "mean"), cli_real(latency, "p99"));
    printf("prefetches/s %8.1f  used/s %8.1f  wasted/s %8.1f  dropped/s %8.1f\n",
           per * (double)CHANGE("prefetches"), per * (double)CHANGE("used"),
           per * (double)CHANGE("wasted"), per * (double)CHANGE("dropped"));
    printf("rules %" PRIu64 "  prefixes %" PRIu64 "  sequences/s %.1f  shed/s %.1f  "
           "matches %.1f %%\n\n",
           cli_count(now, "rules"), cli_count(now, "prefixes"),
           per * (double)CHANGE("sequences"), per * (double)CHANGE("sequences_shed"),
           percent(CHANGE("matches"), CHANGE("lookups")));
#undef CHANGE
}

/* One picture.  Returns an exit status. */
static int print_picture(const struct arguments *a, const json_t *now,
                         const json_t *before)
{
    bool terminal = isatty(STDOUT_FILENO);
    size_t lines = terminal ? screen_lines() : 24;

    if (a->json) {
        return cli_print_json_line(json_incref((json_t *)now));
    }
    if (terminal)
        fputs("\033[H\033[2J", stdout); /* to the top, and clear */
    print_rates(now, before);
    cli_print_classes(now, before, lines > 10 ? lines - 9 : 1);
    if (!terminal)
        putchar('\n');
    return cli_end_output(CLI_OK);
}

int qm_cmd_top(int argc, char **argv)
{
    struct arguments a = {.seconds = 1};
    struct cli_server *server;
    json_t *before = NULL, *now;
    int status = CLI_OK;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    server = cli_server_open(a.target);
    if (!server)
        return CLI_FAILED;
    for (uint64_t i = 0; (a.count == 0 || i < a.count) && status == CLI_OK; i++) {
        if (i > 0)
            sleep((unsigned)a.seconds);
        now = cli_server_stats(server);
        status = now ? print_picture(&a, now, before) : CLI_FAILED;
        json_decref(before);
        before = now;
    }
    json_decref(before);
    cli_server_close(server);
    return status;
}
