/* server.h - a live server's statistics. */
#ifndef QM_CLI_SERVER_H
#define QM_CLI_SERVER_H

#include <jansson.h>
#include <stdint.h>

struct cli_server;

/* The server at an NBD URI, or at its statistics' socket.  Prints why not, and returns
 * NULL. */
struct cli_server *cli_server_open(const char *target);
/* Its statistics, an object; prints why not, and returns NULL. */
json_t *cli_server_stats(struct cli_server *server);
void cli_server_close(struct cli_server *server); /* NULL is fine */

/* A number of the object; 0 if it is not there. */
uint64_t cli_count(const json_t *object, const char *key);
double cli_real(const json_t *object, const char *key);
/* A string of the object; "-" if it is not there. */
const char *cli_text(const json_t *object, const char *key);

/* Prints the first of the classes, most reads first, at most limit (0: all); if before
 * is not NULL, what changed since then. */
void cli_print_classes(const json_t *stats, const json_t *before, size_t limit);

#endif
