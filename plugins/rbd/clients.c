/* SPDX-License-Identifier: BSD-3-Clause */
/* clients.c - see clients.h. */
#include "plugins/rbd/clients.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LISTENERS_MAX 64 /* more are not looked at */

struct name {
    struct sockaddr_storage address;
    socklen_t len;
};

static bool option(int fd, int which, int *value)
{
    socklen_t len = sizeof *value;

    return getsockopt(fd, SOL_SOCKET, which, value, &len) == 0;
}

/* Whether it is a stream's socket; sets its own name, and whether it listens. */
static bool look(int fd, struct name *name, bool *listens)
{
    int type, accepts;

    memset(name, 0, sizeof *name);
    name->len = sizeof name->address;
    if (!option(fd, SO_TYPE, &type) || type != SOCK_STREAM ||
        !option(fd, SO_ACCEPTCONN, &accepts) ||
        getsockname(fd, (struct sockaddr *)&name->address, &name->len) == -1)
        return false;
    *listens = accepts;
    return true;
}

/* Whether a connection of this name came in by that listener, which may listen at any
 * address of the machine. */
static bool came_by(const struct name *name, const struct name *listener)
{
    const struct sockaddr_in *a4 = (const void *)&name->address;
    const struct sockaddr_in *b4 = (const void *)&listener->address;
    const struct sockaddr_in6 *a6 = (const void *)&name->address;
    const struct sockaddr_in6 *b6 = (const void *)&listener->address;

    if (name->address.ss_family != listener->address.ss_family)
        return false;
    switch (name->address.ss_family) {
    case AF_INET:
        return a4->sin_port == b4->sin_port &&
               (b4->sin_addr.s_addr == htonl(INADDR_ANY) ||
                a4->sin_addr.s_addr == b4->sin_addr.s_addr);
    case AF_INET6:
        return a6->sin6_port == b6->sin6_port &&
               (IN6_IS_ADDR_UNSPECIFIED(&b6->sin6_addr) ||
                memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0);
    default:
        return name->len == listener->len &&
               memcmp(&name->address, &listener->address, name->len) == 0;
    }
}

/* Calls f for each stream's socket of this process; false: they cannot be listed. */
static bool each(void (*f)(void *opaque, int fd, const struct name *name, bool listens),
                 void *opaque)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    struct name name;
    bool listens;

    if (!dir)
        return false;
    while ((entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && look(fd, &name, &listens))
            f(opaque, fd, &name, listens);
    }
    closedir(dir);
    return true;
}

struct shutting {
    struct name listeners[LISTENERS_MAX];
    int n_listeners, shut, how;
};

static void note_listener(void *opaque, int fd, const struct name *name, bool listens)
{
    struct shutting *s = opaque;

    if (listens && s->n_listeners < LISTENERS_MAX)
        s->listeners[s->n_listeners++] = *name;
}

static void shut_client(void *opaque, int fd, const struct name *name, bool listens)
{
    struct shutting *s = opaque;

    for (int i = 0; i < s->n_listeners && !listens; i++)
        if (came_by(name, &s->listeners[i])) {
            if (shutdown(fd, s->how) == 0)
                s->shut++;
            return;
        }
}

int qmr_clients_shut(int how)
{
    struct shutting s = {.how = how};

    return each(note_listener, &s) && each(shut_client, &s) ? s.shut : -1;
}
