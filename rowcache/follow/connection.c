/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.c - a connection to MariaDB; see connection.h. */
#include "rowcache/follow/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WHY 256

static void explain(struct qm_connection *connection, char *why)
{
    snprintf(why, WHY, "%s (%u)", mysql_error(connection->mysql),
             mysql_errno(connection->mysql));
}

void qm_tls_set(MYSQL *mysql, const struct qm_tls *tls)
{
    bool on = tls->ca || tls->cert;
    my_bool verify = tls->verify;

    if (on)
        mysql_ssl_set(mysql, tls->key, tls->cert, tls->ca, NULL, NULL);
    if (on || tls->verify_given)
        mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
}

static void set_options(MYSQL *mysql, const struct qm_follow_settings *settings,
                        unsigned silence_ms)
{
    unsigned connect = (settings->timeout_ms + 999) / 1000;
    unsigned silence = (silence_ms + 999) / 1000;
    size_t packet = 1 << 30;

    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &connect);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &silence);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &silence);
    mysql_options(mysql, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
    mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    /* Whatever the server, or its init_connect, gives to sessions: what is asked of
     * tables is to be whole, and the one who asks may be silent for long. */
    mysql_options(mysql, MYSQL_INIT_COMMAND,
                  "SET NAMES utf8mb4, sql_mode = '',"
                  " sql_select_limit = 18446744073709551615, max_statement_time = 0,"
                  " wait_timeout = 2147483");
    qm_tls_set(mysql, &settings->tls);
}

bool qm_connection_open(struct qm_connection *connection,
                        const struct qm_follow_settings *settings,
                        const struct qm_follow_server *server, unsigned silence_ms,
                        char *why)
{
    bool cut;

    connection->mysql = mysql_init(NULL);
    if (!connection->mysql) {
        snprintf(why, WHY, "no memory");
        return false;
    }
    set_options(connection->mysql, settings, silence_ms);
    if (!mysql_real_connect(connection->mysql, server->host, settings->user,
                            settings->password, NULL, server->port, server->unix_socket,
                            0)) {
        explain(connection, why);
        mysql_close(connection->mysql);
        connection->mysql = NULL;
        return false;
    }
    pthread_mutex_lock(connection->lock);
    cut = connection->cut;
    connection->socket = (int)mysql_get_socket(connection->mysql);
    pthread_mutex_unlock(connection->lock);
    if (cut)
        snprintf(why, WHY, "the program ends");
    return !cut;
}

void qm_connection_close(struct qm_connection *connection)
{
    pthread_mutex_lock(connection->lock);
    connection->socket = -1;
    pthread_mutex_unlock(connection->lock);
    if (connection->mysql)
        mysql_close(connection->mysql);
    connection->mysql = NULL;
}

void qm_connection_cut(struct qm_connection *connection)
{
    connection->cut = true;
    if (connection->socket != -1)
        shutdown(connection->socket, SHUT_RDWR);
}

MYSQL_RES *qm_connection_ask(struct qm_connection *connection, const char *statement,
                             char *why)
{
    MYSQL_RES *result = NULL;

    if (mysql_query(connection->mysql, statement) == 0)
        result = mysql_store_result(connection->mysql);
    if (!result)
        explain(connection, why);
    return result;
}

bool qm_connection_tell(struct qm_connection *connection, const char *statement,
                        char *why)
{
    if (mysql_query(connection->mysql, statement) == 0)
        return true;
    explain(connection, why);
    return false;
}

bool qm_connection_position(struct qm_connection *connection,
                            struct qm_gtid_list *position, bool *logged, char *why)
{
    MYSQL_RES *result =
        qm_connection_ask(connection,
                          "SELECT @@gtid_binlog_pos,"
                          " @@log_slave_updates OR @@gtid_slave_pos = ''",
                          why);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    bool known = row && row[0] && qm_gtid_parse(position, row[0], strlen(row[0]));

    if (result && !known)
        snprintf(why, WHY, "@@gtid_binlog_pos is '%.100s', or has too many domains",
                 row && row[0] ? row[0] : "NULL");
    if (logged)
        *logged = known && row[1] && strcmp(row[1], "0") != 0;
    mysql_free_result(result);
    return known;
}

bool qm_connection_is_of(struct qm_connection *connection, uint32_t id, char *why)
{
    MYSQL_RES *result = qm_connection_ask(connection, "SELECT @@server_id", why);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    bool same = row && row[0] && strtoull(row[0], NULL, 10) == id;

    if (result && !same)
        snprintf(why, WHY, "connections lead to several servers");
    mysql_free_result(result);
    return same;
}
