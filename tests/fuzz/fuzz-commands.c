/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-commands.c - a connection to qm-rowcache that sends any commands: of
 * connections, of both databases, with all their options.
 *
 * The whole server is there but its sockets and MariaDB: a row that is not kept is
 * refused.  The first two bytes are the pieces' length, and whether there is a
 * password.
 *
 * Promised: each command is answered once, by a whole reply of the protocol; what the
 * connection needed is given back. */
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "rowcache/server/server.h"

static struct server server;
static struct qm_config config;
static char directory[] = "/tmp/fuzz-commands.XXXXXX";

/* Only for what ends in order. */
static void end(void)
{
    char command[sizeof directory + 16];

    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    (void)!system(command);
}

static struct qmstore *open_store(const char *name)
{
    struct qmstore_config settings;
    struct qmstore *store = NULL;
    char path[sizeof directory + 16], err[300];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    qmstore_config_init(&settings);
    settings.path = path;
    settings.memory = 8 << 20;
    settings.disk = "files";
    settings.durability = QMSTORE_NONE;
    settings.threadless = true;
    promise(qmstore_open(&settings, &store, err, sizeof err) == 0);
    return store;
}

static void begin(void)
{
    const struct qm_fill_settings pool = {.connections = 0, .queue = 0};
    char path[sizeof directory + 16];
    FILE *file;

    if (server.base)
        return;
    promise(mkdtemp(directory));
    atexit(end);
    snprintf(path, sizeof path, "%s/conf", directory);
    file = fopen(path, "w");
    promise(file);
    fprintf(file, "socket = %s/sock\npath = %s\ndatabase.socket = %s/db\n", directory,
            directory, directory);
    fprintf(file, "database.user = u\nschema = s\n");
    fclose(file);
    promise(qm_config_read(&config, path) == 0);
    server.config = &config;
    server.started = qm_rows_now();
    server.tick = 1;
    server.base = event_base_new();
    server.row_store = open_store("rows");
    server.plain_store = open_store("plain");
    server.rows = qm_rows_new(server.row_store, 60000);
    promise(server.base && server.rows && rows_start(&server) == 0);
    server.fill = qm_fill_start(&pool, server.rows, &server.tick, rows_done, &server);
    promise(server.fill && readahead_start(&server) == 0);
}

/* A row, and one that is known to be absent. */
static void keep_rows(void)
{
    static const char row[] =
        "{\"id\":1,\"n\":null,\"d\":12.50,\"t\":\"a\\\"b\\u00e9\",\"b\":\"AAEC\"}";
    struct qm_follow_callbacks calls = {0};
    struct qm_gtid_list position;
    struct qm_rows_token token;

    promise(qm_gtid_parse(&position, "0-1-1", 5));
    qm_rows_callbacks(server.rows, &calls);
    calls.following(calls.opaque, true, NULL);
    calls.settled(calls.opaque, 1);
    calls.applied(calls.opaque, 1, &position);
    calls.fresh(calls.opaque, qm_rows_now());
    token = qm_rows_begin(server.rows, "s.t", 3, "s.t:1", 5);
    promise(qm_rows_put(server.rows, &token, "s.t:1", 5, QM_ROWS_ROW, row,
                        sizeof row - 1, &position));
    token = qm_rows_begin(server.rows, "s.t", 3, "s.t:2", 5);
    promise(qm_rows_put(server.rows, &token, "s.t:2", 5, QM_ROWS_ABSENT, NULL, 0,
                        &position));
}

static void set_all_back(void)
{
    struct qmstore_stats stats;

    qmstore_get_stats(server.plain_store, &stats);
    if (stats.keys > 0)
        promise(qmstore_clear(server.plain_store) == 0);
    readahead_set(&server, "off");
    readahead_set_rules(&server, (1 << QM_AUTO_RULES) - 1);
    server.max_clients = 100;
    server.clients_most = 1000;
    server.max_lag = 60000;
    qm_rows_set_max_lag(server.rows, 60000);
}

/* --- replies --- */

/* Behind the line; NULL: it is not all there. */
static const char *behind_line(const char *at, const char *end)
{
    const char *eol = memchr(at, '\n', (size_t)(end - at));

    promise(!eol || (eol > at && eol[-1] == '\r'));
    promise(!eol || !memchr(at, '\r', (size_t)(eol - 1 - at)));
    return eol ? eol + 1 : NULL;
}

/* Behind the reply; NULL: it is not all there. */
static const char *behind_reply(const char *at, const char *end)
{
    const char *next = at < end ? behind_line(at, end) : NULL;
    long n;

    if (!next || (*at && strchr("+-:_", *at)))
        return next;
    promise(*at && strchr("$*%", *at));
    n = strtol(at + 1, NULL, 10);
    promise(n >= -1);
    if (*at == '$' && n >= 0) {
        if (end - next < n + 2)
            return NULL;
        promise(memcmp(next + n, "\r\n", 2) == 0);
        return next + n + 2;
    }
    for (long i = 0; *at != '$' && next && i < (*at == '%' ? 2 * n : n); i++)
        next = behind_reply(next, end);
    return next;
}

/* --- connections --- */

static struct qm_text replies;

/* What is sent to us, until nothing more happens. */
static void settle(int fd)
{
    static char bytes[65536];
    ssize_t n;

    do {
        for (int i = 0; i < 3; i++)
            event_base_loop(server.base, EVLOOP_NONBLOCK);
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            qm_text_add(&replies, bytes, (size_t)n);
    } while (n > 0);
}

static int connect_to(const char *name)
{
    int fds[2];

    promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    client_new(&server, fds[1], NULL, name);
    return fds[0];
}

static bool has_word(const uint8_t *data, size_t size, const char *word)
{
    for (size_t i = 0; i + strlen(word) <= size; i++)
        if (strncasecmp((const char *)data + i, word, strlen(word)) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char password[] = "pw";
    struct food f = {data, size};
    size_t piece = eat_number(&f, 1) + 1;
    uint64_t commands, errors, https, answers = 0;
    const char *at, *end;
    int fd, other;

    begin();
    set_all_back();
    keep_rows();
    config.password = eat_number(&f, 1) % 2 ? password : NULL;
    commands = server.commands;
    errors = server.protocol_errors;
    https = server.http_requests;
    replies.length = 0;
    fd = connect_to("one");
    other = connect_to("other");
    for (size_t i = 0; i < f.left; i += piece) {
        size_t n = f.left - i < piece ? f.left - i : piece;

        if (send(fd, f.at + i, n, MSG_NOSIGNAL) == -1)
            break;
        settle(fd);
    }
    settle(fd);
    end = replies.bytes + replies.length;
    for (at = replies.bytes; replies.length > 0 && at < end; answers++) {
        at = behind_reply(at, end);
        promise(at);
    }
    /* CONFIG RESETSTAT sets the count to 0, CLIENT REPLY hides replies; before an HTTP
     * request is refused, replies that are not yet sent are dropped. */
    if (server.http_requests > https)
        promise(answers <=
                server.commands - commands + server.protocol_errors - errors);
    else if (!has_word(data, size, "reply") && !has_word(data, size, "resetstat"))
        promise(answers ==
                server.commands - commands + server.protocol_errors - errors);
    close(fd);
    close(other);
    for (int i = 0; i < 3; i++)
        event_base_loop(server.base, EVLOOP_NONBLOCK);
    promise(server.clients_count == 0 && server.in_bytes == 0 && server.in_beyond == 0);
    return 0;
}
