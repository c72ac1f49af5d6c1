/* test_direct.c - requests and contexts over libnbd, against servers that are real
 * nbdkits: with our filter, whose recorded trace says what arrived, and with
 * tagged-plugin.c, which can be what the filter is not. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "client-patches/libqmctx/qmctx.h"
#include "client-patches/protocol/quickmine-protocol.h"
#include "nbdkit-server.h"
#include "trace/trace.h"

#define SIZE  (UINT64_C(1) << 30) /* of the device, unless a test says otherwise */
#define BLOCK 16384

static struct nbdkit_server server;
static char record[96], record_arg[112];

static int set_up(void **state)
{
    nbdkit_server_init(&server);
    snprintf(record, sizeof record, "%s/record", server.dir);
    snprintf(record_arg, sizeof record_arg, "record=%s", record);
    return 0;
}

static int tear_down(void **state)
{
    nbdkit_server_destroy(&server);
    return 0;
}

/* Over the pattern plugin, each 8 bytes of which hold their offset, in big endian. */
static void start_filter(void)
{
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=1G",
                        "cache-size=16M", "policy=none", record_arg, NULL);
}

static struct qmctx *must_connect(unsigned connections)
{
    struct qmctx *ctx;

    if (qmctx_connect(server.uri, connections, &ctx))
        fail_msg("%s", qmctx_error());
    return ctx;
}

static bool is_pattern(const void *buf, size_t count, uint64_t offset)
{
    for (size_t i = 0; i + 8 <= count; i += 8)
        if (memcmp((const char *)buf + i, &(uint64_t){htobe64(offset + i)}, 8))
            return false;
    return true;
}

static void must_read(struct qmctx *ctx, qmctx_id id, size_t count, uint64_t offset)
{
    char *buf = malloc(count);

    assert_non_null(buf);
    if (qmctx_pread(ctx, id, buf, count, offset))
        fail_msg("read %zu at %" PRIu64 ": %s", count, offset, qmctx_error());
    assert_true(is_pattern(buf, count, offset));
    free(buf);
}

/* What was recorded, read back. */
#define MAX_EVENTS 200000
static struct recorded {
    char type;
    uint64_t ctx, parent, offset, length;
    uint64_t klass; /* number, or what its name begins with */
    enum qm_kind kind;
} events[MAX_EVENTS];
static unsigned event_count;

static void load_record(void)
{
    char err[256] = "";
    struct qm_trace_reader *r = qm_trace_open(record, err, sizeof err);
    struct qm_event e;
    int rc;

    if (!r)
        fail_msg("%s", err);
    for (event_count = 0; (rc = qm_trace_next(r, &e)) == 1; event_count++) {
        struct recorded *to = &events[event_count];

        assert_true(event_count < MAX_EVENTS - 1);
        *to = (struct recorded){.type = e.type, .ctx = e.ctx};
        if (e.type == QM_TRACE_BEGIN) {
            to->kind = e.kind;
            to->parent = e.parent;
            to->klass = strtoull(e.klass, NULL, 16);
        } else if (e.type != QM_TRACE_END) {
            to->offset = e.offset;
            to->length = e.length;
        }
    }
    if (rc == -1)
        fail_msg("%s", qm_trace_error(r));
    qm_trace_free(r);
}

/* The begin of a context of that class; there is exactly one. */
static struct recorded *begun(uint64_t klass)
{
    struct recorded *found = NULL;

    for (unsigned i = 0; i < event_count; i++) {
        if (events[i].type == QM_TRACE_BEGIN && events[i].klass == klass) {
            assert_null(found);
            found = &events[i];
        }
    }
    assert_non_null(found);
    return found;
}

static unsigned count_events(char type, uint64_t ctx)
{
    unsigned n = 0;

    for (unsigned i = 0; i < event_count; i++)
        n += events[i].type == type && events[i].ctx == ctx;
    return n;
}

static void test_device(void **state)
{
    struct qmctx *ctx;
    json_t *stats;
    char *text;

    start_filter();
    ctx = must_connect(3);
    assert_string_equal(qmctx_carrier(ctx), "direct");
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

static void test_nested(void **state)
{
    struct recorded *c, *t, *q;
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(0);
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
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);

    load_record();
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

/* Eight threads, each with contexts of its own over shared connections. */
enum { THREADS = 8, CONTEXTS = 40, READS = 5 };

struct job {
    struct qmctx *ctx;
    unsigned number;
    unsigned failed;
    _Atomic pid_t tid;
};

static uint64_t block_of(uint64_t klass, unsigned read)
{
    return klass * READS + read;
}

static void *work(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    for (unsigned i = 0; i < CONTEXTS; i++) {
        uint64_t klass = 1 + job->number * CONTEXTS + i;

        job->failed += qmctx_begin(job->ctx, QMCTX_TRANSACTION, klass << 9, NULL) != 0;
        job->failed += qmctx_begin(job->ctx, QMCTX_QUERY, klass, NULL) != 0;
        for (unsigned k = 0; k < READS; k++) {
            uint64_t offset = block_of(klass, k) * BLOCK;

            if (qmctx_pread(job->ctx, qmctx_current(job->ctx), buf, sizeof buf,
                            offset) ||
                !is_pattern(buf, sizeof buf, offset))
                job->failed++;
        }
        job->failed += qmctx_end_to(job->ctx, 0) != 0;
    }
    return NULL;
}

static void run_threads(struct qmctx *ctx)
{
    struct job job[THREADS];
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .number = i};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &job[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
}

static void check_threads(void)
{
    load_record();
    for (uint64_t klass = 1; klass <= THREADS * CONTEXTS; klass++) {
        struct recorded *q = begun(klass), *t = begun(klass << 9);
        unsigned n = 0;

        assert_int_equal(q->parent, t->ctx);
        for (unsigned i = 0; i < event_count; i++) {
            if (events[i].type == QM_TRACE_READ && events[i].ctx == q->ctx)
                assert_int_equal(events[i].offset / BLOCK, block_of(klass, n++));
        }
        assert_int_equal(n, READS);
        assert_int_equal(count_events(QM_TRACE_READ, t->ctx), 0);
        assert_int_equal(count_events(QM_TRACE_END, t->ctx), 1);
    }
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
}

static void test_threads(void **state)
{
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(3);
    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    check_threads();
}

/* Under nbdkit -r the server takes no writes at all: contexts go by hints. */
static void test_read_only(void **state)
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

static void test_more_contexts_than_slots(void **state)
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

static void test_handles(void **state)
{
    qmctx_id outer, inner, other;
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(2);
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
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);

    load_record();
    assert_int_equal(begun(2)->parent, begun(1)->ctx);
    assert_int_equal(begun(3)->parent, 0);
    assert_int_equal(count_events(QM_TRACE_READ, begun(1)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, begun(2)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, begun(3)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, 0), 2);
}

/* Deeper than the wire allows: the reads count for what is around. */
static void test_too_deep(void **state)
{
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(1);
    for (unsigned i = 1; i <= 100; i++)
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    assert_int_equal(count_events(QM_TRACE_READ, begun(64)->ctx), 1);
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
}

static void test_bounds(void **state)
{
    struct qmctx *ctx;
    char buf[16];

    start_filter();
    ctx = must_connect(1);
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

static void test_large(void **state)
{
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(2);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    /* More than libnbd or the server take at once, and not aligned. */
    must_read(ctx, qmctx_current(ctx), 80 << 20, 8);
    qmctx_close(ctx);
}

static void test_write(void **state)
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
static void test_zeros_are_written(void **state)
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
    assert_int_equal(qmctx_trim(ctx, 4096, 0), 0);
    qmctx_close(ctx);
}

static void test_server_error(void **state)
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

static void test_cannot_connect(void **state)
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

/* Requests in flight when the server goes away fail; nothing hangs. */
static void *until_error(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    qmctx_begin(job->ctx, QMCTX_QUERY, job->number + 1, NULL);
    while (qmctx_pread(job->ctx, qmctx_current(job->ctx), buf, sizeof buf,
                       (uint64_t)job->number * BLOCK) == 0)
        ;
    job->failed = errno != ENOTCONN && errno != ESHUTDOWN;
    return NULL;
}

static void test_restart(void **state)
{
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx;
    char buf[512];

    start_filter();
    ctx = must_connect(3);
    assert_int_equal(qmctx_begin(ctx, QMCTX_CONNECTION, 0x900001, "900001 survivor"),
                     0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900002, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .number = i};
        assert_int_equal(pthread_create(&thread[i], NULL, until_error, &job[i]), 0);
    }
    nbdkit_server_stop(&server, SIGKILL);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_pread(ctx, qmctx_current(ctx), buf, sizeof buf, 0), -1);
    assert_int_equal(errno, ENOTCONN);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    /* Contexts do not care. */
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900003, NULL), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900004, NULL), 0);

    start_filter();
    assert_int_equal(qmctx_reconnect(ctx), 0);
    assert_true(qmctx_connected(ctx));
    must_read(ctx, qmctx_current(ctx), 512, 7 * BLOCK);
    run_threads(ctx);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    assert_int_equal(begun(0x900004)->parent, begun(0x900001)->ctx);
    assert_int_equal(count_events(QM_TRACE_READ, begun(0x900004)->ctx), 1);
    check_threads();
}

/* An idle connection to a server that is gone is noticed when somebody asks. */
static void test_idle_loss(void **state)
{
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(3);
    nbdkit_server_stop(&server, SIGKILL);
    assert_false(qmctx_connected(ctx));
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=2G",
                        "policy=none", NULL);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_int_equal(errno, ESTALE);
    assert_false(qmctx_connected(ctx));
    nbdkit_server_stop(&server, SIGTERM);
    start_filter();
    assert_int_equal(qmctx_reconnect(ctx), 0);
    must_read(ctx, 0, 512, 0);
    qmctx_close(ctx);
}

/* This process's sockets to the server. */
static unsigned server_sockets(int *fds, unsigned max)
{
    struct sockaddr_un peer;
    socklen_t len;
    unsigned n = 0;

    for (int fd = 3; fd < 1024 && n < max; fd++) {
        len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
            peer.sun_family == AF_UNIX && strstr(peer.sun_path, server.dir))
            fds[n++] = fd;
    }
    return n;
}

/* One of several connections breaks: its contexts go on over another, in the same
 * session, and again when it has been made anew. */
static void test_one_connection_breaks(void **state)
{
    enum { CONNS = 3, IDS = 6 };
    unsigned begins = 0, failures = 0;
    int fds[CONNS + 1];
    qmctx_id id[IDS];
    struct qmctx *ctx;
    char buf[512];
    json_t *stats;
    char *text;

    start_filter();
    ctx = must_connect(CONNS);
    assert_int_equal(server_sockets(fds, CONNS + 1), CONNS);
    for (unsigned i = 0; i < IDS; i++) {
        assert_int_equal(
            qmctx_open_context(ctx, 0, QMCTX_QUERY, 0x10 + i, NULL, &id[i]), 0);
        must_read(ctx, id[i], 512, 0);
    }
    for (unsigned k = 0; k < CONNS; k++) {
        assert_int_equal(server_sockets(fds, CONNS + 1), CONNS);
        shutdown(fds[k], SHUT_RDWR);
        /* Each request may find the connection broken, but only once. */
        for (unsigned i = 0; i < IDS; i++) {
            if (qmctx_pread(ctx, id[i], buf, 512, 0) == 0)
                continue;
            assert_int_equal(errno, ENOTCONN);
            failures++;
            must_read(ctx, id[i], 512, 0);
        }
        assert_true(qmctx_connected(ctx));
        assert_int_equal(qmctx_reconnect(ctx), 0);
        for (unsigned i = 0; i < IDS; i++)
            must_read(ctx, id[i], 512, 0);
    }
    assert_true(failures <= CONNS);
    text = qmctx_stats(ctx);
    stats = json_loads(text, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(stats, "sessions")), 1);
    assert_int_equal(json_integer_value(json_object_get(stats, "contexts_open")), IDS);
    json_decref(stats);
    free(text);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
    for (unsigned i = 0; i < event_count; i++)
        begins += events[i].type == QM_TRACE_BEGIN;
    assert_true(begins > IDS);
}

struct aio {
    char buf[512];
    uint64_t offset;
    unsigned calls;
    int error;
    _Atomic bool done;
};

static void aio_done(void *opaque, int error)
{
    struct aio *aio = opaque;

    aio->calls++;
    aio->error = error;
    aio->done = true;
}

enum { IN_FLIGHT = 64, ROUNDS = 20 };

static void test_async(void **state)
{
    static struct aio aio[IN_FLIGHT];
    qmctx_id id[8];
    struct qmctx *ctx;
    int n;

    start_filter();
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
    load_record();
    for (unsigned i = 0; i < 8; i++) {
        uint64_t last = 0;
        unsigned reads = 0;

        for (unsigned k = 0; k < event_count; k++) {
            if (events[k].type == QM_TRACE_READ && events[k].ctx == begun(i + 1)->ctx) {
                assert_true(reads == 0 || events[k].offset > last);
                last = events[k].offset;
                reads++;
            }
        }
        assert_int_equal(reads, IN_FLIGHT * ROUNDS / 8);
    }
}

/* Writes, and requests that fail because the server goes away. */
static void test_async_write_and_loss(void **state)
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
static void test_close_in_flight(void **state)
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
    job->failed = qmctx_pread(job->ctx, 0, buf, sizeof buf, 0) != 0;
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

/* A thread that polls for its own request leaves when it has the reply; then the one in
 * qmctx_poll() has to take over, which has been told nothing else. */
static void test_poll_takes_over(void **state)
{
    struct aio aio = {.offset = BLOCK};
    struct job job = {0};
    pthread_t thread;

    nbdkit_server_start(&server, "--filter=" FILTER, "--filter=delay", "pattern",
                        "size=1G", "cache-size=16M", "policy=none", "rdelay=300ms",
                        NULL);
    job.ctx = must_connect(1);
    assert_int_equal(pthread_create(&thread, NULL, read_once, &job), 0);
    while (job.tid == 0 || !sleeps(job.tid))
        usleep(1000);
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

static void test_async_and_sync(void **state)
{
    struct job job[2 * THREADS];
    pthread_t thread[2 * THREADS];
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(3);
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

static void *open_and_leave(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    job->failed += qmctx_begin(job->ctx, QMCTX_THREAD, 5, NULL) != 0;
    job->failed += qmctx_begin(job->ctx, QMCTX_QUERY, 6, NULL) != 0;
    job->failed += qmctx_pread(job->ctx, qmctx_current(job->ctx), buf, 512, 0) != 0;
    return NULL;
}

static void test_thread_exit(void **state)
{
    struct job job = {0};
    pthread_t thread;

    start_filter();
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

static void test_fork(void **state)
{
    struct qmctx *ctx;
    int status;
    pid_t pid;

    start_filter();
    ctx = must_connect(2);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char buf[512];
        qmctx_id id;
        bool fine = !qmctx_connected(ctx) && qmctx_depth(ctx) == 0 &&
                    qmctx_pread(ctx, 0, buf, 512, 0) == -1 && errno == ENOTCONN &&
                    qmctx_reconnect(ctx) == -1 && qmctx_poll(ctx, 0) == -1 &&
                    qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id) == 0 &&
                    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL) == 0 &&
                    qmctx_end(ctx) == 0 && !qmctx_stats(ctx);

        qmctx_close(ctx);
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    must_read(ctx, qmctx_current(ctx), 512, BLOCK);
    assert_int_equal(qmctx_end(ctx), 0);
    qmctx_close(ctx);
}

/* The server sees the end of a process although a child of it lives on. */
static void test_fork_and_exit(void **state)
{
    struct qmctx *ctx, *own;
    int pipefd[2], status;
    char *text, c;
    json_t *stats;
    json_int_t connections = 0;
    time_t until = time(NULL) + 20;
    pid_t pid;

    start_filter();
    assert_int_equal(pipe(pipefd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (qmctx_connect(server.uri, 2, &own))
            _exit(1);
        pid = fork();
        if (pid == 0) {
            /* Until the other end is closed. */
            close(pipefd[1]);
            _exit(read(pipefd[0], &c, 1) != 0);
        }
        _exit(pid == -1);
    }
    close(pipefd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ctx = must_connect(1);
    do {
        text = qmctx_stats(ctx);
        stats = json_loads(text, 0, NULL);
        connections = json_integer_value(json_object_get(stats, "connections"));
        json_decref(stats);
        free(text);
        usleep(5000);
    } while (connections != 1 && time(NULL) < until);
    assert_int_equal(connections, 1);
    close(pipefd[1]);
    qmctx_close(ctx);
}

/* --- against tagged-plugin.c --- */

static char plugin_log[96], plugin_log_arg[112];

static struct qmctx *connect_plugin(unsigned connections, const char *a, const char *b)
{
    snprintf(plugin_log, sizeof plugin_log, "%s/events", server.dir);
    snprintf(plugin_log_arg, sizeof plugin_log_arg, "log=%s", plugin_log);
    nbdkit_server_start(&server, PLUGIN, plugin_log_arg, a, b, NULL);
    return must_connect(connections);
}

struct tally {
    unsigned begins, ends, tagged, untagged, wrong, refused;
    unsigned moved; /* what is not on the connection that its slot was begun on */
};

/* What the plugin wrote down. */
static struct tally tally(void)
{
    static unsigned on[QM_WIRE_SLOT_MAX + 1];
    struct tally t = {0};
    char line[200], word[16];
    FILE *f = fopen(plugin_log, "r");

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        long long a = 0, b = 0, c = 0, d = 0, e = 0;

        assert_true(sscanf(line, "%15s %lld %lld %lld %lld %lld", word, &a, &b, &c, &d,
                           &e) >= 1);
        if (strcmp(word, "begin") == 0) {
            t.begins++;
            on[a] = (unsigned)e;
        } else if (strcmp(word, "end") == 0) {
            t.ends++;
            t.moved += on[a] != (unsigned)b;
        } else if (strcmp(word, "refused") == 0) {
            t.refused++;
        } else if (a > 0) {
            t.tagged++;
            t.moved += on[a] != (unsigned)d;
        } else if (a == 0) {
            t.untagged++;
        } else {
            t.wrong++;
        }
    }
    fclose(f);
    return t;
}

/* Requests overtake each other there, unless the client waits. */
static void test_unordered(void **state)
{
    struct qmctx *ctx = connect_plugin(3, "delay=300", "slots=1000");
    static struct aio aio[IN_FLIGHT];
    qmctx_id id[IN_FLIGHT];
    struct tally t;

    run_threads(ctx);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        aio[i] = (struct aio){.offset = i * 512};
        assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id[i]), 0);
        assert_int_equal(
            qmctx_aio_pread(ctx, id[i], aio[i].buf, 512, i * 512, aio_done, &aio[i]),
            0);
    }
    while (qmctx_poll(ctx, -1) > 0)
        ;
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    t = tally();
    assert_int_equal(t.begins, 2 * THREADS * CONTEXTS + IN_FLIGHT);
    assert_int_equal(t.tagged, THREADS * CONTEXTS * READS + IN_FLIGHT);
    assert_int_equal(t.untagged, 0);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.moved, 0);
}

/* Four slots: the one that was not used for the longest time goes, unless something
 * nested in it has one. */
static void test_slots_by_lru(void **state)
{
    struct qmctx *ctx = connect_plugin(1, "slots=4", "ordered=1");
    qmctx_id id[5], inner;
    struct tally t;

    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, i, NULL, &id[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        must_read(ctx, id[i], 512, 0); /* 4 begins */
    must_read(ctx, id[0], 512, 0);
    must_read(ctx, id[4], 512, 0); /* takes 1's */
    for (unsigned i = 2; i < 5; i++)
        must_read(ctx, id[i], 512, 0);
    must_read(ctx, id[0], 512, 0);
    assert_int_equal(qmctx_close_context(ctx, id[1]), 0); /* has none to end */
    /* Of 2, 3, 4 and 0, used in that order: within 2 takes 3's. */
    assert_int_equal(qmctx_open_context(ctx, id[2], QMCTX_QUERY, 9, NULL, &inner), 0);
    must_read(ctx, inner, 512, 0);
    must_read(ctx, id[3], 512, 0); /* takes 4's, not 2's, which is older */
    must_read(ctx, id[0], 512, 0);
    must_read(ctx, inner, 512, 0);
    must_read(ctx, id[3], 512, 0);
    must_read(ctx, id[2], 512, 0);
    assert_int_equal(qmctx_close_context(ctx, id[2]), 0); /* two slots, one end */
    must_read(ctx, id[4], 512, 0);                        /* one of these */
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    t = tally();
    assert_int_equal(t.begins, 4 + 1 + 1 + 1 + 1);
    assert_int_equal(t.ends, 1);
    assert_int_equal(t.untagged + t.wrong, 0);
}

static void test_many_threads_few_slots(void **state)
{
    struct qmctx *ctx = connect_plugin(3, "slots=5", "ordered=0");
    struct tally t;

    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    t = tally();
    assert_int_equal(t.tagged + t.untagged, THREADS * CONTEXTS * READS);
    assert_int_equal(t.wrong, 0);
    assert_true(t.tagged > 0);
}

static void test_no_slots(void **state)
{
    struct qmctx *ctx = connect_plugin(3, "slots=0", "ordered=1");
    struct tally t;

    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    t = tally();
    assert_int_equal(t.begins + t.ends + t.tagged + t.wrong + t.refused, 0);
    assert_int_equal(t.untagged, THREADS * CONTEXTS * READS);
}

/* A server that does not want contexts is asked once for each, and serves. */
static void test_refused(void **state)
{
    struct qmctx *ctx = connect_plugin(1, "refuse=1", "ordered=0");
    struct tally t;
    qmctx_id id;

    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id), 0);
    for (unsigned i = 0; i < 10; i++)
        must_read(ctx, id, 512, 0);
    assert_int_equal(qmctx_close_context(ctx, id), 0);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    t = tally();
    assert_int_equal(t.refused, 1);
    assert_int_equal(t.untagged + t.wrong, 10);
    assert_true(t.wrong <= 1);
}

/* Without multi-conn, one connection, whatever was asked for. */
static void test_single_connection(void **state)
{
    struct qmctx *ctx = connect_plugin(5, "single=1", "ordered=1");
    char line[200] = "", *last;
    FILE *f;

    run_threads(ctx);
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    f = fopen(plugin_log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        last = strrchr(line, ' ');
        assert_string_equal(last, " 1\n");
    }
    fclose(f);
    assert_int_equal(tally().wrong, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_device),
        TEST(test_nested),
        TEST(test_threads),
        TEST(test_read_only),
        TEST(test_more_contexts_than_slots),
        TEST(test_handles),
        TEST(test_too_deep),
        TEST(test_bounds),
        TEST(test_large),
        TEST(test_write),
        TEST(test_zeros_are_written),
        TEST(test_server_error),
        TEST(test_cannot_connect),
        TEST(test_restart),
        TEST(test_idle_loss),
        TEST(test_one_connection_breaks),
        TEST(test_async),
        TEST(test_async_write_and_loss),
        TEST(test_close_in_flight),
        TEST(test_poll_takes_over),
        TEST(test_async_and_sync),
        TEST(test_thread_exit),
        TEST(test_fork),
        TEST(test_fork_and_exit),
        TEST(test_unordered),
        TEST(test_slots_by_lru),
        TEST(test_many_threads_few_slots),
        TEST(test_no_slots),
        TEST(test_refused),
        TEST(test_single_connection),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
