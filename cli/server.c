/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - a live server's statistics, over its socket or over NBD. */
#include "cli/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "clients/libqmctx/qmctx.h"

enum { STATS_MAX = 16 << 20, ERROR_MAX = 1024, LINE_MAX_BYTES = 1 << 20 };

#define A_SOCKET                                                                       \
    "expected the Unix socket of the filter's parameter stats, or an NBD URI"
#define A_CONTROL "expected the Unix socket of the filter's parameter control"
#define AN_URI                                                                         \
    "expected the URI of a server with the quickmine filter, such as nbd://host or "   \
    "nbd+unix:///?socket=PATH, or the Unix socket of the filter's parameter stats"

/* Shared by the caller and the thread; the last of them frees it. */
struct cli_server {
    const char *target;
    struct qmctx *ctx; /* the thread's; NULL: not connected, or a socket */
    int fd;            /* of events: there is an answer */
    pthread_mutex_t lock;
    pthread_cond_t asked;
    bool open; /* a question is not answered yet */
    bool answered, abandoned;
    json_t *stats;
    char err[ERROR_MAX];
};

/* Milliseconds until the deadline; 0: it has passed. */
static int left(const struct timespec *deadline)
{
    struct timespec now;
    int64_t ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (deadline->tv_sec - now.tv_sec) * INT64_C(1000) +
         (deadline->tv_nsec - now.tv_nsec) / 1000000;
    return ms > 0 ? (int)ms : 0;
}

static void start_clock(struct timespec *deadline)
{
    clock_gettime(CLOCK_MONOTONIC, deadline);
    deadline->tv_sec += CLI_SERVER_TIMEOUT_S;
}

/* Connects to the socket.  Returns its descriptor, or -1 with a sentence in err. */
static int connect_to(const char *path, const char *expected, char *err, size_t len)
{
    /* For connect(), which waits while the queue of a server that hangs is full. */
    const struct timeval timeout = {.tv_sec = CLI_SERVER_TIMEOUT_S};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    int fd, error;

    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(err, len, "%s: %s: a socket's path has at most %zu bytes; %s", path,
                 strerror(ENAMETOOLONG), sizeof address.sun_path - 1, expected);
        return -1;
    }
    if (stat(path, &st) == -1) {
        snprintf(err, len, "%s: %s; %s", path, strerror(errno), expected);
        return -1;
    }
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(err, len, "%s: not a socket, but %s; %s", path,
                 S_ISREG(st.st_mode)   ? "a regular file"
                 : S_ISDIR(st.st_mode) ? "a directory"
                                       : "another kind of file",
                 expected);
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd != -1 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    error = errno;
    if (error == ECONNREFUSED)
        snprintf(err, len, "%s: no server listens on this socket", path);
    else if (error == EAGAIN)
        snprintf(err, len, "%s: the server does not accept a connection within %d s",
                 path, CLI_SERVER_TIMEOUT_S);
    else if (error == EPROTOTYPE)
        snprintf(err, len, "%s: a socket of another type; %s", path, expected);
    else
        snprintf(err, len, "%s: %s; %s", path, strerror(error), expected);
    if (fd != -1)
        close(fd);
    return -1;
}

/* Reads until the server closes: text, to be freed; NULL with a sentence in err. */
static char *read_all(const char *path, int fd, char *err, size_t len)
{
    size_t size = 65536, used = 0;
    char *text = malloc(size), *more;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    struct timespec deadline;
    ssize_t n = 1;

    start_clock(&deadline);
    while (text && n != 0) {
        if (used + 1 == size) {
            size *= 2;
            more = size <= STATS_MAX ? realloc(text, size) : NULL;
            if (!more) {
                snprintf(err, len, "%s: %s", path,
                         size <= STATS_MAX ? "out of memory"
                                           : "sends more than any statistics");
                break;
            }
            text = more;
        }
        if (poll(&readable, 1, left(&deadline)) == 0) {
            snprintf(err, len, "%s: the server sends no statistics within %d s", path,
                     CLI_SERVER_TIMEOUT_S);
            break;
        }
        n = recv(fd, text + used, size - used - 1, MSG_DONTWAIT);
        if (n > 0) {
            used += (size_t)n;
        } else if (n == -1 && errno != EINTR && errno != EAGAIN) {
            snprintf(err, len, "%s: %s", path, strerror(errno));
            break;
        }
        if (used >= 8 && memcmp(text, "NBDMAGIC", 8) == 0) {
            snprintf(err, len,
                     "%s: an NBD server's socket; expected the one of the filter's "
                     "parameter stats, or the URI nbd+unix:///?socket=%s",
                     path, path);
            break;
        }
    }
    if (!text) {
        snprintf(err, len, "out of memory");
    } else if (n == 0) {
        text[used] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

static char *read_socket(const char *path, char *err, size_t len)
{
    int fd = connect_to(path, A_SOCKET, err, len);
    char *text;

    if (fd == -1)
        return NULL;
    text = read_all(path, fd, err, len);
    close(fd);
    return text;
}

/* Reads a line, or until the server closes; as read_all().  stop_fd: see
 * cli_ask_until().
 */
static char *read_line(const char *path, int fd, unsigned timeout_s, int stop_fd,
                       char *err, size_t len)
{
    unsigned patience_s =
        timeout_s < CLI_SERVER_TIMEOUT_S ? timeout_s : CLI_SERVER_TIMEOUT_S;
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                           {.fd = stop_fd, .events = POLLIN}};
    struct timespec deadline;
    char *text = malloc(LINE_MAX_BYTES + 1);
    size_t used = 0;
    ssize_t n;

    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += patience_s;
    while (text && used < LINE_MAX_BYTES) {
        if (poll(fds, 2, left(&deadline)) == 0) {
            if (patience_s < timeout_s) {
                cli_note("%s: no answer yet; it is waited for, up to %u s", path,
                         timeout_s);
                deadline.tv_sec += timeout_s - patience_s;
                patience_s = timeout_s;
                continue;
            }
            snprintf(err, len,
                     "%s: the server does not answer within %u s: it is stopped, or "
                     "carries out another change",
                     path, timeout_s);
            free(text);
            return NULL;
        }
        if (fds[1].revents) {
            fds[1].fd = -1;
            timeout_s = timeout_s < CLI_STOPPED_S ? timeout_s : CLI_STOPPED_S;
            patience_s = timeout_s;
            clock_gettime(CLOCK_MONOTONIC, &deadline);
            deadline.tv_sec += timeout_s;
        }
        n = recv(fd, text + used, LINE_MAX_BYTES - used, MSG_DONTWAIT);
        if (n == -1 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
        if (text[used - 1] == '\n')
            break;
    }
    if (text)
        text[used] = '\0';
    else
        snprintf(err, len, "out of memory");
    return text;
}

static json_t *control(const char *path, const char *line, unsigned timeout_s,
                       int stop_fd, char *err, size_t len)
{
    int fd = connect_to(path, A_CONTROL, err, len);
    json_t *answer = NULL;
    char *text;

    if (fd == -1)
        return NULL;
    /* What is not taken is noticed when no answer comes. */
    (void)!send(fd, line, strlen(line), MSG_NOSIGNAL);
    (void)!send(fd, "\n", 1, MSG_NOSIGNAL);
    text = read_line(path, fd, timeout_s, stop_fd, err, len);
    close(fd);
    if (!text)
        return NULL;
    answer = json_loads(text, 0, NULL);
    free(text);
    if (json_is_object(answer) &&
        !json_object_get(answer, "uptime_us")) /* statistics */
        return answer;
    json_decref(answer);
    snprintf(err, len, "%s: the server does not answer as on a control socket; %s",
             path, A_CONTROL);
    return NULL;
}

/* The library's message, which names the server or not. */
static void say_qmctx(const char *target, const char *more, char *err, size_t len)
{
    const char *said = qmctx_error();
    bool named = strncmp(said, target, strlen(target)) == 0;

    snprintf(err, len, "%s%s%s%s", named ? "" : target, named ? "" : ": ", said, more);
}

/* The same by NBD.  After an error the connection is made anew the next time. */
static char *read_window(struct cli_server *s, char *err, size_t len)
{
    char *text = NULL;

    if (!s->ctx && qmctx_connect(s->target, 1, &s->ctx) == -1) {
        say_qmctx(s->target, "; " AN_URI, err, len);
        return NULL;
    }
    text = qmctx_stats(s->ctx);
    if (!text) {
        say_qmctx(s->target, "", err, len);
        qmctx_close(s->ctx);
        s->ctx = NULL;
    }
    return text;
}

static json_t *get(struct cli_server *s, char *err, size_t len)
{
    char *text = strstr(s->target, "://") ? read_window(s, err, len)
                                          : read_socket(s->target, err, len);
    json_error_t error;
    json_t *stats;

    if (!text)
        return NULL;
    stats = json_loads(text, 0, &error);
    free(text);
    /* A control socket says that it was asked nothing. */
    if (json_is_object(stats) && !json_object_get(stats, "error"))
        return stats;
    snprintf(err, len, "%s: does not give a server's statistics (%s); %s", s->target,
             json_is_object(stats) ? "a control socket"
             : stats               ? "not an object"
                                   : error.text,
             strstr(s->target, "://") ? AN_URI : A_SOCKET);
    json_decref(stats);
    return NULL;
}

static void destroy(struct cli_server *s)
{
    qmctx_close(s->ctx);
    json_decref(s->stats);
    close(s->fd);
    pthread_cond_destroy(&s->asked);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *asking_thread(void *opaque)
{
    struct cli_server *s = opaque;
    char err[ERROR_MAX];
    json_t *stats;

    pthread_mutex_lock(&s->lock);
    while (!s->abandoned) {
        if (!s->open || s->answered) {
            pthread_cond_wait(&s->asked, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        stats = get(s, err, sizeof err);
        pthread_mutex_lock(&s->lock);
        s->stats = stats;
        if (!stats)
            memcpy(s->err, err, sizeof err);
        s->answered = true;
        eventfd_write(s->fd, 1);
    }
    pthread_mutex_unlock(&s->lock);
    destroy(s);
    return NULL;
}

struct cli_server *cli_server_new(const char *target)
{
    struct cli_server *s = calloc(1, sizeof *s);
    pthread_t thread;

    if (!s) {
        cli_fail("out of memory");
        return NULL;
    }
    s->target = target;
    s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->asked, NULL);
    if (s->fd == -1 || pthread_create(&thread, NULL, asking_thread, s) != 0) {
        cli_fail("no thread can be started");
        destroy(s);
        return NULL;
    }
    pthread_detach(thread);
    return s;
}

void cli_server_ask(struct cli_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->open = true;
    pthread_cond_signal(&s->asked);
    pthread_mutex_unlock(&s->lock);
}

int cli_server_fd(const struct cli_server *s)
{
    return s->fd;
}

bool cli_server_answer(struct cli_server *s, json_t **stats, char *err, size_t len)
{
    eventfd_t events;
    bool answered;

    pthread_mutex_lock(&s->lock);
    eventfd_read(s->fd, &events);
    answered = s->answered;
    if (answered) {
        *stats = s->stats;
        snprintf(err, len, "%s", s->stats ? "" : s->err);
        s->stats = NULL;
        s->open = s->answered = false;
    }
    pthread_mutex_unlock(&s->lock);
    return answered;
}

void cli_server_free(struct cli_server *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->abandoned = true;
    pthread_cond_signal(&s->asked);
    pthread_mutex_unlock(&s->lock);
}

json_t *cli_server_stats(struct cli_server *s)
{
    struct pollfd readable = {.fd = cli_server_fd(s), .events = POLLIN};
    char err[ERROR_MAX];
    struct timespec deadline;
    json_t *stats = NULL;

    start_clock(&deadline);
    deadline.tv_sec++; /* what takes that long by itself can say more */
    cli_server_ask(s);
    while (!cli_server_answer(s, &stats, err, sizeof err)) {
        if (poll(&readable, 1, left(&deadline)) != 0)
            continue;
        cli_fail("%s: the server does not answer within %d s", s->target,
                 CLI_SERVER_TIMEOUT_S);
        return NULL;
    }
    if (!stats)
        cli_fail("%s", err);
    return stats;
}

uint64_t cli_count(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));

    return n > 0 ? (uint64_t)n : 0;
}

uint64_t cli_count_renamed(const json_t *object, const char *key, const char *old_key)
{
    return cli_count(object, json_object_get(object, key) ? key : old_key);
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

bool cli_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

double cli_percentage(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

json_t *cli_ask(const char *path, json_t *request, unsigned timeout_s)
{
    return cli_ask_until(path, request, timeout_s, -1);
}

json_t *cli_ask_until(const char *path, json_t *request, unsigned timeout_s,
                      int stop_fd)
{
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_t *answer;
    char err[1024];

    json_decref(request);
    if (!text) {
        cli_fail("out of memory");
        return NULL;
    }
    answer = control(path, text, timeout_s, stop_fd, err, sizeof err);
    free(text);
    if (!answer) {
        cli_fail("%s", err);
    } else if (json_object_get(answer, "error")) {
        cli_fail("%s: %s", path, cli_text(answer, "error"));
        json_decref(answer);
        answer = NULL;
    }
    return answer;
}
