/* SPDX-License-Identifier: BSD-3-Clause */
/* test-nbd.c - what a request of a client becomes at the server: a mock server takes it
 * down, and says what of it would be left after a crash. */
#include <endian.h>
#include <linux/nbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "clients/attach/handshake.h"
#include "clients/attach/nbd.h"
#include "device-fixture.h"

enum { WRITE_ZEROES = 6, FUA = 1, NO_HOLE = 2 };

/* A client of attach, at the other end of a socket pair. */
static struct client {
    int fd;
    struct qm_nbd *nbd;
    struct qm_nbd_device served;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
    enum qm_nbd_end how;
    uint64_t cookie;
} client = {
    .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_end(void *opaque, enum qm_nbd_end how)
{
    struct client *c = opaque;

    pthread_mutex_lock(&c->lock);
    c->over = true;
    c->how = how;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void serve_again(void)
{
    int ends[2], sockets = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);

    assert_int_equal(sockets, 0);
    client.over = false;
    client.fd = ends[1];
    assert_int_equal(
        qm_nbd_serve(&client.nbd, ends[0], &client.served, on_end, &client), 0);
}

static void serve(void)
{
    open_device();
    client.served = (struct qm_nbd_device){.device = device, .size = MOCK_SIZE};
    serve_again();
}

static int leave(void **state)
{
    if (client.fd != -1) {
        close(client.fd);
        pthread_mutex_lock(&client.lock);
        while (!client.over)
            pthread_cond_wait(&client.changed, &client.lock);
        pthread_mutex_unlock(&client.lock);
        client.fd = -1;
    }
    return tear_down(state);
}

static void ask(unsigned command, unsigned flags, unsigned page, const void *data)
{
    struct nbd_request r = {.magic = htobe32(NBD_REQUEST_MAGIC),
                            .type = htobe32(flags << 16 | command),
                            .from = htobe64((uint64_t)page * PAGE),
                            .len = htobe32(command == NBD_CMD_FLUSH ? 0 : PAGE)};

    client.cookie++;
    memcpy(&r.handle, &client.cookie, sizeof client.cookie);
    assert_int_equal(send(client.fd, &r, sizeof r, 0), sizeof r);
    if (data)
        assert_int_equal(send(client.fd, data, PAGE, 0), PAGE);
}

/* The error that the server says. */
static unsigned answer(void)
{
    struct nbd_reply r;

    assert_int_equal(recv(client.fd, &r, sizeof r, MSG_WAITALL), sizeof r);
    assert_int_equal(be32toh(r.magic), NBD_REPLY_MAGIC);
    assert_memory_equal(&r.handle, &client.cookie, sizeof client.cookie);
    return be32toh(r.error);
}

static unsigned request(unsigned command, unsigned flags, unsigned page)
{
    ask(command, flags, page, NULL);
    return answer();
}

static unsigned write_page(unsigned flags, unsigned page, char letter)
{
    char data[PAGE];

    memset(data, letter, sizeof data);
    ask(NBD_CMD_WRITE, flags, page, data);
    return answer();
}

/* What a client asked to be on stable storage is there when it is answered. */
TEST_WITH(test_write_fua, set_up, leave)
{
    serve();
    assert_int_equal(write_page(0, 1, 'a'), 0);
    assert_int_equal(mock_byte(&mock, true, 1 * PAGE), 0);
    assert_int_equal(write_page(FUA, 2, 'b'), 0);
    assert_int_equal(mock_byte(&mock, true, 2 * PAGE), 'b');
}

/* The same where the server has no FUA. */
TEST_WITH(test_write_fua_by_flush, set_up, leave)
{
    mock.no_fua = true;
    serve();
    assert_int_equal(write_page(FUA, 2, 'b'), 0);
    assert_int_equal(mock_byte(&mock, true, 2 * PAGE), 'b');
}

TEST_WITH(test_zeroes_fua, set_up, leave)
{
    serve();
    assert_int_equal(write_page(FUA, 3, 'c'), 0);
    assert_int_equal(request(WRITE_ZEROES, 0, 3), 0);
    assert_int_equal(mock_byte(&mock, false, 3 * PAGE), 0);
    assert_int_equal(mock_byte(&mock, true, 3 * PAGE), 'c');
    assert_int_equal(request(WRITE_ZEROES, FUA | NO_HOLE, 3), 0);
    assert_int_equal(mock_byte(&mock, true, 3 * PAGE), 0);
    assert_int_equal(mock_count(&mock, MOCK_ZERO), 2);
}

TEST_WITH(test_trim_fua, set_up, leave)
{
    serve();
    assert_int_equal(write_page(0, 4, 'd'), 0);
    assert_int_equal(request(NBD_CMD_TRIM, 0, 5), 0);
    assert_int_equal(mock_byte(&mock, true, 4 * PAGE), 0);
    assert_int_equal(request(NBD_CMD_TRIM, FUA, 5), 0);
    /* It is the device's flush: of what was written before, too. */
    assert_int_equal(mock_byte(&mock, true, 4 * PAGE), 'd');
    assert_int_equal(mock_count(&mock, MOCK_TRIM), 2);
}

static void cannot_trim(void)
{
    serve();
    assert_int_equal(write_page(0, 6, 'e'), 0);
    assert_int_equal(request(NBD_CMD_TRIM, 0, 6), 0);
    assert_int_equal(request(NBD_CMD_TRIM, FUA, 6), 0);
    assert_int_equal(mock_byte(&mock, true, 6 * PAGE), 'e');
    assert_int_equal(mock_count(&mock, MOCK_WRITE), 1);
    assert_int_equal(mock_count(&mock, MOCK_ZERO), 0);
    assert_int_equal(mock_count(&mock, MOCK_TRIM), 0);
    /* Zeroing is no advice. */
    assert_int_equal(request(WRITE_ZEROES, 0, 6), 0);
    assert_int_equal(mock_byte(&mock, false, 6 * PAGE), 0);
}

/* A server that cannot trim is not made to write: a thin volume would fill up. */
TEST_WITH(test_trim_is_advice, set_up, leave)
{
    mock.no_trim = true;
    cannot_trim();
}

TEST_WITH(test_trim_with_one_connection, set_up, leave)
{
    mock.no_multi_conn = true;
    cannot_trim();
}

/* A write comes after the trimming that was asked for before it, whatever is lost. */
TEST_WITH(test_trim_keeps_its_place, set_up, leave)
{
    struct job write = {.what = JOB_WRITE, .page = 7, .letter = 'g'};

    serve();
    mock_hold(&mock, MOCK_TRIM, true);
    ask(NBD_CMD_TRIM, 0, 7, NULL);
    mock_await_held(&mock, MOCK_TRIM, 1);
    start_job(&write);
    mock_cut(&mock);
    mock_await_held(&mock, MOCK_FENCE, 1);
    assert_int_equal(mock_count(&mock, MOCK_WRITE), 0);
    mock_hold(&mock, MOCK_TRIM, false);
    assert_int_equal(answer(), 0);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, false, 7 * PAGE), 'g');
}

/* A flush says an error that was the device's, once to each connection that is a client
 * of its own. */
TEST_WITH(test_errors_are_told, set_up, leave)
{
    options.mode = QM_RETAIN_OFF;
    serve();
    assert_int_equal(write_page(0, 8, 'h'), 0);
    mock_crash(&mock, true);
    await_lost();
    mock_start(&mock);
    await_reconnections(1);
    assert_int_equal(request(NBD_CMD_FLUSH, 0, 0), EIO);
    assert_int_equal(request(NBD_CMD_FLUSH, 0, 0), 0);
}

/* Of several file systems on the kernel's device each hears that writes were lost,
 * until whose device it is takes it back. */
TEST_WITH(test_each_hears_of_a_loss, set_up, leave)
{
    _Atomic unsigned known;

    options.mode = QM_RETAIN_OFF;
    serve();
    atomic_init(&known, qm_device_losses(device));
    close(client.fd);
    pthread_mutex_lock(&client.lock);
    while (!client.over)
        pthread_cond_wait(&client.changed, &client.lock);
    pthread_mutex_unlock(&client.lock);
    client.served.seen = &known;
    client.served.every_flush = true;
    serve_again();
    assert_int_equal(write_page(0, 8, 'h'), 0);
    mock_crash(&mock, true);
    await_lost();
    mock_start(&mock);
    await_reconnections(1);
    assert_int_equal(request(NBD_CMD_FLUSH, 0, 0), EIO);
    assert_int_equal(request(NBD_CMD_FLUSH, 0, 0), EIO);
    assert_int_equal(request(WRITE_ZEROES, FUA, 1), EIO);
    atomic_store(&known, qm_device_losses(device));
    assert_int_equal(request(NBD_CMD_FLUSH, 0, 0), 0);
}

TEST_WITH(test_flags, set_up, leave)
{
    const struct qm_nbd_device open = {.size = 1}, fixed = {.read_only = true};
    const unsigned always = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH |
                            NBD_FLAG_SEND_FUA | 1u << 8 /* several connections */;

    assert_int_equal(qm_nbd_flags(&open), always | NBD_FLAG_SEND_TRIM | 1u << 6);
    assert_int_equal(qm_nbd_flags(&fixed), always | NBD_FLAG_READ_ONLY);
}

static bool is_over(void *opaque)
{
    bool over;

    pthread_mutex_lock(&client.lock);
    over = client.over;
    pthread_mutex_unlock(&client.lock);
    return over;
}

/* A request whose client has gone is given up, though the server is away. */
TEST_WITH(test_client_that_goes, set_up, leave)
{
    serve();
    mock_crash(&mock, false);
    await_lost();
    ask(NBD_CMD_READ, 0, 0, NULL);
    close(client.fd);
    await(is_over, NULL);
    client.fd = -1;
    mock_start(&mock);
    await_up();
}

/* A command without a range, or with none of its device, does nothing. */
TEST_WITH(test_no_range, set_up, leave)
{
    struct nbd_request r = {.magic = htobe32(NBD_REQUEST_MAGIC),
                            .type = htobe32(NBD_CMD_TRIM)};

    serve();
    client.cookie = 0;
    assert_int_equal(send(client.fd, &r, sizeof r, 0), sizeof r);
    assert_int_equal(answer(), EINVAL);
    assert_int_equal(mock_count(&mock, MOCK_TRIM), 0);
}

static void *shake_hands(void *opaque)
{
    return qm_handshake(*(int *)opaque, 4096, 1) == 0 ? opaque : NULL;
}

/* How long a reply may take to be sent is bounded in the handshake only: a client that
 * reads late is not cut off later. */
TEST(test_handshake_leaves_no_bound)
{
    char greeting[18], export[10];
    const char answer[] = "\0\0\0\3IHAVEOPT\0\0\0\1\0\0\0\0";
    struct timeval bound = {.tv_sec = 1};
    socklen_t len = sizeof bound;
    pthread_t thread;
    void *result;
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, shake_hands, &ends[0]), 0);
    assert_int_equal(recv(ends[1], greeting, sizeof greeting, MSG_WAITALL), 18);
    assert_int_equal(send(ends[1], answer, 20, 0), 20);
    assert_int_equal(recv(ends[1], export, sizeof export, MSG_WAITALL), 10);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_int_equal(getsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &bound, &len), 0);
    assert_int_equal(bound.tv_sec, 0);
    close(ends[0]);
    close(ends[1]);
}
