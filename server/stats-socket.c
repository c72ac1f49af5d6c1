/* SPDX-License-Identifier: BSD-3-Clause */
/* stats-socket.c - a thread that answers each connection with one document and closes
 * it.  A client that does not read is given up after a second, so that it keeps nobody
 * waiting for longer.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/listener.h"
#include "server/stats-socket.h"

struct qms_stats_socket {
    struct qms_listener listener;
    int stop_fd;
    bool started;
    pthread_t thread;
    char *(*report)(void *opaque);
    void *opaque;
};

struct qms_stats_socket *qms_stats_socket_open(const char *path, char *err, size_t len)
{
    struct qms_stats_socket *s = calloc(1, sizeof *s);

    if (!s) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return NULL;
    }
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (s->stop_fd == -1)
        snprintf(err, len, "%s", strerror(errno));
    else if (qms_listener_open(&s->listener, path, err, len) == 0)
        return s;
    else
        close(s->stop_fd);
    free(s);
    return NULL;
}

static void answer(struct qms_stats_socket *s, int fd)
{
    struct timeval timeout = {.tv_sec = 1};
    char *text = s->report(s->opaque);
    size_t length = text ? strlen(text) : 0, sent = 0;

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    while (sent < length) {
        ssize_t n = send(fd, text + sent, length - sent, MSG_NOSIGNAL);

        if (n <= 0 && errno != EINTR)
            break;
        if (n > 0)
            sent += n;
    }
    free(text);
}

static void *stats_thread(void *opaque)
{
    struct qms_stats_socket *s = opaque;
    struct pollfd fds[] = {{.fd = s->listener.fd, .events = POLLIN},
                           {.fd = s->stop_fd, .events = POLLIN}};

    for (;;) {
        int fd;

        if (poll(fds, 2, -1) == -1)
            continue;
        if (fds[1].revents)
            return NULL;
        fd = accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd == -1) {
            /* Out of descriptors, say: the connection stays there and poll() returns
             * at once, so give others a moment. */
            if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                poll(fds + 1, 1, 100);
            continue;
        }
        answer(s, fd);
        close(fd);
    }
}

int qms_stats_socket_start(struct qms_stats_socket *s, char *(*report)(void *opaque),
                           void *opaque)
{
    int error;

    s->report = report;
    s->opaque = opaque;
    error = pthread_create(&s->thread, NULL, stats_thread, s);
    s->started = error == 0;
    return error;
}

void qms_stats_socket_close(struct qms_stats_socket *s)
{
    if (s->started) {
        eventfd_write(s->stop_fd, 1);
        pthread_join(s->thread, NULL);
    }
    qms_listener_close(&s->listener);
    close(s->stop_fd);
    free(s);
}
