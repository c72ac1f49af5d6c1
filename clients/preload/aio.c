/* SPDX-License-Identifier: BSD-3-Clause */
/* aio.c - libaio, on routed files.
 *
 * A context of libaio keeps, beside the kernel's, a list of events of routed files that
 * are done.  A thread that waits has to wait for both: a request of our own in the
 * kernel's context, a poll of an eventfd (the bell), completes when there is something
 * on the list.  It takes one of the context's places, for which io_setup() asks, and is
 * never shown to the program.
 *
 * The bell is armed as long as a thread waits, and rung only then.  The thread that it
 * wakes arms it again for the others.
 */
#include <errno.h>
#include <libaio.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "clients/preload/async.h"
#include "clients/preload/next.h"
#include "clients/preload/patient.h"
#include "clients/preload/preload.h"
#include "clients/preload/record.h"

struct context {
    io_context_t id;
    struct context *next; /* contexts_lock */
    unsigned refs;        /* contexts_lock */

    pthread_mutex_t lock;
    pthread_cond_t idle;               /* lock; in_flight is 0 */
    struct request *done, **done_tail; /* lock; oldest first */
    unsigned in_flight;                /* lock; requests that are not done */
    unsigned waiters;                  /* lock; threads in the kernel */
    bool armed;                        /* lock; the bell is in the kernel */
    struct iocb bell;                  /* constant */
    int eventfd;
};

struct request {
    struct async async;
    struct context *context;
    struct iocb *iocb;
    void *data;
    int notify; /* an eventfd of the program's; -1 */
    long result;
    struct request *next;
};

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts; /* contexts_lock */

static struct context *find(io_context_t id)
{
    struct context *c;

    if (!qm_routes())
        return NULL;
    pthread_mutex_lock(&contexts_lock);
    for (c = contexts; c && c->id != id; c = c->next)
        ;
    if (c)
        c->refs++;
    pthread_mutex_unlock(&contexts_lock);
    return c;
}

static void put(struct context *c)
{
    unsigned refs;

    pthread_mutex_lock(&contexts_lock);
    refs = --c->refs;
    pthread_mutex_unlock(&contexts_lock);
    if (refs > 0)
        return;
    NEXT(close)(c->eventfd);
    pthread_cond_destroy(&c->idle);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* --- requests --- */

static void complete(struct async *async, ssize_t result)
{
    struct request *request = (struct request *)async;
    struct context *c = request->context;
    int notify = request->notify;

    request->result = result;
    request->next = NULL;
    pthread_mutex_lock(&c->lock);
    *c->done_tail = request;
    c->done_tail = &request->next;
    if (c->waiters > 0)
        eventfd_write(c->eventfd, 1);
    /* From here on the context may go. */
    if (--c->in_flight == 0)
        pthread_cond_broadcast(&c->idle);
    pthread_mutex_unlock(&c->lock);
    if (notify != -1)
        eventfd_write(notify, 1);
}

static int start_vector(struct request *request, struct file *file, bool write,
                        const struct iovec *iov, int count, long long offset)
{
    qm_async_rw(&request->async, file, write, iov, count, offset,
                request->iocb->aio_rw_flags);
    return 0;
}

static int start(struct request *request, struct file *file)
{
    struct iocb *iocb = request->iocb;
    struct iovec one = {iocb->u.c.buf, iocb->u.c.nbytes};
    bool write = false;

    switch (iocb->aio_lio_opcode) {
    case IO_CMD_PWRITE:
        write = true;
        /* fall through */
    case IO_CMD_PREAD:
        return start_vector(request, file, write, &one, 1, iocb->u.c.offset);
    case IO_CMD_PWRITEV:
        write = true;
        /* fall through */
    case IO_CMD_PREADV:
        return start_vector(request, file, write, iocb->u.c.buf, (int)iocb->u.c.nbytes,
                            iocb->u.c.offset);
    case IO_CMD_FSYNC:
    case IO_CMD_FDSYNC:
        complete(&request->async, -qm_io_flush(file));
        return 0;
    default:
        return -EINVAL;
    }
}

/* 0, or an errno value below 0. */
static int submit_routed(struct context *c, struct file *file, struct iocb *iocb)
{
    struct request *request = malloc(sizeof *request);
    int rc;

    if (!request)
        return -EAGAIN;
    *request = (struct request){
        .async.complete = complete,
        .context = c,
        .iocb = iocb,
        .data = iocb->data,
        .notify = iocb->u.c.flags & 1 ? (int)iocb->u.c.resfd : -1,
    };
    pthread_mutex_lock(&c->lock);
    c->in_flight++;
    pthread_mutex_unlock(&c->lock);
    rc = start(request, file);
    if (rc < 0) {
        pthread_mutex_lock(&c->lock);
        c->in_flight--;
        pthread_mutex_unlock(&c->lock);
        free(request);
    }
    return rc;
}

/* --- recording --- */

/* What an iocb asks for: the program may free it as soon as the kernel has it. */
struct asked {
    int fd;
    bool write;
    off_t offset;
    ssize_t length; /* -1: neither a read nor a write */
};

static void note(struct asked *asked, const struct iocb *iocb)
{
    bool vectored =
        iocb->aio_lio_opcode == IO_CMD_PREADV || iocb->aio_lio_opcode == IO_CMD_PWRITEV;
    bool write =
        iocb->aio_lio_opcode == IO_CMD_PWRITE || iocb->aio_lio_opcode == IO_CMD_PWRITEV;

    *asked = (struct asked){iocb->aio_fildes, write, iocb->u.c.offset, -1};
    if (vectored) {
        asked->offset = iocb->u.v.offset;
        asked->length = qm_io_total(iocb->u.v.vec, iocb->u.v.nr);
    } else if (write || iocb->aio_lio_opcode == IO_CMD_PREAD) {
        asked->length = (ssize_t)iocb->u.c.nbytes;
    }
}

static void record(const struct asked *asked, long count)
{
    for (long i = 0; i < count; i++)
        if (asked[i].length >= 0)
            qm_record(asked[i].fd, asked[i].write, asked[i].offset, asked[i].length);
}

/* io_submit() of what goes to the kernel; what that has taken is recorded. */
static int submit(io_context_t id, long count, struct iocb **iocbs)
{
    struct asked asked[64];
    long at = 0, n;
    int rc;

    if (!atomic_load(&qm_recording))
        return NEXT(io_submit)(id, count, iocbs);
    do {
        n = count - at < 64 ? count - at : 64;
        for (long i = 0; i < n; i++)
            note(&asked[i], iocbs[at + i]);
        rc = NEXT(io_submit)(id, n, iocbs + at);
        record(asked, rc);
        at += rc > 0 ? rc : 0;
    } while (rc == n && at < count);
    return at > 0 ? (int)at : rc;
}

INTERPOSED int io_submit(io_context_t id, long count, struct iocb **iocbs)
{
    struct context *c = find(id);
    struct asked asked;
    long at = 0, n;
    int rc = 0;
    QM_PATIENT();

    if (!c)
        return submit(id, count, iocbs);
    while (rc >= 0 && at < count) {
        QM_FILE(file, iocbs[at]->aio_fildes);

        if (file) {
            note(&asked, iocbs[at]);
            rc = submit_routed(c, file, iocbs[at]);
            record(&asked, rc == 0);
            at += rc == 0;
            continue;
        }
        for (n = 1; at + n < count && !qm_is_routed(iocbs[at + n]->aio_fildes); n++)
            ;
        rc = submit(id, n, iocbs + at);
        at += rc > 0 ? rc : 0;
        if (rc < n)
            break;
    }
    put(c);
    return at > 0 ? (int)at : rc;
}

/* --- waiting --- */

/* The lock is held. */
static void arm(struct context *c)
{
    struct iocb *bell = &c->bell;

    if (!c->armed && NEXT(io_submit)(c->id, 1, &bell) == 1)
        c->armed = true;
}

/* Moves what is done into events, at most max; returns how many.  The lock is held. */
static long take(struct context *c, long max, struct io_event *events)
{
    struct request *request;
    eventfd_t count;
    long n;

    for (n = 0; n < max && (request = c->done); n++) {
        c->done = request->next;
        events[n] = (struct io_event){
            .data = request->data,
            .obj = request->iocb,
            .res = (unsigned long)request->result,
        };
        free(request);
    }
    if (!c->done) {
        c->done_tail = &c->done;
        eventfd_read(c->eventfd, &count);
    }
    return n;
}

/* Takes the bell out of n events; returns how many are left.  The lock is held. */
static long without_bell(struct context *c, long n, struct io_event *events)
{
    long kept = 0;

    for (long i = 0; i < n; i++) {
        if (events[i].obj == &c->bell)
            c->armed = false;
        else
            events[kept++] = events[i];
    }
    if (!c->armed && c->waiters > 0)
        arm(c);
    return kept;
}

/* How long it still is to a time; false: not at all. */
static bool remaining(const struct timespec *until, struct timespec *left)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    left->tv_sec = until->tv_sec - now.tv_sec;
    left->tv_nsec = until->tv_nsec - now.tv_nsec;
    if (left->tv_nsec < 0) {
        left->tv_sec--;
        left->tv_nsec += 1000000000;
    }
    return left->tv_sec >= 0 && (left->tv_sec > 0 || left->tv_nsec > 0);
}

static void deadline(const struct timespec *timeout, struct timespec *until)
{
    clock_gettime(CLOCK_MONOTONIC, until);
    until->tv_sec += timeout->tv_sec;
    until->tv_nsec += timeout->tv_nsec;
    if (until->tv_nsec >= 1000000000) {
        until->tv_sec++;
        until->tv_nsec -= 1000000000;
    }
}

static int kernel_events(io_context_t id, long min, long max, struct io_event *events,
                         struct timespec *timeout, sigset_t *mask)
{
    return mask ? NEXT(io_pgetevents)(id, min, max, events, timeout, mask)
                : NEXT(io_getevents)(id, min, max, events, timeout);
}

static int wait_events(struct context *c, long min, long max, struct io_event *events,
                       struct timespec *timeout, sigset_t *mask)
{
    struct timespec until, left = {0, 0};
    bool waits = min > 0;
    long n = 0;
    int rc;

    if (timeout)
        deadline(timeout, &until);
    do {
        pthread_mutex_lock(&c->lock);
        n += take(c, max - n, events + n);
        waits = n < min && (!timeout || remaining(&until, &left));
        if (waits) {
            c->waiters++;
            arm(c);
        } else {
            left = (struct timespec){0, 0};
        }
        pthread_mutex_unlock(&c->lock);
        if (n == max)
            break;
        rc = kernel_events(c->id, waits, max - n, events + n,
                           waits && !timeout ? NULL : &left, mask);
        pthread_mutex_lock(&c->lock);
        if (waits)
            c->waiters--;
        if (rc > 0)
            n += without_bell(c, rc, events + n);
        pthread_mutex_unlock(&c->lock);
        if (rc < 0)
            return n > 0 ? (int)n : rc;
    } while (waits);
    return (int)n;
}

static int get_events(io_context_t id, long min, long max, struct io_event *events,
                      struct timespec *timeout, sigset_t *mask)
{
    struct context *c = find(id);
    int rc;
    QM_PATIENT();

    if (!c)
        return kernel_events(id, min, max, events, timeout, mask);
    rc = min < 0 || max < 0 || min > max
             ? -EINVAL
             : wait_events(c, min, max, events, timeout, mask);
    put(c);
    return rc;
}

INTERPOSED int io_getevents(io_context_t id, long min, long max,
                            struct io_event *events, struct timespec *timeout)
{
    return get_events(id, min, max, events, timeout, NULL);
}

INTERPOSED int io_pgetevents(io_context_t id, long min, long max,
                             struct io_event *events, struct timespec *timeout,
                             sigset_t *mask)
{
    return get_events(id, min, max, events, timeout, mask);
}

/* --- contexts --- */

static int set_up(int count, io_context_t *id)
{
    struct context *c;
    int rc;

    if (!qm_routes())
        return NEXT(io_setup)(count, id);
    c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = c->eventfd == -1 ? -errno : NEXT(io_setup)(count + (count < INT_MAX), id);
    if (rc < 0) {
        if (c->eventfd != -1)
            NEXT(close)(c->eventfd);
        free(c);
        return rc;
    }
    c->id = *id;
    c->refs = 1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->idle, NULL);
    c->done_tail = &c->done;
    io_prep_poll(&c->bell, c->eventfd, POLLIN);
    pthread_mutex_lock(&contexts_lock);
    c->next = contexts;
    contexts = c;
    pthread_mutex_unlock(&contexts_lock);
    return 0;
}

INTERPOSED int io_setup(int count, io_context_t *id)
{
    return set_up(count, id);
}

INTERPOSED int io_queue_init(int count, io_context_t *id)
{
    if (count <= 0)
        return -EINVAL;
    memset(id, 0, sizeof *id);
    return set_up(count, id);
}

INTERPOSED int io_destroy(io_context_t id)
{
    struct context *c = find(id), **link;
    struct request *request;
    int rc;
    QM_PATIENT();

    if (!c)
        return NEXT(io_destroy)(id);
    pthread_mutex_lock(&contexts_lock);
    for (link = &contexts; *link && *link != c; link = &(*link)->next)
        ;
    if (*link) {
        *link = c->next;
        c->refs--;
    }
    pthread_mutex_unlock(&contexts_lock);
    /* As the kernel does: the requests' buffers are the program's again afterwards. */
    pthread_mutex_lock(&c->lock);
    while (c->in_flight > 0)
        pthread_cond_wait(&c->idle, &c->lock);
    while ((request = c->done)) {
        c->done = request->next;
        free(request);
    }
    c->done_tail = &c->done;
    pthread_mutex_unlock(&c->lock);
    rc = NEXT(io_destroy)(id);
    put(c);
    return rc;
}

INTERPOSED int io_queue_release(io_context_t id)
{
    return io_destroy(id);
}

/* What the server has been asked for cannot be taken back. */
INTERPOSED int io_cancel(io_context_t id, struct iocb *iocb, struct io_event *event)
{
    return qm_is_routed(iocb->aio_fildes) ? -EINVAL : NEXT(io_cancel)(id, iocb, event);
}

/* --- fork() --- */

void qm_aio_forked(void)
{
    /* A child does not have its parent's contexts, in the kernel either. */
    pthread_mutex_init(&contexts_lock, NULL);
    contexts = NULL;
}
