/* SPDX-License-Identifier: BSD-3-Clause */
/* test-restarts.c - a server that is killed and started again over a disk that has lost
 * what was not flushed: for the program, a pause.
 *
 * The script that runs this program restarts the server when it reads "restart", and
 * answers.  While the file `late` is there, the disk carries out no write.
 */
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { BLOCK = 16384, PATIENCE = 300 /* seconds, after which something hangs */ };

static const char *late;

/* The script's standard input and output are the program's. */
static void tell(const char *what)
{
    char line[64];

    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin), "no answer to %s", what);
}

static void restart(void)
{
    tell("restart");
}

static void must_write(int fd, int byte, off_t block)
{
    static _Thread_local char buf[BLOCK];

    memset(buf, byte, sizeof buf);
    CHECK(pwrite(fd, buf, sizeof buf, block * BLOCK) == BLOCK);
}

static void must_read(int fd, int byte, off_t block)
{
    static _Thread_local char buf[BLOCK], want[BLOCK];

    memset(want, byte, sizeof want);
    CHECK(pread(fd, buf, sizeof buf, block * BLOCK) == BLOCK);
    CHECK(memcmp(buf, want, sizeof buf) == 0, "block %lld: '%c', not '%c'",
          (long long)block, buf[0], byte);
}

static void must_end_well(pid_t pid)
{
    int status;

    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* --- the ways to write --- */

struct ways {
    io_context_t aio;
    struct io_uring ring;
    bool has_ring; /* and may post into it: Linux 5.18 */
};

static void init(struct ways *ways)
{
    *ways = (struct ways){.aio = NULL};
    CHECK(io_setup(64, &ways->aio) == 0);
    ways->has_ring = io_uring_queue_init(64, &ways->ring, 0) == 0;
}

static void submit_aio(struct ways *ways, int fd, char *buf, off_t block)
{
    static struct iocb iocb, *list = &iocb;

    io_prep_pwrite(&iocb, fd, buf, BLOCK, block * BLOCK);
    CHECK(io_submit(ways->aio, 1, &list) == 1);
}

static void await_aio(struct ways *ways)
{
    struct io_event event;

    CHECK(io_getevents(ways->aio, 1, 1, &event, NULL) == 1 && event.res == BLOCK);
}

/* False: this kernel has no io_uring that the library can use. */
static bool write_by_uring(struct ways *ways, int fd, char *buf, off_t block)
{
    struct io_uring_sqe *sqe;
    struct io_uring_cqe *cqe;
    int rc;

    if (!ways->has_ring)
        return false;
    sqe = io_uring_get_sqe(&ways->ring);
    io_uring_prep_write(sqe, fd, buf, BLOCK, (__u64)(block * BLOCK));
    CHECK(io_uring_submit(&ways->ring) == 1);
    CHECK(io_uring_wait_cqe(&ways->ring, &cqe) == 0);
    rc = cqe->res;
    io_uring_cqe_seen(&ways->ring, cqe);
    CHECK(rc == BLOCK || rc == -EBADF, "%s", strerror(-rc));
    return rc == BLOCK;
}

/* --- one process --- */

/* What was acknowledged is there, whichever way it was written. */
static void test_kept(void)
{
    static char a[BLOCK], u[BLOCK];
    struct ways ways;
    bool by_uring;
    int fd = must_open(routed, O_RDWR);

    init(&ways);
    memset(a, 'a', BLOCK);
    memset(u, 'u', BLOCK);
    for (int round = 0; round < 2; round++) {
        must_write(fd, 'x', 0);
        must_write(fd, 'p', 0); /* the later of two is the one that counts */
        submit_aio(&ways, fd, a, 1);
        await_aio(&ways);
        by_uring = write_by_uring(&ways, fd, u, 2);
        must_write(fd, 'z', 3);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * BLOCK,
                        BLOCK) == 0);
        restart();
        must_read(fd, 'p', 0);
        must_read(fd, 'a', 1);
        if (by_uring)
            must_read(fd, 'u', 2);
        must_read(fd, '\0', 3);
        must_write(fd, 'q', 0);
        CHECK(fsync(fd) == 0);
        restart();
        must_read(fd, 'q', 0);
        CHECK(fdatasync(fd) == 0);
    }
    io_destroy(ways.aio);
    close(fd);
}

/* A write that is answered after a flush was sent is not covered by it.  told: nothing
 * is kept, and the loss is said once to each file that was open. */
static void test_in_flight(bool told)
{
    static char buf[BLOCK];
    struct ways ways;
    int fd = must_open(routed, O_RDWR), second = must_open(routed, O_RDWR), file;

    init(&ways);
    must_write(fd, 'b', 5);
    CHECK(fsync(fd) == 0 && fsync(second) == 0);
    file = open(late, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file != -1 && close(file) == 0);
    memset(buf, 'c', BLOCK);
    submit_aio(&ways, fd, buf, 5);
    tell("carried");
    CHECK(fsync(fd) == 0 && unlink(late) == 0);
    await_aio(&ways);
    restart();
    if (told) {
        must_read(fd, 'b', 5);
        FAILS(fsync(fd), EIO);
        FAILS(fdatasync(second), EIO);
    } else {
        must_read(fd, 'c', 5);
    }
    CHECK(fsync(fd) == 0 && fsync(second) == 0);
    io_destroy(ways.aio);
    close(fd);
    close(second);
}

/* --- several processes --- */

/* A child that does not use the file. */
static void aside(int fd)
{
    pid_t pid = fork();

    if (pid == 0) {
        close(fd);
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    must_end_well(pid);
    CHECK(system("true") == 0);
}

static void test_family(void)
{
    int fd = must_open(routed, O_RDWR), pipes[2];
    pid_t pid;
    char c;

    must_write(fd, '1', 8);
    must_write(fd, '1', 9);
    aside(fd);
    must_write(fd, '1', 10);
    tell("retains"); /* none of these writes had FUA */
    CHECK(pipe(pipes) == 0);
    pid = fork();
    if (pid == 0) {
        /* It may not find what the parent's restart would undo. */
        must_read(fd, '1', 8);
        must_write(fd, '2', 8);
        CHECK(write(pipes[1], "", 1) == 1);
        _exit(0);
    }
    must_end_well(pid);
    CHECK(read(pipes[0], &c, 1) == 1);
    restart();
    must_read(fd, '2', 8);
    must_read(fd, '1', 9);
    must_read(fd, '1', 10);
    must_write(fd, '3', 8);
    tell("stable"); /* and this one had */
    pid = fork();
    if (pid == 0) {
        must_read(fd, '3', 8);
        must_write(fd, '4', 8);
        must_write(fd, '4', 9);
        restart();
        must_read(fd, '4', 8);
        CHECK(fsync(fd) == 0);
        _exit(0);
    }
    must_end_well(pid);
    must_read(fd, '4', 8);
    must_read(fd, '4', 9);
    CHECK(fsync(fd) == 0);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

/* A child whose parent was killed while it retained, for whom nobody can let go. */
static void test_orphan(void)
{
    int fd = must_open(routed, O_RDWR), pipes[2];
    char c;

    must_write(fd, 'o', 12);
    CHECK(fsync(fd) == 0);
    must_write(fd, 'r', 13);
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    if (fork() == 0) {
        alarm(PATIENCE);
        close(pipes[1]);
        CHECK(read(pipes[0], &c, 1) == 0); /* the parent has gone */
        must_read(fd, 'o', 12);
        must_write(fd, 'p', 12);
        restart();
        must_read(fd, 'p', 12);
        printf("orphan\n");
        fflush(stdout);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

/* --- everything at once, as long as the server is killed --- */

enum { WORKERS = 6, PART = 64 /* blocks */, SIDE = 8 /* requests at once */ };

struct worker {
    pthread_t thread;
    unsigned number;
    int fd;
    char (*model)[BLOCK]; /* what its part of the device holds */
    char buf[SIDE][BLOCK];
};

static char (*shared_model)[BLOCK]; /* of the part that all processes write */

static off_t base(unsigned part)
{
    return (off_t)(1 + part) * PART;
}

static void *by_calls(void *opaque)
{
    struct worker *w = opaque;
    unsigned seed = w->number, requests = 0;

    while (access(late, F_OK) != 0 || requests++ < 20) {
        off_t block = (off_t)dice(&seed, PART), at = base(w->number) * BLOCK;
        size_t from = dice(&seed, BLOCK), count = 1 + dice(&seed, BLOCK - from);
        char *model = w->model[block];

        at += block * BLOCK + (off_t)from;
        switch (dice(&seed, 8)) {
        case 0:
            CHECK(fsync(w->fd) == 0);
            break;
        case 1:
            memset(model + from, 0, count);
            CHECK(fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
                            (off_t)count) == 0);
            break;
        case 2:
        case 3:
        case 4:
            memset(model + from, (int)dice(&seed, 256), count);
            CHECK(pwrite(w->fd, model + from, count, at) == (ssize_t)count);
            break;
        default:
            CHECK(pread(w->fd, w->buf[0], count, at) == (ssize_t)count);
            CHECK(memcmp(w->buf[0], model + from, count) == 0, "worker %u at %lld",
                  w->number, (long long)at);
        }
    }
    return NULL;
}

/* SIDE requests at a time, each of a block of its own. */
static void *by_batches(void *opaque)
{
    struct worker *w = opaque;
    struct ways ways;
    struct iocb iocbs[SIDE], *list[SIDE];
    struct io_event events[SIDE];
    unsigned seed = w->number, requests = 0;
    bool uring = w->number % 2;

    init(&ways);
    uring = uring && write_by_uring(&ways, w->fd, w->model[0], base(w->number));
    while (access(late, F_OK) != 0 || requests++ < 20) {
        for (int i = 0; i < SIDE; i++) {
            off_t block = i + SIDE * (off_t)dice(&seed, PART / SIDE);
            off_t at = (base(w->number) + block) * BLOCK;
            struct io_uring_sqe *sqe = uring ? io_uring_get_sqe(&ways.ring) : NULL;
            bool writes = dice(&seed, 2);

            if (writes)
                memset(w->model[block], (int)dice(&seed, 256), BLOCK);
            memcpy(w->buf[i], w->model[block], writes ? BLOCK : 0);
            if (uring && writes)
                io_uring_prep_write(sqe, w->fd, w->buf[i], BLOCK, (__u64)at);
            else if (uring)
                io_uring_prep_read(sqe, w->fd, w->buf[i], BLOCK, (__u64)at);
            else if (writes)
                io_prep_pwrite(&iocbs[i], w->fd, w->buf[i], BLOCK, at);
            else
                io_prep_pread(&iocbs[i], w->fd, w->buf[i], BLOCK, at);
            if (uring)
                io_uring_sqe_set_data(sqe, w->model[block]);
            iocbs[i].data = w->model[block];
            list[i] = &iocbs[i];
            if (uring)
                sqe->user_data |= (unsigned)i; /* models are aligned */
        }
        if (!uring)
            CHECK(io_submit(ways.aio, SIDE, list) == SIDE);
        else
            CHECK(io_uring_submit(&ways.ring) == SIDE);
        for (int n = 0; n < SIDE; n++) {
            struct io_uring_cqe *cqe;
            char *model;
            long i, result;

            if (uring) {
                CHECK(io_uring_wait_cqe(&ways.ring, &cqe) == 0);
                i = (long)(cqe->user_data % SIDE);
                model = (char *)(uintptr_t)(cqe->user_data - (unsigned long)i);
                result = cqe->res;
                io_uring_cqe_seen(&ways.ring, cqe);
            } else {
                CHECK(io_getevents(ways.aio, 1, 1, events, NULL) == 1);
                i = events[0].obj - iocbs;
                model = events[0].data;
                result = (long)events[0].res;
            }
            CHECK(result == BLOCK, "worker %u: %s", w->number, strerror((int)-result));
            CHECK(memcmp(w->buf[i], model, BLOCK) == 0, "worker %u", w->number);
        }
        if (dice(&seed, 8) == 0)
            CHECK(fdatasync(w->fd) == 0);
    }
    io_destroy(ways.aio);
    if (ways.has_ring)
        io_uring_queue_exit(&ways.ring);
    return NULL;
}

/* One of the processes that take turns: each must find what the one before has written.
 */
static void take_turns(int fd, int from, int to, unsigned seed)
{
    static char buf[BLOCK];
    unsigned rest = 20;
    char turn;

    do {
        off_t block = (off_t)dice(&seed, PART);

        CHECK(read(from, &turn, 1) == 1);
        CHECK(pread(fd, buf, BLOCK, (base(WORKERS) + block) * BLOCK) == BLOCK);
        CHECK(memcmp(buf, shared_model[block], BLOCK) == 0, "process %d, block %lld",
              (int)getpid(), (long long)block);
        memset(shared_model[block], (int)dice(&seed, 256), BLOCK);
        CHECK(pwrite(fd, shared_model[block], BLOCK, (base(WORKERS) + block) * BLOCK) ==
              BLOCK);
        if (dice(&seed, 16) == 0)
            CHECK(fsync(fd) == 0);
        rest -= access(late, F_OK) == 0;
        CHECK(write(to, &turn, 1) == 1);
    } while (rest > 0);
}

static void *shared_memory(size_t blocks)
{
    void *at = mmap(NULL, blocks * BLOCK, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

/* Until the file `late` is there, which the disk knows nothing of here.  processes: by
 * as many that take turns as well, the first of which is the parent. */
static void test_all(int processes)
{
    static struct worker workers[WORKERS];
    int fd = must_open(routed, O_RDWR), pipes[4][2];
    pid_t pids[4];

    CHECK(size >= base(WORKERS + 1) * BLOCK);
    shared_model = shared_memory(PART);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].number = i;
        workers[i].fd = must_open(routed, O_RDWR);
        workers[i].model = shared_memory(PART);
        CHECK(pread(fd, workers[i].model, PART * BLOCK, base(i) * BLOCK) ==
              PART * BLOCK);
    }
    CHECK(pread(fd, shared_model, PART * BLOCK, base(WORKERS) * BLOCK) == PART * BLOCK);
    for (int i = 0; i < processes; i++)
        CHECK(pipe(pipes[i]) == 0);
    for (int i = 1; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            take_turns(fd, pipes[i][0], pipes[(i + 1) % processes][1], (unsigned)i);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, i < 2 ? by_calls : by_batches,
                             &workers[i]) == 0);
    if (processes > 0) {
        CHECK(write(pipes[0][1], "t", 1) == 1);
        take_turns(fd, pipes[0][0], pipes[1][1], 0);
    }
    for (int i = 1; i < processes; i++)
        must_end_well(pids[i]);
    for (unsigned i = 0; i < WORKERS; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
        for (off_t block = 0; block < PART; block++) {
            CHECK(pread(workers[i].fd, workers[i].buf[0], BLOCK,
                        (base(i) + block) * BLOCK) == BLOCK);
            CHECK(memcmp(workers[i].buf[0], workers[i].model[block], BLOCK) == 0,
                  "worker %u, block %lld", i, (long long)block);
        }
    }
    CHECK(fsync(fd) == 0);
}

int run_restarts(const char *what, const char *path)
{
    late = path;
    alarm(PATIENCE);
    if (strcmp(what, "kept") == 0) {
        test_kept();
        test_in_flight(false);
    } else if (strcmp(what, "told") == 0) {
        test_in_flight(true);
    } else if (strcmp(what, "family") == 0) {
        test_family();
    } else if (strcmp(what, "orphan") == 0) {
        test_orphan();
    } else {
        test_all(atoi(what));
    }
    return 0;
}
