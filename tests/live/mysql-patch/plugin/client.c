/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - a MariaDB client that does what it is told, for the plugin's tests.
 *
 * Usage: plugin-client SOCKET DATABASE <COMMANDS
 *
 *   q SQL      sends SQL as text; all results are fetched
 *   p N SQL    prepares it, executes it with N for each placeholder, and closes it
 *   connect    disconnects and connects again
 *   reset      resets the connection
 *   user NAME  goes on as another user, over the same connection
 *
 * An error of a statement is printed, and all goes on: they are part of the tests. */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 64

static MYSQL *con;

static void connect_to(const char *path, const char *database)
{
    con = mysql_init(NULL);
    if (!con || !mysql_real_connect(con, NULL, "root", NULL, database, 0, path,
                                    CLIENT_MULTI_STATEMENTS)) {
        fprintf(stderr, "%s\n", con ? mysql_error(con) : "out of memory");
        exit(1);
    }
}

static void text(const char *sql)
{
    int more = mysql_query(con, sql);

    while (more == 0) {
        mysql_free_result(mysql_store_result(con));
        more = mysql_errno(con) ? 1 : mysql_next_result(con);
    }
    if (more > 0)
        printf("%s\n", mysql_error(con));
}

static void prepared(int n, const char *sql)
{
    MYSQL_STMT *stmt = mysql_stmt_init(con);
    MYSQL_BIND bind[MAX_PARAMS];

    if (!stmt) {
        printf("out of memory\n");
        return;
    }
    memset(bind, 0, sizeof bind);
    for (int i = 0; i < MAX_PARAMS; i++) {
        bind[i].buffer_type = MYSQL_TYPE_LONG;
        bind[i].buffer = &n;
    }
    if (!mysql_stmt_prepare(stmt, sql, strlen(sql)) &&
        mysql_stmt_param_count(stmt) <= MAX_PARAMS &&
        !mysql_stmt_bind_param(stmt, bind) && !mysql_stmt_execute(stmt)) {
        do {
            if (mysql_stmt_field_count(stmt) > 0) {
                mysql_stmt_store_result(stmt);
                while (mysql_stmt_fetch(stmt) == 0)
                    ;
            }
        } while (mysql_stmt_next_result(stmt) == 0);
    }
    if (mysql_stmt_errno(stmt))
        printf("%s\n", mysql_stmt_error(stmt));
    mysql_stmt_close(stmt);
}

int main(int argc, char **argv)
{
    char *line = NULL, *sql;
    size_t size = 0;
    ssize_t len;

    if (argc != 3)
        return 2;
    connect_to(argv[1], argv[2]);
    while ((len = getline(&line, &size, stdin)) > 0) {
        if (line[len - 1] == '\n')
            line[len - 1] = '\0';
        if (!strncmp(line, "q ", 2)) {
            text(line + 2);
        } else if (!strncmp(line, "p ", 2)) {
            int n = (int)strtol(line + 2, &sql, 10);
            prepared(n, sql + (*sql == ' '));
        } else if (!strcmp(line, "connect")) {
            mysql_close(con);
            connect_to(argv[1], argv[2]);
        } else if (!strcmp(line, "reset")) {
            mysql_reset_connection(con);
        } else if (!strncmp(line, "user ", 5)) {
            if (mysql_change_user(con, line + 5, NULL, argv[2]))
                printf("%s\n", mysql_error(con));
        } else {
            fprintf(stderr, "what is '%s'?\n", line);
            return 2;
        }
    }
    free(line);
    mysql_close(con);
    return 0;
}
