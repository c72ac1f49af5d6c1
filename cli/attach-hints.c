/* SPDX-License-Identifier: BSD-3-Clause */
/* attach-hints.c - the kernel's /dev/nbdN straight over connections to the server,
 * which an agent tells of the reads.
 *
 * We hold a descriptor of each of the kernel's sockets, only to see when its server has
 * gone; then the kernel gets another.  Meanwhile its requests wait.  The agent is a
 * thread; whatever becomes of it, the device works on.
 *
 * If there is one connection, nothing is sent again but over the next one that the
 * kernel gets from us, and each is a session of its own at the server: the one before
 * is fenced first.  Of several, the kernel sends over another what one had under way,
 * and asks nobody.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "cli/agent.h"
#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "clients/attach/kernel.h"
#include "clients/attach/plain.h"

#define LOOK_MS      1000
#define RECONNECT_MS 500
#define DETACH_LOOKS 30
#define FENCE_LOOKS  5     /* that a fence may take without a word; of 200 ms */
#define FIRST_MS     20000 /* for a greeting of a server that was never connected to */
#define AGAIN_MS     5000
#define SILENCE_MS   9000 /* of a server that fences what it has of the connection */

struct direct_device {
    const struct attach_options *options;
    struct pollfd fds[1 + QM_KERNEL_SOCKETS]; /* the signals', then the sockets' */
    unsigned count;
    struct qm_plain_session session; /* of the one connection that there is, or none */
    unsigned fence_looks;
    uint64_t size;
    uint16_t flags;
    char owner[256];
    bool away; /* that the server is, has been said */
};

struct helper {
    struct agent_hints *hints;
    struct qm_agent *agent;
    pthread_t thread;
    int stop;
};

static void *help(void *opaque)
{
    struct helper *h = opaque;

    qm_agent_run(h->agent, h->stop);
    return NULL;
}

static int start_agent(struct helper *h, const struct attach_options *o, char *err,
                       size_t len)
{
    struct qm_agent_config config = {
        .socket = o->registrar, .device_count = 1, .threads = !o->no_threads};
    struct stat st;
    int error;

    if (stat(o->device, &st) != 0) {
        snprintf(err, len, "%s: %s", o->device, strerror(errno));
        return errno;
    }
    config.devices = &st.st_rdev;
    h->hints = agent_hints_open(o->uri, err, len);
    if (!h->hints)
        return EIO;
    agent_hints_use(h->hints, &config);
    error = qm_agent_open(&h->agent, &config, err, len);
    if (error != 0)
        return error;
    h->stop = eventfd(0, EFD_CLOEXEC);
    error = h->stop == -1 ? errno : pthread_create(&h->thread, NULL, help, h);
    if (error != 0) {
        snprintf(err, len, "cannot start a thread: %s", strerror(error));
        qm_agent_close(h->agent);
        h->agent = NULL;
    }
    return error;
}

static void stop_agent(struct helper *h)
{
    struct qm_agent_stats s;

    if (h->agent) {
        eventfd_write(h->stop, 1);
        pthread_join(h->thread, NULL);
        qm_agent_get_stats(h->agent, &s);
        daemon_log(LOG_INFO,
                   "%" PRIu64 " reads submitted: %" PRIu64 " in contexts of programs, "
                   "%" PRIu64 " of threads; %" PRIu64 " lost",
                   s.reads, s.in_context, s.in_thread, s.lost);
        qm_agent_close(h->agent);
    }
    if (h->stop != -1)
        close(h->stop);
    if (h->hints)
        agent_hints_close(h->hints);
}

static bool fence_goes_on(void *opaque)
{
    struct direct_device *d = opaque;
    struct pollfd signals = d->fds[0];

    if (++d->fence_looks == FENCE_LOOKS)
        daemon_log(LOG_NOTICE,
                   "waiting until what was under way has ended at the server");
    return poll(&signals, 1, 0) == 0 && qm_kernel_connected(d->options->number);
}

static bool connecting_goes_on(void *opaque)
{
    struct pollfd signals = ((struct direct_device *)opaque)->fds[0];

    return poll(&signals, 1, 0) == 0;
}

/* A connection that TCP gives up is replaced, and what it carried is sent again.  That
 * is well if it is fenced first; else only when the kernel would send it again, too. */
static struct qm_plain_terms terms_of(struct direct_device *d, uint64_t session)
{
    const uint64_t timeout = attach_timeout(d->options);
    struct qm_plain_terms terms = {.greeting_ms = d->size == 0 ? FIRST_MS : AGAIN_MS,
                                   .goes_on = connecting_goes_on,
                                   .opaque = d};

    if (session != 0)
        terms.silence_ms = SILENCE_MS;
    else if (d->count > 1 && timeout < INT32_MAX / 1000)
        terms.silence_ms = (unsigned)timeout * 1000;
    return terms;
}

/* A session for the next connection, when nothing of the last one can be carried out
 * any more. */
static int open_session(struct direct_device *d, struct qm_plain_session *session,
                        char *err, size_t len)
{
    const struct qm_plain_terms terms = terms_of(d, 0);
    int error = qm_plain_session_open(d->options->uri, &terms, session, err, len);

    d->fence_looks = 0;
    if (error == 0)
        error =
            qm_plain_session_fence(session, d->session.id, fence_goes_on, d, err, len);
    if (error != 0)
        qm_plain_session_close(session);
    return error;
}

/* Connects one of the sockets. */
static int connect_socket(struct direct_device *d, struct pollfd *to, uint64_t session,
                          bool again, char *err, size_t len)
{
    const struct attach_options *o = d->options;
    const struct qm_plain_terms terms = terms_of(d, session);
    struct qm_plain plain;
    int error = qm_plain_connect(o->uri, session, &terms, &plain, err, len);

    if (error != 0)
        return error;
    if (d->size != 0 && plain.size != d->size) {
        snprintf(err, len,
                 "the server has a device of %" PRIu64 " bytes now, not of %" PRIu64,
                 plain.size, d->size);
        error = ESTALE;
    } else if (again) {
        error = attach_check_same(o, plain.size, err, len);
    }
    if (error != 0) {
        close(plain.fd);
        return error;
    }
    d->size = plain.size;
    d->flags = plain.flags;
    *to = (struct pollfd){.fd = plain.fd, .events = POLLRDHUP};
    return 0;
}

/* Several connections are one device only if the server says so. */
static int find_count(struct direct_device *d, char *err, size_t len)
{
    const struct qm_plain_terms terms = terms_of(d, 0);
    struct qm_plain plain;
    int error;

    if (d->count == 1)
        return 0;
    error = qm_plain_connect(d->options->uri, 0, &terms, &plain, err, len);
    if (error != 0)
        return error;
    if (!(plain.flags & 1u << 8))
        d->count = 1;
    close(plain.fd);
    return 0;
}

/* Connects what has no connection, and gives it to the kernel. */
static int connect_sockets(struct direct_device *d, bool again, char *err, size_t len)
{
    const struct attach_options *o = d->options;
    struct qm_plain_session session = {0};
    struct qm_kernel_device k = {.number = o->number,
                                 .block_size = o->block_size,
                                 .timeout = attach_timeout(o),
                                 .dead_seconds = o->dead_seconds,
                                 .owner = d->owner};
    int error = find_count(d, err, len);

    if (error == 0 && d->count == 1)
        error = open_session(d, &session, err, len);
    if (error != 0)
        return error;
    for (unsigned i = 1; i <= d->count && error == 0; i++) {
        if (d->fds[i].fd != -1)
            continue;
        error = connect_socket(d, &d->fds[i], session.id, again, err, len);
        if (error == 0)
            k.sockets[k.count++] = d->fds[i].fd;
    }
    k.size = d->size / o->block_size * o->block_size;
    k.flags = d->flags;
    k.patience_ms = d->count == 1 ? attach_patience_ms(o) : 0;
    if (o->read_only)
        k.flags |= 2;
    if (error == 0)
        error =
            again ? qm_kernel_reconnect(&k, err, len) : qm_kernel_connect(&k, err, len);
    /* What the kernel has not got is no connection of it. */
    if (error != 0) {
        for (unsigned i = 1; i <= d->count; i++)
            for (unsigned j = 0; j < k.count; j++)
                if (d->fds[i].fd == k.sockets[j]) {
                    close(d->fds[i].fd);
                    d->fds[i] = (struct pollfd){.fd = -1};
                    break;
                }
        qm_plain_session_close(&session);
        return error;
    }
    qm_plain_session_close(&d->session);
    d->session = session;
    return 0;
}

static void reconnect(struct direct_device *d)
{
    const struct timespec pause = {.tv_nsec = RECONNECT_MS * 1000000L};
    char err[512];

    nanosleep(&pause, NULL);
    if (!qm_kernel_connected(d->options->number))
        return;
    if (connect_sockets(d, true, err, sizeof err) == 0)
        daemon_log(LOG_NOTICE, "the server is there again");
    else if (!d->away)
        daemon_log(LOG_WARNING, "the server is gone: %s", err);
    d->away = d->fds[1].fd == -1;
}

/* Closes the sockets that have ended.  Returns whether there are any. */
static bool close_ended(struct direct_device *d)
{
    bool any = false;

    for (unsigned i = 1; i <= d->count; i++) {
        if (d->fds[i].fd != -1 && d->fds[i].revents) {
            close(d->fds[i].fd);
            d->fds[i] = (struct pollfd){.fd = -1};
        }
        any |= d->fds[i].fd == -1;
    }
    return any;
}

static int serve(struct direct_device *d)
{
    struct signalfd_siginfo info;
    bool detaching = false;
    unsigned looks = 0;

    while (qm_kernel_connected(d->options->number)) {
        poll(d->fds, 1 + d->count, LOOK_MS);
        if (d->fds[0].revents && read(d->fds[0].fd, &info, sizeof info) > 0 &&
            !detaching)
            detaching = attach_detach(d->options, !d->away);
        if (detaching && ++looks > DETACH_LOOKS)
            return CLI_FAILED;
        if (close_ended(d) && !detaching)
            reconnect(d);
    }
    return CLI_OK;
}

int attach_serve_hints(const struct attach_options *o, int signals)
{
    struct direct_device d = {.options = o, .count = o->queues > 0 ? o->queues : 1};
    struct helper helper = {.stop = -1};
    bool again = qm_kernel_connected(o->number);
    int status = CLI_FAILED;
    char err[512];

    attach_owner(d.owner, sizeof d.owner, o->uri);
    if (again && qm_kernel_queues(o->number) > 0)
        d.count = qm_kernel_queues(o->number);
    for (unsigned i = 0; i <= d.count; i++)
        d.fds[i] = (struct pollfd){.fd = i == 0 ? signals : -1, .events = POLLIN};
    if (connect_sockets(&d, again, err, sizeof err) == 0) {
        if (start_agent(&helper, o, err, sizeof err) != 0)
            attach_say_plain(err);
        if (again)
            daemon_log(
                LOG_WARNING,
                "%s: the connections that the kernel still has cannot be watched; "
                "if it closes them, attach again",
                o->device);
        daemon_log(LOG_NOTICE, "%s: %s, %" PRIu64 " bytes, %u connections", o->device,
                   again ? "attached again" : "attached", d.size, d.count);
        daemon_ready();
        status = serve(&d);
        daemon_notify("STOPPING=1");
        stop_agent(&helper);
    } else {
        daemon_log(LOG_ERR, "%s", err);
    }
    for (unsigned i = 1; i <= d.count; i++)
        if (d.fds[i].fd != -1)
            close(d.fds[i].fd);
    qm_plain_session_close(&d.session);
    return status;
}
