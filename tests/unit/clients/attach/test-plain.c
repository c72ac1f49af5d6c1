/* SPDX-License-Identifier: BSD-3-Clause */
/* test-plain.c - a server that does not answer is not waited for without end, nor
 * against the will of who waits.  What comes when one answers: attach-hints. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness.h"

#include "clients/attach/plain.h"

#define LOOKS 3

static const char greeting[18] = "NBDMAGICIHAVEOPT\0\3";

/* A server that greets or not, and says nothing more. */
struct mute {
    char uri[64];
    int listener;
    bool greets;
    pthread_t thread;
};

static void *keep_silent(void *opaque)
{
    struct mute *m = opaque;
    char byte;
    int fd;

    while ((fd = accept(m->listener, NULL, NULL)) != -1) {
        if (m->greets)
            (void)!write(fd, greeting, sizeof greeting);
        while (read(fd, &byte, 1) == 1)
            ;
        close(fd);
    }
    return NULL;
}

static void start(struct mute *m, bool greets)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof any;

    *m = (struct mute){.greets = greets,
                       .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(m->listener, (struct sockaddr *)&any, len), 0);
    assert_int_equal(listen(m->listener, 4), 0);
    assert_int_equal(getsockname(m->listener, (struct sockaddr *)&any, &len), 0);
    snprintf(m->uri, sizeof m->uri, "nbd://127.0.0.1:%u/",
             (unsigned)ntohs(any.sin_port));
    assert_int_equal(pthread_create(&m->thread, NULL, keep_silent, m), 0);
}

static void end(struct mute *m)
{
    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->thread, NULL);
    close(m->listener);
}

static bool always(void *opaque)
{
    ++*(unsigned *)opaque;
    return true;
}

static bool a_few_times(void *opaque)
{
    return ++*(unsigned *)opaque < LOOKS;
}

/* Both ways to connect. */
static int connect_by(int way, const char *uri, const struct qm_plain_terms *terms,
                      char *err, size_t len)
{
    struct qm_plain_session session;
    struct qm_plain plain;

    return way == 0 ? qm_plain_connect(uri, 0, terms, &plain, err, len)
                    : qm_plain_session_open(uri, terms, &session, err, len);
}

TEST(test_no_greeting)
{
    struct mute m;
    char err[256];

    start(&m, false);
    for (int way = 0; way < 2; way++) {
        unsigned looks = 0;
        struct qm_plain_terms terms = {
            .greeting_ms = 1000, .goes_on = always, .opaque = &looks};

        assert_int_equal(connect_by(way, m.uri, &terms, err, sizeof err), ETIMEDOUT);
        assert_string_equal(err, "the server did not answer for 1 seconds");
        assert_true(looks > 0);
    }
    end(&m);
}

TEST(test_told_to_end)
{
    for (int greets = 0; greets < 2; greets++) {
        struct mute m;
        char err[256];

        start(&m, greets);
        for (int way = 0; way < 2; way++) {
            unsigned looks = 0;
            struct qm_plain_terms terms = {
                .greeting_ms = 600000, .goes_on = a_few_times, .opaque = &looks};

            assert_int_equal(connect_by(way, m.uri, &terms, err, sizeof err), EINTR);
            assert_non_null(strstr(err, "told to end"));
            assert_int_equal(looks, LOOKS);
        }
        end(&m);
    }
}

TEST(test_refused)
{
    unsigned looks = 0;
    struct qm_plain_terms terms = {
        .greeting_ms = 600000, .goes_on = always, .opaque = &looks};
    char err[256] = "";

    for (int way = 0; way < 2; way++) {
        assert_int_equal(connect_by(way, "nbd+unix:///?socket=/nonexistent/socket",
                                    &terms, err, sizeof err),
                         ENOENT);
        assert_non_null(strstr(err, "No such file"));
    }
}
