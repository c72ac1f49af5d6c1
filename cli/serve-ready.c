/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-ready.c - tells systemd when the server answers, of quickmine serve.
 *
 * nbdkit does not notify, and it may be minutes after its start that its backend can be
 * opened.  So a process beside it connects as a client does, and notifies once that has
 * succeeded.  It is no child of nbdkit's, which would never wait for it; it ends with
 * nbdkit, by the latter's pidfd.
 *
 * A filter (ip) may let other machines in only.  nbdkit then accepts our connection,
 * and closes it before a greeting.  It accepts nothing before it serves, so this
 * counts, too, when it has gone on for some seconds; whether the backend can be opened
 * is not known.
 *
 * It also gives nbdkit's Unix socket the mode that the umask asks for.  nbdkit sets its
 * own umask, 0022, with which only the socket's owner can connect.
 */
#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/serve.h"

enum {
    INTERVAL = 100, /* ms between two tries */
    LONGEST = 10,   /* s of one try */
    ORDERLY = 3,    /* s until the service's status says that it waits */
    TURNED_AWAY = 3 /* s after which this is how the server serves */
};

enum result { FAILS, ANSWERS, TURNS_AWAY };

/* One datagram, as sd_notify(3) describes it. */
static void notify(const char *where, const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(where);
    int fd;

    if (n >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, where, n);
    if (where[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return;
    (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

/* Whether the server answers at uri: opens the device, or (not handshake) only sees
 * that it speaks NBD. */
static bool answers(const char *uri, bool handshake)
{
    struct nbd_handle *nbd = nbd_create();
    bool ready;

    if (!nbd)
        return false;
    nbd_set_opt_mode(nbd, !handshake);
    ready = nbd_connect_uri(nbd, uri) == 0;
    if (ready && handshake)
        nbd_shutdown(nbd, 0);
    else if (ready)
        nbd_opt_abort(nbd);
    nbd_close(nbd);
    return ready;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_tcp(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all;
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &all) != 0)
        return -1;
    for (const struct addrinfo *a = all; a && fd == -1; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd != -1 && connect(fd, a->ai_addr, a->ai_addrlen) == -1) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    return fd;
}

/* Whether the server accepts a connection, and closes it before it says anything. */
static bool turns_away(const struct serve_server *server)
{
    int fd = server->socket ? connect_unix(server->socket)
                            : connect_tcp(server->host, server->port);
    char byte;
    ssize_t n = fd == -1 ? 1 : recv(fd, &byte, 1, 0);

    return n == 0 || (n == -1 && errno == ECONNRESET);
}

/* One try, in a process of its own, since a handshake may hang with the backend. */
static enum result try(const struct serve_server *server)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(LONGEST);
        _exit(answers(server->uri, !server->tls) ? ANSWERS
              : turns_away(server)               ? TURNS_AWAY
                                                 : FAILS);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? (enum result)WEXITSTATUS(status)
               : FAILS;
}

static time_t seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

/* Closes what is only for the server: else its lock on the device would outlive it. */
static void keep_only(int fd)
{
    if (fd > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, UINT_MAX, 0);
}

/* 0 or an errno value.  Root may serve in a folder of others, who put a link there. */
static int set_mode(const char *socket, mode_t mode)
{
    int fd = open(socket, O_PATH | O_NOFOLLOW | O_CLOEXEC), error = EINVAL;
    char path[32];
    struct stat st;

    if (fd == -1)
        return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_nlink == 1)
        error = chmod(path, mode) == 0 ? 0 : errno;
    close(fd);
    return error;
}

static void watch(int nbdkit, const char *where, const struct serve_server *server)
{
    struct pollfd end = {.fd = nbdkit, .events = POLLIN};
    const time_t begun = seconds();
    time_t answered = begun;      /* or failed: not turned away */
    const mode_t mask = umask(0); /* it makes no file */
    bool told = false, opened = !server->socket;

    while (poll(&end, 1, INTERVAL) == 0) {
        opened = opened || set_mode(server->socket, 0777 & ~mask) != ENOENT;
        switch (opened ? try(server) : FAILS) {
        case ANSWERS:
            notify(where, "READY=1\nSTATUS=Serving");
            return;
        case TURNS_AWAY:
            if (seconds() - answered < TURNED_AWAY)
                break;
            notify(where, "READY=1\nSTATUS=Serving, but not this machine: a filter "
                          "turns its connections away");
            return;
        case FAILS:
            answered = seconds();
            break;
        }
        if (!told && seconds() - begun >= ORDERLY) {
            notify(where, "STATUS=Waiting for the backend");
            told = true;
        }
    }
}

int serve_announce(const struct serve_server *server)
{
    char *where = getenv("NOTIFY_SOCKET");
    int nbdkit, status, error;
    pid_t child;

    if (!where)
        return 0;
    where = strdup(where);
    unsetenv("NOTIFY_SOCKET");
    nbdkit = (int)syscall(SYS_pidfd_open, getpid(), 0);
    child = nbdkit == -1 || !where ? -1 : fork();
    if (child == -1) {
        cli_fail("systemd cannot be told: %s", strerror(errno));
        free(where);
        return -1;
    }
    if (child == 0) {
        child = fork();
        if (child == 0) {
            keep_only(nbdkit);
            watch(nbdkit, where, server);
        }
        _exit(child == -1 ? errno : 0);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        error = ECHILD;
    else
        error = WEXITSTATUS(status);
    close(nbdkit);
    free(where);
    if (error == 0)
        return 0;
    cli_fail("systemd cannot be told: %s", strerror(error));
    return -1;
}
