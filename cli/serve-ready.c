/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-ready.c - tells systemd when the server answers, of quickmine serve.
 *
 * nbdkit does not notify, and it may be minutes after its start that its backend can be
 * opened.  So a process beside it connects as a client does, and notifies once that has
 * succeeded.  It is no child of nbdkit's, which would never wait for it; it ends with
 * nbdkit, by the latter's pidfd.
 */
#include <errno.h>
#include <libnbd.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
    ORDERLY = 3     /* s until the service's status says that it waits */
};

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

/* One try, in a process of its own, since a handshake may hang with the backend.
 * Whether it succeeded. */
static bool try(const char *uri, bool handshake)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(LONGEST);
        _exit(answers(uri, handshake) ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
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

static void watch(int server, const char *where, const char *uri, bool handshake)
{
    struct pollfd end = {.fd = server, .events = POLLIN};
    const time_t begun = seconds();
    bool told = false;

    while (poll(&end, 1, INTERVAL) == 0) {
        if (try(uri, handshake)) {
            notify(where, "READY=1\nSTATUS=Serving");
            return;
        }
        if (!told && seconds() - begun >= ORDERLY) {
            notify(where, "STATUS=Waiting for the backend");
            told = true;
        }
    }
}

int serve_announce(const char *uri, bool handshake)
{
    char *where = getenv("NOTIFY_SOCKET");
    int server, status, error;
    pid_t child;

    if (!where)
        return 0;
    where = strdup(where);
    unsetenv("NOTIFY_SOCKET");
    server = (int)syscall(SYS_pidfd_open, getpid(), 0);
    child = server == -1 || !where ? -1 : fork();
    if (child == -1) {
        cli_fail("systemd cannot be told: %s", strerror(errno));
        free(where);
        return -1;
    }
    if (child == 0) {
        child = fork();
        if (child == 0) {
            keep_only(server);
            watch(server, where, uri, handshake);
        }
        _exit(child == -1 ? errno : 0);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        error = ECHILD;
    else
        error = WEXITSTATUS(status);
    close(server);
    free(where);
    if (error == 0)
        return 0;
    cli_fail("systemd cannot be told: %s", strerror(error));
    return -1;
}
