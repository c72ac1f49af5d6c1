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
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/protocol/stale-socket.h"
#include "server/stats-socket.h"

#define MODE 0600

struct qms_stats_socket {
    char *path;
    dev_t device; /* what was made there */
    ino_t inode;
    int fd, stop_fd;
    bool started;
    pthread_t thread;
    char *(*report)(void *opaque);
    void *opaque;
};

static int bind_to(int fd, const char *path, char *err, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(err, len, "the path is longer than the %zu bytes of a socket's name",
                 sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    qm_socket_remove_stale(&address, SOCK_STREAM);
    /* Linux makes the file with the mode of the socket, less the umask, so nobody else
     * can connect even for a moment. */
    (void)fchmod(fd, MODE);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == -1) {
        if (errno == EADDRINUSE)
            snprintf(err, len, "another server uses it, or something else is there");
        else
            snprintf(err, len, "%s", strerror(errno));
        return -1;
    }
    if (listen(fd, 16) == -1) {
        snprintf(err, len, "%s", strerror(errno));
        unlink(path);
        return -1;
    }
    return 0;
}

struct qms_stats_socket *qms_stats_socket_open(const char *path, char *err, size_t len)
{
    struct qms_stats_socket *s = calloc(1, sizeof *s);
    struct stat st;

    if (!s) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return NULL;
    }
    s->path = strdup(path);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (!s->path || s->fd == -1 || s->stop_fd == -1) {
        snprintf(err, len, "%s", strerror(errno));
    } else if (bind_to(s->fd, path, err, len) == 0) {
        if (lstat(path, &st) == 0) {
            s->device = st.st_dev;
            s->inode = st.st_ino;
        }
        return s;
    }
    free(s->path);
    if (s->fd != -1)
        close(s->fd);
    if (s->stop_fd != -1)
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
    struct pollfd fds[] = {{.fd = s->fd, .events = POLLIN},
                           {.fd = s->stop_fd, .events = POLLIN}};

    for (;;) {
        int fd;

        if (poll(fds, 2, -1) == -1)
            continue;
        if (fds[1].revents)
            return NULL;
        fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
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
    struct stat st;

    if (s->started) {
        eventfd_write(s->stop_fd, 1);
        pthread_join(s->thread, NULL);
    }
    /* Somebody may have removed it, and another server put its own there. */
    if (lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(s->path);
    close(s->fd);
    close(s->stop_fd);
    free(s->path);
    free(s);
}
