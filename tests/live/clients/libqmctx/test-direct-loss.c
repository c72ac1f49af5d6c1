/* SPDX-License-Identifier: BSD-3-Clause */
/* test-direct-loss.c - direct connections: when connections break, servers restart, and
 * processes fork. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "direct-fixture.h"
#include "tests/unit/check.h"

/* Requests in flight when the server goes away fail; nothing hangs. */
static void *until_error(void *opaque)
{
    struct job *job = opaque;
    char buf[512];

    qmctx_begin(job->ctx, QMCTX_QUERY, job->number + 1, NULL);
    while (qmctx_pread(job->ctx, qmctx_current(job->ctx), buf, sizeof buf,
                       (uint64_t)job->number * BLOCK) == 0)
        ;
    job->failed = errno != ENOTCONN && errno != ESHUTDOWN;
    return NULL;
}

TEST_WITH(test_restart, set_up, tear_down)
{
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx = connect_filter(3);
    char buf[512];

    assert_int_equal(qmctx_begin(ctx, QMCTX_CONNECTION, 0x900001, "900001 survivor"),
                     0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900002, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .number = i};
        assert_int_equal(pthread_create(&thread[i], NULL, until_error, &job[i]), 0);
    }
    nbdkit_server_stop(&server, SIGKILL);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_pread(ctx, qmctx_current(ctx), buf, sizeof buf, 0), -1);
    assert_int_equal(errno, ENOTCONN);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    /* Contexts do not care. */
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900003, NULL), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x900004, NULL), 0);

    start_filter();
    assert_int_equal(qmctx_reconnect(ctx), 0);
    assert_true(qmctx_connected(ctx));
    must_read(ctx, qmctx_current(ctx), 512, 7 * BLOCK);
    run_threads(ctx);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    close_and_load(ctx);
    assert_int_equal(begun(0x900004)->parent, begun(0x900001)->ctx);
    assert_int_equal(count_events(QM_TRACE_READ, begun(0x900004)->ctx), 1);
    check_threads();
}

/* An idle connection to a server that is gone is noticed when somebody asks. */
TEST_WITH(test_idle_loss, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(3);

    nbdkit_server_stop(&server, SIGKILL);
    assert_false(qmctx_connected(ctx));
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=2G",
                        "policy=none", NULL);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_int_equal(errno, ESTALE);
    assert_non_null(strstr(qmctx_error(), ": 2147483648 bytes, not 1073741824"));
    assert_false(qmctx_connected(ctx));
    nbdkit_server_stop(&server, SIGTERM);
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=1G",
                        "policy=none", "block-size=8192", NULL);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_int_equal(errno, ESTALE);
    assert_non_null(strstr(qmctx_error(), ": block size 8192, not "));
    nbdkit_server_stop(&server, SIGTERM);
    start_filter();
    assert_int_equal(qmctx_reconnect(ctx), 0);
    must_read(ctx, 0, 512, 0);
    qmctx_close(ctx);
}

/* This process's sockets to the server. */
static unsigned server_sockets(int *fds, unsigned max)
{
    struct sockaddr_un peer;
    socklen_t len;
    unsigned n = 0;

    for (int fd = 3; fd < 1024 && n < max; fd++) {
        len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
            peer.sun_family == AF_UNIX && strstr(peer.sun_path, server.dir))
            fds[n++] = fd;
    }
    return n;
}

/* One of several connections breaks: its contexts go on over another, in the same
 * session, and again when it has been made anew. */
TEST_WITH(test_one_connection_breaks, set_up, tear_down)
{
    enum { CONNS = 3, IDS = 6 };
    unsigned begins = 0, failures = 0;
    int fds[CONNS + 1];
    qmctx_id id[IDS];
    struct qmctx *ctx = connect_filter(CONNS);
    char buf[512];
    json_t *stats;
    char *text;

    assert_int_equal(server_sockets(fds, CONNS + 1), CONNS);
    for (unsigned i = 0; i < IDS; i++) {
        assert_int_equal(
            qmctx_open_context(ctx, 0, QMCTX_QUERY, 0x10 + i, NULL, &id[i]), 0);
        must_read(ctx, id[i], 512, 0);
    }
    for (unsigned k = 0; k < CONNS; k++) {
        assert_int_equal(server_sockets(fds, CONNS + 1), CONNS);
        shutdown(fds[k], SHUT_RDWR);
        /* Each request may find the connection broken, but only once. */
        for (unsigned i = 0; i < IDS; i++) {
            if (qmctx_pread(ctx, id[i], buf, 512, 0) == 0)
                continue;
            assert_int_equal(errno, ENOTCONN);
            failures++;
            must_read(ctx, id[i], 512, 0);
        }
        assert_true(qmctx_connected(ctx));
        assert_int_equal(qmctx_reconnect(ctx), 0);
        for (unsigned i = 0; i < IDS; i++)
            must_read(ctx, id[i], 512, 0);
    }
    assert_true(failures <= CONNS);
    text = qmctx_stats(ctx);
    stats = json_loads(text, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(stats, "sessions")), 1);
    assert_int_equal(json_integer_value(json_object_get(stats, "contexts_open")), IDS);
    json_decref(stats);
    free(text);
    close_and_load(ctx);
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
    for (unsigned i = 0; i < event_count; i++)
        begins += events[i].type == QM_TRACE_BEGIN;
    assert_true(begins > IDS);
}

TEST_WITH(test_fork, set_up, tear_down)
{
    struct qmctx *ctx = connect_filter(2);
    int status;
    pid_t pid;

    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    must_read(ctx, qmctx_current(ctx), 512, 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char buf[512];
        qmctx_id id;
        bool fine = !qmctx_connected(ctx) && qmctx_depth(ctx) == 0 &&
                    qmctx_pread(ctx, 0, buf, 512, 0) == -1 && errno == ENOTCONN &&
                    qmctx_reconnect(ctx) == -1 && qmctx_poll(ctx, 0) == -1 &&
                    qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id) == 0 &&
                    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL) == 0 &&
                    qmctx_end(ctx) == 0 && !qmctx_stats(ctx);

        qmctx_close(ctx);
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    must_read(ctx, qmctx_current(ctx), 512, BLOCK);
    assert_int_equal(qmctx_end(ctx), 0);
    qmctx_close(ctx);
}

/* A connection that broke has no socket any more: what has got its number since then is
 * the program's, in a child, too. */
TEST_WITH(test_fork_after_loss, set_up, tear_down)
{
    enum { FILES = 32 };
    int fds[FILES], status;
    struct qmctx *ctx = connect_filter(4);
    pid_t pid;

    nbdkit_server_stop(&server, SIGKILL);
    assert_false(qmctx_connected(ctx));
    for (unsigned i = 0; i < FILES; i++)
        assert_true((fds[i] = open("/dev/null", O_RDONLY)) >= 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (unsigned i = 0; i < FILES; i++)
            if (fcntl(fds[i], F_GETFD) == -1)
                _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < FILES; i++)
        close(fds[i]);
    qmctx_close(ctx);
}

/* The server sees the end of a process although a child of it lives on. */
TEST_WITH(test_fork_and_exit, set_up, tear_down)
{
    struct qmctx *ctx, *own;
    int pipefd[2], status;
    char *text, c;
    json_t *stats;
    json_int_t connections = 0;
    time_t until = time(NULL) + 60;
    pid_t pid;

    start_filter();
    assert_int_equal(pipe(pipefd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (qmctx_connect(server.uri, 2, &own))
            _exit(1);
        pid = fork();
        if (pid == 0) {
            /* Until the other end is closed. */
            close(pipefd[1]);
            _exit(read(pipefd[0], &c, 1) != 0);
        }
        _exit(pid == -1);
    }
    close(pipefd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ctx = must_connect(1);
    do {
        text = qmctx_stats(ctx);
        stats = json_loads(text, 0, NULL);
        connections = json_integer_value(json_object_get(stats, "connections"));
        json_decref(stats);
        free(text);
        usleep(5000);
    } while (connections != 1 && time(NULL) < until);
    assert_int_equal(connections, 1);
    close(pipefd[1]);
    qmctx_close(ctx);
}

/* A server without FUA that answers a write, and is gone before it is asked to flush.
 * Reads it does not answer. */
struct fleeting {
    int listener;
    _Atomic bool asked; /* a read has come */
    unsigned flushes;
};

static bool get(int fd, void *buf, size_t count)
{
    /* Without bytes to come, recv() would wait for one. */
    return count == 0 || recv(fd, buf, count, MSG_WAITALL) == (ssize_t)count;
}

static void put(int fd, const void *buf, size_t count)
{
    check(send(fd, buf, count, MSG_NOSIGNAL) == (ssize_t)count);
}

static void put_option(int fd, uint32_t option, uint32_t type, uint32_t len)
{
    struct __attribute__((packed)) {
        uint64_t magic;
        uint32_t option, type, len;
    } reply = {htobe64(0x3e889045565a9), htobe32(option), htobe32(type), htobe32(len)};

    put(fd, &reply, sizeof reply);
}

static void negotiate(int fd)
{
    struct __attribute__((packed)) {
        char magic[16];
        uint16_t flags;
    } greeting = {"NBDMAGICIHAVEOPT", htobe16(3)};
    struct __attribute__((packed)) {
        uint16_t info;
        uint64_t size;
        uint16_t flags; /* it can flush */
    } export = {0, htobe64(1 << 20), htobe16(1 | 4)};
    struct __attribute__((packed)) {
        uint64_t magic;
        uint32_t option, len;
    } request;
    uint32_t flags, option;
    char data[4096];

    put(fd, &greeting, sizeof greeting);
    check(get(fd, &flags, sizeof flags));
    do {
        check(get(fd, &request, sizeof request));
        check(get(fd, data, be32toh(request.len)));
        option = be32toh(request.option);
        if (option == 7) {
            put_option(fd, option, 3, sizeof export);
            put(fd, &export, sizeof export);
        }
        put_option(fd, option, option == 7 ? 1 : UINT32_C(0x80000001), 0);
    } while (option != 7);
}

static void *serve_fleetingly(void *opaque)
{
    struct fleeting *f = opaque;
    struct __attribute__((packed)) {
        uint32_t magic;
        uint16_t flags, type;
        uint64_t cookie, offset;
        uint32_t count;
    } request;
    struct __attribute__((packed)) {
        uint32_t magic, error;
        uint64_t cookie;
    } reply = {htobe32(0x67446698), 0, 0};
    char data[4096];
    int fd = accept(f->listener, NULL, NULL);

    negotiate(fd);
    while (get(fd, &request, sizeof request)) {
        if (be16toh(request.type) == 0)
            atomic_store(&f->asked, true);
        f->flushes += be16toh(request.type) == 3;
        if (be16toh(request.type) != 1)
            continue;
        check(get(fd, data, be32toh(request.count)));
        reply.cookie = request.cookie;
        put(fd, &reply, sizeof reply);
        break;
    }
    close(fd);
    return NULL;
}

static void *read_in_vain(void *ctx)
{
    char buf[512];

    return qmctx_pread(ctx, 0, buf, sizeof buf, 0) == -1 ? NULL : ctx;
}

/* A write with FUA whose flush was not made has failed. */
TEST_WITH(test_loss_before_flush, set_up, tear_down)
{
    struct fleeting f = {.flushes = 0};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char uri[256], buf[512] = "";
    pthread_t peer, reader;
    struct qmctx *ctx;
    void *answered;

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s/fleeting", server.dir);
    snprintf(uri, sizeof uri, "nbd+unix:///?socket=%s", addr.sun_path);
    f.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f.listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(f.listener, 1), 0);
    for (unsigned i = 0; i < 20; i++) {
        atomic_store(&f.asked, false);
        assert_int_equal(pthread_create(&peer, NULL, serve_fleetingly, &f), 0);
        assert_int_equal(qmctx_connect_plain(uri, 1, &ctx), 0);
        assert_int_equal(pthread_create(&reader, NULL, read_in_vain, ctx), 0);
        while (!atomic_load(&f.asked))
            usleep(1000);
        assert_int_equal(qmctx_pwrite(ctx, 0, buf, sizeof buf, 0, true), -1);
        assert_int_equal(errno, ENOTCONN);
        pthread_join(reader, &answered);
        pthread_join(peer, NULL);
        assert_null(answered);
        qmctx_close(ctx);
    }
    assert_int_equal(f.flushes, 0);
    close(f.listener);
    unlink(addr.sun_path);
}
