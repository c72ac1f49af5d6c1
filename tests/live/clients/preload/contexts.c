/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - reads of a routed file in contexts, by all the ways there are; and what
 * came of requests while the server was away.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libaio.h>
#include <liburing.h>
#include <pthread.h>
#include <unistd.h>

#include "clients/libqmctx/qmctx.h"
#include "program.h"

enum { THREADS = 4, ROUNDS = 30, MAX_LENGTH = 30000, WAYS = 5 };

static struct qmctx *ctx;
static int file;

/* What a thread submits with; each has its own. */
struct way {
    struct io_uring ring;
    io_context_t aio;
    char buf[WAYS][MAX_LENGTH];
};

static void begin(enum qmctx_kind kind, uint64_t klass)
{
    CHECK(qmctx_begin(ctx, kind, klass, NULL) == 0, "%s", qmctx_error());
}

static void end(void)
{
    CHECK(qmctx_end(ctx) == 0, "%s", qmctx_error());
}

/* One read each way, in the current context, which ends before the asynchronous ones
 * have been waited for. */
static void read_all_ways(struct way *way, uint64_t klass, uint64_t parent,
                          unsigned *seed)
{
    struct iocb iocb, *list = &iocb;
    struct io_uring_cqe *cqe;
    struct io_event event;
    size_t length[WAYS];
    off_t at[WAYS];
    struct iovec iov;

    for (int i = 0; i < WAYS; i++) {
        length[i] = 1 + dice(seed, MAX_LENGTH);
        at[i] = (off_t)dice(seed, (uint64_t)size - MAX_LENGTH);
        printf("%016" PRIx64 " %016" PRIx64 " %d %lld %zu\n", klass, parent, i,
               (long long)at[i], length[i]);
    }
    CHECK(pread(file, way->buf[0], length[0], at[0]) == (ssize_t)length[0]);
    io_prep_pread(&iocb, file, way->buf[1], length[1], at[1]);
    CHECK(io_submit(way->aio, 1, &list) == 1);
    io_uring_prep_read(io_uring_get_sqe(&way->ring), file, way->buf[2],
                       (unsigned)length[2], (uint64_t)at[2]);
    CHECK(io_uring_submit(&way->ring) == 1);
    iov = (struct iovec){way->buf[3], length[3]};
    CHECK(preadv(file, &iov, 1, at[3]) == (ssize_t)length[3]);
    iov = (struct iovec){way->buf[4], length[4]};
    io_uring_prep_readv(io_uring_get_sqe(&way->ring), file, &iov, 1, (uint64_t)at[4]);
    CHECK(io_uring_submit(&way->ring) == 1);
    end();
    CHECK(io_getevents(way->aio, 1, 1, &event, NULL) == 1 && event.res == length[1]);
    for (int i = 0; i < 2; i++) {
        CHECK(io_uring_wait_cqe(&way->ring, &cqe) == 0 && cqe->res > 0);
        io_uring_cqe_seen(&way->ring, cqe);
    }
}

static void *reader(void *number)
{
    uint64_t connection = (uint64_t)(uintptr_t)number << 32, klass = connection;
    unsigned seed = (unsigned)(uintptr_t)number;
    struct way *way = calloc(1, sizeof *way);

    CHECK(way && io_setup(4, &way->aio) == 0);
    CHECK(io_uring_queue_init(4, &way->ring, 0) == 0);
    begin(QMCTX_CONNECTION, connection);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t transaction = ++klass;

        begin(QMCTX_TRANSACTION, transaction);
        begin(QMCTX_QUERY, ++klass);
        read_all_ways(way, klass, transaction, &seed);
        begin(QMCTX_QUERY, ++klass);
        read_all_ways(way, klass, transaction, &seed);
        end();
    }
    end();
    io_uring_queue_exit(&way->ring);
    io_destroy(way->aio);
    free(way);
    return NULL;
}

int run_contexts(const char *path)
{
    const char *transport = getenv("EXPECTED_TRANSPORT");
    pthread_t thread[THREADS];
    char socket[4096];

    snprintf(socket, sizeof socket, "%s.ctx", path);
    CHECK(qmctx_announce(socket, &ctx) == 0, "%s", qmctx_error());
    CHECK(strcmp(qmctx_transport(ctx), transport ? transport : "attached") == 0);
    CHECK(qmctx_connected(ctx));
    file = must_open(path, O_RDONLY);
    size = lseek(file, 0, SEEK_END);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, reader, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    qmctx_close(ctx);
    /* Another, after it. */
    CHECK(qmctx_announce(socket, &ctx) == 0);
    begin(QMCTX_QUERY, 0xf);
    qmctx_close(ctx);
    close(file);
    return 0;
}

static int by_uring(struct io_uring *ring, char *buf, bool write)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;

    if (write)
        io_uring_prep_write(sqe, file, buf, 512, 0);
    else
        io_uring_prep_read(sqe, file, buf, 512, 0);
    CHECK(io_uring_submit(ring) == 1 && io_uring_wait_cqe(ring, &cqe) == 0);
    errno = cqe->res < 0 ? -cqe->res : 0;
    io_uring_cqe_seen(ring, cqe);
    return errno ? -1 : 0;
}

int run_loss(const char *path)
{
    struct io_uring ring;
    char line[16], buf[512] = "";
    ssize_t rc;

    CHECK(io_uring_queue_init(4, &ring, 0) == 0);
    setlinebuf(stdout);
    file = open(path, O_RDWR);
    printf("open: %s\n", file == -1 ? strerrorname_np(errno) : "fine");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "quit") == 0)
            return 0;
        if (strcmp(line, "open") == 0)
            rc = file = open(path, O_RDWR);
        else if (strcmp(line, "read") == 0)
            rc = pread(file, buf, sizeof buf, 0);
        else if (strcmp(line, "write") == 0)
            rc = pwrite(file, buf, sizeof buf, 0);
        else if (strcmp(line, "aread") == 0)
            rc = by_uring(&ring, buf, false);
        else if (strcmp(line, "awrite") == 0)
            rc = by_uring(&ring, buf, true);
        else
            rc = fsync(file);
        printf("%s: %s\n", line, rc == -1 ? strerrorname_np(errno) : "fine");
    }
    return 0;
}
