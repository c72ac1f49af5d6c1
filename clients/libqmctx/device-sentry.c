/* SPDX-License-Identifier: BSD-3-Clause */
/* device-sentry.c - notices a server that hangs, if there is another.
 *
 * A server whose machine is gone is noticed by TCP, and one that has ended by its
 * socket. One that is frozen keeps both: its kernel acknowledges what it does not read.
 * Alone it is waited for, like any other pause.  A device with several URIs has
 * somewhere else to go.  So when requests are in flight and none has been answered for
 * SILENCE_MS, a new connection is made: a server that lives greets, however slow what
 * is below it may be. One that does not is lost, and the next URI is tried.
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

void *qm_device_sentry(void *opaque)
{
    struct qm_device *device = opaque;
    uint64_t answered = 0, now;
    struct timespec heard;

    clock_gettime(CLOCK_MONOTONIC, &heard);
    while (nap(device, LOOK_MS)) {
        bool waits = qm_direct_waits(device->direct, &now);

        if (!waits || now != answered || atomic_load(&device->state) >= DEVICE_LOST) {
            answered = now;
            clock_gettime(CLOCK_MONOTONIC, &heard);
        } else if (qm_time_since(&heard) >= SILENCE_MS) {
            if (qm_direct_greets(device->direct) == -1) {
                qm_direct_next(device->direct);
                qm_device_lost(device, ENOTCONN, "it does not answer any more");
            }
            clock_gettime(CLOCK_MONOTONIC, &heard);
        }
    }
    return NULL;
}
