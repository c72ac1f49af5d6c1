/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device-async.c - the device: asynchronous requests, through losses and without.
 */
#include <unistd.h>

#include "device-fixture.h"

struct aio {
    char buf[PAGE];
    int error;
    _Atomic unsigned calls;
    struct aio *next; /* is started from done() */
    unsigned page;
    bool write;
};

static void start_aio(struct aio *aio, bool write, unsigned page, char letter,
                      bool fua);

static void aio_done(void *opaque, int error)
{
    struct aio *aio = opaque;

    aio->error = error;
    if (aio->next)
        start_aio(aio->next, aio->next->write, aio->next->page, 'n', false);
    atomic_fetch_add(&aio->calls, 1);
}

static void start_aio(struct aio *aio, bool write, unsigned page, char letter, bool fua)
{
    aio->page = page;
    aio->write = write;
    memset(aio->buf, letter, sizeof aio->buf);
    assert_int_equal(qm_device_start(device, write, 0, aio->buf, sizeof aio->buf,
                                     (uint64_t)page * PAGE, fua, aio_done, aio),
                     0);
}

static bool is_over(void *opaque)
{
    return atomic_load(&((struct aio *)opaque)->calls) > 0;
}

static int finish_aio(struct aio *aio)
{
    await(is_over, aio);
    assert_int_equal(atomic_load(&aio->calls), 1);
    return aio->error;
}

TEST_WITH(test_requests, set_up_open, tear_down)
{
    struct aio write = {.write = true}, read = {0}, chain[20] = {0}, none = {0};

    start_aio(&write, true, 3, 'a', false);
    assert_int_equal(finish_aio(&write), 0);
    start_aio(&read, false, 3, 'x', false);
    assert_int_equal(finish_aio(&read), 0);
    assert_int_equal(read.buf[PAGE - 1], 'a');
    assert_int_equal(stat_now().retained_changes, 1);
    /* One from within the other, all over the same page. */
    for (unsigned i = 0; i < 20; i++) {
        chain[i].next = i < 19 ? &chain[i + 1] : NULL;
        chain[i].page = 3;
        chain[i].write = i % 2;
    }
    start_aio(&chain[0], false, 3, 'x', false);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(finish_aio(&chain[i]), 0);
    assert_int_equal(get_page(3), 'n');
    assert_int_equal(
        qm_device_start(device, false, 0, none.buf, 0, 0, false, aio_done, &none), 0);
    assert_int_equal(finish_aio(&none), 0);
    assert_int_equal(
        qm_device_start(device, true, 0, none.buf, SIZE_MAX, 1, false, aio_done, &none),
        EINVAL);
    mock_fail(&mock, MOCK_WRITE, ENOSPC, 1);
    write.calls = 0;
    start_aio(&write, true, 3, 'b', false);
    assert_int_equal(finish_aio(&write), ENOSPC);
}

/* Those in flight when the server goes, and those started while it is away, are
 * carried out when it is back; what was retained goes before. */
TEST_WITH(test_loss, set_up, tear_down)
{
    static struct aio aio[64];

    memset(aio, 0, sizeof aio);
    open_device();
    put_page(100, 'r', false);
    mock_hold(&mock, MOCK_WRITE, true);
    for (unsigned i = 0; i < 32; i++)
        start_aio(&aio[i], true, i, 'a', i % 2);
    mock_await_held(&mock, MOCK_WRITE, 4);
    mock_crash(&mock, true);
    mock_hold(&mock, MOCK_WRITE, false);
    await_lost();
    for (unsigned i = 32; i < 64; i++)
        start_aio(&aio[i], true, i, 'a', i % 2);
    mock_start(&mock);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(finish_aio(&aio[i]), 0);
    assert_int_equal(mock_byte(&mock, true, 100 * PAGE), 'r');
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(mock_byte(&mock, i % 2, i * PAGE), 'a');
    assert_int_equal(flush(), 0);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(mock_byte(&mock, true, i * PAGE), 'a');
}

/* Overlapping ones in the order in which they were started, with synchronous ones. */
TEST_WITH(test_order, set_up_open, tear_down)
{
    struct aio first = {0}, second = {0};
    struct job third = {.what = JOB_WRITE, .page = 1, .letter = 'c'};

    mock_hold(&mock, MOCK_WRITE, true);
    start_aio(&first, true, 1, 'a', false);
    start_aio(&second, true, 1, 'b', false);
    start_job(&third);
    await_asleep(&third);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    mock_await_held(&mock, MOCK_FENCE, 1);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_aio(&first), 0);
    assert_int_equal(finish_aio(&second), 0);
    assert_int_equal(finish_job(&third), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'c');
}

/* One that fails does not keep those that overlap it. */
TEST_WITH(test_order_after_an_error, set_up_open, tear_down)
{
    struct aio first = {0}, second = {0};

    mock_hold(&mock, MOCK_WRITE, true);
    start_aio(&first, true, 1, 'a', false);
    start_aio(&second, true, 1, 'b', false);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_fail(&mock, MOCK_WRITE, ENOSPC, 1);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_aio(&first), ENOSPC);
    assert_int_equal(finish_aio(&second), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'b');
    /* It is not retained, and holds no room. */
    assert_int_equal(stat_now().retained_changes, 1);
    assert_int_equal(qm_device_stop_retaining(device), 0);
}

/* Starting one does not wait for room, and neither does it get more than there is. */
TEST_WITH(test_no_room, set_up, tear_down)
{
    static struct aio aio[32];

    memset(aio, 0, sizeof aio);
    options.retain = 4 * (PAGE + 256);
    open_device();
    for (unsigned i = 0; i < 32; i++)
        start_aio(&aio[i], true, i, 'a', false);
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(finish_aio(&aio[i]), 0);
    assert_true(stat_now().retained_most <= options.retain);
    assert_true(stat_now().background_flushes > 0);
    assert_int_equal(flush(), 0);
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(mock_byte(&mock, true, i * PAGE), 'a');
}

/* A stable one is, also where the server has no FUA; a flush that fails is its error.
 */
TEST_WITH(test_without_fua, set_up, tear_down)
{
    struct aio aio = {0};

    mock.no_fua = true;
    open_device();
    start_aio(&aio, true, 1, 'a', true);
    assert_int_equal(finish_aio(&aio), 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'a');
    mock_fail(&mock, MOCK_FLUSH, EIO, 1);
    aio.calls = 0;
    start_aio(&aio, true, 1, 'b', true);
    assert_int_equal(finish_aio(&aio), EIO);
    /* Lost between the write and its flush. */
    mock_hold(&mock, MOCK_FLUSH, true);
    aio.calls = 0;
    start_aio(&aio, true, 1, 'c', true);
    mock_await_held(&mock, MOCK_FLUSH, 1);
    mock_crash(&mock, true);
    mock_hold(&mock, MOCK_FLUSH, false);
    mock_start(&mock);
    assert_int_equal(finish_aio(&aio), 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'c');
}

/* That flush is one as any: after it nothing that was retained is taken for stable. */
TEST_WITH(test_its_flush_fails, set_up, tear_down)
{
    struct aio aio = {0};

    mock.no_fua = true;
    mock.forget = true;
    open_device();
    put_page(0, 'r', false);
    mock_fail(&mock, MOCK_FLUSH, EIO, 1);
    start_aio(&aio, true, 1, 'a', true);
    assert_int_equal(finish_aio(&aio), EIO);
    assert_int_equal(flush(), EIO);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, true, 0), 'r');
}

/* One that is answered across a flush stays retained. */
TEST_WITH(test_write_across_a_flush, set_up_open, tear_down)
{
    struct aio aio = {0};

    mock_hold(&mock, MOCK_WRITE, true);
    start_aio(&aio, true, 1, 'a', false);
    mock_await_held(&mock, MOCK_WRITE, 1);
    assert_int_equal(flush(), 0);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_aio(&aio), 0);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(1), 'a');
}

/* How long they wait, and that closing gives each its end. */
TEST_WITH(test_waiting, set_up, tear_down)
{
    struct aio early = {0}, late = {0};

    options.wait = 0;
    open_device();
    mock_crash(&mock, true);
    start_aio(&early, false, 1, 'x', false);
    assert_int_equal(finish_aio(&early), EIO);
    qm_device_close(device);

    options.wait = QM_DEVICE_FOREVER;
    open_device();
    mock_hold(&mock, MOCK_READ, true);
    early.calls = 0;
    start_aio(&early, false, 1, 'x', false);
    mock_await_held(&mock, MOCK_READ, 1);
    mock_crash(&mock, true);
    await_lost();
    start_aio(&late, true, 1, 'x', false);
    qm_device_close(device);
    device = NULL;
    assert_int_equal(atomic_load(&early.calls), 1);
    assert_int_equal(early.error, EIO);
    assert_int_equal(atomic_load(&late.calls), 1);
    assert_int_equal(late.error, EIO);
}

/* Many threads, both kinds, while the server comes and goes. */
enum { THREADS = 4, ROUNDS = 60, PAGES = 16 };

static void *hammer(void *opaque)
{
    unsigned base = *(unsigned *)opaque * PAGES;
    _Atomic unsigned mine = qm_device_losses(device);
    char want[PAGES] = {0};
    void *failed = NULL;

    for (unsigned i = 1; i <= ROUNDS && !failed; i++) {
        unsigned page = (i * 7) % PAGES;
        struct aio aio = {0};

        want[page] = (char)i;
        start_aio(&aio, true, base + page, (char)i, i % 5 == 0);
        while (!is_over(&aio))
            usleep(100);
        page = (i * 3) % PAGES;
        want[page] = (char)(i + 100);
        if (aio.error || try_put_page(base + page, want[page], i % 7 == 0))
            failed = opaque;
        if (i % 9 == 0 && qm_device_flush(device, NULL, &mine))
            failed = opaque;
        for (page = 0; page < PAGES; page++) {
            char c;

            if (qm_device_read(device, NULL, 0, &c, 1,
                               (uint64_t)(base + page) * PAGE) ||
                c != want[page])
                failed = opaque;
        }
    }
    return failed;
}

TEST_WITH(test_all_at_once, set_up, tear_down)
{
    pthread_t thread[THREADS];
    unsigned number[THREADS];
    void *failed;

    options.retain = 12 * (PAGE + 256);
    open_device();
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, &number[i]), 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        usleep(10000);
        if (i % 3 == 0) {
            mock_cut(&mock);
        } else {
            mock_crash(&mock, true);
            mock_start(&mock);
        }
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(flush(), 0);
    assert_int_equal(qm_device_losses(device), 0);
    assert_true(mock_is_all_durable(&mock));
}
