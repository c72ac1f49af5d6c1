/* SPDX-License-Identifier: BSD-3-Clause */
/* test-record.c - a recording is what was told, in order, or is a trace all the same.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/record.h"

static char path[] = "/tmp/quickmine-record.XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);

    if (fd == -1)
        return -1;
    return close(fd);
}

static int remove_path(void **state)
{
    return unlink(path);
}

/* What another test has recorded is not kept. */
static struct qms_recorder *open_empty(char *err, size_t len)
{
    assert_int_equal(truncate(path, 0), 0);
    return qms_record_open(path, 16384, err, len);
}

TEST(test_order)
{
    char err[200];
    struct qms_recorder *r = open_empty(err, sizeof err);
    struct qms_record_stats stats;
    struct qm_trace_reader *t;
    struct qm_event e;

    assert_non_null(r);
    assert_int_equal(qms_record_start(r), 0);
    assert_true(qms_record_begin(r, 1, QM_THREAD, "worker", 0));
    assert_true(qms_record_begin(r, 2, QM_QUERY, "select", 1));
    qms_record_io(r, QM_TRACE_READ, 2, 16384, 100);
    qms_record_io(r, QM_TRACE_WRITE, 0, 5, 7);
    qms_record_end(r, 1);
    qms_record_stats(r, &stats);
    assert_int_equal(stats.dropped, 0);
    assert_int_equal(qms_record_close(r), 0);

    t = qm_trace_open(path, err, sizeof err);
    assert_non_null(t);
    assert_int_equal(qm_trace_block_size(t), 16384);
    assert_int_equal(qm_trace_next(t, &e), 1);
    assert_int_equal(e.type, 'B');
    assert_int_equal(e.ctx, 1);
    assert_int_equal(e.kind, QM_THREAD);
    assert_string_equal(e.klass, "worker");
    assert_int_equal(qm_trace_next(t, &e), 1);
    assert_int_equal(e.parent, 1);
    assert_int_equal(qm_trace_next(t, &e), 1);
    assert_int_equal(e.type, 'R');
    assert_int_equal(e.ctx, 2);
    assert_int_equal(e.offset, 16384);
    assert_int_equal(e.length, 100);
    assert_int_equal(qm_trace_next(t, &e), 1);
    assert_int_equal(e.type, 'W');
    assert_int_equal(e.ctx, 0);
    assert_int_equal(qm_trace_next(t, &e), 1);
    assert_int_equal(e.type, 'E');
    assert_int_equal(qm_trace_next(t, &e), 0);
    qm_trace_free(t);
}

#define THREADS 4
#define TIMES   100000

struct storm {
    struct qms_recorder *recorder;
    uint64_t first;
    uint64_t told; /* events */
};

static void *storm(void *opaque)
{
    struct storm *s = opaque;

    for (uint64_t i = 0; i < TIMES / 4; i++) {
        uint64_t id = s->first + i;
        bool recorded = qms_record_begin(s->recorder, id, QM_QUERY, "q", 0);

        qms_record_io(s->recorder, QM_TRACE_READ, recorded ? id : 0, i * 4096, 4096);
        qms_record_io(s->recorder, QM_TRACE_READ, recorded ? id : 0, i * 4096, 4096);
        s->told += 3;
        if (recorded) {
            qms_record_end(s->recorder, id);
            s->told++;
        }
    }
    return NULL;
}

/* More than the queue can take: some of it is dropped and counted, and what is there is
 * a trace. */
TEST(test_storm)
{
    char err[200];
    struct qms_recorder *r = open_empty(err, sizeof err);
    struct qms_record_stats stats;
    pthread_t threads[THREADS];
    struct storm storms[THREADS];
    struct qm_trace_reader *t;
    struct qm_event e;
    uint64_t n = 0, told = 0, last[THREADS] = {0};
    int result;

    assert_non_null(r);
    assert_int_equal(qms_record_start(r), 0);
    for (int i = 0; i < THREADS; i++) {
        storms[i] = (struct storm){r, 1 + (uint64_t)i * TIMES, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, storm, &storms[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        told += storms[i].told;
    }
    do { /* all is either written, in the end, or dropped */
        usleep(1000);
        qms_record_stats(r, &stats);
    } while (stats.recorded + stats.dropped < told);
    assert_int_equal(stats.recorded + stats.dropped, told);
    assert_int_equal(qms_record_close(r), 0);

    t = qm_trace_open(path, err, sizeof err);
    assert_non_null(t);
    while ((result = qm_trace_next(t, &e)) == 1) {
        n++;
        if (e.type == 'B') {
            /* A thread's events are in its order. */
            unsigned thread = (e.ctx - 1) / TIMES;

            assert_true(e.ctx > last[thread]);
            last[thread] = e.ctx;
        }
    }
    if (result != 0)
        fail_msg("%s", qm_trace_error(t));
    qm_trace_free(t);
    assert_int_equal(n, stats.recorded);
    print_message("%lu recorded, %lu dropped\n", (unsigned long)stats.recorded,
                  (unsigned long)stats.dropped);
}

TEST(test_full_disk)
{
    char err[200];
    struct qms_recorder *r = qms_record_open("/dev/full", 16384, err, sizeof err);
    struct qms_record_stats stats;

    assert_non_null(r);
    assert_int_equal(qms_record_start(r), 0);
    do {
        qms_record_io(r, QM_TRACE_READ, 0, 0, 1);
        qms_record_stats(r, &stats);
    } while (stats.error == 0);
    assert_int_equal(stats.error, ENOSPC);
    qms_record_stats(r, &stats);
    qms_record_io(r, QM_TRACE_READ, 0, 0, 1);
    assert_false(qms_record_begin(r, 1, QM_QUERY, "q", 0));
    assert_int_equal(qms_record_close(r), ENOSPC);
}

/* What comes after the bound is left out, and is not missing. */
TEST(test_limit)
{
    char err[200];
    struct qms_recorder *r = qms_record_open("/dev/null", 16384, err, sizeof err);
    struct qms_record_stats stats;

    assert_non_null(r);
    qms_record_limit(r, 3600, 3);
    assert_int_equal(qms_record_start(r), 0);
    assert_true(qms_record_begin(r, 1, QM_QUERY, "q", 0));
    qms_record_io(r, QM_TRACE_READ, 1, 0, 1);
    assert_false(qms_record_over(r));
    qms_record_io(r, QM_TRACE_READ, 1, 0, 1);
    assert_true(qms_record_over(r));
    assert_false(qms_record_begin(r, 2, QM_QUERY, "q", 0));
    qms_record_io(r, QM_TRACE_READ, 1, 0, 1);
    assert_int_equal(qms_record_close_with(r, &stats), 0);
    assert_int_equal(stats.recorded, 3);
    assert_int_equal(stats.dropped, 0);
}

TEST(test_no_file)
{
    char err[200] = "";

    assert_null(qms_record_open("/nonexistent/dir/trace", 16384, err, sizeof err));
    assert_string_not_equal(err, "");
}

int main(void)
{
    return run_listed(make_path, remove_path);
}
