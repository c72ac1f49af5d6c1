/* SPDX-License-Identifier: BSD-3-Clause */
/* http.h - the statistics over HTTP: /, /metrics, /api/stats, /healthz.
 *
 * Read-only, and bounded against hostile clients: one thread, a number of connections,
 * a time-out, memory for each, and documents that are made anew only now and then and
 * shared by all requests meanwhile.  On a loopback address, requests must name a
 * loopback host, so that a web page elsewhere cannot read the answers by DNS rebinding.
 */
#ifndef QMS_HTTP_H
#define QMS_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct qms_http;

/* Checks the value of the parameter stats-http: "unix:PATH", "ADDRESS:PORT" with a
 * loopback address, or "public:ADDRESS:PORT" with any.  Returns 0, or -1 with a
 * sentence in err. */
int qms_http_check(const char *where, char *err, size_t len);

/* Binds and listens, before the server forks; starts no thread.  A relative path is not
 * allowed.  NULL with a sentence in err. */
struct qms_http *qms_http_open(const char *where, char *err, size_t len);

/* Starts the thread: report() makes the statistics, with that many classes at most, the
 * caller's; ever: since the start, whatever was reset.  Returns 0 or an errno value. */
int qms_http_start(struct qms_http *http,
                   json_t *(*report)(void *opaque, unsigned classes, bool ever),
                   void *opaque);

/* Where a browser finds it; "" for a Unix socket. */
const char *qms_http_url(const struct qms_http *http);

/* Ends the thread and its connections. */
void qms_http_close(struct qms_http *http);

#endif
