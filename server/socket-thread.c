/* SPDX-License-Identifier: BSD-3-Clause */
/* socket-thread.c - see socket-thread.h. */
#include "server/socket-thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int qms_socket_thread_open(struct qms_socket_thread *t, const char *path, char *err,
                           size_t len)
{
    *t = (struct qms_socket_thread){.stop_fd = eventfd(0, EFD_CLOEXEC)};
    if (t->stop_fd == -1) {
        snprintf(err, len, "%s", strerror(errno));
        return -1;
    }
    if (qms_listener_open(&t->listener, path, err, len) == -1) {
        close(t->stop_fd);
        return -1;
    }
    return 0;
}

static void *run(void *opaque)
{
    struct qms_socket_thread *t = opaque;
    struct pollfd fds[] = {{.fd = t->listener.fd, .events = POLLIN},
                           {.fd = t->stop_fd, .events = POLLIN}};

    for (;;) {
        int fd;

        if (poll(fds, 2, -1) == -1)
            continue;
        if (fds[1].revents)
            return NULL;
        fd = accept4(t->listener.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd == -1) {
            /* Out of descriptors, say: the connection stays there and poll() returns
             * at once, so give others a moment. */
            if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                poll(fds + 1, 1, 100);
            continue;
        }
        t->serve(t->opaque, fd);
        close(fd);
    }
}

int qms_socket_thread_start(struct qms_socket_thread *t,
                            void (*serve)(void *opaque, int fd), void *opaque)
{
    int error;

    t->serve = serve;
    t->opaque = opaque;
    error = pthread_create(&t->thread, NULL, run, t);
    t->started = error == 0;
    return error;
}

void qms_socket_thread_close(struct qms_socket_thread *t)
{
    if (t->started) {
        eventfd_write(t->stop_fd, 1);
        pthread_join(t->thread, NULL);
    }
    qms_listener_close(&t->listener);
    close(t->stop_fd);
}

void qms_socket_send(int fd, const char *text)
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
