/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: which reads are one, and how many reads miss until it is known. */
#include "tracks-world.h"

/* Streams go on while the memory for them changes, and each miss is a block. */
TEST_WITH(test_resized, set_up, tear_down)
{
    static const uint64_t kib[] = {100, 6, 20, 10, 1000, 0};
    enum { STREAMS = 6, LENGTH = 1000, ALL = LENGTH * 5 };
    unsigned changes = 0;

    for (uint64_t b = 0; b < ALL; b++) {
        if (b % LENGTH == LENGTH / 2) {
            const uint64_t bytes = kib[changes++] << 10;

            qm_tracks_set_bytes(w->tracks, bytes);
            assert_in_range(qm_tracks_bytes(w->tracks),
                            bytes < 72 << 10 ? bytes / 3 : 0, bytes);
            assert_int_equal(qm_tracks_bytes(w->tracks), qm_tracks_bytes_within(bytes));
        }
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * 2 * ALL + b, 1, false);
    }
    assert_in_range(w->misses, 2 * STREAMS, (2 + changes) * STREAMS);
}

/* Of more streams than there is memory for, those that were read last are kept. */
TEST_WITH(test_fewer, set_up, tear_down)
{
    unsigned misses;

    for (uint64_t s = 0; s < 100; s++)
        for (uint64_t b = 0; b < 10; b++)
            reads(s * 2000 + b, 1, false);
    misses = w->misses;
    qm_tracks_set_bytes(w->tracks, 0);
    for (uint64_t s = 100 - QM_TRACKS_LEAST; s < 100; s++)
        for (uint64_t b = 10; b < 100; b++)
            reads(s * 2000 + b, 1, false);
    assert_in_range(w->misses, misses, misses + QM_TRACKS_LEAST);
}

/* After two reads all is asked for, in few ranges; at the end one window is left. */
TEST_WITH(test_sequential, set_up, tear_down)
{
    for (uint64_t b = 1000; b < 11000; b++) {
        reads(b, 1, false);
        assert_in_range(w->unread, 0, GOOD);
    }
    assert_int_equal(w->misses, 2);
    assert_int_equal(w->ranges, w->asks); /* each window is one range */
    assert_in_range(w->asks, 10000 / (GOOD / 2 + 1), 10000 / (GOOD / 2) + 5);
    assert_in_range(w->longest, GOOD / 2, GOOD);
}

/* A reader goes on where nobody remembers an edge: three reads at a distance of one
 * are no stride. */
TEST_WITH(test_forgotten_edge, set_up, tear_down)
{
    struct qm_strides others = {0}, mine = w->strides;

    for (uint64_t b = 5000; b < 5040; b++) {
        reads(b, 1, false);
        if (b >= 5003)
            continue;
        mine = w->strides; /* others' reads make its edges go */
        w->strides = others;
        for (uint64_t i = 0; i < 4000; i++)
            reads(100000 + 97 * ((i * 7919 + b) % 9000), 1, false);
        others = w->strides;
        w->strides = mine;
    }
    assert_true(w->longest >= FIRST);
}

TEST_WITH(test_backward, set_up, tear_down)
{
    for (uint64_t b = 11000; b > 1000; b--) {
        reads(b, 1, false);
        assert_in_range(w->unread, 0, GOOD);
    }
    assert_int_equal(w->misses, 2);
    assert_int_equal(w->ranges, w->asks);
    for (uint64_t b = 5; b > 0; b--) /* down to the beginning */
        reads(b, 1, false);
    reads(0, 1, false);
    assert_in_range(w->misses, 4, 4);
}

/* Requests of several blocks: one misses twice, and the first window is of two. */
TEST_WITH(test_requests, set_up, tear_down)
{
    for (uint64_t b = 0; b < 8000; b += 8)
        reads(b, 8, false);
    assert_int_equal(w->misses, 16);
}

/* A request alone is no stream, however long. */
TEST_WITH(test_one_request, set_up, tear_down)
{
    for (uint64_t i = 0; i < 100; i++)
        reads(i * 2000 + (i * i) % 700, 16, false);
    assert_int_equal(w->asked, 0);
}

TEST_WITH(test_interleaved, set_up, tear_down)
{
    enum { STREAMS = 64, LENGTH = 1000 };

    for (uint64_t i = 0; i < LENGTH; i++)
        for (uint64_t s = 0; s < STREAMS; s++)
            reads(s * (DEVICE / STREAMS) + (s % 2 ? i : 5000 - i), 1, false);
    assert_in_range(w->misses, 2 * STREAMS, 2 * STREAMS + 8);
    assert_in_range(w->unread, 0, STREAMS * GOOD);
}

TEST_WITH(test_stride, set_up, tear_down)
{
    for (uint64_t i = 0; i < 500; i++)
        reads(100 + 50 * i, 2, false);
    assert_int_equal(w->misses, 3 * 2);
    assert_in_range(w->unread, 0, 16 * 2);
    for (uint64_t i = 0; i < 500; i++)
        reads(900000 - 50 * i, 2, false);
    assert_int_equal(w->misses, 2 * 3 * 2);
}

/* A context that reads on through what is cached misses one block behind that, not two,
 * though its stream was forgotten over others. */
TEST(test_through_cached)
{
    for (int shared = 0; shared < 2; shared++) {
        struct rng rng = {2};
        unsigned misses = 0;

        make(0);
        w->shared = shared;
        for (uint64_t b = 0; b < 20; b++)
            reads(b, 1, false);
        for (uint64_t island = 1000; island < 3000; island += 200) {
            memset(w->cached + island, true, 180);
            read_pairs(&rng, 2 * QM_TRACKS_MAX);
            w->misses = 0;
            for (uint64_t b = island == 1000 ? 990 : island; b < island + 200; b++)
                reads(b, 1, false);
            misses += w->misses;
        }
        if (shared)
            assert_in_range(misses, 19, 40);
        else
            assert_in_range(misses, 10, 13);
        unmake();
    }
}

/* Random reads: hardly anything is asked for, and less when that was no use. */
TEST_WITH(test_random, set_up, tear_down)
{
    struct rng rng = {1};

    for (unsigned i = 0; i < 200000; i++) {
        uint64_t b = rng_below(&rng, DEVICE);

        reads(b, 1, false);
        w->cached[b] = false;
        for (uint64_t k = b; k < b + MOST && k < DEVICE && i % 8 == 0; k++)
            if (w->ahead[k]) {
                w->unread -= w->ahead[k];
                w->ahead[k] = w->cached[k] = false;
                qm_tracks_ended(w->tracks, k, QM_FATE_UNUSED);
            }
    }
    assert_in_range(w->asked, 0, 200000 / 50);
}
