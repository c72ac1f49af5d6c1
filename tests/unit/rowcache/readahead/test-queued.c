/* SPDX-License-Identifier: BSD-3-Clause */
/* test-queued.c - rows that auto has asked for, and that wait to be read: they are
 * asked for once, and not at all when that is of no use any more. */
#include "rowcache/readahead/auto.h"
#include "testing.h"

static struct qm_auto *ra;
static struct qm_auto_request request;

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){.first = 1, .last = 100000, .foreign_count = 1};
    row->foreign[0] = (struct qm_item){item.table + 100, item.row};
    return true;
}

static void miss(uint64_t now, uint32_t table, int64_t row)
{
    assert_int_equal(qm_auto_read(ra, now, item(table, row), false, 1000),
                     QM_AUTO_MISS);
}

/* Of SA a hundred rows, of FA ten. */
static void begin(unsigned rules)
{
    static const struct qm_auto_calls calls = {.describe = describe};
    struct qm_auto_settings settings;

    qm_auto_settings_init(&settings);
    settings.rules = rules;
    settings.watches = false;
    ra = qm_auto_new(&settings, &calls);
    assert_non_null(ra);
}

static unsigned count_of(int64_t row)
{
    unsigned n = 0;

    for (unsigned i = 0; i < request.count; i++)
        n += request.row[i] == row;
    return n;
}

/* One that is changed, or leaves the cache, while it waits is not asked for twice, and
 * nothing of it is wasted. */
TEST(test_once)
{
    struct qm_auto_stats stats;

    begin(1 << QM_AUTO_SA);
    miss(0, 1, 1000);
    qm_auto_modified(ra, 1, item(1, 1004));
    qm_auto_dropped(ra, item(1, 1005));
    miss(2, 1, 1003);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(count_of(1004), 1);
    assert_int_equal(count_of(1005), 1);
    qm_auto_fetched(ra, 3, &request, request.row, request.count, 100, 0);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.wasted[QM_AUTO_SA], 0);
    assert_int_equal(stats.fetched[QM_AUTO_SA], request.count);
    /* What does not wait is asked for again at once. */
    qm_auto_modified(ra, 4, item(1, 1004));
    miss(5, 1, 1003);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(count_of(1004), 1);
    assert_int_equal(request.count, 1);
    qm_auto_free(ra);
}

static unsigned out_of(uint32_t table, unsigned rule)
{
    const struct qm_rule_yield *yield = qm_auto_yield(ra);
    const struct qm_rule_yield_arm *arm;
    unsigned out = 0;

    for (unsigned i = 1; (arm = qm_rule_yield_get(yield, i)); i++)
        out += arm->table == table && arm->rule == rule ? arm->out : 0;
    return out;
}

/* A database that was not asked: all may be asked for anew. */
TEST(test_not_asked)
{
    begin(1 << QM_AUTO_SA);
    miss(0, 1, 1000);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(out_of(1, QM_AUTO_SA), 100);
    qm_auto_not_asked(ra, 1, &request);
    assert_int_equal(out_of(1, QM_AUTO_SA), 0);
    miss(2, 1, 1000);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.count, 100);
    /* But not when it failed. */
    qm_auto_fetched(ra, 3, &request, NULL, 0, 0, 0);
    miss(4, 1, 1000);
    assert_false(qm_auto_next(ra, 0, false, &request));
    qm_auto_free(ra);
}

/* A table that has gone, or whose number is another's. */
TEST(test_table)
{
    for (unsigned i = 0; i < 2; i++) {
        begin(1 << QM_AUTO_SA);
        miss(0, 1, 1000);
        miss(0, 2, 1000);
        if (i == 0)
            qm_auto_emptied(ra, 1, 1);
        else
            qm_auto_forget_table(ra, 1);
        assert_int_equal(out_of(1, QM_AUTO_SA), 0);
        assert_true(qm_auto_next(ra, 0, false, &request));
        assert_int_equal(request.table, 2);
        assert_int_equal(request.count, 100);
        assert_false(qm_auto_next(ra, 0, false, &request));
        qm_auto_free(ra);
    }
}

TEST(test_rules)
{
    struct qm_auto_stats stats;

    begin(1 << QM_AUTO_SA | 1 << QM_AUTO_FA);
    miss(0, 1, 1000);
    qm_auto_set_rules(ra, 1 << QM_AUTO_FA);
    qm_auto_get_stats(ra, &stats);
    assert_int_equal(stats.dropped, 100);
    assert_int_equal(out_of(1, QM_AUTO_SA), 0);
    assert_int_equal(out_of(1, QM_AUTO_FA), 10);
    assert_true(qm_auto_next(ra, 0, false, &request));
    assert_int_equal(request.table, 101);
    assert_int_equal(request.count, 10);
    assert_false(qm_auto_next(ra, 0, false, &request));
    qm_auto_free(ra);
}

/* When the log was lost, and when another preset is chosen. */
TEST(test_all)
{
    for (unsigned i = 0; i < 2; i++) {
        begin(1 << QM_AUTO_SA | 1 << QM_AUTO_FA);
        miss(0, 1, 1000);
        if (i == 0)
            qm_auto_dropped_all(ra);
        else
            qm_auto_forget(ra);
        assert_int_equal(out_of(1, QM_AUTO_SA) + out_of(1, QM_AUTO_FA), 0);
        assert_false(qm_auto_next(ra, 0, false, &request));
        miss(1, 1, 1000);
        assert_true(qm_auto_next(ra, 0, false, &request));
        qm_auto_free(ra);
    }
}
