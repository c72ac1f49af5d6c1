/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - a connection: reading, carrying out commands, writing; see server.h.
 *
 * Reads and writes go to the socket at once; only what the socket does not take waits
 * for an event.  A client that does not read its replies is not read from either: what
 * waits to be sent is OUT_ENOUGH and one reply, which max-reply bounds.  One that
 * hangs up while it waits for rows is noticed, as Redis does it, and what it has sent
 * and is not carried out is forgotten.  What all clients have sent and is not yet
 * carried out is bounded, too. */
#include <ctype.h>
#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rowcache/server/server.h"

enum {
    READ_SIZE = 16384,
    OUT_ENOUGH = 1 << 20, /* not yet sent: no more commands are carried out */
    KEPT = 65536, /* of a buffer that has become empty; each client has that much */
};

static void process(struct client *c);

bool word_is(const struct client *c, unsigned i, const char *text)
{
    return word_length(c, i) == strlen(text) &&
           strncasecmp(word(c, i), text, strlen(text)) == 0;
}

bool text_integer(const char *text, size_t length, int64_t *value)
{
    char copy[24], *end;
    const char *digits = text + (length > 0 && text[0] == '-');

    /* As Redis: no blanks, no +, no zeros before a number, no -0. */
    if (length == 0 || length > 20 || !isdigit((unsigned char)*digits) ||
        (*digits == '0' && length > 1))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    *value = strtoll(copy, &end, 10);
    return errno == 0 && (size_t)(end - copy) == length;
}

bool word_integer(const struct client *c, unsigned i, int64_t *value)
{
    return text_integer(word(c, i), word_length(c, i), value);
}

void client_error(struct client *c, const char *format, ...)
{
    char text[1000];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->server->errors++;
    qm_reply_error(&c->out, "%s", text);
}

void client_hush(struct client *c, size_t from)
{
    if (c->mute || c->skip)
        c->out.length = from;
    c->skip = false;
}

bool client_reply_fits(struct client *c, size_t from)
{
    if (c->out.length - from <= c->server->config->max_reply)
        return true;
    c->out.length = from;
    client_error(c, QM_REPLY_TOO_LONG);
    return false;
}

void client_reset(struct client *c)
{
    c->db = 0;
    c->resp3 = c->mute = c->skip_next = c->skip = false;
    c->name[0] = '\0';
    c->trusted = !c->server->config->password;
    c->resp.trusted = c->trusted;
}

/* --- memory for what clients have sent --- */

static size_t beyond(size_t bytes)
{
    return bytes > KEPT ? bytes - KEPT : 0;
}

/* The client's input takes that many bytes.  KEPT of them each client has for itself;
 * of input-memory it has at most as much as it leaves: so there is room for other
 * clients' long commands, and always for all short ones.  False: it is too much. */
static bool charge(struct client *c, size_t bytes)
{
    struct server *s = c->server;
    uint64_t others = s->in_beyond - beyond(c->in_bytes), most = 0;

    if (others < s->config->input_memory)
        most = (s->config->input_memory - others) / 2;
    if (bytes > c->in_bytes && beyond(bytes) > most)
        return false;
    s->in_beyond = others + beyond(bytes);
    s->in_bytes += bytes - c->in_bytes;
    c->in_bytes = bytes;
    return true;
}

static size_t words_bytes(const struct client *c)
{
    return c->resp.room * sizeof c->resp.word[0];
}

static void move_to_front(struct client *c)
{
    if (c->in_at == 0)
        return;
    memmove(c->in, c->in + c->in_at, c->in_length - c->in_at);
    c->in_length -= c->in_at;
    c->in_at = 0;
}

/* The bytes of the command up to the end of the word that is being read; 0: unknown. */
static size_t whole_word(const struct client *c)
{
    return c->resp.in_bulk ? c->resp.at + c->resp.bulk + 2 : 0;
}

/* Gives back what a long command needed. */
static void shrink(struct client *c)
{
    size_t left = c->in_length - c->in_at;
    char *in = NULL;

    if (c->request || c->in_room <= KEPT || left > KEPT / 2 || whole_word(c) > KEPT / 2)
        return;
    if (left > 0) {
        move_to_front(c);
        in = realloc(c->in, KEPT);
        if (!in)
            return;
    } else {
        free(c->in);
        c->in_at = c->in_length = 0;
    }
    c->in = in;
    c->in_room = in ? KEPT : 0;
}

static size_t room_for_more(const struct client *c)
{
    size_t room = c->in_room ? c->in_room : READ_SIZE, whole = whole_word(c);

    if (whole > c->in_length && whole <= room)
        return room;
    /* A word that is announced is given room as it comes, not before. */
    while (room - c->in_length < READ_SIZE / 2)
        room *= 2;
    return whole > c->in_length && whole < room ? whole : room;
}

static bool make_room(struct client *c)
{
    size_t room;
    char *in;

    move_to_front(c);
    room = room_for_more(c);
    if (room == c->in_room)
        return true;
    if (!charge(c, room + words_bytes(c)) || !(in = realloc(c->in, room)))
        return false;
    c->in = in;
    c->in_room = room;
    return true;
}

void client_free(struct client *c)
{
    struct server *s = c->server;

    rows_abandon(c);
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->clients = c->next;
    s->clients_count--;
    charge(c, 0);
    event_free(c->readable);
    event_free(c->writable);
    SSL_free(c->ssl);
    close(c->fd);
    listen_go_on(s);
    free(c->in);
    free(c->reader.seen);
    qm_resp_free(&c->resp);
    qm_text_free(&c->out);
    free(c);
}

/* --- writing --- */

/* As write(): bytes, or -1 with errno EAGAIN. */
static ssize_t put(struct client *c, const char *bytes, size_t length)
{
    int n;

    if (!c->ssl)
        return send(c->fd, bytes, length, MSG_NOSIGNAL);
    ERR_clear_error();
    n = SSL_write(c->ssl, bytes, length > INT32_MAX ? INT32_MAX : (int)length);
    if (n > 0)
        return n;
    n = SSL_get_error(c->ssl, n);
    errno = n == SSL_ERROR_WANT_READ || n == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return -1;
}

/* False: the connection is lost. */
static bool flush(struct client *c)
{
    while (c->out_at < c->out.length) {
        ssize_t n = put(c, c->out.bytes + c->out_at, c->out.length - c->out_at);

        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && errno == EAGAIN) {
            if (!c->writing)
                event_add(c->writable, NULL);
            c->writing = true;
            return true;
        }
        if (n <= 0)
            return false;
        c->out_at += (size_t)n;
    }
    if (c->writing)
        event_del(c->writable);
    c->writing = false;
    c->out_at = c->out.length = 0;
    if (c->out.room > KEPT)
        qm_text_free(&c->out);
    return !c->closing;
}

/* --- reading --- */

static ssize_t get(struct client *c)
{
    int n;

    if (!c->ssl)
        return recv(c->fd, c->in + c->in_length, c->in_room - c->in_length, 0);
    ERR_clear_error();
    n = SSL_read(c->ssl, c->in + c->in_length,
                 c->in_room - c->in_length > INT32_MAX
                     ? INT32_MAX
                     : (int)(c->in_room - c->in_length));
    if (n > 0)
        return n;
    n = SSL_get_error(c->ssl, n);
    errno = n == SSL_ERROR_WANT_READ || n == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return n == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static void refuse_input(struct client *c)
{
    client_error(c, "OOM the command is too long: see input-memory");
    c->closing = true;
}

static void readable(evutil_socket_t fd, short what, void *opaque)
{
    struct client *c = opaque;
    ssize_t n;

    c->server->now = qm_rows_now();
    do {
        if (!make_room(c)) {
            refuse_input(c);
            break;
        }
        n = get(c);
        if (n == -1 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            client_free(c);
            return;
        }
        c->last = c->server->now;
        c->in_length += (size_t)n;
        /* TLS may hold bytes that no event will tell of. */
    } while (c->ssl && SSL_pending(c->ssl) > 0);
    process(c);
}

static void writable(evutil_socket_t fd, short what, void *opaque)
{
    struct client *c = opaque;

    c->server->now = qm_rows_now();
    if (!flush(c)) {
        client_free(c);
        return;
    }
    if (c->out.length - c->out_at < OUT_ENOUGH)
        process(c);
}

/* --- commands --- */

/* A web page, or a server that fetches what others name, can send HTTP requests here:
 * lines of their bodies would be commands.  As Redis has it, the connection ends before
 * the body is read. */
static bool is_http(const struct client *c)
{
    return word_is(c, 0, "POST") || word_is(c, 0, "Host:");
}

static void refuse_http(struct client *c)
{
    struct server *s = c->server;

    s->http_requests++;
    if (s->said_http == 0 || s->now - s->said_http > SAY_AGAIN) {
        fprintf(stderr,
                "qm-rowcache: %s sent an HTTP request: its connection is closed\n",
                c->address);
        s->said_http = s->now;
    }
    c->out.length = c->out_at = 0; /* nor is it told what was before */
    c->closing = true;
}

static void run(struct client *c)
{
    const struct command *command = qm_command_find(word(c, 0), word_length(c, 0));
    unsigned n = word_count(c);

    if (is_http(c)) {
        refuse_http(c);
        return;
    }
    c->server->commands++;
    if (!command) {
        char name[130], args[200] = "";
        size_t used = 0;

        snprintf(name, sizeof name, "%.*s", (int)word_length(c, 0), word(c, 0));
        for (unsigned i = 1; i < n && used < 128; i++)
            used += (size_t)snprintf(
                args + used, sizeof args - used, "'%.*s' ",
                word_length(c, i) > 60 ? 60 : (int)word_length(c, i), word(c, i));
        client_error(c, "ERR unknown command '%s', with args beginning with: %s", name,
                     args);
        return;
    }
    c->command = command->name;
    if (command->arity > 0 ? (int)n != command->arity : (int)n < -command->arity)
        client_error(c, "ERR wrong number of arguments for '%s' command",
                     command->name);
    else if (!c->trusted && !(command->flags & COMMAND_BEFORE_AUTH))
        client_error(c, "NOAUTH Authentication required.");
    else if (c->db == 1 && command->plain)
        command->plain(c);
    else
        command->run(c);
}

static void done(struct client *c)
{
    c->in_at += c->used;
    c->looked = c->looked > c->used ? c->looked - c->used : 0;
    qm_resp_done(&c->resp);
}

static bool is_full(const struct client *c)
{
    return c->out.length - c->out_at >= OUT_ENOUGH;
}

/* Carries out what has come, until it has to wait. */
static void carry_out(struct client *c)
{
    while (!c->request && !c->closing && !is_full(c)) {
        size_t used = 0;
        int r =
            qm_resp_parse(&c->resp, c->in + c->in_at, c->in_length - c->in_at, &used);

        if (!charge(c, c->in_room + words_bytes(c))) {
            refuse_input(c);
            break;
        }
        if (r == 0)
            break;
        if (r == -1) {
            c->server->protocol_errors++;
            client_error(c, "ERR %s", c->resp.error);
            c->closing = true;
            break;
        }
        c->used = used;
        if (word_count(c) > 0) {
            size_t from = c->out.length;

            c->skip = c->skip_next;
            c->skip_next = false;
            run(c);
            if (!c->request)
                client_hush(c, from);
        }
        if (!c->request) /* its words stay where they are until it is answered */
            done(c);
    }
    if (c->request && !c->closing)
        pipeline_look(c);
    if (c->in_at == c->in_length) {
        c->in_at = c->in_length = 0;
        rows_in_order(c);
    }
    shrink(c);
    charge(c, c->in_room + words_bytes(c));
}

/* As carry_out(), and sends the replies.  c may be gone after it. */
static void process(struct client *c)
{
    bool was_full;

    do {
        carry_out(c);
        was_full = is_full(c);
        if (c->out.failed || !flush(c)) {
            client_free(c);
            return;
        }
        /* The socket may have taken all: then no event comes. */
    } while (was_full && !is_full(c) && !c->request && !c->closing);
    /* Commands that wait are not read behind: the kernel's buffers fill instead. */
    if (c->request || c->closing || is_full(c))
        event_del(c->readable);
    else
        event_add(c->readable, NULL);
}

/* Who hangs up while it waits for rows is not told of by libevent: what it has sent may
 * be before that, and of a connection that was reset epoll would tell without end.  So
 * all of them are looked at now and then, by one poll().  Who does not take its replies
 * is noticed when it is written to. */
void client_sweep(struct server *s)
{
    struct pollfd *fds =
        s->clients_count ? calloc(s->clients_count, sizeof *fds) : NULL;
    struct client *next;
    nfds_t n = 0, i = 0;

    if (!fds)
        return;
    for (struct client *c = s->clients; c; c = c->next)
        if (c->request)
            fds[n++] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
    if (n > 0 && poll(fds, n, 0) > 0)
        for (struct client *c = s->clients; c && i < n; c = next) {
            next = c->next;
            if (c->request && fds[i++].revents)
                client_free(c);
        }
    free(fds);
}

void client_go_on(struct client *c)
{
    done(c);
    process(c);
}

void client_new(struct server *s, int fd, SSL *ssl, const char *address)
{
    struct client *c = calloc(1, sizeof *c);

    if (c) {
        c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, readable, c);
        c->writable = event_new(s->base, fd, EV_WRITE | EV_PERSIST, writable, c);
    }
    if (!c || !c->readable || !c->writable) {
        if (c && c->readable)
            event_free(c->readable);
        free(c);
        SSL_free(ssl);
        close(fd);
        return;
    }
    c->server = s;
    c->fd = fd;
    c->ssl = ssl;
    c->id = ++s->next_id;
    c->created = c->last = qm_rows_now();
    snprintf(c->address, sizeof c->address, "%s", address);
    qm_resp_init(&c->resp, s->config->max_request);
    client_reset(c);
    c->next = s->clients;
    if (c->next)
        c->next->prev = c;
    s->clients = c;
    s->clients_count++;
    event_add(c->readable, NULL);
}
