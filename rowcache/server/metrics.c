/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.c - the page for Prometheus; see server.h.
 *
 * A connection is answered once, and closed.  Any program that reaches the address can
 * connect without a password, and each connection takes a file that a client could
 * have.  So there are few, each for a limited time; a new one replaces the oldest. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rowcache/server/server.h"

enum { HEADERS_MOST = 8192, SECONDS = 10 };

struct page {
    struct page *next;
    struct server *server;
    struct bufferevent *at;
    struct event *late;
    bool answered, ended; /* ended: by the client, which may still read */
};

/* libevent would close the file later, when it has accepted all others that wait. */
static void page_free(struct page *p)
{
    struct server *s = p->server;
    struct page **link = &s->pages;
    int fd = bufferevent_getfd(p->at);

    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    if (p->late)
        event_free(p->late);
    bufferevent_disable(p->at, EV_READ | EV_WRITE);
    bufferevent_setfd(p->at, -1);
    bufferevent_free(p->at);
    close(fd);
    free(p);
    listen_go_on(s);
}

static void too_late(evutil_socket_t fd, short what, void *opaque)
{
    page_free(opaque);
}

/* text: the page; it is not sent if the client wants to know its length only. */
static void answer(struct page *p, const char *status, struct evbuffer *text, bool head)
{
    struct evbuffer *out = bufferevent_get_output(p->at);

    evbuffer_add_printf(out,
                        "HTTP/1.1 %s\r\n"
                        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "Content-Length: %zu\r\n"
                        "Connection: close\r\n\r\n",
                        status, evbuffer_get_length(text));
    if (!head)
        evbuffer_add_buffer(out, text);
    p->answered = true;
}

static void refuse(struct page *p, const char *status, struct evbuffer *text, bool head)
{
    evbuffer_add_printf(text, "%.*s\n", (int)strcspn(status, "\r"), status);
    answer(p, status, text, head);
}

/* The first line of a request: METHOD TARGET HTTP/1.1. */
static void respond(struct page *p, char *line, struct evbuffer *text)
{
    char *rest = line, *method = strsep(&rest, " "), *target = strsep(&rest, " ");
    bool head = strcmp(method, "HEAD") == 0;

    if (!target || !rest || strncmp(rest, "HTTP/", 5) != 0) {
        refuse(p, "400 Bad Request", text, head);
    } else if (!head && strcmp(method, "GET") != 0) {
        refuse(p, "405 Method Not Allowed\r\nAllow: GET, HEAD", text, false);
    } else if (target[strcspn(target, "?")] = '\0', strcmp(target, "/metrics") != 0) {
        refuse(p, "404 Not Found", text, head);
    } else {
        info_metrics(p->server, text);
        answer(p, "200 OK", text, head);
    }
}

static void readable(struct bufferevent *at, void *opaque)
{
    struct page *p = opaque;
    struct evbuffer *in = bufferevent_get_input(at), *text;
    size_t length = evbuffer_get_length(in);
    char *line;

    if (p->answered) {
        evbuffer_drain(in, length);
        return;
    }
    if (evbuffer_search(in, "\r\n\r\n", 4, NULL).pos == -1 &&
        evbuffer_search(in, "\n\n", 2, NULL).pos == -1 && length <= HEADERS_MOST)
        return;
    text = evbuffer_new();
    line = evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF);
    if (!text) {
        free(line);
        page_free(p);
        return;
    }
    if (!line || length > HEADERS_MOST)
        refuse(p, "431 Request Header Fields Too Large", text, false);
    else
        respond(p, line, text);
    evbuffer_free(text);
    free(line);
    evbuffer_drain(in, evbuffer_get_length(in));
}

/* All is sent.  What the client has not read yet would be lost if the socket was closed
 * while something comes. */
static void sent(struct bufferevent *at, void *opaque)
{
    struct page *p = opaque;

    if (p->answered && p->ended)
        page_free(p);
    else if (p->answered)
        shutdown(bufferevent_getfd(at), SHUT_WR);
}

static void ended(struct bufferevent *at, short what, void *opaque)
{
    struct page *p = opaque;

    if ((what & BEV_EVENT_EOF) && p->answered &&
        evbuffer_get_length(bufferevent_get_output(at)) > 0)
        p->ended = true;
    else
        page_free(p);
}

void metrics_new(struct server *s, int fd)
{
    static const struct timeval limit = {SECONDS, 0};
    struct page *p = calloc(1, sizeof *p), *oldest = s->pages;
    unsigned count = oldest != NULL;

    for (; oldest && oldest->next; oldest = oldest->next)
        count++;
    if (count >= METRICS_MOST)
        page_free(oldest);
    if (!p || !(p->at = bufferevent_socket_new(s->base, fd, 0))) {
        free(p);
        close(fd);
        return;
    }
    p->server = s;
    p->next = s->pages;
    s->pages = p;
    p->late = evtimer_new(s->base, too_late, p);
    bufferevent_setcb(p->at, readable, sent, ended, p);
    bufferevent_setwatermark(p->at, EV_READ, 0, HEADERS_MOST + 1);
    if (!p->late || evtimer_add(p->late, &limit) == -1 ||
        bufferevent_enable(p->at, EV_READ | EV_WRITE) == -1)
        page_free(p);
}

void metrics_end(struct server *s)
{
    while (s->pages)
        page_free(s->pages);
}
