/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.h - the parts of quickmine serve: the configuration file, the lock on the
 * device, and the word to systemd that the server answers.
 *
 * One thread.  All functions that return int return 0, or -1 after they have printed
 * one message by cli_fail().
 */
#ifndef QM_CLI_SERVE_H
#define QM_CLI_SERVE_H

#include <stdbool.h>
#include <stddef.h>

/* --- the file: serve-file.c --- */

/* A line "KEY = VALUE".  Keys with a dot, "backend.file", belong to what is named
 * before it. */
struct serve_setting {
    char *key, *value;
    unsigned line;
};

struct serve_file {
    const char *path; /* the caller's */
    char *name;       /* of the server: the path's last part without ".conf" */
    struct serve_setting *settings;
    size_t n;
};

/* Reads the file.  What it holds goes with serve_file_free(), also after a failure. */
int serve_file_read(struct serve_file *file, const char *path);
void serve_file_free(struct serve_file *file);

/* The setting of that key, or NULL; its value, or fallback. */
const struct serve_setting *serve_find(const struct serve_file *file, const char *key);
const char *serve_value(const struct serve_file *file, const char *key,
                        const char *fallback);

/* If the setting's key is group, a dot and more: the rest.  Else NULL. */
const char *serve_of_group(const struct serve_setting *setting, const char *group);

/* The value of an on-off key into *on, which is left alone where the key is not given.
 */
int serve_flag(const struct serve_file *file, const char *key, bool *on);

/* --- the server that it describes: serve-server.c --- */

#define SERVE_RUN "/run/quickmine" /* of sockets, pid files and locks */

struct serve_server {
    const struct serve_file *file;
    char *socket;      /* NULL: it listens at an address */
    char *host, *port; /* then */
    char *uri;
    char *stats, *control; /* NULL: none */
    bool read_only, tls;
};

/* Reads and checks it.  What it holds goes with serve_server_free(), also after a
 * failure. */
int serve_server_read(struct serve_server *server, const struct serve_file *file);
void serve_server_free(struct serve_server *server);

/* socket, host, port, uri, stats and control alone. */
int serve_server_addresses(struct serve_server *server);

/* Whether the key is serve's; else it is a parameter of the filter. */
bool serve_is_own(const char *key);

/* Its keys that have no dot; the last is NULL (serve-keys.c). */
extern const char *const serve_own_keys[];

/* Whether no key is nearly one that there is; else says in which line, and which was
 * meant.  Returns 0 or -1. */
int serve_check_keys(const struct serve_file *file);

/* Says what is wrong with a setting's value.  Returns -1. */
int serve_wrong(const struct serve_file *file, const struct serve_setting *setting,
                const char *what);

/* --- the lock: serve-lock.c --- */

/* Locks the device of the backend, so that no second server that serve starts on this
 * machine writes to it: the file or block device itself where backend.file names one,
 * else a file for the backend's parameters in directory.  The lock is shared if the
 * server only reads.  It belongs to a descriptor that execve() keeps open, and so ends
 * with the server, however that ends. */
int serve_lock(const struct serve_file *file, const char *directory, bool read_only);

/* --- changes: serve-reload.c --- */

/* Gives the running server those parameters of its file that it can change. */
int serve_reload(const struct serve_server *server);

/* --- readiness: serve-ready.c --- */

/* If systemd waits for a notification (NOTIFY_SOCKET): starts a process that tells it
 * when the server that this process becomes answers, or that ends with it.  It answers
 * when the device can be opened as by a client; with TLS, when it greets; or if it
 * turns this machine away, for some seconds.  Takes NOTIFY_SOCKET out of the
 * environment. */
int serve_announce(const struct serve_server *server);

#endif
