/* SPDX-License-Identifier: BSD-3-Clause */
/* test-info.c - the figures of a trace that was made by hand. */
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "sim/info.h"

/* Two threads, interleaved: 1 with two transactions (2, 3), 4 without one; 5 lies in no
 * thread; 6 never ends and makes no request. */
static const char text[] = "#quickmine-trace 1 block=4096\n"
                           "B 1000 1 thread a 0\n"
                           "B 1000 2 transaction t 1\n"
                           "B 1000 4 thread b 0\n"
                           "R 1001 2 0 4096\n"     /* block 0 */
                           "R 1002 4 40960 8192\n" /* 10 11 */
                           "R 1003 2 4096 4096\n"  /* 1 */
                           "R 1004 2 6000 100\n"   /* 1 again: counts once in a run */
                           "R 1005 4 49152 4096\n" /* 12 */
                           "W 1006 2 0 12288\n"    /* 0 1 2, in no run */
                           "E 1007 2\n"
                           "B 1008 3 transaction t 1\n"
                           "R 1009 3 8192 4096\n"  /* 2: goes on in thread 1 */
                           "R 1010 0 12288 4096\n" /* 3: no context */
                           "E 1011 1\n"            /* ends 3, too */
                           "B 1012 5 query q 0\n"
                           "R 1013 5 409600 4096\n" /* 100 */
                           "E 1014 4\n"
                           "B 1015 6 transaction u 0\n"
                           "E 2001000 5\n";

static char path[200];

static int make_trace(void **state)
{
    const char *tmp = getenv("TMPDIR");
    FILE *f;
    int fd;

    snprintf(path, sizeof path, "%s/qm-info.XXXXXX", tmp ? tmp : P_tmpdir);
    fd = mkstemp(path);
    f = fd == -1 ? NULL : fdopen(fd, "w");
    return f && fputs(text, f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static int remove_trace(void **state)
{
    return unlink(path);
}

static struct qm_info_maker *read_trace(enum qm_level level,
                                        const struct qm_info **info)
{
    struct qm_info_maker *m = qm_info_new(level, 4096);
    char err[600];
    struct qm_trace_reader *r = qm_trace_open(path, err, sizeof err);
    struct qm_event e;
    int n;

    assert_non_null(m);
    assert_non_null(r);
    while ((n = qm_trace_next(r, &e)) == 1)
        assert_int_equal(qm_info_event(m, &e), 0);
    assert_int_equal(n, 0);
    qm_trace_free(r);
    *info = qm_info_finish(m);
    return m;
}

static void assert_runs(const struct qm_runs *r, uint64_t runs, uint64_t blocks,
                        uint64_t longest)
{
    assert_int_equal(r->runs, runs);
    assert_int_equal(r->blocks, blocks);
    assert_int_equal(r->longest, longest);
}

TEST(requests_and_footprint)
{
    const struct qm_info *i;
    struct qm_info_maker *m = read_trace(QM_LEVEL_INNERMOST, &i);

    assert_int_equal(i->events, 19);
    assert_int_equal(i->reads, 8);
    assert_int_equal(i->writes, 1);
    assert_int_equal(i->untagged, 1);
    assert_int_equal(i->bytes_read, 7 * 4096 + 4096 + 100);
    assert_int_equal(i->bytes_written, 12288);
    assert_int_equal(i->blocks_read, 9);
    assert_int_equal(i->blocks_written, 3);
    assert_int_equal(i->first_us, 1000);
    assert_int_equal(i->last_us, 2001000);
    assert_int_equal(i->footprint, 8); /* 0 1 2 3 10 11 12 100 */
    assert_int_equal(i->footprint_read, 8);
    assert_int_equal(i->footprint_written, 3);
    qm_info_free(m);
}

TEST(runs)
{
    const struct qm_info *i;
    struct qm_info_maker *m = read_trace(QM_LEVEL_TRANSACTION, &i);

    /* 0, 10 11, 1 (1), 12, 2 3, 100 */
    assert_runs(&i->interleaved, 6, 8, 2);
    /* thread 1: 0 1 2; thread 4: 10 11 12; and 5 by itself: 100 */
    assert_runs(&i->by_thread, 3, 7, 3);
    /* transaction 2: 0 1; 3: 2; 4 and 5 lie in none: 10 11 12, 100 */
    assert_runs(&i->by_level, 4, 7, 3);
    qm_info_free(m);
}

TEST(interference)
{
    const struct qm_info *i;
    struct qm_info_maker *m = read_trace(QM_LEVEL_THREAD, &i);

    /* Requests by thread: 1 4 1 1 4 1 1 - 5.  Gaps of 1: 1 0 1 0; of 4: 2. */
    assert_int_equal(i->interference.count, 5);
    assert_true(i->interference.sum == 4);
    assert_int_equal(i->interference.max, 2);
    qm_info_free(m);
}

TEST(contexts)
{
    const struct qm_info *i;
    struct qm_info_maker *m = read_trace(QM_LEVEL_INNERMOST, &i);
    const struct qm_info_kind *k;

    assert_int_equal(i->contexts, 6);
    assert_int_equal(i->open_at_once, 3);
    assert_int_equal(i->open_at_end, 1);
    k = &i->kinds[QM_THREAD];
    assert_int_equal(k->contexts, 2);
    assert_true(k->requests.sum == 5 + 2); /* nested ones included */
    assert_int_equal(k->requests.max, 5);
    assert_true(k->blocks.sum == 4 + 3); /* writes are not among them */
    assert_int_equal(k->blocks.max, 4);
    assert_int_equal(k->brief_blocks, 2);
    k = &i->kinds[QM_TRANSACTION];
    assert_int_equal(k->contexts, 3);
    assert_int_equal(k->silent, 1);
    assert_int_equal(k->brief, 2);
    assert_true(k->requests.sum == 5);
    assert_true(k->blocks.sum == 4);
    assert_int_equal(k->brief_blocks, 2);
    assert_int_equal(i->kinds[QM_QUERY].contexts, 1);
    assert_int_equal(i->kinds[QM_CONNECTION].contexts, 0);
    qm_info_free(m);
}

static const struct qm_info_class *find_class(const struct qm_info *i, const char *name)
{
    for (uint32_t n = 1; n < i->class_count; n++)
        if (strcmp(i->classes[n].name, name) == 0)
            return &i->classes[n];
    fail_msg("no class %s", name);
    return NULL;
}

TEST(classes)
{
    const struct qm_info *i;
    struct qm_info_maker *m = read_trace(QM_LEVEL_INNERMOST, &i);
    const struct qm_info_class *k;

    assert_int_equal(i->class_count, 6); /* none beyond the limit, a, t, b, q, u */
    assert_int_equal(i->classes[0].contexts, 0);
    k = find_class(i, "t");
    assert_int_equal(k->kind, QM_TRANSACTION);
    assert_int_equal(k->contexts, 2);
    assert_int_equal(k->reads, 4);
    assert_int_equal(k->writes, 1);
    assert_int_equal(k->blocks_read, 4);
    k = find_class(i, "b");
    assert_int_equal(k->reads, 2);
    assert_int_equal(k->blocks_read, 3);
    assert_int_equal(find_class(i, "a")->reads, 4);
    qm_info_free(m);
}

/* A procedure that calls itself: what is read in it counts for its class once. */
TEST(recursion)
{
    struct qm_info_maker *m = qm_info_new(QM_LEVEL_INNERMOST, 4096);
    const struct qm_info_class *k;
    const struct qm_info *i;
    struct qm_event e = {.type = QM_TRACE_BEGIN, .kind = QM_QUERY};

    assert_non_null(m);
    for (uint32_t slot = 1; slot <= 4; slot++) {
        e.slot = slot;
        e.parent_slot = slot - 1;
        e.klass = slot == 3 ? "other" : "self";
        assert_int_equal(qm_info_event(m, &e), 0);
    }
    for (uint32_t slot = 1; slot <= 4; slot++) {
        e = (struct qm_event){
            .type = QM_TRACE_READ, .slot = slot, .offset = 0, .length = 4096 * slot};
        assert_int_equal(qm_info_event(m, &e), 0);
    }
    i = qm_info_finish(m);
    k = find_class(i, "self");
    assert_int_equal(k->contexts, 3);
    assert_int_equal(k->reads, 4);
    assert_int_equal(k->blocks_read, 10);
    assert_int_equal(k->own_reads, 3);
    assert_int_equal(k->own_blocks_read, 7);
    k = find_class(i, "other");
    assert_int_equal(k->blocks_read, 7);
    assert_int_equal(k->own_blocks_read, 3);
    qm_info_free(m);
}

int main(void)
{
    return run_listed(make_trace, remove_trace);
}
