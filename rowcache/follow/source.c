/* SPDX-License-Identifier: BSD-3-Clause */
/* source.c - the follower's thread: connects to one server after the other, and reads
 * its log. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rowcache/follow/internal.h"

/* After mysql.h, which it needs. */
#include <mariadb_rpl.h>

#define PAUSE_FIRST 50 /* ms, before a new connection; doubled each time */
#define PAUSE_LAST  2000
/* MariaDB answers a question about all tables when it has opened them all. */
#define CATALOGUE_MS    60000
#define BEHIND_TIMEOUTS 10   /* for which a server may be behind */
#define NOT_IN_LOG      1236 /* ER_MASTER_FATAL_ERROR_READING_BINLOG */

/* The MySQL protocol's own function; libmariadb exports it without declaring it. */
unsigned long mysql_net_read_packet(MYSQL *mysql);

struct qm_place qm_place_of(const char *file, uint64_t position)
{
    const char *dot = strrchr(file, '.');
    char *rest;
    struct qm_place place = {UINT64_MAX, position};

    if (dot && dot[1] >= '0' && dot[1] <= '9') {
        place.file = strtoull(dot + 1, &rest, 10);
        if (*rest)
            place.file = UINT64_MAX;
    }
    return place;
}

bool qm_place_reaches(struct qm_place at, struct qm_place place)
{
    return at.file > place.file ||
           (at.file == place.file && at.position >= place.position);
}

void qm_pending_add(struct qm_follow *follow, uint64_t number, struct qm_place place)
{
    unsigned last = follow->pending_first + follow->pending_count;

    if (follow->pending_count == QM_PENDING)
        last--; /* the last two become one, which is settled later */
    else
        follow->pending_count++;
    follow->pending[last % QM_PENDING] = (struct qm_pending){number, place};
}

void qm_pending_settle(struct qm_follow *follow, struct qm_place committed)
{
    uint64_t number = 0;

    while (follow->pending_count > 0) {
        struct qm_pending *first = follow->pending + follow->pending_first % QM_PENDING;

        if (!qm_place_reaches(committed, first->place))
            break;
        number = first->number;
        follow->pending_first = (follow->pending_first + 1) % QM_PENDING;
        follow->pending_count--;
    }
    if (number > 0)
        follow->calls.settled(follow->calls.opaque, number);
}

/* What has to be known of a server. */
struct server {
    bool crc, lower_case; /* for the parser */
    struct qm_life life;
};

/* What the log has to be like. */
static bool check_server(struct qm_follow *follow, struct server *server, char *why)
{
    static const char statement[] =
        "SELECT @@log_bin, @@binlog_checksum = 'CRC32', @@lower_case_table_names,"
        " VERSION(), @@log_slave_updates, @@gtid_slave_pos, VARIABLE_VALUE,"
        " CONNECTION_ID(), @@server_id,"
        " (SELECT COUNT(*) FROM information_schema.GLOBAL_VARIABLES WHERE"
        " VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON' OR"
        " VARIABLE_NAME = 'WSREP_PROVIDER' AND VARIABLE_VALUE NOT IN ('none', '')),"
        " (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE"
        " VARIABLE_NAME = 'SLAVES_RUNNING')"
        " FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'";
    MYSQL_RES *result = qm_connection_ask(&follow->catalogue, statement, why);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    bool good = false;

    if (row && !strstr(row[3], "MariaDB"))
        snprintf(why, QM_WHY, "the server is not MariaDB but %.60s", row[3]);
    else if (row && strcmp(row[0], "1") != 0)
        snprintf(why, QM_WHY,
                 "the server writes no binary log: put log_bin under [mysqld]");
    else if (row && strcmp(row[4], "1") != 0 &&
             ((row[5] && *row[5]) || (row[10] && strcmp(row[10], "0") != 0)))
        snprintf(why, QM_WHY,
                 "the server is a replica that does not log what it applies: put"
                 " log_slave_updates under [mysqld], or, if it is none any more, empty"
                 " its gtid_slave_pos");
    else if (row && strcmp(row[4], "1") != 0 && row[9] && strcmp(row[9], "2") == 0)
        snprintf(why, QM_WHY,
                 "the server is a node of a Galera cluster that does not log what"
                 " others write: put log_slave_updates under [mysqld]");
    else
        good = row != NULL;
    if (good) {
        server->crc = strcmp(row[1], "1") == 0;
        server->lower_case = strcmp(row[2], "0") != 0;
        server->life = (struct qm_life){
            .server = row[8] ? (uint32_t)strtoull(row[8], NULL, 10) : 0,
            .up = row[6] ? strtoull(row[6], NULL, 10) : 0,
            .connection = row[7] ? strtoull(row[7], NULL, 10) : 0,
        };
    }
    mysql_free_result(result);
    return good;
}

/* Where the server's log ends. */
static bool log_end(struct qm_follow *follow, struct qm_place *place, char *why)
{
    MYSQL_RES *result =
        qm_connection_ask(&follow->catalogue, "SHOW MASTER STATUS", why);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;

    if (row && ((row[2] && *row[2]) || (row[3] && *row[3]))) {
        snprintf(why, QM_WHY,
                 "binlog_do_db or binlog_ignore_db is set: not all changes"
                 " are in the binary log");
        row = NULL;
    } else if (row)
        *place = qm_place_of(row[0], strtoull(row[1], NULL, 10));
    else if (result)
        snprintf(why, QM_WHY, "SHOW MASTER STATUS says nothing");
    mysql_free_result(result);
    return row != NULL;
}

static void start_anew(struct qm_follow *follow, const struct qm_gtid_list *position,
                       const char *why)
{
    qm_catalogue_defined(follow->tables, NULL, NULL);
    pthread_mutex_lock(&follow->lock);
    follow->number++;
    follow->info.gaps++;
    follow->info.applied = *position;
    follow->known = true;
    follow->file = (struct qm_log_file){0};
    follow->calls.gap(follow->calls.opaque, follow->number, why);
    follow->calls.applied(follow->calls.opaque, follow->number, &follow->info.applied);
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->lock);
}

static void lose(struct qm_follow *follow, const char *why)
{
    pthread_mutex_lock(&follow->lock);
    follow->generation = 0;
    follow->info.following = false;
    follow->calls.following(follow->calls.opaque, false, why);
    pthread_mutex_unlock(&follow->lock);
}

/* Follows once what is aimed at has been applied. */
static void look_at_target(struct qm_follow *follow)
{
    pthread_mutex_lock(&follow->lock);
    if (!follow->info.following &&
        qm_gtid_covers(&follow->info.applied, &follow->target)) {
        follow->info.following = true;
        follow->calls.following(follow->calls.opaque, true, "");
    }
    pthread_mutex_unlock(&follow->lock);
}

/* The dump connection, asked for the log from where we are. */
static bool open_dump(struct qm_follow *follow, const struct qm_follow_server *server,
                      uint32_t id, bool crc, char *why)
{
    unsigned period_ms = follow->settings.timeout_ms / 3 + 1;
    char position[QM_GTID_TEXT], statement[QM_GTID_TEXT + 64];
    MARIADB_RPL *rpl;
    bool good;

    if (!qm_connection_open(&follow->dump, &follow->settings, server,
                            follow->settings.timeout_ms, why) ||
        !qm_connection_is_of(&follow->dump, id, why))
        return false;
    snprintf(statement, sizeof statement, "SET @master_heartbeat_period = %" PRIu64,
             period_ms * UINT64_C(1000000));
    if (!qm_connection_tell(&follow->dump, statement, why))
        return false;
    snprintf(statement, sizeof statement,
             "SET @mariadb_slave_capability = 4, @master_binlog_checksum = '%s'",
             crc ? "CRC32" : "NONE");
    if (!qm_connection_tell(&follow->dump, statement, why))
        return false;
    pthread_mutex_lock(&follow->lock);
    qm_gtid_print(&follow->info.applied, position);
    pthread_mutex_unlock(&follow->lock);
    snprintf(statement, sizeof statement, "SET @slave_connect_state = '%s'", position);
    if (!qm_connection_tell(&follow->dump, statement, why) ||
        !qm_connection_tell(&follow->dump,
                            "SET @slave_gtid_strict_mode = 0,"
                            " @slave_gtid_ignore_duplicates = 0",
                            why))
        return false;
    rpl = mariadb_rpl_init(follow->dump.mysql);
    if (!rpl) {
        snprintf(why, QM_WHY, "no memory");
        return false;
    }
    mariadb_rpl_optionsv(rpl, MARIADB_RPL_SERVER_ID, follow->settings.server_id);
    good = mariadb_rpl_open(rpl) == 0;
    if (!good)
        snprintf(why, QM_WHY, "%s (%u)", mysql_error(follow->dump.mysql),
                 mysql_errno(follow->dump.mysql));
    mariadb_rpl_close(rpl);
    return good;
}

/* Whether the server lacks what was applied, and may get it: a replica that has taken
 * the place of its primary before it had all of its log.  The same server has lost it,
 * by a crash or a reset.  To follow the other means to go back, and is a gap; which is
 * better than to wait without end for what was lost. */
static bool is_behind(struct qm_follow *follow, const struct server *server,
                      const struct qm_gtid_list *position, char *why)
{
    uint64_t now = qm_monotonic();
    bool covers;

    pthread_mutex_lock(&follow->lock);
    covers = qm_gtid_covers(position, &follow->info.applied);
    pthread_mutex_unlock(&follow->lock);
    if (!follow->known || covers || server->life.server == follow->life.server) {
        follow->behind = 0;
        return false;
    }
    if (follow->behind == 0)
        follow->behind = now;
    if (now - follow->behind >
        BEHIND_TIMEOUTS * (uint64_t)follow->settings.timeout_ms * 1000000)
        return false;
    snprintf(why, QM_WHY, "the server is behind what another had committed");
    return true;
}

/* Why a server that has not restarted must be followed anew; or NULL.  In a new log the
 * same GTIDs are others. */
static const char *why_anew(struct qm_follow *follow, const struct server *server,
                            struct qm_place place)
{
    const char *why = NULL;

    pthread_mutex_lock(&follow->lock);
    if (follow->anew && server->life.server == follow->anew_of)
        why = follow->anew;
    else if (server->life.server == follow->life.server &&
             !qm_place_reaches(place, follow->seen))
        why = "the server's log was reset";
    pthread_mutex_unlock(&follow->lock);
    return why;
}

/* Both connections; the position to start from if there is none. */
static bool open_both(struct qm_follow *follow, char *why)
{
    const struct qm_follow_server *address =
        follow->settings.servers + follow->info.server;
    struct qm_gtid_list position;
    struct qm_place place;
    struct server server;
    const char *anew;
    unsigned patience = follow->settings.timeout_ms > CATALOGUE_MS
                            ? follow->settings.timeout_ms
                            : CATALOGUE_MS;

    if (!qm_connection_open(&follow->catalogue, &follow->settings, address, patience,
                            why) ||
        !check_server(follow, &server, why) ||
        !qm_connection_position(&follow->catalogue, &position, NULL, why) ||
        !log_end(follow, &place, why))
        return false;
    if (is_behind(follow, &server, &position, why))
        return false;
    if (!follow->known)
        start_anew(follow, &position, "a new start");
    else if (qm_may_have_restarted(&follow->life, &server.life,
                                   (qm_monotonic() - follow->heard) / 1000000000))
        start_anew(follow, &position, "the server has restarted");
    else if ((anew = why_anew(follow, &server, place)))
        start_anew(follow, &position, anew);
    qm_binlog_reset(follow->binlog, server.crc, server.lower_case);
    follow->broken[0] = '\0';
    if (!open_dump(follow, address, server.life.server, server.crc, why))
        return false;
    follow->heard = qm_monotonic();
    pthread_mutex_lock(&follow->lock);
    follow->life = server.life;
    follow->seen = place;
    if (server.life.server == follow->anew_of)
        follow->anew = NULL;
    if (follow->calls.server)
        follow->calls.server(follow->calls.opaque, server.life.server);
    follow->target = position;
    /* Nothing of an earlier connection is known to be committed before all is that is
     * in the log now. */
    follow->pending_count = 0;
    qm_pending_add(follow, follow->number, place);
    follow->info.connects++;
    follow->generation = ++follow->generations;
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->lock);
    return true;
}

static bool is_stopping(struct qm_follow *follow)
{
    bool stop;

    pthread_mutex_lock(&follow->lock);
    stop = follow->stop;
    pthread_mutex_unlock(&follow->lock);
    return stop;
}

/* What the connection was cut for. */
static void explain_cut(struct qm_follow *follow, char *why)
{
    pthread_mutex_lock(&follow->lock);
    if (follow->anew && follow->anew_of == follow->life.server)
        snprintf(why, QM_WHY, "%s", follow->anew);
    pthread_mutex_unlock(&follow->lock);
}

/* Reads until the connection ends, with why.  *heard: the server sends its log to us.
 * False: not without a gap. */
static bool read_log(struct qm_follow *follow, bool *heard, char *why)
{
    MYSQL *mysql = follow->dump.mysql;

    for (;;) {
        unsigned long size = mysql_net_read_packet(mysql);
        const uint8_t *packet = mysql->net.read_pos;
        const char *wrong;

        if (size == packet_error) {
            snprintf(why, QM_WHY, "%s (%u)", mysql_error(mysql), mysql_errno(mysql));
            return mysql_errno(mysql) != NOT_IN_LOG;
        }
        if (size == 0 || packet[0] != 0) {
            snprintf(why, QM_WHY, "the server ended its log");
            return true;
        }
        if (!*heard)
            qm_say(follow, "follows the binary log of server %u",
                   follow->info.server + 1);
        *heard = true;
        wrong = qm_binlog_event(follow->binlog, packet + 1, size - 1);
        if (wrong) {
            snprintf(why, QM_WHY, "%s", wrong);
            return false;
        }
        if (follow->broken[0]) {
            snprintf(why, QM_WHY, "%s", follow->broken);
            return true;
        }
        follow->heard = qm_monotonic();
        pthread_mutex_lock(&follow->lock);
        follow->info.events++;
        pthread_mutex_unlock(&follow->lock);
        look_at_target(follow);
    }
}

void *qm_follow_thread(void *opaque)
{
    struct qm_follow *follow = opaque;
    unsigned pause = PAUSE_FIRST;
    struct qm_saying said = {0};
    char why[QM_WHY] = "";

    mysql_thread_init();
    while (!is_stopping(follow)) {
        bool opened = open_both(follow, why), whole = true, heard = false;

        if (opened)
            whole = read_log(follow, &heard, why);
        if (opened)
            explain_cut(follow, why);
        if (heard) {
            pause = PAUSE_FIRST;
            said.at = 0;
        }
        if (!is_stopping(follow)) {
            lose(follow, why);
            if (qm_is_news(&said, why))
                qm_say(follow, "does not follow server %u: %s", follow->info.server + 1,
                       why);
        }
        qm_connection_close(&follow->dump);
        qm_connection_close(&follow->catalogue);
        pthread_mutex_lock(&follow->lock);
        if (!whole)
            follow->known = false;
        if (!opened || whole) /* a gap is no reason to go elsewhere */
            follow->info.server =
                (follow->info.server + 1) % follow->settings.servers_count;
        if (!follow->stop) /* a lost connection is tried again at once, elsewhere */
            qm_pause(follow, pause);
        pthread_mutex_unlock(&follow->lock);
        pause = pause * 2 > PAUSE_LAST ? PAUSE_LAST : pause * 2;
    }
    mysql_thread_end();
    return NULL;
}
