/* SPDX-License-Identifier: BSD-3-Clause */
/* control-socket.c - see control-socket.h.  A client that does not send a request
 * within a second is given up. */
#include "server/control-socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/socket-thread.h"
#include "server/stats.h"

#define PATIENCE UINT64_C(1000000000) /* ns: with a client that is slow to send */

struct qms_control_socket {
    struct qms_socket_thread thread;
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
    if (qms_socket_thread_open(&s->thread, path, err, len) == 0)
        return s;
    free(s);
    return NULL;
}

/* Reads a line into s->request.  Returns a sentence if there is none. */
static const char *receive(struct qms_control_socket *s, int fd)
{
    const uint64_t deadline = qms_now() + PATIENCE;
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                           {.fd = s->thread.stop_fd, .events = POLLIN}};
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

static void serve(void *opaque, int fd)
{
    struct qms_control_socket *s = opaque;
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
        qms_socket_send(fd, s->request);
    } else {
        qms_socket_send(fd, text);
        qms_socket_send(fd, "\n");
    }
    free(text);
}

int qms_control_socket_start(struct qms_control_socket *s,
                             char *(*answer)(void *opaque, uid_t user,
                                             const char *request),
                             void *opaque)
{
    s->answer = answer;
    s->opaque = opaque;
    return qms_socket_thread_start(&s->thread, serve, s);
}

void qms_control_socket_close(struct qms_control_socket *s)
{
    qms_socket_thread_close(&s->thread);
    free(s);
}
