/* SPDX-License-Identifier: BSD-3-Clause */
/* Accuracy: how much of it is asked for, by what the device has to read. */
#include "mining/markov/accuracy.h"
#include "testing.h"

static struct qm_accuracy asked;
static uint64_t device, lru;

static int start(void **state)
{
    qm_accuracy_init(&asked);
    device = lru = 0;
    return 0;
}

/* A thousand reads of LRU's, and `reads` of the device; what is asked for after n such
 * periods. */
static float after(unsigned reads, unsigned n)
{
    float accuracy = 0;

    for (unsigned i = 0; i < n; i++) {
        device += reads;
        lru += 1000;
        accuracy = qm_accuracy_next(&asked, device, lru);
    }
    return accuracy;
}

TEST_WITH(test_due, start, NULL)
{
    unsigned due = 0;

    assert_false(qm_accuracy_due(&asked));
    for (unsigned i = 0; i < 102400; i++) {
        due += qm_accuracy_due(&asked);
    }
    assert_int_equal(due, 100);
}

TEST_WITH(test_rests, start, NULL)
{
    float first = after(1080, 1), last = after(1080, 1000);

    assert_true(first > 0.72f && first < 0.74f);
    assert_true(last > first - 0.01f && last < first + 0.01f);
}

/* Too many reads: accuracy; few: misses.  Within bounds. */
TEST_WITH(test_moves, start, NULL)
{
    float first = after(1080, 1), more = after(1180, 10), most, least;

    assert_true(more > first + 0.03f && more < first + 0.07f);
    most = after(1180, 1000);
    assert_true(most > 0.85f && most < 0.95f);
    assert_true(after(980, 1) < most); /* at once */
    least = after(980, 1000);
    assert_true(least >= 0.65f && least < 0.70f);
    assert_true(after(1180, 1) > least);
}

/* Once is not enough, however bad it is. */
TEST_WITH(test_once, start, NULL)
{
    float first = after(1080, 1), second = after(1000000, 1);

    assert_true(second > first && second < first + 0.02f);
    assert_true(after(0, 2) < first);
    assert_true(after(0, 1) > first - 0.04f);
}

/* Little is read: what there is of it says little. */
TEST_WITH(test_little, start, NULL)
{
    float first = after(1080, 1), accuracy;

    device += 10;
    accuracy = qm_accuracy_next(&asked, device, lru);
    assert_true(accuracy > first && accuracy < first + 0.001f);
    assert_true(qm_accuracy_next(&asked, device, lru) == accuracy);
}

/* Reads that depend on the accuracy come to what is aimed at. */
TEST_WITH(test_settles, start, NULL)
{
    for (unsigned base = 1000; base <= 1200; base += 40) {
        unsigned reads = base;

        start(state);
        for (unsigned i = 0; i < 400; i++) {
            float accuracy = after(reads, 1);

            reads = base - (unsigned)(1000 * (accuracy - 0.66f));
            if (i > 300)
                assert_in_range(reads, base < 1080 ? base - 10 : 1070, 1090);
        }
    }
}
