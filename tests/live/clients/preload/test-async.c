/* SPDX-License-Identifier: BSD-3-Clause */
/* test-async.c - libaio and liburing: requests of a routed file, and of another, mixed.
 */
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "program.h"

enum { DEPTH = 32, STEPS = 400, LENGTH = 20000 };

/* A request that is in flight, whatever it goes by. */
struct op {
    struct iocb iocb;
    struct iovec iov[3];
    char *buf, *want;
    off_t at;
    bool write;
    bool busy;
};

static struct op ops[DEPTH];
static int fds[2]; /* routed, other */

static void set_up(void)
{
    fds[0] = must_open(routed, O_RDWR);
    fds[1] = must_open(other, O_RDWR);
    for (int i = 0; i < DEPTH; i++) {
        struct op *op = &ops[i];

        op->busy = false;
        op->buf = realloc(op->buf, LENGTH);
        op->want = realloc(op->want, LENGTH);
        op->iov[0] = (struct iovec){op->buf, 100};
        op->iov[1] = (struct iovec){op->buf + 100, 0};
        op->iov[2] = (struct iovec){op->buf + 100, LENGTH - 100};
    }
}

static void tear_down(void)
{
    close(fds[0]);
    close(fds[1]);
    check_same(0, (size_t)size);
}

/* The next request: half of them writes, each op in a part of its own so that they do
 * not overlap; the same to both files, one after the other. */
static void plan(struct op *op, unsigned *seed)
{
    off_t part = size / DEPTH;

    op->at = part * (op - ops) + (off_t)dice(seed, (uint64_t)part - LENGTH);
    op->write = dice(seed, 2);
    op->busy = true;
    if (op->write) {
        memset(op->buf, (int)dice(seed, 256), LENGTH);
    } else {
        memset(op->buf, 0, LENGTH);
        CHECK(pread(fds[1], op->want, LENGTH, op->at) == LENGTH);
    }
}

static void finish(struct op *op, long result)
{
    CHECK(result == LENGTH, "%s", strerror((int)-result));
    CHECK(op->busy);
    CHECK(op->write || memcmp(op->buf, op->want, LENGTH) == 0, "at %lld",
          (long long)op->at);
    op->busy = false;
}

/* --- libaio --- */

static void fill(struct iocb *iocb, struct op *op, int fd, bool vector)
{
    if (vector && op->write)
        io_prep_pwritev(iocb, fd, op->iov, 3, op->at);
    else if (vector)
        io_prep_preadv(iocb, fd, op->iov, 3, op->at);
    else if (op->write)
        io_prep_pwrite(iocb, fd, op->buf, LENGTH, op->at);
    else
        io_prep_pread(iocb, fd, op->buf, LENGTH, op->at);
    iocb->data = op;
}

/* In one submission, requests of both files. */
static void mixed_aio(io_context_t ctx)
{
    struct iocb others[DEPTH], *list[2 * DEPTH];
    struct io_event events[2 * DEPTH];
    unsigned seed = 3;

    for (int step = 0; step < STEPS; step++) {
        int n = 1 + (int)dice(&seed, DEPTH), of = 0, done = 0;

        for (int i = 0; i < n; i++) {
            struct op *op = &ops[i];
            bool vector = dice(&seed, 2);

            plan(op, &seed);
            fill(&op->iocb, op, fds[0], vector);
            list[of++] = &op->iocb;
            if (op->write) {
                fill(&others[i], op, fds[1], vector);
                others[i].data = NULL;
                list[of++] = &others[i];
            }
        }
        for (int sent = 0; sent < of;) {
            int rc = io_submit(ctx, of - sent, list + sent);

            CHECK(rc > 0, "%s", strerror(-rc));
            sent += rc;
        }
        while (done < of) {
            int rc = io_getevents(ctx, 1 + (long)dice(&seed, (uint64_t)(of - done)),
                                  of - done, events, NULL);

            CHECK(rc > 0, "%s", strerror(-rc));
            for (int i = 0; i < rc; i++) {
                struct op *op = events[i].data;

                CHECK((long)events[i].res == LENGTH);
                if (op) {
                    CHECK(events[i].obj == &op->iocb);
                    finish(op, (long)events[i].res);
                }
            }
            done += rc;
        }
    }
}

/* A thread that waits while another submits. */
static void *reaper(void *ctx)
{
    struct io_event event;

    for (int i = 0; i < STEPS; i++) {
        int rc = io_getevents(ctx, 1, 1, &event, NULL);

        CHECK(rc == 1, "%s", strerror(-rc));
        CHECK((long)event.res == LENGTH);
        __atomic_store_n(&((struct op *)event.data)->busy, false, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void two_threads(io_context_t ctx)
{
    unsigned seed = 5;
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, reaper, ctx) == 0);
    for (int i = 0; i < 2 * STEPS; i++) {
        struct op *op = &ops[i % DEPTH];
        struct iocb *iocb = &op->iocb;

        while (__atomic_load_n(&op->busy, __ATOMIC_ACQUIRE))
            sched_yield();
        __atomic_store_n(&op->busy, true, __ATOMIC_RELAXED);
        /* One of three is of the other file. */
        io_prep_pread(iocb, fds[dice(&seed, 3) == 0], op->buf, LENGTH,
                      (off_t)dice(&seed, (uint64_t)size - LENGTH));
        iocb->data = op;
        CHECK(io_submit(ctx, 1, &iocb) == 1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

static void *reap_one(void *ctx)
{
    struct io_event event;

    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1 && (long)event.res == LENGTH);
    __atomic_store_n(&((struct op *)event.data)->busy, false, __ATOMIC_RELEASE);
    return NULL;
}

/* Two threads wait, and what one of them gets does not leave the other asleep. */
static void one_each(io_context_t ctx)
{
    for (int i = 0; i < 50; i++) {
        pthread_t thread[2];

        for (int k = 0; k < 2; k++)
            CHECK(pthread_create(&thread[k], NULL, reap_one, ctx) == 0);
        for (int k = 0; k < 2; k++) {
            struct iocb *iocb = &ops[k].iocb;

            io_prep_pread(iocb, fds[0], ops[k].buf, LENGTH, 0);
            iocb->data = &ops[k];
            __atomic_store_n(&ops[k].busy, true, __ATOMIC_RELAXED);
            CHECK(io_submit(ctx, 1, &iocb) == 1);
            while (__atomic_load_n(&ops[k].busy, __ATOMIC_ACQUIRE))
                sched_yield();
        }
        for (int k = 0; k < 2; k++)
            pthread_join(thread[k], NULL);
    }
}

/* What comes before an entry that is refused has been submitted; and a write with a
 * flag that nobody knows how to honour is not carried out without it. */
static void refused_aio(io_context_t ctx)
{
    struct iocb good, bad, *list[] = {&good, &bad};
    struct io_event event;

    io_prep_pread(&good, fds[0], ops[0].buf, LENGTH, 0);
    io_prep_poll(&bad, fds[0], POLLIN);
    CHECK(io_submit(ctx, 2, list) == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1 && event.obj == &good);
    CHECK((long)event.res == LENGTH);
    memset(ops[0].buf, 'a', LENGTH);
    io_prep_pwrite(&good, fds[0], ops[0].buf, LENGTH, 0);
    good.aio_rw_flags = RWF_APPEND;
    CHECK(io_submit(ctx, 1, list) == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1);
    CHECK((long)event.res == -EOPNOTSUPP);
}

static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    signals++;
}

/* A signal that is blocked but while waiting ends the waiting. */
static void interrupted_aio(io_context_t ctx)
{
    struct sigaction act = {.sa_handler = count_signal}, before;
    struct timespec long_enough = {.tv_sec = 5};
    struct io_event event;
    sigset_t blocked, none;

    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, &before) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0 && raise(SIGUSR1) == 0);
    CHECK(io_pgetevents(ctx, 1, 1, &event, &long_enough, &none) == -EINTR);
    CHECK(signals == 1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
}

void test_aio(void)
{
    struct timespec soon = {0, 20000000};
    struct io_event event;
    io_context_t ctx = NULL, queue;
    struct iocb iocb, *list = &iocb;
    eventfd_t rung;
    int bell;

    set_up();
    CHECK(io_setup(2 * DEPTH, &ctx) == 0);
    CHECK(io_getevents(ctx, 0, 1, &event, NULL) == 0);
    CHECK(io_getevents(ctx, 1, 1, &event, &soon) == 0, "nothing to wait for");
    mixed_aio(ctx);
    two_threads(ctx);
    one_each(ctx);

    /* A request that says by an eventfd that it is done. */
    bell = eventfd(0, 0);
    io_prep_pread(&iocb, fds[0], ops[0].buf, LENGTH, 0);
    io_set_eventfd(&iocb, bell);
    CHECK(io_submit(ctx, 1, &list) == 1);
    CHECK(eventfd_read(bell, &rung) == 0 && rung == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1 && (long)event.res == LENGTH);
    close(bell);

    io_prep_fdsync(&iocb, fds[0]);
    CHECK(io_submit(ctx, 1, &list) == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, &soon) == 1 && event.res == 0);
    io_prep_pread(&iocb, fds[0], ops[0].buf, LENGTH, size - 10);
    CHECK(io_submit(ctx, 1, &list) == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1 && event.res == 10, "at the end");
    io_prep_pwrite(&iocb, fds[0], ops[0].buf, LENGTH, size);
    CHECK(io_submit(ctx, 1, &list) == 1);
    CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1 && (long)event.res == -ENOSPC);
    io_prep_poll(&iocb, fds[0], POLLIN);
    CHECK(io_submit(ctx, 1, &list) == -EINVAL, "what is not covered");
    refused_aio(ctx);
    interrupted_aio(ctx);

    /* In flight, or done and not asked for, when the context is destroyed. */
    io_prep_pread(&iocb, fds[0], ops[0].buf, LENGTH, 0);
    CHECK(io_submit(ctx, 1, &list) == 1);
    CHECK(io_destroy(ctx) == 0);
    CHECK(io_queue_init(4, &queue) == 0 && io_queue_release(queue) == 0);
    tear_down();
}

/* --- liburing --- */

static void prepare(struct io_uring *ring, struct op *op, int fd, int how, void *data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    CHECK(sqe);
    if (how && op->write)
        io_uring_prep_writev(sqe, fd, op->iov, 3, (uint64_t)op->at);
    else if (how)
        io_uring_prep_readv(sqe, fd, op->iov, 3, (uint64_t)op->at);
    else if (op->write)
        io_uring_prep_write(sqe, fd, op->buf, LENGTH, (uint64_t)op->at);
    else
        io_uring_prep_read(sqe, fd, op->buf, LENGTH, (uint64_t)op->at);
    io_uring_sqe_set_data(sqe, data);
}

static int submit(struct io_uring *ring, unsigned how, int of)
{
    struct __kernel_timespec minute = {.tv_sec = 60};
    struct io_uring_cqe *cqe;

    switch (how) {
    case 0:
        return io_uring_submit(ring);
    case 1:
        return io_uring_submit_and_wait(ring, 1);
    case 2:
        return io_uring_submit_and_get_events(ring);
    default: /* it does not tell how many */
        return io_uring_submit_and_wait_timeout(ring, &cqe, 1, &minute, NULL) < 0 ? -1
                                                                                  : of;
    }
}

static void mixed_uring(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned seed = 11;

    for (int step = 0; step < STEPS; step++) {
        int n = 1 + (int)dice(&seed, DEPTH), of = 0, rc;

        for (int i = 0; i < n; i++) {
            int how = (int)dice(&seed, 2);

            plan(&ops[i], &seed);
            prepare(ring, &ops[i], fds[0], how, &ops[i]);
            of++;
            if (ops[i].write) {
                prepare(ring, &ops[i], fds[1], how, NULL);
                of++;
            }
        }
        rc = submit(ring, step % 4, of);
        CHECK(rc == of, "%d of %d", rc, of);
        for (; of > 0; of--) {
            struct op *op;

            CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
            op = io_uring_cqe_get_data(cqe);
            CHECK(cqe->res == LENGTH, "%s", strerror(-cqe->res));
            if (op)
                finish(op, cqe->res);
            io_uring_cqe_seen(ring, cqe);
        }
        CHECK(io_uring_peek_cqe(ring, &cqe) == -EAGAIN, "one too many");
    }
}

static int one(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    int result;

    CHECK(io_uring_submit(ring) >= 0);
    CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
    result = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return result;
}

static void *waiter(void *ring)
{
    struct io_uring_cqe *cqe;

    for (int i = 0; i < STEPS; i++) {
        struct op *op;

        CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
        op = io_uring_cqe_get_data(cqe);
        CHECK(cqe->res == LENGTH);
        io_uring_cqe_seen(ring, cqe);
        __atomic_store_n(&op->busy, false, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* As databases do it: one thread waits, another submits. */
static void waiting_thread(struct io_uring *ring)
{
    unsigned seed = 13;
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, waiter, ring) == 0);
    for (int i = 0; i < STEPS; i++) {
        struct op *op = &ops[i % DEPTH];

        while (__atomic_load_n(&op->busy, __ATOMIC_ACQUIRE))
            sched_yield();
        __atomic_store_n(&op->busy, true, __ATOMIC_RELAXED);
        op->write = false;
        op->at = (off_t)dice(&seed, (uint64_t)size - LENGTH);
        prepare(ring, op, fds[dice(&seed, 3) == 0], 1, op);
        CHECK(io_uring_submit(ring) == 1);
    }
    pthread_join(thread, NULL);
}

/* Buffers and files that were registered: an index of those is no descriptor, even if
 * it is the number of a routed one. */
static void fixed_uring(struct io_uring *ring)
{
    struct op *op = &ops[0];
    struct iovec iov = {op->buf, LENGTH};
    const off_t at = 12345;
    struct io_uring_sqe *sqe;
    int *table = malloc(((size_t)fds[0] + 1) * sizeof *table);

    CHECK(io_uring_register_buffers(ring, &iov, 1) == 0);
    memset(op->buf, 'f', LENGTH);
    memcpy(op->want, op->buf, LENGTH);
    io_uring_prep_write_fixed(io_uring_get_sqe(ring), fds[0], op->buf, LENGTH,
                              (uint64_t)at, 0);
    CHECK(one(ring) == LENGTH);
    CHECK(pwrite(fds[1], op->want, LENGTH, at) == LENGTH);
    check_same(at - 100, LENGTH + 200);
    memset(op->buf, 0, LENGTH);
    io_uring_prep_read_fixed(io_uring_get_sqe(ring), fds[0], op->buf, LENGTH,
                             (uint64_t)at, 0);
    CHECK(one(ring) == LENGTH && memcmp(op->buf, op->want, LENGTH) == 0);

    CHECK(table);
    memset(table, 0xff, ((size_t)fds[0] + 1) * sizeof *table);
    table[fds[0]] = fds[1];
    CHECK(io_uring_register_files(ring, table, (unsigned)fds[0] + 1) == 0);
    memset(op->buf, 'o', LENGTH);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_write(sqe, fds[0], op->buf, LENGTH, (uint64_t)at);
    sqe->flags |= IOSQE_FIXED_FILE;
    CHECK(one(ring) == LENGTH);
    CHECK(pread(fds[0], op->buf, LENGTH, at) == LENGTH);
    CHECK(memcmp(op->buf, op->want, LENGTH) == 0, "the routed file was written to");
    CHECK(pwrite(fds[1], op->want, LENGTH, at) == LENGTH);
    free(table);
}

static void punched_uring(struct io_uring *ring)
{
    static const char zeros[70001];
    struct io_uring_sqe *sqe;

    for (int i = 0; i < 2; i++) {
        io_uring_prep_fallocate(io_uring_get_sqe(ring), fds[i],
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30000,
                                sizeof zeros);
        CHECK(one(ring) == 0);
    }
    check_same(0, 200000);
    /* A hole would be one for cp, too, which leaves them out. */
    CHECK(pwrite(fds[1], zeros, sizeof zeros, 30000) == sizeof zeros);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_write(sqe, fds[0], ops[0].buf, LENGTH, 0);
    sqe->rw_flags = RWF_APPEND;
    CHECK(one(ring) == -EOPNOTSUPP, "a flag that is not known");
}

void test_uring(void)
{
    struct io_uring ring;
    struct io_uring_sqe *sqe;

    set_up();
    if (io_uring_queue_init(2 * DEPTH, &ring, 0) != 0) {
        fprintf(stderr, "io_uring cannot be had\n");
        exit(77);
    }
    mixed_uring(&ring);
    waiting_thread(&ring);

    io_uring_prep_fsync(io_uring_get_sqe(&ring), fds[0], 0);
    CHECK(one(&ring) == 0);
    io_uring_prep_read(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH,
                       (uint64_t)size - 10);
    CHECK(one(&ring) == 10, "at the end");
    io_uring_prep_write(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH,
                        (uint64_t)size);
    CHECK(one(&ring) == -ENOSPC);
    /* What is not covered is refused, never done to something else. */
    io_uring_prep_read(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH,
                       (uint64_t)-1);
    CHECK(one(&ring) == -EBADF);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_read(sqe, fds[0], ops[0].buf, LENGTH, 0);
    sqe->flags |= IOSQE_IO_LINK;
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    CHECK(one(&ring) == -EBADF && one(&ring) == -ECANCELED);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_nop(sqe);
    sqe->flags |= IOSQE_IO_LINK;
    io_uring_prep_read(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH, 0);
    CHECK(one(&ring) == 0 && one(&ring) == -EBADF);
    CHECK(io_uring_register_files(&ring, fds, 2) == -EBADF);
    fixed_uring(&ring);
    punched_uring(&ring);
    /* In flight when the ring goes. */
    io_uring_prep_read(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH, 0);
    CHECK(io_uring_submit(&ring) == 1);
    io_uring_queue_exit(&ring);

    CHECK(io_uring_queue_init(8, &ring, IORING_SETUP_SQE128) == 0);
    for (int i = 0; i < 20; i++) {
        io_uring_prep_read(io_uring_get_sqe(&ring), fds[0], ops[0].buf, LENGTH, 0);
        CHECK(one(&ring) == LENGTH);
    }
    io_uring_prep_close(io_uring_get_sqe(&ring), fds[0]);
    CHECK(one(&ring) == 0);
    FAILS(pread(fds[0], ops[0].buf, 1, 0), EBADF);
    fds[0] = must_open(routed, O_RDONLY);
    io_uring_queue_exit(&ring);
    tear_down();
}
