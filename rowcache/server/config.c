/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - the configuration file; see config.h.
 *
 * The grammar is that of quickmine-serve(1): a line is empty, a comment (its first
 * character is a #) or KEY = VALUE.  All that is wrong is said, with its line and what
 * is allowed. */
#include "rowcache/server/config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum kind { TEXT, SECRET, ADDRESS, ABSOLUTE, WORD, RULES, NUMBER, SIZE, MODE, FLAG };

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *value; /* the default; NULL: none */
    uint64_t least, most;
    const char *words; /* of WORD: with blanks around each */
} keys[] = {
#define AT(member) offsetof(struct qm_config, member)
    {"listen", ADDRESS, AT(listen), NULL, 0, 0, NULL},
    {"socket", ABSOLUTE, AT(socket), NULL, 0, 0, NULL},
    {"socket-mode", MODE, AT(socket_mode), "0660", 0, 0777, NULL},
    {"tls-listen", ADDRESS, AT(tls_listen), NULL, 0, 0, NULL},
    {"tls-cert", ABSOLUTE, AT(tls_cert), NULL, 0, 0, NULL},
    {"tls-key", ABSOLUTE, AT(tls_key), NULL, 0, 0, NULL},
    {"tls-ca", ABSOLUTE, AT(tls_ca), NULL, 0, 0, NULL},
    {"metrics", ADDRESS, AT(metrics), NULL, 0, 0, NULL},
    {"password", SECRET, AT(password), NULL, 0, 0, NULL},
    {"protected-mode", FLAG, AT(protected_mode), "on", 0, 0, NULL},
    {"max-clients", NUMBER, AT(max_clients), "10000", 1, 1000000, NULL},
    {"max-request", SIZE, AT(max_request), "64M", 1 << 10, 512 << 20, NULL},
    {"max-reply", SIZE, AT(max_reply), "1G", 1 << 20, 1 << 30, NULL},
    {"input-memory", SIZE, AT(input_memory), "512M", 1 << 20, UINT64_C(1) << 40, NULL},
    {"path", ABSOLUTE, AT(path), NULL, 0, 0, NULL},
    {"memory", SIZE, AT(memory), "256M", 8 << 20, UINT64_C(1) << 44, NULL},
    {"plain-memory", SIZE, AT(plain_memory), "64M", 8 << 20, UINT64_C(1) << 44, NULL},
    {"policy", WORD, AT(policy), "wtinylfu", 0, 0, " lru mru lfu wtinylfu "},
    {"disk", WORD, AT(disk), "lmdb", 0, 0, " bdb lmdb files "},
    {"disk-size", SIZE, AT(disk_size), "0", 0, UINT64_C(1) << 50, NULL},
    {"durability", WORD, AT(durability), "lazy", 0, 0, " sync lazy none "},
    {"schema", TEXT, AT(schema), NULL, 0, 0, NULL},
    {"follow", FLAG, AT(follow), "on", 0, 0, NULL},
    {"max-lag", NUMBER, AT(max_lag), "1000", 10, 3600000, NULL},
    {"readahead", WORD, AT(readahead), "auto", 0, 0, " off seer auto "},
    {"rules", RULES, AT(rules), "sa,ta,fa,mined", 0, 0, NULL},
    {"server-id", NUMBER, AT(server_id), "0", 0, UINT32_MAX, NULL},
    {"connections", NUMBER, AT(connections), "8", 1, 256, NULL},
    {"queue", NUMBER, AT(queue), "10000", 1, 1000000, NULL},
    {"timeout", NUMBER, AT(timeout), "5000", 1000, 600000, NULL},
    {"database.host", TEXT, AT(host), NULL, 0, 0, NULL},
    {"database.port", NUMBER, AT(port), "3306", 1, 65535, NULL},
    {"database.socket", ABSOLUTE, AT(database_socket), NULL, 0, 0, NULL},
    {"database.user", TEXT, AT(user), NULL, 0, 0, NULL},
    {"database.password", SECRET, AT(database_password), NULL, 0, 0, NULL},
    {"database.tls-ca", ABSOLUTE, AT(database_tls_ca), NULL, 0, 0, NULL},
    {"database.tls-cert", ABSOLUTE, AT(database_tls_cert), NULL, 0, 0, NULL},
    {"database.tls-key", ABSOLUTE, AT(database_tls_key), NULL, 0, 0, NULL},
    {"database.tls-verify", FLAG, AT(database_tls_verify), "on", 0, 0, NULL},
    {"redis.host", TEXT, AT(redis_host), NULL, 0, 0, NULL},
    {"redis.port", NUMBER, AT(redis_port), "6379", 1, 65535, NULL},
    {"redis.socket", ABSOLUTE, AT(redis_socket), NULL, 0, 0, NULL},
    {"redis.database", NUMBER, AT(redis_database), "0", 0, 65535, NULL},
    {"redis.user", TEXT, AT(redis_user), NULL, 0, 0, NULL},
    {"redis.password", SECRET, AT(redis_password), NULL, 0, 0, NULL},
    {"redis.timeout", NUMBER, AT(redis_timeout), "500", 20, 60000, NULL},
#undef AT
};
enum { KEYS = sizeof keys / sizeof keys[0] };

struct reading {
    struct qm_config *config;
    const char *path;
    unsigned line, wrong, given[KEYS];
};

static void *place(const struct qm_config *config, const struct key *key)
{
    return (char *)config + key->offset;
}

static bool is_text(enum kind kind)
{
    return kind <= RULES;
}

bool qm_config_address(char *text, char **host, char **port)
{
    char *colon = strrchr(text, ':'), *end;
    unsigned long number;

    if (!colon)
        return false;
    number = strtoul(colon + 1, &end, 10);
    if (!isdigit((unsigned char)colon[1]) || *end != '\0' || number > 65535)
        return false;
    *colon = '\0';
    *port = colon + 1;
    *host = text;
    if (text[0] == '[' && colon > text + 1 && colon[-1] == ']') {
        colon[-1] = '\0';
        *host = text + 1;
    }
    return true;
}

/* --- values --- */

const char *const qm_config_rule_names[] = {"sa", "ta", "fa", "mined", NULL};

bool qm_config_rules(const char *text, unsigned *rules)
{
    unsigned found = 0;

    for (;;) {
        size_t n = strcspn(text, ",");
        unsigned i = 0;

        while (qm_config_rule_names[i] &&
               (strlen(qm_config_rule_names[i]) != n ||
                memcmp(qm_config_rule_names[i], text, n) != 0))
            i++;
        if (!qm_config_rule_names[i] || (found >> i & 1))
            return false;
        found |= 1U << i;
        if (text[n] == '\0')
            break;
        text += n + 1;
    }
    *rules = found;
    return true;
}

static bool read_size(const char *value, uint64_t *size)
{
    static const char units[] = "KMGT";
    const char *unit;
    char *end;

    errno = 0;
    *size = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || errno != 0)
        return false;
    if (*end == '\0')
        return true;
    unit = strchr(units, toupper((unsigned char)*end));
    if (!unit || end[1] != '\0' ||
        *size > UINT64_MAX >> (10 * (unsigned)(unit - units + 1)))
        return false;
    *size <<= 10 * (unsigned)(unit - units + 1);
    return true;
}

static void allowed(const struct key *key, char *text, size_t size)
{
    switch (key->kind) {
    case ADDRESS:
        snprintf(text, size, "HOST:PORT");
        break;
    case ABSOLUTE:
        snprintf(text, size, "a path that begins with /");
        break;
    case WORD:
        snprintf(text, size, "one of%.*s", (int)strlen(key->words) - 1, key->words);
        break;
    case RULES:
        snprintf(text, size, "some of sa,ta,fa,mined, with commas and no blanks");
        break;
    case NUMBER:
        snprintf(text, size, "a number from %" PRIu64 " to %" PRIu64, key->least,
                 key->most);
        break;
    case SIZE:
        snprintf(text, size, "a size from %" PRIu64 "K to %" PRIu64 "G, such as 64M",
                 key->least >> 10, key->most >> 30);
        break;
    case MODE:
        snprintf(text, size, "an octal mode such as 0660");
        break;
    case FLAG:
        snprintf(text, size, "on or off");
        break;
    default:
        snprintf(text, size, "not empty");
    }
}

static bool set_text(struct qm_config *config, const struct key *key, const char *value)
{
    char **to = place(config, key), *copy = strdup(value), *host, *port;
    char word[64];
    unsigned rules;
    bool good = copy && *copy;

    if (good && key->kind == ADDRESS)
        good = qm_config_address(copy, &host, &port);
    if (good && key->kind == ABSOLUTE)
        good = *value == '/';
    if (good && key->kind == WORD)
        good = snprintf(word, sizeof word, " %s ", value) < (int)sizeof word &&
               !strchr(value, ' ') && strstr(key->words, word);
    if (good && key->kind == RULES)
        good = qm_config_rules(value, &rules);
    free(copy);
    if (!good)
        return false;
    free(*to);
    *to = strdup(value);
    return *to;
}

static bool set(struct qm_config *config, const struct key *key, const char *value)
{
    uint64_t number;
    char *end;

    if (is_text(key->kind))
        return set_text(config, key, value);
    if (key->kind == FLAG) {
        bool on = strcmp(value, "on") == 0;

        *(bool *)place(config, key) = on;
        return on || strcmp(value, "off") == 0;
    }
    if (key->kind == SIZE) {
        if (!read_size(value, &number))
            return false;
    } else {
        errno = 0;
        number = strtoull(value, &end, key->kind == MODE ? 8 : 10);
        if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0)
            return false;
    }
    *(uint64_t *)place(config, key) = number;
    return number >= key->least && number <= key->most;
}

/* --- lines --- */

static void wrong(struct reading *r, const char *key, const char *what)
{
    r->wrong++;
    fprintf(stderr, "qm-rowcache: %s:%u: %s %s\n", r->path, r->line, key, what);
}

static char *trimmed(char *text)
{
    size_t n;

    while (isspace((unsigned char)*text))
        text++;
    for (n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        ;
    text[n] = '\0';
    return text;
}

static void read_setting(struct reading *r, const char *name, const char *value)
{
    char what[200], form[120];
    size_t n = strlen(value);

    for (unsigned i = 0; i < KEYS; i++) {
        const struct key *key = &keys[i];

        if (strcmp(key->name, name) != 0)
            continue;
        if (r->given[i]) {
            snprintf(what, sizeof what, "is given already, in line %u", r->given[i]);
            wrong(r, name, what);
            return;
        }
        r->given[i] = r->line;
        if (place(r->config, key) == &r->config->database_tls_verify)
            r->config->database_tls_verify_given = true;
        if (n > 1 && (value[0] == '"' || value[0] == '\'') &&
            value[n - 1] == value[0]) {
            wrong(r, name, "has quotes that would be a part of the value");
        } else if (key->kind != SECRET && strstr(value, " #")) {
            wrong(r, name, "has a comment: that needs a line of its own");
        } else if (!set(r->config, key, value)) {
            allowed(key, form, sizeof form);
            snprintf(what, sizeof what, "must be %s, not '%.40s'", form,
                     key->kind == SECRET ? "" : value);
            wrong(r, name, what);
        }
        return;
    }
    wrong(r, name, "is no setting; quickmine-rowcache(1) lists them");
}

static void read_line(struct reading *r, char *text)
{
    char *equals;

    text = trimmed(text);
    if (*text == '\0' || *text == '#')
        return;
    equals = strchr(text, '=');
    if (!equals) {
        char quoted[64];

        snprintf(quoted, sizeof quoted, "'%.50s'", text);
        wrong(r, quoted, "is not KEY = VALUE");
        return;
    }
    *equals = '\0';
    read_setting(r, trimmed(text), trimmed(equals + 1));
}

static void lacks(struct reading *r, const char *what)
{
    r->wrong++;
    fprintf(stderr, "qm-rowcache: %s: %s\n", r->path, what);
}

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    if (address->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
            v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

/* Other machines may reach it.  A name that is not known is said when it is listened
 * at.
 */
static bool is_public(const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char *copy = address ? strdup(address) : NULL, *host, *port;
    bool is = false;

    if (copy && qm_config_address(copy, &host, &port) &&
        getaddrinfo(*host ? host : NULL, port, &hints, &found) == 0) {
        for (const struct addrinfo *a = found; a; a = a->ai_next)
            is |= !is_loopback(a->ai_addr);
        freeaddrinfo(found);
    }
    free(copy);
    return is;
}

static void check_protected(struct reading *r)
{
    struct qm_config *c = r->config;

    if (!c->protected_mode || c->password)
        return;
    if (is_public(c->listen))
        lacks(
            r,
            "listen would serve other machines without a password: give a password, a "
            "loopback address such as 127.0.0.1, or protected-mode = off");
    if (is_public(c->tls_listen) && !c->tls_ca)
        lacks(r, "tls-listen would serve other machines without a password: give a "
                 "password, tls-ca, a loopback address such as 127.0.0.1, or "
                 "protected-mode = off");
    if (is_public(c->metrics))
        lacks(r, "metrics would serve other machines: give clients a password, metrics "
                 "a loopback address such as 127.0.0.1, or protected-mode = off");
}

static void check_database_tls(struct reading *r)
{
    struct qm_config *c = r->config;

    if (c->database_tls_key && !c->database_tls_cert)
        lacks(r, "database.tls-key needs database.tls-cert");
    /* off alone is for client libraries that use TLS, and verify, by themselves. */
    if (c->database_tls_verify_given && c->database_tls_verify &&
        !qm_config_has_database_tls(c))
        lacks(r, "database.tls-verify = on needs database.tls-ca or database.tls-cert, "
                 "which switch TLS on");
}

static void check_together(struct reading *r)
{
    struct qm_config *c = r->config;

    if (!c->path)
        lacks(r, "path is missing: the directory of what is kept");
    if (!c->user)
        lacks(r, "database.user is missing");
    if (!c->host && !c->database_socket)
        lacks(r, "database.socket or database.host is missing");
    if (c->host && c->database_socket)
        lacks(r, "database.socket and database.host exclude each other");
    if (c->redis_host && c->redis_socket)
        lacks(r, "redis.socket and redis.host exclude each other");
    if (c->redis_user && !c->redis_password)
        lacks(r, "redis.user needs redis.password");
    if (!c->listen && !c->socket && !c->tls_listen)
        lacks(r, "listen, socket or tls-listen is missing: where clients connect");
    if (c->tls_listen && (!c->tls_cert || !c->tls_key))
        lacks(r, "tls-listen needs tls-cert and tls-key");
    if (!c->tls_listen && (c->tls_cert || c->tls_key || c->tls_ca))
        lacks(r, "tls-cert, tls-key and tls-ca need tls-listen");
    if (c->input_memory < 2 * c->max_request)
        lacks(r,
              "input-memory is less than twice max-request: a client has half of it");
    if (c->schema && strpbrk(c->schema, ".:"))
        lacks(r, "schema has a . or a :");
    if (c->socket && strlen(c->socket) > 107)
        lacks(r, "socket is longer than 107 bytes");
    check_database_tls(r);
    check_protected(r);
}

int qm_config_read(struct qm_config *config, const char *path)
{
    struct reading r = {.config = config, .path = path};
    FILE *in = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    ssize_t n;

    *config = (struct qm_config){0};
    if (!in) {
        fprintf(stderr, "qm-rowcache: %s: %s\n", path, strerror(errno));
        return -1;
    }
    for (unsigned i = 0; i < KEYS; i++)
        if (keys[i].value)
            set(config, &keys[i], keys[i].value);
    while ((n = getline(&text, &room, in)) != -1) {
        r.line++;
        if (strlen(text) != (size_t)n)
            wrong(&r, "the line", "has a zero byte");
        else
            read_line(&r, text);
    }
    if (ferror(in))
        lacks(&r, strerror(EIO));
    free(text);
    fclose(in);
    if (r.wrong == 0)
        check_together(&r);
    return r.wrong == 0 ? 0 : -1;
}

void qm_config_free(struct qm_config *config)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (is_text(keys[i].kind))
            free(*(char **)place(config, &keys[i]));
}

void qm_config_print(const struct qm_config *config)
{
    for (unsigned i = 0; i < KEYS; i++) {
        const struct key *key = &keys[i];
        const void *at = place(config, key);
        const char *text = is_text(key->kind) ? *(char *const *)at : NULL;

        if (is_text(key->kind) && !text)
            continue;
        /* Its default is that of TLS alone. */
        if (at == &config->database_tls_verify && !config->database_tls_verify_given &&
            !qm_config_has_database_tls(config))
            continue;
        printf("%s = ", key->name);
        if (key->kind == SECRET)
            printf("(not shown)\n");
        else if (text)
            printf("%s\n", text);
        else if (key->kind == FLAG)
            printf("%s\n", *(const bool *)at ? "on" : "off");
        else if (key->kind == MODE)
            printf("0%" PRIo64 "\n", *(const uint64_t *)at);
        else
            printf("%" PRIu64 "\n", *(const uint64_t *)at);
    }
}
