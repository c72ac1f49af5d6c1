/* SPDX-License-Identifier: BSD-3-Clause */
/* test-changes.c - rows that changed, in virtual time: when which are taken, and which
 * share of them is foreseen to be read. */
#include "testing.h"

#include "rowcache/readahead/changes.h"

static struct qm_numbers numbers;

static struct qm_changes *c;

static int set_up(void **state)
{
    memset(&numbers, 0, sizeof numbers);
    c = qm_changes_new(&numbers);
    return c ? 0 : -1;
}

static int tear_down(void **state)
{
    qm_changes_free(c);
    return 0;
}

static unsigned counted(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < 1 << QM_NUMBERS_BITS; i++)
        n += numbers.count[i].of[QM_NUMBERS_CHANGED];
    return n;
}

/* Rows that wait or are at risk are counted, each as often as it is there. */
TEST_WITH(test_numbers, set_up, tear_down)
{
    int64_t rows[8];

    for (int64_t row = 1; row <= 5; row++)
        qm_changes_note(c, 1000, item(7, row));
    qm_changes_note(c, 1001, item(7, 5)); /* it waits already */
    assert_int_equal(counted(), 5);
    assert_int_equal(qm_changes_take(c, 2000, 7, rows, 3), 3);
    assert_int_equal(counted(), 5);
    qm_changes_note(c, 2001, item(7, 1)); /* at risk no more, and waits */
    qm_changes_read(c, 2002, item(7, 2));
    qm_changes_read(c, 2002, item(7, 4));
    qm_changes_read(c, 2002, item(8, 3)); /* another's */
    assert_int_equal(counted(), 3);
    qm_changes_forget(c, item(7, 5));
    assert_int_equal(counted(), 2);
    qm_changes_clear(c);
    assert_int_equal(counted(), 0);
}

TEST_WITH(test_taken_together, set_up, tear_down)
{
    uint32_t table = 99;
    int64_t rows[8];

    for (int64_t row = 1; row <= 5; row++)
        qm_changes_note(c, 1000 + (uint64_t)row, item(7, row));
    qm_changes_note(c, 1100, item(8, 1));
    qm_changes_note(c, 1960, item(7, 6));
    qm_changes_note(c, 1965, item(7, 1)); /* again: it waits no longer for that */
    qm_changes_read(c, 1970, item(7, 2)); /* it is kept now */
    qm_changes_forget(c, item(7, 3));
    assert_false(qm_changes_due(c, 2000, &table));
    assert_true(qm_changes_due(c, 2001, &table));
    assert_int_equal(table, 7);
    /* The oldest two; then the rest, but not what changed just now. */
    assert_int_equal(qm_changes_take(c, 2001, 7, rows, 2), 2);
    assert_int_equal(rows[0], 1);
    assert_int_equal(rows[1], 4);
    assert_int_equal(qm_changes_take(c, 2001, 7, rows, 8), 1);
    assert_int_equal(rows[0], 5);
    assert_false(qm_changes_due(c, 2001, &table));
    assert_true(qm_changes_due(c, 2100, &table));
    assert_int_equal(table, 8);
    qm_changes_clear(c);
    assert_false(qm_changes_due(c, 5000, &table));
}

/* Many rows of one table wait not so long. */
TEST_WITH(test_batch, set_up, tear_down)
{
    int64_t rows[64];
    uint32_t table;

    qm_changes_note(c, 1000, item(8, 1));
    for (int64_t row = 1; row < QM_CHANGES_BATCH; row++)
        qm_changes_note(c, 1000, item(7, row));
    assert_false(qm_changes_due(c, 1000 + QM_CHANGES_SOON_MS, &table));
    qm_changes_note(c, 1100, item(7, 99));
    assert_false(qm_changes_due(c, 999 + QM_CHANGES_SOON_MS, &table));
    assert_true(qm_changes_due(c, 1000 + QM_CHANGES_SOON_MS, &table));
    assert_int_equal(table, 7);
    /* Those that a client reads or that are taken do not wait. */
    qm_changes_read(c, 1200, item(7, 5));
    assert_false(qm_changes_due(c, 1200, &table));
    qm_changes_note(c, 1200, item(7, 100));
    assert_int_equal(qm_changes_take(c, 1200, 7, rows, 64), QM_CHANGES_BATCH - 1);
    assert_false(qm_changes_due(c, 1200, &table));
    for (int64_t row = 200; row < 200 + QM_CHANGES_BATCH; row++)
        qm_changes_note(c, 1201, item(7, row));
    assert_false(qm_changes_due(c, 1399, &table));
    assert_true(qm_changes_due(c, 1400, &table));
}

static void take_due(uint64_t now)
{
    int64_t rows[256];
    uint32_t due;

    while (qm_changes_due(c, now, &due))
        assert_true(qm_changes_take(c, now, due, rows, 256) > 0);
}

/* 3000 rows of a table change in turns, one each ms.  That percentage of them is read
 * just before.  Returns when it ends. */
static uint64_t go_on(uint64_t now, uint32_t table, unsigned ms, unsigned read_percent)
{
    for (unsigned i = 0; i < ms; i++, now++) {
        if (i * 37 % 100 < read_percent)
            qm_changes_read(c, now, item(table, i % 3000));
        qm_changes_note(c, now, item(table, i % 3000));
        take_due(now);
    }
    return now;
}

TEST_WITH(test_share, set_up, tear_down)
{
    uint64_t now = 1000;

    assert_true(qm_changes_share(c, now, 1) == 0);
    now = go_on(now, 1, 20000, 25);
    assert_true(qm_changes_share(c, now, 1) > .2);
    assert_true(qm_changes_share(c, now, 1) < .3);
    /* One that was not seen is like all. */
    assert_true(qm_changes_share(c, now, 2) > .2);
    assert_true(qm_changes_share(c, now, 2) < .3);
    /* Of one that changes and is never read, less and less. */
    now = go_on(now, 2, 20000, 0);
    assert_true(qm_changes_share(c, now, 2) < .02);
    assert_true(qm_changes_share(c, now, 1) > .2);
}

/* Rows that change once are read for long: few soon, and within the horizon more. */
TEST_WITH(test_horizon, set_up, tear_down)
{
    int64_t rows[256];
    uint64_t now = 1000;
    uint32_t due;
    double share;

    for (int64_t row = 0; row < 250; row++)
        qm_changes_note(c, now, item(1, row));
    now += QM_CHANGES_WAIT_MS;
    assert_true(qm_changes_due(c, now, &due));
    assert_int_equal(qm_changes_take(c, now, 1, rows, 256), 250);
    /* 5 of 250 in 2 s: one percent a second. */
    for (int64_t row = 0; row < 5; row++)
        qm_changes_read(c, now + 2000, item(1, row * 50));
    share = qm_changes_share(c, now + 2000, 1);
    assert_true(share > .3 && share < .45); /* .01 / (.01 + 1/60) */
    /* What is not read any more is forgotten. */
    share = qm_changes_share(c, now + 300000, 1);
    assert_true(share < .02);
}

/* Rows that wait, and those at risk, are bounded; those that are forgotten are at risk
 * no longer. */
TEST_WITH(test_bounds, set_up, tear_down)
{
    int64_t rows[256];
    unsigned taken = 0, n;
    uint64_t now = 1000;
    double share;

    for (int64_t row = 0; row < QM_CHANGES_WAITING + 1000; row++)
        qm_changes_note(c, 0, item(1, row));
    while ((n = qm_changes_take(c, now, 1, rows, 256)) > 0) {
        assert_true(taken > 0 || rows[0] == 1000);
        taken += n;
    }
    assert_int_equal(taken, QM_CHANGES_WAITING);
    for (int64_t row = 0; row < QM_CHANGES_AT_RISK + 20000; row++, now++) {
        qm_changes_note(c, now, item(2, row));
        take_due(now);
    }
    for (int64_t row = 0; row < QM_CHANGES_AT_RISK + 20000; row++)
        qm_changes_read(c, now, item(2, row));
    /* None is at risk now: what is known does not change any more. */
    share = qm_changes_share(c, now, 2);
    assert_true(share > 0);
    assert_true(qm_changes_share(c, now + 20000, 2) > share * .99);
}

/* A queue: of the rows of each second every other one is read two seconds after it was
 * taken, and the rest are gone.  The share does not fade while those pile up.  Another
 * table is only written, slowly: that it has no event says enough. */
TEST_WITH(test_gone, set_up, tear_down)
{
    int64_t next = 0;
    uint64_t now = 1000;

    for (; now < 600000; now += 1000) {
        for (unsigned i = 0; i < 10; i++)
            qm_changes_note(c, now, item(3, next++));
        qm_changes_note(c, now, item(6, next));
        take_due(now);
        for (int64_t row = next > 40 ? next - 40 : 0; row < next - 30; row += 2)
            qm_changes_read(c, now, item(3, row));
    }
    assert_true(qm_changes_share(c, now, 3) > .4); /* 5 / (5 * 62 s) a second */
    assert_true(qm_changes_share(c, now, 6) < .3);
}

/* Beside a table that is only written, the other's own reads decide; a pause of hours
 * changes neither. */
TEST_WITH(test_beside_log, set_up, tear_down)
{
    uint64_t now = 1000;
    int64_t logged = 0, row = 0;

    for (unsigned ms = 0; ms < 120000; ms++, now++) {
        qm_changes_note(c, now, item(4, logged++));
        if (ms % 500 == 0)
            qm_changes_note(c, now, item(3, row++));
        take_due(now);
        if (ms % 500 == 0 && row > 6)
            qm_changes_read(c, now, item(3, row - 6));
    }
    assert_true(qm_changes_share(c, now, 3) > .8);
    assert_true(qm_changes_share(c, now, 4) < .02);
    now += UINT64_C(8) * 3600 * 1000;
    now = go_on(now, 3, 10000, 50);
    assert_true(qm_changes_share(c, now, 3) > .4);
}

/* What is known fades by half each 30 s, however long nothing happens, and whenever it
 * is asked for. */
TEST_WITH(test_pause, set_up, tear_down)
{
    uint64_t now = go_on(1000, 1, 20000, 25);

    assert_true(qm_changes_share(c, now, 1) > .2);
    now += UINT64_C(8) * 3600 * 1000;
    assert_true(qm_changes_share(c, now, 1) == 0); /* too little is known now */
    now = go_on(now, 1, 10000, 50);
    assert_true(qm_changes_share(c, now, 1) > .4);
    qm_changes_clear(c);
    /* Thousands of reads, halved 12 times in 6 minutes, are less than 4. */
    for (unsigned i = 0; i < 8; i++, now += 45000)
        assert_true(qm_changes_share(c, now, 1) > 0 || i > 5);
    assert_true(qm_changes_share(c, now, 1) == 0);
}

/* What could not be read ahead is taken again, a few times, until it changes again. */
TEST_WITH(test_tries, set_up, tear_down)
{
    int64_t rows[8];
    uint64_t now = 1000;
    uint32_t table;

    for (unsigned changes = 0; changes < 2; changes++) {
        qm_changes_note(c, now, item(7, 1));
        for (unsigned i = 0; i < QM_CHANGES_TRIES; i++) {
            assert_false(qm_changes_due(c, now + QM_CHANGES_WAIT_MS - 1, &table));
            now += QM_CHANGES_WAIT_MS;
            assert_true(qm_changes_due(c, now, &table));
            assert_int_equal(qm_changes_take(c, now, 7, rows, 8), 1);
            qm_changes_wait_again(c, now, item(7, 1));
        }
        now += 10 * QM_CHANGES_WAIT_MS;
        assert_false(qm_changes_due(c, now, &table));
        qm_changes_wait_again(c, now, item(7, 2)); /* was not taken */
        assert_false(qm_changes_due(c, now + 5000, &table));
    }
}
