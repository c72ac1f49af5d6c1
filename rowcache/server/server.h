/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - the parts of qm-rowcache's server of the Redis protocol.
 *
 * One thread, libevent's loop, runs all of it but the pool of fill.h: commands are
 * carried out one after the other, hits on the spot.  A command that needs rows from
 * MariaDB blocks its connection until they are there; those behind it on the
 * connection wait, while their rows are read; others go on.
 *
 *   listen.c    sockets, TLS, new connections
 *   client.c    a connection: reading, writing, bounds
 *   rows-ask.c  asking for rows of MariaDB: single flight
 *   rows-early.c  rows that are read before their command is carried out
 *   rows-commands.c  database 0: the commands
 *   pipeline.c  reads that wait behind another: their rows are asked for
 *   rows-redis.c  rows that are kept in a Redis
 *   plain.c     database 1: plain keys over libqmstore
 *   general.c   PING, HELLO, CLIENT, COMMAND, CONFIG, ...
 *   readahead.c rows that no client has asked for yet
 *   info.c      INFO, and the same for Prometheus
 *   metrics.c   the page at which that is
 *   main.c      configuration, start and end */
#ifndef QM_ROWCACHE_SERVER_H
#define QM_ROWCACHE_SERVER_H

#include <event2/event.h>
#include <openssl/ssl.h>
#include <uthash.h>

#include "rowcache/fill/fill.h"
#include "rowcache/readahead/auto.h"
#include "rowcache/redis/redis.h"
#include "rowcache/rows.h"
#include "rowcache/server/config.h"
#include "rowcache/server/resp.h"

#define SAY_AGAIN         (UINT64_C(60) * 1000000000) /* ns between lines of one kind */
#define QM_REPLY_TOO_LONG "ERR the reply is longer than max-reply"

struct request;
struct flight;
struct listener;
struct page;
struct readahead;

/* Rows that were asked for early, before their command was carried out. */
enum { EARLY_MOST = 64 };
struct early_row {
    uint64_t key, took; /* its hash, 0: none; ns */
};
struct early {
    struct flight *flying;
    unsigned count;           /* of them */
    struct early_row *landed; /* EARLY_MOST that are not yet asked for, or NULL */
    unsigned landed_count;
};

struct client {
    struct server *server;
    struct client *next, *prev;
    uint64_t id, created, last; /* ns */
    int fd;
    SSL *ssl; /* NULL: plain */
    struct event *readable, *writable;
    char *in; /* what came: bytes from in_at on are not yet commands */
    size_t in_at, in_length, in_room;
    size_t in_bytes; /* the buffer, and the words in it */
    struct qm_resp resp;
    struct qm_text out; /* replies: bytes from out_at on are not yet sent */
    size_t out_at;
    size_t used;   /* bytes of the command that is being carried out */
    size_t looked; /* from in_at on: rows of the commands there are asked for */
    struct early early;
    bool writing, closing;
    unsigned db;
    bool resp3, trusted;
    bool mute, skip_next, skip; /* CLIENT REPLY: all; the next one; this one */
    char name[65], library[65], library_version[33], address[80];
    const char *command; /* the last one's name */
    struct qm_reader reader;
    uint64_t last_read;      /* the tick of the last row that it was given */
    struct request *request; /* it waits for rows; NULL: it does not */
};

struct server {
    const struct qm_config *config;
    struct event_base *base;
    struct qm_rows *rows;
    struct qmstore *row_store, *plain_store; /* row_store: NULL with redis */
    struct qm_redis *redis;                  /* or NULL */
    struct event *redis_fresh;
    struct qm_fill *fill;
    struct qm_follow *follow;
    struct readahead *readahead;
    SSL_CTX *tls;
    struct listener *listeners;
    struct page *pages; /* connections for metrics, the newest first */
    struct client *clients;
    uint64_t clients_count, next_id, started;
    uint64_t in_bytes;  /* of all clients' input */
    uint64_t in_beyond; /* of it what is of input-memory */
    uint64_t now;       /* ns, of this wake-up */
    uint64_t max_lag;   /* ms */
    _Atomic uint64_t tick;

    struct flight *flights; /* the newest of each key */
    bool calm;              /* the last row that was read could be kept at once */
    pthread_mutex_t done_lock;
    struct qm_fill_job *done; /* by the pool, not yet answered */
    struct event *done_event;
    int done_fd;

    uint64_t connections, rejected, commands, errors, hits, absent_hits, misses, shared,
        early, cancelled, max_clients, protocol_errors, http_requests, accept_failures;
    uint64_t clients_most;            /* that there are files for */
    struct event *again;              /* when listening goes on; NULL: it does */
    uint64_t said_failure, said_http; /* ns; 0: never */
};

/* A command: words of the client's input are valid during the call. */
struct command {
    const char *name;
    int arity; /* as Redis: negative: at least */
    unsigned flags;
    void (*run)(struct client *c);
    void (*plain)(struct client *c); /* in database 1; NULL: run */
    const char *group, *summary;
};
enum { COMMAND_BEFORE_AUTH = 1, COMMAND_WRITES = 2, COMMAND_READS = 4 };

extern const struct command qm_commands[];
const struct command *qm_command_find(const char *name, size_t length);
/* Word 1 names a key; so do all words behind it. */
bool qm_command_has_key(const struct command *of);
bool qm_command_has_keys(const struct command *of);

/* client.c */
void client_new(struct server *server, int fd, SSL *ssl, const char *address);
void client_free(struct client *c);
void client_go_on(struct client *c);      /* its request is answered */
void client_sweep(struct server *server); /* of clients that have hung up */
void client_reset(struct client *c);
/* The reply from that byte on is not wanted, if CLIENT REPLY says so. */
void client_hush(struct client *c, size_t from);
static inline unsigned word_count(const struct client *c)
{
    return c->resp.count;
}
static inline const char *word(const struct client *c, unsigned i)
{
    return qm_resp_word(&c->resp, c->in + c->in_at, i);
}
static inline size_t word_length(const struct client *c, unsigned i)
{
    return c->resp.word[i].length;
}
bool word_is(const struct client *c, unsigned i, const char *text); /* any case */
bool word_integer(const struct client *c, unsigned i, int64_t *value);
bool text_integer(const char *text, size_t length, int64_t *value);
/* Whether the reply that begins at from is within max-reply; if not, an error takes its
 * place. */
bool client_reply_fits(struct client *c, size_t from);
void client_error(struct client *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* pipeline.c */
void pipeline_look(struct client *c); /* it waits for rows */

/* rows-ask.c */
int rows_start(struct server *server);
void rows_done(void *opaque, struct qm_fill_job *job); /* of the pool's threads */
void rows_abandon(struct client *c);                   /* it goes */
void rows_in_order(struct client *c); /* all that came is carried out */
void rows_end(struct server *server);

/* rows-redis.c */
int rows_redis_start(struct server *server);
void rows_redis_end(struct server *server);
void rows_redis_set_max_lag(struct server *server); /* it is another now */
void rows_redis_dbsize(struct client *c);
/* SCAN, its options read. */
void rows_redis_scan(struct client *c, const char *cursor, const char *pattern,
                     int64_t count);

/* listen.c */
int listen_start(struct server *server);
/* Reads the certificate and key again, for new connections. */
void listen_reload(struct server *server);
void listen_go_on(struct server *server); /* a file was closed */
void listen_end(struct server *server);

/* readahead.c */
enum readahead_preset { READAHEAD_OFF, READAHEAD_SEER, READAHEAD_AUTO };
extern const char *const readahead_presets[];
struct readahead_stats {
    /* by qm_auto_rule; rows */
    uint64_t asked[QM_AUTO_RULES], fetched[QM_AUTO_RULES], used[QM_AUTO_RULES],
        wasted[QM_AUTO_RULES];
    double us[QM_AUTO_RULES]; /* that the database took, for auto */
    uint64_t kept, dropped, failed, passive, proactive, closed;
    double cpu, price, read_us;
    enum readahead_preset preset;
    unsigned rules; /* 1 << QM_AUTO_SA | ... */
};
int readahead_start(struct server *server);
void readahead_end(struct server *server); /* after the pool's and the follower's */
/* A client was given that row; hit: it was kept, else it has waited since then. */
void readahead_read(struct client *c, const char *key, size_t length, const char *row,
                    size_t row_length, bool hit, uint64_t since);
/* An operator has dropped that row; NULL: all. */
void readahead_dropped(struct server *server, const char *key, size_t length);
/* False: there is no preset of that name. */
bool readahead_set(struct server *server, const char *preset);
/* INFO's lines of tables. */
void readahead_add_tables(struct server *server, struct qm_text *text);
void readahead_set_rules(struct server *server, unsigned rules);
void readahead_get(struct server *server, struct readahead_stats *stats);

/* info.c */
struct evbuffer;
/* As INFO has it: a whole number with all its digits, which clients read as such. */
void info_number(double value, char *text, size_t size);
void info_metrics(struct server *server, struct evbuffer *out);

/* metrics.c */
enum { METRICS_MOST = 16 }; /* connections */
void metrics_new(struct server *server, int fd);
void metrics_end(struct server *server);

/* what commands.c lists */
void cmd_get(struct client *c), cmd_mget(struct client *c),
    cmd_exists(struct client *c), cmd_hget(struct client *c),
    cmd_hmget(struct client *c), cmd_hgetall(struct client *c),
    cmd_hkeys(struct client *c), cmd_hvals(struct client *c),
    cmd_hlen(struct client *c), cmd_hexists(struct client *c),
    cmd_ttl(struct client *c), cmd_type(struct client *c), cmd_strlen(struct client *c),
    cmd_del(struct client *c), cmd_flushdb(struct client *c),
    cmd_flushall(struct client *c), cmd_dbsize(struct client *c),
    cmd_scan(struct client *c), cmd_waitgtid(struct client *c),
    cmd_rows_only(struct client *c), cmd_plain_only(struct client *c);
void plain_get(struct client *c), plain_mget(struct client *c),
    plain_exists(struct client *c), plain_ttl(struct client *c),
    plain_type(struct client *c), plain_strlen(struct client *c),
    plain_del(struct client *c), plain_flushdb(struct client *c),
    plain_set(struct client *c), plain_expire(struct client *c),
    plain_incr(struct client *c), plain_persist(struct client *c),
    plain_setnx(struct client *c), plain_setex(struct client *c),
    plain_mset(struct client *c), plain_getset(struct client *c),
    plain_getdel(struct client *c), plain_append(struct client *c);
void cmd_ping(struct client *c), cmd_echo(struct client *c),
    cmd_hello(struct client *c), cmd_auth(struct client *c),
    cmd_select(struct client *c), cmd_quit(struct client *c),
    cmd_reset(struct client *c), cmd_command(struct client *c),
    cmd_client(struct client *c), cmd_config(struct client *c),
    cmd_info(struct client *c), cmd_multi(struct client *c), cmd_time(struct client *c),
    cmd_no_multi(struct client *c), cmd_memory(struct client *c),
    cmd_object(struct client *c), plain_object(struct client *c);

#endif
