/* SPDX-License-Identifier: BSD-3-Clause */
/* filter.c - nbdkit-device-filter: requests take as long as on a chosen device.
 *
 * A request is submitted to the model (model.h) when it comes, carried out by the layer
 * below at once, and answered when the model says that it ends.  There is no thread of
 * the filter's own: each request's thread waits until the next thing happens to its
 * request, lets the model advance to that time, and wakes those whose times that has
 * changed.  Since everything that happens in the model happens to a request, there is
 * always a thread that wakes in time.
 *
 * A thread that comes late does not delay the model: later requests began at the time
 * at which they should have.  By how much replies were late is part of the statistics.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-filter.h>

#include "plugins/device/config.h"
#include "plugins/device/report.h"

#define FILE_CHECK_NS 10000000 /* look for device-file so often at most */

static struct qmd_config config;
static FILE *stats_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two */
static struct qm_device *device;                         /* NULL until a connection */
static struct qm_histogram late;

static int64_t epoch; /* times are since then, to be exact in a double */
static _Atomic int64_t file_checked;
static atomic_bool file_exists;

/* Whether a client's connection runs in this thread: nbdkit calls preconnect for each
 * of those, and for nothing else, in the thread that then opens the layers. */
static _Thread_local bool is_client;

/* Timers of this thread fire when they should, not up to 50 us later. */
static _Thread_local bool is_exact;

struct handle {
    bool background; /* a filter's own, not of a client */
};

/* A request's thread. */
struct waiter {
    struct qm_device_request *request; /* NULL: it takes no time */
    pthread_cond_t wake;
};

static int64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - epoch;
}

static int device_config(nbdkit_next_config *next, nbdkit_backend *nxdata,
                         const char *key, const char *value)
{
    int r = qmd_config_set(key, value);

    return r == 1 ? next(nxdata, key, value) : r;
}

static int device_config_complete(nbdkit_next_config_complete *next,
                                  nbdkit_backend *nxdata)
{
    if (qmd_config_complete(&config) == -1)
        return -1;
    return next(nxdata);
}

static int device_get_ready(int thread_model)
{
    if (thread_model < NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS && !config.none)
        nbdkit_error(
            "warning: the plugin serves one request at a time, so there are no "
            "queues at the device");
    epoch = now();
    if (config.stats) {
        stats_file = fopen(config.stats, "we");
        if (!stats_file) {
            nbdkit_error("device-stats=%s: %m", config.stats);
            return -1;
        }
    }
    return 0;
}

static void device_cleanup(nbdkit_backend *backend)
{
    if (stats_file && qmd_report(stats_file, &config, device, &late) == -1)
        nbdkit_error("device-stats=%s: %m", config.stats);
}

static void device_unload(void)
{
    if (stats_file)
        fclose(stats_file);
    qm_device_free(device);
    qmd_config_free(&config);
}

static int device_preconnect(nbdkit_next_preconnect *next, nbdkit_backend *nxdata,
                             int readonly)
{
    is_client = true;
    return next(nxdata, readonly);
}

static void *device_open(nbdkit_next_open *next, nbdkit_context *context, int readonly,
                         const char *exportname, int is_tls)
{
    struct handle *handle;

    if (next(context, readonly, exportname) == -1)
        return NULL;
    handle = malloc(sizeof *handle);
    if (!handle) {
        nbdkit_error("malloc: %m");
        return NULL;
    }
    handle->background = !is_client;
    return handle;
}

static void device_close(void *handle)
{
    free(handle);
}

static void changed(struct qm_device_request *request)
{
    struct waiter *waiter = request->opaque;

    pthread_cond_signal(&waiter->wake);
}

/* Makes the device, when its size is known; the lock is held. */
static int make(uint64_t size)
{
    int error = qm_device_new(&config.device, size, &device);

    if (error) {
        nbdkit_error("device=%s: %s", config.name, strerror(error));
        return -1;
    }
    qm_device_on_change(device, changed);
    return 0;
}

/* The device has the size that the first connection finds. */
static int device_prepare(nbdkit_next *next, void *handle, int readonly)
{
    const struct qm_device_config *c = &config.device;
    int64_t size = next->get_size(next);
    int r = 0;

    if (size == -1)
        return -1;
    if (config.none)
        return 0;
    if (c->disks && c->disk.span > 0 && (uint64_t)size / c->stations > c->disk.span) {
        nbdkit_error(
            "device-span must not be less than a disk's part of the device, %" PRIu64
            " bytes; it is %" PRIu64,
            (uint64_t)size / c->stations, c->disk.span);
        return -1;
    }
    pthread_mutex_lock(&lock);
    if (!device)
        r = make((uint64_t)size);
    pthread_mutex_unlock(&lock);
    return r;
}

/* Zeros take as long as other bytes. */
static int device_can_fast_zero(nbdkit_next *next, void *handle)
{
    return config.none ? next->can_fast_zero(next) : 0;
}

/* Whether requests take time now. */
static bool is_on(void)
{
    int64_t checked, time;

    if (config.none)
        return false;
    if (!config.file)
        return true;
    time = now();
    checked = atomic_load_explicit(&file_checked, memory_order_relaxed);
    if ((checked == 0 || time - checked >= FILE_CHECK_NS) &&
        atomic_compare_exchange_strong(&file_checked, &checked, time ? time : 1))
        atomic_store(&file_exists, access(config.file, F_OK) == 0);
    return atomic_load(&file_exists);
}

/* A request comes.  Returns 0, or -1 with *err. */
static int begin(struct waiter *waiter, const struct handle *handle, bool write,
                 uint32_t count, uint64_t offset, int *err)
{
    pthread_condattr_t attr;
    int error;

    waiter->request = NULL;
    if (!is_on())
        return 0;
    if (!is_exact) {
        prctl(PR_SET_TIMERSLACK, 1);
        is_exact = true;
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&lock);
    error = qm_device_submit(device, now(), write, handle->background, offset, count,
                             waiter, &waiter->request);
    pthread_mutex_unlock(&lock);
    if (!error)
        return 0;
    pthread_cond_destroy(&waiter->wake);
    nbdkit_error("%s", strerror(error));
    *err = error;
    return -1;
}

static struct timespec time_of(int64_t due)
{
    return (struct timespec){
        .tv_sec = (due + epoch) / 1000000000,
        .tv_nsec = (due + epoch) % 1000000000,
    };
}

/* Waits until `due`; without the lock, which waiting for `wake` would take once more
 * and give back by a system call.  For a request of one part, whose next event comes
 * neither sooner than it was said to, nor does it take somebody else's thread. */
static void sleep_until(int64_t due)
{
    const struct timespec ts = time_of(due);

    pthread_mutex_unlock(&lock);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        continue;
    pthread_mutex_lock(&lock);
}

/* The lock is held.  Waits until `due`, or until that has changed. */
static void wait_until(struct waiter *waiter, int64_t due)
{
    struct timespec ts;

    if (due == QM_DEVICE_NEVER) {
        pthread_cond_wait(&waiter->wake, &lock);
        return;
    }
    ts = time_of(due);
    pthread_cond_timedwait(&waiter->wake, &lock, &ts);
}

/* Waits until it ends. */
static void end(struct waiter *waiter)
{
    struct qm_device_request *request = waiter->request;
    int64_t due, time;

    if (!request)
        return;
    pthread_mutex_lock(&lock);
    for (;;) {
        time = now();
        qm_device_advance(device, time);
        due = qm_device_due(request);
        if (request->pending == 0 && due <= time)
            break;
        if (request->count == 1 && due != QM_DEVICE_NEVER)
            sleep_until(due);
        else
            wait_until(waiter, due);
    }
    qm_histogram_add(&late, (uint64_t)(time - request->done));
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&waiter->wake);
    free(request);
}

static int device_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count,
                        uint64_t offset, uint32_t flags, int *err)
{
    struct waiter waiter;
    int r;

    if (begin(&waiter, handle, false, count, offset, err) == -1)
        return -1;
    r = next->pread(next, buf, count, offset, flags, err);
    end(&waiter);
    return r;
}

static int device_cache(nbdkit_next *next, void *handle, uint32_t count,
                        uint64_t offset, uint32_t flags, int *err)
{
    struct waiter waiter;
    int r;

    if (begin(&waiter, handle, false, count, offset, err) == -1)
        return -1;
    r = next->cache(next, count, offset, flags, err);
    end(&waiter);
    return r;
}

static int device_pwrite(nbdkit_next *next, void *handle, const void *buf,
                         uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    struct waiter waiter;
    int r;

    if (begin(&waiter, handle, true, count, offset, err) == -1)
        return -1;
    r = next->pwrite(next, buf, count, offset, flags, err);
    end(&waiter);
    return r;
}

static int device_zero(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
                       uint32_t flags, int *err)
{
    struct waiter waiter;
    int r;

    if (begin(&waiter, handle, true, count, offset, err) == -1)
        return -1;
    r = next->zero(next, count, offset, flags, err);
    end(&waiter);
    return r;
}

static struct nbdkit_filter filter = {
    .name = "device",
    .longname = "QuickMine device model",
    .description = "Requests take as long as on a chosen device.",
    .unload = device_unload,
    .config = device_config,
    .config_complete = device_config_complete,
    .config_help = qmd_config_help,
    .get_ready = device_get_ready,
    .cleanup = device_cleanup,
    .preconnect = device_preconnect,
    .open = device_open,
    .close = device_close,
    .prepare = device_prepare,
    .can_fast_zero = device_can_fast_zero,
    .pread = device_pread,
    .pwrite = device_pwrite,
    .zero = device_zero,
    .cache = device_cache,
};

/* What nbdkit looks for in a filter; the macro does not declare it. */
struct nbdkit_filter *filter_init(void);
NBDKIT_REGISTER_FILTER(filter)
