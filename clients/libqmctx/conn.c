/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.c - one connection: a libnbd handle, the requests on it, and the thread that
 * polls.
 *
 * A request is sent by the thread that makes it.  Replies are handled by whichever
 * thread polls the connection: one at a time (`polling`), either a thread that waits
 * for a request of its own, or one in qmctx_poll(), which polls several connections.
 * Threads whose requests are in flight meanwhile sleep on a condition of their own, and
 * when the one that polled has got its reply, it wakes the next to take its place.
 *
 * libnbd's callbacks run with conn.lock held.  The caller's done() must not, as it may
 * do as it likes: finished requests are put on a list, and done() is called after the
 * lock has been let go.
 *
 * When a connection breaks, libnbd fails what is in flight.  The handle stays, unused,
 * until qm_conn_install() replaces it; nobody polls it by then.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "direct.h"

#define CLOSE_MS    1000                 /* that closing waits for a reply */
#define MAX_REQUEST (UINT64_C(32) << 20) /* any server takes that much */

int qm_conn_init(struct conn *conn, struct direct *direct, bool tagged)
{
    conn->tagged = tagged;
    atomic_init(&conn->up, false);
    atomic_init(&conn->fd, -1);
    conn->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (conn->wake == -1)
        return errno;
    pthread_mutex_init(&conn->lock, NULL);
    pthread_cond_init(&conn->changed, NULL);
    CDS_INIT_LIST_HEAD(&conn->waiting);
    CDS_INIT_LIST_HEAD(&conn->finished);
    CDS_INIT_LIST_HEAD(&conn->own.idle);
    conn->direct = direct;
    return 0;
}

void qm_conn_install(struct conn *conn, struct nbd_handle *nbd)
{
    struct nbd_handle *old;
    int64_t max;

    pthread_mutex_lock(&conn->lock);
    while (conn->polling)
        pthread_cond_wait(&conn->changed, &conn->lock);
    old = conn->nbd;
    conn->nbd = nbd;
    conn->ordered = conn->direct->ordered;
    conn->can_zero = nbd_can_zero(nbd) == 1;
    conn->can_trim = nbd_can_trim(nbd) == 1;
    conn->can_flush = nbd_can_flush(nbd) == 1;
    conn->can_fua = nbd_can_fua(nbd) == 1;
    max = nbd_get_block_size(nbd, LIBNBD_SIZE_MAXIMUM);
    conn->max_payload =
        max > 0 && (uint64_t)max < MAX_REQUEST ? (uint64_t)max : MAX_REQUEST;
    conn->epoch = atomic_fetch_add(&conn->direct->last_epoch, 1) + 1;
    conn->unattended = 0;
    conn->fd_own = qm_own_fd(nbd_aio_get_fd(nbd));
    atomic_store(&conn->fd, nbd_aio_get_fd(nbd));
    atomic_store(&conn->up, true);
    pthread_mutex_unlock(&conn->lock);
    if (old)
        nbd_close(old);
}

static void wake(int fd)
{
    /* Fails only if it is awake for a long time already. */
    (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void woken(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof count);
}

/* From here on conn.lock is held unless a comment says otherwise. */

static short events(struct conn *conn)
{
    unsigned direction = nbd_aio_get_direction(conn->nbd);

    return (short)((direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                   (direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0));
}

/* libnbd has closed the socket then.  A thread that is about to poll it would not see
 * that, but wait for whatever gets its number next. */
static void notice_down(struct conn *conn)
{
    if ((nbd_aio_is_dead(conn->nbd) || nbd_aio_is_closed(conn->nbd)) &&
        atomic_exchange(&conn->up, false) && conn->polling)
        wake(conn->wakes);
}

void qm_request_init(struct request *request, struct conn *conn)
{
    *request = (struct request){
        .parts = 1, /* until qm_conn_issued() */
        .conn = conn,
        .cond = PTHREAD_COND_INITIALIZER,
    };
    atomic_fetch_add_explicit(&conn->in_flight, 1, memory_order_relaxed);
}

static void complete(struct request *request)
{
    struct conn *conn = request->conn;
    struct direct *d = conn->direct;

    request->complete = true;
    atomic_fetch_sub_explicit(&conn->in_flight, 1, memory_order_relaxed);
    conn->answered++;
    if (request->async) {
        conn->async--;
        cds_list_add_tail(&request->finished, &conn->finished);
        if (!conn->by_poll && atomic_load(&d->poll_active))
            wake(d->poll_wake);
    } else {
        pthread_cond_signal(&request->cond);
    }
    /* Last, as it may free the request.  Whose thread waits for it lacks conn.lock. */
    if (request->ended)
        request->ended(request);
}

/* libnbd's callback: called under conn.lock, from within one of our calls to libnbd. */
static int part_done(void *opaque, int *error)
{
    struct request *request = opaque;

    if (*error && !request->error)
        request->error = *error;
    if (--request->parts == 0)
        complete(request);
    return 1;
}

void qm_conn_issue(struct request *request, enum command command, void *buf,
                   uint64_t count, uint64_t offset, uint32_t flags)
{
    nbd_completion_callback done = {.callback = part_done, .user_data = request};
    struct nbd_handle *nbd = request->conn->nbd;
    int64_t cookie = -1;
    int err;

    request->parts++;
    switch (command) {
    case CMD_READ:
        cookie = nbd_aio_pread(nbd, buf, count, offset, done, flags);
        break;
    case CMD_WRITE:
        cookie = nbd_aio_pwrite(nbd, buf, count, offset, done, flags);
        break;
    case CMD_FLUSH:
        cookie = nbd_aio_flush(nbd, done, flags);
        break;
    case CMD_ZERO:
        cookie = nbd_aio_zero(nbd, count, offset, done, flags);
        break;
    case CMD_TRIM:
        cookie = nbd_aio_trim(nbd, count, offset, done, flags);
        break;
    case CMD_CACHE:
        cookie = nbd_aio_cache(nbd, count, offset, done, flags);
        break;
    }
    if (cookie != -1)
        return;
    err = nbd_get_errno();
    notice_down(request->conn);
    if (!request->error)
        request->error = !atomic_load(&request->conn->up) ? ENOTCONN : err ? err : EIO;
    request->parts--;
}

/* Somebody polls for what is in flight, now that more is. */
static void attend(struct conn *conn)
{
    struct direct *d = conn->direct;

    if (conn->polling) {
        if (events(conn) & ~conn->polled)
            wake(conn->wakes);
    } else if (conn->async > 0 && atomic_load(&d->poll_active)) {
        wake(d->poll_wake);
    }
}

void qm_conn_issued(struct request *request)
{
    struct conn *conn = request->conn;

    if (--request->parts == 0)
        complete(request);
    notice_down(conn);
    attend(conn);
}

static void handle(struct conn *conn, short revents)
{
    unsigned direction = nbd_aio_get_direction(conn->nbd);

    /* One of the two, as the first changes what can be done next.  The direction may be
     * another than was polled for. */
    if (direction & LIBNBD_AIO_DIRECTION_READ && revents & (POLLIN | POLLHUP | POLLERR))
        nbd_aio_notify_read(conn->nbd);
    else if (direction & LIBNBD_AIO_DIRECTION_WRITE &&
             revents & (POLLOUT | POLLHUP | POLLERR))
        nbd_aio_notify_write(conn->nbd);
    notice_down(conn);
}

/* The calling thread has polled until now. */
static void hand_over(struct conn *conn)
{
    struct request *next;

    conn->polling = false;
    pthread_cond_broadcast(&conn->changed);
    cds_list_for_each_entry(next, &conn->waiting, waiting)
    {
        if (!next->complete) {
            pthread_cond_signal(&next->cond);
            return;
        }
    }
    if (conn->async > 0 && !conn->by_poll && atomic_load(&conn->direct->poll_active))
        wake(conn->direct->poll_wake);
}

/* Polls the connection until request is complete, on behalf of all. */
static void lead(struct request *request)
{
    struct conn *conn = request->conn;
    struct pollfd p[2] = {{.fd = -1}, {.fd = conn->wake, .events = POLLIN}};
    bool due;

    conn->polling = true;
    conn->wakes = conn->wake;
    while (!request->complete) {
        p[0].fd = atomic_load(&conn->up) ? atomic_load(&conn->fd) : -1;
        p[0].events = conn->polled = events(conn);
        conn->unattended = 0;
        due = !cds_list_empty(&conn->finished);
        pthread_mutex_unlock(&conn->lock);
        if (due)
            qm_conn_finish(conn);
        if (poll(p, 2, -1) == -1)
            p[0].revents = p[1].revents = 0;
        if (p[1].revents)
            woken(conn->wake);
        pthread_mutex_lock(&conn->lock);
        handle(conn, p[0].revents);
    }
    hand_over(conn);
}

void qm_conn_wait(struct request *request)
{
    struct conn *conn = request->conn;

    while (!request->complete) {
        if (!conn->polling) {
            lead(request);
        } else {
            cds_list_add_tail(&request->waiting, &conn->waiting);
            pthread_cond_wait(&request->cond, &conn->lock);
            cds_list_del(&request->waiting);
        }
    }
}

void qm_conn_drain(struct conn *conn)
{
    struct pollfd p = {.fd = atomic_load(&conn->fd)};

    while (!conn->polling && atomic_load(&conn->up)) {
        p.events = events(conn);
        if (poll(&p, 1, 0) <= 0)
            break;
        handle(conn, p.revents);
    }
    conn->unattended = 0;
}

/* The rest is called without conn.lock. */

bool qm_conn_probe(struct conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    qm_conn_drain(conn);
    pthread_mutex_unlock(&conn->lock);
    qm_conn_finish(conn);
    return atomic_load(&conn->up);
}

void qm_conn_break(struct conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    if (atomic_load(&conn->up))
        shutdown(atomic_load(&conn->fd), SHUT_RDWR);
    /* A thread that polls it sees the end, or stops, as it has got its reply, without
     * having seen it; then this thread looks. */
    while (atomic_load(&conn->up)) {
        if (conn->polling)
            pthread_cond_wait(&conn->changed, &conn->lock);
        else
            qm_conn_drain(conn);
    }
    pthread_mutex_unlock(&conn->lock);
    qm_conn_finish(conn);
}

void qm_conn_shutdown(struct conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    if (atomic_load(&conn->up))
        shutdown(atomic_load(&conn->fd), SHUT_RDWR);
    pthread_mutex_unlock(&conn->lock);
}

/* Lets what is in flight come to its end, for as long as replies come.  conn.lock is
 * held. */
static void settle(struct conn *conn)
{
    struct pollfd p = {.fd = atomic_load(&conn->fd)};

    while (conn->in_flight > 0 && atomic_load(&conn->up)) {
        p.events = events(conn);
        if (poll(&p, 1, CLOSE_MS) <= 0)
            break;
        qm_conn_drain(conn);
    }
}

void qm_conn_destroy(struct conn *conn)
{
    if (conn->nbd) {
        pthread_mutex_lock(&conn->lock);
        settle(conn);
        if (conn->in_flight == 0 && atomic_load(&conn->up))
            nbd_aio_disconnect(conn->nbd, 0);
        qm_conn_drain(conn);
        pthread_mutex_unlock(&conn->lock);
        qm_conn_break(conn);
        nbd_close(conn->nbd);
    }
    free(conn->own.slots);
    pthread_cond_destroy(&conn->changed);
    pthread_mutex_destroy(&conn->lock);
    close(conn->wake);
}

/* Calls done() of what is finished. */
static void finish(struct conn *conn, bool by_poll)
{
    struct direct *d = conn->direct;
    struct cds_list_head finished;
    struct request *request, *next;
    unsigned count = 0;

    CDS_INIT_LIST_HEAD(&finished);
    pthread_mutex_lock(&conn->lock);
    cds_list_splice(&conn->finished, &finished);
    CDS_INIT_LIST_HEAD(&conn->finished);
    pthread_mutex_unlock(&conn->lock);
    cds_list_for_each_entry_safe(request, next, &finished, finished)
    {
        request->done(request->opaque, request->error);
        free(request);
        count++;
    }
    if (count == 0)
        return;
    atomic_fetch_sub(&d->aio, count);
    /* A thread in qmctx_poll() was woken when they were complete, and may have gone to
     * sleep again before done() had returned. */
    if (!by_poll && atomic_load(&d->poll_active))
        wake(d->poll_wake);
}

void qm_conn_async(struct request *request, qmctx_done *done, void *opaque)
{
    request->async = true;
    request->done = done;
    request->opaque = opaque;
    request->conn->async++;
    atomic_fetch_add(&request->conn->direct->aio, 1);
}

void qm_conn_finish(struct conn *conn)
{
    finish(conn, false);
}

/* Waits until another thread comes back from qmctx_poll().  poll_lock is held. */
static void await_round(struct direct *d, int timeout_ms)
{
    uint64_t round = d->poll_rounds;
    struct timespec until;
    int err = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (d->poll_rounds == round && !err) {
        if (timeout_ms < 0)
            err = pthread_cond_wait(&d->poll_over, &d->poll_lock);
        else
            err = pthread_cond_timedwait(&d->poll_over, &d->poll_lock, &until);
    }
}

/* The part of qm_poll() that one thread at a time does. */
static void poll_all(struct direct *d, int timeout_ms)
{
    struct pollfd p[MAX_CONNECTIONS + 1] = {{.fd = d->poll_wake, .events = POLLIN}};
    struct conn *polled[MAX_CONNECTIONS + 1];
    unsigned n = 1;

    for (unsigned i = 0; i < d->connections; i++) {
        struct conn *conn = &d->conn[i];

        pthread_mutex_lock(&conn->lock);
        if (!cds_list_empty(&conn->finished))
            timeout_ms = 0;
        if (conn->async > 0 && !conn->polling && atomic_load(&conn->up)) {
            conn->polling = true;
            conn->wakes = d->poll_wake;
            conn->unattended = 0;
            p[n].fd = atomic_load(&conn->fd);
            p[n].events = conn->polled = events(conn);
            polled[n++] = conn;
        }
        pthread_mutex_unlock(&conn->lock);
    }
    if (atomic_load(&d->aio) == 0)
        timeout_ms = 0;
    if (poll(p, n, timeout_ms) == -1)
        for (unsigned i = 0; i < n; i++)
            p[i].revents = 0;
    if (p[0].revents)
        woken(d->poll_wake);
    for (unsigned i = 1; i < n; i++) {
        struct conn *conn = polled[i];

        pthread_mutex_lock(&conn->lock);
        conn->by_poll = true;
        conn->polling = false;
        if (p[i].revents)
            qm_conn_drain(conn);
        hand_over(conn);
        conn->by_poll = false;
        pthread_mutex_unlock(&conn->lock);
    }
    for (unsigned i = 0; i < d->connections; i++)
        finish(&d->conn[i], true);
}

void qm_direct_wake(struct direct *d)
{
    wake(d->poll_wake);
}

int qm_poll(struct direct *d, int timeout_ms)
{
    pthread_mutex_lock(&d->poll_lock);
    if (atomic_load(&d->poll_active)) {
        await_round(d, timeout_ms);
        pthread_mutex_unlock(&d->poll_lock);
    } else {
        atomic_store(&d->poll_active, true);
        pthread_mutex_unlock(&d->poll_lock);
        poll_all(d, timeout_ms);
        pthread_mutex_lock(&d->poll_lock);
        atomic_store(&d->poll_active, false);
        d->poll_rounds++;
        pthread_cond_broadcast(&d->poll_over);
        pthread_mutex_unlock(&d->poll_lock);
    }
    return (int)atomic_load(&d->aio);
}
