/* SPDX-License-Identifier: BSD-3-Clause */
/* test-seer.c - each rule of SEER-MCache, as the paper's text and Table II say it. */
#include <stdio.h>

#include "tests/harness.h"

#include "rowcache/readahead/cpu.h"
#include "rowcache/readahead/seer.h"

#define LENGTH 1000

static unsigned foreign_count;
static int64_t first_row = 1, last_row = LENGTH, foreign_row = 7;
static const struct qm_seer_load light = {.1, .9, .1};

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){
        .first = first_row, .last = last_row, .foreign_count = foreign_count};
    for (unsigned i = 0; i < foreign_count; i++)
        row->foreign[i] = (struct qm_item){100 + i, foreign_row};
    return item.table != 99;
}

static struct qm_seer *seer_with(unsigned rules, bool proactive)
{
    static const struct qm_seer_calls calls = {.describe = describe};
    struct qm_seer_settings settings;
    struct qm_seer *seer;

    qm_seer_settings_init(&settings);
    settings.rules = rules;
    settings.proactive = proactive;
    foreign_count = 0;
    seer = qm_seer_new(&settings, &calls);
    assert_non_null(seer);
    return seer;
}

static unsigned take_all(struct qm_seer *seer)
{
    static struct qm_seer_request request;
    unsigned rows = 0;

    while (qm_seer_next(seer, &request))
        rows += request.count;
    return rows;
}

/* Table II. */
TEST(test_settings)
{
    struct qm_seer_settings s;

    qm_seer_settings_init(&s);
    assert_int_equal(s.n, 50);
    assert_int_equal(s.t_ms, 3000);
    assert_int_equal(s.x, 5);
    assert_int_equal(s.y, 10);
    assert_int_equal(s.w_ms, 500);
    assert_int_equal(s.th_ms, 180000);
    assert_true(s.cpu == .5 && s.disk_idle == .5 && s.net == .75);
    assert_int_equal(s.rules, QM_SEER_SA | QM_SEER_TA | QM_SEER_FA);
}

/* Rows i-N to i+N, not before the first and not after the last. */
TEST(test_spatial)
{
    static const struct {
        int64_t row, from, to;
    } tries[] = {
        {500, 450, 550}, {1, 1, 51}, {30, 1, 80}, {1000, 950, 1000}, {980, 930, 1000}};
    struct qm_seer_request request;

    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct qm_seer *seer = seer_with(QM_SEER_SA, false);
        int64_t at = tries[i].from;

        qm_seer_read(seer, 0, (struct qm_item){1, tries[i].row}, false);
        assert_true(qm_seer_next(seer, &request));
        assert_int_equal(request.rule, QM_SEER_SA);
        assert_int_equal(request.table, 1);
        for (unsigned j = 0; j < request.count; j++, at++) {
            at += at == tries[i].row;
            assert_int_equal(request.row[j], at);
        }
        assert_int_equal(at - 1 + (tries[i].to == tries[i].row), tries[i].to);
        assert_false(qm_seer_next(seer, &request));
        qm_seer_free(seer);
    }
}

/* Where the numbers end, and where a table has more of them than a number can say. */
TEST(test_ends)
{
    static const struct {
        int64_t row, from, to;
    } tries[] = {{INT64_MIN, INT64_MIN, INT64_MIN + 50},
                 {INT64_MAX, INT64_MAX - 50, INT64_MAX},
                 {INT64_MAX - 1, INT64_MAX - 51, INT64_MAX},
                 {0, -50, 50}};
    struct qm_seer_request request;

    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct qm_seer *seer = seer_with(QM_SEER_SA | QM_SEER_FA, false);
        uint64_t rows = (uint64_t)tries[i].to - (uint64_t)tries[i].from;

        first_row = INT64_MIN;
        last_row = foreign_row = INT64_MAX;
        foreign_count = 5;
        qm_seer_read(seer, 0, (struct qm_item){1, tries[i].row}, false);
        assert_true(qm_seer_next(seer, &request));
        assert_int_equal(request.count, rows);
        for (unsigned j = 0; j < request.count; j++)
            assert_true(request.row[j] >= tries[i].from &&
                        request.row[j] <= tries[i].to);
        while (qm_seer_next(seer, &request)) {
            assert_int_equal(request.count, 1);
            assert_true(request.row[0] == INT64_MAX);
        }
        qm_seer_free(seer);
    }
    first_row = 1;
    last_row = LENGTH;
    foreign_row = 7;
}

/* What changed between t-T and t, across all tables. */
TEST(test_temporal)
{
    struct qm_seer *seer = seer_with(QM_SEER_TA, false);
    struct qm_seer_request request;

    qm_seer_modified(seer, 999, (struct qm_item){1, 5});
    qm_seer_modified(seer, 1000, (struct qm_item){1, 6});
    qm_seer_modified(seer, 2000, (struct qm_item){2, 7});
    qm_seer_modified(seer, 2500, (struct qm_item){2, 8});
    qm_seer_modified(seer, 3000, (struct qm_item){2, 7}); /* once only */
    qm_seer_read(seer, 4000, (struct qm_item){3, 1}, false);
    assert_true(qm_seer_next(seer, &request));
    assert_int_equal(request.rule, QM_SEER_TA);
    assert_int_equal(request.table, 1);
    assert_int_equal(request.count, 1);
    assert_int_equal(request.row[0], 6);
    assert_true(qm_seer_next(seer, &request));
    assert_int_equal(request.table, 2);
    assert_int_equal(request.count, 2);
    assert_int_equal(request.row[0] + request.row[1], 15);
    assert_false(qm_seer_next(seer, &request));
    qm_seer_free(seer);
}

/* 0 to X tables, 0 to Y rows of each, and all of these numbers come. */
TEST(test_foreign)
{
    struct qm_seer *seer = seer_with(QM_SEER_FA, false);
    bool tables_were[6] = {false}, rows_were[11] = {false};
    struct qm_seer_request request;

    foreign_count = 8;
    for (unsigned i = 0; i < 2000; i++) {
        unsigned tables = 0;

        qm_seer_read(seer, 1000 * i, (struct qm_item){1, 5}, false);
        for (; qm_seer_next(seer, &request); tables++) {
            assert_int_equal(request.rule, QM_SEER_FA);
            assert_in_range(request.table, 100, 107);
            assert_in_range(request.count, 1, 10);
            assert_int_equal(request.row[0], 7);
            rows_were[request.count] = true;
        }
        assert_in_range(tables, 0, 5);
        tables_were[tables] = true;
    }
    for (unsigned i = 0; i <= 5; i++)
        assert_true(tables_were[i]);
    for (unsigned i = 1; i <= 10; i++)
        assert_true(rows_were[i]);
    qm_seer_free(seer);
}

/* Only after W has passed is a new passive read-ahead started; a hit starts none. */
TEST(test_window)
{
    struct qm_seer *seer = seer_with(QM_SEER_SA, false);
    struct qm_item item = {1, 500};
    struct qm_seer_stats stats;

    qm_seer_read(seer, 0, item, true);
    assert_int_equal(take_all(seer), 0);
    qm_seer_read(seer, 0, item, false);
    assert_int_equal(take_all(seer), 100);
    qm_seer_read(seer, 499, item, false);
    assert_int_equal(take_all(seer), 0);
    qm_seer_read(seer, 500, item, false);
    assert_int_equal(take_all(seer), 100);
    qm_seer_get_stats(seer, &stats);
    assert_int_equal(stats.passive, 2);
    assert_int_equal(stats.in_window, 1);
    qm_seer_free(seer);
}

/* "Empty rule means the passive read-ahead is disabled"; rules change while it runs. */
TEST(test_rules)
{
    struct qm_seer *seer = seer_with(0, false);

    qm_seer_read(seer, 0, (struct qm_item){1, 500}, false);
    assert_int_equal(take_all(seer), 0);
    qm_seer_set_rules(seer, QM_SEER_SA, false);
    qm_seer_read(seer, 1, (struct qm_item){1, 500}, false);
    assert_int_equal(take_all(seer), 100);
    qm_seer_read(seer, 1000, (struct qm_item){99, 500},
                 false); /* nothing is known of it */
    assert_int_equal(take_all(seer), 0);
    qm_seer_free(seer);
}

/* Mes-Queue is taken from the top down, Pre-Cache has each row once, a read claims from
 * it, and the rest is pushed. */
TEST(test_precache)
{
    struct qm_seer *seer = seer_with(QM_SEER_SA, false);
    struct qm_seer_request request;
    struct qm_seer_stats stats;
    struct qm_item item;

    qm_seer_read(seer, 0, (struct qm_item){1, 1}, false);
    assert_true(qm_seer_next(seer, &request));
    qm_seer_fetched(seer, &request, request.row, request.count);
    qm_seer_fetched(seer, &request, request.row, 1);
    assert_true(qm_seer_read(seer, 1, (struct qm_item){1, 3}, false));
    assert_false(qm_seer_read(seer, 1, (struct qm_item){1, 3}, false));
    qm_seer_modified(seer, 2, (struct qm_item){1, 4});
    assert_true(qm_seer_push(seer, &item));
    assert_int_equal(item.row, 5); /* 2 was substituted, 3 claimed, 4 changed */
    for (unsigned i = 0; i < 47; i++)
        assert_true(qm_seer_push(seer, &item));
    assert_int_equal(item.row, 2);
    assert_false(qm_seer_push(seer, &item));
    qm_seer_get_stats(seer, &stats);
    assert_int_equal(stats.claimed, 1);
    assert_int_equal(stats.redundant, 1);
    assert_int_equal(stats.fetched[0], 51);
    qm_seer_free(seer);
}

/* Algorithm 1: from the hottest of this T_h, one read-ahead, and one for each of its
 * rows. */
TEST(test_proactive)
{
    struct qm_seer *seer = seer_with(QM_SEER_SA, true);
    struct qm_seer_request request;
    struct qm_seer_stats stats;
    unsigned second = 0;

    for (unsigned i = 0; i < 3; i++)
        qm_seer_read(seer, 0, (struct qm_item){1, 500}, true);
    for (unsigned i = 0; i < 5; i++)
        qm_seer_read(seer, 1, (struct qm_item){2, 1}, true);
    for (unsigned i = 0; i < 5; i++)
        qm_seer_read(seer, 2, (struct qm_item){3, 400}, true);
    qm_seer_tick(seer, 179999, &light);
    assert_false(qm_seer_is_proactive(seer));
    qm_seer_tick(seer, 180000, &light);
    assert_true(qm_seer_is_proactive(seer));
    /* The passive trigger is off. */
    qm_seer_read(seer, 180001, (struct qm_item){9, 9}, false);
    assert_true(qm_seer_next(seer, &request));
    assert_int_equal(request.level, 1);
    assert_int_equal(request.table, 3); /* of equals, the latest */
    assert_int_equal(request.row[0], 350);
    assert_false(qm_seer_is_proactive(seer) && take_all(seer) > 0);
    qm_seer_fetched(seer, &request, request.row, 20); /* those that there are */
    while (qm_seer_next(seer, &request)) {
        assert_int_equal(request.level, 2);
        assert_true(qm_seer_is_proactive(seer));
        second++;
        qm_seer_fetched(seer, &request, request.row, request.count);
    }
    assert_int_equal(second, 20); /* each, and none is skipped */
    assert_false(qm_seer_is_proactive(seer));
    qm_seer_get_stats(seer, &stats);
    assert_int_equal(stats.proactive, 1);
    assert_int_equal(stats.passive, 0);
    /* The trigger is on again, after W. */
    qm_seer_read(seer, 180001 + 499, (struct qm_item){9, 9}, false);
    assert_int_equal(take_all(seer), 0);
    qm_seer_read(seer, 180001 + 500, (struct qm_item){9, 9}, false);
    assert_int_equal(take_all(seer), 58);
    qm_seer_free(seer);
}

/* A request that fails ends nothing but itself. */
TEST(test_proactive_fails)
{
    struct qm_seer *seer = seer_with(QM_SEER_SA, true);
    struct qm_seer_request request;

    qm_seer_read(seer, 0, (struct qm_item){1, 500}, true);
    qm_seer_tick(seer, 180000, &light);
    assert_true(qm_seer_next(seer, &request));
    qm_seer_fetched(seer, &request, NULL, 0);
    assert_false(qm_seer_is_proactive(seer));
    /* T_h begins again, and the counters with it. */
    qm_seer_tick(seer, 360000, &light);
    assert_false(qm_seer_is_proactive(seer));
    qm_seer_free(seer);
}

/* CPU_f >= 50 %, Disk_b idle <= 50 %, Net_fb >= 75 %: closed; and the counters are
 * reset. */
TEST(test_gates)
{
    static const struct {
        struct qm_seer_load load;
        bool open;
    } tries[] = {{{.49, .51, .74}, true},
                 {{.5, .51, .74}, false},
                 {{.49, .5, .74}, false},
                 {{.49, .51, .75}, false}};

    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct qm_seer *seer = seer_with(QM_SEER_SA, true);
        struct qm_seer_stats stats;

        qm_seer_read(seer, 0, (struct qm_item){1, 500}, true);
        qm_seer_tick(seer, 180000, &tries[i].load);
        assert_int_equal(qm_seer_is_proactive(seer), tries[i].open);
        qm_seer_get_stats(seer, &stats);
        assert_int_equal(stats.closed, !tries[i].open);
        qm_seer_tick(seer, 360000, &light);
        assert_int_equal(qm_seer_is_proactive(seer), tries[i].open);
        qm_seer_free(seer);
    }
}

/* Each read makes a row's life longer; one that is not read gets a shorter one. */
TEST(test_lives)
{
    struct qm_seer *seer = seer_with(0, true);
    struct qm_item item = {1, 1};
    unsigned never = qm_seer_life(seer, item), once, twice;

    qm_seer_read(seer, 0, item, true);
    once = qm_seer_life(seer, item);
    qm_seer_read(seer, 0, item, true);
    twice = qm_seer_life(seer, item);
    assert_true(never < once && once < twice);
    qm_seer_tick(seer, 180000, &(struct qm_seer_load){1, 0, 1});
    assert_int_equal(qm_seer_life(seer, item), never);
    qm_seer_free(seer);
}

/* The map against an array, at random. */
TEST(test_items)
{
    struct qm_items *items = qm_items_new(8);
    int64_t model[8], n = 0;
    unsigned seed = 1;

    for (unsigned i = 0; i < 20000; i++) {
        int64_t row = rand_r(&seed) % 20, at = 0, read;
        struct qm_item item = {1, row};
        uint64_t value;
        size_t each = 0;

        while (at < n && model[at] != row)
            at++;
        if (rand_r(&seed) % 3 == 0) {
            assert_int_equal(qm_items_remove(items, item), at < n);
            if (at < n)
                memmove(model + at, model + at + 1, (size_t)(--n - at) * sizeof *model);
        } else {
            *qm_items_add(items, item) = (uint64_t)row;
            if (at == n && n == 8)
                memmove(model, model + 1, (size_t)--n * sizeof *model);
            if (at >= n)
                model[n++] = row;
        }
        assert_int_equal(qm_items_count(items), n);
        for (read = 0; qm_items_each(items, &each, &item, &value); read++) {
            assert_int_equal(item.row, model[read]);
            assert_int_equal(value, item.row);
        }
        assert_int_equal(read, n);
    }
    qm_items_free(items);
}

/* Low priority (the second number) and waiting for the disk (the fifth) are idle. */
TEST(test_cpu)
{
    struct qm_cpu cpu = {0};
    double busy = -1;

    assert_false(qm_cpu_parse(&cpu, "intr 1 2 3 4", &busy));
    assert_false(qm_cpu_parse(&cpu, "cpu  10 20 30 40 50 0 0 0 0 0", &busy));
    assert_true(qm_cpu_parse(&cpu, "cpu  40 120 60 140 150 10 20 10 0 0", &busy));
    assert_true(busy == .25); /* 30 + 30 + 10 + 20 + 10 of 400 */
    assert_false(qm_cpu_parse(&cpu, "cpu  40 120 60 140 150 10 20 10 0 0", &busy));
    assert_true(qm_cpu_parse(&cpu, "cpu  140 119 60 140 150 10 20 10 0 0", &busy));
    assert_true(busy == 1);
}
