/* SPDX-License-Identifier: BSD-3-Clause */
/* general.c - commands of connections and of the server; see server.h. */
#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "rowcache/server/server.h"

void cmd_ping(struct client *c)
{
    if (!c->trusted && word_count(c) > 2)
        client_error(c, "NOAUTH Authentication required.");
    else if (word_count(c) > 2)
        client_error(c, "ERR wrong number of arguments for 'ping' command");
    else if (!c->trusted)
        client_error(c, "NOAUTH Authentication required.");
    else if (word_count(c) == 2)
        qm_reply_bulk(&c->out, word(c, 1), word_length(c, 1));
    else
        qm_reply_simple(&c->out, "PONG");
}

void cmd_echo(struct client *c)
{
    qm_reply_bulk(&c->out, word(c, 1), word_length(c, 1));
}

void cmd_rows_only(struct client *c)
{
    client_error(c,
                 "WRONGTYPE Operation against a key holding the wrong kind of value");
}

void cmd_time(struct client *c)
{
    struct timeval tv;
    char text[32];

    gettimeofday(&tv, NULL);
    qm_reply_array(&c->out, 2);
    snprintf(text, sizeof text, "%lld", (long long)tv.tv_sec);
    qm_reply_string(&c->out, text);
    snprintf(text, sizeof text, "%ld", (long)tv.tv_usec);
    qm_reply_string(&c->out, text);
}

/* --- AUTH and HELLO --- */

/* The password is in word i; the user, which can only be "default", in the one before
 * it if named. */
static bool log_in(struct client *c, unsigned i, bool named)
{
    const char *password = c->server->config->password;
    size_t length = password ? strlen(password) : 0;
    bool good = (!named || word_is(c, i - 1, "default")) &&
                (!password || (word_length(c, i) == length &&
                               CRYPTO_memcmp(word(c, i), password, length) == 0));

    if (good)
        c->trusted = c->resp.trusted = true;
    else
        client_error(c,
                     "WRONGPASS invalid username-password pair or user is disabled.");
    return good;
}

void cmd_auth(struct client *c)
{
    if (word_count(c) > 3)
        client_error(c, "ERR syntax error");
    else if (word_count(c) == 2 && !c->server->config->password)
        client_error(c,
                     "ERR AUTH <password> called without any password configured for "
                     "the default user. Are you sure your configuration is correct?");
    else if (log_in(c, word_count(c) - 1, word_count(c) == 3))
        qm_reply_simple(&c->out, "OK");
}

static bool is_name(struct client *c, unsigned i)
{
    for (size_t j = 0; j < word_length(c, i); j++)
        if (word(c, i)[j] < '!' || word(c, i)[j] > '~')
            return false;
    return true;
}

static bool set_name(struct client *c, unsigned i)
{
    if (!is_name(c, i) || word_length(c, i) >= sizeof c->name) {
        client_error(c, "ERR Client names cannot contain spaces, newlines or special "
                        "characters.");
        return false;
    }
    snprintf(c->name, sizeof c->name, "%.*s", (int)word_length(c, i), word(c, i));
    return true;
}

void cmd_hello(struct client *c)
{
    int64_t version = c->resp3 ? 3 : 2;

    if (word_count(c) > 1 && !word_integer(c, 1, &version)) {
        client_error(c, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (version != 2 && version != 3) {
        client_error(c, "NOPROTO unsupported protocol version");
        return;
    }
    for (unsigned i = 2; i < word_count(c); i++) {
        unsigned more = word_count(c) - i - 1;

        if (word_is(c, i, "AUTH") && more >= 2) {
            if (!log_in(c, i + 2, true))
                return;
            i += 2;
        } else if (word_is(c, i, "SETNAME") && more >= 1) {
            if (!set_name(c, i + 1))
                return;
            i++;
        } else {
            client_error(c, "ERR Syntax error in HELLO option '%.*s'",
                         word_length(c, i) > 60 ? 60 : (int)word_length(c, i),
                         word(c, i));
            return;
        }
    }
    if (!c->trusted) {
        client_error(c, "NOAUTH HELLO must be called with the client already "
                        "authenticated, otherwise the HELLO <proto> AUTH <user> <pass> "
                        "option can be used to authenticate the client and select the "
                        "RESP protocol version at the same time");
        return;
    }
    c->resp3 = version == 3;
    qm_reply_map(&c->out, 7, c->resp3);
    qm_reply_string(&c->out, "server");
    qm_reply_string(&c->out, "redis"); /* what clients look for */
    qm_reply_string(&c->out, "version");
    qm_reply_string(&c->out, "7.0.0");
    qm_reply_string(&c->out, "proto");
    qm_reply_integer(&c->out, version);
    qm_reply_string(&c->out, "id");
    qm_reply_integer(&c->out, (int64_t)c->id);
    qm_reply_string(&c->out, "mode");
    qm_reply_string(&c->out, "standalone");
    qm_reply_string(&c->out, "role");
    qm_reply_string(&c->out, "master");
    qm_reply_string(&c->out, "modules");
    qm_reply_array(&c->out, 0);
}

void cmd_select(struct client *c)
{
    int64_t db;

    if (!word_integer(c, 1, &db)) {
        client_error(c, "ERR value is not an integer or out of range");
    } else if (db < 0 || db > 1) {
        client_error(c, "ERR DB index is out of range");
    } else {
        c->db = (unsigned)db;
        qm_reply_simple(&c->out, "OK");
    }
}

void cmd_quit(struct client *c)
{
    qm_reply_simple(&c->out, "OK");
    c->closing = true;
}

void cmd_reset(struct client *c)
{
    client_reset(c);
    qm_reply_simple(&c->out, "RESET");
}

void cmd_multi(struct client *c)
{
    client_error(c, "ERR transactions are not supported: rows are read-only here, and "
                    "plain keys are changed one at a time; send the commands without "
                    "MULTI and WATCH");
}

void cmd_no_multi(struct client *c)
{
    char name[16];
    size_t i = 0;

    for (; c->command[i]; i++)
        name[i] = (char)toupper((unsigned char)c->command[i]);
    name[i] = '\0';
    /* Clients that send all at once show this error, not that of MULTI. */
    client_error(c, "ERR %s without MULTI: transactions are not supported", name);
}

/* --- CLIENT --- */

static void describe_client(const struct client *of, struct qm_text *text)
{
    uint64_t now = qm_rows_now();
    size_t words = of->resp.room * sizeof of->resp.word[0];
    char line[600];
    int n = snprintf(
        line, sizeof line,
        "id=%" PRIu64 " addr=%s fd=%d name=%s age=%" PRIu64 " idle=%" PRIu64
        " flags=%s db=%u qbuf=%zu argv-mem=%zu omem=%zu tot-mem=%zu cmd=%s "
        "user=default lib-name=%s lib-ver=%s "
        "resp=%d\n",
        of->id, of->address, of->fd, of->name, (now - of->created) / 1000000000,
        now > of->last ? (now - of->last) / 1000000000 : 0, of->request ? "b" : "N",
        of->db, of->in_length - of->in_at, words, of->out.length - of->out_at,
        of->in_room + words + of->out.room, of->command ? of->command : "NULL",
        of->library, of->library_version, of->resp3 ? 3 : 2);

    qm_text_add(text, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static void set_info(struct client *c)
{
    bool library = word_is(c, 2, "LIB-NAME");
    char *to = library ? c->library : c->library_version;
    size_t room = library ? sizeof c->library : sizeof c->library_version;

    if (!library && !word_is(c, 2, "LIB-VER")) {
        client_error(c, "ERR Unrecognized option '%.*s'",
                     word_length(c, 2) > 60 ? 60 : (int)word_length(c, 2), word(c, 2));
    } else if (!is_name(c, 3) || word_length(c, 3) >= room) {
        client_error(c, "ERR %s cannot contain spaces, newlines or special characters.",
                     library ? "lib-name" : "lib-ver");
    } else {
        snprintf(to, room, "%.*s", (int)word_length(c, 3), word(c, 3));
        qm_reply_simple(&c->out, "OK");
    }
}

static void unknown_subcommand(struct client *c, const char *of)
{
    client_error(c,
                 "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try "
                 "%s HELP.",
                 word_length(c, 1) > 60 ? 60 : (int)word_length(c, 1), word(c, 1), of);
}

static void reply_list(struct client *c, const char *const *lines)
{
    size_t n = 0;

    while (lines[n])
        n++;
    qm_reply_array(&c->out, n);
    for (size_t i = 0; i < n; i++)
        qm_reply_simple(&c->out, lines[i]);
}

/* CLIENT KILL ADDRESS, or ID, ADDR and SKIPME with a value each. */
static void kill_clients(struct client *c)
{
    unsigned n = word_count(c), address = n == 3 ? 2 : 0;
    bool skip_me = n != 3;
    int64_t id = 0, killed = 0;

    for (unsigned i = 2; n > 3 && i < n; i += 2) {
        bool more = i + 1 < n;

        if (more && word_is(c, i, "ID") && word_integer(c, i + 1, &id) && id > 0) {
        } else if (more && word_is(c, i, "ADDR")) {
            address = i + 1;
        } else if (more && word_is(c, i, "SKIPME") &&
                   (word_is(c, i + 1, "yes") || word_is(c, i + 1, "no"))) {
            skip_me = word_is(c, i + 1, "yes");
        } else {
            client_error(c, more && word_is(c, i, "ID")
                                ? "ERR client-id should be greater than 0"
                                : "ERR syntax error");
            return;
        }
    }
    for (struct client *of = c->server->clients, *next; of; of = next) {
        next = of->next;
        if ((id > 0 && of->id != (uint64_t)id) ||
            (address > 0 && !word_is(c, address, of->address)) || (skip_me && of == c))
            continue;
        killed++;
        if (of == c) /* when it has its reply */
            c->closing = true;
        else
            client_free(of);
        if (n == 3)
            break;
    }
    if (n > 3)
        qm_reply_integer(&c->out, killed);
    else if (killed > 0)
        qm_reply_simple(&c->out, "OK");
    else
        client_error(c, "ERR No such client");
}

static void set_reply(struct client *c)
{
    if (word_is(c, 2, "ON")) {
        c->mute = c->skip = false;
        qm_reply_simple(&c->out, "OK");
    } else if (word_is(c, 2, "OFF")) {
        c->mute = true;
    } else if (word_is(c, 2, "SKIP")) {
        c->skip_next = !c->mute;
        c->skip = true;
    } else {
        client_error(c, "ERR syntax error");
    }
}

void cmd_client(struct client *c)
{
    static const char *const help[] = {"CLIENT ID, GETNAME, SETNAME name, INFO, LIST, "
                                       "SETINFO LIB-NAME|LIB-VER text, KILL address, "
                                       "KILL ID n ADDR address SKIPME yes|no, "
                                       "REPLY ON|OFF|SKIP",
                                       NULL};
    unsigned n = word_count(c);
    struct qm_text text = {0};

    if (n == 2 && word_is(c, 1, "ID")) {
        qm_reply_integer(&c->out, (int64_t)c->id);
    } else if (n == 2 && word_is(c, 1, "GETNAME")) {
        if (c->name[0])
            qm_reply_string(&c->out, c->name);
        else
            qm_reply_null(&c->out, c->resp3);
    } else if (n == 3 && word_is(c, 1, "SETNAME")) {
        if (set_name(c, 2))
            qm_reply_simple(&c->out, "OK");
    } else if (n >= 3 && word_is(c, 1, "KILL")) {
        kill_clients(c);
    } else if (n == 3 && word_is(c, 1, "REPLY")) {
        set_reply(c);
    } else if (n == 4 && word_is(c, 1, "SETINFO")) {
        set_info(c);
    } else if (n == 2 && word_is(c, 1, "INFO")) {
        describe_client(c, &text);
        qm_reply_bulk(&c->out, text.bytes, text.length);
    } else if (n == 2 && word_is(c, 1, "LIST")) {
        for (struct client *of = c->server->clients; of; of = of->next)
            describe_client(of, &text);
        qm_reply_bulk(&c->out, text.bytes, text.length);
    } else if (n == 2 && word_is(c, 1, "HELP")) {
        reply_list(c, help);
    } else {
        unknown_subcommand(c, "CLIENT");
    }
    qm_text_free(&text);
}

/* --- COMMAND --- */

static size_t commands_count(void)
{
    size_t n = 0;

    while (qm_commands[n].name)
        n++;
    return n;
}

static void describe_command(struct client *c, const struct command *of)
{
    bool key = qm_command_has_key(of), many = qm_command_has_keys(of);

    qm_reply_array(&c->out, 10);
    qm_reply_string(&c->out, of->name);
    qm_reply_integer(&c->out, of->arity);
    qm_reply_array(&c->out, 1);
    qm_reply_simple(&c->out, of->flags & COMMAND_WRITES  ? "write"
                             : of->flags & COMMAND_READS ? "readonly"
                                                         : "fast");
    qm_reply_integer(&c->out, key);
    qm_reply_integer(&c->out, many ? -1 : key);
    qm_reply_integer(&c->out, strcmp(of->name, "mset") == 0 ? 2 : key);
    for (int i = 0; i < 4; i++)
        qm_reply_array(&c->out, 0);
}

static void document(struct client *c, const struct command *of)
{
    qm_reply_string(&c->out, of->name);
    qm_reply_map(&c->out, 3, c->resp3);
    qm_reply_string(&c->out, "summary");
    qm_reply_string(&c->out, of->summary);
    qm_reply_string(&c->out, "since");
    qm_reply_string(&c->out, "1.0.0");
    qm_reply_string(&c->out, "group");
    qm_reply_string(&c->out, of->group);
}

void cmd_command(struct client *c)
{
    unsigned n = word_count(c), known = 0;

    if (n == 1 || (n == 2 && word_is(c, 1, "INFO"))) {
        qm_reply_array(&c->out, commands_count());
        for (const struct command *of = qm_commands; of->name; of++)
            describe_command(c, of);
    } else if (n == 2 && word_is(c, 1, "COUNT")) {
        qm_reply_integer(&c->out, (int64_t)commands_count());
    } else if (n == 2 && word_is(c, 1, "LIST")) {
        qm_reply_array(&c->out, commands_count());
        for (const struct command *of = qm_commands; of->name; of++)
            qm_reply_string(&c->out, of->name);
    } else if (word_is(c, 1, "INFO")) {
        qm_reply_array(&c->out, n - 2);
        for (unsigned i = 2; i < n; i++) {
            const struct command *of = qm_command_find(word(c, i), word_length(c, i));

            if (of)
                describe_command(c, of);
            else
                qm_text_add(&c->out, c->resp3 ? "_\r\n" : "*-1\r\n", c->resp3 ? 3 : 5);
        }
    } else if (word_is(c, 1, "DOCS")) {
        for (unsigned i = 2; i < n; i++)
            known += qm_command_find(word(c, i), word_length(c, i)) != NULL;
        qm_reply_map(&c->out, n == 2 ? commands_count() : known, c->resp3);
        for (const struct command *of = qm_commands; n == 2 && of->name; of++)
            document(c, of);
        for (unsigned i = 2; i < n; i++)
            if (qm_command_find(word(c, i), word_length(c, i)))
                document(c, qm_command_find(word(c, i), word_length(c, i)));
    } else {
        unknown_subcommand(c, "COMMAND");
    }
}

/* --- CONFIG --- */

struct live {
    const char *name;
    uint64_t least, most;
};
static const struct live live[] = {
    {"max-lag", 10, 3600000}, {"maxclients", 1, 1000000},
    {"databases", 2, 2},      {"save", 0, 0},
    {"appendonly", 0, 0},     {"readahead", 0, 1},
    {"rules", 0, 1},          {NULL, 0, 0},
};

static void live_value(struct server *s, const char *name, char *text, size_t size)
{
    struct readahead_stats ahead;

    text[0] = '\0';
    readahead_get(s, &ahead);
    if (strcmp(name, "maxclients") == 0)
        snprintf(text, size, "%" PRIu64, s->max_clients);
    else if (strcmp(name, "max-lag") == 0)
        snprintf(text, size, "%" PRIu64, s->max_lag);
    else if (strcmp(name, "databases") == 0)
        snprintf(text, size, "2");
    else if (strcmp(name, "appendonly") == 0)
        snprintf(text, size, "no");
    else if (strcmp(name, "readahead") == 0)
        snprintf(text, size, "%s", readahead_presets[ahead.preset]);
    else if (strcmp(name, "rules") == 0)
        for (unsigned i = 0; qm_config_rule_names[i]; i++)
            if (ahead.rules >> i & 1)
                snprintf(text + strlen(text), size - strlen(text), "%s%s",
                         *text ? "," : "", qm_config_rule_names[i]);
}

static void config_get(struct client *c)
{
    const struct live *found[sizeof live / sizeof live[0]];
    size_t n = 0;
    char value[32];

    for (const struct live *l = live; l->name; l++) {
        bool matches = false;

        for (unsigned i = 2; i < word_count(c) && !matches; i++) {
            char *pattern = strndup(word(c, i), word_length(c, i));

            matches = pattern && fnmatch(pattern, l->name, FNM_CASEFOLD) == 0;
            free(pattern);
        }
        if (matches)
            found[n++] = l;
    }
    qm_reply_map(&c->out, n, c->resp3);
    for (size_t i = 0; i < n; i++) {
        live_value(c->server, found[i]->name, value, sizeof value);
        qm_reply_string(&c->out, found[i]->name);
        qm_reply_string(&c->out, value);
    }
}

/* Those that are words. */
static void config_set_readahead(struct client *c, const char *name)
{
    bool is_rules = strcmp(name, "rules") == 0;
    char *text = strndup(word(c, 3), word_length(c, 3));
    unsigned rules;
    bool good = text && strlen(text) == word_length(c, 3);

    if (good && is_rules)
        good = qm_config_rules(text, &rules);
    else if (good)
        good = readahead_set(c->server, text);
    if (!good) {
        client_error(c,
                     "ERR CONFIG SET failed (possibly related to argument '%s') - "
                     "argument must be %s",
                     name,
                     is_rules ? "some of sa,ta,fa,mined, with commas and no blanks"
                              : "one of off seer auto");
    } else {
        if (is_rules)
            readahead_set_rules(c->server, rules);
        qm_reply_simple(&c->out, "OK");
    }
    free(text);
}

static void config_set(struct client *c)
{
    struct server *s = c->server;
    const struct live *l = live;
    int64_t value;

    while (l->name && !word_is(c, 2, l->name))
        l++;
    if (!l->name) {
        client_error(c,
                     "ERR Unknown option or number of arguments for CONFIG SET - "
                     "'%.*s'",
                     word_length(c, 2) > 60 ? 60 : (int)word_length(c, 2), word(c, 2));
    } else if (l->least == l->most) {
        client_error(c,
                     "ERR CONFIG SET failed (possibly related to argument '%s') - "
                     "can't set immutable config",
                     l->name);
    } else if (strcmp(l->name, "readahead") == 0 || strcmp(l->name, "rules") == 0) {
        config_set_readahead(c, l->name);
    } else if (!word_integer(c, 3, &value) || value < (int64_t)l->least ||
               value > (int64_t)l->most) {
        client_error(c,
                     "ERR CONFIG SET failed (possibly related to argument '%s') - "
                     "argument must be between %" PRIu64 " and %" PRIu64,
                     l->name, l->least, l->most);
    } else if (strcmp(l->name, "maxclients") == 0 &&
               (uint64_t)value > s->clients_most) {
        client_error(
            c,
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') "
            "- The operating system is not able to handle the specified "
            "number of clients, try with %" PRIu64,
            s->clients_most);
    } else {
        if (strcmp(l->name, "maxclients") == 0) {
            s->max_clients = (uint64_t)value;
        } else {
            s->max_lag = (uint64_t)value;
            qm_rows_set_max_lag(s->rows, (unsigned)value);
            if (s->follow)
                qm_follow_set_max_lag(s->follow, (unsigned)value);
            rows_redis_set_max_lag(s);
        }
        qm_reply_simple(&c->out, "OK");
    }
}

void cmd_config(struct client *c)
{
    if (word_is(c, 1, "GET") && word_count(c) > 2) {
        config_get(c);
    } else if (word_is(c, 1, "SET") && word_count(c) == 4) {
        config_set(c);
    } else if (word_is(c, 1, "RESETSTAT") && word_count(c) == 2) {
        struct server *s = c->server;

        s->hits = s->absent_hits = s->misses = s->shared = s->early = 0;
        s->commands = s->errors = 0;
        qm_reply_simple(&c->out, "OK");
    } else {
        unknown_subcommand(c, "CONFIG");
    }
}
