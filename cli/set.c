/* SPDX-License-Identifier: BSD-3-Clause */
/* set.c - quickmine set and get: a live server's parameters, over its control socket.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/server.h"

/* A policy that is replaced may first learn for five seconds and save its rules. */
enum { TIMEOUT_S = 120 };

struct arguments {
    bool json, set;
    const char *socket;
    json_t *keys; /* of set: an object of key and value; of get: an array */
};

enum { JSON = 'j' };

static void add_setting(struct arguments *a, char *arg, struct argp_state *state)
{
    const char *equals = strchr(arg, '=');
    char *key;

    if (!equals || equals == arg)
        argp_error(state, "expected KEY=VALUE, not '%s'", arg);
    key = strndup(arg, (size_t)(equals - arg));
    if (!key)
        argp_failure(state, CLI_FAILED, ENOMEM, "%s", arg);
    if (json_object_get(a->keys, key))
        argp_error(state, "%s is given twice", key);
    if (json_object_set_new(a->keys, key, json_string(equals + 1)) == -1)
        argp_error(state, "'%s' is not UTF-8", arg);
    free(key);
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
        else if (a->set)
            add_setting(a, arg, state);
        else if (json_array_append_new(a->keys, json_string(arg)) == -1)
            argp_error(state, "'%s' is not UTF-8", arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->socket)
            argp_error(state, "which server? Give the socket of its parameter control");
        if (a->set && json_object_size(a->keys) == 0)
            argp_error(state, "change what? Give KEY=VALUE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"json", JSON, NULL, 0, "print the server's JSON answer", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static const struct argp set_argp = {
    .options = options,
    .parser = parse,
    .args_doc = "SOCKET KEY=VALUE...",
    .doc = "Changes a live server's parameters, all of those given or none.\v"
           "See quickmine-set(1).",
};

static const struct argp get_argp = {
    .options = options,
    .parser = parse,
    .args_doc = "SOCKET [KEY...]",
    .doc = "Prints a live server's parameters that can be changed.\v"
           "See quickmine-set(1).",
};

static void print_changes(const json_t *answer, const json_t *asked)
{
    json_t *change, *note;
    size_t i;

    json_array_foreach(json_object_get(answer, "changed"), i, change)
    {
        printf("%s: ", cli_text(change, "key"));
        printf("%s -> ", cli_text(change, "old"));
        printf("%s\n", cli_text(change, "new"));
    }
    if (json_array_size(json_object_get(answer, "changed")) == 0 &&
        !json_object_get(asked, "statistics"))
        printf("nothing has changed: these are its values already\n");
    json_array_foreach(json_object_get(answer, "notes"), i, note)
        printf("note: %s\n", cli_clean(json_string_value(note)));
}

static void print_values(const json_t *answer)
{
    json_t *values = json_object_get(answer, "values"), *value;
    const char *key;

    json_object_foreach(values, key, value)
    {
        printf("%s=", cli_clean(key));
        printf("%s\n", cli_text(values, key));
    }
}

static int run(int argc, char **argv, bool set)
{
    struct arguments a = {.set = set, .keys = set ? json_object() : json_array()};
    json_t *answer;

    argp_parse(set ? &set_argp : &get_argp, argc, argv, 0, NULL, &a);
    answer = cli_ask(a.socket, json_pack("{s:O}", set ? "set" : "get", a.keys),
                     set ? TIMEOUT_S : CLI_SERVER_TIMEOUT_S);
    if (!answer) {
        json_decref(a.keys);
        return CLI_FAILED;
    }
    if (a.json) {
        json_decref(a.keys);
        return cli_print_json(answer);
    }
    if (set)
        print_changes(answer, a.keys);
    else
        print_values(answer);
    json_decref(a.keys);
    json_decref(answer);
    return cli_end_output(CLI_OK);
}

int qm_cmd_set(int argc, char **argv)
{
    return run(argc, argv, true);
}

int qm_cmd_get(int argc, char **argv)
{
    return run(argc, argv, false);
}
