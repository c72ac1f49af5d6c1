/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.c - the server's connections to the layer below nbdkit's filter: what the
 * device is like, and the connections that are prefetched over (backing.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/backend.h"
#include "server/server.h"

#define MAX_READ (UINT32_C(4) << 20) /* of one read of the layer below */

/* Connections of which each reads one thing at a time. */
#define SERIALIZED_MOST 64

/* Between attempts to open a lost connection anew. */
#define REOPEN_FIRST (UINT64_C(1) * 1000000000)
#define REOPEN_MOST  (UINT64_C(32) * 1000000000)
#define PATIENCE     (UINT64_C(5) * 1000000000) /* at the end, with one that hangs */

/* While the first connection is being opened: between looks whether nbdkit is to end,
 * and when it is said that one waits. */
#define LOOK_NS    100000000
#define TOLD_AFTER (UINT64_C(5) * 1000000000)

static nbdkit_next *open_next(nbdkit_backend *backend)
{
    nbdkit_next *next = nbdkit_next_context_open(backend, 1, "", 1);

    if (!next)
        return NULL;
    if (next->prepare(next) == -1) {
        nbdkit_next_context_close(next);
        return NULL;
    }
    return next;
}

void qms_backend_close(nbdkit_next *next)
{
    next->finalize(next);
    nbdkit_next_context_close(next);
}

int64_t qms_backend_max_read(const struct qms_server *s, nbdkit_next *next)
{
    uint32_t minimum, preferred, maximum;

    if (next->block_size(next, &minimum, &preferred, &maximum) == -1)
        return -1;
    if (maximum == 0 || maximum > MAX_READ)
        maximum = MAX_READ;
    if (minimum > s->config.block_size || maximum < s->config.block_size) {
        nbdkit_error("block-size must be from %" PRIu32 " to %" PRIu32
                     " over this device, not %" PRIu64,
                     minimum, maximum, s->config.block_size);
        return -1;
    }
    return maximum;
}

/* The first connection, which a thread opens: a plugin may wait for its backend as long
 * as it likes, and nbdkit's main thread has to end meanwhile if it is told to. */
struct opening {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    nbdkit_backend *backend;
    nbdkit_next *next;
    bool done;
};

static void *open_first(void *opaque)
{
    struct opening *o = opaque;
    nbdkit_next *next = open_next(o->backend);

    pthread_mutex_lock(&o->lock);
    o->next = next;
    o->done = true;
    pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Returns false if nbdkit is to end. */
static bool wait_for_first(struct opening *o)
{
    const uint64_t since = qms_now();
    bool told = false, stopped = false;

    pthread_mutex_lock(&o->lock);
    while (!o->done && !stopped) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_clockwait(&o->wake, &o->lock, CLOCK_MONOTONIC, &until);
        stopped = !o->done && nbdkit_nanosleep(0, 0) == -1;
        if (!o->done && !told && qms_now() - since >= TOLD_AFTER) {
            told = true;
            qms_log(QMS_WARNING, "the layer below has not opened the device yet: it is "
                                 "waited for, and clients wait, too");
        }
    }
    pthread_mutex_unlock(&o->lock);
    if (told && !stopped && o->next)
        qms_log(QMS_NOTE, "the layer below has opened the device");
    return !stopped;
}

static nbdkit_next *open_by_thread(nbdkit_backend *backend)
{
    struct opening *o = calloc(1, sizeof *o);
    sigset_t all, before;
    nbdkit_next *next;
    pthread_t thread;
    int error;

    if (!o) {
        nbdkit_error("out of memory");
        return NULL;
    }
    o->backend = backend;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, open_first, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        nbdkit_error("cannot start a thread: %s", strerror(error));
    } else if (!wait_for_first(o)) {
        /* nbdkit ends the process now.  Until then, o is the thread's. */
        pthread_detach(thread);
        return NULL;
    } else {
        pthread_join(thread, NULL);
    }
    next = o->next;
    pthread_cond_destroy(&o->wake);
    pthread_mutex_destroy(&o->lock);
    free(o);
    return next;
}

nbdkit_next *qms_backend_probe(struct qms_server *s)
{
    nbdkit_next *next = open_by_thread(s->backend);
    int64_t size, maximum = -1;

    if (!next)
        return NULL;
    size = next->get_size(next);
    if (size != -1)
        maximum = qms_backend_max_read(s, next);
    if (maximum == -1) {
        qms_backend_close(next);
        return NULL;
    }
    s->size = size;
    s->max_bytes = maximum;
    return next;
}

bool qms_backend_flush(struct qms_server *s)
{
    nbdkit_next *next = open_next(s->backend);
    bool flushed;
    int err = 0;

    if (!next)
        return false;
    flushed = next->can_flush(next) == 1 && next->can_multi_conn(next) == 1 &&
              next->flush(next, 0, &err) == 0;
    qms_backend_close(next);
    return flushed;
}

/* What follows is for backing.h: a connection is a nbdkit_next. */

static void *open_backing(void *opaque)
{
    struct qms_server *s = opaque;
    nbdkit_next *next = open_next(s->backend);
    int64_t size;

    if (!next)
        return NULL;
    size = next->get_size(next);
    /* A larger one has the bytes that are asked for; a client's connection will tell of
     * the others (size.c). */
    if (size != -1 && (uint64_t)size >= atomic_load(&s->size))
        return next;
    if (size != -1 && (uint64_t)size != s->other_size) {
        s->other_size = size;
        qms_log(QMS_WARNING,
                "the device has %" PRIi64 " bytes now, and had %" PRIu64
                ": nothing is prefetched from it",
                size, atomic_load(&s->size));
    }
    qms_backend_close(next);
    return NULL;
}

static void close_backing(void *opaque, void *connection)
{
    qms_backend_close(connection);
}

static int read_backing(void *opaque, void *connection, void *buf, uint32_t count,
                        uint64_t offset)
{
    nbdkit_next *next = connection;
    int err = 0;

    if (next->pread(next, buf, count, offset, 0, &err) == -1)
        return err ? err : EIO;
    return 0;
}

static void backing_lost(void *opaque, int error)
{
    qms_log(QMS_WARNING,
            "a prefetch connection to the layer below fails: %s; less is "
            "prefetched until it is open again",
            strerror(error));
}

static void backing_back(void *opaque)
{
    qms_log(QMS_NOTE,
            "a prefetch connection to the layer below is open again, and prefetching "
            "goes on");
}

/* As much as there is of the first block: the device may come to be larger, not
 * smaller.
 */
static uint32_t trial_bytes(const struct qms_server *s)
{
    return s->size < s->config.block_size ? s->size : s->config.block_size;
}

unsigned qms_backend_connections(const struct qms_server *s)
{
    const unsigned given = (unsigned)s->config.prefetch_connections;

    if (given > 0)
        return given;
    return s->thread_model < NBDKIT_THREAD_MODEL_PARALLEL
               ? SERIALIZED_MOST
               : QM_INFLIGHT_MOST / QMS_BACKEND_EACH;
}

struct qms_backing *qms_backend_start(struct qms_server *s, nbdkit_next *first,
                                      int *error)
{
    const struct qms_backing_config backing = {
        .connections = qms_backend_connections(s),
        .first = s->config.prefetch_threads == QM_PREFETCH_AUTO
                     ? 1
                     : (unsigned)s->config.prefetch_connections,
        .first_delay = REOPEN_FIRST,
        .most_delay = REOPEN_MOST,
        .trial = trial_bytes(s),
        .patience = PATIENCE,
        .open = open_backing,
        .close = close_backing,
        .read = read_backing,
        .lost = backing_lost,
        .back = backing_back,
        .opaque = s,
    };

    return qms_backing_start(&backing, first, error);
}
