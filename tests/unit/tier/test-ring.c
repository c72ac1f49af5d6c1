/* SPDX-License-Identifier: BSD-3-Clause */
/* test-ring.c - several reads at once by io_uring: a kernel that refuses, forgets half,
 * fails one of them or is interrupted; what is read is right, done() comes once for
 * each, and nothing is written to a buffer afterwards.  Then a tier that uses it.
 *
 * Linked with --wrap for io_uring_queue_init and io_uring_submit_and_wait. */
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#include "testing.h"
#include "tier/format.h"
#include "tier/ring.h"

#define BLOCK  8192u
#define BLOCKS 128u
#define MANY   100u

int __real_io_uring_queue_init(unsigned n, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned n, struct io_uring *ring, unsigned flags);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);

/* What the kernel does. */
static struct {
    int init;           /* what makes rings fail, 0: nothing */
    unsigned init_from; /* these, and those after them */
    bool old;           /* it knows no flags */
    int submit;         /* what submitting fails with */
    long submit_from;   /* from this call on; -1: never */
    bool drop;          /* and then it takes nothing; else it has taken all */
    bool once;
    long one; /* this read ends so... */
    int with; /* ... with that result */
    void *poison;
} kernel;

static _Atomic long calls;
static unsigned inits;

int __wrap_io_uring_queue_init(unsigned n, struct io_uring *ring, unsigned flags)
{
    if (kernel.old && flags != 0)
        return -EINVAL;
    if (kernel.init && inits++ >= kernel.init_from)
        return kernel.init;
    return __real_io_uring_queue_init(n, ring, flags);
}

static void spoil(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned head;

    io_uring_for_each_cqe(ring, head, cqe)
    {
        if (kernel.one < 0 || cqe->user_data != (uint64_t)kernel.one)
            continue;
        cqe->res = kernel.with;
        if (kernel.poison)
            memset((char *)kernel.poison + BLOCK / 2, 0xff, BLOCK / 2);
    }
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
    long call = atomic_fetch_add(&calls, 1);
    int r;

    if (kernel.submit_from >= 0 &&
        (kernel.once ? call == kernel.submit_from : call >= kernel.submit_from)) {
        if (!kernel.drop)
            (void)__real_io_uring_submit_and_wait(ring, 0);
        return kernel.submit;
    }
    r = __real_io_uring_submit_and_wait(ring, n);
    spoil(ring);
    return r;
}

static char dir[] = "/tmp/tier-ring.XXXXXX", path[64];
static int fd;
static bool there; /* io_uring, here */
static char *memory;
static struct qm_tier_io_read reads[MANY];
static unsigned ended[MANY];
static int results[MANY];

static int setup(void **state)
{
    memset(&kernel, 0, sizeof kernel);
    kernel.submit_from = kernel.one = -1;
    inits = 0;
    memset(ended, 0, sizeof ended);
    return 0;
}

static void done(void *opaque, size_t i, int error)
{
    unsigned *times = opaque;

    times[i]++;
    results[i] = error;
}

/* The i-th read of n, anywhere, to a buffer that is aligned or not. */
static void prepare(size_t n, size_t off)
{
    uint64_t seed = n + off;

    memset(memory, 0x5a, (size_t)(MANY + 1) * BLOCK);
    for (size_t i = 0; i < n; i++)
        reads[i] = (struct qm_tier_io_read){memory + i * BLOCK + off, BLOCK,
                                            rnd_below(&seed, BLOCKS) * BLOCK};
}

static void check(size_t n, long but)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ended[i], 1);
        if ((long)i == but)
            continue;
        assert_int_equal(results[i], 0);
        assert_int_equal(version_of(reads[i].buf, BLOCK, reads[i].at / BLOCK), 7);
    }
}

static struct qm_tier_rings *rings_here(void)
{
    struct qm_tier_rings *rings;

    if (!there)
        skip();
    rings = qm_tier_rings_new(fd);
    assert_non_null(rings);
    calls = 0;
    return rings;
}

TEST_WITH(test_reads, setup, NULL)
{
    struct qm_tier_rings *rings = rings_here();

    assert_int_equal(qm_tier_rings_count(rings), QM_TIER_RINGS);
    for (size_t n = 1; n <= MANY; n += n < 6 ? 1 : 47)
        for (size_t off = 0; off <= 16; off += 16) {
            memset(ended, 0, sizeof ended);
            prepare(n, off);
            assert_true(qm_tier_rings_read(rings, fd, reads, n, done, ended));
            check(n, -1);
        }
    qm_tier_rings_free(rings);
}

/* One lies behind the end, one over it: only these fail. */
TEST_WITH(test_end_of_file, setup, NULL)
{
    struct qm_tier_rings *rings = rings_here();

    prepare(10, 0);
    reads[3].at = BLOCKS * BLOCK;
    assert_true(qm_tier_rings_read(rings, fd, reads, 10, done, ended));
    assert_int_equal(results[3], EIO);
    check(10, 3);
    memset(ended, 0, sizeof ended);
    reads[3].at = BLOCKS * BLOCK - BLOCK / 2;
    assert_true(qm_tier_rings_read(rings, fd, reads, 10, done, ended));
    assert_int_equal(results[3], EIO);
    check(10, 3);
    qm_tier_rings_free(rings);
}

TEST_WITH(test_one_of_several, setup, NULL)
{
    const int half = BLOCK / 2,
              results_of_one[] = {-EIO, half, 0, -EAGAIN, -EINTR, -EINVAL, 1};
    struct qm_tier_rings *rings = rings_here();

    for (size_t i = 0; i < sizeof results_of_one / sizeof results_of_one[0]; i++) {
        setup(NULL);
        prepare(20, 0);
        kernel.one = 11;
        kernel.with = results_of_one[i];
        kernel.poison = reads[11].buf;
        assert_true(qm_tier_rings_read(rings, fd, reads, 20, done, ended));
        if (kernel.with == -EIO)
            assert_int_equal(results[11], EIO);
        check(20, kernel.with == -EIO ? 11 : -1);
    }
    qm_tier_rings_free(rings);
}

/* A signal costs no ring. */
TEST_WITH(test_interrupted, setup, NULL)
{
    struct qm_tier_rings *rings = rings_here();

    for (unsigned i = 0; i < 2 * QM_TIER_RINGS; i++) {
        setup(NULL);
        prepare(20, 0);
        kernel.submit = -EINTR;
        kernel.once = true;
        kernel.submit_from = calls + i / 2 % 2;
        kernel.drop = i % 2;
        assert_true(qm_tier_rings_read(rings, fd, reads, 20, done, ended));
        check(20, -1);
    }
    qm_tier_rings_free(rings);
}

/* The kernel refuses each ring from some moment on: what it has taken is waited for,
 * and the rest is read by pread(). */
static void refuse_all(struct qm_tier_rings *rings, int error)
{
    for (unsigned i = 0; i < QM_TIER_RINGS; i++) {
        setup(NULL);
        prepare(MANY, 0);
        kernel.submit = error;
        kernel.submit_from = calls + i / 2 % 2;
        kernel.drop = i % 2;
        assert_true(qm_tier_rings_read(rings, fd, reads, MANY, done, ended));
        check(MANY, -1);
    }
    setup(NULL);
}

/* Whether a ring is to be had; if so, it reads. */
static bool reads_well(struct qm_tier_rings *rings)
{
    bool taken;

    memset(ended, 0, sizeof ended);
    prepare(MANY, 0);
    taken = qm_tier_rings_read(rings, fd, reads, MANY, done, ended);
    if (taken)
        check(MANY, -1);
    else
        for (unsigned i = 0; i < MANY; i++)
            assert_int_equal(ended[i], 0);
    return taken;
}

/* Rings that the kernel refuses are not used again. */
TEST_WITH(test_refused, setup, NULL)
{
    const int errors[] = {-EPERM, -ENOSYS};

    for (size_t e = 0; e < 2; e++) {
        struct qm_tier_rings *rings = rings_here();

        refuse_all(rings, errors[e]);
        for (unsigned i = 0; i < 1000; i++)
            assert_false(reads_well(rings));
        qm_tier_rings_free(rings);
    }
}

/* How many reads find no ring, before one does. */
static unsigned turned_away(struct qm_tier_rings *rings)
{
    unsigned n = 0;

    while (!reads_well(rings))
        assert_true(++n < 1000);
    return n;
}

/* Those that the kernel has no memory for are, after a while, and read the right
 * things; also if there was no memory to make them again at first. */
TEST_WITH(test_put_off, setup, NULL)
{
    const int errors[] = {-EAGAIN, -EBUSY, -ENOMEM};

    for (size_t e = 0; e < 3; e++) {
        struct qm_tier_rings *rings = rings_here();
        long before;

        refuse_all(rings, errors[e]);
        assert_true(turned_away(rings) > 0);
        before = calls;
        assert_true(reads_well(rings));
        assert_true(calls > before);
        qm_tier_rings_free(rings);

        rings = rings_here();
        refuse_all(rings, errors[e]);
        kernel.init = -ENOMEM;
        for (unsigned i = 0; i < 1000; i++)
            assert_false(reads_well(rings));
        assert_true(inits > 0);
        kernel.init = 0;
        assert_true(turned_away(rings) < 1000);
        qm_tier_rings_free(rings);
    }
}

TEST_WITH(test_none, setup, NULL)
{
    const int errors[] = {-EPERM, -ENOSYS, -ENOMEM};
    struct qm_tier_rings *rings;

    for (size_t i = 0; i < 3; i++) {
        setup(NULL);
        kernel.init = errors[i];
        assert_null(qm_tier_rings_new(fd));
        assert_int_equal(qm_tier_rings_count(NULL), 0);
        prepare(2, 0);
        assert_false(qm_tier_rings_read(NULL, fd, reads, 2, done, ended));
    }
    if (!there)
        return;
    /* It makes rings, and serves none. */
    setup(NULL);
    kernel.submit = -EPERM;
    kernel.submit_from = 0;
    kernel.drop = true;
    assert_null(qm_tier_rings_new(fd));
    setup(NULL);
    kernel.one = 0;
    kernel.with = -EINVAL;
    assert_null(qm_tier_rings_new(fd));
    /* It makes two, or knows no flags. */
    setup(NULL);
    kernel.init = -ENOMEM;
    kernel.init_from = 2;
    rings = qm_tier_rings_new(fd);
    assert_int_equal(qm_tier_rings_count(rings), 2);
    qm_tier_rings_free(rings);
    setup(NULL);
    kernel.old = true;
    rings = qm_tier_rings_new(fd);
    assert_int_equal(qm_tier_rings_count(rings), QM_TIER_RINGS);
    qm_tier_rings_free(rings);
}

static struct qm_tier_rings *shared;
static _Atomic unsigned served, wrong;

static void count(void *opaque, size_t i, int error)
{
    _Atomic unsigned *n = opaque;

    (void)i;
    atomic_fetch_add(n, error == 0);
}

static void *read_much(void *opaque)
{
    enum { N = 16 };
    char *buf = aligned_alloc(4096, (size_t)N * BLOCK);
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    for (unsigned k = 0; k < 200 && buf; k++) {
        struct qm_tier_io_read mine[N];
        _Atomic unsigned good = 0;

        for (size_t i = 0; i < N; i++)
            mine[i] = (struct qm_tier_io_read){buf + i * BLOCK, BLOCK,
                                               rnd_below(&seed, BLOCKS) * BLOCK};
        if (!qm_tier_rings_read(shared, fd, mine, N, count, &good))
            continue;
        atomic_fetch_add(&served, 1);
        for (size_t i = 0; i < N; i++)
            if (good != N || version_of(mine[i].buf, BLOCK, mine[i].at / BLOCK) != 7)
                atomic_fetch_add(&wrong, 1);
    }
    free(buf);
    return NULL;
}

/* More threads than rings: who finds none is told so. */
TEST_WITH(test_threads, setup, NULL)
{
    pthread_t threads[QM_TIER_RINGS + 4];

    shared = rings_here();
    for (size_t i = 0; i < QM_TIER_RINGS + 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, read_much, (void *)(uintptr_t)(i + 1)),
            0);
    for (size_t i = 0; i < QM_TIER_RINGS + 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(served > 0);
    assert_int_equal(wrong, 0);
    qm_tier_rings_free(shared);
}

/* ---- A tier
 * --------------------------------------------------------------------------- */

static struct qm_tier *open_tier(const char *name, bool ring, struct qm_tier_stats *s)
{
    struct qm_tier_config c;
    struct qm_tier *t;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", UINT64_C(64) << 20, BLOCK, 1};
    c.path = name;
    c.size = UINT64_C(8) << 20;
    c.admit = QM_TIER_ADMIT_ALL;
    c.ring = ring;
    t = open_ok(&c);
    qm_tier_get_stats(t, s);
    return t;
}

/* Reads MANY blocks of a tier that has the even ones, to buffers of which half are
 * aligned.  Returns the hits. */
static size_t read_tier(struct qm_tier *t)
{
    struct qm_tier_read r[MANY];
    size_t hits;

    for (size_t i = 0; i < MANY; i++)
        r[i] = (struct qm_tier_read){.block = i, .buf = memory + i * BLOCK + i % 4 * 8};
    hits = qm_tier_read(t, r, MANY);
    for (size_t i = 0; i < MANY; i++)
        if (r[i].hit)
            assert_int_equal(version_of(r[i].buf, BLOCK, i), 3);
    return hits;
}

/* The same hits with rings, without, and where the kernel has none; a block that the
 * disk has spoilt is a miss, and the others are not. */
TEST_WITH(test_tier, setup, NULL)
{
    struct qm_tier_stats s;
    struct qm_tier *t;
    char name[80], *block = memory;
    int tier;

    snprintf(name, sizeof name, "%s/tier", dir);
    t = open_tier(name, true, &s);
    for (uint64_t i = 0; i < MANY; i += 2) {
        struct qm_tier_insert insert = {
            .block = i, .data = block, .ticket = qm_tier_ticket(t)};

        make_block(block, BLOCK, i, 3);
        assert_int_equal(qm_tier_insert(t, &insert), 0);
    }
    assert_int_equal(qm_tier_sync(t), 0);
    calls = 0;
    assert_int_equal(read_tier(t), MANY / 2);
    assert_true((calls > 0) == (s.rings > 0));
    assert_true(!there || !s.direct || s.rings > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    t = open_tier(name, false, &s);
    assert_int_equal(s.rings, 0);
    calls = 0;
    assert_int_equal(read_tier(t), MANY / 2);
    assert_int_equal(calls, 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    kernel.init = -EPERM;
    t = open_tier(name, true, &s);
    assert_int_equal(s.rings, 0);
    assert_int_equal(read_tier(t), MANY / 2);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);

    setup(NULL);
    t = open_tier(name, true, &s);
    tier = open(name, O_RDWR);
    assert_true(tier != -1);
    for (off_t at = 0;; at += 4096) {
        assert_int_equal(pread(tier, block, BLOCK, at), BLOCK);
        if (version_of(block, BLOCK, 42) == 3) {
            assert_int_equal(pwrite(tier, "x", 1, at + 99), 1);
            break;
        }
    }
    assert_int_equal(fsync(tier), 0);
    close(tier);
    assert_int_equal(read_tier(t), MANY / 2 - 1);
    assert_false(qm_tier_contains(t, 42));
    qm_tier_get_stats(t, &s);
    assert_int_equal(s.wrong_checksums, 1);
    assert_int_equal(s.lookups, s.hits + s.misses);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    unlink(name);
}

/* With O_DIRECT, if the file system has it: reads take a while then. */
static bool make_file(void)
{
    int direct;

    snprintf(path, sizeof path, "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    for (uint64_t i = 0; fd != -1 && i < BLOCKS; i++) {
        make_block(memory, BLOCK, i, 7);
        if (pwrite(fd, memory, BLOCK, (off_t)(i * BLOCK)) != BLOCK)
            return false;
    }
    direct = fd == -1 || fsync(fd) == -1 ? -1 : open(path, O_RDONLY | O_DIRECT);
    if (direct != -1 && pread(direct, memory, BLOCK, 0) == BLOCK) {
        close(fd);
        fd = direct;
    } else if (direct != -1) {
        close(direct);
    }
    return fd != -1;
}

int main(void)
{
    struct qm_tier_rings *rings;
    int r;

    memory = aligned_alloc(4096, (size_t)(MANY + 1) * BLOCK);
    if (!memory || !mkdtemp(dir) || !make_file())
        return 1;
    setup(NULL);
    rings = qm_tier_rings_new(fd);
    there = rings;
    qm_tier_rings_free(rings);
    if (!there)
        printf("this kernel has no io_uring for us: most of this is skipped\n");
    r = run_listed(NULL, NULL);
    close(fd);
    unlink(path);
    rmdir(dir);
    free(memory);
    return r;
}
