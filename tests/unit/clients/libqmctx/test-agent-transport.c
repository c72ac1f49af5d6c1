/* SPDX-License-Identifier: BSD-3-Clause */
/* test-agent-transport.c - a program finds its agent, and the one that comes after it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "clients/libqmctx/qmctx.h"
#include "fd-of-peer.h"
#include "clients/protocol/quickmine-agent.h"

static char dir[] = "/tmp/qmctx.XXXXXX", where[128];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* Waits for condition, at most 60 s, and tells whether it came true. */
#define WAIT_FOR(condition)                                                            \
    ({                                                                                 \
        time_t until_ = time(NULL) + 60;                                               \
        while (!(condition) && time(NULL) < until_)                                    \
            usleep(1000);                                                              \
        (condition);                                                                   \
    })

/* A begin and an end, which is when the transport looks for its agent. */
static bool nudge(struct qmctx *ctx)
{
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0, NULL), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    return qmctx_connected(ctx);
}

static int listen_anew(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    unlink(address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* The connection of a program that says hello, and is answered. */
static int welcome(int listener, uint32_t error)
{
    struct qm_agent_welcome answer = {
        .magic = QM_AGENT_MAGIC, .version = QM_AGENT_VERSION, .error = error};
    struct qm_agent_hello hello;
    int fd = accept(listener, NULL, NULL);

    assert_int_not_equal(fd, -1);
    assert_int_equal(recv(fd, &hello, sizeof hello, 0), sizeof hello);
    assert_true(hello.magic == QM_AGENT_MAGIC);
    assert_int_equal(send(fd, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    return fd;
}

static bool is_called(int listener)
{
    struct pollfd fd = {.fd = listener, .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

/* An agent that comes later than the program. */
static struct qmctx *announce(int *listener, int *connection)
{
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(where, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    *listener = listen_anew();
    assert_true(WAIT_FOR(nudge(ctx) || is_called(*listener)));
    *connection = welcome(*listener, 0);
    assert_true(WAIT_FOR(nudge(ctx)));
    return ctx;
}

static void leave(struct qmctx *ctx, int listener, int connection)
{
    qmctx_close(ctx);
    close(connection);
    close(listener);
    unlink(address.sun_path);
}

/* The look that finds the agent gone calls the next one. */
TEST(test_successor)
{
    int listener, connection;
    struct qmctx *ctx = announce(&listener, &connection);

    for (unsigned i = 0; i < 3; i++) {
        close(listener);
        close(connection);
        listener = listen_anew();
        assert_true(WAIT_FOR(!nudge(ctx)));
        assert_true(is_called(listener));
        connection = welcome(listener, 0);
        assert_true(WAIT_FOR(nudge(ctx)));
    }
    leave(ctx, listener, connection);
}

/* One that has refused the program may take it later. */
TEST(test_refusal)
{
    int listener, connection;
    struct qmctx *ctx = announce(&listener, &connection);

    close(connection);
    assert_true(WAIT_FOR(!nudge(ctx)));
    assert_true(is_called(listener));
    close(welcome(listener, ENOMEM));
    assert_true(WAIT_FOR(nudge(ctx) || is_called(listener)));
    connection = welcome(listener, 0);
    assert_true(WAIT_FOR(nudge(ctx)));
    leave(ctx, listener, connection);
}

/* One that hangs is not taken for one that works, and may answer later. */
TEST(test_silence)
{
    int listener = listen_anew(), connection;
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(where, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_non_null(strstr(qmctx_error(), "does not answer"));
    connection = welcome(listener, 0);
    assert_true(WAIT_FOR(nudge(ctx)));
    leave(ctx, listener, connection);
}

/* A relative path is one of the directory in which the program announced. */
TEST(test_another_directory)
{
    char *before = getcwd(NULL, 0);
    int listener, connection;
    struct qmctx *ctx;

    assert_int_equal(chdir(dir), 0);
    assert_int_equal(qmctx_announce("agent:socket", &ctx), 0);
    assert_int_equal(chdir("/"), 0);
    listener = listen_anew();
    assert_true(WAIT_FOR(nudge(ctx) || is_called(listener)));
    connection = welcome(listener, 0);
    assert_true(WAIT_FOR(nudge(ctx)));
    leave(ctx, listener, connection);
    assert_int_equal(chdir(before), 0);
    free(before);
}

TEST(test_empty_path)
{
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce("agent:", &ctx), -1);
    assert_int_equal(errno, EINVAL);
    assert_null(ctx);
}

/* A program that closes descriptors which it knows nothing of. */
TEST(test_closed_descriptor)
{
    int listener, connection, pair[2], fd;
    struct qmctx *ctx = announce(&listener, &connection);
    char text[16];

    /* Its own connection gets the number. */
    fd = fd_of_peer(address.sun_path);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(dup2(pair[0], fd), fd);
    assert_int_equal(send(pair[1], "mine", 4, 0), 4);
    assert_true(WAIT_FOR((nudge(ctx), is_called(listener))));
    close(connection);
    connection = welcome(listener, 0);
    assert_true(WAIT_FOR(nudge(ctx)));
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 4);
    leave(ctx, listener, connection);
    assert_int_equal(send(fd, "mine", 4, 0), 4);
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

/* The same of the table, which an agent that comes later cannot be given any more. */
TEST(test_closed_table)
{
    int listener, connection, fd;
    struct qmctx *ctx = announce(&listener, &connection);
    char path[64], link[64];

    for (fd = 3; fd < 1000; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        memset(link, 0, sizeof link);
        if (readlink(path, link, sizeof link - 1) > 0 &&
            strstr(link, "memfd:quickmine-contexts"))
            break;
    }
    assert_int_equal(dup2(listener, fd), fd);
    close(connection);
    assert_true(WAIT_FOR(!nudge(ctx)));
    assert_false(is_called(listener));
    qmctx_close(ctx);
    assert_int_equal(close(fd), 0);
    close(listener);
    unlink(address.sun_path);
}

static int set_up(void **state)
{
    if (!mkdtemp(dir))
        return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", dir);
    snprintf(where, sizeof where, "agent:%s", address.sun_path);
    return 0;
}

static int tear_down(void **state)
{
    return rmdir(dir);
}

int main(void)
{
    return run_listed(set_up, tear_down);
}
