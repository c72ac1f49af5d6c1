/* test_direct_loss.c - direct connections: when connections break, servers restart, and
 * processes fork. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "direct-fixture.h"

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

static void test_restart(void **state)
{
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx;
    char buf[512];

    start_filter();
    ctx = must_connect(3);
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
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    assert_int_equal(begun(0x900004)->parent, begun(0x900001)->ctx);
    assert_int_equal(count_events(QM_TRACE_READ, begun(0x900004)->ctx), 1);
    check_threads();
}

/* An idle connection to a server that is gone is noticed when somebody asks. */
static void test_idle_loss(void **state)
{
    struct qmctx *ctx;

    start_filter();
    ctx = must_connect(3);
    nbdkit_server_stop(&server, SIGKILL);
    assert_false(qmctx_connected(ctx));
    nbdkit_server_start(&server, "--filter=" FILTER, "pattern", "size=2G",
                        "policy=none", NULL);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_int_equal(errno, ESTALE);
    assert_false(qmctx_connected(ctx));
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
static void test_one_connection_breaks(void **state)
{
    enum { CONNS = 3, IDS = 6 };
    unsigned begins = 0, failures = 0;
    int fds[CONNS + 1];
    qmctx_id id[IDS];
    struct qmctx *ctx;
    char buf[512];
    json_t *stats;
    char *text;

    start_filter();
    ctx = must_connect(CONNS);
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
    qmctx_close(ctx);
    nbdkit_server_stop(&server, SIGTERM);
    load_record();
    assert_int_equal(count_events(QM_TRACE_READ, 0), 0);
    for (unsigned i = 0; i < event_count; i++)
        begins += events[i].type == QM_TRACE_BEGIN;
    assert_true(begins > IDS);
}

static void test_fork(void **state)
{
    struct qmctx *ctx;
    int status;
    pid_t pid;

    start_filter();
    ctx = must_connect(2);
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
static void test_fork_after_loss(void **state)
{
    enum { FILES = 32 };
    int fds[FILES], status;
    struct qmctx *ctx;
    pid_t pid;

    start_filter();
    ctx = must_connect(4);
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
static void test_fork_and_exit(void **state)
{
    struct qmctx *ctx, *own;
    int pipefd[2], status;
    char *text, c;
    json_t *stats;
    json_int_t connections = 0;
    time_t until = time(NULL) + 20;
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_restart),
        TEST(test_idle_loss),
        TEST(test_one_connection_breaks),
        TEST(test_fork),
        TEST(test_fork_after_loss),
        TEST(test_fork_and_exit),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
