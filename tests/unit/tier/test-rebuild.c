/* SPDX-License-Identifier: BSD-3-Clause */
/* test-rebuild.c - a tier under writes that move data (tier/rebuild.h), by its public
 * calls: without data, repeatable.  Linked with --wrap for pthread_mutex_lock. */
#include "testing.h"
#include "tier/internal.h"

#define BLOCK 16384u
#define RUN   64u /* blocks that a request of 1 MiB has */

static uint64_t clock_ns;

static const pthread_mutex_t *watched;
static unsigned taken; /* how often it was */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    taken += mutex == watched;
    return __real_pthread_mutex_lock(mutex);
}

static uint64_t now(void *opaque)
{
    (void)opaque;
    return clock_ns;
}

static struct qm_tier *open_tier(enum qm_tier_admit admit)
{
    struct qm_tier_config c = dataless(BLOCK, UINT64_C(512) << 20, admit);

    clock_ns = 1000000000;
    c.update = QM_TIER_UPDATE_AUTO;
    c.now = now;
    return open_ok(&c);
}

static uint64_t handed_on(struct qm_tier *t)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(t, &s);
    return s.handed_on;
}

static uint64_t refused_as_there(struct qm_tier *t)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(t, &s);
    return s.exists;
}

static unsigned read_run(struct qm_tier *t, uint64_t first, unsigned n)
{
    struct qm_tier_read reads[RUN] = {0};

    assert_true(n <= RUN);
    for (unsigned i = 0; i < n; i++)
        reads[i].block = first + i;
    return (unsigned)qm_tier_read(t, reads, n);
}

static void hold(struct qm_tier *t, uint64_t first, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct qm_tier_insert insert = {.block = first + i,
                                        .ticket = qm_tier_ticket(t),
                                        .frequency = QM_TIER_FREQUENCY_UNKNOWN};

        assert_int_equal(qm_tier_insert(t, &insert), 0);
    }
}

static void write_bytes(struct qm_tier *t, uint64_t offset, uint64_t count,
                        enum qm_tier_result result)
{
    struct qm_tier_write w;

    qm_tier_write_begin(t, &w, offset, count);
    qm_tier_write_end(t, &w, result, NULL);
}

static void write_run(struct qm_tier *t, uint64_t first, unsigned n)
{
    write_bytes(t, first * BLOCK, (uint64_t)n * BLOCK, QM_TIER_WROTE);
}

/* Moves RUN blocks, which the tier holds if hot, from one place to the next, and
 * reads them there if asked to.  Returns the next place. */
static uint64_t move(struct qm_tier *t, uint64_t at, bool hot, bool reads)
{
    uint64_t to = at + 1000;

    if (hot)
        hold(t, at, RUN);
    (void)read_run(t, at, RUN);
    write_run(t, to, RUN);
    /* One by one, elsewhere each time: no run. */
    for (unsigned i = 0; reads && i < RUN; i++)
        (void)read_run(t, to + i * 7 % RUN, 1);
    return to + 1000;
}

/* Moves until a sample has shown that it pays. */
static uint64_t learn(struct qm_tier *t, uint64_t at)
{
    for (unsigned i = 0; i < 40; i++)
        at = move(t, at, true, true);
    return at;
}

FIXTURE(open, open_tier(QM_TIER_ADMIT_AUTO), qm_tier_close(it, QM_TIER_KEEP))

TEST_ON(hot_data_that_is_moved_is_admitted, open, struct qm_tier *t)
{
    uint64_t at, before;

    at = move(t, 0, true, true);
    assert_in_range(handed_on(t), 0, RUN / 4); /* a sample */
    at = learn(t, at);
    before = handed_on(t);
    hold(t, at, RUN);
    assert_int_equal(read_run(t, at, RUN), RUN);
    write_run(t, at + 1000, RUN);
    assert_int_equal(handed_on(t) - before, RUN);
    assert_int_equal(read_run(t, at + 1000, RUN), RUN);
}

/* Blocks that the tier held at the new place, too, are updated: they are inserted once
 * (with a thread that writes, twice would be two writes). */
TEST_ON(what_is_updated_is_not_handed_on, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0), before, there;

    hold(t, at, RUN);
    hold(t, at + 1000, RUN / 2);
    (void)read_run(t, at, RUN);
    before = handed_on(t);
    there = refused_as_there(t);
    write_run(t, at + 1000, RUN);
    assert_int_equal(handed_on(t) - before, RUN / 2);
    assert_int_equal(refused_as_there(t), there);
    assert_int_equal(read_run(t, at + 1000, RUN), RUN);
}

TEST_ON(no_more_is_admitted_than_was_read, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0), before;

    write_run(t, at + 3000, RUN); /* pays what the last reads of learn() may be owed */
    write_run(t, at + 4000, RUN);
    before = handed_on(t);
    write_run(t, at + 5000, RUN);
    assert_int_equal(handed_on(t), before);
}

TEST_ON(what_was_cold_stays_out, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0), before;

    for (unsigned i = 0; i < 8; i++)
        at = move(t, at, false, false);
    before = handed_on(t);
    (void)move(t, at, false, false);
    assert_int_equal(handed_on(t), before);
}

TEST_ON(short_failed_and_late_writes_are_none, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0), before;

    hold(t, at, RUN);
    (void)read_run(t, at, RUN);
    before = handed_on(t);
    for (unsigned i = 0; i < RUN; i++)
        write_run(t, at + 1000 + 2 * i, 1);
    write_bytes(t, (at + 3000) * BLOCK, RUN * BLOCK, QM_TIER_DROPPED);
    assert_int_equal(handed_on(t), before);

    /* What is not a whole block is not. */
    write_bytes(t, (at + 4000) * BLOCK + 512, RUN * BLOCK, QM_TIER_WROTE);
    assert_int_equal(handed_on(t) - before, RUN - 1);

    (void)read_run(t, at, RUN);
    before = handed_on(t);
    clock_ns += UINT64_C(61000000000);
    write_run(t, at + 5000, RUN);
    assert_int_equal(handed_on(t), before);
}

/* As InnoDB's doublewrite buffer: hot data is read, and the same place written. */
TEST_ON(what_is_not_read_again_stops_it, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0), before;

    hold(t, at, RUN);
    for (unsigned i = 0; i < 100; i++) {
        (void)read_run(t, at, RUN);
        write_run(t, at + 1000, RUN);
    }
    before = handed_on(t);
    (void)read_run(t, at, RUN);
    write_run(t, at + 1000, RUN);
    assert_in_range(handed_on(t) - before, 0, RUN / 4);
}

TEST(other_admission_has_none)
{
    const enum qm_tier_admit other[] = {QM_TIER_ADMIT_ALL, QM_TIER_ADMIT_NONE};

    for (unsigned k = 0; k < 2; k++) {
        struct qm_tier *t = open_tier(other[k]);

        for (unsigned i = 0, at = 0; i < 40; i++)
            at = (unsigned)move(t, at, other[k] == QM_TIER_ADMIT_ALL, true);
        assert_int_equal(handed_on(t), 0);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

/* Reads and writes that are no run of 256 KiB take no lock that all share; one that is
 * takes it once, and for those of its blocks that are of the sample. */
TEST_ON(others_take_no_lock, open, struct qm_tier *t)
{
    uint64_t at = learn(t, 0);

    watched = &t->rebuild.lock;
    taken = 0;
    for (uint64_t i = 1; i < 10000; i++) {
        (void)read_run(t, at + 100 * i, (unsigned)(1 + i % 8));
        write_run(t, at + 100 * i + 50, (unsigned)(1 + i % 8));
    }
    assert_int_equal(taken, 0);
    hold(t, at, RUN);
    assert_int_equal(read_run(t, at, RUN), RUN);
    assert_int_equal(taken, 1);
    write_run(t, at + 1000, RUN);
    assert_in_range(taken, 2, 2 + RUN / 4);
    watched = NULL;
}
