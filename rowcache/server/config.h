/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - the configuration file of qm-rowcache: lines KEY = VALUE. */
#ifndef QM_ROWCACHE_CONFIG_H
#define QM_ROWCACHE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct qm_config {
    char *listen, *tls_listen, *socket, *metrics; /* addresses; NULL: none */
    char *tls_cert, *tls_key, *tls_ca;
    char *password, *schema, *path, *disk, *policy, *durability;
    char *host, *database_socket, *user, *database_password;
    char *database_tls_ca, *database_tls_cert, *database_tls_key;
    char *redis_host, *redis_socket, *redis_user, *redis_password;
    char *readahead, *rules;
    bool follow, database_tls_verify, protected_mode;
    bool database_tls_verify_given; /* by the file */
    uint64_t socket_mode, max_clients, max_request, max_reply, input_memory, memory,
        plain_memory, disk_size;
    uint64_t port, connections, queue, timeout, max_lag, server_id;
    uint64_t redis_port, redis_database, redis_timeout;
};

/* Rows are kept in a Redis, not in the store. */
static inline bool qm_config_has_redis(const struct qm_config *config)
{
    return config->redis_host || config->redis_socket;
}

/* TLS to MariaDB is switched on by the file. */
static inline bool qm_config_has_database_tls(const struct qm_config *config)
{
    return config->database_tls_ca || config->database_tls_cert;
}

/* Reads and checks it; what is wrong is printed to stderr, a line each.  Returns 0 or
 * -1.  It is freed by qm_config_free() in both cases. */
int qm_config_read(struct qm_config *config, const char *path);
void qm_config_free(struct qm_config *config);
extern const char *const qm_config_rule_names[]; /* by qm_auto_rule; then NULL */
/* Such names, with commas, as 1 << QM_AUTO_SA | ...; false: they are none. */
bool qm_config_rules(const char *text, unsigned *rules);
void qm_config_print(const struct qm_config *config);

/* "host:port", "[::1]:port" or ":port", taken apart in place; false: it is none. */
bool qm_config_address(char *text, char **host, char **port);

#endif
