/* SPDX-License-Identifier: BSD-3-Clause */
/* binlog-check.c - whether MariaDB logs what freshness needs; see binlog-check.h. */
#include "rowcache/server/binlog-check.h"

#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static const struct {
    const char *variable, *value, *line, *why;
} wanted[] = {
    {"log_bin", "1", "log_bin", "changes of rows cannot be seen"},
    {"binlog_format", "ROW", "binlog_format = ROW",
     "the log has statements, not the rows that they change"},
    {"binlog_row_image", "FULL", "binlog_row_image = FULL",
     "the log does not have the keys of all changed rows"},
};

int qm_binlog_check(const struct qm_fill_settings *s)
{
    static const char ask[] =
        "SELECT @@log_bin, @@global.binlog_format, @@global.binlog_row_image";
    unsigned seconds = (s->timeout_ms + 999) / 1000;
    MYSQL *mysql = mysql_init(NULL);
    MYSQL_RES *result = NULL;
    MYSQL_ROW row = NULL;
    int wrong = 0;

    if (!mysql)
        return 0;
    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
    qm_tls_set(mysql, &s->tls);
    if (mysql_real_connect(mysql, s->server.host, s->user, s->password, NULL,
                           s->server.port, s->server.unix_socket, 0) &&
        mysql_query(mysql, ask) == 0 && (result = mysql_store_result(mysql)))
        row = mysql_fetch_row(result);
    if (!row)
        fprintf(stderr, "qm-rowcache: the database cannot be asked yet: %s\n",
                mysql_error(mysql));
    for (unsigned i = 0; row && i < sizeof wanted / sizeof wanted[0]; i++) {
        if (row[i] && strcasecmp(row[i], wanted[i].value) == 0)
            continue;
        fprintf(stderr,
                "qm-rowcache: MariaDB's %s is %s: %s; put this line into my.cnf, "
                "section [mariadbd], and restart MariaDB:\n    %s\n",
                wanted[i].variable, row[i] ? row[i] : "NULL", wanted[i].why,
                wanted[i].line);
        wrong++;
    }
    mysql_free_result(result);
    mysql_close(mysql);
    return wrong == 0 ? 0 : -1;
}
