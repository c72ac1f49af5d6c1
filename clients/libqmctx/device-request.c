/* SPDX-License-Identifier: BSD-3-Clause */
/* device-request.c - synchronous requests.
 *
 * A request whose connection is lost is made again by its own thread.  A change keeps
 * its place in the queue meanwhile, so that nothing which overlaps it comes between.
 */
#include <errno.h>
#include <stdlib.h>

#include "clients/libqmctx/device-internal.h"

static int parents(void)
{
    qm_fail(ENOTCONN, "the device belongs to the parent process");
    return ENOTCONN;
}

/* What a request that was counted in has come to, with errno: 0: it has been carried
 * out; -1: it is to be made again; else an errno value. */
static int outcome(struct qm_device *device, int rc)
{
    int err = errno;

    if (rc == 0)
        return 0;
    if (qm_device_lost(device, err, qmctx_error()))
        return -1;
    return err > 0 ? err : EIO;
}

/* Before a request is made again: whether it is still wanted. */
static bool wanted(const struct patience *patience)
{
    return !qm_requester_gone(patience);
}

int qm_device_read(struct qm_device *device, const struct qm_requester *requester,
                   qmctx_id context, void *buf, size_t count, uint64_t offset)
{
    struct patience patience = {.requester = requester};
    int r;

    if (qm_device_is_parents(device))
        return parents();
    do {
        r = qm_device_enter(device, &patience);
        if (r)
            return r;
        r = outcome(device, qmctx_pread(device->server, context, buf, count, offset));
        qm_device_leave(device);
    } while (r == -1 && wanted(&patience));
    return r == -1 ? EIO : r;
}

/* --- changes --- */

/* Until nothing that came before overlaps the change, and it can be retained.
 * 0 or EIO. */
static int await_turn(struct qm_device *device, struct patience *patience,
                      struct change *change)
{
    pthread_cond_t turn;
    pthread_condattr_t monotonic;
    int err = 0;

    pthread_mutex_lock(&device->lock);
    if (change->blockers > 0) {
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&turn, &monotonic);
        pthread_condattr_destroy(&monotonic);
        change->waiter = &turn;
        while (!err && change->blockers > 0)
            err = qm_device_wait(device, patience, &turn);
        change->waiter = NULL;
        pthread_cond_destroy(&turn);
    }
    while (!err && !qm_change_prepare(device, change))
        err = qm_device_wait(device, patience, &device->settled);
    pthread_mutex_unlock(&device->lock);
    return err;
}

static int send_change(struct qm_device *device, struct change *change,
                       qmctx_id context, const void *buf)
{
    int rc;

    if (change->kind == CHANGE_ZERO)
        rc = qmctx_zero(device->server, change->count, change->offset);
    else if (change->kind == CHANGE_TRIM)
        rc = qmctx_trim(device->server, change->count, change->offset);
    else
        rc = qmctx_pwrite(device->server, context, buf, change->count, change->offset,
                          change->way == WAY_FUA);
    rc = outcome(device, rc);
    if (rc == 0 && change->way == WAY_THROUGH)
        rc = qm_device_flush_now(device);
    return rc;
}

/* Frees change, or retains it. */
static int make_change(struct qm_device *device, const struct qm_requester *requester,
                       qmctx_id context, const void *buf, struct change *change)
{
    struct patience patience = {.requester = requester};
    int r;

    pthread_mutex_lock(&device->lock);
    qm_change_queue(device, change);
    pthread_mutex_unlock(&device->lock);
    do {
        r = await_turn(device, &patience, change);
        if (r == 0)
            r = qm_device_enter(device, &patience);
        if (r)
            break;
        qm_change_copy(device, change, buf);
        r = send_change(device, change, context, buf);
        if (r == 0) {
            pthread_mutex_lock(&device->lock);
            qm_change_answered(device, change);
            pthread_mutex_unlock(&device->lock);
        }
        qm_device_leave(device);
    } while (r == -1 && wanted(&patience));
    if (r == 0)
        return 0;
    pthread_mutex_lock(&device->lock);
    qm_change_remove(device, change);
    pthread_mutex_unlock(&device->lock);
    qm_change_free(change);
    return r == -1 ? EIO : r;
}

static int change(struct qm_device *device, const struct qm_requester *requester,
                  qmctx_id context, enum change_kind kind, const void *buf,
                  uint64_t count, uint64_t offset, bool fua)
{
    struct change *new;

    if (qm_device_is_parents(device))
        return parents();
    if (offset > qm_device_size(device) || count > qm_device_size(device) - offset)
        return EINVAL;
    if (qm_device_read_only(device))
        return EROFS;
    if (count == 0)
        return 0;
    new = calloc(1, sizeof *new);
    if (!new)
        return ENOMEM;
    new->kind = kind;
    new->offset = offset;
    new->count = count;
    new->stable = fua;
    return make_change(device, requester, context, buf, new);
}

int qm_device_write(struct qm_device *device, const struct qm_requester *requester,
                    qmctx_id context, const void *buf, size_t count, uint64_t offset,
                    bool fua)
{
    return change(device, requester, context, CHANGE_WRITE, buf, count, offset, fua);
}

int qm_device_zero(struct qm_device *device, const struct qm_requester *requester,
                   uint64_t count, uint64_t offset)
{
    return change(device, requester, 0, CHANGE_ZERO, NULL, count, offset, false);
}

int qm_device_trim(struct qm_device *device, const struct qm_requester *requester,
                   uint64_t count, uint64_t offset)
{
    return change(device, requester, 0, CHANGE_TRIM, NULL, count, offset, false);
}

/* --- flushing --- */

int qm_device_flush_now(struct qm_device *device)
{
    uint64_t upto;
    int r;

    pthread_mutex_lock(&device->lock);
    upto = device->answered;
    pthread_mutex_unlock(&device->lock);
    r = outcome(device, qmctx_flush(device->server));
    pthread_mutex_lock(&device->lock);
    if (r == 0)
        qm_retain_flushed(device, upto);
    else if (r != -1)
        qm_retain_flush_failed(device);
    pthread_mutex_unlock(&device->lock);
    return r;
}

/* A FLUSH has failed: has the keeper send again what is retained, and flush it.  0 or
 * an errno value. */
static int await_pass(struct qm_device *device, struct patience *patience)
{
    uint64_t mine;
    int err = 0;

    pthread_mutex_lock(&device->lock);
    mine = device->passes_begun + 1;
    if (device->passes_wanted < mine)
        device->passes_wanted = mine;
    pthread_cond_signal(&device->changed);
    while (!err && device->passes_done < mine && device->suspect)
        err = qm_device_wait(device, patience, &device->settled);
    if (!err && device->suspect)
        err = device->pass_error;
    pthread_mutex_unlock(&device->lock);
    return err;
}

static bool is_suspect(struct qm_device *device)
{
    bool suspect;

    pthread_mutex_lock(&device->lock);
    suspect = device->suspect;
    pthread_mutex_unlock(&device->lock);
    return suspect;
}

static int flush(struct qm_device *device, const struct qm_requester *requester)
{
    struct patience patience = {.requester = requester};
    int r;

    do {
        if (is_suspect(device)) {
            r = await_pass(device, &patience);
            if (r)
                return r;
        }
        r = qm_device_enter(device, &patience);
        if (r)
            return r;
        r = qm_device_flush_now(device);
        qm_device_leave(device);
    } while (r == -1 && wanted(&patience));
    return r == -1 ? EIO : r;
}

int qm_device_flush(struct qm_device *device, const struct qm_requester *requester,
                    _Atomic unsigned *seen)
{
    unsigned losses;
    int err;

    if (qm_device_is_parents(device))
        return parents();
    err = flush(device, requester);
    losses = atomic_load(&device->losses);
    /* A requester that gave up waiting was not told of the loss. */
    if (err && !qm_device_is_up(device))
        return err;
    if (atomic_exchange(seen, losses) != losses && !err)
        err = EIO;
    return err;
}

int qm_device_stop_retaining(struct qm_device *device)
{
    struct patience patience = {.requester = NULL};
    enum qm_retain before;
    int err = 0;

    if (qm_device_is_parents(device))
        return parents();
    pthread_mutex_lock(&device->lock);
    before = device->mode;
    device->mode = QM_RETAIN_FUA;
    while (!err && device->keeping > 0)
        err = qm_device_wait(device, &patience, &device->settled);
    pthread_mutex_unlock(&device->lock);
    if (!err)
        err = flush(device, NULL);
    if (err) {
        pthread_mutex_lock(&device->lock);
        device->mode = before;
        pthread_mutex_unlock(&device->lock);
    }
    return err;
}
