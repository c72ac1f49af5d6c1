/* SPDX-License-Identifier: BSD-3-Clause */
/* attach-socket.c - serves the same on a Unix socket, for clients that are not the
 * kernel. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "clients/attach/handshake.h"
#include "clients/protocol/stale-socket.h"

#define CLIENTS         64
#define ACCEPT_PAUSE_MS 100
#define END_SECONDS     10 /* for requests that the server has */

struct listener;

struct client {
    struct listener *of;
    bool taken;         /* listener.lock */
    int fd;             /* while it shakes hands; listener.lock, or -1 */
    struct qm_nbd *nbd; /* then; listener.lock */
};

struct listener {
    struct qm_nbd_device *device;
    pthread_mutex_t lock;
    pthread_cond_t gone;
    struct client clients[CLIENTS];
    unsigned count; /* lock */
};

static void leave(struct client *c)
{
    struct listener *l = c->of;

    pthread_mutex_lock(&l->lock);
    c->taken = false;
    c->nbd = NULL;
    c->fd = -1;
    l->count--;
    pthread_cond_signal(&l->gone);
    pthread_mutex_unlock(&l->lock);
}

static void ended(void *opaque, enum qm_nbd_end how)
{
    if (how == QM_NBD_NONSENSE)
        daemon_log(LOG_WARNING, "a client sent what is no request");
    leave(opaque);
}

static void *greet(void *opaque)
{
    struct client *c = opaque;
    struct listener *l = c->of;
    int fd = c->fd, error;

    error = qm_handshake(fd, l->device->size, qm_nbd_flags(l->device));
    if (error == 0) {
        /* A listener that ends either finds the descriptor or what it became. */
        pthread_mutex_lock(&l->lock);
        error = qm_nbd_serve(&c->nbd, fd, l->device, ended, c);
        if (error == 0)
            c->fd = -1;
        pthread_mutex_unlock(&l->lock);
        if (error == 0)
            return NULL;
        daemon_log(LOG_WARNING, "a client cannot be served: %s", strerror(error));
    }
    pthread_mutex_lock(&l->lock);
    c->fd = -1;
    pthread_mutex_unlock(&l->lock);
    close(fd);
    leave(c);
    return NULL;
}

static struct client *take_place(struct listener *l, int fd)
{
    struct client *found = NULL;

    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < CLIENTS && !found; i++)
        if (!l->clients[i].taken)
            found = &l->clients[i];
    if (found) {
        *found = (struct client){.of = l, .taken = true, .fd = fd};
        l->count++;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void welcome(struct listener *l, int fd)
{
    struct client *c = take_place(l, fd);
    sigset_t all, before;
    pthread_t thread;
    int error;

    if (!c) {
        close(fd);
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, greet, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_detach(thread);
        return;
    }
    close(fd);
    leave(c);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t before;
    int fd, r;

    if (strlen(path) >= sizeof address.sun_path) {
        daemon_log(LOG_ERR, "--socket %s: a socket's path has at most %zu bytes", path,
                   sizeof address.sun_path - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1) {
        daemon_log(LOG_ERR, "%s", strerror(errno));
        return -1;
    }
    qm_socket_remove_stale(&address, SOCK_STREAM);
    before = umask(0077);
    r = bind(fd, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (r != 0 || listen(fd, CLIENTS) != 0) {
        daemon_log(LOG_ERR, "--socket %s: %s", path, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

static void end_clients(struct listener *l)
{
    struct timespec until;
    int error = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_SECONDS;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (l->clients[i].nbd)
            qm_nbd_stop(l->clients[i].nbd);
        else if (l->clients[i].taken && l->clients[i].fd != -1)
            shutdown(l->clients[i].fd, SHUT_RDWR);
    }
    while (l->count > 0 && error == 0)
        error = pthread_cond_clockwait(&l->gone, &l->lock, CLOCK_MONOTONIC, &until);
    if (l->count > 0) {
        pthread_mutex_unlock(&l->lock);
        daemon_log(LOG_WARNING, "the server does not answer: ending all the same");
        qm_device_abandon(l->device->device);
        pthread_mutex_lock(&l->lock);
    }
    while (l->count > 0)
        pthread_cond_wait(&l->gone, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

int attach_serve_socket(const struct attach_options *options,
                        struct qm_nbd_device *device, int signals)
{
    struct listener l = {.device = device};
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.events = POLLIN}};
    char *path;
    int fd;

    fds[1].fd = listen_at(options->socket);
    if (fds[1].fd == -1)
        return CLI_FAILED;
    /* In the background the current directory is another. */
    path = realpath(options->socket, NULL);
    pthread_mutex_init(&l.lock, NULL);
    pthread_cond_init(&l.gone, NULL);
    daemon_log(LOG_NOTICE, "%s: serving", options->socket);
    daemon_ready();
    do {
        if (poll(fds, 2, -1) == -1)
            continue;
        fd = fds[1].revents ? accept4(fds[1].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        /* A client that there is no descriptor for stays there: do not spin on it. */
        if (fd == -1 && fds[1].revents)
            poll(fds, 1, ACCEPT_PAUSE_MS);
        /* A client keeps the size that it finds. */
        attach_take_size(options, device);
        if (fd != -1)
            welcome(&l, fd);
    } while (!fds[0].revents);
    daemon_notify("STOPPING=1");
    close(fds[1].fd);
    if (path)
        unlink(path);
    free(path);
    end_clients(&l);
    pthread_mutex_destroy(&l.lock);
    pthread_cond_destroy(&l.gone);
    return CLI_OK;
}
