/* SPDX-License-Identifier: BSD-3-Clause */
/* test-admission.c - what is learned of a device whose reads' times are known. */
#include <math.h>

#include "tests/harness.h"

#include "engine/admission.h"

enum { MS = 1000000, READS = 3000 };

static struct qm_admission a;
static uint64_t now;

static int set_up(void **state)
{
    qm_admission_init(&a);
    now = MS;
    return 0;
}

static int tear_down(void **state)
{
    qm_admission_destroy(&a);
    return 0;
}

static void again(void)
{
    qm_admission_destroy(&a);
    qm_admission_init(&a);
}

/* expected: by D alone, which counts 1 + 2 * expected^6 times. */
static void assert_threshold(float expected)
{
    float threshold = qm_admission_threshold(&a), times = 1 + 2 * powf(expected, 6);

    expected =
        expected < 0.95F ? times * expected / (1 + (times - 1) * expected) : 0.95F;

    if (threshold < expected - 0.01F || threshold > expected + 0.01F)
        fail_msg("the threshold is %.3f, not %.3f", (double)threshold,
                 (double)expected);
}

/* A read ends each `gap`; it found `first` to 3 others, of which each made it take
 * `each` longer.  Reads of several blocks take longer for themselves. */
static void reads(uint64_t gap, uint64_t each, unsigned first, bool sizes)
{
    for (unsigned i = 0; i < READS; i++) {
        unsigned others = first + i * 7 % (4 - first),
                 blocks = sizes && i % 3 == 0 ? 8 : 1;

        now += gap;
        qm_admission_begin(&a, i % 2 == 0);
        qm_admission_end(&a, i % 2 == 0, others, now,
                         2 * MS + others * each + (blocks - 1) * 5 * MS, blocks);
    }
}

/* The slope times the reads a unit of time, by the factor that admission.c has, where
 * reads come so often that they wait little. */
TEST_WITH(test_busy, set_up, tear_down)
{
    assert_threshold(0);
    reads(MS / 10, MS / 25, 0, false);
    assert_threshold(1.6F * 10 / 25);
    assert_true(qm_admission_admits(&a, 0.69F));
    assert_false(qm_admission_admits(&a, 0.65F)); /* .64 does not do on a busy device */
    reads(MS / 5, MS / 25, 0, true);              /* half the load */
    assert_threshold(1.6F * 5 / 25);
    reads(MS / 50, MS / 25, 0, true); /* more than there can be */
    assert_threshold(0.95F);
}

/* Where every read finds others, there is no line to see; but they take longer than
 * those that found none, once. */
TEST_WITH(test_waiting, set_up, tear_down)
{
    reads(100 * MS, 0, 0, false);
    for (unsigned i = 0; i < READS; i++) {
        now += 100 * MS;
        qm_admission_begin(&a, false);
        qm_admission_end(&a, false, 9, now, 4 * MS, 1);
    }
    assert_threshold(1 / (1 + 0.4F));
    for (unsigned i = 0; i < READS; i++) { /* and at night they find none again */
        now += 100 * MS;
        qm_admission_begin(&a, false);
        qm_admission_end(&a, false, 0, now, 2 * MS, 1);
    }
    assert_threshold(0);
}

/* Pseudorandom, below n. */
static unsigned chance(unsigned n)
{
    static uint64_t x = 1;

    x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)((x >> 33) % n);
}

static void read_one(unsigned others, uint64_t ms)
{
    now += 6 * MS;
    qm_admission_begin(&a, false);
    qm_admission_end(&a, false, others, now, ms * MS, 1);
}

/* Ends n reads, each of which found `others` others on their way.  Their times are
 * spread evenly from two thirds to four thirds of `mean` ms. */
static void stray(unsigned n, unsigned others, unsigned mean)
{
    for (unsigned i = 0; i < n; i++)
        read_one(others, mean * 2 / 3 + chance(mean * 2 / 3));
}

/* Two dozen clients read all the time, so that one read found no other, the first.  Its
 * time says nothing if reads' times stray as far. */
TEST_WITH(test_once_alone, set_up, tear_down)
{
    read_one(0, 90);
    stray(READS, 23, 140);
    assert_threshold(0);
    again();
    read_one(0, 90);
    stray(READS, 23, 400);
    assert_true(qm_admission_threshold(&a) > 0.5F);
}

/* It says something if these were many, and if they were nearly alone. */
TEST_WITH(test_often_alone, set_up, tear_down)
{
    stray(10 * READS, 0, 90);
    stray(READS, 23, 140);
    assert_true(qm_admission_threshold(&a) > 0.5F);
    again();
    stray(READS / 10, 2, 90);
    stray(READS, 23, 140);
    assert_true(qm_admission_threshold(&a) > 0.5F);
}

/* A slope that is chance is seldom taken for that of a busy device. */
TEST_WITH(test_no_slope, set_up, tear_down)
{
    enum { TIMES = 200 };
    unsigned busy = 0;

    for (unsigned i = 0; i < TIMES; i++) {
        for (unsigned n = 0; n < READS; n++) {
            now += MS;
            qm_admission_begin(&a, false);
            qm_admission_end(&a, false, chance(4), now, (90 + chance(20)) * MS, 1);
        }
        busy += qm_admission_threshold(&a) > 0.1F;
    }
    assert_in_range(busy, 1, TIMES * 2 / 5);
}

/* A device on which reads do not delay each other lets everything pass. */
TEST_WITH(test_wide, set_up, tear_down)
{
    reads(MS / 10, 0, 0, true);
    assert_threshold(0);
}

/* How soon a read fails says nothing, but it is on its way no more. */
TEST_WITH(test_failed, set_up, tear_down)
{
    reads(MS / 10, MS / 25, 0, false);
    assert_int_equal(qm_admission_begin(&a, false), 0);
    assert_int_equal(qm_admission_begin(&a, true), 1);
    assert_int_equal(qm_admission_begin(&a, true), 2);
    for (unsigned i = 0; i < 3; i++)
        qm_admission_end(&a, i > 0, 2, now + 1, 1, 0);
    assert_int_equal(qm_admission_begin(&a, false), 0);
    qm_admission_end(&a, false, 0, now + 1, 1, 0);
    assert_threshold(1.6F * 10 / 25);
}

/* Begins a demand for each of 20 clients, none of which ends in the test. */
static void others_wait(void)
{
    enum { CLIENTS = 20 };

    for (unsigned i = 0; i < CLIENTS; i++)
        qm_admission_begin(&a, false);
}

/* Prefetches that come late save little, so more of them must be used.  The average
 * says nothing of that: a read delays others by 640 us, and saves a tenth of 2 ms. */
TEST_WITH(test_late, set_up, tear_down)
{
    others_wait();
    reads(MS / 10, MS / 25, 0, false);
    for (unsigned i = 0; i < READS; i++)
        qm_admission_used(&a, 1, 1836 * (MS / 1000)); /* of 2040 us */
    now += MS / 10;
    qm_admission_begin(&a, true);
    qm_admission_end(&a, true, 1, now, 2 * MS + MS / 25, 1);
    assert_threshold(0.64F / (0.64F + 0.2F));
    for (unsigned i = 0; i < READS; i++)
        qm_admission_used(&a, 1, 0);
    reads(MS / 10, MS / 25, 0, false);
    assert_threshold(0.64F);
}

/* That prefetches came late is forgotten where none is used any more, perhaps since
 * they are kept back for that. */
TEST_WITH(test_late_is_forgotten, set_up, tear_down)
{
    others_wait();
    reads(MS / 10, MS / 25, 0, false);
    for (unsigned i = 0; i < READS; i++)
        qm_admission_used(&a, 1, 10 * MS);
    reads(MS / 10, MS / 25, 0, false);
    assert_true(qm_admission_threshold(&a) > 0.8F); /* not at once */
    for (unsigned i = 0; i < 40; i++)
        reads(MS / 10, MS / 25, 0, false);
    assert_threshold(0.64F);
}

static void calm(void)
{
    for (unsigned i = 0; i < READS; i++) {
        now += 10 * MS;
        qm_admission_begin(&a, false);
        qm_admission_end(&a, false, 0, now, 2 * MS, 1);
    }
}

/* While a burst lasts, a read more delays all that still come.  Long after it the
 * device is idle and the threshold low; but what was learned of each number of reads on
 * their way is kept, and holds again when there are as many. */
TEST_WITH(test_burst, set_up, tear_down)
{
    enum { FIRST = 40, MORE = 200 };

    calm();
    for (unsigned i = 0; i < FIRST; i++)
        qm_admission_begin(&a, false);
    for (unsigned i = 0; i < FIRST + MORE; i++) {
        unsigned others = i < FIRST ? i : FIRST - 1;

        now += MS / 2;
        qm_admission_end(&a, false, others, now, 2 * MS + others * MS / 2, 1);
        if (i < MORE)
            qm_admission_begin(&a, false);
    }
    calm();
    assert_true(qm_admission_threshold(&a) < 0.3F);
    for (unsigned i = 0; i < FIRST; i++)
        qm_admission_begin(&a, true);
    assert_true(qm_admission_threshold(&a) > 0.9F);
}

/* Begins 100 demands, which keep the device busy, and ends one every two milliseconds.
 * With swing 0, another begins after each end, so 100 stay on their way.  Otherwise two
 * begin after each of `swing` ends, then none after the next `swing` ends, and so on.
 */
static void crowd(unsigned swing)
{
    enum { FIRST = 100 };

    for (unsigned i = 0; i < FIRST; i++)
        qm_admission_begin(&a, false);
    for (unsigned i = 0; i < 3 * READS; i++) {
        unsigned more = swing == 0 ? 1 : i / swing % 2 == 0 ? 2 : 0;

        now += 2 * MS;
        qm_admission_end(&a, false, i * 7 % FIRST, now,
                         2 * MS + i * 7 % FIRST * (MS / 50), 1);
        for (unsigned k = 0; k < more; k++)
            qm_admission_begin(&a, false);
    }
}

/* A read more delays all clients that wait for their reads by 32 us each, together by
 * 3.2 ms.  Some of them may pause meanwhile.  If requests come whether or not those
 * before them have ended, far more wait. */
TEST_WITH(test_clients_that_wait, set_up, tear_down)
{
    crowd(0);
    assert_threshold(3.2F / (3.2F + 2));
    again();
    crowd(15);
    assert_true(qm_admission_threshold(&a) > 0.6F);
    assert_true(qm_admission_threshold(&a) < 0.7F);
    again();
    crowd(40);
    assert_true(qm_admission_threshold(&a) > 0.94F);
}

/* One client delays nobody but itself, however long its prefetches keep the device
 * busy: what is left is how much longer its reads take than alone. */
TEST_WITH(test_one_client, set_up, tear_down)
{
    enum { AHEAD = 100 };

    for (unsigned i = 0; i < AHEAD; i++)
        qm_admission_begin(&a, true);
    for (unsigned i = 0; i < 3 * READS; i++) {
        now += 2 * MS;
        qm_admission_begin(&a, false);
        qm_admission_end(&a, false, i * 7 % AHEAD, now,
                         2 * MS + i * 7 % AHEAD * (MS / 50), 1);
    }
    assert_threshold(0.55F);
}
