/* SPDX-License-Identifier: BSD-3-Clause */
/* test-miner.c - rows that follow each other on a connection are predicted, whatever
 * others read meanwhile, and all of it is bounded. */
#include "tests/harness.h"

#include "rowcache/readahead/miner.h"

enum { LENGTH = 5 };

/* Rows without order, of two tables. */
static struct qm_item step(int64_t path, int64_t i)
{
    return (struct qm_item){(uint32_t)(i % 2), (path * 7919 + i * 104729) % 100003};
}

static bool predicts(struct qm_miner *m, uint64_t client, struct qm_item read,
                     struct qm_item next)
{
    struct qm_item predicted[QM_MINER_PREDICTED];
    unsigned n = qm_miner_read(m, client, read, QM_MINER_MISS, 0, predicted);
    bool found = false;

    assert_true(n <= QM_MINER_PREDICTED);
    for (unsigned i = 0; i < n; i++)
        found |= predicted[i].table == next.table && predicted[i].row == next.row;
    return found;
}

FIXTURE(miner, qm_miner_new(), qm_miner_free(it))

TEST_ON(test_follows, miner, struct qm_miner *m)
{
    unsigned found = 0;

    assert_non_null(m);
    /* Eight connections, in turns, each along paths that all take. */
    for (int64_t round = 0; round < 40; round++)
        for (int64_t i = 0; i < LENGTH; i++)
            for (uint64_t client = 0; client < 8; client++) {
                int64_t path = (round + (int64_t)client * 5) % 40;
                bool there = predicts(m, client, step(path, i), step(path, i + 1));

                /* Each path but the first was taken before by another. */
                if (round >= 20 && i + 1 < LENGTH)
                    found += there;
            }
    assert_true(found > 20 * 8 * (LENGTH - 1) * 9 / 10);
}

/* A row that has lost its number is predicted no more, nor is the one that has it. */
TEST_ON(test_bounds, miner, struct qm_miner *m)
{
    struct qm_item a = {5, 1}, b = {5, 2}, predicted[QM_MINER_PREDICTED];

    assert_non_null(m);
    for (int i = 0; i < 10; i++) {
        predicts(m, 1, a, b);
        predicts(m, 1, b, a);
    }
    assert_true(predicts(m, 1, a, b));
    for (int64_t i = 0; i < 3 * QM_MINER_ROWS; i++)
        qm_miner_read(m, 2 + (uint64_t)i % (2 * QM_MINER_STREAMS),
                      (struct qm_item){6, i}, QM_MINER_MISS, 0, predicted);
    assert_int_equal(qm_miner_read(m, 1, a, QM_MINER_MISS, 0, predicted), 0);
    assert_int_equal(qm_miner_read(m, 1, a, QM_MINER_HIT, 0, predicted), 0);
    qm_miner_ended(m, b, false);
    qm_miner_ended(m, a, true);
}

/* One spell of rows that do not come again. */
static void learn(struct qm_miner *m, int64_t *row)
{
    struct qm_item predicted[QM_MINER_PREDICTED];

    for (unsigned i = 0; i < QM_MINER_SPELL; i++) {
        assert_false(qm_miner_rests(m));
        qm_miner_read(m, 1, (struct qm_item){1, (*row)++}, QM_MINER_MISS, 0, predicted);
    }
}

static unsigned rest(struct qm_miner *m)
{
    unsigned n = 0;

    while (qm_miner_rests(m))
        n++;
    return n;
}

/* A spell without use leads to a rest, each twice as long; use ends that. */
TEST_ON(test_rests, miner, struct qm_miner *m)
{
    struct qm_item a = {5, 1}, b = {5, 2}, predicted[QM_MINER_PREDICTED];
    unsigned length = QM_MINER_SPELL;
    int64_t row = 0;

    assert_non_null(m);
    for (int i = 0; i < 8; i++) {
        learn(m, &row);
        assert_int_equal(rest(m), length);
        if (length < QM_MINER_REST_MOST)
            length *= 2;
    }
    assert_int_equal(length, QM_MINER_REST_MOST);
    for (unsigned i = 0; i < QM_MINER_WORTH; i++)
        qm_miner_ended(m, a, true);
    learn(m, &row);
    assert_int_equal(rest(m), 0);
    /* Use counts for its spell, and what is not used does not count. */
    for (unsigned i = 0; i < QM_MINER_WORTH; i++)
        qm_miner_ended(m, a, false);
    for (unsigned i = 1; i < QM_MINER_WORTH; i++)
        qm_miner_ended(m, a, true);
    learn(m, &row);
    assert_int_equal(rest(m), QM_MINER_SPELL);
    /* A hit of what was not read ahead is no read of a spell. */
    for (unsigned i = 0; i < QM_MINER_SPELL; i++)
        qm_miner_read(m, 1, a, QM_MINER_HIT, 0, predicted);
    learn(m, &row);
    assert_int_equal(rest(m), 2 * QM_MINER_SPELL);
    /* Rules outlast a rest. */
    for (int i = 0; i < 10; i++) {
        predicts(m, 1, a, b);
        predicts(m, 1, b, a);
    }
    assert_true(predicts(m, 1, a, b));
}

/* The row before a rest and the one behind it do not follow each other. */
TEST_ON(test_rest_ends_streams, miner, struct qm_miner *m)
{
    struct qm_item a = {5, 1}, b = {5, 2};
    int64_t row = 0;

    assert_non_null(m);
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned j = 1; j < QM_MINER_SPELL; j++)
            predicts(m, 1, (struct qm_item){1, row++}, b);
        predicts(m, 1, a, b); /* the last of the spell */
        assert_true(rest(m) > 0);
        predicts(m, 1, b, a);
        for (unsigned j = 1; j < QM_MINER_SPELL; j++)
            predicts(m, 1, (struct qm_item){1, row++}, b);
        assert_true(rest(m) > 0);
    }
    assert_false(predicts(m, 1, a, b));
}
