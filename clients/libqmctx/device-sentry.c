/* SPDX-License-Identifier: BSD-3-Clause */
/* device-sentry.c - notices a server that hangs, if there is another.
 *
 * A server whose machine is gone is noticed by TCP, and one that has ended by its
 * socket. One that is frozen keeps both: its kernel acknowledges what it does not read.
 * Alone it is waited for, like any other pause.  A device with several URIs has
 * somewhere else to go.  So when requests are in flight, the keeper's own included, and
 * none has been answered for SILENCE_MS, a new connection is made: a server that lives
 * greets, however slow what is below it may be. One that does not is lost, and the next
 * URI is tried.
 *
 * One that closes it instead has as many connections as it takes, which is a sign of
 * life.  Or something in front of a server that hangs has closed it: so there is a
 * limit to this, too.
 *
 * It is for others to see to it that only one server has the device: see
 * quickmine-mount(1), "STANDBY SERVERS".
 */
#include <errno.h>
#include <syslog.h>

#include "clients/libqmctx/device-internal.h"

enum {
    LOOK_MS = 500,
    SILENCE_MS = 3000,
    CLOSED_MS = 30000, /* the same, if new connections are closed */
};

/* Waits for ms, or until the device is closed: then false. */
static bool nap(struct qm_device *device, uint64_t ms)
{
    struct timespec until;
    bool stopping;

    clock_gettime(CLOCK_MONOTONIC, &until);
    qm_time_add(&until, ms);
    pthread_mutex_lock(&device->lock);
    while (!device->stopping &&
           pthread_cond_timedwait(&device->sentry_wake, &device->lock, &until) !=
               ETIMEDOUT)
        ;
    stopping = device->stopping;
    pthread_mutex_unlock(&device->lock);
    return !stopping;
}

/* Whether a server hangs that has answered nothing for so long. */
static bool hangs(struct qm_device *device, uint64_t silent_ms)
{
    if (qm_direct_greets(device->direct) == 0)
        return false;
    return (errno != ENOTCONN && errno != ECONNRESET) || silent_ms >= CLOSED_MS;
}

static void leave_it(struct qm_device *device)
{
    static const char why[] = "it does not answer any more";

    qm_direct_next(device->direct);
    if (atomic_load(&device->state) != DEVICE_LOST) {
        qm_device_lost(device, ENOTCONN, why);
        return;
    }
    /* The keeper is connected again, and waits for a reply. */
    qm_device_log(device, LOG_WARNING, "the server is gone: %s", why);
    qm_direct_shutdown(device->direct);
}

void *qm_device_sentry(void *opaque)
{
    struct qm_device *device = opaque;
    uint64_t answered = 0, now;
    struct timespec heard, visited;

    clock_gettime(CLOCK_MONOTONIC, &heard);
    visited = heard;
    while (nap(device, LOOK_MS)) {
        bool waits = qm_direct_waits(device->direct, &now);

        if (!waits || now != answered) {
            answered = now;
            clock_gettime(CLOCK_MONOTONIC, &heard);
            visited = heard;
        } else if (qm_time_since(&visited) >= SILENCE_MS) {
            /* Meanwhile it may have answered, or been lost. */
            if (hangs(device, qm_time_since(&heard)) &&
                qm_direct_waits(device->direct, &now) && now == answered)
                leave_it(device);
            clock_gettime(CLOCK_MONOTONIC, &visited);
        }
    }
    return NULL;
}
