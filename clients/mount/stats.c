/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - see stats.h. */
#include "clients/mount/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "clients/libqmctx/device.h"
#include "clients/mount/log.h"
#include "clients/protocol/quickmine-mount.h"

#define TIMEOUT_MS 10000

void qm_mount_count(struct qm_mount_counts *c, enum qm_mount_request kind, size_t bytes,
                    int error)
{
    atomic_fetch_add_explicit(&c->requests[kind], 1, memory_order_relaxed);
    if (error)
        atomic_fetch_add_explicit(&c->failed[kind], 1, memory_order_relaxed);
    else if (kind <= QM_MOUNT_WRITE)
        atomic_fetch_add_explicit(&c->bytes[kind], bytes, memory_order_relaxed);
}

void qm_mount_counts_text(struct qm_mount_counts *c, const struct qm_device *device,
                          char *text, size_t len)
{
    struct qm_device_stat d;

    qm_device_stat(device, &d);
    snprintf(text, len,
             "up %d\nsize %" PRIu64 "\n"
             "reads %" PRIu64 "\nread_bytes %" PRIu64 "\nread_errors %" PRIu64
             "\ntagged_requests %" PRIu64 "\nwrites %" PRIu64 "\nwrite_bytes %" PRIu64
             "\nwrite_errors %" PRIu64 "\nflushes %" PRIu64 "\nflush_errors %" PRIu64
             "\nallocates %" PRIu64 "\nallocate_errors %" PRIu64
             "\nretained_bytes %" PRIu64 "\nretained_writes %" PRIu64
             "\nretained_most_bytes %" PRIu64 "\nbackground_flushes %" PRIu64
             "\nreconnections %" PRIu64 "\nserver_changes %" PRIu64
             "\nresent_writes %" PRIu64 "\nresent_bytes %" PRIu64 "\nfences %" PRIu64
             "\nwaited_ms %" PRIu64 "\nlosses %u\n",
             qm_device_is_up(device), qm_device_size(device),
             c->requests[QM_MOUNT_READ], c->bytes[QM_MOUNT_READ],
             c->failed[QM_MOUNT_READ], c->tagged, c->requests[QM_MOUNT_WRITE],
             c->bytes[QM_MOUNT_WRITE], c->failed[QM_MOUNT_WRITE],
             c->requests[QM_MOUNT_FLUSH], c->failed[QM_MOUNT_FLUSH],
             c->requests[QM_MOUNT_ALLOCATE], c->failed[QM_MOUNT_ALLOCATE],
             d.retained_bytes, d.retained_changes, d.retained_most,
             d.background_flushes, d.reconnections, d.instances, d.resent_changes,
             d.resent_bytes, d.fences, d.waited_ms, qm_device_losses(device));
}

/* Connects to the mount.  Returns a descriptor, or -1 with errno set. */
static int connect_to(const char *path)
{
    const struct timeval timeout = {.tv_sec = TIMEOUT_MS / 1000};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, error;

    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* The next message, without the descriptor that may come with it; -1 if none comes. */
static ssize_t receive(int fd, char *buf, size_t size)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    return poll(&readable, 1, TIMEOUT_MS) == 1 ? recv(fd, buf, size, MSG_DONTWAIT) : -1;
}

/* Asks the mount.  Returns NULL, or a sentence that says what is wrong. */
static const char *ask(int fd, char *text, size_t size)
{
    const struct qm_mount_ended question = {.index = QM_MOUNT_ASK};
    struct qm_mount_hello hello;
    ssize_t n = receive(fd, (char *)&hello, sizeof hello);

    if (n != sizeof hello || hello.magic != QM_MOUNT_MAGIC)
        return "the mount does not let this user ask, has too many programs, or is "
               "none";
    if (send(fd, &question, sizeof question, MSG_NOSIGNAL) != sizeof question)
        return "the mount does not listen";
    n = receive(fd, text, size - 1);
    if (n <= 0)
        return "the mount does not answer; one of an earlier version cannot";
    text[n] = '\0';
    return NULL;
}

static void print(char *text, bool json)
{
    const char *separator = "{";
    char *rest = text, *line;

    while ((line = strsep(&rest, "\n")) && *line) {
        char *number = strchr(line, ' ');

        if (!number)
            continue;
        *number++ = '\0';
        if (!json) {
            printf("%-20s %s\n", line, number);
            continue;
        }
        printf("%s\"%s\": %s", separator, line, number);
        separator = ", ";
    }
    if (json)
        puts("}");
}

int qm_mount_print_stats(const char *path, bool json)
{
    char text[QM_MOUNT_ANSWER_MAX + 1];
    const char *wrong;
    int fd = connect_to(path);

    if (fd == -1) {
        qm_mount_log(LOG_ERR, "%s: %s; is it the socket of a mount, FILE%s?", path,
                     strerror(errno), QM_MOUNT_SUFFIX);
        return 1;
    }
    wrong = ask(fd, text, sizeof text);
    close(fd);
    if (wrong) {
        qm_mount_log(LOG_ERR, "%s: %s", path, wrong);
        return 1;
    }
    print(text, json);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    qm_mount_log(LOG_ERR, "the output cannot be written: %s", strerror(errno));
    return 1;
}
