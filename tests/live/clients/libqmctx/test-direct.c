/* SPDX-License-Identifier: BSD-3-Clause */
/* test-direct.c - direct connections: contexts and requests, against the filter, whose
 * recorded trace says what arrived. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include <jansson.h>

#include "direct-fixture.h"
#include "tests/unit/check.h"

TEST_WITH(test_device, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(3);
    json_t *stats;
    char *text;

    assert_string_equal(qmctx_transport(ctx), "direct");
    assert_true(qmctx_connected(ctx));
    assert_int_equal(qmctx_size(ctx), SIZE);
    assert_int_equal(qmctx_block_size(ctx), BLOCK);
    assert_true(qmctx_is_read_only(ctx));
    text = qmctx_stats(ctx);
    assert_non_null(text);
    stats = json_loads(text, 0, NULL);
    assert_non_null(stats);
    assert_int_equal(json_integer_value(json_object_get(stats, "connections")), 3);
    assert_int_equal(json_integer_value(json_object_get(stats, "sessions")), 1);
    json_decref(stats);
    free(text);
    qmctx_close(ctx);
}

TEST_WITH(test_nested, set_up, tear_down)
{
    struct recorded *c, *t, *q;
    struct qmctx *ctx = connect_filter(0);

    must_read(ctx, 0, BLOCK, 0);
    assert_int_equal(qmctx_current(ctx), 0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_CONNECTION, 0xc0, "c0 a connection"), 0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_TRANSACTION, 0x70, NULL), 0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x90, "90 a query"), 0);
    assert_int_equal(qmctx_depth(ctx), 3);
    must_read(ctx, qmctx_current(ctx), BLOCK, 1 * BLOCK);
    must_read(ctx, qmctx_current(ctx), 100, 2 * BLOCK + 8);
    assert_int_equal(qmctx_end(ctx), 0);
    must_read(ctx, qmctx_current(ctx), BLOCK, 3 * BLOCK);
    /* Nothing is read in this one: it never gets there. */
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x91, NULL), 0);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    assert_int_equal(qmctx_end(ctx), -1);
    assert_int_equal(errno, EINVAL);
    close_and_load(ctx);
    c = begun(0xc0);
    t = begun(0x70);
    q = begun(0x90);
    assert_int_equal(c->kind, QM_CONNECTION);
    assert_int_equal(t->kind, QM_TRANSACTION);
    assert_int_equal(q->kind, QM_QUERY);
    assert_int_equal(t->parent, c->ctx);
    assert_int_equal(q->parent, t->ctx);
    assert_int_equal(count_events(QM_TRACE_READ, q->ctx), 2);
    assert_int_equal(count_events(QM_TRACE_READ, t->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, c->ctx), 0);
    for (unsigned i = 0; i < event_count; i++)
        assert_int_not_equal(events[i].klass, 0x91);
    /* The query ended by itself, and before the transaction's own read. */
    assert_int_equal(count_events(QM_TRACE_END, q->ctx), 1);
}

static void *in_another_thread(void *ctx)
{
    check(qmctx_current(ctx) == 0);
    return NULL;
}

/* One part of a program begins contexts, and another sends the requests. */
TEST_WITH(test_attached, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(2), *attached, *to_attached, *other;
    struct recorded *t, *q, *own;
    pthread_t thread;
    qmctx_id id;

    assert_int_equal(qmctx_attach(ctx, &attached), 0);
    assert_string_equal(qmctx_transport(attached), "attached");
    assert_true(qmctx_connected(attached));
    assert_int_equal(qmctx_attach(attached, &to_attached), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(qmctx_pread(attached, 0, &id, sizeof id, 0), -1);
    assert_int_equal(errno, ENOTSUP);

    assert_int_equal(qmctx_begin(attached, QMCTX_TRANSACTION, 0x70, NULL), 0);
    assert_int_equal(qmctx_begin(attached, QMCTX_QUERY, 0x90, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, in_another_thread, ctx), 0);
    pthread_join(thread, NULL);
    must_read(ctx, qmctx_current(ctx), BLOCK, 0);
    other = must_connect(1);
    assert_int_equal(qmctx_current(other), 0);
    qmctx_close(other);
    /* A context of the instance itself goes before. */
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x91, NULL), 0);
    must_read(ctx, qmctx_current(ctx), BLOCK, 1 * BLOCK);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(qmctx_end(attached), 0);
    must_read(ctx, qmctx_current(ctx), BLOCK, 2 * BLOCK);
    must_read(ctx, qmctx_current(ctx), BLOCK, 3 * BLOCK);

    /* Closing ends what is open, and hurts nobody else. */
    assert_int_not_equal(id = qmctx_current(ctx), 0);
    qmctx_close(attached);
    assert_int_equal(qmctx_current(ctx), 0);
    must_read(ctx, id, BLOCK, 4 * BLOCK);
    assert_int_equal(qmctx_attach(ctx, &attached), 0);
    assert_int_equal(qmctx_begin(attached, QMCTX_QUERY, 0x92, NULL), 0);
    must_read(ctx, qmctx_current(ctx), BLOCK, 5 * BLOCK);
    qmctx_close(attached);
    close_and_load(ctx);
    t = begun(0x70);
    q = begun(0x90);
    own = begun(0x91);
    assert_int_equal(t->parent, 0);
    assert_int_equal(q->parent, t->ctx);
    assert_int_equal(own->parent, 0);
    assert_int_equal(count_events(QM_TRACE_READ, t->ctx), 2);
    assert_int_equal(count_events(QM_TRACE_READ, q->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, own->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, begun(0x92)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_END, t->ctx), 1);
}

TEST_WITH(test_threads, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(3);

    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    check_threads();
}

/* Under nbdkit -r the server takes no writes at all: contexts go by hints. */
TEST_WITH(test_read_only, set_up, tear_down)
{
    struct qmctx *ctx;
    char c = 0;

    nbdkit_server_start(&server, "-r", "--filter=" FILTER, "pattern", "size=1G",
                        "cache-size=16M", "policy=none", record_arg, NULL);
    ctx = must_connect(3);
    assert_true(qmctx_is_read_only(ctx));
    assert_int_equal(qmctx_pwrite(ctx, 0, &c, 1, 0, false), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(qmctx_zero(ctx, 1, 0), -1);
    assert_int_equal(errno, EROFS);
    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    /* A hint carries 22 bits of the class: these fit. */
    check_threads();
}

TEST_WITH(test_more_contexts_than_slots, set_up, tear_down)
{
    enum { MANY = 40000 };
    qmctx_id *id = calloc(MANY, sizeof *id);
    unsigned begins = 0, untagged = 0;
    struct qmctx *ctx;
    char buf[512];

    assert_non_null(id);
    start_filter();
    ctx = must_connect(2);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, i + 1, NULL, &id[i]),
                         0);
        assert_int_equal(
            qmctx_pread(ctx, id[i], buf, sizeof buf, (uint64_t)(i % 100) * BLOCK), 0);
    }
    /* The first lost its slot long ago, and gets one again. */
    must_read(ctx, id[0], 512, 0);
    must_read(ctx, id[MANY - 1], 512, 0);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(qmctx_close_context(ctx, id[i]), 0);
    assert_int_equal(qmctx_close_context(ctx, id[0]), -1);
    assert_int_equal(errno, EINVAL);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    free(id);

    load_record();
    for (unsigned i = 0; i < event_count; i++) {
        begins += events[i].type == QM_TRACE_BEGIN;
        untagged += events[i].type == QM_TRACE_READ && events[i].ctx == 0;
    }
    assert_int_equal(begins, MANY + 1);
    assert_int_equal(untagged, 0);
}

TEST_WITH(test_handles, set_up, tear_down)
{
    qmctx_id outer, inner, other;
    struct qmctx *ctx = connect_filter(2);

    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_THREAD, 1, "1 t", &outer), 0);
    assert_int_equal(qmctx_open_context(ctx, outer, QMCTX_QUERY, 2, "2 q", &inner), 0);
    assert_int_equal(qmctx_open_context(ctx, 0, (enum qmctx_kind)0, 2, "q", &other),
                     -1);
    assert_int_equal(errno, EINVAL);
    must_read(ctx, inner, 512, 0);
    must_read(ctx, outer, 512, BLOCK);
    /* Ends what is nested in it; requests that still name those are untagged. */
    assert_int_equal(qmctx_close_context(ctx, outer), 0);
    must_read(ctx, inner, 512, 2 * BLOCK);
    must_read(ctx, 0xdeadbeef, 512, 2 * BLOCK);
    assert_int_equal(qmctx_close_context(ctx, inner), -1);
    assert_int_equal(qmctx_close_context(ctx, 0), -1);
    assert_int_equal(qmctx_open_context(ctx, outer, QMCTX_QUERY, 3, "3 q", &other), 0);
    assert_int_not_equal(other, inner);
    must_read(ctx, other, 512, 3 * BLOCK);
    close_and_load(ctx);
    assert_int_equal(begun(2)->parent, begun(1)->ctx);
    assert_int_equal(begun(3)->parent, 0);
    assert_int_equal(count_events(QM_TRACE_READ, begun(1)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, begun(2)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, begun(3)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, 0), 2);
}

/* Deeper than the wire allows: the reads count for what is around. */
TEST_WITH(test_too_deep, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(1);

    for (unsigned i = 1; i <= 100; i++)
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    close_and_load(ctx);
    assert_int_equal(count_events(QM_TRACE_READ, begun(64)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
}

TEST_WITH(test_bounds, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(1);
    char buf[16];

    assert_int_equal(qmctx_pread(ctx, 0, buf, 16, SIZE - 16), 0);
    assert_int_equal(qmctx_pread(ctx, 0, buf, 0, SIZE), 0);
    assert_int_equal(qmctx_pread(ctx, 0, buf, 16, SIZE - 15), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(qmctx_pread(ctx, 0, buf, 16, UINT64_MAX - 8), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(qmctx_pread(ctx, 0, buf, SIZE_MAX, 16), -1);
    assert_int_equal(errno, EINVAL);
    /* Not the control window, nor another slot. */
    assert_int_equal(qmctx_pread(ctx, 0, buf, 16, QM_WIRE_CONTROL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(qmctx_pread(ctx, 0, buf, 16, UINT64_C(1) << 48), -1);
    assert_int_equal(errno, EINVAL);
    qmctx_close(ctx);
}

TEST_WITH(test_large, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(2);

    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    /* More than libnbd or the server take at once, and not aligned. */
    must_read(ctx, qmctx_current(ctx), 80 << 20, 8);
    qmctx_close(ctx);
}

TEST_WITH(test_write, set_up, tear_down)
{
    static char a[70 << 20], b[70 << 20];
    struct qmctx *ctx;
    qmctx_id id;

    nbdkit_server_start(&server, "--filter=" FILTER, "memory", "size=128M",
                        "cache-size=16M", "policy=none", NULL);
    ctx = must_connect(0);
    assert_false(qmctx_is_read_only(ctx));
    for (size_t i = 0; i < sizeof a; i++)
        a[i] = (char)(i * 2654435761u >> 13);
    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id), 0);
    assert_int_equal(qmctx_pwrite(ctx, id, a, sizeof a, 511, true), 0);
    assert_int_equal(qmctx_flush(ctx), 0);
    assert_int_equal(qmctx_pread(ctx, 0, b, sizeof b, 511), 0);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(qmctx_zero(ctx, 1 << 20, 1 << 20), 0);
    memset(a + (1 << 20) - 511, 0, 1 << 20);
    assert_int_equal(qmctx_pread(ctx, id, b, sizeof b, 511), 0);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(qmctx_trim(ctx, 64 << 20, 0), 0);
    assert_int_equal(qmctx_zero(ctx, 1, 128 << 20), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(qmctx_pwrite(ctx, 0, a, 2, (128 << 20) - 1, false), -1);
    assert_int_equal(errno, EINVAL);
    qmctx_close(ctx);
}

/* A server that can neither zero nor take several connections. */
TEST_WITH(test_zeros_are_written, set_up, tear_down)
{
    static char buf[200 << 10];
    struct qmctx *ctx;

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=nozero",
                        "--filter=multi-conn", "memory", "size=1M", "cache-size=16M",
                        "policy=none", "zeromode=none", "multi-conn-mode=disable",
                        NULL);
    ctx = must_connect(0);
    memset(buf, 'x', sizeof buf);
    assert_int_equal(qmctx_pwrite(ctx, 0, buf, sizeof buf, 0, false), 0);
    assert_int_equal(qmctx_zero(ctx, sizeof buf - 2, 1), 0);
    assert_int_equal(qmctx_pread(ctx, 0, buf, sizeof buf, 0), 0);
    assert_int_equal(buf[0], 'x');
    assert_int_equal(buf[sizeof buf - 1], 'x');
    for (size_t i = 1; i < sizeof buf - 1; i++)
        assert_int_equal(buf[i], 0);
    /* Trimming does not write any: that would fill a thin volume. */
    memset(buf, 'y', sizeof buf);
    assert_int_equal(qmctx_pwrite(ctx, 0, buf, 4096, 0, false), 0);
    assert_int_equal(qmctx_trim(ctx, 4096, 0), 0);
    assert_int_equal(qmctx_pread(ctx, 0, buf, 4096, 0), 0);
    for (size_t i = 0; i < 4096; i++)
        assert_int_equal(buf[i], 'y');
    qmctx_close(ctx);
}

TEST_WITH(test_server_error, set_up, tear_down)
{
    struct qmctx *ctx;
    char buf[512];

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=error", "pattern",
                        "size=1G", "cache-size=16M", "policy=none",
                        "error-pread=ENOSPC", "error-pread-rate=1", NULL);
    ctx = must_connect(2);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    assert_int_equal(qmctx_pread(ctx, qmctx_current(ctx), buf, sizeof buf, 0), -1);
    assert_int_equal(errno, ENOSPC);
    assert_true(qmctx_connected(ctx));
    qmctx_close(ctx);
}

static void expect_no_connection(const char *uri, int err, const char *part)
{
    struct qmctx *ctx;

    assert_int_equal(qmctx_connect(uri, 0, &ctx), -1);
    assert_int_equal(errno, err);
    assert_null(ctx);
    if (!strstr(qmctx_error(), part))
        fail_msg("\"%s\" lacks \"%s\"", qmctx_error(), part);
}

TEST_WITH(test_cannot_connect, set_up, tear_down)
{
    char uri[200];

    expect_no_connection("nbd+unix:///?socket=/nonexistent", ENOENT, "/nonexistent");
    expect_no_connection("no uri at all", EINVAL, "no uri at all");
    snprintf(uri, sizeof uri, "nbd+unix:///name?socket=%s/socket", server.dir);
    nbdkit_server_start(&server, "memory", "1G", NULL);
    expect_no_connection(server.uri, EPROTO, "QuickMine");
    expect_no_connection(uri, EINVAL, "must not name an export");
    nbdkit_server_stop(&server, SIGTERM);
    /* Large enough, but not ours. */
    nbdkit_server_start(&server, "pattern", "size=9223372036854775296", NULL);
    expect_no_connection(server.uri, EPROTO, "header");
}

static void *open_and_leave(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    job->failed += qmctx_begin(job->ctx, QMCTX_THREAD, 5, NULL) != 0;
    job->failed += qmctx_begin(job->ctx, QMCTX_QUERY, 6, NULL) != 0;
    job->failed += qmctx_pread(job->ctx, qmctx_current(job->ctx), buf, 512, 0) != 0;
    return NULL;
}

TEST_WITH(test_thread_exit, set_up, tear_down)
{
    struct job job = {0};
    pthread_t thread;

    /* The order in which they are recorded is the server's to keep. */
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=1G",
                        "cache-size=16M", "policy=none", "requests=serial", record_arg,
                        NULL);
    job.ctx = must_connect(1);
    assert_int_equal(pthread_create(&thread, NULL, open_and_leave, &job), 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.failed, 0);
    must_read(job.ctx, 0, 512, BLOCK);
    qmctx_close(job.ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    /* The contexts ended with the thread, before the last read. */
    assert_int_equal(events[event_count - 1].type, QM_TRACE_READ);
    assert_int_equal(events[event_count - 1].ctx, 0);
    assert_int_equal(count_events(QM_TRACE_END, begun(5)->ctx), 1);
}
