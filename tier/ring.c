/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.c - see ring.h. */
#include "tier/ring.h"

#if QM_TIER_URING

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tier/format.h"

#define BOUNCE (1u << 20) /* bytes of a ring's, for buffers that are not aligned */
#define PAUSE  64         /* threads that a ring turns away before it is made again */

struct ring {
    struct io_uring uring;
    char *bounce;
    _Atomic bool busy; /* in use, or given up; its setter has what follows */
    bool made;         /* uring is there */
    unsigned pause;    /* if it is not: until it is made again */
};

struct qm_tier_rings {
    unsigned n;
    struct ring rings[QM_TIER_RINGS];
};

/* What one thread reads with a ring. */
struct flight {
    struct ring *ring;
    int fd;
    const struct qm_tier_io_read *reads;
    size_t first; /* the number of reads[0] */
    size_t n, landed;
    char *to[QM_TIER_RING_DEPTH]; /* where the kernel writes to */
    qm_tier_io_done *done;
    void *opaque;
    bool refused; /* a read, by another error than the disk's */
};

/* --- reading --- */

static void finish(const struct flight *f, size_t i, int error)
{
    const struct qm_tier_io_read *read = &f->reads[i];

    if (error == 0 && f->to[i] != read->buf)
        memcpy(read->buf, f->to[i], read->n);
    f->done(f->opaque, f->first + i, error);
}

static void read_alone(const struct flight *f, size_t i)
{
    const struct qm_tier_io_read *read = &f->reads[i];

    finish(f, i, qm_tier_pread(f->fd, f->to[i], read->n, read->at));
}

/* Takes what has come back. */
static void land(struct flight *f)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;

    io_uring_for_each_cqe(&f->ring->uring, head, cqe)
    {
        size_t i = cqe->user_data;

        if (cqe->res == -EIO || (cqe->res >= 0 && (size_t)cqe->res == f->reads[i].n))
            finish(f, i, cqe->res < 0 ? EIO : 0);
        else {
            f->refused |= cqe->res < 0;
            read_alone(f, i);
        }
        seen++;
    }
    io_uring_cq_advance(&f->ring->uring, seen);
    f->landed += seen;
}

/* The kernel does not take any more.  What it has, it still writes to our buffers. */
static void give_up(struct flight *f)
{
    const struct timespec step = {0, 100000};
    size_t taken = f->n - io_uring_sq_ready(&f->ring->uring);

    while (f->landed < taken) {
        struct io_uring_cqe *cqe;

        if (io_uring_wait_cqe(&f->ring->uring, &cqe) != 0)
            nanosleep(&step, NULL);
        land(f);
    }
    for (size_t i = taken; i < f->n; i++)
        read_alone(f, i);
}

/* Returns 0, or the error by which the kernel refused: then the ring has reads that
 * must not be submitted any more. */
static int fly(struct flight *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring->uring);

        io_uring_prep_read(sqe, f->fd, f->to[i], (unsigned)f->reads[i].n,
                           f->reads[i].at);
        io_uring_sqe_set_data64(sqe, i);
    }
    while (f->landed < f->n) {
        /* The first half is checked and copied while the rest is read. */
        unsigned half = (unsigned)(f->n - f->landed + 1) / 2;
        int r = io_uring_submit_and_wait(&f->ring->uring, half);

        land(f);
        if (r < 0 && r != -EINTR) {
            give_up(f);
            return -r;
        }
    }
    return 0;
}

/* How many of the reads can be done at once; sets where to. */
static size_t place(struct flight *f, size_t n)
{
    size_t used = 0, i;

    for (i = 0; i < n && i < QM_TIER_RING_DEPTH; i++) {
        f->to[i] = f->reads[i].buf;
        if ((uintptr_t)f->to[i] % QM_TIER_PAGE == 0)
            continue;
        if (f->reads[i].n > BOUNCE - used)
            break;
        f->to[i] = f->ring->bounce + used;
        used += f->reads[i].n;
    }
    return i;
}

static bool make_uring(struct ring *ring)
{
    /* Without the flag each completion interrupts the thread; before Linux 5.19 there
     * is no such flag. */
    int r = io_uring_queue_init(QM_TIER_RING_DEPTH, &ring->uring,
                                IORING_SETUP_COOP_TASKRUN);

    if (r == -EINVAL)
        r = io_uring_queue_init(QM_TIER_RING_DEPTH, &ring->uring, 0);
    ring->made = r == 0;
    ring->pause = PAUSE;
    if (ring->made)
        (void)io_uring_ring_dontfork(&ring->uring);
    return ring->made;
}

static void release(struct ring *ring)
{
    atomic_store_explicit(&ring->busy, false, memory_order_release);
}

/* The kernel has refused the ring, and may serve it another time if it was short of
 * memory: others are then turned away for a while, and one makes it again. */
static void put_off(struct ring *ring, int error)
{
    if (error != EAGAIN && error != EBUSY && error != ENOMEM)
        return; /* busy for good */
    io_uring_queue_exit(&ring->uring);
    ring->made = false;
    release(ring);
}

static struct ring *take(struct qm_tier_rings *rings)
{
    for (unsigned i = 0; i < rings->n; i++) {
        struct ring *ring = &rings->rings[i];

        if (atomic_load_explicit(&ring->busy, memory_order_relaxed) ||
            atomic_exchange_explicit(&ring->busy, true, memory_order_acquire))
            continue;
        if (ring->made || (--ring->pause == 0 && make_uring(ring)))
            return ring;
        release(ring);
    }
    return NULL;
}

bool qm_tier_rings_read(struct qm_tier_rings *rings, int fd,
                        const struct qm_tier_io_read *reads, size_t n,
                        qm_tier_io_done *done, void *opaque)
{
    struct ring *ring;
    struct flight f;
    int error = 0;

    for (size_t i = 0; i < n; i++)
        if (reads[i].n > BOUNCE / 2) /* threads are as good for these */
            return false;
    ring = rings ? take(rings) : NULL;
    if (!ring)
        return false;
    f.ring = ring;
    f.fd = fd;
    f.done = done;
    f.opaque = opaque;
    f.refused = false;
    for (f.first = 0; f.first < n; f.first += f.n) {
        f.reads = reads + f.first;
        f.landed = 0;
        f.n = place(&f, n - f.first);
        if (error == 0)
            error = fly(&f);
        else
            for (size_t i = 0; i < f.n; i++)
                read_alone(&f, i);
    }
    if (error == 0)
        release(ring);
    else
        put_off(ring, error);
    return true;
}

/* --- making rings --- */

static bool make(struct ring *ring)
{
    if (!make_uring(ring))
        return false;
    ring->bounce = aligned_alloc(QM_TIER_PAGE, BOUNCE);
    if (!ring->bounce)
        io_uring_queue_exit(&ring->uring);
    return ring->bounce;
}

static void ignore(void *opaque, size_t i, int error)
{
    (void)opaque;
    (void)i;
    (void)error;
}

/* Whether rings can not only be made, but read.  The file may be empty. */
static bool works(struct ring *ring, int fd)
{
    const struct qm_tier_io_read page = {ring->bounce, QM_TIER_PAGE, 0};
    struct flight f = {.ring = ring, .fd = fd, .reads = &page, .n = 1, .done = ignore};

    f.to[0] = ring->bounce;
    return fly(&f) == 0 && !f.refused;
}

struct qm_tier_rings *qm_tier_rings_new(int fd)
{
    struct qm_tier_rings *rings = calloc(1, sizeof *rings);

    while (rings && rings->n < QM_TIER_RINGS && make(&rings->rings[rings->n]))
        rings->n++;
    if (rings && (rings->n == 0 || !works(&rings->rings[0], fd))) {
        qm_tier_rings_free(rings);
        rings = NULL;
    }
    return rings;
}

void qm_tier_rings_free(struct qm_tier_rings *rings)
{
    for (unsigned i = 0; rings && i < rings->n; i++) {
        if (rings->rings[i].made)
            io_uring_queue_exit(&rings->rings[i].uring);
        free(rings->rings[i].bounce);
    }
    free(rings);
}

unsigned qm_tier_rings_count(const struct qm_tier_rings *rings)
{
    return rings ? rings->n : 0;
}

uint64_t qm_tier_rings_memory(const struct qm_tier_rings *rings)
{
    return rings ? sizeof *rings + rings->n * (uint64_t)BOUNCE : 0;
}

#else /* without liburing */

struct qm_tier_rings *qm_tier_rings_new(int fd)
{
    return NULL;
}

void qm_tier_rings_free(struct qm_tier_rings *rings)
{
}

unsigned qm_tier_rings_count(const struct qm_tier_rings *rings)
{
    return 0;
}

uint64_t qm_tier_rings_memory(const struct qm_tier_rings *rings)
{
    return 0;
}

bool qm_tier_rings_read(struct qm_tier_rings *rings, int fd,
                        const struct qm_tier_io_read *reads, size_t n,
                        qm_tier_io_done *done, void *opaque)
{
    return false;
}

#endif
