/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device-loss.c - the device: how it notices that connections are lost, and what
 * it sends again, to which server. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device-fixture.h"

static bool is_disconnected(void *opaque)
{
    return mock_open_conns(&mock) == 0;
}

/* A write hangs in the server while its connection goes: it is repeated when the server
 * has said that it is over, so it cannot land on what was written later. */
TEST_WITH(test_late_write, set_up_open, tear_down)
{
    struct job first = {.what = JOB_WRITE, .page = 1, .letter = 'a'},
               second = {.what = JOB_WRITE, .page = 1, .letter = 'b'};

    put_page(7, 'r', false);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&first);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    start_job(&second);
    mock_await_held(&mock, MOCK_FENCE, 1);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&first), 0);
    assert_int_equal(finish_job(&second), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
    assert_int_equal(stat_now().fences, 1);
    /* The same instance has all that it had. */
    assert_int_equal(stat_now().instances, 0);
    assert_int_equal(stat_now().resent_changes, 0);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, true, 7 * PAGE), 'r');
}

/* Behind the server is another volume: nothing of what is retained is sent to it, nor
 * is anything else, until the one before is there again. */
TEST_WITH(test_another_volume, set_up, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 2, .letter = 'b'};
    unsigned writes;

    mock.volume = 1;
    open_device();
    put_page(1, 'a', false);
    mock_crash(&mock, true);
    start_job(&write);
    writes = mock_count(&mock, MOCK_WRITE);
    mock.volume = 2;
    mock_start(&mock);
    await(has_been_said, "another volume of the same size");
    assert_int_equal(mock_count(&mock, MOCK_WRITE), writes);
    assert_int_equal(mock_byte(&mock, false, PAGE), 0);
    mock_crash(&mock, false);
    assert_int_equal(mock_count(&mock, MOCK_WRITE), writes);
    mock.volume = 1;
    mock_start(&mock);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'a');
    assert_int_equal(mock_byte(&mock, false, 2 * PAGE), 'b');
}

/* One that does not say which volume it has is believed, as before. */
TEST_WITH(test_unknown_volume, set_up, tear_down)
{
    mock.volume = 1;
    open_device();
    put_page(1, 'a', false);
    mock_crash(&mock, true);
    mock.volume = 0;
    mock_start(&mock);
    await_reconnections(1);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'a');
}

/* Zeroing goes over a connection of its own, which is fenced with the others. */
TEST_WITH(test_late_zeroing, set_up_open, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 1},
               write = {.what = JOB_WRITE, .page = 1, .letter = 'b'};

    mock_hold(&mock, MOCK_ZERO, true);
    start_job(&zero);
    mock_await_held(&mock, MOCK_ZERO, 1);
    mock_cut(&mock);
    start_job(&write);
    mock_await_held(&mock, MOCK_FENCE, 1);
    assert_int_equal(mock_count(&mock, MOCK_WRITE), 0);
    mock_hold(&mock, MOCK_ZERO, false);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
}

/* The connection for zeroing is made when it is needed first, and there is no socket: a
 * server is being started again, and the others' end has not been noticed yet. */
TEST_WITH(test_zeroing_without_a_socket, set_up_open, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 1};
    char path[sizeof mock.dir + 16], away[sizeof mock.dir + 16];

    put_page(1, 'a', false);
    snprintf(path, sizeof path, "%s/socket", mock.dir);
    snprintf(away, sizeof away, "%s/away", mock.dir);
    assert_int_equal(rename(path, away), 0);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(rename(away, path), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 0);
}

/* Between its first connection and its second the server becomes another one, which
 * does not know the session. */
TEST_WITH(test_another_server_while_opening, set_up, tear_down)
{
    mock_fail(&mock, MOCK_FENCE, EINVAL, 1); /* a join is a control record as well */
    open_device();
    put_page(3, 'o', false);
    assert_int_equal(flush(), 0);
    assert_int_equal(get_page(3), 'o');
    assert_int_equal(mock_byte(&mock, true, 3 * PAGE), 'o');
}

/* A fence that fails has fenced nothing: the next attempt has to, and it is the session
 * of the write that it names. */
TEST_WITH(test_fence_that_fails, set_up, tear_down)
{
    struct job first = {.what = JOB_WRITE, .page = 1, .letter = 'a'},
               second = {.what = JOB_WRITE, .page = 1, .letter = 'b'};

    options.connections = 1; /* no record but fences, then */
    open_device();
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&first);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_fail(&mock, MOCK_FENCE, EIO, 1);
    mock_cut(&mock);
    await(has_been_said, "the server is there, but");
    start_job(&second);
    mock_await_held(&mock, MOCK_FENCE, 1);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&first), 0);
    assert_int_equal(finish_job(&second), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
    assert_int_equal(stat_now().fences, 1);
}

static bool are_as_many_as_wanted(void *opaque)
{
    return mock_open_conns(&mock) == options.connections;
}

/* A connection that goes while nobody uses it: all are made anew. */
TEST_WITH(test_one_idle_connection_goes, set_up_open, tear_down)
{
    unsigned last = 0;

    pthread_mutex_lock(&mock.lock);
    for (unsigned i = 0; i < MOCK_CONNS; i++)
        if (mock.conn[i].used && mock.conn[i].fd != -1)
            last = i;
    assert_true(last > 0);
    shutdown(mock.conn[last].fd, SHUT_RDWR);
    pthread_mutex_unlock(&mock.lock);
    await_reconnections(1);
    assert_int_equal(said("is gone"), 1);
    await(are_as_many_as_wanted, NULL); /* its threads of the old ones have ended */
}

/* One connection's end, or one answer that says so, is the end of all: a server that
 * ends waits for none. */
TEST_WITH(test_all_are_closed, set_up_open, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'w'};

    put_page(0, 'a', false);
    /* One request hangs, and so does its connection. */
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_WRITE, 1);
    shutdown(mock.listener, SHUT_RDWR);
    pthread_mutex_lock(&mock.lock);
    mock.ending = true;
    pthread_mutex_unlock(&mock.lock);
    await_lost();
    mock_hold(&mock, MOCK_WRITE, false);
    await(is_disconnected, NULL);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(get_page(1), 'w');
}

static void *open_it(void *opaque)
{
    *(int *)opaque = qm_device_open(mock.uri, &options, &device);
    return NULL;
}

/* A server is told to end while a client is connecting: it greets nobody any more, and
 * waits for the first connection, which is asked while the client waits for a second's
 * greeting. */
TEST_WITH(test_end_while_opening, set_up, tear_down)
{
    pthread_t thread;
    unsigned ungreeted;
    int result = 0;

    mock_start(&mock);
    mock_hold(&mock, MOCK_HEADER, true);
    assert_int_equal(pthread_create(&thread, NULL, open_it, &result), 0);
    mock_await_held(&mock, MOCK_HEADER, 1);
    pthread_mutex_lock(&mock.lock);
    mock.silent = true;
    mock.hold[MOCK_HEADER] = false;
    pthread_cond_broadcast(&mock.changed);
    while (mock.ungreeted == 0)
        pthread_cond_wait(&mock.changed, &mock.lock);
    mock.hold[MOCK_HEADER] = true;
    while (mock.held[MOCK_HEADER] == 0 && mock.ungreeted > 0)
        pthread_cond_wait(&mock.changed, &mock.lock);
    ungreeted = mock.ungreeted;
    mock.ending = true;
    mock.hold[MOCK_HEADER] = false;
    pthread_cond_broadcast(&mock.changed);
    pthread_mutex_unlock(&mock.lock);
    pthread_join(thread, NULL);
    assert_int_equal(result, ENOTCONN);
    assert_int_equal(ungreeted, 1);
}

/* A server that is told to end does so although nobody asks it for anything. */
TEST_WITH(test_idle_end, set_up, tear_down)
{
    for (int plain = 0; plain < 2; plain++) {
        options.plain = plain;
        open_device();
        pthread_mutex_lock(&mock.lock);
        mock.ending = true;
        pthread_mutex_unlock(&mock.lock);
        shutdown(mock.listener, SHUT_RDWR);
        await(is_disconnected, NULL);
        assert_false(qm_device_is_up(device));
        mock_crash(&mock, false);
        qm_device_close(device);
        device = NULL;
    }
}

/* What is retained survives a loss in the middle of being sent again ... */
TEST_WITH(test_loss_while_sending_again, set_up_open, tear_down)
{
    for (unsigned i = 0; i < 40; i++)
        put_page(i, 'a', false);
    mock_crash(&mock, true);
    mock_hold(&mock, MOCK_WRITE, true);
    mock_start(&mock);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    mock_await_held(&mock, MOCK_FENCE, 1);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(get_page(39), 'a');
    /* The instance was met before, and has not got all of it. */
    assert_int_equal(stat_now().reconnections, 1);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(mock_byte(&mock, true, i * PAGE), 'a');
}

/* ... and an error, after which it is tried again. */
TEST_WITH(test_error_while_sending_again, set_up_open, tear_down)
{
    const enum mock_type type[] = {MOCK_WRITE, MOCK_FLUSH};

    for (unsigned i = 0; i < 2; i++) {
        struct job read = {.what = JOB_READ};

        put_page(0, (char)('a' + i), false);
        mock_crash(&mock, true);
        mock_fail(&mock, type[i], EIO, 3);
        mock_start(&mock);
        start_job(&read);
        assert_int_equal(finish_job(&read), 0);
        assert_int_equal(read.letter, 'a' + i);
        assert_int_equal(mock_byte(&mock, true, 0), 'a' + i);
        assert_int_equal(said("the server is there, but"), i + 1);
        assert_int_equal(flush(), 0);
    }
}

/* ... or is sent again because a flush had failed, over a server that stays. */
TEST_WITH(test_loss_after_a_flush_that_failed, set_up_open, tear_down)
{
    struct job job = {.what = JOB_FLUSH};

    put_page(0, 'a', false);
    mock.forget = true;
    mock_fail(&mock, MOCK_FLUSH, EIO, 1);
    assert_int_equal(flush(), EIO);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&job);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    mock_hold(&mock, MOCK_WRITE, false);
    await_reconnections(1);
    assert_int_equal(finish_job(&job), 0);
    assert_int_equal(mock_byte(&mock, true, 0), 'a');
}

/* A server with another device is not used; the right one is waited for. */
TEST_WITH(test_another_device, set_up_open, tear_down)
{
    struct job read = {.what = JOB_READ};
    unsigned headers;

    put_page(0, 'a', false);
    mock_crash(&mock, true);
    mock.size = MOCK_SIZE / 2;
    headers = mock_count(&mock, MOCK_HEADER);
    mock_start(&mock);
    start_job(&read);
    mock_await_ops(&mock, MOCK_HEADER, headers + 3);
    assert_int_equal(mock_count(&mock, MOCK_READ), 0);
    assert_int_equal(said("another device now: 2097152 bytes, not 4194304"), 1);
    assert_int_equal(said("another device"), 1);
    mock_crash(&mock, true);
    mock.size = MOCK_SIZE;
    mock_start(&mock);
    assert_int_equal(finish_job(&read), 0);
    assert_int_equal(read.letter, 'a');
    assert_int_equal(said("is gone"), 1);
    assert_int_equal(said("is back"), 1);
}

/* A server that comes back each time and fails at once is not tried as fast as can be.
 */
TEST_WITH(test_flapping, set_up, tear_down)
{
    enum { TIMES = 6 };
    struct timespec start, end;
    int64_t ms;

    open_device();
    mock_fail(&mock, MOCK_WRITE, ESHUTDOWN, TIMES);
    clock_gettime(CLOCK_MONOTONIC, &start);
    put_page(0, 'a', false);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_int_equal(stat_now().reconnections, TIMES);
    ms = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
    /* The pauses of 50, 100, ... 800 ms; a slow machine makes them longer, or takes a
     * second by itself. */
    assert_true(ms >= 1000);
}

/* Several connections need a server that allows them. */
TEST_WITH(test_no_multi_conn_now, set_up_open, tear_down)
{
    put_page(0, 'a', false);
    mock_crash(&mock, true);
    mock.no_multi_conn = true;
    mock_start(&mock);
    await(has_been_said, "no multi-conn");
    mock_crash(&mock, true);
    mock.no_multi_conn = false;
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
}

/* The block size is advice, and no reason to wait for another server. */
TEST_WITH(test_another_block_size, set_up_open, tear_down)
{
    put_page(0, 'a', false);
    mock_crash(&mock, true);
    mock.block_size = 8192;
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(said("another device"), 0);
    assert_int_equal(qm_device_block_size(device), 4096);
}
