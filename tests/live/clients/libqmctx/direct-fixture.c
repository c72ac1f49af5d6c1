/* SPDX-License-Identifier: BSD-3-Clause */
/* direct-fixture.c - see direct-fixture.h. */
#include <endian.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "direct-fixture.h"

struct nbdkit_server server;
char record_arg[112];
static char record[96];

int set_up(void **state)
{
    nbdkit_server_init(&server);
    snprintf(record, sizeof record, "%s/record", server.dir);
    snprintf(record_arg, sizeof record_arg, "record=%s", record);
    return 0;
}

int tear_down(void **state)
{
    nbdkit_server_destroy(&server);
    return 0;
}

void start_filter(void)
{
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=1G",
                        "cache-size=16M", "policy=none", record_arg, NULL);
}

struct qmctx *must_connect(unsigned connections)
{
    struct qmctx *ctx;

    if (qmctx_connect(server.uri, connections, &ctx))
        fail_msg("%s", qmctx_error());
    return ctx;
}

struct qmctx *connect_filter(unsigned connections)
{
    start_filter();
    return must_connect(connections);
}

bool is_pattern(const void *buf, size_t count, uint64_t offset)
{
    for (size_t i = 0; i + 8 <= count; i += 8)
        if (memcmp((const char *)buf + i, &(uint64_t){htobe64(offset + i)}, 8))
            return false;
    return true;
}

void must_read(struct qmctx *ctx, qmctx_id id, size_t count, uint64_t offset)
{
    char *buf = malloc(count);

    assert_non_null(buf);
    if (qmctx_pread(ctx, id, buf, count, offset))
        fail_msg("read %zu at %" PRIu64 ": %s", count, offset, qmctx_error());
    assert_true(is_pattern(buf, count, offset));
    free(buf);
}

struct recorded events[MAX_EVENTS];
unsigned event_count;

void load_record(void)
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

struct recorded *begun(uint64_t klass)
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

unsigned count_events(char type, uint64_t ctx)
{
    unsigned n = 0;

    for (unsigned i = 0; i < event_count; i++)
        n += events[i].type == type && events[i].ctx == ctx;
    return n;
}

static uint64_t block_of(uint64_t klass, unsigned read)
{
    return klass * READS + read;
}

void *work(void *opaque)
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

void run_threads(struct qmctx *ctx)
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

void close_and_load(struct qmctx *ctx)
{
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
}

void check_threads(void)
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

void aio_done(void *opaque, int error)
{
    struct aio *aio = opaque;

    aio->calls++;
    aio->error = error;
    aio->done = true;
}
