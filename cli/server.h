/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - a live server's statistics. */
#ifndef QM_CLI_SERVER_H
#define QM_CLI_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A server is given this long to answer. */
enum { CLI_SERVER_TIMEOUT_S = 10, CLI_STOPPED_S = 2 };

struct cli_server;

/* Asks the server at an NBD URI, or at its statistics' socket, in a thread of its own,
 * so that one that hangs holds up nobody.  target must outlive it.  Prints why not, and
 * returns NULL. */
struct cli_server *cli_server_new(const char *target);
/* Asks for the statistics; ignored while a question is open. */
void cli_server_ask(struct cli_server *server);
/* Becomes readable when an answer is there. */
int cli_server_fd(const struct cli_server *server);
/* Whether there is an answer: *stats, an object that is the caller's, or NULL with a
 * sentence in err. */
bool cli_server_answer(struct cli_server *server, json_t **stats, char *err,
                       size_t len);
/* Does not wait: what is still being asked is abandoned.  NULL is fine. */
void cli_server_free(struct cli_server *server);

/* Asks, and waits for the answer, bounded.  Prints why there is none, and returns NULL.
 */
json_t *cli_server_stats(struct cli_server *server);

/* Sends a request, which is freed (NULL: there was no memory for it), to a server's
 * control socket and returns its answer, an object.  What was refused is no answer.
 * Prints why there is none, and returns NULL.  A question has CLI_SERVER_TIMEOUT_S;
 * what has longer prints after that time that it waits. */
json_t *cli_ask(const char *path, json_t *request, unsigned timeout_s);

/* As cli_ask(); once stop_fd can be read, because this program shall end, it waits for
 * CLI_STOPPED_S more, at most.  stop_fd -1: no such descriptor. */
json_t *cli_ask_until(const char *path, json_t *request, unsigned timeout_s,
                      int stop_fd);

/* A number of the object; 0 if it is not there. */
uint64_t cli_count(const json_t *object, const char *key);
/* The same of a key that was renamed: an older server prints it as old_key. */
uint64_t cli_count_renamed(const json_t *object, const char *key, const char *old_key);
double cli_real(const json_t *object, const char *key);
/* A string of the object; "-" if it is not there. */
const char *cli_text(const json_t *object, const char *key);
/* A truth value of the object; otherwise if it is not there. */
bool cli_flag(const json_t *object, const char *key, bool otherwise);
/* 0 if there is no whole. */
double cli_percentage(uint64_t part, uint64_t whole);

/* Classes, as stat and top show them (classes.c). */
struct cli_class {
    const json_t *klass;
    const char *kind, *name, *state, *set; /* any text; good as long as stats */
    /* What was read in contexts of the class, those nested in them included. */
    uint64_t contexts, reads, hits, prefetch_hits, misses;
    uint64_t issued, used, wasted; /* prefetches that it caused as the innermost */
    double latency_us;             /* since the server's start */
};

/* The classes, most reads first, in an array to be freed; NULL: memory is out.  Counts
 * are those since before, which may be NULL. */
struct cli_class *cli_classes(const json_t *stats, const json_t *before, size_t *count);

/* Prints all classes, a line each. */
void cli_print_classes(const json_t *stats);

#endif
