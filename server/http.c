/* SPDX-License-Identifier: BSD-3-Clause */
/* http.c - see http.h.
 *
 * One thread of libmicrohttpd serves all connections.  Each document is a response of
 * its own that is kept for KEEP_NS and given to all requests meanwhile, which bounds
 * the work of a server that is polled hard.  Connections that still send an older one
 * hold a reference to it; there are CONNECTIONS of them at most, each for a limited
 * time (http-places.h).
 *
 * Nothing that a client sends is used but its method, its path and its host.
 */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http-places.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/stats.h"

#define CONNECTIONS QMS_HTTP_PLACES
#define TIMEOUT_S   10         /* of a connection on which nothing happens */
#define MEMORY      (16 << 10) /* for the headers of a connection's request */
#define KEEP_NS     UINT64_C(200000000)
#define CLASSES_MAX 1000      /* of /api/stats */
#define PLACEHOLDER "@NONCE@" /* in the page */

/* The live page (http.html). */
extern const unsigned char qms_http_page[];
extern const unsigned qms_http_page_size;

enum document { PAGE, METRICS, STATS, HEALTH, DOCUMENTS };

static const struct {
    const char *path, *type;
} documents[DOCUMENTS] = {
    [PAGE] = {"/", "text/html; charset=utf-8"},
    [METRICS] = {"/metrics",
                 "application/openmetrics-text; version=1.0.0; charset=utf-8"},
    [STATS] = {"/api/stats", "application/json"},
    [HEALTH] = {"/healthz", "text/plain; charset=utf-8"},
};

struct qms_http {
    bool is_unix, loopback;
    struct qms_listener listener; /* of a Unix socket */
    int fd;                       /* of another, until the daemon has it; or -1 */
    char url[128];
    struct MHD_Daemon *daemon;
    struct qms_http_places places; /* while there is a daemon */
    json_t *(*report)(void *opaque, unsigned classes, bool ever);
    void *opaque;
    /* The thread's. */
    struct {
        struct MHD_Response *response;
        uint64_t made; /* ns */
    } kept[DOCUMENTS];
};

/* Where to listen, taken apart. */
struct place {
    const char *path; /* of a Unix socket; NULL: the address */
    struct sockaddr_storage address;
    socklen_t size;
    bool loopback;
    char host[INET6_ADDRSTRLEN]; /* as text */
    unsigned port;
};

static bool parse_port(const char *text, unsigned *port)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 5 || text[digits] != '\0')
        return false;
    *port = (unsigned)strtoul(text, NULL, 10);
    return *port <= 65535;
}

/* "127.0.0.1:9100", "[::1]:9100": numbers only, since a name may have several. */
static bool parse_address(const char *text, struct place *place)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&place->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&place->address;
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN];
    bool bracketed = text[0] == '[' && colon && colon[-1] == ']';
    size_t length;

    if (!colon || !parse_port(colon + 1, &place->port))
        return false;
    text += bracketed;
    length = (size_t)(colon - text) - bracketed;
    if (length >= sizeof host)
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    memcpy(place->host, host, length + 1);
    if (!bracketed && inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)place->port);
        place->size = sizeof *v4;
        place->loopback = (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
        return true;
    }
    if (bracketed && inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)place->port);
        place->size = sizeof *v6;
        place->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        return true;
    }
    return false;
}

static int parse(const char *where, struct place *place, char *err, size_t len)
{
    const bool public = strncmp(where, "public:", 7) == 0;

    *place = (struct place){.path = NULL};
    if (strncmp(where, "unix:", 5) == 0 && where[5] != '\0') {
        place->path = where + 5;
        return 0;
    }
    if (!parse_address(public ? where + 7 : where, place)) {
        snprintf(
            err, len,
            "stats-http must be unix:PATH, or ADDRESS:PORT (like 127.0.0.1:9100 or "
            "[::1]:9100), not \"%.100s\"",
            where);
        return -1;
    }
    if (!public && !place->loopback) {
        snprintf(
            err, len,
            "stats-http=%.100s is not a loopback address: everybody who reaches it "
            "could read the statistics, unencrypted; if that is meant, give "
            "stats-http=public:%.100s",
            where, where);
        return -1;
    }
    return 0;
}

int qms_http_check(const char *where, char *err, size_t len)
{
    struct place place;

    return parse(where, &place, err, len);
}

/* Returns a socket that listens, or -1 with a sentence in err. */
static int listen_at(struct place *place, char *err, size_t len)
{
    int fd = socket(place->address.ss_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        on = 1;

    if (fd != -1 && place->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (fd != -1)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd != -1 && bind(fd, (struct sockaddr *)&place->address, place->size) == 0 &&
        listen(fd, CONNECTIONS) == 0 &&
        getsockname(fd, (struct sockaddr *)&place->address, &place->size) == 0) {
        place->port = ntohs(place->address.ss_family == AF_INET
                                ? ((struct sockaddr_in *)&place->address)->sin_port
                                : ((struct sockaddr_in6 *)&place->address)->sin6_port);
        return fd;
    }
    snprintf(err, len, "%s", strerror(errno));
    if (fd != -1)
        close(fd);
    return -1;
}

struct qms_http *qms_http_open(const char *where, char *err, size_t len)
{
    struct qms_http *h = calloc(1, sizeof *h);
    struct place place;

    if (!h) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return NULL;
    }
    h->fd = -1;
    if (parse(where, &place, err, len) == 0) {
        h->is_unix = place.path != NULL;
        h->loopback = place.loopback;
        if (h->is_unix) {
            if (qms_listener_open(&h->listener, place.path, err, len) == 0)
                return h;
        } else if ((h->fd = listen_at(&place, err, len)) != -1) {
            snprintf(h->url, sizeof h->url,
                     place.address.ss_family == AF_INET6 ? "http://[%s]:%u/"
                                                         : "http://%s:%u/",
                     place.host, place.port);
            return h;
        }
    }
    free(h);
    return NULL;
}

const char *qms_http_url(const struct qms_http *h)
{
    return h->url;
}

static struct MHD_Response *response_of(char *text, size_t size, const char *type)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);

    if (!r) {
        free(text);
        return NULL;
    }
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "X-Frame-Options", "DENY");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    return r;
}

/* The page allows its own script and style only, by a number that nobody else knows. */
static struct MHD_Response *make_page(void)
{
    const char *page = (const char *)qms_http_page, *at;
    size_t left = qms_http_page_size, size = 0;
    struct MHD_Response *r;
    unsigned char random[16];
    char nonce[33], policy[256], *out = malloc(left + 4 * sizeof nonce);

    if (!out || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        free(out);
        return NULL;
    }
    for (unsigned i = 0; i < sizeof random; i++)
        snprintf(nonce + 2 * (size_t)i, 3, "%02x", random[i]);
    while ((at = memmem(page, left, PLACEHOLDER, sizeof PLACEHOLDER - 1))) {
        memcpy(out + size, page, (size_t)(at - page));
        size += (size_t)(at - page);
        memcpy(out + size, nonce, sizeof nonce - 1);
        size += sizeof nonce - 1;
        left -= (size_t)(at - page) + sizeof PLACEHOLDER - 1;
        page = at + sizeof PLACEHOLDER - 1;
    }
    memcpy(out + size, page, left);
    r = response_of(out, size + left, documents[PAGE].type);
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
             "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'",
             nonce, nonce);
    if (r)
        MHD_add_response_header(r, "Content-Security-Policy", policy);
    return r;
}

static struct MHD_Response *make_statistics(struct qms_http *h, enum document which)
{
    json_t *stats = which == METRICS ? h->report(h->opaque, QMS_METRICS_CLASSES, true)
                                     : h->report(h->opaque, CLASSES_MAX, false);
    char *text =
        which == METRICS ? qms_metrics(stats) : json_dumps(stats, JSON_COMPACT);

    json_decref(stats);
    return text ? response_of(text, strlen(text), documents[which].type) : NULL;
}

/* The document, which may be KEEP_NS old; NULL: memory is out. */
static struct MHD_Response *get(struct qms_http *h, enum document which)
{
    const uint64_t now = qms_now();
    struct MHD_Response *r = h->kept[which].response;

    if (r && now - h->kept[which].made < KEEP_NS)
        return r;
    if (r)
        MHD_destroy_response(r); /* connections that send it have references */
    if (which == PAGE)
        r = make_page();
    else if (which == HEALTH)
        r = response_of(strdup("ok\n"), 3, documents[HEALTH].type);
    else
        r = make_statistics(h, which);
    h->kept[which].response = r;
    h->kept[which].made = now;
    return r;
}

/* Whether a request names a host of this machine.  A page from elsewhere whose name has
 * been made to point here names its own. */
static bool is_local(const char *host)
{
    static const char *const names[] = {"localhost", "[::1]"};
    size_t length;

    if (!host)
        return true; /* no browser */
    length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (length == strlen(names[i]) && strncasecmp(host, names[i], length) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= length;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status,
                              const char *why)
{
    char *text = strdup(why);
    struct MHD_Response *r =
        text ? response_of(text, strlen(text), "text/plain; charset=utf-8") : NULL;
    enum MHD_Result result;

    if (!r)
        return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", "GET, HEAD");
    MHD_add_response_header(r, "Connection", "close");
    result = MHD_queue_response(connection, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result answer(void *opaque, struct MHD_Connection *connection,
                              const char *url, const char *method, const char *version,
                              const char *data, size_t *size, void **seen)
{
    struct qms_http *h = opaque;
    struct MHD_Response *r;

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (!*seen) { /* the headers are there, and perhaps a body, which is not wanted */
        *seen = h;
        return MHD_YES;
    }
    if (*size > 0)
        return MHD_NO;
    if (h->loopback &&
        !is_local(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "the host must be localhost or a loopback address\n");
    for (unsigned i = 0; i < DOCUMENTS; i++)
        if (strcmp(url, documents[i].path) == 0) {
            r = get(h, i);
            return r ? MHD_queue_response(connection, MHD_HTTP_OK, r)
                     : refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                              "out of memory\n");
        }
    return refuse(connection, MHD_HTTP_NOT_FOUND,
                  "there are /, /metrics, /api/stats and /healthz\n");
}

static void connected(void *opaque, struct MHD_Connection *connection, void **place,
                      enum MHD_ConnectionNotificationCode what)
{
    struct qms_http *h = opaque;
    const union MHD_ConnectionInfo *info;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *place = info ? qms_http_places_enter(&h->places, info->connect_fd) : NULL;
    } else if (*place) { /* its socket is still open */
        qms_http_places_leave(&h->places, *place);
        *place = NULL;
    }
}

static struct qms_http_place *place_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* Its first line is there.  What is returned is what answer() finds in *seen. */
static void *begun(void *opaque, const char *uri, struct MHD_Connection *connection)
{
    struct qms_http *h = opaque;

    if (place_of(connection))
        qms_http_places_asked(&h->places, place_of(connection));
    return NULL;
}

static void completed(void *opaque, struct MHD_Connection *connection, void **seen,
                      enum MHD_RequestTerminationCode how)
{
    struct qms_http *h = opaque;

    if (place_of(connection))
        qms_http_places_answered(&h->places, place_of(connection));
}

int qms_http_start(struct qms_http *h,
                   json_t *(*report)(void *opaque, unsigned classes, bool ever),
                   void *opaque)
{
    int fd = h->is_unix ? fcntl(h->listener.fd, F_DUPFD_CLOEXEC, 0) : h->fd;

    if (fd == -1)
        return errno;
    h->report = report;
    h->opaque = opaque;
    errno = qms_http_places_start(&h->places);
    if (errno != 0) {
        if (h->is_unix)
            close(fd);
        return errno;
    }
    h->daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, answer, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY, MHD_OPTION_NOTIFY_CONNECTION, connected, h,
        MHD_OPTION_URI_LOG_CALLBACK, begun, h, MHD_OPTION_NOTIFY_COMPLETED, completed,
        h, MHD_OPTION_END);
    if (!h->daemon) {
        int error = errno ? errno : EAGAIN;

        qms_http_places_stop(&h->places);
        if (h->is_unix)
            close(fd);
        return error;
    }
    h->fd = -1; /* the daemon closes it */
    return 0;
}

void qms_http_close(struct qms_http *h)
{
    if (h->daemon) {
        MHD_stop_daemon(h->daemon);
        qms_http_places_stop(&h->places);
    }
    for (unsigned i = 0; i < DOCUMENTS; i++)
        if (h->kept[i].response)
            MHD_destroy_response(h->kept[i].response);
    if (h->is_unix)
        qms_listener_close(&h->listener);
    if (h->fd != -1)
        close(h->fd);
    free(h);
}
