/* SPDX-License-Identifier: BSD-3-Clause */
/* uring.c - io_uring, as programs use it through liburing.
 *
 * liburing's functions that submit are taken in the place of: before the kernel sees
 * the new entries, those of routed files are started here, and turned into ones that do
 * nothing and complete silently.  When the server has replied, a completion is put into
 * the program's own ring by IORING_OP_MSG_RING, with the program's data and result,
 * from a ring that is kept for this.  Entries of routed and other files therefore mix
 * freely, and the program waits for completions as ever, in the kernel.
 *
 * What cannot be had so is left as it is, and the placeholder makes the kernel refuse
 * it with EBADF: entries that are linked to others, buffers that the kernel picks, and
 * operations that are not below.
 *
 * A ring that has requests here is in the list `rings`, and io_uring_queue_exit() waits
 * until it has none, so that no completion goes to the next owner of its descriptor.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "clients/preload/async.h"
#include "clients/preload/next.h"
#include "clients/preload/patient.h"
#include "clients/preload/preload.h"
#include "clients/preload/record.h"

struct ring {
    int fd;
    unsigned in_flight;
    struct ring *next;
};

struct request {
    struct async async;
    int fd; /* the program's ring */
    __u64 user_data;
};

static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rings_idle = PTHREAD_COND_INITIALIZER;
static struct ring *rings; /* rings_lock; those with requests in flight */

static pthread_mutex_t post_lock = PTHREAD_MUTEX_INITIALIZER;
static struct io_uring poster;                               /* post_lock */
static enum { NO_POSTER, POSTER, UNSUPPORTED } poster_state; /* post_lock */
static _Atomic bool known_supported; /* poster_state is POSTER */

/* --- telling the program --- */

static bool can_post(struct io_uring_probe *probe)
{
    return io_uring_opcode_supported(probe, IORING_OP_MSG_RING) &&
           (poster.features & IORING_FEAT_CQE_SKIP);
}

/* post_lock is held. */
static void make_poster(void)
{
    struct io_uring_probe *probe;

    poster_state = UNSUPPORTED;
    if (io_uring_queue_init(8, &poster, 0) != 0)
        return;
    probe = io_uring_get_probe_ring(&poster);
    if (probe && can_post(probe))
        poster_state = POSTER;
    else
        NEXT(io_uring_queue_exit)(&poster);
    io_uring_free_probe(probe);
}

/* Whether completions can be posted: not before Linux 5.18. */
static bool supported(void)
{
    bool yes;

    if (atomic_load_explicit(&known_supported, memory_order_relaxed))
        return true;
    pthread_mutex_lock(&post_lock);
    if (poster_state == NO_POSTER)
        make_poster();
    yes = poster_state == POSTER;
    pthread_mutex_unlock(&post_lock);
    atomic_store(&known_supported, yes);
    return yes;
}

static void post(int fd, __u64 user_data, int result)
{
    struct io_uring_sqe *sqe;
    struct io_uring_cqe *cqe;
    int failed = 0;

    pthread_mutex_lock(&post_lock);
    do {
        sqe = io_uring_get_sqe(&poster);
        io_uring_prep_msg_ring(sqe, fd, (unsigned)result, user_data, 0);
        while (NEXT(io_uring_submit)(&poster) == -EINTR)
            ;
        while (io_uring_wait_cqe(&poster, &cqe) == -EINTR)
            ;
        failed = cqe->res;
        io_uring_cqe_seen(&poster, cqe);
        /* A ring that the program polls may be busy just now. */
    } while (failed == -EAGAIN || failed == -EINTR);
    pthread_mutex_unlock(&post_lock);
}

static bool enter_ring(int fd)
{
    struct ring *ring;

    pthread_mutex_lock(&rings_lock);
    for (ring = rings; ring && ring->fd != fd; ring = ring->next)
        ;
    if (!ring && (ring = calloc(1, sizeof *ring))) {
        ring->fd = fd;
        ring->next = rings;
        rings = ring;
    }
    if (ring)
        ring->in_flight++;
    pthread_mutex_unlock(&rings_lock);
    return ring != NULL;
}

static void leave_ring(int fd)
{
    struct ring **link, *ring;

    pthread_mutex_lock(&rings_lock);
    for (link = &rings; (ring = *link) && ring->fd != fd; link = &ring->next)
        ;
    if (ring && --ring->in_flight == 0) {
        *link = ring->next;
        free(ring);
        pthread_cond_broadcast(&rings_idle);
    }
    pthread_mutex_unlock(&rings_lock);
}

static bool is_idle(int fd)
{
    for (struct ring *ring = rings; ring; ring = ring->next)
        if (ring->fd == fd)
            return false;
    return true;
}

/* --- what the program asks for --- */

static void complete(struct async *async, ssize_t result)
{
    struct request *request = (struct request *)async;

    post(request->fd, request->user_data, (int)result);
    leave_ring(request->fd);
    free(request);
}

/* The entry does nothing from now on, and says nothing about it. */
static void silence(struct io_uring_sqe *sqe)
{
    unsigned flags = sqe->flags & (IOSQE_IO_DRAIN | IOSQE_ASYNC);

    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_NOP;
    sqe->flags = (__u8)(flags | IOSQE_CQE_SKIP_SUCCESS);
    sqe->fd = -1;
}

static bool is_covered(const struct io_uring_sqe *sqe)
{
    switch (sqe->opcode) {
    case IORING_OP_READ:
    case IORING_OP_WRITE:
    case IORING_OP_READ_FIXED:
    case IORING_OP_WRITE_FIXED:
    case IORING_OP_READV:
    case IORING_OP_WRITEV:
        /* Not at the file's position. */
        return sqe->off != (__u64)-1;
    case IORING_OP_FSYNC:
    case IORING_OP_SYNC_FILE_RANGE:
    case IORING_OP_FALLOCATE:
    case IORING_OP_FADVISE:
        return true;
    default:
        return false;
    }
}

static void start_rw(struct async *async, struct file *file,
                     const struct io_uring_sqe *sqe)
{
    bool vectored = sqe->opcode == IORING_OP_READV || sqe->opcode == IORING_OP_WRITEV;
    bool write = sqe->opcode == IORING_OP_WRITE || sqe->opcode == IORING_OP_WRITEV ||
                 sqe->opcode == IORING_OP_WRITE_FIXED;
    struct iovec one = {(void *)(uintptr_t)sqe->addr, sqe->len};

    qm_async_rw(async, file, write, vectored ? one.iov_base : &one,
                vectored ? (int)sqe->len : 1, (off_t)sqe->off, (int)sqe->rw_flags);
}

static void start(struct async *async, struct file *file, struct io_uring_sqe *sqe)
{
    struct io_uring_sqe wanted = *sqe;

    silence(sqe);
    switch (wanted.opcode) {
    case IORING_OP_FSYNC:
        complete(async, -qm_io_flush(file));
        break;
    case IORING_OP_FALLOCATE:
        complete(async, -qm_io_allocate(file, (int)wanted.len, (off_t)wanted.off,
                                        (off_t)wanted.addr));
        break;
    case IORING_OP_SYNC_FILE_RANGE:
    case IORING_OP_FADVISE:
        complete(async, 0);
        break;
    default:
        start_rw(async, file, &wanted);
    }
}

static void route(struct io_uring *ring, struct io_uring_sqe *sqe, bool linked)
{
    QM_FILE(file, sqe->flags & IOSQE_FIXED_FILE ? -1 : sqe->fd);
    struct request *request;

    if (!file)
        return;
    if (sqe->opcode == IORING_OP_CLOSE) {
        qm_file_forget(sqe->fd);
        return;
    }
    if (linked ||
        sqe->flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK | IOSQE_BUFFER_SELECT) ||
        !is_covered(sqe) || !supported())
        return;
    request = malloc(sizeof *request);
    if (!request || !enter_ring(ring->ring_fd)) {
        free(request);
        return;
    }
    request->async.complete = complete;
    request->fd = ring->ring_fd;
    request->user_data = sqe->user_data;
    start(&request->async, file, sqe);
}

/* Before it is the kernel's: reads and writes at an offset, of files that are no
 * ring's. */
static void record(const struct io_uring_sqe *sqe)
{
    const void *address = (const void *)(uintptr_t)sqe->addr;
    bool write = false;
    ssize_t n = sqe->len;

    switch (sqe->opcode) {
    case IORING_OP_WRITEV:
        write = true;
        /* fallthrough */
    case IORING_OP_READV:
        n = qm_io_total(address, (int)sqe->len);
        break;
    case IORING_OP_WRITE:
    case IORING_OP_WRITE_FIXED:
        write = true;
        /* fallthrough */
    case IORING_OP_READ:
    case IORING_OP_READ_FIXED:
        break;
    default:
        return;
    }
    if (!(sqe->flags & (IOSQE_FIXED_FILE | IOSQE_BUFFER_SELECT)) &&
        sqe->off != (__u64)-1)
        qm_record(sqe->fd, write, (off_t)sqe->off, n);
}

/* Of all entries that the kernel has not been shown yet. */
static void route_all(struct io_uring *ring)
{
    unsigned shift = ring->flags & IORING_SETUP_SQE128 ? 1 : 0;
    bool linked = false;
    QM_PATIENT();

    if (!qm_routes() && !atomic_load(&qm_recording))
        return;
    for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; at++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[(at & ring->sq.ring_mask) << shift];
        bool links = sqe->flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK);

        record(sqe);
        route(ring, sqe, linked);
        linked = links;
    }
}

/* --- liburing's functions --- */

INTERPOSED int io_uring_submit(struct io_uring *ring)
{
    route_all(ring);
    return NEXT(io_uring_submit)(ring);
}

INTERPOSED int io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    route_all(ring);
    return NEXT(io_uring_submit_and_wait)(ring, count);
}

INTERPOSED int io_uring_submit_and_wait_timeout(struct io_uring *ring,
                                                struct io_uring_cqe **cqe,
                                                unsigned count,
                                                struct __kernel_timespec *timeout,
                                                sigset_t *mask)
{
    route_all(ring);
    return NEXT(io_uring_submit_and_wait_timeout)(ring, cqe, count, timeout, mask);
}

INTERPOSED int io_uring_submit_and_get_events(struct io_uring *ring)
{
    route_all(ring);
    return NEXT(io_uring_submit_and_get_events)(ring);
}

/* These two submit, too, if the kernel cannot wait with a timeout otherwise. */
INTERPOSED int io_uring_wait_cqes(struct io_uring *ring, struct io_uring_cqe **cqe,
                                  unsigned count, struct __kernel_timespec *timeout,
                                  sigset_t *mask)
{
    route_all(ring);
    return NEXT(io_uring_wait_cqes)(ring, cqe, count, timeout, mask);
}

INTERPOSED int io_uring_wait_cqe_timeout(struct io_uring *ring,
                                         struct io_uring_cqe **cqe,
                                         struct __kernel_timespec *timeout)
{
    route_all(ring);
    return NEXT(io_uring_wait_cqe_timeout)(ring, cqe, timeout);
}

INTERPOSED void io_uring_queue_exit(struct io_uring *ring)
{
    QM_PATIENT();

    pthread_mutex_lock(&rings_lock);
    while (!is_idle(ring->ring_fd))
        pthread_cond_wait(&rings_idle, &rings_lock);
    pthread_mutex_unlock(&rings_lock);
    NEXT(io_uring_queue_exit)(ring);
}

/* --- fork() --- */

void qm_uring_forked(void)
{
    pthread_mutex_init(&rings_lock, NULL);
    pthread_cond_init(&rings_idle, NULL);
    pthread_mutex_init(&post_lock, NULL);
    /* What is in flight is the parent's; so is the poster, and its memory. */
    rings = NULL;
    poster_state = NO_POSTER;
    atomic_store(&known_supported, false);
}
