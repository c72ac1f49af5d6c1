/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device-away.c - the device: how it notices that the server does not answer, how
 * long it waits, servers of other kinds, and what a child of fork() has of it. */
#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device-fixture.h"
#include "tests/unit/check.h"

/* The client's end of the TCP connection whose other end is fd; -1 if it is not found.
 */
static int client_of(int fd)
{
    struct sockaddr_storage want, peer;
    socklen_t want_len = sizeof want, len;

    if (getsockname(fd, (struct sockaddr *)&want, &want_len) == -1)
        return -1;
    for (int other = 3; other < 1024; other++) {
        len = sizeof peer;
        if (other != fd && getpeername(other, (struct sockaddr *)&peer, &len) == 0 &&
            len == want_len && memcmp(&peer, &want, len) == 0)
            return other;
    }
    return -1;
}

static int tcp_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;

    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void *connect_to(void *uri)
{
    struct qmctx *ctx;

    return (void *)(intptr_t)(qmctx_connect(uri, 1, &ctx) == 0);
}

/* Greets, and refuses options until the client asks for an export: by then it has done
 * what it does with a new connection. */
static bool negotiate(int fd)
{
    struct {
        uint64_t magic;
        uint32_t option, type, len;
    } __attribute__((packed))
    reply = {.magic = htobe64(UINT64_C(0x3e889045565a9)), .type = htobe32(0x80000001)};
    struct {
        uint64_t magic;
        uint32_t option, len;
    } __attribute__((packed)) asked;
    char data[4096];

    if (write(fd, "NBDMAGICIHAVEOPT\0\3", 18) != 18 ||
        recv(fd, data, 4, MSG_WAITALL) != 4)
        return false;
    while (recv(fd, &asked, sizeof asked, MSG_WAITALL) == sizeof asked) {
        uint32_t len = be32toh(asked.len);

        if (len > sizeof data ||
            (len > 0 && recv(fd, data, len, MSG_WAITALL) != (ssize_t)len))
            return false;
        if (asked.option == htobe32(7))
            return true;
        reply.option = asked.option;
        if (write(fd, &reply, sizeof reply) != sizeof reply)
            return false;
    }
    return false;
}

/* TCP finds out, in less than 10 seconds, that the peer's machine is gone. */
static void check_watched(const struct sockaddr *any, socklen_t len, const char *host)
{
    int listener = socket(any->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, client;
    struct sockaddr_storage here;
    char uri[64];
    pthread_t thread;
    void *connected;

    if (listener == -1 || bind(listener, any, len) == -1) {
        close(listener); /* a machine without */
        return;
    }
    len = sizeof here;
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &len), 0);
    snprintf(uri, sizeof uri, "nbd://%s:%u/", host,
             (unsigned)ntohs(((struct sockaddr_in *)&here)->sin_port));
    assert_int_equal(pthread_create(&thread, NULL, connect_to, uri), 0);
    fd = accept(listener, NULL, NULL);
    assert_int_not_equal(fd, -1);
    assert_true(negotiate(fd));
    client = client_of(fd);
    assert_int_not_equal(client, -1);
    assert_int_equal(tcp_option(client, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_in_range(tcp_option(client, IPPROTO_TCP, TCP_KEEPIDLE) +
                        tcp_option(client, IPPROTO_TCP, TCP_KEEPINTVL) *
                            tcp_option(client, IPPROTO_TCP, TCP_KEEPCNT),
                    1, 9);
    assert_in_range(tcp_option(client, IPPROTO_TCP, TCP_USER_TIMEOUT), 1, 9999);
    close(fd);
    close(listener);
    pthread_join(thread, &connected);
    assert_null(connected);
}

TEST_WITH(test_peer_is_watched, set_up, tear_down)
{
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    check_watched((struct sockaddr *)&four, sizeof four, "127.0.0.1");
    check_watched((struct sockaddr *)&six, sizeof six, "[::1]");
}

/* An older server says nothing of itself: each loss may be of everything. */
TEST_WITH(test_older_server, set_up, tear_down)
{
    mock.no_instance = true;
    open_device();
    put_page(0, 'a', false);
    mock_cut(&mock);
    await_reconnections(1);
    assert_int_equal(stat_now().resent_changes, 1);
    assert_int_equal(stat_now().fences, 0);
    put_page(1, 'b', false);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(1), 'b');
    assert_int_equal(get_page(0), 'a');
}

/* A server of any other kind. */
TEST_WITH(test_plain_server, set_up, tear_down)
{
    struct job zero = {.what = JOB_ZERO, .page = 0};

    options.plain = true;
    open_device();
    put_page(0, 'a', false);
    put_page(1, 'b', false);
    start_job(&zero);
    assert_int_equal(finish_job(&zero), 0);
    mock_crash(&mock, true);
    mock_start(&mock);
    assert_int_equal(get_page(1), 'b');
    assert_int_equal(get_page(0), 0);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'b');
}

static bool one_connection_hangs(void *opaque)
{
    return mock_open_conns(&mock) == 1;
}

/* It cannot say when a write has ended whose connection was lost.  So nothing is sent
 * for a while: the old write does not land on what was written later. */
TEST_WITH(test_late_write_at_a_plain_server, set_up, tear_down)
{
    struct job first = {.what = JOB_WRITE, .page = 1, .letter = 'a'},
               second = {.what = JOB_WRITE, .page = 1, .letter = 'b'};

    options.plain = true;
    options.settle_ms = 3600 * 1000;
    options.wait = 5; /* so the jobs end before the device is closed */
    open_device();
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&first);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    await(has_been_said, "cannot say when they have ended");
    start_job(&second);
    await_asleep(&second);
    await(one_connection_hangs, NULL);
    mock_hold(&mock, MOCK_WRITE, false);
    mock_await_ops(&mock, MOCK_WRITE, 1);
    assert_int_equal(stat_now().reconnections, 0);
    assert_int_not_equal(finish_job(&first), 0);
    assert_int_not_equal(finish_job(&second), 0);
}

/* It takes no longer than that; and where no change was under way, nothing is waited
 * for. */
TEST_WITH(test_a_plain_server_settles, set_up, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'a'};

    options.plain = true;
    options.settle_ms = 200;
    open_device();
    put_page(2, 'x', false);
    mock_cut(&mock);
    await_reconnections(1);
    assert_int_equal(said("cannot say when they have ended"), 0);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_WRITE, 1);
    mock_cut(&mock);
    await(has_been_said, "cannot say when they have ended");
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(mock_byte(&mock, false, PAGE), 'a');
    assert_int_equal(stat_now().reconnections, 2);
}

/* A socket that takes connections and never answers does not keep the device. */
TEST_WITH(test_silent_server, set_up_open, tear_down)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct pollfd p = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                       .events = POLLIN};

    put_page(0, 'a', false);
    mock_crash(&mock, true);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", mock.dir);
    assert_int_equal(bind(p.fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(p.fd, 8), 0);
    assert_int_equal(poll(&p, 1, 60000), 1);
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    close(p.fd);
}

static bool is_gone(void *opaque)
{
    return atomic_load((_Atomic bool *)opaque);
}

/* How long requests wait. */
TEST_WITH(test_waiting, set_up, tear_down)
{
    _Atomic bool gone = false;
    struct qm_requester requester = {.gone = is_gone, .opaque = &gone};
    struct job read = {.what = JOB_READ, .requester = &requester},
               write = {.what = JOB_WRITE, .letter = 'w', .requester = &requester};

    open_device();
    put_page(0, 'a', false);
    mock_crash(&mock, true);
    start_job(&read);
    start_job(&write);
    await_asleep(&read);
    await_asleep(&write);
    gone = true;
    assert_int_equal(finish_job(&read), EIO);
    assert_int_equal(finish_job(&write), EIO);
    /* It is not carried out later. */
    mock_start(&mock);
    assert_int_equal(get_page(0), 'a');
    qm_device_close(device);
    mock_crash(&mock, false);

    options.wait = 0;
    open_device();
    put_page(0, 'a', false);
    mock_crash(&mock, true);
    assert_int_equal(try_put_page(0, 'b', false), EIO);
    assert_int_equal(try_put_page(0, 'b', true), EIO);
    assert_int_equal(flush(), EIO);
    mock_start(&mock);
    await_up();
    assert_int_equal(get_page(0), 'a');
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&mock, true, 0), 'a');
}

/* A device that gives up does so for good. */
TEST_WITH(test_giving_up, set_up, tear_down)
{
    options.reconnect = 0;
    open_device();
    put_page(0, 'a', false);
    mock_crash(&mock, false);
    assert_int_equal(try_put_page(0, 'b', false), EIO);
    mock_start(&mock);
    assert_int_equal(try_put_page(0, 'b', false), EIO);
    assert_int_equal(flush(), EIO);
    assert_int_equal(said("gave up"), 1);
    assert_int_equal(qm_device_losses(device), 1);
}

static void *open_patiently(void *opaque)
{
    *(int *)opaque = qm_device_open(mock.uri, &options, &device);
    return NULL;
}

TEST_WITH(test_patient_open, set_up, tear_down)
{
    pthread_t thread;
    int result = -1;

    assert_true(qm_device_open(mock.uri, &options, &device) != 0);
    assert_null(device);
    options.patient = true;
    options.wait = 0;
    assert_true(qm_device_open(mock.uri, &options, &device) != 0);
    options.wait = QM_DEVICE_FOREVER;
    assert_int_equal(pthread_create(&thread, NULL, open_patiently, &result), 0);
    await(has_been_said, "waiting for the server");
    mock_start(&mock);
    pthread_join(thread, NULL);
    assert_int_equal(result, 0);
    put_page(0, 'a', false);
}

/* A server that is ending greets, and refuses what comes then. */
TEST_WITH(test_open_while_it_ends, set_up, tear_down)
{
    mock_start(&mock);
    mock_fail(&mock, MOCK_HEADER, ESHUTDOWN, 2);
    options.patient = true;
    options.wait = QM_DEVICE_FOREVER;
    assert_int_equal(qm_device_open(mock.uri, &options, &device), 0);
    assert_int_equal(said("waiting for the server"), 1);
    put_page(0, 'a', false);
}

/* In a child, a device is dead, whatever the parent's threads hold. */
TEST_WITH(test_fork, set_up_open, tear_down)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'w'};
    int status;
    pid_t pid;

    put_page(0, 'a', false);
    mock_hold(&mock, MOCK_WRITE, true);
    start_job(&write);
    mock_await_held(&mock, MOCK_WRITE, 1);
    pthread_mutex_lock(&mock.lock); /* no thread of it is in libc */
    pid = fork();
    pthread_mutex_unlock(&mock.lock);
    assert_true(pid >= 0);
    if (pid == 0) {
        struct qm_device_stat stat;
        bool fine;
        qmctx_id id;
        char c;

        fine =
            qm_device_read(device, NULL, 0, &c, 1, 0) == ENOTCONN &&
            qm_device_write(device, NULL, 0, &c, 1, 0, false) == ENOTCONN &&
            qm_device_zero(device, NULL, 1, 0) == ENOTCONN && flush() == ENOTCONN &&
            qm_device_start(device, true, 0, &c, 1, 0, false, NULL, NULL) == ENOTCONN &&
            qm_device_stop_retaining(device) == ENOTCONN &&
            qm_device_begin(device, 0, QMCTX_QUERY, 1, NULL, &id) == 0 &&
            !qm_device_is_up(device);
        qm_device_stat(device, &stat);
        qm_device_end(device, id);
        qm_device_close(device);
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    mock_hold(&mock, MOCK_WRITE, false);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(get_page(1), 'w');
    assert_int_equal(flush(), 0);
    assert_int_equal(stat_now().reconnections, 0);
}

static void *connect_in_vain(void *uri)
{
    struct qmctx *ctx;

    check(qmctx_connect(uri, 1, &ctx) == -1);
    return NULL;
}

/* Whether a child that is forked now has no connection to the socket at that path. */
static bool is_not_inherited(void *path)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        for (int fd = 3; fd < 1024; fd++) {
            struct sockaddr_un peer = {.sun_family = AF_UNIX};
            socklen_t len = sizeof peer;

            if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
                peer.sun_family == AF_UNIX && strcmp(peer.sun_path, path) == 0)
                _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* A child does not keep a connection that is only being made: of a server that has not
 * greeted. */
TEST_WITH(test_fork_while_connecting, set_up, tear_down)
{
    char dir[] = "/tmp/quickmine.XXXXXX", uri[128], c;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    int fd, peer;

    assert_non_null(mkdtemp(dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/silent", dir);
    snprintf(uri, sizeof uri, "nbd+unix:///?socket=%s", address.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_in_vain, uri), 0);
    peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    await(is_not_inherited, address.sun_path);
    /* It is there all the same: nothing has given it up meanwhile. */
    assert_int_equal(recv(peer, &c, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close(peer);
    close(fd);
    pthread_join(thread, NULL);
    unlink(address.sun_path);
    rmdir(dir);
}

/* A server that hangs, and a program that is to end. */
TEST_WITH(test_abandoned, set_up_open, tear_down)
{
    struct job read = {.what = JOB_READ}, write = {.what = JOB_WRITE, .letter = 'w'},
               next = {.what = JOB_WRITE, .letter = 'n'}, sync = {.what = JOB_FLUSH};

    put_page(1, 'a', false);
    for (enum mock_type type = 0; type < MOCK_TYPES; type++)
        mock_hold(&mock, type, true);
    start_job(&read);
    start_job(&write);
    await_asleep(&write);
    start_job(&next);
    start_job(&sync);
    await_asleep(&read);
    await_asleep(&next);
    await_asleep(&sync);
    qm_device_abandon(device);
    assert_int_not_equal(finish_job(&read), 0);
    assert_int_not_equal(finish_job(&write), 0);
    assert_int_not_equal(finish_job(&next), 0);
    assert_int_not_equal(finish_job(&sync), 0);
    assert_int_not_equal(try_put_page(2, 'b', false), 0);
    qm_device_close(device);
    device = NULL;
    assert_int_equal(said("were not flushed: 1"), 1);
    for (enum mock_type type = 0; type < MOCK_TYPES; type++)
        mock_hold(&mock, type, false);
}

/* Closed while it is connecting to what does not answer, it ends all the same. */
TEST_WITH(test_close_without_a_server, set_up_open, tear_down)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct pollfd p = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                       .events = POLLIN};

    put_page(0, 'a', false);
    mock_crash(&mock, false);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", mock.dir);
    assert_int_equal(bind(p.fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(p.fd, 8), 0);
    assert_int_equal(poll(&p, 1, 60000), 1);
    qm_device_close(device);
    device = NULL;
    assert_int_equal(said("were not flushed: 1"), 1);
    close(p.fd);
    unlink(address.sun_path);
}
