/* SPDX-License-Identifier: BSD-3-Clause */
/* test-direct-slots.c - direct connections: servers that are what the filter is not:
 * unordered, short of slots, unwilling (tagged-plugin.c). */
#include <signal.h>
#include <stdio.h>

#include "direct-fixture.h"

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

static struct tally close_and_tally(struct qmctx *ctx)
{
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    return tally();
}

/* A server that did in order what came in order is started again, and no longer does:
 * the client has to wait from then on. */
TEST_WITH(test_no_longer_ordered, set_up, tear_down)
{
    struct qmctx *ctx = connect_plugin(3, "ordered=1", "slots=1000");
    struct tally t;

    run_threads(ctx);
    nbdkit_server_stop(&server, SIGKILL);
    assert_false(qmctx_connected(ctx));
    nbdkit_server_start(&server, PLUGIN, plugin_log_arg, "delay=300", "slots=1000",
                        NULL);
    assert_int_equal(qmctx_reconnect(ctx), 0);
    run_threads(ctx);
    t = close_and_tally(ctx);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.refused, 0);
    assert_true(t.tagged > 0);
}

/* Requests overtake each other there, unless the client waits. */
TEST_WITH(test_unordered, set_up, tear_down)
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
    t = close_and_tally(ctx);
    assert_int_equal(t.begins, 2 * THREADS * CONTEXTS + IN_FLIGHT);
    assert_int_equal(t.tagged, THREADS * CONTEXTS * READS + IN_FLIGHT);
    assert_int_equal(t.untagged, 0);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.moved, 0);
}

/* Four slots: the one that was not used for the longest time goes, unless something
 * nested in it has one. */
TEST_WITH(test_slots_by_lru, set_up, tear_down)
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
    t = close_and_tally(ctx);
    assert_int_equal(t.begins, 4 + 1 + 1 + 1 + 1);
    assert_int_equal(t.ends, 1);
    assert_int_equal(t.untagged + t.wrong, 0);
}

/* What had something nested in it that has ended gives its slot up as others do. */
TEST_WITH(test_slots_after_nesting, set_up, tear_down)
{
    struct qmctx *ctx = connect_plugin(1, "slots=4", "ordered=1");
    qmctx_id outer[4], inner, last;
    struct tally t;

    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, i, NULL, &outer[i]),
                         0);
        assert_int_equal(
            qmctx_open_context(ctx, outer[i], QMCTX_QUERY, 9, NULL, &inner), 0);
        must_read(ctx, inner, 512, 0);
        assert_int_equal(qmctx_close_context(ctx, inner), 0);
        must_read(ctx, outer[i], 512, 0);
    }
    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 5, NULL, &last), 0);
    must_read(ctx, last, 512, 0);
    t = close_and_tally(ctx);
    assert_int_equal(t.begins, 9);
    assert_int_equal(t.tagged, 9);
    assert_int_equal(t.untagged + t.wrong, 0);
}

TEST_WITH(test_many_threads_few_slots, set_up, tear_down)
{
    struct qmctx *ctx = connect_plugin(3, "slots=5", "ordered=0");
    struct tally t;

    run_threads(ctx);
    t = close_and_tally(ctx);
    assert_int_equal(t.tagged + t.untagged, THREADS * CONTEXTS * READS);
    assert_int_equal(t.wrong, 0);
    assert_true(t.tagged > 0);
}

TEST_WITH(test_no_slots, set_up, tear_down)
{
    struct qmctx *ctx = connect_plugin(3, "slots=0", "ordered=1");
    struct tally t;

    run_threads(ctx);
    t = close_and_tally(ctx);
    assert_int_equal(t.begins + t.ends + t.tagged + t.wrong + t.refused, 0);
    assert_int_equal(t.untagged, THREADS * CONTEXTS * READS);
}

/* A server that does not want contexts is asked once for each, and serves. */
TEST_WITH(test_refused, set_up, tear_down)
{
    struct qmctx *ctx = connect_plugin(1, "refuse=1", "ordered=0");
    struct tally t;
    qmctx_id id;

    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id), 0);
    for (unsigned i = 0; i < 10; i++)
        must_read(ctx, id, 512, 0);
    assert_int_equal(qmctx_close_context(ctx, id), 0);
    t = close_and_tally(ctx);
    assert_int_equal(t.refused, 1);
    assert_int_equal(t.untagged + t.wrong, 10);
    assert_true(t.wrong <= 1);
}

/* Without multi-conn, one connection, whatever was asked for. */
TEST_WITH(test_single_connection, set_up, tear_down)
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
