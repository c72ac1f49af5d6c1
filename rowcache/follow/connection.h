/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.h - a connection to MariaDB that another thread can cut. */
#ifndef QM_ROWCACHE_CONNECTION_H
#define QM_ROWCACHE_CONNECTION_H

#include <mysql.h>
#include <pthread.h>

#include "rowcache/follow/follow.h"

struct qm_connection {
    pthread_mutex_t *lock; /* over socket and cut */
    MYSQL *mysql;
    int socket; /* -1: none */
    bool cut;   /* for good */
};

/* False: why (256 bytes) says what is wrong.  silence_ms: how long a server may be
 * silent. */
bool qm_connection_open(struct qm_connection *connection,
                        const struct qm_follow_settings *settings,
                        const struct qm_follow_server *server, unsigned silence_ms,
                        char *why);
void qm_connection_close(struct qm_connection *connection);
/* Shuts the socket down: a thread that waits in a read returns at once.  The caller
 * holds connection->lock. */
void qm_connection_cut(struct qm_connection *connection);

/* The result of a statement, or NULL with why. */
MYSQL_RES *qm_connection_ask(struct qm_connection *connection, const char *statement,
                             char *why);
bool qm_connection_tell(struct qm_connection *connection, const char *statement,
                        char *why);
/* Whether it is the server with that @@server_id: a name may lead to several. */
bool qm_connection_is_of(struct qm_connection *connection, uint32_t id, char *why);
/* The server's @@gtid_binlog_pos.  *logged, unless it is NULL: all changes are in its
 * log, as it is no replica that does not log what it applies. */
bool qm_connection_position(struct qm_connection *connection,
                            struct qm_gtid_list *position, bool *logged, char *why);

#endif
