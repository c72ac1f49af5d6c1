/* SPDX-License-Identifier: BSD-3-Clause */
/* relay.c - see relay.h.
 *
 * A connection has two threads, one for each direction, so neither waits for the
 * other's buffers.  The last of them closes it.
 *
 * When a connection is cut, the server's end stays open for some time, and what the
 * server answers goes nowhere.  Would it be closed at once, the server would drop the
 * requests that it has not read yet, at its first reply.
 */
#include "relay.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ORPHAN_MS 300 /* that the server's end stays open */

struct pair {
    struct relay *relay;
    int fd[2]; /* the client's and the server's */
    unsigned users;
    atomic_bool cut;
    struct pair *next;
};

/* One direction of a pair. */
struct pump {
    struct pair *pair;
    int from, to;
    bool to_client;
};

struct relay {
    struct sockaddr_un to;
    int listening;
    pthread_t acceptor;
    pthread_mutex_t lock; /* of what follows, and of each pair's users and next */
    pthread_cond_t none;
    struct pair *pairs;
    unsigned total;
};

static void leave(struct pair *p)
{
    struct relay *r = p->relay;
    struct pair **at = &r->pairs;

    pthread_mutex_lock(&r->lock);
    if (--p->users == 0) {
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        close(p->fd[0]);
        close(p->fd[1]);
        free(p);
        if (!r->pairs)
            pthread_cond_broadcast(&r->none);
    }
    pthread_mutex_unlock(&r->lock);
}

static bool send_all(int fd, const char *buf, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, buf, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        buf += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void *pump_thread(void *opaque)
{
    struct pump pump = *(struct pump *)opaque;
    char buf[1 << 16];
    ssize_t n;

    free(opaque);
    while ((n = recv(pump.from, buf, sizeof buf, 0)) > 0)
        if (!send_all(pump.to, buf, (size_t)n) &&
            !(pump.to_client && atomic_load(&pump.pair->cut)))
            break;
    if (!pump.to_client && atomic_load(&pump.pair->cut))
        nanosleep(&(struct timespec){.tv_nsec = ORPHAN_MS * 1000000L}, NULL);
    shutdown(pump.from, SHUT_RDWR);
    shutdown(pump.to, SHUT_RDWR);
    leave(pump.pair);
    return NULL;
}

/* The caller has counted it as a user. */
static void start_pump(struct pair *p, bool to_client)
{
    struct pump *pump = malloc(sizeof *pump);
    int from = p->fd[to_client ? 1 : 0], to = p->fd[to_client ? 0 : 1];
    pthread_attr_t attr;
    pthread_t thread;
    bool ok;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pump)
        *pump =
            (struct pump){.pair = p, .from = from, .to = to, .to_client = to_client};
    ok = pump && pthread_create(&thread, &attr, pump_thread, pump) == 0;
    pthread_attr_destroy(&attr);
    if (ok)
        return;
    free(pump);
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
    leave(p);
}

static void relay_one(struct relay *r, int client)
{
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *p = calloc(1, sizeof *p);

    if (!p || server == -1 ||
        connect(server, (struct sockaddr *)&r->to, sizeof r->to) == -1) {
        free(p);
        if (server != -1)
            close(server);
        close(client);
        return;
    }
    *p = (struct pair){.relay = r, .fd = {client, server}, .users = 2};
    pthread_mutex_lock(&r->lock);
    p->next = r->pairs;
    r->pairs = p;
    r->total++;
    pthread_mutex_unlock(&r->lock);
    start_pump(p, false);
    start_pump(p, true);
}

static void *accept_thread(void *opaque)
{
    struct relay *r = opaque;
    int client;

    for (;;) {
        client = accept(r->listening, NULL, NULL);
        if (client == -1 && errno != EINTR && errno != ECONNABORTED)
            return NULL; /* relay_stop() */
        if (client != -1)
            relay_one(r, client);
    }
}

static bool set_path(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path) {
        fprintf(stderr, "relay: %s is too long for a socket's path\n", path);
        return false;
    }
    memcpy(address->sun_path, path, strlen(path) + 1);
    return true;
}

struct relay *relay_start(const char *from, const char *to)
{
    struct relay *r = calloc(1, sizeof *r);
    struct sockaddr_un here;

    if (!r || !set_path(&r->to, to) || !set_path(&here, from)) {
        free(r);
        return NULL;
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->none, NULL);
    r->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->listening == -1 ||
        bind(r->listening, (struct sockaddr *)&here, sizeof here) == -1 ||
        listen(r->listening, 64) == -1 ||
        pthread_create(&r->acceptor, NULL, accept_thread, r) != 0) {
        fprintf(stderr, "relay: %s: %s\n", from, strerror(errno));
        if (r->listening != -1)
            close(r->listening);
        free(r);
        return NULL;
    }
    return r;
}

void relay_cut(struct relay *r)
{
    pthread_mutex_lock(&r->lock);
    for (struct pair *p = r->pairs; p; p = p->next) {
        atomic_store(&p->cut, true);
        shutdown(p->fd[0], SHUT_RDWR);
    }
    pthread_mutex_unlock(&r->lock);
}

unsigned relay_connections(struct relay *r)
{
    unsigned total;

    pthread_mutex_lock(&r->lock);
    total = r->total;
    pthread_mutex_unlock(&r->lock);
    return total;
}

void relay_stop(struct relay *r)
{
    shutdown(r->listening, SHUT_RDWR);
    pthread_join(r->acceptor, NULL);
    close(r->listening);
    relay_cut(r);
    pthread_mutex_lock(&r->lock);
    while (r->pairs)
        pthread_cond_wait(&r->none, &r->lock);
    pthread_mutex_unlock(&r->lock);
    pthread_cond_destroy(&r->none);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
