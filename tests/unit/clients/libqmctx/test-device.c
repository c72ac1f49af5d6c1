/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device.c - the device: what is stable, what is retained, and in which order. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "device-fixture.h"

/* A write in flight across a flush is not covered by it. */
TEST_WITH(test_write_across_a_flush, set_up_open, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'b'};

    put_page(0, 'a', false);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_WRITE, 1);
    assert_int_equal(flush(), 0);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(stat_now().answered, 2);
    assert_int_equal(stat_now().flushed, 1);
    assert_int_equal(stat_now().retained_changes, 1);

    mock_crash(&mock, true);
    assert_int_equal(mock_byte(&mock, false, PAGE), 0);
    mock_start(&mock);
    assert_int_equal(get_page(1), 'b');
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
    assert_int_equal(stat_now().retained_changes, 0);
    assert_int_equal(stat_now().resent_changes, 1);
    assert_int_equal(stat_now().instances, 1);
    assert_int_equal(flush(), 0);
    assert_int_equal(said("is gone"), 1);
    assert_int_equal(said("is back"), 1);
}

/* A flush covers what was answered when it was sent, not when it is answered. */
TEST_WITH(test_write_during_a_flush, set_up_open, tear_down)
{
    struct job job = {.what = JOB_FLUSH};

    put_page(0, 'a', false);
    mock_hold(&mock, MOCK_FLUSH, true);
    start_job(&job);
    mock_await_held(&mock, MOCK_FLUSH, 1);
    put_page(1, 'b', false);
    mock_hold(&mock, MOCK_FLUSH, false);
    assert_int_equal(finish_job(&job), 0);
    assert_int_equal(stat_now().flushed, 1);
    assert_int_equal(stat_now().retained_changes, 1);
}

/* Of each byte the newest is sent again, zeroing included, and nobody reads before all
 * of it is there. */
TEST_WITH(test_newest_is_sent_again, set_up_open, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 5, .pages = 2},
               read = {.what = JOB_READ, .page = 3};
    char two[2 * PAGE];

    for (unsigned i = 0; i < 8; i++)
        put_page(i, 'o', false);
    memset(two, 'p', sizeof two);
    assert_int_equal(
        qm_device_write(device, NULL, 0, two, sizeof two, PAGE + 100, false), 0);
    put_page(3, 'q', false);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    put_page(6, 'r', false);
    mock_crash(&mock, true);
    mock_hold(&mock, MOCK_WRITE, true);
    mock_start(&mock);
    mock_await_held(&mock, MOCK_WRITE, 1);
    start_job(&read);
    assert_false(qm_device_is_up(device));
    assert_int_equal(mock_count(&mock, MOCK_READ), 0);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&read), 0);
    assert_int_equal(read.letter, 'q');
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(mock_byte(&mock, true, i * PAGE + 200), "oppqo\0ro"[i]);
    assert_int_equal(mock_byte(&mock, true, PAGE + 99), 'o');
    assert_int_equal(mock_byte(&mock, true, PAGE + 100), 'p');
    assert_int_equal(mock_byte(&mock, true, 3 * PAGE - 1), 'p');
    assert_int_equal(stat_now().resent_changes, 12);
    /* Each byte once: 8 pages without the zeroed one. */
    assert_int_equal(stat_now().resent_bytes, 7 * PAGE);
}

/* What is stable when it is answered is neither retained nor overwritten by what is. */
TEST_WITH(test_stable_write_over_a_retained_one, set_up_open, tear_down)
{
    unsigned writes = 0;

    for (unsigned i = 0; i < 3; i++)
        put_page(i, 'a', false);
    put_page(1, 'b', true);
    mock_crash(&mock, true);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
    mock_start(&mock);
    assert_int_equal(get_page(1), 'b');
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(get_page(2), 'a');
    assert_int_equal(stat_now().resent_bytes, 2 * PAGE);
    /* The older data was not even sent for a moment. */
    for (unsigned i = 0; i < mock.ops; i++)
        writes += mock.op[i].type == MOCK_WRITE && mock.op[i].offset == PAGE;
    assert_int_equal(writes, 2);
}

/* ... also where the older one, which is large, only reaches to it. */
TEST_WITH(test_stable_write_at_the_end_of_a_retained_one, set_up_open, tear_down)
{
    const unsigned boundary = (1 << 20) / PAGE; /* of regions of the device */
    struct job large = {
        .what = JOB_WRITE, .page = boundary - 1, .pages = 2, .letter = 'a'};

    start_job(&large);
    assert_int_equal(finish_job(&large), 0);
    put_page(boundary, 'b', true);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(boundary), 'b');
    assert_int_equal(get_page(boundary - 1), 'a');
}

TEST_WITH(test_stable_writes_do_not_count_as_lost, set_up, tear_down)
{
    options.mode = QM_RETAIN_OFF;
    open_device();
    put_page(0, 'a', true);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(flush(), 0);
    assert_int_equal(qm_device_losses(device), 0);
}

/* Without retaining, a loss is told, once to each that opened before it. */
TEST_WITH(test_loss_is_told, set_up, tear_down)
{
    _Atomic unsigned other, later;

    options.mode = QM_RETAIN_OFF;
    open_device();
    other = qm_device_losses(device);
    put_page(0, 'a', false);
    /* The same instance has not lost anything. */
    mock_cut(&mock);
    await_reconnections(1);
    assert_int_equal(flush(), 0);
    put_page(0, 'b', false);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    later = qm_device_losses(device);
    assert_int_equal(flush(), EIO);
    assert_int_equal(flush(), 0);
    assert_int_equal(qm_device_flush(device, NULL, &other), EIO);
    assert_int_equal(qm_device_flush(device, NULL, &other), 0);
    assert_int_equal(qm_device_flush(device, NULL, &later), 0);
    /* And so is the next. */
    put_page(0, 'c', false);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(flush(), EIO);
    assert_int_equal(flush(), 0);
}

/* All writes are stable when they are answered. */
TEST_WITH(test_every_write_stable, set_up, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 2};

    options.mode = QM_RETAIN_FUA;
    open_device();
    put_page(0, 'a', false);
    put_page(2, 'b', false);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    assert_int_equal(stat_now().retained_changes, 0);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(get_page(2), 0);
    assert_int_equal(flush(), 0);
}

/* ... and that can begin later, when what was retained has been flushed. */
TEST_WITH(test_stop_retaining, set_up_open, tear_down)
{
    put_page(0, 'a', false);
    mock_fail(&mock, MOCK_FLUSH, EIO, 1);
    assert_int_equal(qm_device_stop_retaining(device), EIO);
    /* Stable by a flush of its own, and it hides nothing. */
    put_page(1, 'b', false);
    assert_int_equal(stat_now().retained_changes, 1);
    assert_int_equal(qm_device_stop_retaining(device), 0);
    assert_int_equal(stat_now().retained_changes, 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
    put_page(1, 'c', false);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'c');
}

/* ... what is still in flight included. */
TEST_WITH(test_stop_retaining_in_flight, set_up_open, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'w'},
               stop = {.what = JOB_STOP_RETAINING};

    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_WRITE, 1);
    start_job(&stop);
    await_asleep(&stop);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(finish_job(&stop), 0);
    assert_int_equal(stat_now().retained_changes, 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'w');
}

/* The error goes to who flushes, and once to the others; the next flush first sends
 * again what the server may have forgotten. */
TEST_WITH(test_flush_that_fails, set_up, tear_down)
{
    _Atomic unsigned other;

    open_device();
    other = qm_device_losses(device);
    put_page(0, 'a', false);
    put_page(1, 'b', false);
    mock.forget = true;
    mock_fail(&mock, MOCK_FLUSH, ENOSPC, 2);
    assert_int_equal(flush(), ENOSPC);
    assert_int_equal(stat_now().retained_changes, 2);
    assert_int_equal(flush(), ENOSPC);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, true, 0), 'a');
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
    assert_int_equal(stat_now().retained_changes, 0);
    assert_int_equal(qm_device_flush(device, NULL, &other), EIO);
    assert_int_equal(qm_device_flush(device, NULL, &other), 0);
    assert_int_equal(flush(), 0);
    assert_int_equal(qm_device_losses(device), 2);
}

/* `wait` is for a server that is away.  While it gets again what a FLUSH failed for, it
 * is there. */
TEST_WITH(test_flush_that_fails_without_waiting, set_up, tear_down)
{
    struct job sync = {.what = JOB_FLUSH}, read = {.what = JOB_READ},
               write = {.what = JOB_WRITE, .letter = 'w'};

    options.wait = 0;
    open_device();
    put_page(1, 'a', false);
    mock_fail(&mock, MOCK_FLUSH, EIO, 1);
    assert_int_equal(flush(), EIO);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&sync);
    await_lost();
    start_job(&read);
    start_job(&write);
    await_asleep(&read);
    await_asleep(&write);
    assert_false(job_is_over(&sync));
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&sync), 0);
    assert_int_equal(finish_job(&read), 0);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(stat_now().reconnections, 0);
}

/* While FLUSH fails, stable writes still come to their end: what they hide is kept, and
 * no more. */
TEST_WITH(test_stable_writes_while_no_flush, set_up_open, tear_down)
{
    put_page(0, 'a', false);
    put_page(1, 'b', false);
    mock_fail(&mock, MOCK_FLUSH, EIO, 1000000);
    assert_int_equal(flush(), EIO);
    for (unsigned i = 0; i < 100; i++) {
        put_page(1, 'c', true);
        put_page(2, 'd', true);
    }
    assert_int_equal(stat_now().retained_changes, 3);
    mock_fail(&mock, MOCK_FLUSH, 0, 0);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(get_page(1), 'c');
    assert_int_equal(get_page(2), 'd');
}

/* Writers wait for room, and a flush in the background makes it. */
TEST_WITH(test_no_room, set_up, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 3, .letter = 'd'};

    options.retain = 3 * (PAGE + 256);
    open_device();
    mock_hold(&mock, MOCK_FLUSH, true);
    put_page(0, 'a', false);
    put_page(1, 'b', false);
    put_page(2, 'c', false);
    mock_await_held(&mock, MOCK_FLUSH, 1);
    start_job(&write);
    await_asleep(&write);
    assert_int_equal(mock_count(&mock, MOCK_WRITE), 3);
    assert_false(job_is_over(&write));
    mock_hold(&mock, MOCK_FLUSH, false);
    assert_int_equal(finish_job(&write), 0);
    assert_true(stat_now().background_flushes > 0);
    assert_true(stat_now().retained_most <= options.retain);
}

/* ... and if that fails, it is the writers who are told, and not kept waiting. */
TEST_WITH(test_no_room_and_no_flush, set_up, tear_down)
{
    options.retain = 3 * (PAGE + 256);
    open_device();
    mock_fail(&mock, MOCK_FLUSH, EIO, UINT32_MAX);
    for (unsigned i = 0; i < 3; i++)
        try_put_page(i, 'a', false);
    assert_int_equal(try_put_page(3, 'b', false), EIO);
    mock_fail(&mock, MOCK_FLUSH, EIO, 0);
    assert_int_equal(flush(), EIO);
    assert_int_equal(flush(), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(mock_byte(&mock, true, i * PAGE), 'a');
}

static bool is_nothing_retained(void *opaque)
{
    return stat_now().retained_changes == 0;
}

/* What no program flushes is flushed after a while, and not before. */
TEST_WITH(test_old_writes_are_flushed, set_up_open, tear_down)
{
    put_page(0, 'a', false);
    qm_device_close(device);
    device = NULL;
    /* That at the end. */
    assert_int_equal(mock_count(&mock, MOCK_FLUSH), 1);

    options.flush_ms = 1;
    assert_int_equal(qm_device_open(mock.uri, &options, &device), 0);
    put_page(1, 'b', false);
    await(is_nothing_retained, NULL);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
    assert_true(stat_now().background_flushes > 0);
    assert_int_equal(qm_device_losses(device), 0);
}

static bool has_gone(void *opaque)
{
    return atomic_load((_Atomic bool *)opaque);
}

/* A writer that goes while it waits for room does not leave the device flushing. */
TEST_WITH(test_gone_for_want_of_room, set_up, tear_down)
{
    _Atomic bool gone = false;
    struct qm_requester requester = {.gone = has_gone, .opaque = &gone};
    struct job write = {.what = JOB_WRITE, .page = 3, .requester = &requester};

    options.retain = 3 * (PAGE + 256);
    open_device();
    mock_hold(&mock, MOCK_FLUSH, true);
    for (unsigned i = 0; i < 3; i++)
        put_page(i, 'a', false);
    mock_await_held(&mock, MOCK_FLUSH, 1);
    start_job(&write);
    await_asleep(&write);
    atomic_store(&gone, true);
    assert_int_equal(finish_job(&write), EIO);
    mock_hold(&mock, MOCK_FLUSH, false);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, false, 3 * PAGE), 0);
    put_page(0, 'b', false);
    /* It pings when there is nothing else to be done. */
    mock_await_ops(&mock, MOCK_HEADER, mock_count(&mock, MOCK_HEADER) + 2);
    assert_int_equal(stat_now().retained_changes, 1);
}

/* What is larger than can be retained is stable when it is answered. */
TEST_WITH(test_too_large_to_retain, set_up, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .pages = 8, .letter = 'w'};

    options.retain = 2 * PAGE;
    open_device();
    put_page(2, 'a', false);
    start_job(&write);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, true, 2 * PAGE), 'w');
    assert_int_equal(mock_byte(&mock, true, 9 * PAGE - 1), 'w');
    /* The device may still flush what it had retained, and have the first error. */
    mock_fail(&mock, MOCK_FLUSH, EIO, 2);
    start_job(&write);
    assert_int_equal(finish_job(&write), EIO);
    mock_fail(&mock, MOCK_FLUSH, 0, 0);
}

/* ... and is not taken for stable if the server goes between it and its flush. */
TEST_WITH(test_lost_before_its_flush, set_up, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .pages = 8, .letter = 'w'};

    options.retain = 2 * PAGE;
    open_device();
    mock_hold(&mock, MOCK_FLUSH, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_FLUSH, 1);
    mock_crash(&mock, true);
    mock_hold(&mock, MOCK_FLUSH, false);
    mock_start(&mock);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, true, 5 * PAGE), 'w');
}

TEST_WITH(test_server_without_fua, set_up, tear_down)
{
    char page[PAGE];

    mock.no_fua = true;
    open_device();
    put_page(0, 'a', true);
    assert_int_equal(mock_byte(&mock, true, 0), 'a');
    assert_int_equal(stat_now().retained_changes, 0);
    /* So is one over the connection itself: a flush does what FUA would. */
    memset(page, 'b', sizeof page);
    assert_int_equal(
        qmctx_pwrite(qm_device_qmctx(device), 0, page, sizeof page, PAGE, true), 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
}

/* Changes that overlap go one after the other, in the order of their arrival. */
TEST_WITH(test_overlapping_writes, set_up_open, tear_down)
{
    struct job job[4];

    mock_hold(&mock, MOCK_WRITE, true);
    for (unsigned i = 0; i < 4; i++) {
        job[i] = (struct job){.what = JOB_WRITE,
                              .page = i == 3 ? 100 : i,
                              .pages = 2,
                              .letter = (char)('a' + i)};
        start_job(&job[i]);
        /* The first, and the last, which overlaps none. */
        mock_await_held(&mock, MOCK_WRITE, i == 3 ? 2 : 1);
        await_asleep(&job[i]);
    }
    assert_int_equal(mock_count(&mock, MOCK_WRITE), 0);
    mock_hold(&mock, MOCK_WRITE, false);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(finish_job(&job[i]), 0);
    assert_int_equal(mock_byte(&mock, false, 0), 'a');
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
    assert_int_equal(mock_byte(&mock, false, 2 * PAGE), 'c');
}

TEST_WITH(test_ranges, set_up_open, tear_down)
{
    const uint64_t size = MOCK_SIZE;
    char c = 'x';

    assert_int_equal(qm_device_clamp(device, false, 10, (off_t)size - 4), 4);
    assert_int_equal(qm_device_clamp(device, false, 10, (off_t)size), 0);
    assert_int_equal(qm_device_clamp(device, true, 10, (off_t)size), -ENOSPC);
    assert_int_equal(qm_device_clamp(device, true, 10, -1), -EINVAL);
    assert_int_equal(qm_device_clamp(device, false, SIZE_MAX, 0), (ssize_t)size);
    assert_int_equal(qm_device_read(device, NULL, 0, &c, 1, size), EINVAL);
    assert_int_equal(qm_device_read(device, NULL, 0, &c, SIZE_MAX, 1), EINVAL);
    assert_int_equal(qm_device_write(device, NULL, 0, &c, SIZE_MAX, 1, false), EINVAL);
    assert_int_equal(qm_device_write(device, NULL, 0, &c, 1, UINT64_MAX, true), EINVAL);
    assert_int_equal(qm_device_zero(device, NULL, UINT64_MAX, 1), EINVAL);
    assert_int_equal(qm_device_write(device, NULL, 0, &c, 0, 0, false), 0);
    for (unsigned i = 0; i < 4; i++)
        put_page(i, 'a', false);
    assert_int_equal(qm_device_allocate(device, NULL, 0, 0, (off_t)size), 0);
    assert_int_equal(qm_device_allocate(device, NULL, 0, 1, (off_t)size), ENOSPC);
    assert_int_equal(qm_device_allocate(device, NULL, 0, -1, 1), EINVAL);
    assert_int_equal(qm_device_allocate(device, NULL, FALLOC_FL_COLLAPSE_RANGE, 0, 1),
                     EOPNOTSUPP);
    assert_int_equal(qm_device_allocate(device, NULL, FALLOC_FL_ZERO_RANGE, PAGE, PAGE),
                     0);
    assert_int_equal(qm_device_allocate(device, NULL,
                                        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        INT64_MAX - 1, INT64_MAX),
                     0);
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(get_page(1), 0);
    assert_int_equal(get_page(2), 'a');
    /* Zeroing beyond the end would make a file longer, punching would not. */
    assert_int_equal(
        qm_device_allocate(device, NULL, FALLOC_FL_ZERO_RANGE, 2 * PAGE, (off_t)size),
        ENOSPC);
    assert_int_equal(get_page(2), 'a');
    assert_int_equal(qm_device_allocate(device, NULL,
                                        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                        3 * PAGE, (off_t)size),
                     0);
    assert_int_equal(get_page(2), 'a');
    assert_int_equal(get_page(3), 0);
}

/* A request is of what ssize_t and the wire can say at most, as Linux's are. */
TEST_WITH(test_large_device, set_up, tear_down)
{
    const uint64_t size = UINT64_C(8) << 30;

    mock.size = size;
    open_device();
    assert_int_equal(qm_device_clamp(device, false, SIZE_MAX, 0), 0x7ffff000);
    assert_int_equal(qm_device_clamp(device, false, (size_t)size - 1, 0), 0x7ffff000);
    assert_int_equal(qm_device_clamp(device, true, SIZE_MAX, 512), 0x7ffff000);
    assert_int_equal(qm_device_clamp(device, true, SIZE_MAX, (off_t)size - 5), 5);
}

/* Closing flushes, and does not wait for ever for a server that hangs. */
TEST_WITH(test_close, set_up, tear_down)
{
    open_device();
    put_page(0, 'a', false);
    qm_device_close(device);
    device = NULL;
    assert_int_equal(mock_byte(&mock, true, 0), 'a');
    assert_int_equal(said("were not flushed"), 0);
    mock_crash(&mock, false);

    open_device();
    put_page(0, 'b', false);
    mock_hold(&mock, MOCK_FLUSH, true);
    qm_device_close(device);
    device = NULL;
    assert_int_equal(said("not flushed: 1 (4352 bytes)"), 1);
}
