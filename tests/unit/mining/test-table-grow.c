/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of pairs takes memory as pairs come, and loses none of them by that. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "mining/markov/table.h"
#include "testing.h"
#include "tests/unit/check.h"
#include "tests/resident.h"

enum { MIB = 1 << 20, LINE = 64, WAYS = 8 };

/* What follows a key, so that a wrong one is known; a multiple of four would let others
 * fade. */
static uint64_t block_of(uint64_t i)
{
    return 4 * i + 1;
}

static void learn(struct qm_markov *p, uint64_t i)
{
    qm_markov_learn(p, 1, qm_markov_key1(i), block_of(i));
}

/* No other thread changes the table, nor did one: a pair is there once (table.h). */
static bool alone = true;

/* The count of what follows; 0 if it is not known.  *wrong: what does not follow, or is
 * there twice after threads were at it. */
static unsigned count_of(const struct qm_markov *p, uint64_t i,
                         struct qm_markov_pair *pair, unsigned *wrong)
{
    struct qm_markov_pair found[QM_MARKOV_FOUND_MAX];
    unsigned n = qm_markov_find(p, qm_markov_key1(i), found), count = 0;

    for (unsigned k = 0; k < n; k++) {
        if (found[k].block == block_of(i)) {
            if (alone)
                check(count == 0);
            *wrong += count != 0;
            count = found[k].count;
            if (pair)
                *pair = found[k];
        } else {
            ++*wrong;
        }
    }
    return count;
}

static struct qm_markov_stats table_stats(const struct qm_markov *p)
{
    struct qm_markov_stats stats;

    qm_markov_get_stats(p, &stats);
    return stats;
}

FIXTURE(four_mib, qm_markov_new(4 * MIB), qm_markov_free(it))

TEST_ON(test_takes_what_it_needs, four_mib, struct qm_markov *p)
{
    uint64_t before = table_stats(p).bytes, first = before;

    assert_in_range(qm_markov_lines(p), 4 * MIB / LINE - 33, 4 * MIB / LINE);
    assert_in_range(before, 1, 4 * MIB / 32 + LINE);
    for (uint64_t i = 0; i < 1000000; i++) {
        learn(p, i);
        struct qm_markov_stats stats = table_stats(p);
        assert_in_range(stats.bytes, before, before + LINE); /* smoothly */
        assert_true(stats.bytes == first || stats.bytes <= 32 * stats.held + 2 * LINE);
        assert_int_equal(stats.held + stats.evicted, i + 1);
        before = stats.bytes;
    }
    assert_in_range(before, 4 * MIB - 33 * LINE, 4 * MIB); /* all, and no more */
    assert_in_range(table_stats(p).held, 4 * MIB / 8 * 95 / 100, 4 * MIB / 8);
}

/* Not only does it say so. */
TEST(test_is_not_resident)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes memory of its own for what is written to */
#endif
    uint64_t before = resident();
    struct qm_markov *p = qm_markov_new(UINT64_C(512) * MIB);
    unsigned wrong = 0;

    for (uint64_t i = 0; i < 100000; i++) {
        learn(p, i);
        count_of(p, i + 1000000, NULL, &wrong);
    }
    assert_true(resident() - before < UINT64_C(128) * MIB); /* all over: 280 */
    qm_markov_free(p);
}

FIXTURE(one_mib, qm_markov_new(MIB), qm_markov_free(it))

/* Where many follow one, room for others is of no use. */
TEST_ON(test_one_key, one_mib, struct qm_markov *p)
{
    uint64_t bytes = table_stats(p).bytes;

    for (uint64_t b = 0; b < 100000; b++)
        qm_markov_learn(p, 1, qm_markov_key1(1), b);
    assert_int_equal(table_stats(p).held, WAYS);
    assert_int_equal(table_stats(p).bytes, bytes);
}

/* What is known of a pair stays, wherever it goes. */
TEST_ON(test_nothing_changes, four_mib, struct qm_markov *p)
{
    enum { KNOWN = 300, MORE = 60000 };
    unsigned wrong = 0;

    for (uint64_t i = 0; i < KNOWN; i++) {
        for (uint64_t k = 0; k < 3 + i % 12; k++)
            learn(p, i);
        if (i % 2 == 0)
            qm_markov_learn(p, 1, qm_markov_key1(i), 4000003);
    }
    for (uint64_t n = KNOWN; n < MORE; n++) {
        learn(p, n);
        if (n % 997 != 0 && n != MORE - 1)
            continue;
        for (uint64_t i = 0; i < KNOWN; i++) {
            struct qm_markov_pair pair = {0};
            unsigned learned = 3 + (unsigned)(i % 12), other = 0;
            unsigned less = i % 2 == 0 ? (learned + 3) / 8 : 0;

            assert_int_equal(count_of(p, i, &pair, &other), learned - less);
            assert_int_equal(pair.since, i % 2 == 0);
            assert_in_range(other, 0, 2);
        }
    }
    assert_true(table_stats(p).bytes > 8 * (4 * MIB / 32)); /* it was about that */
    unsigned lost = 0;
    for (uint64_t i = KNOWN; i < MORE; i++)
        lost += count_of(p, i, NULL, &wrong) != 1;
    assert_in_range(lost, 0, MORE / 100); /* lines that were full */
    assert_in_range(wrong, 0, MORE / 500);
}

/* A key that was never learned is seldom taken for another. */
TEST_ON(test_strangers, one_mib, struct qm_markov *p)
{
    enum { ASKED = 200000 };
    unsigned wrong = 0;

    for (uint64_t i = 0; i < 400000; i++)
        learn(p, i);
    for (uint64_t i = 0; i < ASKED; i++)
        assert_int_equal(count_of(p, 1000000 + i, NULL, &wrong), 0);
    assert_in_range(wrong, 1, ASKED * WAYS / 2048 * 5 / 4);
}

/* Pairs on their way to another table, or being counted. */
struct carried {
    struct qm_markov *to;
    uint64_t line, n;
    unsigned tag;
};

static int carry(void *opaque, uint64_t line, unsigned tag,
                 const struct qm_markov_pair *found, unsigned n)
{
    struct carried *c = opaque;

    /* Each key once, in order. */
    assert_true(c->n == 0 || line > c->line || (line == c->line && tag > c->tag));
    c->line = line;
    c->tag = tag;
    c->n += n;
    for (unsigned i = 0; i < n && c->to; i++)
        assert_true(qm_markov_put(c->to, line, tag, found[i].block, found[i].count));
    return 0;
}

static uint64_t known(const struct qm_markov *p, uint64_t n)
{
    unsigned wrong = 0;
    uint64_t known = 0;

    for (uint64_t i = 0; i < n; i++)
        known += count_of(p, i, NULL, &wrong) == 1;
    return known;
}

/* From a table that has grown so far to others that have grown less or more. */
TEST(test_carried_over)
{
    static const uint64_t sizes[] = {100, 3000, 5000, 20000, 33333};

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct qm_markov *p = qm_markov_new(MIB);
        uint64_t n = sizes[i], there;

        for (uint64_t k = 0; k < n; k++)
            learn(p, k);
        there = known(p, n);
        assert_in_range(there, n * 99 / 100, n);
        for (unsigned more = 0; more <= 3; more++) {
            struct carried c = {.to = qm_markov_new(MIB)};

            qm_markov_reserve(c.to, more == 3 ? UINT64_MAX : n << more >> 1);
            assert_int_equal(qm_markov_each(p, 0, carry, &c), 0);
            assert_int_equal(c.n, there);
            if (more > 0)
                assert_in_range(known(c.to, n), there * 99 / 100, there);
            assert_in_range(table_stats(c.to).bytes, MIB / 32 - 2 * LINE, MIB);
            qm_markov_free(c.to);
        }
        qm_markov_free(p);
    }
}

/* It shrinks and grows again: what was seen often stays, what was seen once goes
 * first, and the memory is the system's. */
TEST(test_set_bytes)
{
    struct qm_markov *p = qm_markov_new(8 * MIB);
    unsigned wrong = 0, kept = 0, known = 0, once = 0;
    uint64_t before, evicted;

    for (uint64_t i = 0; i < 40000; i++)
        for (int k = 0; k < 3; k++)
            learn(p, i);
    for (uint64_t i = 100000; i < 800000; i++)
        learn(p, i);
    assert_in_range(table_stats(p).bytes, 8 * MIB - 33 * LINE, 8 * MIB);
    before = resident();
    qm_markov_set_bytes(p, MIB);
    assert_in_range(table_stats(p).bytes, MIB - LINE, MIB);
    assert_int_equal(table_stats(p).most, table_stats(p).bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(resident() + 7 * MIB / (uint64_t)sysconf(_SC_PAGESIZE) <= before + 16);
#else
    (void)before;
#endif
    for (uint64_t i = 0; i < 40000; i++)
        known += count_of(p, i, NULL, &wrong) > 0;
    for (uint64_t i = 100000; i < 800000; i++)
        once += count_of(p, i, NULL, &wrong) > 0;
    assert_true(known > 38000); /* in 130 thousand places; some lines have more */
    assert_true(once < 100000);
    assert_int_equal(table_stats(p).held, known + once);

    evicted = table_stats(p).evicted;
    for (uint64_t i = 900000; i < 1000000; i++) /* it takes no more than it may */
        learn(p, i);
    assert_true(table_stats(p).evicted > evicted);
    assert_in_range(table_stats(p).bytes, MIB - LINE, MIB);

    qm_markov_set_bytes(p, 100 * MIB); /* as much as it was made for */
    assert_in_range(table_stats(p).most, 8 * MIB - 33 * LINE, 8 * MIB);
    for (uint64_t i = 2000000; i < 2700000; i++)
        learn(p, i);
    assert_in_range(table_stats(p).bytes, 8 * MIB - 33 * LINE, 8 * MIB);
    for (uint64_t i = 0; i < 40000; i++)
        kept += count_of(p, i, NULL, &wrong) > 0;
    assert_true(kept > known * 8 / 10);
    qm_markov_set_bytes(p, 0);
    assert_int_equal(table_stats(p).bytes, 2 * LINE);
    qm_markov_free(p);
}

/* Of no bytes it knows the keys of one line, all of whose pairs are as they are
 * elsewhere, and when it has grown it learns the others anew. */
TEST(test_keys_of_one_line)
{
    enum { KEYS = 8000 };
    struct qm_markov *p = qm_markov_new(8 * MIB);
    unsigned wrong = 0, known = 0, again = 0, later = 0;

    for (uint64_t i = 0; i < KEYS; i++)
        learn(p, i);
    qm_markov_set_bytes(p, 0);
    assert_int_equal(table_stats(p).bytes, 2 * LINE);
    for (uint64_t i = 0; i < KEYS; i++)
        known += count_of(p, i, NULL, &wrong) > 0;
    assert_in_range(known, 1, 8);
    assert_int_equal(table_stats(p).held, known);
    for (uint64_t i = 0; i < KEYS; i++)
        learn(p, i);
    for (uint64_t i = 0; i < KEYS; i++) {
        unsigned count = count_of(p, i, NULL, &wrong);

        assert_true(count == 0 || count == 2);
        again += count > 0;
    }
    assert_int_equal(again, known);
    assert_int_equal(table_stats(p).bytes, 2 * LINE);

    qm_markov_set_bytes(p, 8 * MIB);
    for (uint64_t i = 0; i < KEYS; i++)
        later += count_of(p, i, NULL, &wrong) > 0;
    assert_int_equal(later, known);
    later = 0;
    for (uint64_t i = 0; i < KEYS; i++)
        learn(p, i);
    for (uint64_t i = 0; i < KEYS; i++)
        later += count_of(p, i, NULL, &wrong) > 0;
    assert_true(later > KEYS * 95 / 100);
    qm_markov_free(p);
}

/* A pair is marginal if it is the next to go from a line that is full. */
TEST(test_marginal)
{
    struct qm_markov *p = qm_markov_new(LINE);

    for (uint64_t b = 1; b <= 8; b++)
        assert_int_equal(qm_markov_learn(p, 1, 77, 4 * b + 1), QM_MARKOV_NEW);
    assert_int_equal(qm_markov_learn(p, 1, 77, 4 * 2 + 1), QM_MARKOV_KNOWN);
    assert_int_equal(qm_markov_learn(p, 1, 77, 4 * 1 + 1), QM_MARKOV_MARGINAL);
    assert_int_equal(qm_markov_learn(p, 1, 77, 4 * 1 + 1), QM_MARKOV_KNOWN);
    assert_int_equal(qm_markov_learn(p, 1, 77, 4 * 4 + 1), QM_MARKOV_KNOWN);
    assert_int_equal(qm_markov_learn(p, 1, 77, 4 * 3 + 1), QM_MARKOV_MARGINAL);
    qm_markov_free(p);
}

TEST_ON(test_cannot_be, one_mib, struct qm_markov *p)
{
    uint64_t apart = qm_markov_lines(p) / 32;

    assert_int_equal(qm_markov_lines(p) % 32, 0);
    assert_true(qm_markov_put(p, 3 + 5 * apart, 5 + 32 * 7, 1, 1));
    assert_false(qm_markov_put(p, 3 + 5 * apart, 6 + 32 * 7, 1, 1));
    assert_false(qm_markov_put(p, 3 + 32 * apart, 32 * 7, 1, 1));
    assert_false(qm_markov_put(p, 3, 1 << 16, 1, 1));
    assert_false(qm_markov_put(p, 3, 32 * 7, QM_MARKOV_BLOCKS, 1));
    assert_false(qm_markov_put(p, 3, 32 * 7, 1, 0));
    assert_false(qm_markov_put(p, 3, 32 * 7, 1, QM_MARKOV_COUNT_MAX + 1));
    assert_int_equal(table_stats(p).held, 1);
}

enum { THREADS = 4, EACH = 20000 };

struct learner {
    struct qm_markov *p;
    uint64_t from;
    atomic_bool *stop;
    unsigned wrong;
};

static void *learner(void *opaque)
{
    struct learner *l = opaque;

    for (uint64_t i = l->from; i < l->from + EACH; i++) {
        learn(l->p, i);
        count_of(l->p, l->from + (i - l->from) / 2, NULL, &l->wrong);
    }
    return NULL;
}

static int nothing(void *opaque, uint64_t line, unsigned tag,
                   const struct qm_markov_pair *found, unsigned n)
{
    return 0;
}

static void *saver(void *opaque)
{
    struct learner *l = opaque;

    while (!atomic_load(l->stop))
        qm_markov_each(l->p, 0, nothing, NULL);
    return NULL;
}

TEST_ON(test_threads, four_mib, struct qm_markov *p)
{
    struct learner learners[THREADS + 1] = {0};
    pthread_t threads[THREADS + 1];
    atomic_bool stop = false;
    struct qm_markov_stats stats;
    unsigned wrong = 0;
    uint64_t there;

    alone = false;
    for (unsigned i = 0; i <= THREADS; i++) {
        learners[i] = (struct learner){.p = p, .from = i * EACH, .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < THREADS ? learner : saver, &learners[i]),
                         0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_in_range(learners[i].wrong, 0, EACH / 250);
    }
    atomic_store(&stop, true);
    pthread_join(threads[THREADS], NULL);
    stats = table_stats(p);
    assert_int_equal(stats.held + stats.evicted, THREADS * EACH);
    assert_true(stats.bytes <= 32 * stats.held + 2 * THREADS * LINE);

    /* How much is lost is the scheduler's: who splits may have to wait while others
     * learn.  But nothing is that cannot be learned again. */
    for (unsigned again = 0; again < 2; again++)
        for (uint64_t i = 0; i < THREADS * EACH; i++)
            if (count_of(p, i, NULL, &wrong) == 0)
                learn(p, i);
    there = known(p, THREADS * EACH);
    assert_in_range(there, THREADS * EACH * 98 / 100, THREADS * EACH);
    struct carried c = {0};
    assert_int_equal(qm_markov_each(p, 0, carry, &c), 0);
    assert_in_range(c.n, there, there + THREADS * EACH / 100);
}

/* Shrinking and growing while others learn and look up: nothing is found that nobody
 * learned. */
TEST_ON(test_set_bytes_among_threads, four_mib, struct qm_markov *p)
{
    struct learner learners[THREADS] = {0};
    pthread_t threads[THREADS];
    atomic_bool stop = false;
    unsigned wrong = 0;

    alone = false;
    for (unsigned i = 0; i < THREADS; i++) {
        learners[i] = (struct learner){.p = p, .from = i * EACH, .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, learner, &learners[i]), 0);
    }
    for (unsigned i = 0; i < 200; i++)
        qm_markov_set_bytes(p, i * 7 % 33 * (4 * MIB / 32)); /* also a sample */
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qm_markov_set_bytes(p, 4 * MIB);
    for (unsigned again = 0; again < 2; again++)
        for (uint64_t i = 0; i < THREADS * EACH; i++)
            if (count_of(p, i, NULL, &wrong) == 0)
                learn(p, i);
    assert_in_range(known(p, THREADS * EACH), THREADS * EACH * 98 / 100,
                    THREADS * EACH);
    assert_in_range(wrong, 0, THREADS * EACH / 250);
}
