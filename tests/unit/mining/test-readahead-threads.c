/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams read by several threads while the memory for them changes. */
#include "testing.h"

#include <pthread.h>
#include <stdatomic.h>

#include "mining/readahead/extents.h"
#include "mining/readahead/runs.h"
#include "mining/readahead/strides.h"
#include "mining/readahead/tracks.h"

enum { READERS = 3, READS = 20000, NEAR = 20 * 1024, KIB = 1024 };

struct shared {
    struct qm_tracks *tracks;
    atomic_uint running;
    atomic_uint wrong;
    atomic_uint asked;
};

struct reader {
    struct shared *shared;
    unsigned number;
    pthread_t thread;
};

/* Ranges lie near the reader whose read asked for them: before it, or behind it where
 * it seemed to go backward. */
static void check(struct shared *s, const struct qm_candidate *ranges, unsigned n,
                  uint64_t block)
{
    for (unsigned i = 0; i < n; i++)
        if (ranges[i].count == 0 || ranges[i].block + ranges[i].count + NEAR < block ||
            ranges[i].block > block + NEAR)
            atomic_fetch_add(&s->wrong, 1);
    atomic_fetch_add(&s->asked, n);
}

/* Of runs of 50 blocks, each of which is a miss or was prefetched. */
static void *read_runs(void *opaque)
{
    struct reader *r = opaque;
    struct qm_tracks *t = r->shared->tracks;
    struct qm_strides strides = {0};
    struct qm_runs runs = {0};
    struct rng rng = {r->number + 1};
    uint64_t block = 0;

    for (unsigned i = 0; i < READS; i++, block++) {
        struct qm_candidate ranges[QM_TRACKS_RANGES];
        struct qm_turn turn = {.wanted = false};
        uint64_t before;
        uint32_t one = 1;
        struct qm_own own;

        if (i % 50 == 0) /* each reader has a part of the device of its own */
            block = ((uint64_t)r->number << 30) + rng_below(&rng, 1 << 20);
        if (qm_tracks_knows_files(t) && /* they lie elsewhere */
            qm_tracks_in_file(t, block, &one, &before) != QM_EXTENTS_NONE)
            atomic_fetch_add(&r->shared->wrong, 1);
        own = qm_runs_read(&runs, block, 1, NULL, NULL);
        qm_tracks_ended(t, block, (enum qm_fate)rng_below(&rng, 3));
        if (qm_tracks_has_note(t, block))
            turn = qm_tracks_pass(t, own, block, 1);
        else
            turn = qm_tracks_miss(t, &strides, own, block, 1);
        check(r->shared, ranges, qm_tracks_ask(t, turn, ranges, QM_TRACKS_RANGES),
              block);
    }
    atomic_fetch_sub(&r->shared->running, 1);
    return NULL;
}

TEST(test_resized)
{
    struct qm_tracks_config config = {
        .max_window = 64, .good_window = 16, .first_window = 4};
    struct shared shared = {.tracks = qm_tracks_new(&config), .running = READERS};
    struct reader readers[READERS];
    struct rng rng = {99};

    assert_non_null(shared.tracks);
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.shared = &shared, .number = i};
        assert_int_equal(
            pthread_create(&readers[i].thread, NULL, read_runs, &readers[i]), 0);
    }
    while (atomic_load(&shared.running) > 0) {
        const uint64_t at = UINT64_C(1) << 40 | rng_below(&rng, 1 << 20);
        const struct qm_extent told[] = {{at, 50}, {at + 100, 50}};
        uint64_t bytes = 8 * KIB + rng_below(&rng, 100 * KIB);

        qm_tracks_set_bytes(shared.tracks, bytes);
        qm_tracks_tell(shared.tracks, told, 2);
        qm_tracks_forget(shared.tracks, at + 10, 1);
        if (qm_tracks_bytes(shared.tracks) > bytes + sizeof(struct qm_extents))
            atomic_fetch_add(&shared.wrong, 1);
    }
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    assert_int_equal(shared.wrong, 0);
    assert_true(shared.asked > 0);
    qm_tracks_free(shared.tracks);
}
