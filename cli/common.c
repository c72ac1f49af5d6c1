/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c - what the subcommands share: dispatch, messages, output. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "trace/text.h"

/* "quickmine sim": for messages. */
static char name[64] = "quickmine";

static void say(const char *format, va_list args)
{
    char *text;
    int n;

    fflush(stdout); /* what was printed so far comes first */
    n = vasprintf(&text, format, args);
    if (n >= 0) /* it may quote a server, or a file */
        qm_text_clean(text, text, (size_t)n, true);
    fprintf(stderr, "%s: %s\n", name, n >= 0 ? text : "out of memory");
    if (n >= 0)
        free(text);
}

int cli_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(format, args);
    va_end(args);
}

static void print_commands(FILE *to, const char *group,
                           const struct cli_command *commands)
{
    char both[64];

    for (const struct cli_command *c = commands; c->name; c++) {
        snprintf(both, sizeof both, "%s%s", group, c->name);
        if (!c->commands) {
            fprintf(to, "  %-14s %s\n", both, c->summary);
            continue;
        }
        snprintf(both, sizeof both, "%s%s ", group, c->name);
        print_commands(to, both, c->commands);
    }
}

static void print_help(FILE *to, const char *program, const char *manual,
                       const struct cli_command *commands)
{
    fprintf(to, "Usage: %s SUBCOMMAND [ARGUMENTS...]\n\n", program);
    print_commands(to, "", commands);
    fprintf(to,
            "\nEach has --help; see %s.\n"
            "Exit status: 0, 1 if it failed, 2 for wrong usage.\n",
            manual);
}

enum { WORD_MAX = 32 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned cli_distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];

    if (m > WORD_MAX || n > WORD_MAX)
        return CLI_NEAR + 1;
    for (size_t i = 0; i <= m; i++)
        for (size_t j = 0; j <= n; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (unsigned)(i + j);
                continue;
            }
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1,
                            d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[m][n];
}

/* The subcommand that word is most like, in hint; a prefix is like the whole. */
static void find_like(const char *word, const char *group,
                      const struct cli_command *commands, unsigned *best, char *hint,
                      size_t len)
{
    for (const struct cli_command *c = commands; c->name; c++) {
        unsigned far = cli_distance(word, c->name);
        char inner[64];

        if (strlen(word) > 1 && strncmp(word, c->name, strlen(word)) == 0)
            far = least(far, 1);
        if (far < *best && far < strlen(c->name) - 1) {
            *best = far;
            snprintf(hint, len, "%s%s", group, c->name);
        }
        snprintf(inner, sizeof inner, "%s%s ", group, c->name);
        if (c->commands)
            find_like(word, inner, c->commands, best, hint, len);
    }
}

static int unknown(const struct cli_command *commands, const char *program,
                   const char *manual, const char *word)
{
    unsigned best = CLI_NEAR + 1;
    char group[64], hint[160];

    snprintf(group, sizeof group, "%s ", program);
    find_like(word, group, commands, &best, hint, sizeof hint);
    if (best <= CLI_NEAR) {
        cli_fail("there is no subcommand '%s'; did you mean '%s'?", word, hint);
    } else {
        cli_fail("there is no subcommand '%s'", word);
        print_help(stderr, program, manual, commands);
    }
    return CLI_USAGE;
}

int cli_dispatch(const struct cli_command *commands, const char *program,
                 const char *manual, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;

    snprintf(name, sizeof name, "%s", program);
    if (!word) {
        cli_fail("which subcommand?");
        print_help(stderr, program, manual, commands);
        return CLI_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-?") == 0 ||
        strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(stdout, program, manual, commands);
        return cli_end_output(CLI_OK);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("%s\n", argp_program_version);
        return cli_end_output(CLI_OK);
    }
    for (const struct cli_command *c = commands; c->name; c++) {
        if (strcmp(word, c->name) != 0)
            continue;
        snprintf(name, sizeof name, "%s %s", program, c->name);
        argv[1] = name;
        return c->run(argc - 1, argv + 1);
    }
    return unknown(commands, program, manual, word);
}

int cli_end_output(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail("the output cannot be written: %s", strerror(errno));
    return status;
}

json_t *cli_json_text(const char *text)
{
    json_t *json = json_string(text);
    char *copy, *p;

    if (json) /* NULL: it is not UTF-8 */
        return json;
    copy = strdup(text);
    for (p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json = copy ? json_string(copy) : NULL;
    free(copy);
    return json;
}

static int print_json(json_t *json, size_t flags)
{
    char *text = json ? json_dumps(json, flags) : NULL;

    if (text && !qm_text_is_clean(text, strlen(text), true)) {
        free(text);
        text = json_dumps(json, flags | JSON_ENSURE_ASCII);
        for (char *p = text; p && (p = strchr(p, 0x7f));) /* which it leaves */
            *p = '?';
    }
    json_decref(json);
    if (!text)
        return cli_fail("out of memory");
    puts(text);
    free(text);
    return cli_end_output(CLI_OK);
}

int cli_print_json(json_t *json)
{
    return print_json(json, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
}

int cli_print_json_line(json_t *json)
{
    return print_json(json, JSON_COMPACT);
}

const char *cli_clean(const char *text)
{
    static char *copies[8];
    static unsigned next;
    char **copy = &copies[next++ % 8];
    size_t len = strlen(text);

    if (qm_text_is_clean(text, len, false))
        return text;
    free(*copy);
    *copy = malloc(len + 1);
    if (!*copy)
        return "?";
    qm_text_clean(*copy, text, len, false);
    return *copy;
}

bool cli_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino && S_ISREG(x.st_mode);
}

int cli_end_fd(void)
{
    struct sigaction hangup;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* Once blocked, it would come although nohup(1) has it ignored. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
