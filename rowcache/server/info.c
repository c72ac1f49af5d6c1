/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c - INFO, and the same for Prometheus; see server.h. */
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rowcache/server/server.h"

static void add(struct qm_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct qm_text *text, const char *format, ...)
{
    char line[QM_GTID_TEXT + 200];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        qm_text_add(text, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* One number, in INFO and as a metric. */
struct number {
    const char *section, *name, *help;
    bool gauge;
    double value;
};

enum { NUMBERS = 96 };

static size_t collect(struct server *s, struct number *to)
{
    struct qm_rows_stats rows;
    struct qm_fill_stats fill;
    struct readahead_stats ahead;
    struct qmstore_stats kept = {0}, plain;
    struct qm_redis_stats redis = {0};
    size_t n = 0;

    qm_rows_get_stats(s->rows, &rows);
    qm_fill_get_stats(s->fill, &fill);
    readahead_get(s, &ahead);
    if (s->row_store)
        qmstore_get_stats(s->row_store, &kept);
    if (s->redis)
        qm_redis_get_stats(s->redis, &redis);
    qmstore_get_stats(s->plain_store, &plain);
#define N(section, name, gauge, value, help)                                           \
    to[n++] = (struct number){section, name, help, gauge, (double)(value)}
    N("clients", "connected_clients", true, s->clients_count, "Connections");
    N("clients", "client_buffers_bytes", true, s->in_bytes,
      "Received, not carried out");
    N("stats", "total_connections_received", false, s->connections, "Connections ever");
    N("stats", "rejected_connections", false, s->rejected, "Refused: max-clients");
    N("stats", "accept_failures", false, s->accept_failures,
      "Connections had to wait: too many files");
    N("stats", "total_commands_processed", false, s->commands, "Commands");
    N("stats", "total_error_replies", false, s->errors, "Errors replied");
    N("stats", "protocol_errors", false, s->protocol_errors, "Wrong input");
    N("stats", "http_requests", false, s->http_requests,
      "Connections closed: they sent POST or Host:");
    N("stats", "keyspace_hits", false, s->hits, "Rows found");
    N("stats", "absent_hits", false, s->absent_hits, "Found that there is none");
    N("stats", "keyspace_misses", false, s->misses, "Rows asked from MariaDB");
    N("stats", "shared_reads", false, s->shared, "Joined another's read");
    N("stats", "early_reads", false, s->early,
      "Begun while an earlier command of the pipeline waited");
    N("stats", "cancelled_reads", false, s->cancelled,
      "Not made: the client went before");
    N("rowcache", "following", true, rows.following, "Whether the log is followed");
    N("rowcache", "behind_seconds", true, rows.behind,
      "Since the last proof; -1: none");
    N("rowcache", "stored", false, rows.stored, "Rows stored");
    N("rowcache", "raced", false, rows.raced, "Not stored: changed meanwhile");
    N("rowcache", "unsettled", false, rows.unsettled, "Not stored: commit not settled");
    N("rowcache", "waiting", true, rows.waiting, "Stored when the log is applied");
    N("rowcache", "invalidations", false, rows.invalidations, "Changed rows");
    N("rowcache", "tables_emptied", false, rows.tables_emptied, "Changed tables");
    N("rowcache", "gaps", false, rows.gaps, "All dropped");
#define RULE(name, i)                                                                  \
    N("readahead", "readahead_" name "_asked", false, ahead.asked[i], "Rows wanted");  \
    N("readahead", "readahead_" name "_fetched", false, ahead.fetched[i],              \
      "Rows that came from MariaDB");                                                  \
    N("readahead", "readahead_" name "_stored", false, rows.stored_of[i + 1],          \
      "Rows stored");                                                                  \
    N("readahead", "readahead_" name "_used", false, ahead.used[i],                    \
      "Rows that a client read then");                                                 \
    N("readahead", "readahead_" name "_wasted", false, ahead.wasted[i],                \
      "Rows that changed or went before a client read them");                          \
    N("readahead", "readahead_" name "_us", false, ahead.us[i],                        \
      "The database's time for rows that auto asked for")
    RULE("sa", 0);
    RULE("ta", 1);
    RULE("fa", 2);
    RULE("mined", 3);
#undef RULE
    N("readahead", "readahead_kept", false, ahead.kept, "Wanted rows that were kept");
    N("readahead", "readahead_dropped", false, ahead.dropped,
      "Wanted rows that were not asked for: reads waited, or the log was behind");
    N("readahead", "readahead_queries", false, fill.ahead_queries,
      "SELECTs, of database_queries");
    N("readahead", "readahead_failed", false, ahead.failed, "SELECTs that failed");
    N("readahead", "readahead_passive", false, ahead.passive, "Started by a miss");
    N("readahead", "readahead_proactive", false, ahead.proactive, "Started by T_h");
    N("readahead", "readahead_closed", false, ahead.closed,
      "Not started: the processors were busy");
    N("readahead", "readahead_price", true, ahead.price,
      "What auto asks of a rule: the database's time that it saves, a time that it "
      "takes");
    N("readahead", "readahead_read_us", true, ahead.read_us,
      "A read's time in the database, as auto knows it");
    N("readahead", "readahead_cpu_busy", true, ahead.cpu,
      "Busy part of this machine's processors");
    N("database", "database_connections", true, fill.connected, "Open now");
    N("database", "database_connects", false, fill.connects, "Opened ever");
    N("database", "database_queries", false, fill.queries, "SELECTs");
    N("database", "database_errors", false, fill.errors, "Errors of the database");
    N("database", "database_waiting", true, fill.waiting, "Reads that wait");
    N("database", "database_refused", false, fill.refused,
      "Refused: the queue is full");
    if (s->redis) {
        N("redis", "redis_up", true, redis.up, "Rows are kept in Redis");
        N("redis", "redis_connects", false, redis.connects, "Taken over, empty");
        N("redis", "redis_losses", false, redis.losses, "Connections given up");
        N("redis", "redis_dispossessed", false, redis.dispossessed,
          "Found to be taken or emptied by others");
        N("redis", "redis_lookups", false, redis.lookups, "Rows looked for");
        N("redis", "redis_found", false, redis.found, "Rows found");
        N("redis", "redis_waiting", true, redis.waiting, "Commands that wait");
        N("redis", "redis_put_errors", false, redis.put_errors,
          "Rows that Redis did not take");
        N("redis", "redis_rows", true, redis.keys, "As last counted; -1: not known");
    }
    N("store", "rows_kept", true, kept.keys, "Rows, and absent ones");
    N("store", "rows_in_memory", true, kept.memory_keys, "Of them in memory");
    N("store", "rows_memory_bytes", true, kept.memory, "Memory of rows");
    N("store", "rows_disk_bytes", true, kept.disk, "Disk of rows");
    N("store", "rows_disk_refuses", true, kept.error != 0, "The disk takes no rows");
    N("store", "plain_keys", true, plain.keys, "Keys of database 1");
    N("store", "plain_in_memory", true, plain.memory_keys, "Of them in memory");
    N("store", "plain_memory_bytes", true, plain.memory, "Memory of keys");
    N("store", "plain_disk_bytes", true, plain.disk, "Disk of keys");
    N("store", "plain_disk_refuses", true, plain.error != 0, "The disk takes no keys");
    N("store", "plain_lost", false, plain.lost, "Changes lost by a crash");
#undef N
    return n;
}

static void add_server(struct server *s, struct qm_text *text)
{
    add(text,
        "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n"
        "server_name:qm-rowcache\r\nrowcache_version:%s\r\nprocess_id:%ld\r\n"
        "uptime_in_seconds:%" PRIu64 "\r\n\r\n",
        QM_VERSION, (long)getpid(), (qm_rows_now() - s->started) / 1000000000);
}

void info_number(double value, char *text, size_t size)
{
    bool whole = value > -1e15 && value < 1e15 && value == (double)(int64_t)value;

    snprintf(text, size, whole ? "%.0f" : "%.10g", value);
}

/* What is text, behind the numbers of its section. */
static void add_texts(struct server *s, struct qm_text *text, const char *section)
{
    struct qm_rows_stats rows;
    struct qm_fill_stats fill;
    char position[QM_GTID_TEXT];

    if (strcmp(section, "rowcache") == 0) {
        qm_rows_get_stats(s->rows, &rows);
        add(text, "applied:%s\r\n", qm_gtid_print(&rows.applied, position));
        add(text, "not_following_because:%s\r\n", rows.why);
    } else if (strcmp(section, "readahead") == 0) {
        readahead_add_tables(s, text);
    } else if (strcmp(section, "redis") == 0) {
        struct qm_redis_stats redis;

        qm_redis_get_stats(s->redis, &redis);
        for (char *p = redis.why; *p; p++)
            if (*p == '\r' || *p == '\n')
                *p = ' ';
        add(text, "redis_last_error:%s\r\n", redis.why);
    } else if (strcmp(section, "database") == 0) {
        qm_fill_get_stats(s->fill, &fill);
        for (char *p = fill.error; *p; p++)
            if (*p == '\r' || *p == '\n')
                *p = ' ';
        add(text, "database_last_error:%s\r\n", fill.error);
    }
}

static bool wanted(struct client *c, const char *section)
{
    for (unsigned i = 1; i < word_count(c); i++)
        if (word_is(c, i, section) || word_is(c, i, "all") ||
            word_is(c, i, "everything") || word_is(c, i, "default"))
            return true;
    return word_count(c) == 1;
}

void cmd_info(struct client *c)
{
    struct server *s = c->server;
    struct number numbers[NUMBERS];
    size_t n = collect(s, numbers);
    struct qm_text text = {0};
    char value[32];

    if (wanted(c, "server"))
        add_server(s, &text);
    for (size_t i = 0; i < n; i++) {
        const char *section = numbers[i].section;

        if (!wanted(c, section))
            continue;
        if (i == 0 || strcmp(numbers[i - 1].section, section) != 0)
            add(&text, "# %c%s\r\n", section[0] - 32, section + 1);
        info_number(numbers[i].value, value, sizeof value);
        add(&text, "%s:%s\r\n", numbers[i].name, value);
        if (i + 1 == n || strcmp(numbers[i + 1].section, section) != 0) {
            add_texts(s, &text, section);
            add(&text, "\r\n");
        }
    }
    qm_reply_bulk(&c->out, text.bytes, text.length);
    qm_text_free(&text);
}

void info_metrics(struct server *s, struct evbuffer *out)
{
    struct number numbers[NUMBERS];
    size_t n = collect(s, numbers);

    for (size_t i = 0; i < n; i++) {
        const char *name = numbers[i].name;
        bool total = strncmp(name, "total_", 6) == 0;

        name += total ? 6 : 0;
        evbuffer_add_printf(out,
                            "# HELP quickmine_rowcache_%s%s %s.\n"
                            "# TYPE quickmine_rowcache_%s%s %s\n"
                            "quickmine_rowcache_%s%s %.17g\n",
                            name, numbers[i].gauge ? "" : "_total", numbers[i].help,
                            name, numbers[i].gauge ? "" : "_total",
                            numbers[i].gauge ? "gauge" : "counter", name,
                            numbers[i].gauge ? "" : "_total", numbers[i].value);
    }
}
