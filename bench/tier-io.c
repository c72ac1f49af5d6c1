/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-io.c - ways to read blocks of a tier's file; to be run by hand, on a large file:
 * build/bin/tier-io FILE [-r REQUESTERS] [-n BLOCKS] [-b BLOCK] [-s SECONDS] [-m
 * ROUNDS]
 *
 * REQUESTERS threads each read BLOCKS blocks anywhere in the file, O_DIRECT, wait for
 * all of them, and do so again.  The ways:
 *
 *   - pread: one block after the other, by the requester
 *   - threads: by the requester and 4 helpers that all share, as tier/read.c does
 *   - uring: by a ring of the requester's; one call submits all and waits for them
 *   - fixed: the same with registered file and buffers, completions only on waiting
 *
 * The ways take turns.  Prints medians of the rounds: blocks a second, microseconds of
 * a request (mean, median, 99 %), and for each block the processor time of the process
 * in microseconds, and its context switches.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HELPERS = 4, BLOCKS_MAX = 64, ROUNDS_MAX = 64, REQUESTERS_MAX = 256 };

enum way { PREAD, THREADS, URING, FIXED, WAYS };

static const char *const names[WAYS] = {"pread", "threads", "uring", "fixed"};

static struct {
    int fd;
    size_t block;
    uint64_t blocks; /* of the file */
    unsigned requesters, n, rounds;
    double seconds;
} o = {.block = 16384, .requesters = 1, .n = 1, .rounds = 5, .seconds = 1};

struct figures {
    double rate, mean, median, p99, cpu, switches;
};

struct batch {
    uint64_t at[BLOCKS_MAX];
    char *to[BLOCKS_MAX];
    _Atomic unsigned next;
    unsigned helpers; /* pool.lock */
    struct batch *after;
    pthread_cond_t left;
};

/* As in tier/read.c. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct batch *first;
    bool stop;
    pthread_t threads[HELPERS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

struct requester {
    pthread_t thread;
    enum way way;
    struct io_uring ring;
    char *buffers;
    uint64_t random;
    uint32_t *took; /* ns, of each request */
    size_t requests, room;
};

static atomic_bool over;

static void fail(const char *what, int error)
{
    fprintf(stderr, "tier-io: %s: %s\n", what, strerror(error));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void read_one(const struct batch *b, unsigned i)
{
    ssize_t r = pread(o.fd, b->to[i], o.block, (off_t)b->at[i]);

    if (r != (ssize_t)o.block)
        fail("a read", r == -1 ? errno : EIO);
}

static void read_batch(struct batch *b)
{
    unsigned i;

    while ((i = atomic_fetch_add(&b->next, 1)) < o.n)
        read_one(b, i);
}

static void unlink_batch(const struct batch *b)
{
    for (struct batch **at = &pool.first; *at; at = &(*at)->after)
        if (*at == b) {
            *at = b->after;
            return;
        }
}

static void *help(void *opaque)
{
    (void)opaque;
    pthread_mutex_lock(&pool.lock);
    while (!pool.stop) {
        struct batch *b = pool.first;

        if (!b) {
            pthread_cond_wait(&pool.work, &pool.lock);
            continue;
        }
        if (atomic_load(&b->next) >= o.n) {
            unlink_batch(b);
            continue;
        }
        b->helpers++;
        pthread_mutex_unlock(&pool.lock);
        read_batch(b);
        pthread_mutex_lock(&pool.lock);
        if (--b->helpers == 0)
            pthread_cond_signal(&b->left);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static void read_with_threads(struct batch *b)
{
    if (o.n == 1) {
        read_one(b, 0);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    b->after = pool.first;
    pool.first = b;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    read_batch(b);
    pthread_mutex_lock(&pool.lock);
    unlink_batch(b);
    while (b->helpers > 0)
        pthread_cond_wait(&b->left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

static void make_ring(struct requester *r)
{
    /* These flags need a ring that one thread uses. */
    unsigned flags =
        r->way == FIXED ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN : 0;
    struct iovec iov = {.iov_base = r->buffers, .iov_len = o.n * o.block};
    int error = io_uring_queue_init(BLOCKS_MAX, &r->ring, flags);

    if (error == 0 && r->way == FIXED)
        error = io_uring_register_files(&r->ring, &o.fd, 1);
    if (error == 0 && r->way == FIXED)
        error = io_uring_register_buffers(&r->ring, &iov, 1);
    if (error != 0)
        fail("a ring", -error);
}

static void read_with_ring(struct requester *r, const struct batch *b)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    int error;

    for (unsigned i = 0; i < o.n; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

        if (r->way == FIXED) {
            io_uring_prep_read_fixed(sqe, 0, b->to[i], (unsigned)o.block, b->at[i], 0);
            sqe->flags |= IOSQE_FIXED_FILE;
        } else {
            io_uring_prep_read(sqe, o.fd, b->to[i], (unsigned)o.block, b->at[i]);
        }
    }
    do
        error = io_uring_submit_and_wait(&r->ring, o.n);
    while (error == -EINTR);
    if (error < 0)
        fail("io_uring_enter", -error);
    io_uring_for_each_cqe(&r->ring, head, cqe)
    {
        if (cqe->res != (int)o.block)
            fail("a read by io_uring", cqe->res < 0 ? -cqe->res : EIO);
        seen++;
    }
    io_uring_cq_advance(&r->ring, seen);
    if (seen != o.n)
        fail("a read by io_uring", EAGAIN);
}

static uint64_t draw(struct requester *r)
{
    r->random ^= r->random << 13;
    r->random ^= r->random >> 7;
    r->random ^= r->random << 17;
    return r->random % o.blocks * o.block;
}

static void *request(void *opaque)
{
    struct requester *r = opaque;
    struct batch b;

    pthread_cond_init(&b.left, NULL);
    if (r->way == URING || r->way == FIXED)
        make_ring(r);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        uint64_t from = now();

        for (unsigned i = 0; i < o.n; i++) {
            b.at[i] = draw(r);
            b.to[i] = r->buffers + i * o.block;
        }
        b.next = 0;
        b.helpers = 0;
        if (r->way == PREAD)
            read_batch(&b);
        else if (r->way == THREADS)
            read_with_threads(&b);
        else
            read_with_ring(r, &b);
        if (r->requests < r->room)
            r->took[r->requests++] = (uint32_t)(now() - from);
    }
    if (r->way == URING || r->way == FIXED)
        io_uring_queue_exit(&r->ring);
    pthread_cond_destroy(&b.left);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double processor(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6 +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static struct figures run(struct requester *all, enum way way)
{
    struct timespec t = {(time_t)o.seconds,
                         (long)((o.seconds - (time_t)o.seconds) * 1e9)};
    struct rusage before, after;
    uint64_t from, passed, sum = 0;
    size_t n = 0;
    uint32_t *took;
    struct figures f;

    atomic_store(&over, false);
    getrusage(RUSAGE_SELF, &before);
    from = now();
    for (unsigned i = 0; i < o.requesters; i++) {
        all[i].way = way;
        all[i].requests = 0;
        if (pthread_create(&all[i].thread, NULL, request, &all[i]) != 0)
            fail("a thread", EAGAIN);
    }
    nanosleep(&t, NULL);
    atomic_store(&over, true);
    for (unsigned i = 0; i < o.requesters; i++)
        pthread_join(all[i].thread, NULL);
    passed = now() - from;
    getrusage(RUSAGE_SELF, &after);
    for (unsigned i = 0; i < o.requesters; i++)
        n += all[i].requests;
    took = malloc((n + 1) * sizeof *took);
    if (!took || n == 0)
        fail("a round", ENOMEM);
    n = 0;
    for (unsigned i = 0; i < o.requesters; i++) {
        memcpy(took + n, all[i].took, all[i].requests * sizeof *took);
        n += all[i].requests;
    }
    qsort(took, n, sizeof *took, by_size);
    for (size_t i = 0; i < n; i++)
        sum += took[i];
    f = (struct figures){
        .rate = (double)(n * o.n) / ((double)passed / 1e9),
        .mean = (double)sum / (double)n / 1e3,
        .median = took[n / 2] / 1e3,
        .p99 = took[n - 1 - n / 100] / 1e3,
        .cpu = (processor(&after) - processor(&before)) / (double)(n * o.n),
        .switches = (double)(after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw -
                             before.ru_nivcsw) /
                    (double)(n * o.n),
    };
    free(took);
    return f;
}

static void print(enum way way, const struct figures *rounds)
{
    double median[6], column[ROUNDS_MAX];

    for (unsigned k = 0; k < 6; k++) {
        for (unsigned i = 0; i < o.rounds; i++) {
            const struct figures *f = &rounds[i];
            const double all[6] = {f->rate, f->mean, f->median,
                                   f->p99,  f->cpu,  f->switches};

            column[i] = all[k];
        }
        qsort(column, o.rounds, sizeof *column, by_value);
        median[k] = column[o.rounds / 2];
    }
    printf("%-8s %10u %6u %9.0f %9.1f %9.1f %9.1f %7.2f %8.2f\n", names[way],
           o.requesters, o.n, median[0], median[1], median[2], median[3], median[4],
           median[5]);
}

static void usage(void)
{
    fprintf(stderr,
            "Usage: tier-io FILE [-b BLOCK] [-r REQUESTERS] [-n BLOCKS] [-s SECONDS]\n"
            "               [-m ROUNDS]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static struct requester all[REQUESTERS_MAX];
    static struct figures figures[WAYS][ROUNDS_MAX];
    struct stat st;
    int c;

    while ((c = getopt(argc, argv, "b:r:n:s:m:")) != -1)
        switch (c) {
        case 'b':
            o.block = strtoul(optarg, NULL, 10);
            break;
        case 'r':
            o.requesters = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            o.n = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            o.seconds = strtod(optarg, NULL);
            break;
        case 'm':
            o.rounds = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            usage();
        }
    if (optind != argc - 1 || o.block == 0 || o.block % 4096 != 0 || o.n < 1 ||
        o.n > BLOCKS_MAX || o.requesters < 1 || o.requesters > REQUESTERS_MAX ||
        o.rounds < 1 || o.rounds > ROUNDS_MAX || o.seconds <= 0)
        usage();
    o.fd = open(argv[optind], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (o.fd == -1 || fstat(o.fd, &st) == -1)
        fail(argv[optind], errno);
    o.blocks = (uint64_t)st.st_size / o.block;
    if (o.blocks == 0)
        fail(argv[optind], ENODATA);
    for (unsigned i = 0; i < o.requesters; i++) {
        all[i].random = 88172645463325252U + i * 7919;
        all[i].room = (size_t)(o.seconds * 2e6) + 1000;
        all[i].took = malloc(all[i].room * sizeof *all[i].took);
        all[i].buffers = aligned_alloc(4096, o.n * o.block);
        if (!all[i].took || !all[i].buffers)
            fail("buffers", ENOMEM);
    }
    for (unsigned i = 0; i < HELPERS; i++)
        if (pthread_create(&pool.threads[i], NULL, help, NULL) != 0)
            fail("a thread", EAGAIN);
    for (unsigned i = 0; i < o.rounds; i++)
        for (enum way way = PREAD; way < WAYS; way++)
            figures[way][i] = run(all, way);
    for (enum way way = PREAD; way < WAYS; way++)
        print(way, figures[way]);
    return 0;
}
