/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - the sockets at which clients connect; see server.h. */
#include <errno.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rowcache/server/server.h"

enum kind { CLIENTS, CLIENTS_TLS, METRICS };

struct listener {
    struct listener *next;
    struct server *server;
    struct evconnlistener *at;
    enum kind kind;
    char *path;        /* of a Unix socket */
    struct stat bound; /* what was made there */
};

static void accepted(struct evconnlistener *at, evutil_socket_t fd,
                     struct sockaddr *address, int length, void *opaque)
{
    static const char full[] = "-ERR max number of clients reached\r\n";
    struct listener *l = opaque;
    struct server *s = l->server;
    char name[80] = "unix", host[64], port[16];
    SSL *ssl = NULL;
    int one = 1;

    if (l->kind == METRICS) {
        metrics_new(s, fd);
        return;
    }
    s->connections++;
    if (s->clients_count >= s->max_clients) {
        s->rejected++;
        (void)!send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(fd);
        return;
    }
    if (l->path) {
        snprintf(name, sizeof name, "%.70s:0", l->path);
    } else {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        if (getnameinfo(address, (socklen_t)length, host, sizeof host, port,
                        sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
            snprintf(name, sizeof name, "%s:%s", host, port);
    }
    if (l->kind == CLIENTS_TLS) {
        ssl = SSL_new(s->tls);
        if (!ssl || SSL_set_fd(ssl, fd) != 1) {
            SSL_free(ssl);
            close(fd);
            return;
        }
        SSL_set_accept_state(ssl);
    }
    client_new(s, fd, ssl, name);
}

static void enable(struct server *s, bool on)
{
    for (struct listener *l = s->listeners; l; l = l->next)
        if (on)
            evconnlistener_enable(l->at);
        else
            evconnlistener_disable(l->at);
}

void listen_go_on(struct server *s)
{
    if (!s->again)
        return;
    event_free(s->again);
    s->again = NULL;
    enable(s, true);
}

static void try_again(evutil_socket_t fd, short what, void *opaque)
{
    listen_go_on(opaque);
}

/* Too many files are open, most likely: others' connections go on.  The one that waits
 * would be told at once again: it is not looked at until a file is closed, or later. */
static void failed(struct evconnlistener *at, void *opaque)
{
    static const struct timeval later = {1, 0};
    const char *error = strerror(errno);
    struct listener *l = opaque;
    struct server *s = l->server;
    uint64_t now = qm_rows_now();

    s->accept_failures++;
    if (s->said_failure == 0 || now - s->said_failure > SAY_AGAIN) {
        fprintf(stderr, "qm-rowcache: connections wait: %s\n", error);
        s->said_failure = now;
    }
    if (s->again)
        return;
    s->again = evtimer_new(s->base, try_again, s);
    if (s->again && evtimer_add(s->again, &later) == 0) {
        enable(s, false);
    } else if (s->again) {
        event_free(s->again);
        s->again = NULL;
    }
}

/* Another may have been put at the path since, and even have got the inode's number:
 * then it is younger. */
static bool is_there(const struct listener *l)
{
    struct stat st;

    return lstat(l->path, &st) == 0 && st.st_dev == l->bound.st_dev &&
           st.st_ino == l->bound.st_ino &&
           st.st_mtim.tv_sec == l->bound.st_mtim.tv_sec &&
           st.st_mtim.tv_nsec == l->bound.st_mtim.tv_nsec;
}

static int add(struct server *s, int fd, enum kind kind, const char *path)
{
    struct listener *l = calloc(1, sizeof *l);

    if (!l || (path && lstat(path, &l->bound) == -1)) {
        free(l);
        return -1;
    }
    l->server = s;
    l->kind = kind;
    l->path = path ? strdup(path) : NULL;
    l->at = evconnlistener_new(s->base, accepted, l,
                               LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 511, fd);
    if (!l->at) {
        free(l->path);
        free(l);
        return -1;
    }
    evconnlistener_set_error_cb(l->at, failed);
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

/* 0, or an errno value. */
static int listen_at(struct server *s, const struct addrinfo *a, enum kind kind)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1, error = 0;

    if (fd == -1)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == -1 || add(s, fd, kind, NULL) == -1) {
        error = errno;
        close(fd);
    }
    return error;
}

/* Whether the address is also one of those before it: a name that /etc/hosts has on two
 * lines has each twice. */
static bool is_again(const struct addrinfo *found, const struct addrinfo *a)
{
    for (const struct addrinfo *b = found; b != a; b = b->ai_next)
        if (b->ai_addrlen == a->ai_addrlen &&
            memcmp(b->ai_addr, a->ai_addr, a->ai_addrlen) == 0)
            return true;
    return false;
}

/* At all addresses that the name has here, as localhost two; without a name at the
 * first, which is of all. */
static int listen_tcp(struct server *s, const char *address, enum kind kind)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char *copy = strdup(address), *host, *port;
    int unknown, error = ENOMEM;
    bool listens = false;

    if (!copy || !qm_config_address(copy, &host, &port))
        goto out;
    unknown = getaddrinfo(*host ? host : NULL, port, &hints, &found);
    if (unknown != 0) {
        fprintf(stderr, "qm-rowcache: %s: %s\n", address, gai_strerror(unknown));
        goto out;
    }
    for (const struct addrinfo *a = found; a; a = *host ? a->ai_next : NULL) {
        if (is_again(found, a))
            continue;
        error = listen_at(s, a, kind);
        listens |= error == 0;
        if (error != 0 && error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
            break;
        if (listens)
            error = 0; /* a machine without IPv6, for example */
    }
    if (error)
        fprintf(stderr, "qm-rowcache: %s: %s\n", address, strerror(error));
out:
    if (found)
        freeaddrinfo(found);
    free(copy);
    return error ? -1 : 0;
}

/* Removes a socket at which nobody listens any more, and nothing else. */
static bool is_free(const struct sockaddr_un *address)
{
    struct stat st;
    int fd, r;

    if (lstat(address->sun_path, &st) == -1)
        return errno == ENOENT;
    if (!S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return false;
    }
    /* connect() would wait for a daemon that hangs, and whose queue is full. */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return false;
    r = connect(fd, (const struct sockaddr *)address, sizeof *address);
    close(fd);
    if (r == -1 && errno == ECONNREFUSED)
        return unlink(address->sun_path) == 0;
    errno = EADDRINUSE;
    return false;
}

static int listen_unix(struct server *s, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd, r;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (!is_free(&address)) {
        fprintf(stderr, "qm-rowcache: %s: %s\n", path, strerror(errno));
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mask = umask(0777 & ~(mode_t)s->config->socket_mode);
    r = fd == -1 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (r == -1 || add(s, fd, CLIENTS, path) == -1) {
        fprintf(stderr, "qm-rowcache: %s: %s\n", path, strerror(errno));
        if (fd != -1)
            close(fd);
        return -1;
    }
    return 0;
}

/* then: what follows of it. */
static SSL_CTX *wrong_tls(SSL_CTX *tls, const char *path, const char *then)
{
    char text[200];

    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    fprintf(stderr, "qm-rowcache: %s: %s%s\n", path, text, then);
    SSL_CTX_free(tls);
    return NULL;
}

/* Of the files as they are now. */
static SSL_CTX *new_tls(const struct qm_config *c, const char *then)
{
    SSL_CTX *tls;

    ERR_clear_error();
    tls = SSL_CTX_new(TLS_server_method());
    if (!tls)
        return wrong_tls(NULL, "TLS", then);
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_use_certificate_chain_file(tls, c->tls_cert) != 1)
        return wrong_tls(tls, c->tls_cert, then);
    if (SSL_CTX_use_PrivateKey_file(tls, c->tls_key, SSL_FILETYPE_PEM) != 1)
        return wrong_tls(tls, c->tls_key, then);
    if (c->tls_ca) {
        if (SSL_CTX_load_verify_locations(tls, c->tls_ca, NULL) != 1)
            return wrong_tls(tls, c->tls_ca, then);
        /* Without a context, OpenSSL refuses clients that resume a session. */
        SSL_CTX_set_session_id_context(tls, (const unsigned char *)"qm-rowcache", 11);
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                           NULL);
    }
    return tls;
}

void listen_reload(struct server *s)
{
    const struct qm_config *c = s->config;
    SSL_CTX *tls;

    if (!c->tls_listen) {
        fprintf(stderr, "qm-rowcache: SIGHUP: without tls-listen there is nothing to "
                        "read again; other settings need a restart\n");
        return;
    }
    tls = new_tls(c, "; the certificate and key that were read before stay in use");
    if (!tls)
        return;
    SSL_CTX_free(s->tls); /* connections have it until they end */
    s->tls = tls;
    fprintf(stderr, "qm-rowcache: %s and %s are read again\n", c->tls_cert, c->tls_key);
}

int listen_start(struct server *s)
{
    const struct qm_config *c = s->config;

    if (c->tls_listen) {
        s->tls = new_tls(c, "");
        if (!s->tls || listen_tcp(s, c->tls_listen, CLIENTS_TLS) == -1)
            return -1;
    }
    if ((c->listen && listen_tcp(s, c->listen, CLIENTS) == -1) ||
        (c->metrics && listen_tcp(s, c->metrics, METRICS) == -1))
        return -1;
    return c->socket ? listen_unix(s, c->socket) : 0;
}

void listen_end(struct server *s)
{
    if (s->again)
        event_free(s->again);
    s->again = NULL;
    while (s->listeners) {
        struct listener *l = s->listeners;

        s->listeners = l->next;
        evconnlistener_free(l->at);
        if (l->path && is_there(l))
            unlink(l->path);
        free(l->path);
        free(l);
    }
    SSL_CTX_free(s->tls);
}
