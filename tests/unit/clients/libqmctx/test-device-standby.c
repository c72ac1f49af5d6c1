/* SPDX-License-Identifier: BSD-3-Clause */
/* test-device-standby.c - a device with several URIs: where it goes when its server
 * ends or hangs, and what it takes along. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/libqmctx/uris.h"
#include "device-fixture.h"

/* The second server, in front of the same storage. */
static struct mock_server standby;
static char *image, *durable; /* its own, of which it makes no use */

static int set_up_both(void **state)
{
    set_up(state);
    mock_init(&standby);
    image = standby.image;
    durable = standby.durable;
    standby.image = mock.image;
    standby.durable = mock.durable;
    standby.instance = 1000; /* its numbers are others */
    return 0;
}

static int tear_down_both(void **state)
{
    qm_device_close(device);
    device = NULL;
    if (standby.running)
        mock_crash(&standby, false);
    standby.image = image;
    standby.durable = durable;
    mock_destroy(&standby);
    return tear_down(state);
}

static void open_both(void)
{
    char uris[2 * sizeof mock.uri + 1];

    snprintf(uris, sizeof uris, "%s,%s", mock.uri, standby.uri);
    if (qm_device_open(uris, &options, &device))
        fail_msg("%s", qmctx_error());
    atomic_store(&seen, qm_device_losses(device));
}

/* As a process is that was stopped: what it has read it keeps, it greets nobody. */
static void freeze(struct mock_server *m, bool frozen)
{
    pthread_mutex_lock(&m->lock);
    m->silent = frozen;
    pthread_mutex_unlock(&m->lock);
    for (enum mock_type type = 0; type < MOCK_TYPES; type++)
        mock_hold(m, type, frozen);
}

/* What was acknowledged and not flushed is sent to the standby. */
TEST_WITH(test_it_ends, set_up_both, tear_down_both)
{
    mock_start(&mock);
    open_both();
    put_page(1, 'a', false);
    mock_crash(&mock, true);
    assert_int_equal(mock_byte(&mock, false, PAGE), 0);
    mock_start(&standby);
    await_reconnections(1);
    assert_int_equal(get_page(1), 'a');
    assert_int_equal(stat_now().resent_changes, 1);
    put_page(2, 'b', false);
    assert_int_equal(flush(), 0);
    assert_int_equal(mock_byte(&standby, true, 2 * PAGE), 'b');
}

/* And back. */
TEST_WITH(test_the_other_ends_too, set_up_both, tear_down_both)
{
    mock_start(&mock);
    open_both();
    mock_crash(&mock, false);
    mock_start(&standby);
    await_reconnections(1);
    mock_crash(&standby, false);
    mock_start(&mock);
    await_reconnections(2);
    put_page(1, 'c', true);
    assert_int_equal(mock_byte(&mock, true, PAGE), 'c');
}

/* A request that the frozen server has is made again at the standby. */
TEST_WITH(test_it_hangs, set_up_both, tear_down_both)
{
    struct job write = {.what = JOB_WRITE, .page = 1, .letter = 'a'};

    mock_start(&mock);
    open_both();
    freeze(&mock, true);
    start_job(&write);
    mock_start(&standby);
    assert_int_equal(finish_job(&write), 0);
    assert_int_equal(said("it does not answer any more"), 1);
    assert_int_equal(mock_count(&standby, MOCK_WRITE), 1);
    assert_int_equal(mock_byte(&standby, false, PAGE), 'a');
    freeze(&mock, false);
}

/* It is noticed by an idle device, too. */
TEST_WITH(test_it_hangs_idly, set_up_both, tear_down_both)
{
    mock_start(&mock);
    open_both();
    mock_start(&standby);
    freeze(&mock, true);
    await_reconnections(1);
    assert_int_equal(said("it does not answer any more"), 1);
    freeze(&mock, false);
}

static bool has_been_tried(void *opaque)
{
    unsigned *before = opaque;
    bool tried;

    pthread_mutex_lock(&mock.lock);
    tried = mock.accepted > *before;
    pthread_mutex_unlock(&mock.lock);
    return tried;
}

/* Or while the device sees to what was under way before its connections were cut. */
TEST_WITH(test_it_hangs_when_it_is_back, set_up_both, tear_down_both)
{
    options.connections = 1;
    mock_start(&mock);
    open_both();
    mock_hold(&mock, MOCK_FENCE, true);
    mock_cut(&mock);
    mock_await_held(&mock, MOCK_FENCE, 1);
    freeze(&mock, true);
    mock_start(&standby);
    await_reconnections(1);
    assert_int_equal(said("it does not answer any more"), 1);
    put_page(1, 'b', true);
    assert_int_equal(mock_count(&standby, MOCK_WRITE), 1);
    freeze(&mock, false);
}

/* A server that waits for its disk greets: the device stays with it. */
static void stays_with_the_slow_one(void)
{
    struct job read = {.what = JOB_READ, .page = 1};
    unsigned before;

    mock_start(&mock);
    mock_start(&standby);
    open_both();
    mock_hold(&mock, MOCK_READ, true);
    mock_hold(&mock, MOCK_HEADER, true);
    before = mock.accepted;
    start_job(&read);
    /* The sentry's visit, and another: the first has changed nothing. */
    await(has_been_tried, &before);
    before++;
    await(has_been_tried, &before);
    assert_true(qm_device_is_up(device));
    mock_hold(&mock, MOCK_HEADER, false);
    mock_hold(&mock, MOCK_READ, false);
    assert_int_equal(finish_job(&read), 0);
    assert_int_equal(mock_count(&standby, MOCK_HEADER), 0);
    assert_int_equal(stat_now().reconnections, 0);
}

TEST_WITH(test_it_is_slow, set_up_both, tear_down_both)
{
    stays_with_the_slow_one();
}

/* One that turns the connection away because it has as many as it takes lives, too. */
TEST_WITH(test_it_is_slow_and_full, set_up_both, tear_down_both)
{
    mock.at_most = options.connections;
    stays_with_the_slow_one();
}

/* The first that is there is taken. */
TEST_WITH(test_open, set_up_both, tear_down_both)
{
    mock_start(&standby);
    open_both();
    put_page(1, 'o', true);
    assert_int_equal(mock_byte(&standby, true, PAGE), 'o');
}

TEST(test_uris)
{
    struct qm_uris uris;
    char many[20 * QM_URIS_MAX] = "nbd://0";

    assert_int_equal(qm_uris_init(&uris, "nbd://a"), 0);
    assert_int_equal(uris.count, 1);
    assert_string_equal(qm_uris_next(&uris), "nbd://a");
    qm_uris_free(&uris);

    assert_int_equal(
        qm_uris_init(&uris, "nbd://a,nbd+unix:///?socket=/a,b,nbds://c:1/"), 0);
    assert_int_equal(uris.count, 3);
    assert_string_equal(uris.list[0], "nbd://a");
    assert_string_equal(qm_uris_next(&uris), "nbd+unix:///?socket=/a,b");
    assert_string_equal(qm_uris_next(&uris), "nbds://c:1/");
    assert_string_equal(qm_uris_next(&uris), "nbd://a");
    qm_uris_free(&uris);

    for (int i = 1; i < QM_URIS_MAX; i++)
        strcat(many, ",nbd://1");
    assert_int_equal(qm_uris_init(&uris, many), 0);
    assert_int_equal(uris.count, QM_URIS_MAX);
    qm_uris_free(&uris);
    strcat(many, ",nbd://1");
    assert_int_equal(qm_uris_init(&uris, many), E2BIG);
    qm_uris_free(&uris);
    assert_int_equal(qm_device_open(many, &options, &device), EINVAL);
    assert_non_null(strstr(qmctx_error(), "more than 16 URIs"));
}

TEST(test_paths)
{
    char *before = getcwd(NULL, 0), dir[] = "/tmp/quickmine.XXXXXX", *text, want[256];

    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(mkdir("a%b &c", 0700), 0);
    assert_int_equal(chdir("a%b &c"), 0);

    /* What is absolute, or no path, stays. */
    for (const char *const *same =
             (const char *const[]){
                 "nbd://socket=x/?a=b", "nbd+unix:///x?socket=/run/s",
                 "nbd+unix:///?socket=%2Frun%2Fs&tls-psk-file=/k",
                 "nbd+unix:///?socket=", "nbd://h/?notsocket=a&tls-verify-peer=no",
                 "nbd://socket=a,b,nbd://c", NULL};
         *same; same++) {
        text = qm_uris_absolute(*same);
        assert_string_equal(text, *same);
        free(text);
    }
    text = qm_uris_absolute("nbd+unix:///?a=b&socket=s,t;TLS-psk-file=k,"
                            "nbds://h/?tls-certificates=c#socket=x,nbd://h/socket=y");
    snprintf(want, sizeof want,
             "nbd+unix:///?a=b&socket=%s/a%%25b%%20%%26c/s,t;TLS-psk-file=%s/"
             "a%%25b%%20%%26c/k,nbds://h/?tls-certificates=%s/a%%25b%%20%%26c/"
             "c#socket=x,nbd://h/socket=y",
             dir, dir, dir);
    assert_string_equal(text, want);
    free(text);
    /* A path that is too long for a socket would be of no use at all. */
    snprintf(want, sizeof want, "nbd+unix:///?socket=%090d", 0);
    text = qm_uris_absolute(want);
    assert_string_equal(text, want);
    free(text);

    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(rmdir(strcat(strcpy(want, dir), "/a%b &c")), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A program that goes into another directory finds its server again. */
TEST_WITH(test_another_directory, set_up_both, tear_down_both)
{
    char *before = getcwd(NULL, 0), dir[128], uri[160];
    const char *path = strchr(mock.uri, '=') + 1, *name = strrchr(path, '/') + 1;

    snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    snprintf(uri, sizeof uri, "nbd+unix:///?socket=%s", name);
    options.wait = 20;
    mock_start(&mock);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(qm_device_open(uri, &options, &device), 0);
    assert_int_equal(chdir("/"), 0);
    put_page(1, 'r', false);
    mock_crash(&mock, true);
    mock_start(&mock);
    await_reconnections(1);
    assert_int_equal(get_page(1), 'r');
    assert_int_equal(chdir(before), 0);
    free(before);
}
