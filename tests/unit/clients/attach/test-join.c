/* SPDX-License-Identifier: BSD-3-Clause */
/* test-join.c - reads that were submitted, and the requests that come of them. */
#include "tests/harness.h"

#include "clients/attach/join.h"

#define K        UINT64_C(1024)
#define PIECES   8
#define CLOSE(n) (assert_int_equal(references[n], 0))

static int references[64]; /* of contexts */
static struct qm_join *join;
static struct qm_join_piece pieces[PIECES];

static void hold(void *opaque, uint64_t context)
{
    assert_in_range(context, 1, 63);
    assert_true(references[context] > 0);
    references[context]++;
}

static void release(void *opaque, uint64_t context)
{
    assert_in_range(context, 1, 63);
    assert_true(references[context] > 0);
    references[context]--;
}

static int set_up(void **state)
{
    const struct qm_join_calls calls = {hold, release, NULL};

    memset(references, 0, sizeof references);
    join = qm_join_new(&calls);
    return join ? 0 : -1;
}

static int tear_down(void **state)
{
    qm_join_free(join);
    for (unsigned i = 0; i < 64; i++)
        CLOSE(i);
    return 0;
}

static void event(uint64_t context, uint64_t offset, uint64_t bytes, uint64_t ns)
{
    if (context != 0)
        references[context]++;
    qm_join_event(join, context, offset, bytes, ns);
}

static size_t request(uint64_t offset, uint64_t bytes, uint64_t ns)
{
    size_t n = qm_join_request(join, offset, bytes, ns, pieces, PIECES);
    uint64_t at = offset;

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(pieces[i].offset, at);
        at += pieces[i].bytes;
        if (pieces[i].context != 0)
            release(NULL, pieces[i].context);
    }
    assert_int_equal(at, offset + bytes);
    return n;
}

/* The one context of a request. */
static uint64_t whose(uint64_t offset, uint64_t bytes, uint64_t ns)
{
    assert_int_equal(request(offset, bytes, ns), 1);
    return pieces[0].context;
}

static struct qm_join_stats stats(void)
{
    struct qm_join_stats s;

    qm_join_get_stats(join, &s);
    return s;
}

TEST_WITH(test_simple, set_up, tear_down)
{
    event(1, 16 * K, 16 * K, 1);
    event(2, 64 * K, 4 * K, 2);
    assert_true(qm_join_knows(join, 16 * K, 16 * K));
    assert_false(qm_join_knows(join, 12 * K, 16 * K));
    assert_int_equal(whose(64 * K, 4 * K, 10), 2);
    assert_int_equal(whose(16 * K, 16 * K, 11), 1);
    CLOSE(1);
    CLOSE(2);
    assert_int_equal(whose(16 * K, 16 * K, 12), 0);
    assert_int_equal(stats().unknown, 1);
    assert_int_equal(stats().requests, 3);
}

/* A thread without a context reads: that is known, too. */
TEST_WITH(test_none, set_up, tear_down)
{
    event(0, 0, 4 * K, 1);
    assert_true(qm_join_knows(join, 0, 4 * K));
    assert_int_equal(whose(0, 4 * K, 2), 0);
    assert_int_equal(stats().unknown, 0);
}

/* One read becomes several requests, also across a region's border and in any order. */
TEST_WITH(test_split_read, set_up, tear_down)
{
    event(1, 64 * K, 256 * K, 1);
    assert_int_equal(whose(192 * K, 64 * K, 2), 1);
    assert_int_equal(whose(64 * K, 128 * K, 3), 1);
    assert_int_equal(references[1], 1);
    assert_int_equal(whose(256 * K, 64 * K, 4), 1);
    CLOSE(1);
    /* Out of its middle. */
    event(2, 0, 12 * K, 5);
    assert_int_equal(whose(4 * K, 4 * K, 6), 2);
    assert_int_equal(whose(8 * K, 4 * K, 7), 2);
    assert_int_equal(whose(0, 4 * K, 8), 2);
    CLOSE(2);
    assert_int_equal(stats().split, 0);
}

/* One request of several reads. */
TEST_WITH(test_merged, set_up, tear_down)
{
    event(1, 0, 4 * K, 1);
    event(2, 4 * K, 8 * K, 2);
    event(2, 12 * K, 4 * K, 3);
    event(0, 16 * K, 4 * K, 4);
    event(1, 124 * K, 8 * K, 5);
    assert_int_equal(request(0, 20 * K, 6), 3);
    assert_int_equal(pieces[0].context, 1);
    assert_int_equal(pieces[0].bytes, 4 * K);
    assert_int_equal(pieces[1].context, 2);
    assert_int_equal(pieces[1].bytes, 12 * K);
    assert_int_equal(pieces[2].context, 0);
    assert_int_equal(whose(124 * K, 8 * K, 7), 1);
    assert_int_equal(stats().split, 1);
    assert_int_equal(stats().unknown, 0);
}

/* More contexts than there is room for: the data is all there, the last of no one. */
TEST_WITH(test_too_many, set_up, tear_down)
{
    for (unsigned i = 0; i < 2 * PIECES; i++)
        event(i + 1, i * K, K, i);
    assert_int_equal(request(0, 2 * PIECES * K, 99), PIECES);
    assert_int_equal(pieces[PIECES - 2].context, PIECES - 1);
    assert_int_equal(pieces[PIECES - 1].context, 0);
    assert_int_equal(pieces[PIECES - 1].bytes, (PIECES + 1) * K);
}

/* The same bytes, read by several: first come, first served, byte by byte. */
TEST_WITH(test_order, set_up, tear_down)
{
    event(1, 0, 8 * K, 1);
    event(2, 0, 8 * K, 2);
    event(3, 4 * K, 8 * K, 3);
    assert_int_equal(request(4 * K, 8 * K, 4), 2);
    assert_int_equal(pieces[0].context, 1);
    assert_int_equal(pieces[1].context, 3);
    assert_int_equal(request(0, 8 * K, 5), 2);
    assert_int_equal(pieces[0].context, 1);
    assert_int_equal(pieces[1].context, 2);
    assert_int_equal(request(0, 8 * K, 6), 2);
    assert_int_equal(pieces[0].context, 2);
    assert_int_equal(pieces[1].context, 3);
}

/* An event that comes after its request must not be the next one's. */
TEST_WITH(test_late, set_up, tear_down)
{
    assert_int_equal(whose(0, 16 * K, 100), 0);
    event(1, 0, 8 * K, 99);
    CLOSE(1);
    event(2, 0, 16 * K, 101);
    assert_int_equal(whose(0, 16 * K, 110), 2);
    assert_int_equal(stats().late, 1);
    /* The other half of the request was of an event that never came. */
    event(3, 8 * K, 8 * K, 120);
    assert_int_equal(whose(8 * K, 8 * K, 130), 3);
}

TEST_WITH(test_aged, set_up, tear_down)
{
    event(1, 0, 4 * K, 1);
    event(2, 8 * K, 4 * K, QM_JOIN_LATE);
    /* A device that stands still: nothing is too old. */
    assert_int_equal(whose(8 * K, 4 * K, 50 * QM_JOIN_LATE), 2);
    assert_int_equal(references[1], 1);
    event(2, 8 * K, 4 * K, QM_JOIN_LATE + 2);
    assert_int_equal(whose(8 * K, 4 * K, 50 * QM_JOIN_LATE), 2);
    CLOSE(1);
    assert_int_equal(stats().aged, 1);
    assert_int_equal(whose(0, 4 * K, 51 * QM_JOIN_LATE), 0);
}

/* Requests of which nothing is ever told do not pile up either. */
TEST_WITH(test_asked_aged, set_up, tear_down)
{
    assert_int_equal(whose(0, 4 * K, 1), 0);
    assert_int_equal(whose(8 * K, 4 * K, QM_JOIN_ASKED), 0);
    event(1, 0, 4 * K, 1);
    assert_int_equal(stats().late, 1);
    assert_int_equal(whose(0, 4 * K, 1), 0);
    assert_int_equal(whose(16 * K, 4 * K, 3 * QM_JOIN_ASKED), 0);
    event(1, 0, 4 * K, 1);
    event(1, 8 * K, 4 * K, 1);
    assert_int_equal(stats().late, 1);
    assert_int_equal(references[1], 2);
}

TEST_WITH(test_overflow, set_up, tear_down)
{
    /* One region ... */
    for (unsigned i = 0; i < 3 * QM_JOIN_REGION_MOST; i++)
        event(1, 0, K, i);
    assert_int_equal(references[1], QM_JOIN_REGION_MOST);
    assert_int_equal(stats().dropped, 2 * QM_JOIN_REGION_MOST);
    /* ... and all: the newest stay. */
    for (uint64_t i = 0; i < 2 * QM_JOIN_MOST; i++)
        event(2, (i + 1) * QM_JOIN_REGION, K, i);
    assert_true(references[1] + references[2] <= QM_JOIN_MOST);
    CLOSE(1);
    assert_int_equal(whose(2 * QM_JOIN_MOST * QM_JOIN_REGION, K, 1), 2);
    assert_int_equal(whose(QM_JOIN_REGION, K, 1), 0);
    /* Nor do requests without events pile up. */
    for (uint64_t i = 0; i < 3 * QM_JOIN_MOST; i++)
        whose(i * K, K, i);
    CLOSE(2);
    /* What the kernel never says is bounded as well. */
    event(3, UINT64_MAX - 5, 100, 1);
    event(3, 5, UINT64_MAX, 1);
    CLOSE(3);
}

/* Random reads, cut and merged at random: with the truth at hand. */
TEST_WITH(test_random, set_up, tear_down)
{
    enum { UNITS = 512, ROUNDS = 20000 };
    static unsigned char
        truth[UNITS]; /* whose pending read a unit is of; 0: nobody's */
    uint64_t ns = 1;
    unsigned seed = 1;

    for (unsigned round = 0; round < ROUNDS; round++, ns++) {
        unsigned at = (unsigned)rand_r(&seed) % UNITS;
        unsigned n = 1 + (unsigned)rand_r(&seed) % 40;

        n = at + n > UNITS ? UNITS - at : n;
        if (rand_r(&seed) % 2) {
            unsigned context = 1 + (unsigned)rand_r(&seed) % 60;

            /* Only what nobody has asked for: then there is one truth. */
            while (n > 0 && truth[at + n - 1] != 0)
                n--;
            for (unsigned i = 0; i < n; i++)
                if (truth[at + i] != 0)
                    n = i;
            if (n == 0)
                continue;
            event(context, at * K, n * K, ns);
            memset(truth + at, (int)context, n);
        } else {
            unsigned unit = at;
            size_t count;

            while (n > 0 && truth[at + n - 1] == 0)
                n--;
            for (unsigned i = 0; i < n; i++)
                if (truth[at + i] == 0)
                    n = i;
            if (n == 0)
                continue;
            count = request(at * K, n * K, ns);
            for (size_t i = 0; i < count; i++)
                for (uint64_t b = 0; b < pieces[i].bytes; b += K, unit++)
                    if (i < PIECES - 1)
                        assert_int_equal(pieces[i].context, truth[unit]);
            memset(truth + at, 0, n);
        }
    }
    assert_int_equal(stats().unknown, 0);
    assert_int_equal(stats().dropped, 0);
}
