/* SPDX-License-Identifier: BSD-3-Clause */
/* control-socket.c - a thread that answers one client after the other.  A client that
 * does not send or read is given up after a second.
 */
#include "server/control-socket.h"

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
#include "server/stats.h"

#define PATIENCE UINT64_C(1000000000) /* ns: with a client that is slow to send */

struct qms_control_socket {
    struct qms_listener listener;
    int stop_fd;
    bool started;
    pthread_t thread;
    char *(*answer)(void *opaque, uid_t user, const char *request);
    void *opaque;
    char request[QMS_CONTROL_LINE + 1];
};

struct qms_control_socket *qms_control_socket_open(const char *path, char *err,
                                                   size_t len)
{
    struct qms_control_socket *s = calloc(1, sizeof *s);

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

static void send_all(int fd, const char *text)
{
    const struct timeval timeout = {.tv_sec = 1};
    size_t left = strlen(text);

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    while (left > 0) {
        ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

        if (n <= 0 && errno != EINTR)
            return;
        if (n > 0) {
            text += n;
            left -= (size_t)n;
        }
    }
}

/* Reads a line into s->request.  Returns a sentence if there is none. */
static const char *receive(struct qms_control_socket *s, int fd)
{
    const uint64_t deadline = qms_now() + PATIENCE;
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                           {.fd = s->stop_fd, .events = POLLIN}};
    size_t used = 0;

    while (used < QMS_CONTROL_LINE) {
        uint64_t now = qms_now();
        ssize_t n;
        char *end;

        if (now >= deadline || poll(fds, 2, (int)((deadline - now) / 1000000) + 1) == 0)
            return "no request came within a second";
        if (fds[1].revents)
            return "the server ends";
        n = recv(fd, s->request + used, QMS_CONTROL_LINE - used, MSG_DONTWAIT);
        if (n == 0)
            return "a request is one line";
        if (n == -1)
            continue;
        end = memchr(s->request + used, '\n', (size_t)n);
        used += (size_t)n;
        if (end) {
            *end = '\0';
            return NULL;
        }
    }
    return "a request has at most 65536 bytes";
}

static void serve(struct qms_control_socket *s, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    const char *refused = NULL;
    char *text = NULL;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == -1 ||
        (peer.uid != 0 && peer.uid != geteuid()))
        refused = "only root and the server's user may change its parameters";
    else
        refused = receive(s, fd);
    if (!refused) {
        text = s->answer(s->opaque, peer.uid, s->request);
        if (!text)
            refused = "out of memory";
    }
    if (refused) {
        snprintf(s->request, sizeof s->request, "{\"error\": \"%s\"}\n", refused);
        send_all(fd, s->request);
    } else {
        send_all(fd, text);
        send_all(fd, "\n");
    }
    free(text);
}

static void *control_thread(void *opaque)
{
    struct qms_control_socket *s = opaque;
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
        serve(s, fd);
        close(fd);
    }
}

int qms_control_socket_start(struct qms_control_socket *s,
                             char *(*answer)(void *opaque, uid_t user,
                                             const char *request),
                             void *opaque)
{
    int error;

    s->answer = answer;
    s->opaque = opaque;
    error = pthread_create(&s->thread, NULL, control_thread, s);
    s->started = error == 0;
    return error;
}

void qms_control_socket_close(struct qms_control_socket *s)
{
    if (s->started) {
        eventfd_write(s->stop_fd, 1);
        pthread_join(s->thread, NULL);
    }
    qms_listener_close(&s->listener);
    close(s->stop_fd);
    free(s);
}
