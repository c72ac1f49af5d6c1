/* SPDX-License-Identifier: BSD-3-Clause */
/* Beginnings: whether rules from one statement to the next pay. */
#include "mining/markov/beginnings.h"
#include "testing.h"

TEST(test_classes)
{
    struct qm_beginnings b;

    qm_beginnings_init(&b);
    assert_true(qm_beginnings_pay(&b, 1)); /* it may try */
    for (unsigned i = 0; i < 100; i++)
        qm_beginnings_count(&b, 1, false);
    assert_false(qm_beginnings_pay(&b, 1));
    assert_true(qm_beginnings_pay(&b, 2)); /* another class */
    /* One in five is enough, one in twenty is not. */
    for (unsigned i = 0; i < 1000; i++)
        qm_beginnings_count(&b, 1, i % 5 == 0);
    assert_true(qm_beginnings_pay(&b, 1));
    for (unsigned i = 0; i < 1000; i++)
        qm_beginnings_count(&b, 1, i % 20 == 0);
    assert_false(qm_beginnings_pay(&b, 1));
}

TEST(test_sample)
{
    unsigned n = 0;

    for (uint64_t block = 0; block < 8000; block++)
        n += qm_beginnings_samples(block);
    assert_in_range(n, 900, 1100);
}
