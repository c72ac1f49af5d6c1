/* server.c - a live server's statistics, over its socket or over NBD. */
#include "cli/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client-patches/libqmctx/qmctx.h"
#include "trace/text.h"

enum { STATS_MAX = 16 << 20, TIMEOUT_S = 10 };

struct cli_server {
    const char *target;
    struct qmctx *ctx; /* NULL: a socket, connected to each time */
};

struct cli_server *cli_server_open(const char *target)
{
    struct cli_server *server = calloc(1, sizeof *server);

    if (!server) {
        cli_fail("out of memory");
        return NULL;
    }
    server->target = target;
    if (strstr(target, "://") && qmctx_connect(target, 1, &server->ctx) == -1) {
        cli_fail("%s: %s", target, qmctx_error());
        free(server);
        return NULL;
    }
    return server;
}

void cli_server_close(struct cli_server *server)
{
    if (server && server->ctx)
        qmctx_close(server->ctx);
    free(server);
}

/* Connects to the socket.  Returns its descriptor, or -1 with errno. */
static int connect_to(const char *path)
{
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, error;

    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Reads all that the socket gives: text, to be freed; NULL with errno. */
static char *read_socket(const char *path)
{
    size_t room = 65536, used = 0;
    char *text = NULL, *more;
    ssize_t n = 1;
    int fd = connect_to(path), error;

    if (fd == -1)
        return NULL;
    errno = 0;
    while (n > 0 && used < STATS_MAX) {
        if (!text || used + 1 == room) {
            room *= 2;
            more = realloc(text, room);
            if (!more)
                break;
            text = more;
        }
        do
            n = read(fd, text + used, room - used - 1);
        while (n == -1 && errno == EINTR);
        if (n > 0)
            used += (size_t)n;
    }
    error = n == 0 ? 0 : errno ? errno : EFBIG;
    close(fd);
    if (error == 0 && text) {
        text[used] = '\0';
        return text;
    }
    free(text);
    errno = error ? error : ENOMEM;
    return NULL;
}

json_t *cli_server_stats(struct cli_server *server)
{
    char *text = server->ctx ? qmctx_stats(server->ctx) : read_socket(server->target);
    json_error_t error;
    json_t *stats;

    if (!text) {
        cli_fail("%s: %s", server->target,
                 server->ctx ? qmctx_error() : strerror(errno));
        return NULL;
    }
    stats = json_loads(text, 0, &error);
    free(text);
    if (!json_is_object(stats)) {
        cli_fail("%s: does not give a server's statistics (%s)", server->target,
                 stats ? "not an object" : error.text);
        json_decref(stats);
        return NULL;
    }
    return stats;
}

uint64_t cli_count(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));

    return n > 0 ? (uint64_t)n : 0;
}

double cli_real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? cli_clean(text) : "-";
}

/* A class with the same number and kind, or NULL. */
static const json_t *same_class(const json_t *stats, const json_t *klass)
{
    size_t i;
    json_t *other;

    json_array_foreach(json_object_get(stats, "classes"), i, other)
    {
        if (strcmp(cli_text(other, "class"), cli_text(klass, "class")) == 0 &&
            strcmp(cli_text(other, "kind"), cli_text(klass, "kind")) == 0)
            return other;
    }
    return NULL;
}

struct row {
    const json_t *klass;
    uint64_t contexts, reads, hits, promotes, misses, issued, used;
};

static int by_reads(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return x->reads != y->reads ? (x->reads > y->reads ? -1 : 1) : 0;
}

/* A clean name, cut to so many characters, or filled up to them. */
static void print_name(const char *name, int width)
{
    for (size_t n; *name && width > 0; name += n, width--) {
        n = qm_text_character(name, strlen(name));
        n = n > 0 ? n : 1;
        fwrite(name, 1, n, stdout);
    }
    printf("%*s", width, "");
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

void cli_print_classes(const json_t *stats, const json_t *before, size_t limit)
{
    const json_t *classes = json_object_get(stats, "classes");
    size_t count = json_array_size(classes), i;
    struct row *rows = calloc(count ? count : 1, sizeof *rows);
    json_t *klass;

    if (!rows)
        return;
    json_array_foreach(classes, i, klass)
    {
        const json_t *was = before ? same_class(before, klass) : NULL;

        rows[i].klass = klass;
#define DIFFERENCE(key) rows[i].key = cli_count(klass, #key) - cli_count(was, #key)
        DIFFERENCE(contexts);
        DIFFERENCE(reads);
        DIFFERENCE(hits);
        DIFFERENCE(promotes);
        DIFFERENCE(misses);
        DIFFERENCE(issued);
        DIFFERENCE(used);
#undef DIFFERENCE
    }
    qsort(rows, count, sizeof *rows, by_reads);
    printf("%-11s %-30s %9s %10s %6s %6s %6s %9s %7s %9s %-7s %s\n", "kind", "class",
           "contexts", "reads", "hit%", "prom%", "miss%", "issued", "used%", "us/read",
           "state", "set");
    for (i = 0; i < count && (limit == 0 || i < limit); i++) {
        const struct row *r = &rows[i];
        const char *name = cli_text(r->klass, "name");

        printf("%-11s ", cli_text(r->klass, "kind"));
        print_name(*name ? name : cli_text(r->klass, "class"), 30);
        printf(" %9" PRIu64 " %10" PRIu64 " %6.1f %6.1f %6.1f %9" PRIu64
               " %7.1f %9.1f %-7s %.8s\n",
               r->contexts, r->reads, percent(r->hits, r->reads),
               percent(r->promotes, r->reads), percent(r->misses, r->reads), r->issued,
               percent(r->used, r->issued), cli_real(r->klass, "latency_us"),
               cli_text(r->klass, "state"), cli_text(r->klass, "set"));
    }
    if (limit > 0 && count > limit)
        printf("and %zu more\n", count - limit);
    free(rows);
}
