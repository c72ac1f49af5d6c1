/* SPDX-License-Identifier: BSD-3-Clause */
/* stats-socket.c - see stats-socket.h. */
#include "server/stats-socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/socket-thread.h"

struct qms_stats_socket {
    struct qms_socket_thread thread;
    char *(*report)(void *opaque);
    void *opaque;
};

struct qms_stats_socket *qms_stats_socket_open(const char *path, char *err, size_t len)
{
    struct qms_stats_socket *s = calloc(1, sizeof *s);

    if (!s) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return NULL;
    }
    if (qms_socket_thread_open(&s->thread, path, err, len) == 0)
        return s;
    free(s);
    return NULL;
}

static void serve(void *opaque, int fd)
{
    struct qms_stats_socket *s = opaque;
    char *text = s->report(s->opaque);

    if (text)
        qms_socket_send(fd, text);
    free(text);
}

int qms_stats_socket_start(struct qms_stats_socket *s, char *(*report)(void *opaque),
                           void *opaque)
{
    s->report = report;
    s->opaque = opaque;
    return qms_socket_thread_start(&s->thread, serve, s);
}

void qms_stats_socket_close(struct qms_stats_socket *s)
{
    qms_socket_thread_close(&s->thread);
    free(s);
}
