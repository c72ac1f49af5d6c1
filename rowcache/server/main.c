/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - qm-rowcache: rows of MariaDB behind the Redis protocol.
 *
 *   qm-rowcache FILE.conf [--check | --print]
 *
 * SIGTERM and SIGINT end it in order: what was asked is answered with an error, the
 * stores are closed.  SIGHUP reads the certificate of tls-listen again. */
#include <argp.h>
#include <errno.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/server/binlog-check.h"
#include "rowcache/server/server.h"

enum { FILES_OF_OTHERS = 64, SWEEP_MS = 200 };

static void say(void *opaque, const char *message)
{
    fprintf(stderr, "qm-rowcache: %s\n", message);
}

static void sweep(evutil_socket_t fd, short what, void *opaque)
{
    client_sweep(opaque);
}

static void end(evutil_socket_t signal, short what, void *opaque)
{
    struct server *s = opaque;

    event_base_loopbreak(s->base);
}

static void reload(evutil_socket_t signal, short what, void *opaque)
{
    listen_reload(opaque);
}

/* --- stores --- */

/* Rows are of no use to the next process: what it would have to find out of each is
 * whether it is still right. */
static struct qmstore *open_store(const struct qm_config *c, const char *name,
                                  uint64_t memory, bool lasting)
{
    static const struct {
        const char *word;
        enum qmstore_durability value;
    } durabilities[] = {
        {"sync", QMSTORE_SYNC}, {"lazy", QMSTORE_LAZY}, {"none", QMSTORE_NONE}};
    struct qmstore_config config;
    struct qmstore *store = NULL;
    uint64_t disk_most = c->disk_size > 0 ? c->disk_size : QMSTORE_DISK_HALF;
    char err[300] = "", *path;
    int error;

    if (asprintf(&path, "%s/%s", c->path, name) == -1)
        return NULL;
    qmstore_config_init(&config);
    config.path = path;
    config.memory = memory;
    config.policy = c->policy;
    config.disk = c->disk;
    config.warn = say;
    for (int i = 0; i < 3; i++)
        if (strcmp(c->durability, durabilities[i].word) == 0)
            config.durability = durabilities[i].value;
    error = lasting ? qmstore_open(&config, &store, err, sizeof err)
                    : qmstore_open_scratch(&config, disk_most, &store, err, sizeof err);
    if (error != 0)
        fprintf(stderr, "qm-rowcache: %s: %s\n", path, err);
    free(path);
    return store;
}

static bool open_stores(struct server *s)
{
    const struct qm_config *c = s->config;

    if (mkdir(c->path, 0700) == -1 && errno != EEXIST) {
        fprintf(stderr, "qm-rowcache: %s: %s%s\n", c->path, strerror(errno),
                errno == ENOENT ? ": only path itself is made, not what it is in" : "");
        return false;
    }
    if (!qm_config_has_redis(c)) {
        s->row_store = open_store(c, "rows", c->memory, false);
        if (!s->row_store)
            return false;
    }
    s->plain_store = open_store(c, "plain", c->plain_memory, true);
    return s->plain_store;
}

/* The rows, wherever they are kept. */
static bool make_rows(struct server *s)
{
    unsigned max_lag = (unsigned)s->config->max_lag;
    struct qm_rows_place place;

    if (!qm_config_has_redis(s->config)) {
        s->rows = qm_rows_new(s->row_store, max_lag);
        return s->rows;
    }
    if (rows_redis_start(s) == -1)
        return false;
    place = qm_redis_place(s->redis);
    s->rows = qm_rows_new_at(&place, max_lag);
    return s->rows;
}

/* False: plain keys may be lost. */
static bool close_stores(struct server *s)
{
    int error;

    if (s->row_store)
        qmstore_close(s->row_store);
    error = s->plain_store ? qmstore_close(s->plain_store) : 0;
    if (error)
        fprintf(stderr, "qm-rowcache: plain keys cannot be written: %s\n",
                strerror(error));
    return !error;
}

/* --- the database --- */

static struct qm_fill_settings fill_settings(const struct qm_config *c)
{
    return (struct qm_fill_settings){
        .server = {c->host, (unsigned)c->port, c->database_socket},
        .user = c->user,
        .password = c->database_password,
        .tls = {.ca = c->database_tls_ca,
                .cert = c->database_tls_cert,
                .key = c->database_tls_key,
                .verify = c->database_tls_verify,
                .verify_given = c->database_tls_verify_given},
        .connections = (unsigned)c->connections,
        .queue = (unsigned)c->queue,
        .timeout_ms = (unsigned)c->timeout,
    };
}

static bool start_following(struct server *s, const struct qm_fill_settings *fill)
{
    const struct qm_config *c = s->config;
    struct qm_follow_settings settings = {
        .servers = &fill->server,
        .servers_count = 1,
        .user = fill->user,
        .password = fill->password,
        .tls = fill->tls,
        .server_id = (uint32_t)c->server_id,
        .max_lag_ms = (unsigned)c->max_lag,
        .timeout_ms = (unsigned)c->timeout,
    };
    struct qm_follow_callbacks calls = {.message = say};

    if (!c->follow) {
        say(NULL, "follow is off: nothing is kept, each read goes to the database");
        return true;
    }
    qm_rows_callbacks(s->rows, &calls);
    s->follow = qm_follow_start(&settings, &calls);
    if (!s->follow)
        fprintf(stderr, "qm-rowcache: the binary log cannot be followed: %s\n",
                strerror(errno));
    return s->follow;
}

/* --- start and end --- */

/* Each client needs a file, and so do stores, the pool, the follower and listeners. */
static bool raise_files(struct server *s)
{
    const struct qm_config *c = s->config;
    /* Most that CONFIG SET maxclients can ask for. */
    rlim_t others = c->connections + FILES_OF_OTHERS + (c->metrics ? METRICS_MOST : 0);
    rlim_t most = 1000000 + others;
    struct rlimit limit;

    s->max_clients = c->max_clients;
    s->clients_most = UINT64_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == -1)
        return true;
    if (limit.rlim_cur < most && limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {limit.rlim_max < most ? limit.rlim_max : most,
                                limit.rlim_max};

        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    if (limit.rlim_cur <= others) {
        fprintf(stderr,
                "qm-rowcache: only %llu files may be open, and %llu are needed without "
                "clients: raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)\n",
                (unsigned long long)limit.rlim_cur, (unsigned long long)others);
        return false;
    }
    s->clients_most = limit.rlim_cur - others;
    if (s->clients_most < s->max_clients) {
        fprintf(stderr,
                "qm-rowcache: max-clients is %llu, not %llu: only %llu files may be "
                "open\n",
                (unsigned long long)s->clients_most, (unsigned long long)s->max_clients,
                (unsigned long long)limit.rlim_cur);
        s->max_clients = s->clients_most;
    }
    return true;
}

static int serve(const struct qm_config *config)
{
    struct server s = {.config = config, .started = qm_rows_now(), .tick = 1};
    struct qm_fill_settings settings = fill_settings(config);
    struct event *term = NULL, *interrupt = NULL, *hangup = NULL, *sweeping = NULL;
    struct timeval often = {0, SWEEP_MS * 1000};
    int status = 1;

    s.max_lag = config->max_lag;
    s.done_fd = -1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);           /* all is read later */
    mysql_library_init(0, NULL, NULL); /* before there are threads */
    if (!raise_files(&s))
        return 1;
    if (config->follow && qm_binlog_check(&settings) == -1)
        return 1;
    s.base = event_base_new();
    hangup = s.base ? evsignal_new(s.base, SIGHUP, reload, &s) : NULL;
    if (!hangup || event_add(hangup, NULL) == -1 || !open_stores(&s))
        goto out;
    if (!make_rows(&s) || rows_start(&s) == -1) {
        say(NULL, "out of memory");
        goto out;
    }
    s.fill = qm_fill_start(&settings, s.rows, &s.tick, rows_done, &s);
    if (!s.fill || readahead_start(&s) == -1 || !start_following(&s, &settings))
        goto out;
    if (listen_start(&s) == -1)
        goto out;
    term = evsignal_new(s.base, SIGTERM, end, &s);
    interrupt = evsignal_new(s.base, SIGINT, end, &s);
    sweeping = event_new(s.base, -1, EV_PERSIST, sweep, &s);
    if (!term || !interrupt || !sweeping || event_add(term, NULL) == -1 ||
        event_add(interrupt, NULL) == -1 || event_add(sweeping, &often) == -1)
        goto out;
    say(NULL, "ready");
    event_base_dispatch(s.base);
    say(NULL, "ending");
    status = 0;
out:
    listen_end(&s);
    metrics_end(&s);
    if (s.follow)
        qm_follow_stop(s.follow);
    if (s.readahead)
        readahead_set(&s, "off"); /* the pool is given nothing more */
    qm_fill_stop(s.fill);
    s.fill = NULL;
    /* What is answered now is the last: no command asks a pool that has ended. */
    for (struct client *c = s.clients; c; c = c->next)
        c->closing = true;
    rows_redis_end(&s);
    if (s.done_event)
        rows_end(&s);
    readahead_end(&s);
    while (s.clients)
        client_free(s.clients);
    if (sweeping)
        event_free(sweeping);
    if (term)
        event_free(term);
    if (interrupt)
        event_free(interrupt);
    if (hangup)
        event_free(hangup);
    qm_rows_free(s.rows);
    if (!close_stores(&s))
        status = 1;
    if (s.base)
        event_base_free(s.base);
    libevent_global_shutdown();
    mysql_library_end();
    return status;
}

/* --- the command line --- */

struct options {
    const char *path;
    bool check, print;
};

static const struct argp_option argp_options[] = {
    {"check", 'c', NULL, 0, "Say what is wrong with FILE, and start nothing", 0},
    {"print", 'p', NULL, 0, "Print all settings, and start nothing", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case 'c':
        o->check = true;
        return 0;
    case 'p':
        o->print = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one FILE, please");
        o->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->path)
            argp_error(state, "which FILE?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        argp_options,
        parse,
        "FILE",
        "Serve rows of MariaDB by the Redis protocol, as FILE describes it.\v"
        "See quickmine-rowcache(1).  Exit status: 0, 1 if it failed, 2 for wrong "
        "usage.",
        NULL,
        NULL,
        NULL};
    struct options options = {0};
    struct qm_config config;
    int status;

    argp_err_exit_status = 2;
    argp_program_version = "qm-rowcache " QM_VERSION;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    setvbuf(stderr, NULL, _IOLBF, 0);
    status = qm_config_read(&config, options.path) == 0 ? 0 : 1;
    if (status == 0 && options.print)
        qm_config_print(&config);
    else if (status == 0 && !options.check)
        status = serve(&config);
    qm_config_free(&config);
    return status;
}
