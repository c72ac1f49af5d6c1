/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - quickmine tier: attaches and detaches the second tier of a live server, over
 * its control socket, and says what it does. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/server.h"

/* 100 GiB of a tier are recovered in seconds; a change that is in flight may wait for
 * the layer below. */
enum { TIMEOUT_S = 600 };

enum command { ATTACH, DETACH, STATUS };

struct arguments {
    enum command command;
    bool json;
    const char *socket;
    json_t *keys;
};

enum { JSON = 'j' };

/* The server has another working directory. */
static void add_path(struct arguments *a, const char *key, const char *path,
                     struct argp_state *state)
{
    char absolute[PATH_MAX + 1], directory[PATH_MAX] = "";

    if (path[0] != '/' && !getcwd(directory, sizeof directory))
        argp_failure(state, CLI_FAILED, errno, "the working directory");
    if ((size_t)snprintf(absolute, sizeof absolute, "%s%s%s", directory,
                         path[0] == '/' ? "" : "/", path) >= sizeof absolute)
        argp_error(state, "'%s' is too long", path);
    if (json_object_set_new(a->keys, key, json_string(absolute)) == -1)
        argp_error(state, "'%s' is not UTF-8", path);
}

static void add_setting(struct arguments *a, char *arg, struct argp_state *state)
{
    static const char *const names[] = {"size", "admit", "write-rate", "witness"};
    const char *equals = strchr(arg, '=');
    char key[32] = "";

    for (size_t i = 0; equals && i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == (size_t)(equals - arg) &&
            strncmp(names[i], arg, strlen(names[i])) == 0)
            snprintf(key, sizeof key, "tier-%s", names[i]);
    if (!key[0])
        argp_error(state, "expected size=, admit=, write-rate= or witness=, not '%s'",
                   arg);
    if (json_object_get(a->keys, key))
        argp_error(state, "%s is given twice", key + strlen("tier-"));
    if (strcmp(key, "tier-witness") == 0)
        add_path(a, key, equals + 1, state);
    else if (json_object_set_new(a->keys, key, json_string(equals + 1)) == -1)
        argp_error(state, "'%s' is not UTF-8", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!a->socket)
            a->socket = arg;
        else if (a->command != ATTACH)
            argp_error(state, "unexpected argument '%s'", arg);
        else if (!json_object_get(a->keys, "tier"))
            add_path(a, "tier", arg, state);
        else
            add_setting(a, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!a->socket)
            argp_error(state, "which server? Give the socket of its parameter control");
        if (a->command == ATTACH && !json_object_get(a->keys, "tier"))
            argp_error(state, "attach what? Give the path of the tier");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"json", JSON, NULL, 0, "print the server's JSON answer", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void print_change(const json_t *answer)
{
    json_t *change, *note;
    size_t i;

    json_array_foreach(json_object_get(answer, "changed"), i, change)
    {
        printf("%s: \"%s\"", cli_text(change, "key"), cli_text(change, "old"));
        printf(" -> \"%s\"\n", cli_text(change, "new"));
    }
    if (json_array_size(json_object_get(answer, "changed")) == 0 &&
        json_array_size(json_object_get(answer, "notes")) == 0)
        printf("nothing has changed: this tier is attached already\n");
    json_array_foreach(json_object_get(answer, "notes"), i, note)
        printf("note: %s\n", cli_clean(json_string_value(note)));
}

static void print_status(const json_t *answer)
{
    const json_t *s = json_object_get(answer, "status");
    uint64_t hits = cli_count(s, "tier_hits"), misses = cli_count(s, "tier_misses");

    if (!json_object_get(s, "tier_size")) {
        printf("there is no tier\n");
        return;
    }
    printf("tier       %s\n", cli_text(answer, "tier"));
    printf("state      %s\n", cli_flag(s, "tier_dead", false) ? "failed" : "in use");
    if (cli_flag(s, "tier_dead", false))
        printf("reason     %s\n", cli_text(s, "tier_reason"));
    printf("size       %" PRIu64 " bytes\n", cli_count(s, "tier_size"));
    if (json_object_get(s, "tier_io"))
        printf("reads by   %s\n", cli_text(s, "tier_io"));
    printf("blocks     %" PRIu64 " of %" PRIu64 "\n", cli_count(s, "tier_blocks"),
           cli_count(s, "tier_capacity"));
    printf("from before  %" PRIu64 ", of which %" PRIu64 " are to be compared, %" PRIu64
           " were right and %" PRIu64 " outdated\n",
           cli_count(s, "tier_recovered"), cli_count(s, "tier_unverified"),
           cli_count(s, "tier_verified"), cli_count(s, "tier_outdated"));
    printf("hits       %" PRIu64 " (%.1f %%)\n", hits,
           cli_percentage(hits, hits + misses));
    printf("written    %" PRIu64 " bytes\n", cli_count(s, "tier_written_bytes"));
    printf("errors     %" PRIu64 "\n", cli_count(s, "tier_errors"));
}

static int run(int argc, char **argv, enum command command, const char *args,
               const char *doc)
{
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = args, .doc = doc};
    struct arguments a = {.command = command, .keys = json_object()};
    json_t *answer;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (command == DETACH)
        json_object_set_new(a.keys, "tier", json_string(""));
    if (command == STATUS)
        answer = cli_ask(a.socket, json_pack("{s:s}", "tier", "status"),
                         CLI_SERVER_TIMEOUT_S);
    else
        answer = cli_ask(a.socket, json_pack("{s:O}", "set", a.keys), TIMEOUT_S);
    json_decref(a.keys);
    if (!answer)
        return CLI_FAILED;
    if (a.json)
        return cli_print_json(answer);
    (command == STATUS ? print_status : print_change)(answer);
    json_decref(answer);
    return cli_end_output(CLI_OK);
}

static int attach(int argc, char **argv)
{
    return run(argc, argv, ATTACH,
               "SOCKET PATH [size=SIZE] [admit=auto|all|none] [write-rate=SIZE] "
               "[witness=PATH]",
               "Attaches a second tier to a live server, in place of the one that it "
               "has, if any.\vSee quickmine-tier(1).");
}

static int detach(int argc, char **argv)
{
    return run(argc, argv, DETACH, "SOCKET",
               "Detaches a live server's second tier.\vSee quickmine-tier(1).");
}

static int status(int argc, char **argv)
{
    return run(argc, argv, STATUS, "SOCKET",
               "Prints what a live server's second tier has and does.\vSee "
               "quickmine-tier(1).");
}

const struct cli_command cli_tier_commands[] = {
    {"attach", attach, "give a live server a tier", NULL},
    {"detach", detach, "take it away", NULL},
    {"status", status, "what it has and does", NULL},
    {NULL, NULL, NULL, NULL},
};

int qm_cmd_tier(int argc, char **argv)
{
    return cli_dispatch(cli_tier_commands, "quickmine tier", "quickmine-tier(1)", argc,
                        argv);
}
