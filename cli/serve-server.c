/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-server.c - what the file of quickmine serve says about its server: where it
 * listens, what nbdkit gets, and all mistakes that can be seen without asking nbdkit.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "cli/cli.h"
#include "cli/serve.h"

void serve_server_free(struct serve_server *server)
{
    free(server->socket);
    free(server->host);
    free(server->port);
    free(server->uri);
    free(server->stats);
    free(server->control);
}

/* Keys that serve understands; all others are the filter's. */
bool serve_is_own(const char *key)
{
    if (strchr(key, '.'))
        return true;
    for (size_t i = 0; serve_own_keys[i]; i++)
        if (strcmp(key, serve_own_keys[i]) == 0)
            return true;
    return false;
}

int serve_wrong(const struct serve_file *file, const struct serve_setting *s,
                const char *what)
{
    cli_fail("%s:%u: %s: '%s' %s", file->path, s->line, s->key, s->value, what);
    return -1;
}

/* ADDRESS:PORT, [ADDRESS]:PORT. */
static int split_listen(struct serve_server *server, const struct serve_setting *s)
{
    const char *colon = strrchr(s->value, ':');
    size_t n = colon ? (size_t)(colon - s->value) : 0;
    const char *host = s->value;
    char *end;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        n = 0;
    }
    if (n == 0 || port < 1 || port > 65535 || *end || colon[1] == '+' ||
        colon[1] == '-')
        return serve_wrong(
            server->file, s,
            "must be ADDRESS:PORT, for example 192.0.2.1:10809 or [::1]:10809");
    server->host = strndup(host, n);
    server->port = strdup(colon + 1);
    if (!server->host || !server->port)
        exit(cli_fail("out of memory"));
    return 0;
}

static int is_path(const struct serve_file *file, const struct serve_setting *s)
{
    if (s->value[0] != '/')
        return serve_wrong(file, s, "must be an absolute path");
    if (strlen(s->value) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return serve_wrong(file, s,
                           "is too long for a socket's name (at most 107 bytes)");
    return 0;
}

static int check_nbdkit_option(struct serve_server *server,
                               const struct serve_setting *s)
{
    static const struct {
        const char *option, *instead;
    } taken[] = {
        {"--unix", "socket"},       {"--port", "listen"},
        {"--ipaddr", "listen"},     {"--ip-addr", "listen"},
        {"--readonly", "readonly"}, {"--read-only", "readonly"},
        {"--threads", "threads"},   {"--filter", "filter"},
        {"--pidfile", "nothing"},   {"--pid-file", "nothing"},
        {"--run", "nothing"},       {"--single", "nothing"},
        {"--stdin", "nothing"},     {"--foreground", "nothing"},
        {"--vsock", "listen"},      {"--no-fork", "nothing"},
    };
    static const char *const ending[] = {"--help", "--version", "--dump-plugin",
                                         "--dump-config"};
    size_t n = strcspn(s->value, "=");

    if (strncmp(s->value, "--", 2) != 0 || s->value[2] == '\0' || strchr(s->value, ' '))
        return serve_wrong(
            server->file, s,
            "must be one long option of nbdkit, for example --tls=require");
    /* nbdkit takes the beginning of an option for it. */
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (strncmp(s->value, ending[i], n) == 0)
            return serve_wrong(server->file, s,
                               "would have nbdkit print something and end");
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strncmp(s->value, taken[i].option, n) == 0) {
            cli_fail("%s:%u: nbdkit-option: serve sets %s itself; use %s instead",
                     server->file->path, s->line, taken[i].option, taken[i].instead);
            return -1;
        }
    if (strncmp(s->value, "--tls=", 6) == 0)
        server->tls = strcmp(s->value + 6, "require") == 0;
    return 0;
}

static int check_threads(const struct serve_file *file)
{
    const struct serve_setting *s = serve_find(file, "threads");
    char *end;
    unsigned long n = s ? strtoul(s->value, &end, 10) : 1;

    if (s && (s->value[0] < '0' || s->value[0] > '9' || *end || n < 1 || n > 1024))
        return serve_wrong(file, s, "is not a number from 1 to 1024");
    return 0;
}

/* The filter's socket of that key, which has a default here. */
static int side_socket(const struct serve_file *file, const char *key, char **path)
{
    const struct serve_setting *s = serve_find(file, key);

    if (s && strcmp(s->value, "none") == 0)
        return 0;
    if (s && is_path(file, s) == -1)
        return -1;
    if ((s ? asprintf(path, "%s", s->value)
           : asprintf(path, SERVE_RUN "/%s/%s.sock", file->name, key)) != -1)
        return 0;
    *path = NULL;
    cli_fail("out of memory");
    return -1;
}

/* The URI of a socket: what would mean something else in a URI is escaped. */
static char *uri_of(const char *path)
{
    static const char begin[] = "nbd+unix:///?socket=", digits[] = "0123456789ABCDEF";
    char *uri = malloc(sizeof begin + 3 * strlen(path)), *to;

    if (!uri)
        return NULL;
    to = stpcpy(uri, begin);
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;

        if (isalnum(c) || strchr("/-._~", c)) {
            *to++ = *path;
        } else {
            *to++ = '%';
            *to++ = digits[c >> 4];
            *to++ = digits[c & 15];
        }
    }
    *to = '\0';
    return uri;
}

/* Where it listens, and its sockets for the operator. */
int serve_server_addresses(struct serve_server *server)
{
    const struct serve_file *file = server->file;
    const struct serve_setting *listen = serve_find(file, "listen");
    const struct serve_setting *socket = serve_find(file, "socket");
    int n = 0;

    if (listen && socket)
        return serve_wrong(file, listen,
                           "cannot be combined with socket: nbdkit serves one");
    if (listen) {
        if (split_listen(server, listen) == -1)
            return -1;
        n = asprintf(&server->uri,
                     strchr(server->host, ':') ? "nbd://[%s]:%s" : "nbd://%s:%s",
                     server->host, server->port);
    } else {
        if (socket && is_path(file, socket) == -1)
            return -1;
        if ((socket ? asprintf(&server->socket, "%s", socket->value)
                    : asprintf(&server->socket, SERVE_RUN "/%s/nbd.sock",
                               file->name)) == -1)
            n = -1;
        else
            server->uri = uri_of(server->socket);
    }
    if (n == -1 || !server->uri)
        return cli_fail("out of memory"), -1;
    if (side_socket(file, "stats", &server->stats) == -1)
        return -1;
    return side_socket(file, "control", &server->control);
}

/* All that can be said without asking nbdkit. */
int serve_server_read(struct serve_server *server, const struct serve_file *file)
{
    const struct serve_setting *allocator = serve_find(file, "allocator");

    *server = (struct serve_server){.file = file};
    if (serve_check_keys(file) == -1)
        return -1;
    if (!serve_find(file, "backend") || !serve_find(file, "backend")->value[0]) {
        cli_fail("%s: backend is missing: the plugin of nbdkit that has the data, for "
                 "example: backend = file",
                 file->path);
        return -1;
    }
    if (strchr(serve_value(file, "backend", ""), ' '))
        return serve_wrong(
            file, serve_find(file, "backend"),
            "must be the name of a plugin; its parameters are backend.KEY = VALUE");
    if (allocator && strcmp(allocator->value, "jemalloc") != 0 &&
        strcmp(allocator->value, "system") != 0)
        return serve_wrong(file, allocator, "must be jemalloc or system");
    for (size_t i = 0; i < file->n; i++) {
        const struct serve_setting *s = &file->settings[i];

        if (strcmp(s->key, "nbdkit-option") == 0 &&
            check_nbdkit_option(server, s) == -1)
            return -1;
        if (strcmp(s->key, "check-only") == 0)
            return serve_wrong(file, s,
                               "is for --check, which sets it itself: a server with it "
                               "would end at once");
        if (strchr(s->key, '.') && !serve_of_group(s, "backend") &&
            !serve_of_group(s, "mount") && !serve_of_group(s, "agent")) {
            cli_fail("%s:%u: %s: before the dot may stand backend, mount or agent",
                     file->path, s->line, s->key);
            return -1;
        }
        /* The server's directory is not the one where serve is started. */
        if (serve_of_group(s, "backend") &&
            strcmp(serve_of_group(s, "backend"), "file") == 0 && s->value[0] != '/')
            return serve_wrong(file, s, "must be an absolute path");
    }
    if (check_threads(file) == -1 ||
        serve_flag(file, "readonly", &server->read_only) == -1)
        return -1;
    return serve_server_addresses(server);
}
