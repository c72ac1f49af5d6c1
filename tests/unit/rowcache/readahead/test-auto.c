/* SPDX-License-Identifier: BSD-3-Clause */
/* test-auto.c - read-ahead that learns, in virtual time: what each rule asks for, and
 * that a rule that does not pay for a table stops, there and nowhere else. */
#include "testing.h"

#include "rowcache/readahead/auto.h"
#include "rowcache/readahead/changes.h"

enum { LENGTH = 100000, US = 1000 };

static struct qm_auto *ra; /* the test's */
static struct qm_auto_request request;
static unsigned foreign_count;
static int64_t first_row, last_row;

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){
        .first = first_row, .last = last_row, .foreign_count = foreign_count};
    for (unsigned i = 0; i < foreign_count; i++)
        row->foreign[i] = (struct qm_item){100 + i, item.row * 10};
    return item.table != 99;
}

static unsigned used_count, unused_count;

static void ended(void *opaque, struct qm_item item, bool used)
{
    *(used ? &used_count : &unused_count) += item.table == 3;
}

static void begin_of(unsigned rules, bool watches)
{
    static const struct qm_auto_calls calls = {.describe = describe, .ended = ended};
    struct qm_auto_settings settings;

    qm_auto_settings_init(&settings);
    settings.rules = rules;
    settings.watches = watches;
    foreign_count = 0;
    first_row = 1;
    last_row = LENGTH;
    ra = qm_auto_new(&settings, &calls);
    assert_non_null(ra);
}

/* Fetches from the first read on. */
static void begin(unsigned rules)
{
    begin_of(rules, false);
}

static int end(void **state)
{
    qm_auto_free(ra);
    return 0;
}

static enum qm_auto_read miss(uint64_t now, struct qm_item of)
{
    return qm_auto_read(ra, now, of, false, US);
}

/* Carries out all that is asked for; returns how many rows that were. */
static unsigned fetch_all(uint64_t now, double us)
{
    unsigned rows = 0;

    while (qm_auto_next(ra, 0, false, &request)) {
        rows += request.count;
        qm_auto_fetched(ra, now, &request, request.row, request.count, us, 0);
    }
    return rows;
}

static unsigned rows_of(int64_t first, int64_t last)
{
    unsigned n = 0;

    for (unsigned i = 0; i < request.count; i++)
        n += request.row[i] >= first && request.row[i] <= last;
    return n;
}

TEST_WITH(test_spatial, NULL, end)
{
    begin(1 << QM_AUTO_SA);
    assert_int_equal(miss(0, item(1, 1000)), QM_AUTO_MISS);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.table, 1);
    assert_int_equal(request.count, 100);
    assert_int_equal(rows_of(950, 999), 50);
    assert_int_equal(rows_of(1001, 1050), 50);
    assert_false(qm_auto_next(ra, 0, false, &request));
    /* The same again: they are on their way. */
    miss(1, item(1, 1000));
    assert_false(qm_auto_next(ra, 0, false, &request));
}

/* Not beyond the table, nor of one that is not known, nor where numbers end. */
TEST_WITH(test_ends, NULL, end)
{
    begin(1 << QM_AUTO_SA);
    miss(0, item(1, 1));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(rows_of(2, 51), request.count);
    miss(0, item(2, LENGTH - 1));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(rows_of(LENGTH - 51, LENGTH), request.count);
    assert_int_equal(rows_of(LENGTH, LENGTH), 1);
    miss(0, item(99, 500));
    miss(0, item(1, LENGTH + 1));
    miss(0, item(1, -5));
    assert_false(qm_auto_next(ra, 0, false, &request));
    first_row = INT64_MIN;
    last_row = -2;
    miss(0, item(3, INT64_MAX));
    assert_false(qm_auto_next(ra, 0, false, &request));
    first_row = INT64_MAX - 2;
    last_row = INT64_MAX;
    miss(0, item(4, INT64_MAX));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.count, 2);
}

TEST_WITH(test_foreign, NULL, end)
{
    begin(1 << QM_AUTO_FA);
    foreign_count = QM_SEER_FOREIGN;
    miss(0, item(1, 7));
    for (unsigned i = 0; i < QM_AUTO_FOREIGN; i++) {
        assert_true(qm_auto_next(ra, 0, false, &request));
        assert_int_equal(request.table, 100 + i);
        assert_int_equal(request.count, 10);
        assert_int_equal(request.row[0], 70);
    }
    assert_false(qm_auto_next(ra, 0, false, &request));
}

TEST_WITH(test_temporal, NULL, end)
{
    begin(1 << QM_AUTO_TA);
    qm_auto_modified(ra, 1000, item(2, 5));
    qm_auto_modified(ra, 3500, item(2, 6));
    miss(5000, item(1, 1));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.table, 2);
    assert_int_equal(request.count, 1); /* the other changed longer than T ago */
    assert_int_equal(request.row[0], 6);
    assert_false(qm_auto_next(ra, 0, false, &request));
}

/* Rows of a few tables change, and one in four of them is read some seconds later,
 * longer than a trial would wait for; of another table none is.  The first are read
 * ahead, many by one request; the others are not, once that is known. */
TEST_WITH(test_together, NULL, end)
{
    unsigned requests = 0, rows = 0, of_unread = 0, hits = 0, reads = 0;
    uint64_t now = 100000;

    begin(1 << QM_AUTO_TA);
    for (int64_t row = 1; row <= 12000; row++, now += 5) {
        qm_auto_modified(ra, now, item(1 + row % 2, row));
        qm_auto_modified(ra, now, item(3, row));
        /* Changed 8 s ago.  A miss takes a few of what changed last: they are not there
         * for the arm that asks at once, which would find nothing else. */
        if (row > 1600 && row % 4 == 0) {
            struct qm_item of = item(1 + row % 2, row - 1600);

            reads++;
            if (qm_auto_read(ra, now, of, true, 0) == QM_AUTO_AHEAD)
                hits++;
            else
                miss(now, of);
        }
        while (qm_auto_next(ra, 0, false, &request)) {
            if (request.count > 8) {
                requests++;
                rows += request.count;
            }
            if (request.table == 3 && now > 130000)
                of_unread += request.count > 8 ? request.count : 0;
            qm_auto_fetched(ra, now, &request, request.row, request.count,
                            500 + 20 * request.count, 0);
        }
        qm_auto_tick(ra, now);
    }
    assert_true(hits > reads / 2);
    assert_true(rows / requests >= 16);
    assert_true(of_unread < 20);
    qm_auto_set_rules(ra, 0);
    qm_auto_modified(ra, now + 5000, item(1, 1));
    qm_auto_tick(ra, now + 9000);
    assert_false(qm_auto_next(ra, 0, false, &request));
}

/* A table's rows are read 8 s after they changed, so it seems to pay to read them
 * ahead. But that brings none of them, and takes as long as it would. */
TEST_WITH(test_together_finds_none, NULL, end)
{
    unsigned asked = 0;
    uint64_t now = 100000;

    begin(1 << QM_AUTO_TA);
    for (int64_t row = 1; row <= 12000; row++, now += 5) {
        qm_auto_modified(ra, now, item(1, row));
        if (row > 1600 && row % 4 == 0)
            miss(now, item(1, row - 1600));
        while (qm_auto_next(ra, 0, false, &request)) {
            asked += request.count > 8 ? request.count : 0;
            qm_auto_fetched(ra, now, &request, request.row,
                            request.count > 8 ? 0 : request.count, 100 * US, 0);
        }
        qm_auto_tick(ra, now);
    }
    assert_true(asked > 0 && asked < 2000);
}

/* Until it is known that a table's rows are worth reading together.  Returns when. */
static uint64_t learn(void)
{
    uint64_t now = 100000;

    begin(1 << QM_AUTO_TA);
    for (int64_t row = 1; row <= 12000; row++, now += 5) {
        qm_auto_modified(ra, now, item(1, row));
        if (row > 1600 && row % 4 == 0)
            miss(now, item(1, row - 1600));
        fetch_all(now, 600);
        qm_auto_tick(ra, now);
    }
    now += 20000;
    qm_auto_tick(ra, now);
    fetch_all(now, 600);
    return now;
}

/* Of the rows that the next requests are for: how many are from first to last. */
static unsigned asked_for(uint64_t now, int64_t first, int64_t last)
{
    unsigned n = 0;

    qm_auto_tick(ra, now);
    while (qm_auto_next(ra, 0, false, &request))
        n += rows_of(first, last);
    return n;
}

/* A row that another arm has asked for is not asked for again; one that the pool had no
 * time for is. */
TEST_WITH(test_together_once, NULL, end)
{
    uint64_t now = learn();

    for (int64_t row = 20001; row <= 20020; row++)
        qm_auto_modified(ra, now, item(1, row));
    assert_int_equal(asked_for(now + 300, 20001, 20020), 20);
    qm_auto_fetched(ra, now + 300, &request, NULL, 0, 0, 0);
    assert_int_equal(asked_for(now + 700, 20001, 20020), 20);
    qm_auto_fetched(ra, now + 700, &request, request.row, request.count, 600, 0);

    now += 2000;
    for (int64_t row = 30001; row <= 30020; row++)
        qm_auto_modified(ra, now, item(1, row));
    qm_auto_set_rules(ra, 1 << QM_AUTO_TA | 1 << QM_AUTO_SA);
    miss(now + 100, item(1, 30000));
    assert_int_equal(asked_for(now + 100, 30001, 30004), 4);
    assert_int_equal(asked_for(now + 300, 30001, 30004), 0);
}

/* Rows that waited, and are not to be read any more, are as if they had been answered.
 */
TEST_WITH(test_together_removed, NULL, end)
{
    struct qm_auto_stats stats;
    uint64_t now = learn();

    for (int64_t row = 20001; row <= 20020; row++)
        qm_auto_modified(ra, now, item(1, row));
    qm_auto_tick(ra, now + 300);
    qm_auto_dropped_all(ra);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.dropped, 20);
    for (int64_t row = 30001; row <= 30020; row++)
        qm_auto_modified(ra, now + 400, item(1, row));
    assert_int_equal(asked_for(now + 700, 30001, 30020), 20);
}

/* Rows whose SELECT fails, or for which the pool never has time, are asked for a few
 * times, and no more. */
TEST_WITH(test_together_fails, NULL, end)
{
    uint64_t now = learn();
    unsigned asked = 0;

    for (int64_t row = 20001; row <= 20020; row++)
        qm_auto_modified(ra, now, item(1, row));
    for (unsigned i = 0; i < 100; i++) {
        unsigned n = asked_for(now += 300, 20001, 20020);

        asked += n;
        if (n > 0)
            qm_auto_fetched(ra, now, &request, NULL, 0, 0, 0);
    }
    assert_int_equal(asked, 20 * QM_CHANGES_TRIES);
}

/* While there is no place for a request, what is due waits, and is asked for then. */
TEST_WITH(test_together_waits, NULL, end)
{
    uint64_t now = learn();
    struct qm_auto_stats stats;

    qm_auto_set_rules(ra, 1 << QM_AUTO_TA | 1 << QM_AUTO_SA);
    last_row = 1004; /* few rows of each */
    first_row = 1000;
    for (uint32_t table = 50; table < 50 + QM_AUTO_QUEUE; table++)
        miss(now, item(table, 1000));
    for (int64_t row = 20001; row <= 20020; row++)
        qm_auto_modified(ra, now, item(1, row));
    qm_auto_tick(ra, now + 300);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.dropped, 0);
    while (qm_auto_next(ra, 0, false, &request))
        assert_int_not_equal(request.table, 1);
    assert_int_equal(asked_for(now + 300, 20001, 20020), 20);
}

/* Rows that pay while processors are idle are not asked for while they are scarce. */
TEST_WITH(test_processors, NULL, end)
{
    begin(1 << QM_AUTO_SA);
    for (int64_t row = 500; row < 1000; row += 100) { /* 4 of 100 are used */
        miss(0, item(1, row));
        fetch_all(0, 1000);
        for (int64_t of = row + 1; of <= row + 4; of++)
            qm_auto_read(ra, 1, item(1, of), true, 0);
        fetch_all(1, 1000);
        qm_auto_tick(ra, 6000);
    }
    miss(6000, item(1, 2000));
    assert_true(fetch_all(6000, 1000) > 0);
    qm_auto_processors(ra, 1);
    assert_true(qm_rule_yield_price(qm_auto_yield(ra)) > 3);
}

TEST_WITH(test_predicted, NULL, end)
{
    begin(1 << QM_AUTO_MINED);
    qm_auto_predicted(ra, 0, item(3, 9));
    qm_auto_predicted(ra, 0, item(3, 12));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.count, 2);
    qm_auto_fetched(ra, 0, &request, request.row, 2, 100, 0);
    assert_int_equal(qm_auto_read(ra, 1, item(3, 12), true, 0), QM_AUTO_AHEAD);
    qm_auto_tick(ra, 20000);
    assert_int_equal(used_count, 1);
    assert_int_equal(unused_count, 1);
    qm_auto_set_rules(ra, 0);
    qm_auto_predicted(ra, 0, item(3, 13));
    assert_false(qm_auto_next(ra, 0, false, &request));
}

/* A scan of one table: what lies behind is used, what lies before is not; of another
 * table nothing is used. */
TEST_WITH(test_learns, NULL, end)
{
    unsigned seed = 1, ahead = 0, at_random = 0;
    uint64_t now = 0;

    begin(1 << QM_AUTO_SA);
    for (int64_t row = 1; row <= 4000; row++, now += 10) {
        bool kept = false;

        /* Until it is known: a read is a hit if it was read ahead. */
        if (qm_auto_read(ra, now, item(1, row), true, 0) == QM_AUTO_AHEAD)
            ahead++, kept = true;
        if (!kept)
            miss(now, item(1, row));
        fetch_all(now, 100);
        seed = seed * 1103515245 + 12345;
        miss(now, item(2, 1 + seed % LENGTH));
        at_random = fetch_all(now, 5000); /* each of them on a page of its own */
        qm_auto_tick(ra, now);
    }
    assert_true(ahead > 3000);
    assert_int_equal(at_random, 0);
    /* The scan goes on: what is behind only. */
    assert_int_equal(qm_auto_read(ra, now, item(1, 4001), true, 0), QM_AUTO_AHEAD);
    for (unsigned i = 0; qm_auto_next(ra, 0, false, &request); i++)
        assert_int_equal(rows_of(4002, 4051), request.count);
}

TEST_WITH(test_outcomes, NULL, end)
{
    const struct qm_rule_yield_arm *arm;
    struct qm_auto_stats stats;

    begin(1 << QM_AUTO_SA);
    miss(0, item(1, 1000));
    assert_int_equal(fetch_all(0, 100), 100);
    for (int64_t row = 950; row <= 1050; row++)
        assert_int_equal(qm_auto_may_be_ahead(ra, row), row != 1000);
    assert_int_equal(qm_auto_read(ra, 1, item(1, 1001), true, 0), QM_AUTO_AHEAD);
    assert_false(qm_auto_may_be_ahead(ra, 1001));
    assert_int_equal(qm_auto_read(ra, 1, item(1, 1001), true, 0), QM_AUTO_HIT);
    assert_int_equal(fetch_all(1, 100), 0); /* one row is too few */
    qm_auto_modified(ra, 2, item(1, 1002)); /* wasted */
    miss(3, item(1, 1003));                 /* it has left */
    qm_auto_tick(ra, 20000);                /* all are judged */
    assert_int_equal(qm_auto_read(ra, 20001, item(1, 1004), true, 0),
                     QM_AUTO_AHEAD); /* late */
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.used[QM_AUTO_SA], 2);
    assert_int_equal(stats.wasted[QM_AUTO_SA], 2);
    qm_auto_emptied(ra, 20002, 1);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.used[QM_AUTO_SA] + stats.wasted[QM_AUTO_SA],
                     stats.fetched[QM_AUTO_SA]);
    assert_true(stats.us[QM_AUTO_SA] > 99 && stats.us[QM_AUTO_SA] < 101);
    for (int64_t row = 900; row < 1100; row++)
        assert_false(qm_auto_may_be_ahead(ra, row));
    for (unsigned i = 1; (arm = qm_rule_yield_get(qm_auto_yield(ra), i)); i++)
        assert_true(arm->fresh == 0 && arm->since == 0);
}

/* What an operator drops is not out any more, may be asked for anew, and is not held
 * against its rule. */
TEST_WITH(test_dropped, NULL, end)
{
    const struct qm_rule_yield_arm *arm;
    struct qm_auto_stats stats;

    begin(1 << QM_AUTO_SA);
    miss(0, item(1, 1000));
    assert_int_equal(fetch_all(0, 100), 100);
    qm_auto_dropped(ra, item(1, 1001));
    qm_auto_dropped(ra, item(1, 2000)); /* was not read ahead */
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.wasted[QM_AUTO_SA], 1);
    assert_int_equal(qm_auto_read(ra, 1, item(1, 1001), true, 0), QM_AUTO_HIT);
    miss(1, item(1, 1000));
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.count, 1);
    assert_int_equal(request.row[0], 1001);
    qm_auto_fetched(ra, 1, &request, NULL, 0, 0, 0);
    qm_auto_tick(ra, 20000); /* 99 are judged, and dropped then */
    qm_auto_dropped_all(ra);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.wasted[QM_AUTO_SA], 100);
    for (unsigned i = 1; (arm = qm_rule_yield_get(qm_auto_yield(ra), i)); i++)
        assert_true(arm->out == 0 && arm->fresh == 0 && arm->since == 0);
}

/* Nothing is fetched until reads of rows that would have been have missed them. */
TEST_WITH(test_watches, NULL, end)
{
    const struct qm_rule_yield_arm *arm;
    unsigned watched = 0;

    begin_of(1 << QM_AUTO_SA, true);
    miss(1000, item(1, 1000));
    assert_int_equal(fetch_all(1000, 100), 0);
    for (unsigned i = 1; (arm = qm_rule_yield_get(qm_auto_yield(ra), i)); i++)
        watched += arm->watched;
    assert_int_equal(watched, 100);
    assert_true(qm_auto_may_be_ahead(ra, 1001));
    /* Rows that are kept, that are read before they could have come, that change late
     * or that are dropped, say nothing for their arms. */
    assert_int_equal(qm_auto_read(ra, 1500, item(1, 1001), true, 0), QM_AUTO_HIT);
    assert_false(qm_auto_may_be_ahead(ra, 1001));
    miss(1000, item(1, 1002));
    qm_auto_dropped(ra, item(1, 1003));
    arm = qm_rule_yield_get(qm_auto_yield(ra), 1);
    assert_true(arm->judged == 0 && arm->used == 0);
    qm_auto_modified(ra, 1500, item(1, 1004));
    assert_true(arm->judged == 1 && arm->used == 0);
    /* A scan: what is behind is fetched, and of what is before, nothing. */
    for (int64_t row = 2000; row < 2400; row++) {
        miss(3000 + 2 * (uint64_t)row, item(1, row));
        fetch_all(3000 + 2 * (uint64_t)row, 10);
        qm_auto_tick(ra, 3000 + 2 * (uint64_t)row);
    }
    arm = qm_rule_yield_get(qm_auto_yield(ra), 3); /* 17 to 50 behind: it is first */
    assert_int_equal(arm->state, QM_RULE_YIELD_ON);
    for (unsigned i = 4; (arm = qm_rule_yield_get(qm_auto_yield(ra), i)); i++)
        assert_true(arm->state != QM_RULE_YIELD_ON && arm->out == 0);
}

/* A row that was watched is judged once, in its time; a read that comes late counts. */
TEST_WITH(test_watches_judged, NULL, end)
{
    const struct qm_rule_yield_arm *arm;

    begin_of(1 << QM_AUTO_SA, true);
    last_row = 1004;
    miss(1000, item(1, 1000));
    arm = qm_rule_yield_get(qm_auto_yield(ra), 1);
    assert_int_equal(arm->watched, 4);
    qm_auto_tick(ra, 5999);
    assert_int_equal(arm->watched, 4);
    qm_auto_tick(ra, 6000);
    assert_true(arm->watched == 0 && arm->judged == 4 && arm->used == 0);
    qm_auto_read(ra, 20000, item(1, 1003), true, 0);
    assert_true(arm->used == 0);
    miss(20000, item(1, 1001));
    assert_true(arm->judged == 4 && arm->used == 1);
    /* All are forgotten, and not held against the arm. */
    miss(40000, item(1, 1000));
    assert_true(arm->watched > 0);
    qm_auto_forget(ra);
    assert_true(arm->watched == 0 && arm->watched_ms == 0 && arm->judged == 4);
    for (int64_t row = 900; row < 1100; row++)
        assert_false(qm_auto_may_be_ahead(ra, row));
    miss(60000, item(1, 1000));
    assert_true(arm->watched > 0);
    qm_auto_dropped_all(ra);
    assert_true(arm->watched == 0 && arm->judged == 4);
}

/* Who predicted a row learns how it ended, though it was not fetched. */
TEST_WITH(test_watches_predicted, NULL, end)
{
    begin_of(1 << QM_AUTO_MINED, true);
    used_count = unused_count = 0;
    miss(500, item(3, 1)); /* it is known how long a read takes */
    for (int64_t row = 9; row < 12; row++)
        qm_auto_predicted(ra, 1000, item(3, row));
    assert_int_equal(fetch_all(1000, 100), 0);
    qm_auto_read(ra, 1000, item(3, 9), false, US);
    qm_auto_read(ra, 1001, item(3, 10), false, US);
    assert_true(used_count == 1 && unused_count == 0);
    qm_auto_tick(ra, 6000);
    assert_true(used_count == 1 && unused_count == 1);
}

/* Requests wait in a bounded queue; what it has no place for, and what is not asked
 * from the database, does not count as out. */
TEST_WITH(test_bounds, NULL, end)
{
    struct qm_auto_stats stats;
    unsigned requests = 0;

    begin((1 << QM_AUTO_RULES) - 1);
    first_row = 1000; /* few rows of each: many requests */
    last_row = 1004;
    for (uint32_t table = 0; table < 60; table++)
        miss(0, item(table, 1000));
    qm_auto_get_stats(ra, &stats);
    assert_true(stats.dropped > 0);
    while (qm_auto_next(ra, 0, false, &request)) {
        requests++;
        assert_true(request.count <= QM_AUTO_ROWS);
        qm_auto_fetched(ra, 0, &request, NULL, 0, 0, 0);
    }
    assert_int_equal(requests, QM_AUTO_QUEUE);
    for (unsigned i = 1; i <= 6; i++)
        assert_int_equal(qm_rule_yield_get(qm_auto_yield(ra), i)->out, 0);
    qm_auto_forget(ra);
}
