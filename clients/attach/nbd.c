/* SPDX-License-Identifier: BSD-3-Clause */
/* nbd.c - see nbd.h. */
#include "clients/attach/nbd.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <linux/nbd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* What linux/nbd.h has not got. */
#define CAN_MULTI_CONN    (1u << 8) /* of the device */
#define SEND_WRITE_ZEROES (1u << 6)
#define WRITE_ZEROES      6u /* a command */
#define FUA               1u /* a command's flags */
#define NO_HOLE           2u

#define STACK      ((size_t)256 << 10)
#define KEPT_BYTES ((size_t)1 << 20) /* a larger buffer is given back after use */

struct qm_nbd {
    const struct qm_nbd_device *device;
    void (*ended)(void *opaque, enum qm_nbd_end how);
    void *opaque;
    int fd;
    int epoll; /* of fd, which one thread is told of, once; arm() */
    _Atomic bool closed;
    _Atomic unsigned *seen; /* losses of the device that the client knows of */
    _Atomic unsigned own;
    _Atomic int how; /* enum qm_nbd_end */
    pthread_mutex_t send;
    pthread_mutex_t lock;
    unsigned threads, idle; /* lock; idle: wait for a request, or receive one */
};

struct request {
    uint16_t flags, command;
    uint32_t length;
    uint64_t offset;
    uint64_t cookie; /* as it came */
};

/* A thread's, for data. */
struct buffer {
    char *bytes;
    size_t size;
};

uint16_t qm_nbd_flags(const struct qm_nbd_device *d)
{
    unsigned flags =
        NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | CAN_MULTI_CONN;

    if (d->read_only)
        return (uint16_t)(flags | NBD_FLAG_READ_ONLY);
    return (uint16_t)(flags | NBD_FLAG_SEND_TRIM | SEND_WRITE_ZEROES);
}

static bool reserve(struct buffer *b, size_t size)
{
    if (b->size >= size)
        return true;
    free(b->bytes);
    b->bytes = malloc(size);
    b->size = b->bytes ? size : 0;
    return b->bytes != NULL;
}

static void tidy(struct buffer *b)
{
    if (b->size <= KEPT_BYTES)
        return;
    free(b->bytes);
    *b = (struct buffer){NULL, 0};
}

/* --- the socket --- */

static void end(struct qm_nbd *n, enum qm_nbd_end how)
{
    if (!atomic_exchange(&n->closed, true))
        atomic_store(&n->how, how);
    shutdown(n->fd, SHUT_RDWR);
}

static bool receive_all(struct qm_nbd *n, void *to, size_t count)
{
    char *at = to;
    ssize_t r;

    for (; count > 0; count -= (size_t)r, at += r) {
        r = recv(n->fd, at, count, MSG_WAITALL);
        if (r == -1 && errno == EINTR)
            r = 0;
        else if (r <= 0)
            return false;
    }
    return true;
}

static bool send_all(struct qm_nbd *n, struct iovec *iov, size_t count)
{
    ssize_t r;

    while (count > 0) {
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};

        r = sendmsg(n->fd, &message, MSG_NOSIGNAL);
        if (r == -1 && errno == EINTR)
            continue;
        if (r == -1)
            return false;
        for (; count > 0 && (size_t)r >= iov->iov_len; iov++, count--)
            r -= (ssize_t)iov->iov_len;
        if (count > 0) {
            iov->iov_base = (char *)iov->iov_base + r;
            iov->iov_len -= (size_t)r;
        }
    }
    return true;
}

/* The protocol's errors are those of Linux, of which it knows these. */
static uint32_t wire_error(int error)
{
    switch (error) {
    case 0:
    case EPERM:
    case EIO:
    case ENOMEM:
    case EINVAL:
    case ENOSPC:
    case EOVERFLOW:
    case EOPNOTSUPP:
    case ESHUTDOWN:
        return (uint32_t)error;
    case EROFS:
        return EPERM;
    default:
        return EIO;
    }
}

static void reply(struct qm_nbd *n, const struct request *r, int error,
                  const struct buffer *data)
{
    struct nbd_reply header = {.magic = htobe32(NBD_REPLY_MAGIC),
                               .error = htobe32(wire_error(error))};
    struct iovec iov[2] = {{&header, sizeof header}, {data->bytes, r->length}};
    bool has_data = r->command == NBD_CMD_READ && error == 0;
    bool sent;

    _Static_assert(sizeof header == 16, "no padding");
    memcpy(&header.handle, &r->cookie, sizeof r->cookie);
    pthread_mutex_lock(&n->send);
    sent = send_all(n, iov, has_data ? 2 : 1);
    pthread_mutex_unlock(&n->send);
    if (!sent)
        end(n, QM_NBD_CLOSED);
}

/* Lets one thread, which waits or comes later, know that there is something to receive,
 * or that the connection has ended.  The one that has waited least is told first. */
static void arm(struct qm_nbd *n)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT};

    /* It cannot fail: there is nothing to allocate. */
    epoll_ctl(n->epoll, EPOLL_CTL_MOD, n->fd, &event);
}

/* Until the thread is told of something. */
static void await(struct qm_nbd *n)
{
    struct epoll_event event;

    while (epoll_wait(n->epoll, &event, 1, -1) != 1)
        ;
}

/* Receives a request, and the data of a write.  False: there is none. */
static bool receive(struct qm_nbd *n, struct request *r, struct buffer *data)
{
    struct nbd_request header;

    _Static_assert(sizeof header == 28, "packed");
    if (!receive_all(n, &header, sizeof header)) {
        end(n, QM_NBD_CLOSED);
        return false;
    }
    r->flags = (uint16_t)(be32toh(header.type) >> 16);
    r->command = (uint16_t)be32toh(header.type);
    r->length = be32toh(header.len);
    r->offset = be64toh(header.from);
    memcpy(&r->cookie, &header.handle, sizeof r->cookie);
    if (be32toh(header.magic) != NBD_REQUEST_MAGIC) {
        end(n, QM_NBD_NONSENSE);
        return false;
    }
    if (r->command == NBD_CMD_DISC) {
        end(n, QM_NBD_DISCONNECTED);
        return false;
    }
    if (r->command != NBD_CMD_WRITE)
        return true;
    /* What follows cannot be kept, and skipping gigabytes helps nobody. */
    if (r->length > QM_NBD_LONGEST || !reserve(data, r->length) ||
        !receive_all(n, data->bytes, r->length)) {
        end(n, r->length > QM_NBD_LONGEST ? QM_NBD_NONSENSE : QM_NBD_CLOSED);
        return false;
    }
    return true;
}

/* --- requests --- */

/* Whether nobody waits for replies any more. */
static bool is_gone(void *opaque)
{
    struct qm_nbd *n = opaque;
    struct pollfd fd = {.fd = n->fd, .events = POLLRDHUP};

    if (!atomic_load(&n->closed) && poll(&fd, 1, 0) == 1 &&
        (fd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)))
        end(n, QM_NBD_CLOSED);
    return atomic_load(&n->closed);
}

static int read_parts(struct qm_nbd *n, const struct qm_requester *requester,
                      const struct request *r, char *to)
{
    struct qm_attribution_part parts[QM_ATTRIBUTION_PARTS];
    size_t count = qm_attribution_read(n->device->whose, r->offset, r->length, parts);
    int error = 0;

    for (size_t i = 0; i < count; i++) {
        if (error == 0)
            error = qm_device_read(
                n->device->device, requester, qm_tag_context(parts[i].tag),
                to + (parts[i].offset - r->offset), parts[i].bytes, parts[i].offset);
        qm_tag_put(parts[i].tag);
    }
    return error;
}

static int do_read(struct qm_nbd *n, const struct qm_requester *requester,
                   const struct request *r, struct buffer *data)
{
    if (r->length > QM_NBD_LONGEST)
        return EINVAL;
    if (!reserve(data, r->length))
        return ENOMEM;
    if (n->device->whose)
        return read_parts(n, requester, r, data->bytes);
    return qm_device_read(n->device->device, requester, 0, data->bytes, r->length,
                          r->offset);
}

static int do_flush(struct qm_nbd *n, const struct qm_requester *requester)
{
    _Atomic unsigned seen = atomic_load(n->seen);

    return qm_device_flush(n->device->device, requester,
                           n->device->every_flush ? &seen : n->seen);
}

static int do_zero(struct qm_nbd *n, const struct qm_requester *requester,
                   const struct request *r)
{
    int error =
        r->command == NBD_CMD_TRIM
            ? qm_device_trim(n->device->device, requester, r->length, r->offset)
            : qm_device_zero(n->device->device, requester, r->length, r->offset);

    if (error == 0 && (r->flags & FUA))
        error = do_flush(n, requester);
    return error;
}

/* Of commands that have a range. */
static int check_range(const struct qm_nbd *n, const struct request *r)
{
    uint64_t size = n->device->size;

    if (r->length == 0)
        return EINVAL;
    if (r->offset > size || r->length > size - r->offset)
        return r->command == NBD_CMD_READ ? EINVAL : ENOSPC;
    if (r->command != NBD_CMD_READ && n->device->read_only)
        return EPERM;
    return 0;
}

static int carry_out(struct qm_nbd *n, const struct request *r, struct buffer *data)
{
    const struct qm_requester requester = {is_gone, n};
    unsigned allowed = FUA;
    int error = 0;

    if (r->command == WRITE_ZEROES)
        allowed |= NO_HOLE;
    if (r->flags & ~allowed)
        return EINVAL;
    if (r->command != NBD_CMD_FLUSH)
        error = check_range(n, r);
    if (error != 0)
        return error;
    switch (r->command) {
    case NBD_CMD_READ:
        return do_read(n, &requester, r, data);
    case NBD_CMD_WRITE:
        return qm_device_write(n->device->device, &requester, 0, data->bytes, r->length,
                               r->offset, r->flags & FUA);
    case NBD_CMD_FLUSH:
        return do_flush(n, &requester);
    case NBD_CMD_TRIM:
    case WRITE_ZEROES:
        return do_zero(n, &requester, r);
    default:
        return EINVAL;
    }
}

/* --- threads --- */

static int start_thread(struct qm_nbd *n);

/* The thread has received something: sees to it that another waits in its place. */
static void be_busy(struct qm_nbd *n)
{
    bool more;

    pthread_mutex_lock(&n->lock);
    n->idle--;
    more = n->idle == 0 && n->threads < QM_NBD_THREADS;
    if (more) {
        n->threads++;
        n->idle++;
    }
    pthread_mutex_unlock(&n->lock);
    if (!more || start_thread(n) == 0)
        return;
    /* Then requests are received when a thread is done with the one that it has. */
    pthread_mutex_lock(&n->lock);
    n->threads--;
    n->idle--;
    pthread_mutex_unlock(&n->lock);
}

static void be_idle(struct qm_nbd *n)
{
    pthread_mutex_lock(&n->lock);
    n->idle++;
    pthread_mutex_unlock(&n->lock);
}

static void leave(struct qm_nbd *n)
{
    bool last;

    pthread_mutex_lock(&n->lock);
    last = --n->threads == 0;
    pthread_mutex_unlock(&n->lock);
    if (!last)
        return;
    /* First the latter: until then qm_nbd_stop() may be called, which uses fd. */
    n->ended(n->opaque, (enum qm_nbd_end)atomic_load(&n->how));
    close(n->epoll);
    close(n->fd);
    pthread_mutex_destroy(&n->send);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static void *work(void *opaque)
{
    struct qm_nbd *n = opaque;
    struct buffer data = {NULL, 0};
    struct request request;
    bool got;

    for (;;) {
        await(n);
        got = !atomic_load(&n->closed) && receive(n, &request, &data);
        if (got)
            be_busy(n);
        /* At the end all threads are told of it, one after the other. */
        arm(n);
        if (!got)
            break;
        reply(n, &request, carry_out(n, &request, &data), &data);
        tidy(&data);
        be_idle(n);
    }
    free(data.bytes);
    leave(n);
    return NULL;
}

static int start_thread(struct qm_nbd *n)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int error;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    /* Stacks are locked into memory. */
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attr, work, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

int qm_nbd_serve(struct qm_nbd **nbd, int fd, const struct qm_nbd_device *device,
                 void (*ended)(void *opaque, enum qm_nbd_end how), void *opaque)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT};
    struct qm_nbd *n = calloc(1, sizeof *n);
    int error;

    *nbd = NULL;
    if (!n)
        return ENOMEM;
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (n->epoll == -1 || epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        error = errno;
        if (n->epoll != -1)
            close(n->epoll);
        free(n);
        return error;
    }
    *nbd = n;
    n->device = device;
    n->ended = ended;
    n->opaque = opaque;
    n->fd = fd;
    n->threads = n->idle = 1;
    atomic_init(&n->own, qm_device_losses(device->device));
    n->seen = device->seen ? device->seen : &n->own;
    pthread_mutex_init(&n->send, NULL);
    pthread_mutex_init(&n->lock, NULL);
    error = start_thread(n);
    if (error != 0) {
        *nbd = NULL;
        close(n->epoll);
        free(n);
    }
    return error;
}

void qm_nbd_stop(struct qm_nbd *n)
{
    end(n, QM_NBD_CLOSED);
}
