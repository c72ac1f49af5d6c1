/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device-connections.c - how many connections a device makes, and which of them a
 * request takes.
 */
#include "clients/libqmctx/qmctx.h"
#include "device-fixture.h"

static unsigned connections_by_default(void)
{
    unsigned n;

    options.connections = 0;
    open_device();
    n = mock_open_conns(&mock);
    qm_device_close(device);
    device = NULL;
    mock_crash(&mock, false);
    return n;
}

TEST_WITH(test_default, set_up, tear_down)
{
    assert_int_equal(connections_by_default(), 32);
    mock.unordered = true;
    assert_int_equal(connections_by_default(), 8);
    mock.no_multi_conn = true;
    assert_int_equal(connections_by_default(), 1);
    mock.unordered = false;
    assert_int_equal(connections_by_default(), 1);
}

TEST_WITH(test_server_with_a_limit, set_up, tear_down)
{
    mock.at_most = 20;
    assert_int_equal(connections_by_default(), 20);
    mock.at_most = 8;
    assert_int_equal(connections_by_default(), 8);
    mock.at_most = 7;
    options.connections = 0;
    mock_start(&mock);
    assert_int_not_equal(qm_device_open(mock.uri, &options, &device), 0);
    device = NULL;
    mock_crash(&mock, false);
    mock.at_most = 20;
    options.connections = 21;
    mock_start(&mock);
    assert_int_not_equal(qm_device_open(mock.uri, &options, &device), 0);
    device = NULL;
}

static bool has_conns(void *n)
{
    return mock_open_conns(&mock) == *(unsigned *)n;
}

/* After a restart the server may take fewer, since it has other clients, and after
 * another one more. */
TEST_WITH(test_limit_after_restart, set_up, tear_down)
{
    unsigned n;

    options.connections = 0;
    open_device();
    assert_int_equal(mock_open_conns(&mock), 32);
    for (unsigned i = 1; i <= 3; i++) {
        mock_crash(&mock, false);
        mock.at_most = i == 1 ? 20 : i == 2 ? 8 : 0;
        mock_start(&mock);
        await_reconnections(i);
        put_page(i, 'a', true);
        assert_int_equal(get_page(i), 'a');
        n = mock.at_most ? mock.at_most : 32;
        await(has_conns, &n);
        assert_int_equal(stat_now().reconnections, i);
    }
    mock_crash(&mock, false);
    mock.at_most = 7;
    mock_start(&mock);
    await_lost();
    pthread_mutex_lock(&mock.lock);
    mock.at_most = 8;
    pthread_mutex_unlock(&mock.lock);
    await_reconnections(4);
    mock_cut(&mock);
    await_reconnections(5);
}

/* Zeroing goes over a connection of its own, which a server with a limit, or one that
 * is about to end, closes while it is being made. */
TEST_WITH(test_zeroing_at_the_limit, set_up, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 1};

    mock.at_most = 4;
    options.connections = 4;
    open_device();
    put_page(1, 'a', false);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 0);
    assert_int_equal(stat_now().reconnections, 0);
    assert_int_equal(mock_count(&mock, MOCK_ZERO), 0);
}

/* What is written in its place ends where blocks do: none is zeroed in two parts. */
TEST_WITH(test_zeros_tear_no_block, set_up, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 1, .pages = 40};
    uint64_t ends[3];
    unsigned writes = 0;

    mock.at_most = 4;
    options.connections = 4;
    open_device();
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    pthread_mutex_lock(&mock.lock);
    for (unsigned i = 0; i < mock.ops; i++)
        if (mock.op[i].type == MOCK_WRITE && writes < 3)
            ends[writes++] = mock.op[i].offset + mock.op[i].count;
    pthread_mutex_unlock(&mock.lock);
    assert_int_equal(writes, 3);
    assert_int_equal(ends[0], 64 << 10);
    assert_int_equal(ends[1], 128 << 10);
    assert_int_equal(ends[2], 41 * PAGE);
}

static unsigned accepted(void)
{
    unsigned n;

    pthread_mutex_lock(&mock.lock);
    n = mock.accepted;
    pthread_mutex_unlock(&mock.lock);
    return n;
}

/* Where it cannot be made, not every request tries to: at some servers that takes
 * seconds.  It is tried again after the next reconnection. */
TEST_WITH(test_zeroing_tries_once, set_up, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 1, .pages = 3};
    unsigned before;

    mock.at_most = 4;
    options.connections = 4;
    open_device();
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    before = accepted();
    assert_int_equal(before, 5);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(accepted(), before);
    assert_int_equal(flush(), 0);
    mock_crash(&mock, false);
    mock.at_most = 5;
    mock_start(&mock);
    await_reconnections(1);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(mock_count(&mock, MOCK_ZERO), 1);
}

/* Where there is no FLUSH, none is sent over another connection either, which could not
 * be made. */
TEST_WITH(test_flushing_at_the_limit, set_up, tear_down)
{
    struct job sync = {.what = JOB_FLUSH};

    mock.no_flush = true;
    mock.at_most = 4;
    options.connections = 4;
    open_device();
    put_page(1, 'a', false);
    start_job(&sync);
    await(job_is_over, &sync);
    assert_int_equal(finish_job(&sync), 0);
    assert_int_equal(stat_now().reconnections, 0);
    assert_int_equal(accepted(), 4);
}

/* A connection that is closed at once may be so before libnbd has looked at it first,
 * which calls that an invalid argument. */
TEST_WITH(test_closed_at_once, set_up, tear_down)
{
    struct qm_device *other;
    int err;

    mock.at_most = 1;
    options.connections = 1;
    open_device();
    for (unsigned i = 0; i < 500; i++) {
        err = qm_device_open(mock.uri, &options, &other);
        if (err != ENOTCONN && err != ECONNRESET)
            fail_msg("attempt %u: %d: %s", i, err, qmctx_error());
    }
}

static void ignore(void *opaque, int error)
{
}

/* A server that carries out requests in order holds one read a connection: all of them
 * are held only if no read waits for that of the context while a connection is free. */
TEST_WITH(test_free_connection, set_up, tear_down)
{
    static char buf[8][PAGE];
    qmctx_id id[2];

    options.connections = 4;
    open_device();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(
            qm_device_begin(device, 0, QMCTX_CONNECTION, i, "tree", &id[i]), 0);
    mock_hold(&mock, MOCK_READ, true);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(qm_device_start(device, false, i < 2 ? id[0] : 0, buf[i], PAGE,
                                         0, false, ignore, NULL),
                         0);
    mock_await_held(&mock, MOCK_READ, 4);
    mock_hold(&mock, MOCK_READ, false);
    mock_await_ops(&mock, MOCK_READ, 5);
}
