/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - a device's life, what it is, and waiting for the server. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "clients/libqmctx/device-internal.h"

enum {
    GLANCE_MS = 200,       /* after which a request that waits looks around */
    CLOSE_MS = 5000,       /* that closing waits for the last flush */
    PATIENT_FIRST_MS = 50, /* between attempts of a patient open ... */
    PATIENT_MOST_MS = 1000,
    MAX_COUNT = 0x7ffff000, /* of one call; Linux's own limit */
};

void qm_device_log(struct qm_device *device, int priority, const char *format, ...)
{
    char text[1024];
    va_list args;

    if (!device->options.log)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    device->options.log(device->options.opaque, priority, text);
}

/* --- time --- */

void qm_time_add(struct timespec *t, uint64_t ms)
{
    t->tv_sec += (time_t)(ms / 1000);
    t->tv_nsec += (long)(ms % 1000) * 1000000L;
    if (t->tv_nsec >= 1000000000L) {
        t->tv_nsec -= 1000000000L;
        t->tv_sec++;
    }
}

uint64_t qm_time_since(const struct timespec *t)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - t->tv_sec) * 1000LL +
                      (now.tv_nsec - t->tv_nsec) / 1000000);
}

bool qm_time_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* --- waiting for the server --- */

bool qm_requester_gone(const struct patience *patience)
{
    const struct qm_requester *requester = patience->requester;

    return requester && requester->gone && requester->gone(requester->opaque);
}

int qm_device_wait(struct qm_device *device, struct patience *patience,
                   pthread_cond_t *cond)
{
    int state = atomic_load(&device->state);
    struct timespec now, glance;
    bool gone;

    if (state == DEVICE_DEAD)
        return EIO;
    clock_gettime(CLOCK_MONOTONIC, &now);
    glance = now;
    qm_time_add(&glance, GLANCE_MS);
    if (state != DEVICE_LOST)
        patience->until = (struct timespec){.tv_sec = 0};
    else if (device->options.wait != QM_DEVICE_FOREVER) {
        if (patience->until.tv_sec == 0) {
            patience->until = now;
            patience->until.tv_sec += device->options.wait;
        }
        if (!qm_time_before(&now, &patience->until))
            return EIO;
        if (qm_time_before(&patience->until, &glance))
            glance = patience->until;
    }
    pthread_cond_timedwait(cond, &device->lock, &glance);
    if (!patience->requester)
        return 0;
    /* Looking may take long, and must not hold up others. */
    pthread_mutex_unlock(&device->lock);
    gone = qm_requester_gone(patience);
    pthread_mutex_lock(&device->lock);
    return gone ? EIO : 0;
}

bool qm_device_try_enter(struct qm_device *device)
{
    /* In this order, as the keeper changes the state before it looks at `active`. */
    atomic_fetch_add(&device->active, 1);
    if (atomic_load(&device->state) == DEVICE_UP)
        return true;
    qm_device_leave(device);
    return false;
}

int qm_device_enter(struct qm_device *device, struct patience *patience)
{
    int err = 0;

    while (!qm_device_try_enter(device)) {
        pthread_mutex_lock(&device->lock);
        while (!err && atomic_load(&device->state) != DEVICE_UP)
            err = qm_device_wait(device, patience, &device->settled);
        pthread_mutex_unlock(&device->lock);
        if (err)
            return err;
    }
    /* If the server is lost once more, that is another wait.  The time in between, in
     * which the server had the request, is not bounded by `wait`. */
    patience->until = (struct timespec){.tv_sec = 0};
    return 0;
}

void qm_device_leave(struct qm_device *device)
{
    if (atomic_fetch_sub(&device->active, 1) > 1 ||
        atomic_load(&device->state) == DEVICE_UP)
        return;
    pthread_mutex_lock(&device->lock);
    pthread_cond_signal(&device->changed);
    pthread_mutex_unlock(&device->lock);
}

static bool means_lost(struct qm_device *device, int error)
{
    switch (error) {
    case ENOTCONN:
    case ECONNRESET:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ENOENT: /* its socket: no request fails with this, but one that connects */
    case EAGAIN: /* the same, of one with more clients than it can queue */
    case EPIPE:
    case ESHUTDOWN: /* the server is ending */
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return true;
    default:
        return !qm_direct_all_up(device->direct);
    }
}

/* Has the keeper connect again, unless that is known to be due.  Returns whether it is
 * news. */
static bool lose(struct qm_device *device)
{
    bool first;
    int state;

    pthread_mutex_lock(&device->lock);
    state = atomic_load(&device->state);
    first = state == DEVICE_UP || state == DEVICE_PAUSED;
    if (first) {
        atomic_store(&device->state, DEVICE_LOST);
        /* What is in the queue may be under way at the server. */
        device->unsettled = device->direct->contextless &&
                            (device->unsettled || !cds_list_empty(&device->queue));
        clock_gettime(CLOCK_MONOTONIC, &device->since);
        pthread_cond_signal(&device->changed);
    }
    pthread_mutex_unlock(&device->lock);
    /* All of them, or a server that ends would wait for those that are idle. */
    if (first)
        qm_direct_shutdown(device->direct);
    return first;
}

bool qm_device_lost(struct qm_device *device, int error, const char *why)
{
    if (!means_lost(device, error))
        return false;
    if (lose(device))
        qm_device_log(device, LOG_WARNING, "the server is gone: %s", why);
    return true;
}

void qm_device_found(struct qm_device *device, uint64_t size)
{
    if (device->direct->may_grow && size > qm_device_size(device) && lose(device))
        qm_device_log(device, LOG_NOTICE,
                      "the device has grown from %llu to %llu bytes: connecting again",
                      (unsigned long long)qm_device_size(device),
                      (unsigned long long)size);
}

/* --- life --- */

static int connect_once(struct qm_device *device, const char *uri)
{
    const struct qm_device_options *options = &device->options;
    unsigned n = options->connections ? options->connections : QM_CONNECTIONS_DEVICE;
    int err;

    if ((options->plain ? qm_direct_connect_any : qmctx_connect)(uri, n,
                                                                 &device->server) == -1)
        return errno;
    err = qm_device_own(device);
    if (err) {
        qmctx_close(device->server);
        device->server = NULL;
    }
    return err;
}

/* Whether trying again later may help. */
static bool is_absence(int err)
{
    switch (err) {
    case EINVAL:
    case EPROTO:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EACCES:
    case EPERM:
    case ENOTSUP:
    case ESTALE:
        return false;
    default:
        return true;
    }
}

static int connect_patiently(struct qm_device *device, const char *uri)
{
    uint32_t pause = PATIENT_FIRST_MS;
    struct timespec since, nap;
    bool said = false;
    int err;

    clock_gettime(CLOCK_MONOTONIC, &since);
    for (;;) {
        err = connect_once(device, uri);
        if (!err || !device->options.patient || !is_absence(err))
            break;
        if (device->options.wait != QM_DEVICE_FOREVER &&
            qm_time_since(&since) >= device->options.wait * UINT64_C(1000))
            break;
        if (!said)
            qm_device_log(device, LOG_WARNING, "waiting for the server: %s",
                          qmctx_error());
        said = true;
        nap = (struct timespec){.tv_nsec = (pause % 1000) * 1000000L,
                                .tv_sec = pause / 1000};
        nanosleep(&nap, NULL);
        pause = 2 * pause < PATIENT_MOST_MS ? 2 * pause : PATIENT_MOST_MS;
    }
    if (!err && said)
        qm_device_log(device, LOG_NOTICE, "the server is there, after %.1f s",
                      (double)qm_time_since(&since) / 1000);
    return err;
}

static void init(struct qm_device *device)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&device->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&device->changed, &monotonic);
    pthread_cond_init(&device->settled, &monotonic);
    pthread_cond_init(&device->poll, &monotonic);
    pthread_cond_init(&device->sentry_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    CDS_INIT_LIST_HEAD(&device->queue);
    CDS_INIT_LIST_HEAD(&device->retained);
    CDS_INIT_LIST_HEAD(&device->parked);
}

static void destroy(struct qm_device *device)
{
    struct change *change, *next;

    cds_list_for_each_entry_safe(change, next, &device->retained, node)
        qm_change_free(change);
    pthread_cond_destroy(&device->poll);
    pthread_cond_destroy(&device->sentry_wake);
    pthread_cond_destroy(&device->settled);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    free(device->regions);
    free(device);
}

int qm_device_thread(pthread_t *thread, void *(*function)(void *), void *opaque)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(thread, NULL, function, opaque);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

/* The device is initialized, and connected. */
static int start(struct qm_device *device)
{
    int err;

    device->direct = qm_direct_of(device->server);
    device->direct->any_block_size = true;
    /* Requests must be able to wait for the new connections. */
    device->direct->may_grow = device->options.grows && device->options.wait > 0 &&
                               device->options.reconnect > 0;
    qm_direct_peer(device->direct, &device->peer, &device->unfenced);
    err = qm_device_thread(&device->keeper, qm_device_keeper, device);
    device->has_keeper = !err;
    if (!err && device->direct->uris.count > 1) {
        err = qm_device_thread(&device->sentry, qm_device_sentry, device);
        device->has_sentry = !err;
    }
    return err;
}

int qm_device_open(const char *uri, const struct qm_device_options *options,
                   struct qm_device **result)
{
    struct qm_device *device = calloc(1, sizeof *device);
    int err;

    *result = NULL;
    if (device)
        device->regions = calloc(QM_REGIONS, sizeof device->regions[0]);
    if (!device || !device->regions) {
        free(device);
        qm_fail(ENOMEM, "out of memory for a device");
        return ENOMEM;
    }
    device->options = *options;
    device->limit = options->retain ? options->retain : QM_DEVICE_RETAIN;
    device->mode = options->mode;
    init(device);
    err = connect_patiently(device, uri);
    if (err) {
        destroy(device);
        return err;
    }
    err = start(device);
    if (err) {
        qm_device_close(device);
        qm_fail(err, "cannot start a thread: %s", strerror(err));
        return err;
    }
    *result = device;
    return 0;
}

/* Lets the keeper flush what is not stable yet, for a while. */
static void await_last_flush(struct qm_device *device)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    qm_time_add(&until, CLOSE_MS);
    while (!device->ended &&
           pthread_cond_timedwait(&device->settled, &device->lock, &until) != ETIMEDOUT)
        ;
}

/* Nothing waits for the server any more.  The lock is held. */
static void end_waiting(struct qm_device *device)
{
    device->stopping = true;
    atomic_store(&device->state, DEVICE_DEAD);
    pthread_cond_broadcast(&device->changed);
    pthread_cond_broadcast(&device->settled);
    pthread_cond_broadcast(&device->poll);
    pthread_cond_broadcast(&device->sentry_wake);
}

void qm_device_abandon(struct qm_device *device)
{
    if (qm_device_is_parents(device))
        return;
    pthread_mutex_lock(&device->lock);
    end_waiting(device);
    pthread_mutex_unlock(&device->lock);
    qm_direct_end(device->direct);
}

void qm_device_close(struct qm_device *device)
{
    uint64_t bytes, changes;

    if (!device)
        return;
    /* The parent's locks may be held by threads that are not there. */
    if (qm_device_is_parents(device))
        return;
    pthread_mutex_lock(&device->lock);
    device->stopping = true;
    pthread_cond_broadcast(&device->changed);
    pthread_cond_broadcast(&device->settled);
    if (device->has_keeper && atomic_load(&device->state) < DEVICE_LOST)
        await_last_flush(device);
    end_waiting(device);
    pthread_mutex_unlock(&device->lock);
    qm_direct_end(qm_direct_of(device->server));
    if (device->has_keeper)
        pthread_join(device->keeper, NULL);
    if (device->has_sentry)
        pthread_join(device->sentry, NULL);
    qm_direct_wake(qm_direct_of(device->server));
    if (device->has_poller)
        pthread_join(device->poller, NULL);
    qmctx_close(device->server);
    bytes = device->retained_bytes;
    changes = device->answered - device->flushed;
    if (changes > 0)
        qm_device_log(device, LOG_WARNING,
                      "changes that were not flushed: %llu (%llu bytes); they are lost "
                      "if the server loses them",
                      (unsigned long long)changes, (unsigned long long)bytes);
    destroy(device);
}

/* --- what it is --- */

uint64_t qm_device_size(const struct qm_device *device)
{
    return atomic_load(&device->direct->size);
}

uint32_t qm_device_block_size(const struct qm_device *device)
{
    return device->direct->block_size;
}

bool qm_device_read_only(const struct qm_device *device)
{
    return device->direct->read_only;
}

bool qm_device_is_up(const struct qm_device *device)
{
    return !qm_device_is_parents(device) && atomic_load(&device->state) == DEVICE_UP;
}

struct qmctx *qm_device_qmctx(const struct qm_device *device)
{
    return device->server;
}

unsigned qm_device_losses(const struct qm_device *device)
{
    return atomic_load(&device->losses);
}

void qm_device_stat(const struct qm_device *constant, struct qm_device_stat *stat)
{
    struct qm_device *device = (struct qm_device *)constant;

    *stat = (struct qm_device_stat){.answered = 0};
    if (qm_device_is_parents(device))
        return;
    pthread_mutex_lock(&device->lock);
    *stat = device->stat;
    stat->answered = device->answered;
    stat->flushed = device->flushed;
    stat->retained_bytes = device->retained_bytes;
    stat->retained_changes = device->retained_count;
    pthread_mutex_unlock(&device->lock);
}

ssize_t qm_device_clamp(const struct qm_device *device, bool write, size_t count,
                        off_t offset)
{
    uint64_t size = qm_device_size(device), left;

    if (offset < 0)
        return -EINVAL;
    if (count > MAX_COUNT)
        count = MAX_COUNT;
    if ((uint64_t)offset >= size)
        return write && count > 0 ? -ENOSPC : 0;
    left = size - (uint64_t)offset;
    return (ssize_t)(count < left ? count : left);
}

int qm_device_allocate(struct qm_device *device, const struct qm_requester *requester,
                       int mode, off_t offset, off_t length)
{
    uint64_t end = qm_device_size(device), at = (uint64_t)offset,
             count = (uint64_t)length;
    bool inside;

    if (offset < 0 || length <= 0)
        return EINVAL;
    inside = at <= end && count <= end - at;
    switch (mode) {
    case 0:
    case FALLOC_FL_KEEP_SIZE:
        /* A device's blocks are all there. */
        return inside ? 0 : ENOSPC;
    case FALLOC_FL_ZERO_RANGE:
        return inside ? qm_device_zero(device, requester, count, at) : ENOSPC;
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
        /* Nothing is to be done beyond the end. */
        if (at >= end)
            return 0;
        return qm_device_zero(device, requester, inside ? count : end - at, at);
    default:
        return EOPNOTSUPP;
    }
}

/* --- contexts --- */

int qm_device_begin(struct qm_device *device, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id)
{
    return qmctx_open_context(device->server, parent, kind, klass, name, id) == 0
               ? 0
               : errno;
}

void qm_device_end(struct qm_device *device, qmctx_id id)
{
    qmctx_close_context(device->server, id);
}
