/* SPDX-License-Identifier: BSD-3-Clause */
/* top.c - quickmine top: a live server's rates, again and again.
 *
 * On a terminal that can place its cursor, the screen shows the latest update, and keys
 * scroll it; elsewhere each update follows the one before.  The server is asked by a
 * thread (server.h), so keys work while it does not answer.
 *
 * Signals are taken from a signalfd, so that the terminal is as it was before when the
 * program ends or stops.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
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
    {"interval", INTERVAL, "SECONDS", 0, "time between two updates (1 to 3600; 1)", 0},
    {"count", COUNT, "N", 0, "end after N updates", 0},
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
    default:
        return cli_server_argument(key, arg, state, &a->target);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "URI|SOCKET",
    .doc = "Shows what a live server does, a second at a time.\v"
           "On a terminal: q quits, arrows scroll, w shows whole names.  See "
           "quickmine-top(1).",
};

enum { HEADER_LINES = 6, SKIP_STEP = 16 };

struct top {
    struct arguments a;
    bool screen;         /* redraws in place */
    bool entered;        /* has done so */
    bool keys;           /* the terminal gives each key at once */
    struct termios mode; /* before that */
    size_t rows, columns;
    json_t *now, *before; /* the last two updates; NULL: none */
    int64_t answered;     /* ms: when the last one came */
    char away[1200];      /* why there is no newer one; "": there is */
    uint64_t updates;
    size_t first, skip; /* the first class shown, and columns of its name left out */
    bool whole;         /* names go over several lines */
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

static void measure(struct top *t)
{
    struct winsize size;

    t->rows = 24;
    t->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_row > 0)
        t->rows = size.ws_row;
    if (size.ws_col > 0)
        t->columns = size.ws_col;
}

/* What changed between two documents. */
static uint64_t difference(const json_t *now, const json_t *before, const char *key)
{
    uint64_t n = cli_count(now, key), was = cli_count(before, key);

    return n >= was ? n - was : n;
}

/* A number in at most six columns. */
static const char *brief(char *buf, size_t len, double n)
{
    static const char units[] = " kMGTPE";
    unsigned unit = 0;

    while (n >= 99999.5 && units[unit + 1]) {
        n /= 1000;
        unit++;
    }
    if (unit > 0)
        snprintf(buf, len, "%.0f%c", n, units[unit]);
    else
        snprintf(buf, len, n < 99.95 ? "%.1f" : "%.0f", n);
    return buf;
}

/* How much changed a second, in six columns. */
struct rate {
    char text[24];
};

static struct rate rate(const json_t *now, const json_t *before, const char *key,
                        double scale)
{
    double seconds = (double)difference(now, before, "uptime_us") / 1e6;
    struct rate r;

    brief(r.text, sizeof r.text,
          seconds > 0 ? scale * (double)difference(now, before, key) / seconds : 0);
    return r;
}

/* HEADER_LINES lines, of at most 80 columns. */
static void print_rates(FILE *out, const json_t *now, const json_t *before)
{
    uint64_t hits = difference(now, before, "hits");
    bool renamed = json_object_get(now, "prefetch_hits"); /* not by an older server */
    uint64_t prefetch_hits =
        difference(now, before, renamed ? "prefetch_hits" : "promotes");
    uint64_t misses = difference(now, before, "misses");
    uint64_t blocks = hits + prefetch_hits + misses;
    uint64_t used = difference(now, before, "used");
    uint64_t ended = used + difference(now, before, "wasted");
    const json_t *latency = json_object_get(now, "latency_us");

    fprintf(out,
            "%s: policy %s, level %s; up %.0f s; %" PRIu64 " connections, %" PRIu64
            " contexts\n",
            cli_text(now, "version"), cli_text(now, "policy"), cli_text(now, "level"),
            (double)cli_count(now, "uptime_us") / 1e6, cli_count(now, "connections"),
            cli_count(now, "contexts_open"));
    fprintf(out, "reads/s      %6s  MiB/s %6s  writes/s %6s  device reads/s %6s\n",
            rate(now, before, "reads", 1).text,
            rate(now, before, "read_bytes", 1.0 / (1 << 20)).text,
            rate(now, before, "writes", 1).text,
            rate(now, before, "device_reads", 1).text);
    if (blocks > 0)
        fprintf(out, "blocks       hit %.1f %%, prefetch hit %.1f %%, miss %.1f %%\n",
                cli_percentage(hits, blocks), cli_percentage(prefetch_hits, blocks),
                cli_percentage(misses, blocks));
    else
        fprintf(out, "blocks       none read\n");
    if (json_object_get(now, "tier_size"))
        fprintf(out, "tier         %s  hits/s %6s  inserted/s %6s  MiB written/s %6s\n",
                cli_flag(now, "tier_dead", false) ? "detached" : "in use",
                rate(now, before, "tier_hits", 1).text,
                rate(now, before, "tier_inserted", 1).text,
                rate(now, before, "tier_written_bytes", 1.0 / (1 << 20)).text);
    if (json_object_get(now, "prefetch_rate") &&
        strcmp(cli_text(now, "prefetch_rate"), "off") != 0)
        fprintf(out, "budget       %s  prefetch reads/s %6s  blocks/s over it %6s\n",
                cli_text(now, "prefetch_rate"),
                rate(now, before, "prefetch_reads", 1).text,
                rate(now, before, "over_rate", 1).text);
    if (!cli_flag(now, "prefetching", true))
        fprintf(out, "prefetches/s none: %s\n",
                strcmp(cli_text(now, "policy"), "none") == 0
                    ? "policy none does not prefetch"
                    : "prefetching=off");
    else
        fprintf(
            out, "prefetches/s %6s  used/s %6s  wasted/s %6s  used, of ended %.1f %%\n",
            rate(now, before, "prefetches", 1).text, rate(now, before, "used", 1).text,
            rate(now, before, "wasted", 1).text, cli_percentage(used, ended));
    fprintf(out, "latency      mean %.1f us, p99 %.1f us since the start\n\n",
            cli_real(latency, "mean"), cli_real(latency, "p99"));
}

static const char *short_kind(const char *kind)
{
    return strcmp(kind, "connection") == 0    ? "conn"
           : strcmp(kind, "transaction") == 0 ? "trans"
                                              : kind;
}

/* A class's line up to its name. */
static void print_class(FILE *out, const struct cli_class *c, double per)
{
    char reads[24], issued[24], latency[24];

    fprintf(out, "%-6.6s %7s %5.1f %5.1f %5.1f %7s %5.1f %7s %-7.7s ",
            cli_clean(short_kind(c->kind)),
            brief(reads, sizeof reads, per * (double)c->reads),
            cli_percentage(c->hits, c->reads),
            cli_percentage(c->prefetch_hits, c->reads),
            cli_percentage(c->misses, c->reads),
            brief(issued, sizeof issued, per * (double)c->issued),
            cli_percentage(c->used, c->used + c->wasted),
            brief(latency, sizeof latency, c->latency_us), cli_clean(c->state));
}

static const char class_header[] =
    "kind   reads/s  hit% pfht% miss%   pf/s used% us/read state   class";

/* Prints a line of at most the screen's width, whatever is in it. */
static void put_line(const struct top *t, const char *line)
{
    if (t->screen) {
        fputs("\033[2K", stdout); /* before: at the last column it would erase that */
        cli_print_name(line, 0, t->columns);
        putchar('\n');
    } else {
        cli_print_name(line, 0, SIZE_MAX);
        putchar('\n');
    }
}

/* Prints text, line by line.  Returns how many. */
static size_t put_lines(const struct top *t, char *text)
{
    char *rest = text, *line;
    size_t n = 0;

    while ((line = strsep(&rest, "\n")) && rest) {
        put_line(t, line);
        n++;
    }
    return n;
}

/* Prints a class on a screen that has room for lines more.  Returns how many it took;
 * in a narrow screen the name takes lines of its own if it is to be whole. */
static size_t put_class(const struct top *t, const struct cli_class *c, double per,
                        size_t lines)
{
    size_t length = cli_name_width(c->name), at = t->whole ? 0 : t->skip, n = 0, taken;
    char text[256];
    FILE *out = fmemopen(text, sizeof text, "w");

    if (!out)
        return lines;
    print_class(out, c, per);
    fclose(out);
    fputs("\033[2K", stdout);
    taken = cli_print_name(text, 0, t->columns);
    if (t->columns > taken && !(t->whole && length > t->columns - taken))
        at += cli_print_name(c->name, at, t->columns - taken);
    putchar('\n');
    n = 1;
    while (t->whole && at < length && n < lines && t->columns > 4) {
        size_t part;

        fputs("\033[2K  ", stdout);
        part = cli_print_name(c->name, at, t->columns - 2);
        putchar('\n');
        if (part == 0)
            break;
        at += part;
        n++;
    }
    return n;
}

static double rate_of(const struct top *t)
{
    uint64_t us = difference(t->now, t->before, "uptime_us");

    return us > 0 ? 1e6 / (double)us : 0;
}

/* The lines in between, scrolled. */
static size_t put_classes(struct top *t, size_t lines, size_t *shown, size_t *count)
{
    struct cli_class *classes = cli_classes(t->now, t->before, count);
    size_t n = 0, i;

    *shown = 0;
    if (!classes)
        return 0;
    if (t->first >= *count)
        t->first = *count > 0 ? *count - 1 : 0;
    for (i = t->first; i < *count && n < lines; i++)
        n += put_class(t, &classes[i], rate_of(t), lines - n);
    *shown = i - t->first;
    free(classes);
    return n;
}

/* The whole screen anew, from its first line to its last; nothing scrolls it. */
static void draw(struct top *t)
{
    size_t count = json_array_size(json_object_get(t->now, "classes"));
    size_t lines = 0, shown = 0;
    char *text = NULL, status[1400];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    print_rates(out, t->now, t->before);
    fprintf(out, "%s\n", class_header);
    fclose(out);
    if (!t->entered) /* not before there is something to show: errors stay readable */
        fputs("\033[?1049h\033[?25l\033[2J", stdout);
    t->entered = true;
    fputs("\033[H", stdout);
    /* A screen too low for it all shows classes first: they can be scrolled. */
    if (t->rows > HEADER_LINES + 3)
        lines = put_lines(t, text);
    free(text);
    if (t->rows > lines + 1)
        lines += put_classes(t, t->rows - lines - 1, &shown, &count);
    for (; lines + 1 < t->rows; lines++)
        fputs("\033[2K\n", stdout);
    if (t->away[0])
        snprintf(status, sizeof status, "%s", t->away);
    else if (count > 0)
        snprintf(status, sizeof status,
                 "%zu-%zu of %zu  q quit  up/down scroll  left/right, w names",
                 t->first + 1, t->first + shown, count);
    else
        snprintf(status, sizeof status, "no classes of contexts yet  q quit");
    /* The last column stays free: a terminal may scroll when it is filled. */
    cli_print_name(status, 0, t->columns - 1);
    fputs("\033[K", stdout);
    fflush(stdout); /* no line end would do it */
}

/* An update where nothing can be redrawn: all of it, names whole. */
static void print_update(struct top *t)
{
    struct cli_class *classes;
    size_t count = 0, limit = t->keys || isatty(STDOUT_FILENO)
                                  ? (t->rows > 10 ? t->rows - 9 : 1)
                                  : SIZE_MAX;

    print_rates(stdout, t->now, t->before);
    puts(class_header);
    classes = cli_classes(t->now, t->before, &count);
    for (size_t i = 0; classes && i < count && i < limit; i++) {
        print_class(stdout, &classes[i], rate_of(t));
        cli_print_name(classes[i].name, 0, SIZE_MAX);
        putchar('\n');
    }
    if (count > limit)
        printf("and %zu more\n", count - limit);
    free(classes);
    putchar('\n');
}

/* Shows the last update, which is new.  Returns an exit status. */
static int show(struct top *t)
{
    if (t->screen && t->now)
        draw(t);
    else if (t->a.json) {
        return cli_print_json_line(json_incref(t->now));
    } else {
        print_update(t);
    }
    return cli_end_output(CLI_OK);
}

/* The server does not answer, since a while or as it says: said once. */
static int show_away(struct top *t, const char *why)
{
    bool first = !t->away[0];

    snprintf(t->away, sizeof t->away, "away, trying again: %s", why);
    if (!t->screen) {
        if (first)
            cli_fail("%s", t->away);
        return CLI_OK;
    }
    draw(t);
    return cli_end_output(CLI_OK);
}

/* Whether what the server counts has begun anew since the update before: it was started
 * anew, perhaps longer ago than that one had been, or its statistics were reset. */
static bool counts_anew(const struct top *t, int64_t passed_ms)
{
    uint64_t uptime = cli_count(t->now, "uptime_us");

    return uptime < cli_count(t->before, "uptime_us") ||
           uptime < (uint64_t)passed_ms * 1000 ||
           (json_object_get(t->now, "reset_us") &&
            cli_count(t->now, "reset_us") < difference(t->now, t->before, "uptime_us"));
}

/* An answer of the server's: statistics, or why there are none.  Returns an exit
 * status. */
static int take_answer(struct top *t, json_t *stats, const char *why)
{
    bool was_away = t->away[0];
    int64_t now = now_ms(), passed = now - t->answered;

    if (!stats)
        return t->now ? show_away(t, why) : cli_fail("%s", why);
    t->away[0] = '\0';
    json_decref(t->before);
    t->before = t->now;
    t->now = stats;
    t->answered = now;
    if (t->before && counts_anew(t, passed)) {
        json_decref(t->before);
        t->before = NULL;
    }
    if (was_away && !t->screen)
        fprintf(stderr, "quickmine top: the server is back\n");
    return show(t);
}

static void leave_screen(struct top *t)
{
    if (t->screen && t->entered) {
        fputs("\033[?25h\033[?1049l", stdout); /* cursor, and what was there before */
        fflush(stdout);
    }
    t->entered = false;
    if (t->keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->mode);
}

static void take_terminal(struct top *t)
{
    struct termios mode = t->mode;

    mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    mode.c_cc[VMIN] = 0;
    mode.c_cc[VTIME] = 0;
    if (t->keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
}

/* Stops, as the terminal's user wants, and goes on. */
static void suspend(struct top *t)
{
    leave_screen(t);
    raise(SIGSTOP);
    take_terminal(t);
    measure(t);
}

/* Takes what was typed.  Returns true if that is to quit. */
static bool take_keys(struct top *t)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys - 1);
    size_t page = t->rows > 12 ? t->rows - 10 : 1, skip = 1;

    if (n <= 0) {
        t->keys = n == -1 && (errno == EINTR || errno == EAGAIN);
        return false;
    }
    keys[n] = '\0';
    for (const char *p = keys; *p; p += skip) {
        /* ESC [ A and ESC O A are the same key, by the terminal's mode. */
        char key = *p;

        skip = 1;
        if (key == '\033' && (p[1] == '[' || p[1] == 'O') && p[2]) {
            key = p[2];
            skip = 3;
            if (key == '5' || key == '6') { /* page up, page down: ESC [ 5 ~ */
                key = key == '5' ? 'b' : ' ';
                skip += p[3] == '~';
            } else {
                key = key == 'A'   ? 'k'
                      : key == 'B' ? 'j'
                      : key == 'C' ? 'l'
                      : key == 'D' ? 'h'
                      : key == 'H' ? 'g'
                                   : '\0';
            }
        }
        if (key == 'q' || key == 'Q' || key == '\004')
            return true;
        if (key == 'j')
            t->first++; /* drawing bounds it */
        else if (key == 'k')
            t->first -= t->first > 0;
        else if (key == ' ')
            t->first += page;
        else if (key == 'b')
            t->first -= t->first < page ? t->first : page;
        else if (key == 'g')
            t->first = t->skip = 0;
        else if (key == 'l' && t->skip < 512)
            t->skip += SKIP_STEP;
        else if (key == 'h')
            t->skip -= t->skip < SKIP_STEP ? t->skip : SKIP_STEP;
        else if (key == 'w')
            t->whole = !t->whole;
    }
    if (t->screen && t->now)
        draw(t);
    return false;
}

/* Handles a signal.  Returns true if that is to end. */
static bool take_signal(struct top *t, int fd)
{
    struct signalfd_siginfo info;

    if (read(fd, &info, sizeof info) != sizeof info)
        return false;
    switch (info.ssi_signo) {
    case SIGWINCH:
        measure(t);
        if (t->entered)
            fputs("\033[2J", stdout);
        break;
    case SIGTSTP:
        suspend(t);
        break;
    default:
        return true;
    }
    if (t->screen && t->now)
        draw(t);
    fflush(stdout);
    return false;
}

/* No answer within the time allowed: once an interval from then on.  Returns an exit
 * status. */
static int give_up(struct top *t)
{
    char why[1024];

    snprintf(why, sizeof why, "%.900s: the server does not answer within %d s",
             t->a.target, CLI_SERVER_TIMEOUT_S);
    return t->now ? show_away(t, why) : cli_fail("%s", why);
}

/* Asks, shows and waits, until it is to end.  Returns an exit status. */
static int run(struct top *t, struct cli_server *server, int signals)
{
    const int64_t interval = (int64_t)t->a.seconds * 1000;
    /* A second more than the socket's time-out, which can say what happened. */
    const int64_t timeout = (CLI_SERVER_TIMEOUT_S + 1) * 1000;
    struct pollfd fds[3] = {{.fd = signals, .events = POLLIN},
                            {.fd = cli_server_fd(server), .events = POLLIN},
                            {.events = POLLIN}};
    int64_t next = now_ms() + timeout, asked = now_ms(), wait;
    bool open = true; /* a question */
    int status = CLI_OK;
    char err[1024];
    json_t *stats;

    cli_server_ask(server);
    while (status == CLI_OK) {
        wait = next - now_ms();
        fds[2].fd = t->keys ? STDIN_FILENO : -1;
        if (poll(fds, 3, wait > 0 ? (int)wait : 0) == -1 && errno != EINTR)
            return cli_fail("poll: %s", strerror(errno));
        if ((fds[0].revents && take_signal(t, signals)) ||
            (t->keys && fds[2].revents && take_keys(t)))
            return t->away[0] ? CLI_FAILED : CLI_OK;
        if (open && cli_server_answer(server, &stats, err, sizeof err)) {
            open = false;
            next = asked + interval;
            status = take_answer(t, stats, err);
            t->updates++;
        } else if (now_ms() < next) {
            continue;
        } else if (open) {
            next = now_ms() + interval;
            status = give_up(t);
            t->updates++;
        } else {
            open = true;
            asked = now_ms();
            next = asked + timeout;
            cli_server_ask(server);
        }
        if (t->a.count > 0 && t->updates >= t->a.count)
            return status != CLI_OK || t->away[0] ? CLI_FAILED : CLI_OK;
    }
    return status;
}

/* Signals that end or stop it come by the descriptor that is returned; -1: they cannot.
 */
static int catch_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGTSTP);
    /* Before the server's thread begins, so that it has them blocked, too. */
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int qm_cmd_top(int argc, char **argv)
{
    struct top t = {.a = {.seconds = 1}};
    const char *term = getenv("TERM");
    struct cli_server *server;
    int signals, status;

    argp_parse(&argp, argc, argv, 0, NULL, &t.a);
    measure(&t);
    t.screen = !t.a.json && isatty(STDOUT_FILENO) && term && *term &&
               strcmp(term, "dumb") != 0;
    t.keys = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
             tcgetpgrp(STDIN_FILENO) == getpgrp() &&
             tcgetattr(STDIN_FILENO, &t.mode) == 0;
    signals = catch_signals();
    if (signals == -1)
        return cli_fail("signalfd: %s", strerror(errno));
    server = cli_server_new(t.a.target);
    if (!server) {
        close(signals);
        return CLI_FAILED;
    }
    take_terminal(&t);
    status = run(&t, server, signals);
    leave_screen(&t);
    json_decref(t.now);
    json_decref(t.before);
    cli_server_free(server);
    close(signals);
    return status;
}
