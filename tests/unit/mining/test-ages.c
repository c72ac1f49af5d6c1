/* SPDX-License-Identifier: BSD-3-Clause */
/* Ages: how many reads ago a block was read last. */
#include "mining/markov/ages.h"
#include "testing.h"
#include "tests/resident.h"

enum { WORDS = 1 << 12, BYTES = WORDS * 4 };

static void note_others(struct qm_ages *ages, uint64_t *next, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        qm_ages_note(ages, (*next)++);
}

FIXTURE(ages, qm_ages_new(BYTES), qm_ages_free(it))

TEST_ON(test_octaves, ages, struct qm_ages *ages)
{
    static const struct {
        unsigned after, age;
    } cases[] = {{0, 0},  {5, 0},  {10, 1},  {13, 1},
                 {20, 2}, {28, 2}, {600, 7}, {900, 7}};
    uint64_t next = 1000;

    assert_int_equal(qm_ages_find(ages, 5), QM_AGE_UNKNOWN);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qm_ages_note(ages, 5);
        note_others(ages, &next, cases[i].after > 0 ? cases[i].after - 1 : 0);
        assert_int_equal(qm_ages_find(ages, 5), cases[i].age);
    }
}

/* What was read within half as many reads as there are words is known, but for a little
 * whose lines were full; of what was read longer ago, little. */
TEST_ON(test_span, ages, struct qm_ages *ages)
{
    uint64_t next = 0;
    unsigned known = 0, late = 0, wrong = 0;

    note_others(ages, &next, 4 * WORDS);
    for (uint64_t b = next - WORDS / 2; b < next; b++)
        known += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    for (uint64_t b = 0; b < WORDS / 2; b++)
        late += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    for (uint64_t b = next; b < next + WORDS; b++) /* never read */
        wrong += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    assert_true(known > WORDS / 2 * 98 / 100);
    assert_true(late < WORDS / 2 / 10);
    assert_true(wrong < WORDS / 200);
}

/* A block that is read again takes no second word: others stay. */
TEST_ON(test_again, ages, struct qm_ages *ages)
{
    uint64_t next = 0;
    unsigned known = 0;

    note_others(ages, &next, WORDS / 4);
    for (unsigned i = 0; i < 100 * WORDS; i++)
        qm_ages_note(ages, i % 4);
    for (uint64_t b = 0; b < WORDS / 4; b++)
        known += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    assert_true(known > WORDS / 4 * 99 / 100);
    assert_int_equal(qm_ages_find(ages, 3), 0);
    /* However long ago: the last age of those that are known. */
    assert_int_equal(qm_ages_find(ages, 100), QM_AGE_UNKNOWN - 1);
}

TEST_ON(test_size, ages, struct qm_ages *ages)
{
    uint64_t next = 0, most = qm_ages_bytes(ages);
    unsigned known = 0;

    note_others(ages, &next, WORDS);
    qm_ages_set_bytes(ages, BYTES / 4);
    assert_true(qm_ages_bytes(ages) < most / 2);
    for (uint64_t b = 0; b < next; b++)
        known += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    assert_true(known > WORDS / 8 && known < WORDS / 2);
    qm_ages_set_bytes(ages, 2 * BYTES);
    assert_int_equal(qm_ages_bytes(ages), most);
    known = 0;
    for (uint64_t b = 0; b < next; b++)
        known += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    assert_true(known > WORDS / 8 && known < WORDS / 2);
    qm_ages_set_bytes(ages, 0);
    qm_ages_note(ages, 1);
    assert_int_equal(qm_ages_find(ages, 1), 0);
}

/* What was noted in a small table is known when it has grown. */
TEST_ON(test_growth, ages, struct qm_ages *ages)
{
    uint64_t next = 0;
    unsigned known = 0, wrong = 0;

    qm_ages_set_bytes(ages, BYTES / 16);
    note_others(ages, &next, WORDS / 32);
    for (unsigned part = 8; part >= 1; part /= 2)
        qm_ages_set_bytes(ages, BYTES / part);
    for (uint64_t b = 0; b < next; b++)
        known += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    for (uint64_t b = next; b < next + WORDS; b++)
        wrong += qm_ages_find(ages, b) < QM_AGE_UNKNOWN;
    assert_true(known > WORDS / 32 * 98 / 100);
    assert_true(wrong < WORDS / 200);
}

/* Before time goes round, what is that old is forgotten when its line is noted in. */
TEST(test_round)
{
    struct qm_ages *ages = qm_ages_new(0);

    qm_ages_note(ages, 5);
    for (unsigned i = 0; i < (1 << 20) + 10; i++)
        qm_ages_note(ages, 7);
    assert_int_equal(qm_ages_find(ages, 5), QM_AGE_UNKNOWN - 1);
    qm_ages_note(ages, 9);
    assert_int_equal(qm_ages_find(ages, 5), QM_AGE_UNKNOWN);
    assert_int_equal(qm_ages_find(ages, 7), 0);
    qm_ages_free(ages);
}

/* Memory that is reserved is not taken, when it is given back neither. */
TEST(test_memory)
{
    uint64_t before = resident(), next = 0;
    struct qm_ages *ages = qm_ages_new(UINT64_C(128) << 20);

    assert_non_null(ages);
    qm_ages_set_bytes(ages, 1 << 20);
    assert_true(resident() < before + (UINT64_C(48) << 20));
    qm_ages_set_bytes(ages, UINT64_C(128) << 20);
    note_others(ages, &next, 400000);
    assert_true(resident() > before + (UINT64_C(100) << 20));
    qm_ages_set_bytes(ages, 1 << 20);
    assert_true(resident() < before + (UINT64_C(48) << 20));
    qm_ages_free(ages);
}

/* A table of more words than its times can tell apart counts in larger units, and has
 * longer ages. */
TEST(test_large)
{
    struct qm_ages *ages = qm_ages_new(UINT64_C(4) << 24);
    uint64_t next = 1000;

    assert_non_null(ages);
    qm_ages_note(ages, 5);
    note_others(ages, &next, 1 << 12);
    assert_int_equal(qm_ages_find(ages, 5), 0);
    note_others(ages, &next, 1 << 16);
    assert_int_equal(qm_ages_find(ages, 5), 4);
    for (unsigned i = 0; i < 1 << 24; i++)
        qm_ages_note(ages, 7);
    assert_int_equal(qm_ages_find(ages, 5), 12);
    qm_ages_free(ages);
}
