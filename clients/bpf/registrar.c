/* SPDX-License-Identifier: BSD-3-Clause */
/* registrar.c - see registrar.h. */
#include "clients/bpf/registrar.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#define GUESTS_MAX      4096
#define DESCRIPTORS     3   /* that a guest takes: connection, process, table */
#define OTHERS          256 /* descriptors that are left to the rest of the program */
#define SILENCE_SECONDS 5
#define EVENTS          64
#define ACCEPTS         32
#define BACKLOG         1024

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* One of the two things that end a registration. */
struct end {
    struct guest *guest;
    int fd; /* -1: there is none */
};

/* A connection. */
struct guest {
    struct end connection;
    struct end life; /* of its process, a pidfd; a kernel may have none */
    pid_t process;
    uid_t user;
    bool registered;
    bool gone; /* to be freed when the events at hand have been looked at */
    time_t since;
    struct guest *prev, *next;
};

struct qm_registrar {
    struct qm_registrar_calls calls;
    int listener, epoll;
    /* The directory of the socket and its name there: the process may leave the
     * working directory that the path is relative to. */
    int directory;
    char name[sizeof((struct sockaddr_un *)0)->sun_path];
    dev_t dev;
    ino_t ino; /* of the socket, to remove no other */
    struct guest *guests;
    unsigned count, most;
};

static time_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

/* Whether the socket at address is one that nobody listens at. */
static bool is_abandoned(const struct sockaddr_un *address)
{
    struct stat st;
    bool refused;
    int fd;

    if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return false;
    refused = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
              errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* The socket gets its mode before it has a name: the folder's owner may be another
 * user, who puts a link to any file in its place before a chmod(2). */
static int bind_for_all(int fd, const struct sockaddr_un *address)
{
    mode_t before;
    int r;

    if (fchmod(fd, 0666) != 0)
        return errno;
    before = umask(0);
    r = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    umask(before);
    return r;
}

static int open_directory(struct qm_registrar *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[sizeof d->name] = ".";

    strcpy(d->name, slash ? slash + 1 : path);
    if (slash) {
        memcpy(directory, path, (size_t)(slash + 1 - path));
        directory[slash + 1 - path] = '\0';
    }
    d->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return d->directory == -1 ? errno : 0;
}

static int listen_at(struct qm_registrar *d, const struct sockaddr_un *address)
{
    struct stat st;
    int error;

    d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->listener == -1)
        return errno;
    error = open_directory(d, address->sun_path);
    if (error != 0)
        return error;
    if (is_abandoned(address))
        unlink(address->sun_path);
    error = bind_for_all(d->listener, address);
    if (error != 0)
        return error;
    if (fstatat(d->directory, d->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    return listen(d->listener, BACKLOG) == 0 ? 0 : errno;
}

/* How many registrations there is room for: a flood of them must not keep the program
 * from opening other files. */
static unsigned room(void)
{
    struct rlimit limit;
    rlim_t most;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return GUESTS_MAX;
    most = limit.rlim_cur > OTHERS ? (limit.rlim_cur - OTHERS) / DESCRIPTORS : 0;
    return most < 4 ? 4 : most > GUESTS_MAX ? GUESTS_MAX : (unsigned)most;
}

int qm_registrar_open(struct qm_registrar **registrar, const char *path,
                      const struct qm_registrar_calls *calls, char *err, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN};
    struct qm_registrar *d;
    int error;

    *registrar = NULL;
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(err, len, "%s: a socket's path has at most %zu bytes", path,
                 sizeof address.sun_path - 1);
        return EINVAL;
    }
    strcpy(address.sun_path, path);
    d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    d->calls = *calls;
    d->most = room();
    d->listener = d->directory = -1;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    error = d->epoll == -1 ? errno : listen_at(d, &address);
    if (error == 0 && epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->listener, &event) != 0)
        error = errno;
    if (error != 0) {
        snprintf(err, len, "%s: %s", path, strerror(error));
        qm_registrar_close(d);
        return error;
    }
    *registrar = d;
    return 0;
}

static void let_go(struct qm_registrar *d, struct guest *g)
{
    if (g->gone)
        return;
    if (g->registered)
        d->calls.left(d->calls.opaque, g->process);
    g->gone = true;
    close(g->connection.fd);
    if (g->life.fd != -1)
        close(g->life.fd);
    d->count--;
}

static void free_gone(struct qm_registrar *d)
{
    struct guest *g, *next;

    DL_FOREACH_SAFE(d->guests, g, next)
    {
        if (!g->gone)
            continue;
        DL_DELETE(d->guests, g);
        free(g);
    }
}

void qm_registrar_close(struct qm_registrar *d)
{
    struct guest *g;
    struct stat st;

    if (!d)
        return;
    /* First: a guest that is let go looks for another agent at once. */
    if (d->listener != -1)
        close(d->listener);
    DL_FOREACH(d->guests, g)
    {
        g->registered = false;
        let_go(d, g);
    }
    free_gone(d);
    if (d->epoll != -1)
        close(d->epoll);
    if (d->ino != 0 && fstatat(d->directory, d->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == d->dev && st.st_ino == d->ino)
        unlinkat(d->directory, d->name, 0);
    if (d->directory != -1)
        close(d->directory);
    free(d);
}

int qm_registrar_fd(const struct qm_registrar *d)
{
    return d->epoll;
}

static unsigned guests_of(const struct qm_registrar *d, uid_t user)
{
    const struct guest *g;
    unsigned n = 0;

    DL_FOREACH(d->guests, g)
    n += !g->gone && g->user == user;
    return n;
}

static int attend(struct qm_registrar *d, struct guest *g, struct end *end, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = end};

    end->guest = g;
    end->fd = fd;
    return fd == -1 || epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

/* Whether the process with this number now is of this user.  True if it cannot be
 * known.
 */
static bool is_of(pid_t process, uid_t user)
{
    unsigned long real, effective;
    char path[32], line[128];
    bool is = true;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    f = fopen(path, "re");
    if (!f)
        return errno != ENOENT && errno != ESRCH;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Uid: %lu %lu", &real, &effective) == 2)
            is = effective == user;
    fclose(f);
    return is;
}

/* A descriptor of the process that connected; -1: there is none, and *gone says whether
 * that is because the process is gone.
 *
 * Its number alone is not enough: a connection can be left to another process, and the
 * number be another's by now, whose threads would then count as the guest's.  Before
 * Linux 6.5 that can be found out only if they are of different users. */
static int life_of(int fd, const struct ucred *peer, bool *gone)
{
    int life;
    socklen_t size = sizeof life;

    *gone = false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &life, &size) == 0)
        return life;
    if (errno != ENOPROTOOPT) {
        *gone = true;
        return -1;
    }
    life = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    if (life == -1 ? errno != ENOSYS : !is_of(peer->pid, peer->uid)) {
        if (life != -1)
            close(life);
        life = -1;
        *gone = true;
    }
    return life;
}

static void welcome(struct qm_registrar *d, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct guest *g;
    bool gone;
    int life;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0 ||
        d->count >= d->most ||
        (peer.uid != 0 && guests_of(d, peer.uid) >= d->most / 4) ||
        !(g = calloc(1, sizeof *g))) {
        close(fd);
        return;
    }
    g->process = peer.pid;
    g->user = peer.uid;
    g->since = now();
    g->life.fd = -1;
    d->count++;
    DL_APPEND(d->guests, g);
    life = life_of(fd, &peer, &gone);
    if (gone) {
        g->connection.fd = fd;
        let_go(d, g);
    } else if (attend(d, g, &g->connection, fd) != 0 ||
               attend(d, g, &g->life, life) != 0) {
        let_go(d, g);
    }
}

/* Takes the descriptors that have come: one is the table, of more none is; what is not
 * used is closed. */
static int take_descriptor(struct msghdr *message)
{
    int table = -1, count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len;
             at += sizeof(int)) {
            if (table != -1)
                close(table);
            memcpy(&table, (char *)c + at, sizeof table);
            count++;
        }
    }
    if (count > 1) {
        close(table);
        table = -1;
    }
    return table;
}

/* Receives a hello, with the descriptor that comes with it, or -1.  Returns its size, 0
 * at the end, or -1 with errno. */
static ssize_t receive(int fd, struct qm_agent_hello *hello, int *table)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {hello, sizeof *hello};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

    *table = n == -1 ? -1 : take_descriptor(&message);
    return n;
}

/* A process that registers anew has no other registration any more. */
static void replace(struct qm_registrar *d, const struct guest *by)
{
    struct guest *g;

    DL_FOREACH(d->guests, g)
    {
        if (g == by || g->gone || !g->registered || g->process != by->process)
            continue;
        g->registered = false;
        let_go(d, g);
    }
}

static bool has_ended(const struct guest *g)
{
    struct pollfd life = {.fd = g->life.fd, .events = POLLIN};

    return g->life.fd != -1 && poll(&life, 1, 0) == 1;
}

static void listen_to(struct qm_registrar *d, struct guest *g)
{
    struct qm_agent_welcome answer = {.magic = QM_AGENT_MAGIC,
                                      .version = QM_AGENT_VERSION};
    struct qm_agent_hello hello;
    int table;
    ssize_t n = receive(g->connection.fd, &hello, &table);

    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || g->registered) {
        /* A second hello has no sense, and what follows it would have none either. */
        if (table != -1)
            close(table);
        let_go(d, g);
        return;
    }
    answer.error = EINVAL;
    if (has_ended(g)) /* its number may be another's */
        answer.error = ESRCH;
    else if (n == sizeof hello && table != -1)
        answer.error = (uint32_t)d->calls.arrived(d->calls.opaque, g->process, g->user,
                                                  &hello, table);
    if (table != -1)
        close(table);
    g->registered = answer.error == 0;
    if (g->registered)
        replace(d, g);
    if (send(g->connection.fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            sizeof answer ||
        answer.error != 0)
        let_go(d, g);
}

static void serve(struct qm_registrar *d, const struct end *end)
{
    if (end->guest->gone)
        return;
    if (end == &end->guest->life)
        let_go(d, end->guest);
    else
        listen_to(d, end->guest);
}

void qm_registrar_serve(struct qm_registrar *d)
{
    struct epoll_event events[EVENTS];
    struct guest *g;
    int fd, n;

    /* The rest wait: others have to be served, too. */
    for (unsigned i = 0; i < ACCEPTS; i++) {
        fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd == -1)
            break;
        welcome(d, fd);
    }
    n = epoll_wait(d->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr) /* else it is the listener */
            serve(d, events[i].data.ptr);
    DL_FOREACH(d->guests, g)
    {
        if (!g->gone && !g->registered && now() - g->since > SILENCE_SECONDS)
            let_go(d, g);
    }
    free_gone(d);
}
