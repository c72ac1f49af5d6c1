/* SPDX-License-Identifier: BSD-3-Clause */
/* test-mount-threads.c - the same of several threads, children of fork(), threads
 * without the capability, and several instances. */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "mount-fixture.h"

struct job {
    struct qmctx *ctx;
    struct mock_mount *m;
    uint64_t number;
    unsigned rounds;
    unsigned failed;
    _Atomic unsigned *running;
};

static void *leave_open(void *opaque)
{
    struct job *job = opaque;

    for (unsigned i = 0; i < 3; i++) {
        qmctx_begin(job->ctx, QMCTX_QUERY, job->number, NULL);
        if (entry_of(job->m)->klass != job->number)
            job->failed++;
    }
    return NULL;
}

TEST(test_thread_exit)
{
    struct mock_mount m = {.greet = true, .entries = 4};
    struct job job = {.m = &m};
    pthread_t thread;

    mock_mount_start(&m, path);
    job.ctx = must_announce();
    for (job.number = 1; job.number < 20; job.number++) {
        assert_int_equal(pthread_create(&thread, NULL, leave_open, &job), 0);
        pthread_join(thread, NULL);
        for (unsigned i = 0; i < m.entries; i++)
            assert_int_equal(m.entry[i].kind, 0);
    }
    assert_int_equal(job.failed, 0);
    qmctx_close(job.ctx);
    mock_mount_stop(&m);
}

/* A name of 11 times its class. */
enum { TIMES = 11 };

static void make_name(char *name, uint64_t klass)
{
    for (unsigned i = 0; i < TIMES; i++)
        snprintf(name + 16 * i, 17, "%016llx", (unsigned long long)klass);
}

/* Contexts of many threads at once: each sees its own, nested as it did it.  Class and
 * name of an entry belong together, whenever the mount looks. */
static void *many(void *opaque)
{
    struct job *job = opaque;
    char name[16 * TIMES + 1];

    for (unsigned i = 0; i < job->rounds; i++) {
        unsigned depth = 1 + i % 5;

        for (unsigned k = 0; k < depth; k++) {
            uint64_t klass = job->number << 32 | (i << 3) | k;

            make_name(name, klass);
            qmctx_begin(job->ctx, QMCTX_QUERY, klass, name);
            if (entry_of(job->m)->klass != klass)
                job->failed++;
        }
        if (qmctx_depth(job->ctx) != depth)
            job->failed++;
        qmctx_end_to(job->ctx, 0);
        if (fsgid() != 0)
            job->failed++;
    }
    atomic_fetch_sub(job->running, 1);
    return NULL;
}

static unsigned inconsistent(struct mock_mount *m)
{
    typedef uint32_t __attribute__((may_alias)) word;
    unsigned failed = 0;

    for (unsigned i = 0; i < m->entries; i++) {
        struct qm_mount_entry *e = &m->entry[i];
        uint64_t version = atomic_load(&e->version);
        char name[16 * TIMES + 1] = "", expected[16 * TIMES + 1];
        uint64_t klass = __atomic_load_n(&e->klass, __ATOMIC_ACQUIRE);
        uint32_t kind = __atomic_load_n(&e->kind, __ATOMIC_ACQUIRE), w;

        for (size_t k = 0; k < 16 * TIMES; k += sizeof w) {
            w = __atomic_load_n((word *)(void *)(e->name + k), __ATOMIC_ACQUIRE);
            memcpy(name + k, &w, sizeof w);
        }
        if (version & 1 || atomic_load(&e->version) != version || kind == 0)
            continue;
        make_name(expected, klass);
        failed += strcmp(name, expected) != 0;
    }
    return failed;
}

TEST(test_threads)
{
    enum { THREADS = 8 };
    struct mock_mount m = {.greet = true, .entries = 64};
    _Atomic unsigned running = THREADS;
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx = announce_to(&m);
    unsigned failed = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){
            .ctx = ctx, .m = &m, .number = i + 1, .rounds = 5000, .running = &running};
        assert_int_equal(pthread_create(&thread[i], NULL, many, &job[i]), 0);
    }
    while (atomic_load(&running) > 0)
        failed += inconsistent(&m);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    assert_int_equal(failed, 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

/* The mount comes and goes while threads begin and end. */
static void *steady(void *opaque)
{
    struct job *job = opaque;

    while (atomic_load(job->running) > 0) {
        qmctx_begin(job->ctx, QMCTX_TRANSACTION, 1, NULL);
        qmctx_begin(job->ctx, QMCTX_QUERY, 2, NULL);
        usleep(1000);
        qmctx_end_to(job->ctx, 0);
        if (fsgid() != 0)
            job->failed++;
    }
    return NULL;
}

TEST(test_threads_mount_restarts)
{
    enum { THREADS = 4 };
    _Atomic unsigned running = 1;
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .running = &running};
        assert_int_equal(pthread_create(&thread[i], NULL, steady, &job[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct mock_mount m = {.greet = true};

        mock_mount_start(&m, path);
        assert_true(WAIT_FOR(qmctx_connected(ctx)));
        mock_mount_stop(&m);
    }
    atomic_store(&running, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    qmctx_close(ctx);
}

TEST(test_fork)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);
    uint64_t version;
    int status;
    pid_t pid;

    qmctx_begin(ctx, QMCTX_QUERY, 1, NULL);
    e = entry_of(&m);
    version = e->version;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool fine = fsgid() == 0 && !qmctx_connected(ctx) && qmctx_depth(ctx) == 0 &&
                    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL) == 0 &&
                    qmctx_end(ctx) == 0 && qmctx_end_to(ctx, 0) == 0 && fsgid() == 0;
        struct qmctx *own;

        qmctx_close(ctx);
        /* A child may have an instance of its own. */
        fine = fine && qmctx_announce("/nonexistent", &own) == 0 &&
               qmctx_begin(own, QMCTX_QUERY, 3, NULL) == 0 && qmctx_depth(own) == 1;
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ptr_equal(entry_of(&m), e);
    assert_int_equal(e->version, version);
    assert_int_equal(e->kind, QMCTX_QUERY);
    assert_true(qmctx_connected(ctx));
    assert_int_equal(qmctx_end(ctx), 0);

    /* The mount sees the parent's end although a child lives on. */
    pid = fork();
    if (pid == 0) {
        /* Not for longer than the test, should that fail. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    mock_mount_stop(&m);
}

static void *drop_and_announce(void *opaque)
{
    struct job *job = opaque;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    struct qmctx *ctx;
    unsigned tries = 0;

    /* Capabilities are the thread's alone. */
    if (syscall(SYS_capget, &header, data))
        job->failed++;
    data[0].effective &= ~(1u << CAP_SETGID);
    data[0].permitted &= ~(1u << CAP_SETGID);
    if (syscall(SYS_capset, &header, data))
        job->failed++;
    /* A mount that has not greeted yet, on a busy machine, is one that is not there. */
    while (qmctx_announce(path, &ctx) == 0 && errno == EAGAIN && tries++ < 60)
        qmctx_close(ctx);
    if (!ctx || qmctx_connected(ctx) || !strstr(qmctx_error(), "CAP_SETGID") ||
        qmctx_begin(ctx, QMCTX_QUERY, 1, NULL) || fsgid() != 0 || qmctx_end(ctx))
        job->failed++;
    qmctx_close(ctx);
    return NULL;
}

TEST(test_no_capability)
{
    struct mock_mount m = {.greet = true};
    struct job job = {.m = &m};
    pthread_t thread;

    mock_mount_start(&m, path);
    assert_int_equal(pthread_create(&thread, NULL, drop_and_announce, &job), 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.failed, 0);
    mock_mount_stop(&m);
}

TEST(test_instances)
{
    struct mock_mount m = {.greet = true};
    struct qmctx *a, *b;
    uint32_t outer;

    mock_mount_start(&m, path);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(qmctx_announce(path, &a), 0);
        assert_int_equal(qmctx_announce("/nonexistent", &b), 0);
        assert_true(WAIT_FOR(nudge(a)));
        assert_int_equal(qmctx_depth(a), 0);
        assert_int_equal(qmctx_begin(b, QMCTX_QUERY, 1, NULL), 0);
        assert_int_equal(qmctx_begin(a, QMCTX_QUERY, 2, NULL), 0);
        outer = fsgid();
        assert_int_equal(qmctx_begin(b, QMCTX_QUERY, 3, NULL), 0);
        assert_int_equal(qmctx_depth(a), 1);
        assert_int_equal(qmctx_depth(b), 2);
        qmctx_close(b);
        assert_int_equal(fsgid(), outer);
        qmctx_close(a);
        assert_int_equal(fsgid(), 0);
        assert_true(WAIT_FOR(m.gone == i + 1));
    }
    mock_mount_stop(&m);
}

int main(void)
{
    if (!can_set_fsgid())
        return 77;
    return run_listed(set_up, tear_down);
}
