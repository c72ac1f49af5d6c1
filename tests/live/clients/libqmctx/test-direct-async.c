/* SPDX-License-Identifier: BSD-3-Clause */
/* test-direct-async.c - direct connections: asynchronous requests, and who polls for
 * them. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "direct-fixture.h"

enum { ROUNDS = 20 };

static _Atomic bool aio_over;

/* Each context's reads were recorded, once each; in their order, if ordered. */
static void check_reads(bool ordered)
{
    load_record();
    for (unsigned i = 0; i < 8; i++) {
        bool seen[IN_FLIGHT * ROUNDS] = {false};
        uint64_t last = 0, read;
        unsigned reads = 0;

        for (unsigned k = 0; k < event_count; k++) {
            if (events[k].type != QM_TRACE_READ || events[k].ctx != begun(i + 1)->ctx)
                continue;
            read = events[k].offset / BLOCK;
            assert_in_range(read, 0, IN_FLIGHT * ROUNDS - 1);
            assert_int_equal(read % IN_FLIGHT % 8, i);
            assert_false(seen[read]);
            seen[read] = true;
            if (ordered)
                assert_true(reads == 0 || events[k].offset > last);
            last = events[k].offset;
            reads++;
        }
        assert_int_equal(reads, IN_FLIGHT * ROUNDS / 8);
    }
}

/* requests: of the filter, or NULL for what it does by default. */
static void async(const char *requests, bool ordered)
{
    static struct aio aio[IN_FLIGHT];
    qmctx_id id[8];
    struct qmctx *ctx;
    int n;

    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=1G",
                        "cache-size=16M", "policy=none", record_arg, requests, NULL);
    ctx = must_connect(4);
    assert_int_equal(qmctx_poll(ctx, -1), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, i + 1, NULL, &id[i]),
                         0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            aio[i] = (struct aio){.offset = (uint64_t)(round * IN_FLIGHT + i) * BLOCK};
            assert_int_equal(qmctx_aio_pread(ctx, id[i % 8], aio[i].buf,
                                             sizeof aio[i].buf, aio[i].offset, aio_done,
                                             &aio[i]),
                             0);
        }
        while ((n = qmctx_poll(ctx, -1)) > 0)
            assert_true(n <= IN_FLIGHT);
        assert_int_equal(n, 0);
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            assert_int_equal(aio[i].calls, 1);
            assert_int_equal(aio[i].error, 0);
            assert_true(is_pattern(aio[i].buf, sizeof aio[i].buf, aio[i].offset));
        }
    }
    /* Of no bytes: done() is called all the same, and not from within. */
    aio[0] = (struct aio){.error = -1};
    assert_int_equal(qmctx_aio_pread(ctx, id[0], aio[0].buf, 0, 0, aio_done, &aio[0]),
                     0);
    assert_int_equal(aio[0].calls, 0);
    assert_int_equal(qmctx_poll(ctx, -1), 0);
    assert_int_equal(aio[0].calls, 1);
    assert_int_equal(aio[0].error, 0);
    assert_int_equal(qmctx_aio_pread(ctx, 0, aio[0].buf, 512, SIZE, aio_done, NULL),
                     -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(
        qmctx_aio_pwrite(ctx, 0, aio[0].buf, 512, 0, false, aio_done, NULL), -1);
    assert_int_equal(errno, EROFS);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(qmctx_close_context(ctx, id[i]), 0);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    check_reads(ordered);
}

TEST_WITH(test_async, set_up, tear_down)
{
    async("requests=serial", true);
}

/* On nbdkit 1.34 and newer requests overtake each other. */
TEST_WITH(test_async_default, set_up, tear_down)
{
    async(NULL, false);
}

/* Writes, and requests that fail because the server goes away. */
TEST_WITH(test_async_write_and_loss, set_up, tear_down)
{
    static struct aio aio[IN_FLIGHT];
    struct qmctx *ctx;
    unsigned failed = 0;

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=delay", "memory",
                        "size=128M", "cache-size=16M", "policy=none", "rdelay=60",
                        NULL);
    ctx = must_connect(2);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        aio[i] = (struct aio){.offset = i * 512};
        memset(aio[i].buf, (int)i, sizeof aio[i].buf);
        assert_int_equal(qmctx_aio_pwrite(ctx, 0, aio[i].buf, 512, i * 512, i % 2,
                                          aio_done, &aio[i]),
                         0);
    }
    while (qmctx_poll(ctx, 1000) > 0)
        ;
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        assert_int_equal(aio[i].calls, 1);
        assert_int_equal(aio[i].error, 0);
    }
    /* Reads below take long enough for all of these to be in flight. */
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        aio[i].calls = 0;
        assert_int_equal(
            qmctx_aio_pread(ctx, 0, aio[i].buf, 512, (1 + i) << 20, aio_done, &aio[i]),
            0);
    }
    assert_int_equal(qmctx_poll(ctx, 0), IN_FLIGHT);
    nbdkit_server_stop(&server, SIGKILL);
    while (qmctx_poll(ctx, -1) > 0)
        ;
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        assert_int_equal(aio[i].calls, 1);
        failed += aio[i].error == ENOTCONN;
    }
    assert_int_equal(failed, IN_FLIGHT);
    qmctx_close(ctx);
}

/* What is in flight when the instance is closed is given up. */
TEST_WITH(test_close_in_flight, set_up, tear_down)
{
    static struct aio aio[IN_FLIGHT];
    struct qmctx *ctx;

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=delay", "pattern",
                        "size=1G", "cache-size=16M", "policy=none", "rdelay=60", NULL);
    ctx = must_connect(2);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        aio[i] = (struct aio){.offset = (uint64_t)i * BLOCK};
        assert_int_equal(
            qmctx_aio_pread(ctx, 0, aio[i].buf, 512, aio[i].offset, aio_done, &aio[i]),
            0);
    }
    qmctx_close(ctx);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        assert_int_equal(aio[i].calls, 1);
        assert_int_equal(aio[i].error, ENOTCONN);
    }
    nbdkit_server_stop(&server, SIGKILL);
}

static void *read_once(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    job->tid = gettid();
    job->failed =
        qmctx_pread(job->ctx, 0, buf, sizeof buf, (uint64_t)job->number * BLOCK) != 0;
    job->over = true;
    return NULL;
}

static bool sleeps(pid_t tid)
{
    char path[64], line[256] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    f = fopen(path, "r");
    if (f) {
        if (!fgets(line, sizeof line, f))
            line[0] = '\0';
        fclose(f);
    }
    return strstr(line, ") S");
}

/* Starts read_once(), and returns when it waits for the reply; false if, on a busy
 * machine, that has come before it was seen to wait. */
static bool start_waiting(struct job *job, pthread_t *thread)
{
    job->tid = 0;
    job->over = false;
    assert_int_equal(pthread_create(thread, NULL, read_once, job), 0);
    while (!job->over && (job->tid == 0 || !sleeps(job->tid)))
        usleep(1000);
    if (!job->over)
        return true;
    pthread_join(*thread, NULL);
    assert_int_equal(job->failed, 0);
    return false;
}

/* A thread that polls for its own request leaves when it has the reply; then the one in
 * qmctx_poll() has to take over, which has been told nothing else. */
TEST_WITH(test_poll_takes_over, set_up, tear_down)
{
    struct aio aio = {.offset = BLOCK};
    struct job job = {0};
    pthread_t thread;

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=delay", "pattern",
                        "size=1G", "cache-size=16M", "policy=none", "rdelay=300ms",
                        NULL);
    job.ctx = must_connect(1);
    /* Each time something that is in no cache. */
    for (job.number = 2; !start_waiting(&job, &thread); job.number++)
        assert_true(job.number < 100);
    assert_int_equal(
        qmctx_aio_pread(job.ctx, 0, aio.buf, 512, aio.offset, aio_done, &aio), 0);
    while (qmctx_poll(job.ctx, -1) > 0)
        ;
    assert_int_equal(aio.calls, 1);
    assert_int_equal(aio.error, 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.failed, 0);
    qmctx_close(job.ctx);
}

/* Some threads poll, some read, and all share the connections. */
static _Atomic unsigned aio_finished;

static void count_done(void *opaque, int error)
{
    atomic_fetch_add(&aio_finished, error == 0);
}

static void *submit_and_poll(void *opaque)
{
    struct job *job = opaque;
    static char sink[THREADS][32][512];

    for (unsigned i = 0; i < 50; i++) {
        for (unsigned k = 0; k < 32; k++)
            job->failed +=
                qmctx_aio_pread(job->ctx, 0, sink[job->number][k], 512,
                                (uint64_t)(i * 32 + k) * BLOCK, count_done, NULL) != 0;
        while (qmctx_poll(job->ctx, -1) > 0)
            ;
    }
    return NULL;
}

TEST_WITH(test_async_and_sync, set_up, tear_down)
{
    struct job job[2 * THREADS];
    pthread_t thread[2 * THREADS];
    struct qmctx *ctx = connect_filter(3);

    aio_finished = 0;
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .number = i % THREADS};
        assert_int_equal(pthread_create(&thread[i], NULL,
                                        i < THREADS ? work : submit_and_poll, &job[i]),
                         0);
    }
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    assert_int_equal(qmctx_poll(ctx, 0), 0);
    assert_int_equal(aio_finished, THREADS * 50 * 32);
    qmctx_close(ctx);
}

/* done() is called by a thread that waits for a request of its own, and takes a while:
 * a thread in qmctx_poll() must see its end. */
static void slow_done(void *opaque, int error)
{
    struct aio *aio = opaque;

    usleep(2000);
    aio_done(aio, error);
}

static void *read_on(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    while (!atomic_load(&aio_over))
        job->failed += qmctx_pread(job->ctx, 0, buf, sizeof buf, 0) != 0;
    return NULL;
}

TEST_WITH(test_others_done, set_up, tear_down)
{
    struct job job = {.failed = 0};
    struct aio aio;
    pthread_t thread;

    start_filter();
    job.ctx = must_connect(1);
    atomic_store(&aio_over, false);
    assert_int_equal(pthread_create(&thread, NULL, read_on, &job), 0);
    for (unsigned i = 0; i < 300; i++) {
        aio = (struct aio){.offset = 0};
        assert_int_equal(
            qmctx_aio_pread(job.ctx, 0, aio.buf, sizeof aio.buf, 0, slow_done, &aio),
            0);
        while (!atomic_load(&aio.done))
            assert_true(qmctx_poll(job.ctx, -1) >= 0);
    }
    atomic_store(&aio_over, true);
    pthread_join(thread, NULL);
    assert_int_equal(job.failed, 0);
    qmctx_close(job.ctx);
}
