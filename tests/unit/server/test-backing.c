/* SPDX-License-Identifier: BSD-3-Clause */
/* test-backing.c - connections that are lost and come back, over a device of ours. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/backing.h"
#include "server/stats.h"

#define MS     UINT64_C(1000000)
#define MINUTE (60000 * MS)

struct connection {
    unsigned generation; /* of the device, when it was opened */
    _Atomic unsigned users;
};

struct device {
    _Atomic unsigned generation; /* connections of another one are lost */
    _Atomic bool refuses;        /* to be opened */
    _Atomic bool broken;         /* all reads fail */
    uint64_t bad;                /* offset of a bad sector */
    uint64_t size;               /* 0: without end */
    _Atomic bool beyond;         /* something was read beyond the end */
    _Atomic bool misused;        /* a connection was closed during a read */
    _Atomic unsigned opens, attempts, closes, reads, losses, returns;
    uint64_t opened[64];        /* when */
    pthread_mutex_t open_gate;  /* held by the test: opening waits */
    pthread_mutex_t close_gate; /* ...: closing waits */
    pthread_mutex_t gate;       /* ...: reading at offset 1 waits */
    _Atomic unsigned waiting;
};

static void *open_device(void *opaque)
{
    struct device *d = opaque;
    struct connection *c;

    d->waiting++;
    pthread_mutex_lock(&d->open_gate);
    pthread_mutex_unlock(&d->open_gate);
    d->waiting--;
    d->attempts++;
    if (d->refuses)
        return NULL;
    c = calloc(1, sizeof *c);
    c->generation = d->generation;
    if (d->opens < 64)
        d->opened[d->opens] = qms_now();
    d->opens++;
    return c;
}

static void close_device(void *opaque, void *connection)
{
    struct device *d = opaque;
    struct connection *c = connection;

    pthread_mutex_lock(&d->close_gate);
    pthread_mutex_unlock(&d->close_gate);
    if (c->users > 0)
        d->misused = true;
    d->closes++;
    free(c);
}

static int read_device(void *opaque, void *connection, void *buf, uint32_t count,
                       uint64_t offset)
{
    struct device *d = opaque;
    struct connection *c = connection;

    int error;

    d->reads++;
    if (d->size > 0 && (count > d->size || offset > d->size - count))
        d->beyond = true;
    c->users++;
    if (offset == 1) {
        d->waiting++;
        pthread_mutex_lock(&d->gate);
        pthread_mutex_unlock(&d->gate);
        d->waiting--;
    }
    error = c->generation != d->generation  ? EINVAL
            : d->broken || offset == d->bad ? EIO
                                            : 0;
    c->users--;
    return error;
}

static void lost(void *opaque, int error)
{
    struct device *d = opaque;

    d->losses++;
}

static void back(void *opaque)
{
    struct device *d = opaque;

    d->returns++;
}

static struct qms_backing *start(struct device *d, struct qms_backing_config config)
{
    struct qms_backing *b;
    int error;

    *d = (struct device){.bad = 7};
    pthread_mutex_init(&d->open_gate, NULL);
    pthread_mutex_init(&d->close_gate, NULL);
    pthread_mutex_init(&d->gate, NULL);
    config.trial = 4;
    config.open = open_device;
    config.close = close_device;
    config.read = read_device;
    config.lost = lost;
    config.back = back;
    config.opaque = d;
    b = qms_backing_start(&config, open_device(d), &error);
    assert_non_null(b);
    assert_int_equal(d->opens, config.first ? config.first : config.connections);
    return b;
}

static struct qms_backing *make(struct device *d, unsigned connections,
                                uint64_t first_delay, uint64_t patience)
{
    return start(d, (struct qms_backing_config){.connections = connections,
                                                .first_delay = first_delay,
                                                .most_delay = 10 * MINUTE,
                                                .patience = patience});
}

/* The first connection of up to `connections`; a refused one is asked for again after
 * most_delay. */
static struct qms_backing *make_growing(struct device *d, unsigned connections,
                                        uint64_t most_delay)
{
    return start(d, (struct qms_backing_config){.connections = connections,
                                                .first = 1,
                                                .first_delay = MS,
                                                .most_delay = most_delay,
                                                .patience = MINUTE});
}

static void undo(struct device *d, struct qms_backing *b)
{
    assert_true(qms_backing_stop(b));
    assert_int_equal(d->opens, d->closes);
    pthread_mutex_destroy(&d->open_gate);
    pthread_mutex_destroy(&d->close_gate);
    pthread_mutex_destroy(&d->gate);
}

static int read_at(struct qms_backing *b, unsigned worker, uint64_t offset)
{
    char buf[1];

    return qms_backing_read(b, worker, buf, 1, offset);
}

/* Waits for a count to be reached; a minute is for ever. */
static void reaches(_Atomic unsigned *count, unsigned n)
{
    for (int i = 0; i < 60000 && *count < n; i++)
        usleep(1000);
    assert_true(*count >= n);
}

/* Reads by the worker until one succeeds. */
static void until_it_works(struct qms_backing *b, unsigned worker)
{
    int i = 0;

    while (read_at(b, worker, 0) != 0 && i++ < 60000)
        usleep(1000);
    assert_true(i < 60000);
}

TEST(test_lost_and_back)
{
    struct device d;
    struct qms_backing *b = make(&d, 3, MS, MINUTE);
    struct qms_backing_stats stats;
    unsigned reads, attempts;

    assert_int_equal(read_at(b, 0, 0), 0);
    d.refuses = true;
    d.generation++;
    for (int i = 1; i < QMS_BACKING_FAILURES; i++)
        assert_int_equal(read_at(b, 0, 0), EINVAL);
    assert_int_equal(d.losses, 0);
    assert_int_equal(read_at(b, 0, 0), EINVAL);
    assert_int_equal(d.losses, 1);
    /* While it is lost, reads fail without reaching the layer below. */
    reads = d.reads;
    attempts = d.attempts;
    reaches(&d.attempts, attempts + 2);
    assert_int_equal(read_at(b, 0, 0), ENOTCONN);
    assert_int_equal(d.reads, reads);
    qms_backing_stats(b, &stats);
    assert_int_equal(stats.open, 2);
    assert_int_equal(stats.reopens, 0);
    d.refuses = false;
    until_it_works(b, 0);
    /* The others were lost by the same cause: one failed read, and no word. */
    for (unsigned worker = 1; worker < 3; worker++) {
        assert_int_equal(read_at(b, worker, 0), EINVAL);
        until_it_works(b, worker);
    }
    assert_int_equal(d.losses, 1);
    assert_int_equal(d.returns, 1);
    qms_backing_stats(b, &stats);
    assert_int_equal(stats.open, 3);
    assert_int_equal(stats.losses, 1);
    assert_int_equal(stats.reopens, 3);
    undo(&d, b);
}

/* What is lost again after that is another loss. */
TEST(test_twice)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, MS, MINUTE);

    for (unsigned n = 1; n <= 2; n++) {
        d.generation++;
        for (int i = 0; i < QMS_BACKING_FAILURES; i++)
            assert_int_equal(read_at(b, 0, 0), EINVAL);
        assert_int_equal(d.losses, n);
        until_it_works(b, 0);
        assert_int_equal(d.returns, n);
    }
    undo(&d, b);
}

/* Some sectors that cannot be read are no lost connection. */
TEST(test_bad_sectors)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, MS, MINUTE);

    for (int i = 0; i < 50; i++) {
        for (int j = 1; j < QMS_BACKING_FAILURES; j++)
            assert_int_equal(read_at(b, 0, 7), EIO);
        assert_int_equal(read_at(b, 0, 0), 0);
    }
    assert_int_equal(d.opens, 1);
    assert_int_equal(d.losses, 0);
    undo(&d, b);
}

/* A device that can be opened, and of which nothing can be read, is opened ever more
 * seldom. */
TEST(test_back_off)
{
    struct device d;
    const uint64_t first = 4 * MS;
    struct qms_backing *b = make(&d, 1, first, MINUTE);
    const unsigned times = 7;

    d.broken = true;
    for (int i = 0; i < 60000 && d.opens < times; i++) {
        read_at(b, 0, 0);
        usleep(1000);
    }
    assert_true(d.opens >= times);
    for (unsigned i = 2; i < times; i++)
        assert_true(d.opened[i] - d.opened[i - 1] >= first << (i - 2));
    undo(&d, b);
}

/* It is back when it can be read, not when it can be opened; one outage is one. */
TEST(test_back_when_it_reads)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, MS, MINUTE);

    d.broken = true;
    for (int i = 0; i < QMS_BACKING_FAILURES; i++)
        assert_int_equal(read_at(b, 0, 0), EIO);
    reaches(&d.opens, 4);
    assert_int_equal(d.returns, 0);
    d.broken = false;
    until_it_works(b, 0);
    assert_int_equal(d.losses, 1);
    assert_int_equal(d.returns, 1);
    undo(&d, b);
}

/* It is tried where it could be read before. */
TEST(test_beginning_is_bad)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, MS, MINUTE);

    d.bad = 0;
    assert_int_equal(read_at(b, 0, 5), 0);
    for (int i = 0; i < QMS_BACKING_FAILURES; i++)
        assert_int_equal(read_at(b, 0, 0), EIO);
    reaches(&d.returns, 1);
    assert_int_equal(d.opens, 2);
    assert_int_equal(read_at(b, 0, 5), 0);
    undo(&d, b);
}

/* Where the device ends within a block, only a part of that was read. */
TEST(test_end_is_partial)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, MS, MINUTE);
    char buf[16];

    d.size = 18;
    assert_int_equal(qms_backing_read(b, 0, buf, 4, 12), 0);
    assert_int_equal(qms_backing_read(b, 0, buf, 2, 16), 0);
    qms_backing_renew(b);
    for (int i = 0; i < 60000 && qms_backing_read(b, 0, buf, 2, 16) != 0; i++)
        usleep(1000);
    assert_int_equal(d.opens, 2);
    assert_false(d.beyond);
    /* More than a trial's bytes are not read into its buffer. */
    assert_int_equal(qms_backing_read(b, 0, buf, 16, 0), 0);
    qms_backing_renew(b);
    until_it_works(b, 0);
    assert_int_equal(d.opens, 3);
    assert_false(d.beyond);
    undo(&d, b);
}

/* The keeper, waiting for long, tries again when somebody has reached the device. */
TEST(test_hint)
{
    struct device d;
    struct qms_backing *b = make(&d, 1, 10 * MINUTE, MINUTE);
    unsigned attempts = d.attempts;

    d.refuses = true;
    d.generation++;
    for (int i = 0; i < QMS_BACKING_FAILURES; i++)
        read_at(b, 0, 0);
    reaches(&d.attempts, attempts + 1);
    d.refuses = false;
    for (int i = 0; i < 60000 && d.returns == 0; i++) {
        qms_backing_hint(b);
        usleep(1000);
    }
    assert_int_equal(read_at(b, 0, 0), 0);
    undo(&d, b);
}

static void *read_slowly(void *opaque)
{
    (void)read_at(opaque, 1, 1);
    return NULL;
}

/* A connection that is lost is not closed before the last read of it has ended,
 * whatever else the keeper has to do meanwhile. */
TEST(test_reads_in_flight)
{
    struct device d;
    struct qms_backing *b = make(&d, 2, MS, MINUTE);
    struct qms_backing_stats stats;
    pthread_t reader;

    pthread_mutex_lock(&d.gate);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, b), 0);
    reaches(&d.waiting, 1);
    d.generation++;
    for (int i = 0; i < QMS_BACKING_FAILURES; i++)
        assert_int_equal(read_at(b, 1, 0), EINVAL);
    assert_int_equal(d.losses, 1);
    for (int cycle = 0; cycle < 5; cycle++) {
        for (int i = 0; i < QMS_BACKING_FAILURES; i++)
            (void)read_at(b, 0, 0);
        until_it_works(b, 0);
        d.generation++;
    }
    assert_int_equal(d.waiting, 1);
    assert_false(d.misused);
    pthread_mutex_unlock(&d.gate);
    pthread_join(reader, NULL);
    until_it_works(b, 1);
    qms_backing_stats(b, &stats);
    assert_int_equal(stats.open, 2);
    assert_false(d.misused);
    undo(&d, b);
}

/* Connections that are renewed: those that are open, those in use when their read has
 * ended, and one that is just being opened. */
TEST(test_renew)
{
    struct device d;
    struct qms_backing *b = make(&d, 2, 10 * MINUTE, MINUTE);
    struct qms_backing_stats stats;
    pthread_t reader;

    pthread_mutex_lock(&d.gate);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, b), 0);
    reaches(&d.waiting, 1);
    pthread_mutex_lock(&d.open_gate);
    qms_backing_renew(b);
    assert_int_equal(read_at(b, 0, 0), ENOTCONN);
    assert_int_equal(read_at(b, 1, 0), ENOTCONN);
    reaches(&d.waiting, 2);
    qms_backing_renew(b); /* the keeper is in open() */
    pthread_mutex_unlock(&d.open_gate);
    until_it_works(b, 0);
    assert_int_equal(d.opens, 4);
    assert_int_equal(d.closes, 2);
    assert_false(d.misused);
    pthread_mutex_unlock(&d.gate);
    pthread_join(reader, NULL);
    until_it_works(b, 1);
    assert_int_equal(d.opens, 5);
    assert_false(d.misused);
    qms_backing_stats(b, &stats);
    assert_int_equal(stats.open, 2);
    assert_int_equal(stats.losses, 0);
    assert_int_equal(d.losses + d.returns, 0);
    undo(&d, b);
}

/* A device that hangs when it is opened does not keep the server from ending. */
TEST(test_stop_while_opening)
{
    static struct device d;
    static struct qms_backing *b; /* stays, with its thread */

    b = make(&d, 1, MS, 10 * MS);
    pthread_mutex_lock(&d.open_gate);
    d.generation++;
    for (int i = 0; i < QMS_BACKING_FAILURES; i++)
        assert_int_equal(read_at(b, 0, 0), EINVAL);
    reaches(&d.waiting, 1);
    assert_int_equal(read_at(b, 0, 0), ENOTCONN);
    assert_false(qms_backing_stop(b));
    pthread_mutex_unlock(&d.open_gate);
}

/* Nor does one that hangs when it is closed. */
TEST(test_stop_while_closing)
{
    static struct device d;
    static struct qms_backing *b;

    b = make(&d, 1, MS, 10 * MS);
    pthread_mutex_lock(&d.close_gate);
    assert_false(qms_backing_stop(b));
    pthread_mutex_unlock(&d.close_gate);
    reaches(&d.closes, 1);
}

/* Connections are opened when they are of use, and no more than there may be. */
TEST(test_grows)
{
    struct qms_backing_stats stats = {0};
    struct device d;
    struct qms_backing *b = make_growing(&d, 3, MINUTE);

    assert_int_equal(qms_backing_want(b, 1), 1);
    (void)qms_backing_want(b, 1000);
    reaches(&d.opens, 3);
    for (int i = 0; i < 60000 && stats.open < 3; i++) {
        usleep(1000);
        qms_backing_stats(b, &stats);
    }
    assert_int_equal(stats.open, 3);
    assert_int_equal(qms_backing_want(b, 1000), 3);
    assert_int_equal(stats.losses, 0);
    assert_int_equal(stats.reopens, 0); /* none was there before */
    undo(&d, b);
}

/* What was asked for once is asked for again where it was refused, also if nobody asks
 * any more; those that there are go on meanwhile, and nobody hears of a loss. */
TEST(test_refused_and_asked_again)
{
    struct device d;
    struct qms_backing *b = make_growing(&d, 2, 20 * MS);

    d.refuses = true;
    (void)qms_backing_want(b, 2);
    reaches(&d.attempts, 4);
    assert_int_equal(read_at(b, 0, 0), 0);
    assert_int_equal(read_at(b, 1, 0), 0);
    d.refuses = false;
    reaches(&d.opens, 2);
    assert_int_equal(d.losses, 0);
    undo(&d, b);
}

TEST(test_cannot_open)
{
    struct device d = {.refuses = true};
    const struct qms_backing_config config = {
        .connections = 2,
        .open = open_device,
        .close = close_device,
        .opaque = &d,
    };
    int error;

    pthread_mutex_init(&d.open_gate, NULL);
    pthread_mutex_init(&d.close_gate, NULL);
    assert_null(
        qms_backing_start(&config, calloc(1, sizeof(struct connection)), &error));
    assert_int_equal(error, 0);
    assert_int_equal(d.closes, 1);
    pthread_mutex_destroy(&d.open_gate);
    pthread_mutex_destroy(&d.close_gate);
}
