/* SPDX-License-Identifier: BSD-3-Clause */
/* attach-kernel.c - serves the kernel's /dev/nbdN.
 *
 * The kernel has one end of each of several socket pairs, and we serve the others.  A
 * connection that ends although the device is there (the kernel gave up waiting for a
 * reply) is replaced by another.  The kernel says over the connections when the device
 * ends.
 */
#include <errno.h>
#include <fcntl.h>
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
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "clients/attach/kernel.h"

#define LOOK_MS      1000
#define RECONNECT_MS 200 /* between attempts */
#define DETACH_LOOKS 50  /* of this, for the kernel to let go */

struct attachment;

/* A connection, or the place of one. */
struct line {
    struct attachment *of;
    struct qm_nbd *nbd; /* NULL: there is none; attachment.lock */
};

struct attachment {
    const struct attach_options *options;
    struct qm_nbd_device *device;
    pthread_mutex_t lock;
    struct line lines[QM_KERNEL_SOCKETS];
    unsigned count;
    bool said_goodbye; /* lock; the kernel has said that the device ends */
    int changed;       /* an eventfd */
    bool detaching;
    char owner[256];
};

static void ended(void *opaque, enum qm_nbd_end how)
{
    struct line *line = opaque;
    struct attachment *a = line->of;

    pthread_mutex_lock(&a->lock);
    line->nbd = NULL;
    a->said_goodbye |= how == QM_NBD_DISCONNECTED;
    /* Under the lock: the attachment is gone when it has seen this. */
    eventfd_write(a->changed, 1);
    pthread_mutex_unlock(&a->lock);
}

/* Fills the lines that are empty; the kernel's ends go to d->sockets. */
static int fill(struct attachment *a, struct qm_kernel_device *d)
{
    int ends[2], error = 0;

    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->count && error == 0; i++) {
        if (a->lines[i].nbd)
            continue;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            error = errno;
            break;
        }
        a->lines[i].of = a;
        error = qm_nbd_serve(&a->lines[i].nbd, ends[0], a->device, ended, &a->lines[i]);
        if (error == 0) {
            d->sockets[d->count++] = ends[1];
        } else {
            close(ends[0]);
            close(ends[1]);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return error;
}

static unsigned lines_up(struct attachment *a)
{
    unsigned n = 0;

    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->count; i++)
        n += a->lines[i].nbd != NULL;
    pthread_mutex_unlock(&a->lock);
    return n;
}

/* Gives the kernel what fill() made.  Returns 0 or an errno value. */
static int connect_lines(struct attachment *a, bool again, char *err, size_t len)
{
    const struct attach_options *o = a->options;
    struct qm_kernel_device d = {.number = o->number,
                                 .size = a->device->size,
                                 .block_size = o->block_size,
                                 .timeout = attach_timeout(o),
                                 .dead_seconds = o->dead_seconds,
                                 .flags = qm_nbd_flags(a->device),
                                 .owner = a->owner,
                                 .patience_ms =
                                     a->count == 1 ? attach_patience_ms(o) : 0};
    int error = fill(a, &d);

    if (error != 0)
        snprintf(err, len, "cannot serve a connection: %s", strerror(error));
    else
        error =
            again ? qm_kernel_reconnect(&d, err, len) : qm_kernel_connect(&d, err, len);
    for (unsigned i = 0; i < d.count; i++)
        close(d.sockets[i]);
    return error;
}

bool attach_detach(const struct attach_options *o, bool server_is_there)
{
    char err[512];
    bool ends;
    int fd = -1;

    if (!o->force && attach_await_unused(o->device, &fd, err, sizeof err) != 0) {
        daemon_log(LOG_WARNING, "%s; it stays attached", err);
        return false;
    }
    if (!o->force && !server_is_there) {
        daemon_log(LOG_WARNING,
                   "the server is away, and %s may hold what it has not got; it stays "
                   "attached",
                   o->device);
        close(fd);
        return false;
    }
    if (fd != -1 && fsync(fd) != 0) {
        daemon_log(LOG_ERR, "%s: cannot be written back: %s; it stays attached",
                   o->device, strerror(errno));
        close(fd);
        return false;
    }
    ends = qm_kernel_disconnect(o->number, err, sizeof err) == 0;
    if (!ends)
        daemon_log(LOG_ERR, "%s", err);
    if (fd != -1)
        close(fd);
    return ends;
}

int attach_check_same(const struct attach_options *o, uint64_t size, char *err,
                      size_t len)
{
    uint64_t before = qm_kernel_size(o->number);

    size -= size % o->block_size;
    if (before == 0 || before == size)
        return 0;
    snprintf(err, len,
             "%s has %" PRIu64 " bytes, but the server's device has %" PRIu64
             ": it is not the one that was attached.  Serve that one again, or unmount "
             "%s and detach it (--force)",
             o->device, before, size, o->device);
    return ESTALE;
}

static void stop_lines(struct attachment *a)
{
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->count; i++)
        if (a->lines[i].nbd)
            qm_nbd_stop(a->lines[i].nbd);
    pthread_mutex_unlock(&a->lock);
}

/* Whether the kernel has detached the device, at another program's request. */
static bool is_over(struct attachment *a)
{
    return lines_up(a) == 0 &&
           (a->said_goodbye || !qm_kernel_connected(a->options->number));
}

static void reconnect(struct attachment *a)
{
    const struct timespec pause = {.tv_nsec = RECONNECT_MS * 1000000L};
    char err[512];

    /* The kernel may not know yet that they have ended. */
    nanosleep(&pause, NULL);
    if (is_over(a))
        return;
    daemon_log(LOG_WARNING, "%s: the kernel closed a connection; it gets another",
               a->options->device);
    if (connect_lines(a, true, err, sizeof err) != 0)
        daemon_log(LOG_ERR, "%s", err);
}

/* A loss fails every flush for as long as any program has the device open that may not
 * have heard of it: several file systems may be on it. */
static void forget_losses(struct attachment *a)
{
    unsigned losses = qm_device_losses(a->device->device);
    char err[512];
    int fd;

    if (!a->device->every_flush || atomic_load(a->device->seen) == losses ||
        attach_check_unused(a->options->device, &fd, err, sizeof err) != 0)
        return;
    close(fd);
    atomic_store(a->device->seen, losses);
    daemon_log(LOG_NOTICE, "%s: the programs whose writes may be lost have closed it",
               a->options->device);
}

static void grow(struct attachment *a)
{
    const struct qm_kernel_device d = {
        .number = a->options->number, .size = a->device->size, .owner = a->owner};
    char err[512];

    if (qm_kernel_resize(&d, err, sizeof err) == 0)
        daemon_log(LOG_NOTICE, "%s: has %" PRIu64 " bytes now", a->options->device,
                   d.size);
    else
        daemon_log(LOG_ERR, "%s; its size stays", err);
}

static int serve(struct attachment *a, int signals)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                           {.fd = a->changed, .events = POLLIN}};
    struct signalfd_siginfo signal;
    unsigned looks = 0;
    eventfd_t n;

    while (!is_over(a)) {
        poll(fds, 2, LOOK_MS);
        if (fds[0].revents && read(signals, &signal, sizeof signal) > 0 &&
            !a->detaching)
            a->detaching =
                attach_detach(a->options, qm_device_is_up(a->device->device));
        if (fds[1].revents)
            eventfd_read(a->changed, &n);
        if (a->detaching && ++looks > DETACH_LOOKS) {
            stop_lines(a);
            daemon_log(LOG_WARNING, "%s: the kernel does not let go of it",
                       a->options->device);
            return CLI_FAILED;
        }
        if (!a->detaching && !a->said_goodbye && lines_up(a) < a->count)
            reconnect(a);
        if (!a->detaching)
            forget_losses(a);
        if (!a->detaching && attach_take_size(a->options, a->device))
            grow(a);
    }
    return CLI_OK;
}

int attach_serve_kernel(const struct attach_options *options,
                        struct qm_nbd_device *device, int signals)
{
    struct attachment a = {.options = options, .device = device};
    bool again = qm_kernel_connected(options->number);
    int status = CLI_FAILED;
    char err[512];
    eventfd_t n;

    pthread_mutex_init(&a.lock, NULL);
    attach_owner(a.owner, sizeof a.owner, options->uri);
    a.count = again ? qm_kernel_queues(options->number) : 0;
    if (a.count == 0 || a.count > QM_KERNEL_SOCKETS)
        a.count = options->queues > 0 ? options->queues : 1;
    a.changed = eventfd(0, EFD_CLOEXEC);
    if (a.changed == -1) {
        daemon_log(LOG_ERR, "%s", strerror(errno));
        return CLI_FAILED;
    }
    if (again && attach_check_same(options, device->size, err, sizeof err) != 0) {
        daemon_log(LOG_ERR, "%s", err);
    } else if (connect_lines(&a, again, err, sizeof err) == 0) {
        daemon_log(LOG_NOTICE, "%s: %s, %" PRIu64 " bytes, %u queues", options->device,
                   again ? "attached again" : "attached", device->size, a.count);
        daemon_ready();
        status = serve(&a, signals);
    } else {
        daemon_log(LOG_ERR, "%s", err);
    }
    daemon_notify("STOPPING=1");
    stop_lines(&a);
    while (lines_up(&a) > 0)
        eventfd_read(a.changed, &n);
    /* The last of them may still hold it. */
    pthread_mutex_lock(&a.lock);
    pthread_mutex_unlock(&a.lock);
    pthread_mutex_destroy(&a.lock);
    close(a.changed);
    return status;
}
