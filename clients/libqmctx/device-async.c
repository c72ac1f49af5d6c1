/* SPDX-License-Identifier: BSD-3-Clause */
/* device-async.c - asynchronous requests.
 *
 * A request is sent by the thread that starts it, if it can be sent at once.  If it
 * cannot (the server is away, a change before it overlaps it, too much is retained), or
 * if its connection is lost, it is parked, and the poller sends it when that is over.
 * Nothing here waits, as what is done in done() must not.
 */
#include <errno.h>
#include <stdlib.h>

#include "clients/libqmctx/device-internal.h"

enum { LOOK_MS = 200 }; /* after which parked requests are looked at again */

struct aio {
    struct qm_device *device;
    struct change *change; /* NULL: a read, or over */
    void *buf;
    size_t count;
    uint64_t offset;
    qmctx_id context;
    bool flushing; /* the change was carried out, and is being flushed */
    uint64_t upto; /* when that FLUSH was sent */
    qmctx_done *done;
    void *opaque;
    struct patience patience;
    struct cds_list_head node; /* in parked */
};

static void aio_done(void *opaque, int error);

void qm_device_kick(struct qm_device *device)
{
    if (cds_list_empty(&device->parked))
        return;
    device->kicked = true;
    pthread_cond_signal(&device->poll);
    qm_direct_wake(device->direct);
}

static void park(struct aio *aio)
{
    struct qm_device *device = aio->device;

    pthread_mutex_lock(&device->lock);
    cds_list_add_tail(&aio->node, &device->parked);
    /* What it waits for may be over by now. */
    qm_device_kick(device);
    pthread_mutex_unlock(&device->lock);
}

/* The end; without the lock. */
static void finish(struct aio *aio, int error)
{
    struct qm_device *device = aio->device;
    struct change *change = aio->change;

    if (change) {
        pthread_mutex_lock(&device->lock);
        qm_change_remove(device, change);
        pthread_mutex_unlock(&device->lock);
        qm_change_free(change);
    }
    aio->done(aio->opaque, error);
    free(aio);
    atomic_fetch_sub(&device->pending, 1);
}

/* Whether it can be sent, as far as that is the changes' to say.  lock is held. */
static bool may_go(struct aio *aio)
{
    return !aio->change ||
           (aio->change->blockers == 0 && qm_change_prepare(aio->device, aio->change));
}

/* Hands it to libqmctx; it is counted in.  0 or an errno value. */
static int issue(struct aio *aio)
{
    struct qm_device *device = aio->device; /* aio may be over once it is sent */
    struct qmctx *server = device->server;
    struct change *change = aio->change;
    int rc;

    if (aio->flushing)
        rc = qm_direct_aio_flush(device->direct, aio_done, aio);
    else if (change)
        rc = qmctx_aio_pwrite(server, aio->context, aio->buf, aio->count, aio->offset,
                              change->way == WAY_FUA, aio_done, aio);
    else
        rc = qmctx_aio_pread(server, aio->context, aio->buf, aio->count, aio->offset,
                             aio_done, aio);
    if (rc == -1)
        return errno;
    /* The poller may have looked before, seen nothing in flight, and gone to sleep. */
    pthread_mutex_lock(&device->lock);
    device->sent = true;
    pthread_cond_signal(&device->poll);
    pthread_mutex_unlock(&device->lock);
    return 0;
}

/* It is counted in, and could not be sent or has failed. */
static void failed(struct aio *aio, int error, const char *why)
{
    struct qm_device *device = aio->device;
    bool again = qm_device_lost(device, error, why);

    if (!again && aio->flushing) {
        pthread_mutex_lock(&device->lock);
        qm_retain_flush_failed(device);
        pthread_mutex_unlock(&device->lock);
    }
    aio->flushing = false;
    if (again)
        park(aio);
    qm_device_leave(device);
    if (!again)
        finish(aio, error);
}

/* It is counted in, and may go. */
static void send_aio(struct aio *aio)
{
    int err;

    if (aio->change)
        qm_change_copy(aio->device, aio->change, aio->buf);
    err = issue(aio);
    if (err == ENOTSUP && aio->change) {
        /* FUA was there when it was prepared: another server. */
        aio->change->way = WAY_THROUGH;
        err = issue(aio);
    }
    if (err)
        failed(aio, err, qmctx_error());
}

static void start_flush(struct aio *aio)
{
    struct qm_device *device = aio->device;
    int err;

    aio->flushing = true;
    pthread_mutex_lock(&device->lock);
    aio->upto = device->answered;
    pthread_mutex_unlock(&device->lock);
    err = issue(aio);
    if (err)
        failed(aio, err, qmctx_error());
}

static void aio_done(void *opaque, int error)
{
    struct aio *aio = opaque;
    struct qm_device *device = aio->device;

    if (error) {
        failed(aio, error,
               error == ESHUTDOWN ? "it is shutting down" : "it closed the connection");
        return;
    }
    if (aio->change && aio->change->way == WAY_THROUGH && !aio->flushing) {
        start_flush(aio);
        return;
    }
    if (aio->change) {
        pthread_mutex_lock(&device->lock);
        if (aio->flushing)
            qm_retain_flushed(device, aio->upto);
        qm_change_answered(device, aio->change);
        aio->change = NULL;
        pthread_mutex_unlock(&device->lock);
    }
    qm_device_leave(device);
    finish(aio, 0);
}

/* --- the poller --- */

/* Takes a request that can be sent, or whose patience has ended (*err), out of parked,
 * and counts it in.  NULL: there is none.  lock is held. */
static struct aio *take(struct qm_device *device, int *err)
{
    struct timespec now;
    struct aio *aio;
    int state;

    clock_gettime(CLOCK_MONOTONIC, &now);
    cds_list_for_each_entry(aio, &device->parked, node)
    {
        state = atomic_load(&device->state);
        *err = 0;
        if (state == DEVICE_DEAD) {
            *err = EIO;
        } else if (state != DEVICE_LOST) {
            aio->patience.until = (struct timespec){.tv_sec = 0};
        } else if (device->options.wait != QM_DEVICE_FOREVER) {
            if (aio->patience.until.tv_sec == 0) {
                aio->patience.until = now;
                aio->patience.until.tv_sec += device->options.wait;
            }
            if (!qm_time_before(&now, &aio->patience.until))
                *err = EIO;
        }
        if (*err || (state == DEVICE_UP && may_go(aio))) {
            cds_list_del(&aio->node);
            aio->patience.until = (struct timespec){.tv_sec = 0};
            return aio;
        }
    }
    return NULL;
}

static void unpark(struct qm_device *device)
{
    struct aio *aio;
    int err;

    for (;;) {
        pthread_mutex_lock(&device->lock);
        device->kicked = false;
        aio = take(device, &err);
        pthread_mutex_unlock(&device->lock);
        if (!aio)
            return;
        if (err) {
            finish(aio, err);
        } else if (qm_device_try_enter(device)) {
            send_aio(aio);
        } else {
            park(aio);
            return;
        }
    }
}

static void *poller(void *opaque)
{
    struct qm_device *device = opaque;
    struct timespec until;

    for (;;) {
        unpark(device);
        pthread_mutex_lock(&device->lock);
        device->sent = false;
        pthread_mutex_unlock(&device->lock);
        if (qmctx_poll(device->server, LOOK_MS) > 0)
            continue;
        pthread_mutex_lock(&device->lock);
        clock_gettime(CLOCK_MONOTONIC, &until);
        qm_time_add(&until, LOOK_MS);
        if (atomic_load(&device->state) == DEVICE_DEAD && device->stopping &&
            cds_list_empty(&device->parked))
            break;
        if (!device->kicked && !device->sent) {
            if (atomic_load(&device->pending) == 0)
                pthread_cond_wait(&device->poll, &device->lock);
            else
                pthread_cond_timedwait(&device->poll, &device->lock, &until);
        }
        pthread_mutex_unlock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* --- starting one --- */

/* Starts the poller, if need be.  lock is held. */
static int start_poller(struct qm_device *device)
{
    int err;

    if (device->has_poller)
        return 0;
    err = qm_device_thread(&device->poller, poller, device);
    device->has_poller = !err;
    return err;
}

static int add_change(struct aio *aio, bool fua)
{
    struct change *change = calloc(1, sizeof *change);

    if (!change)
        return ENOMEM;
    change->kind = CHANGE_WRITE;
    change->offset = aio->offset;
    change->count = aio->count;
    change->stable = fua;
    change->aio = aio;
    aio->change = change;
    return 0;
}

int qm_device_start(struct qm_device *device, bool write, qmctx_id context, void *buf,
                    size_t count, uint64_t offset, bool fua, qmctx_done *done,
                    void *opaque)
{
    struct aio *aio;
    bool go;
    int err;

    if (qm_device_is_parents(device))
        return ENOTCONN;
    if (offset > qm_device_size(device) || count > qm_device_size(device) - offset)
        return EINVAL;
    if (write && qm_device_read_only(device))
        return EROFS;
    aio = malloc(sizeof *aio);
    if (!aio)
        return ENOMEM;
    *aio = (struct aio){
        .device = device,
        .context = context,
        .buf = buf,
        .count = count,
        .offset = offset,
        .done = done,
        .opaque = opaque,
    };
    if (write && count > 0 && add_change(aio, fua) != 0) {
        free(aio);
        return ENOMEM;
    }
    pthread_mutex_lock(&device->lock);
    err = start_poller(device);
    if (err) {
        pthread_mutex_unlock(&device->lock);
        free(aio->change);
        free(aio);
        return err;
    }
    if (aio->change)
        qm_change_queue(device, aio->change);
    go = may_go(aio);
    if (atomic_fetch_add(&device->pending, 1) == 0)
        pthread_cond_signal(&device->poll);
    pthread_mutex_unlock(&device->lock);
    if (go && qm_device_try_enter(device))
        send_aio(aio);
    else
        park(aio);
    return 0;
}
