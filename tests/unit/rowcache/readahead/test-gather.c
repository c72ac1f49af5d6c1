/* SPDX-License-Identifier: BSD-3-Clause */
/* test-gather.c - auto's rows come by few requests: a scan does not ask for each row
 * alone, and what is not read soon waits for other rows while a request is out. */
#include "rowcache/readahead/auto.h"
#include "tests/harness.h"

enum { FAR = 50, SCAN = 2000 };

static struct qm_auto *ra;
static struct qm_auto_request request;
static bool kept[SCAN + 2 * FAR];

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){.first = 1, .last = 1000000};
    return true;
}

static void begin(bool watches)
{
    static const struct qm_auto_calls calls = {.describe = describe};
    struct qm_auto_settings settings;

    qm_auto_settings_init(&settings);
    settings.rules = 1 << QM_AUTO_SA;
    settings.watches = watches;
    ra = qm_auto_new(&settings, &calls);
    assert_non_null(ra);
}

static void come(uint64_t now)
{
    for (unsigned i = 0; i < request.count; i++)
        if (request.row[i] < SCAN + 2 * FAR)
            kept[request.row[i]] = true;
    qm_auto_fetched(ra, now, &request, request.row, request.count,
                    200 + 10 * request.count, 0);
}

/* Half a band at a time, which is 17 rows of the widest; and each row is there when it
 * is read. */
TEST(test_scan)
{
    unsigned requests = 0, hits = 0;

    begin(false);
    for (unsigned row = 1; row <= SCAN; row++) {
        qm_auto_read(ra, row, (struct qm_item){1, row}, kept[row], 1000);
        hits += row > SCAN / 2 && kept[row];
        while (qm_auto_next(ra, row, false, &request)) {
            requests += row > SCAN / 2;
            come(row);
        }
    }
    assert_int_equal(hits, SCAN / 2);
    assert_in_range(requests, SCAN / 2 / 34, SCAN / 2 / 17 + 1);
    qm_auto_free(ra);
}

/* A read that misses asks for all, however few they are. */
TEST(test_miss)
{
    begin(false);
    for (int64_t row = 1000; row <= 1001; row++) {
        qm_auto_read(ra, 1, (struct qm_item){1, row}, false, 1000);
        assert_true(qm_auto_next(ra, 1, false, &request));
        assert_int_equal(request.count, row == 1000 ? 100 : 1);
    }
    qm_auto_free(ra);
}

/* Rows that are read ms after they were wanted, until they are fetched.  Whether they
 * wait while others are out. */
static bool waits(uint64_t ms)
{
    uint64_t now = 1000;
    bool asks;

    begin(true);
    for (int64_t row = 1000; !qm_auto_next(ra, now, false, &request); row += 1000) {
        assert_true(row < 100000);
        qm_auto_read(ra, now, (struct qm_item){1, row}, false, 1000);
        for (int64_t i = 1; i <= FAR; i++)
            qm_auto_read(ra, now + ms, (struct qm_item){1, row + i}, false, 1000);
        now += ms;
    }
    qm_auto_read(ra, now, (struct qm_item){1, 500000}, false, 1000);
    asks = qm_auto_next(ra, now, true, &request);
    assert_true(asks || qm_auto_next(ra, now + QM_AUTO_GATHER_MS, true, &request));
    qm_auto_free(ra);
    return !asks;
}

/* The same of rows that were read ahead. */
static bool waits_ahead(uint64_t ms)
{
    uint64_t now = 1000;
    bool asks;

    begin(false);
    qm_auto_read(ra, now, (struct qm_item){1, 1000}, false, 1000);
    assert_true(qm_auto_next(ra, now, false, &request));
    come(now);
    for (int64_t i = 1; i <= FAR; i++)
        assert_int_equal(
            qm_auto_read(ra, now + ms, (struct qm_item){1, 1000 + i}, true, 0),
            QM_AUTO_AHEAD);
    while (qm_auto_next(ra, now + ms, false, &request))
        come(now + ms);
    qm_auto_read(ra, now + ms, (struct qm_item){1, 500000}, false, 1000);
    asks = qm_auto_next(ra, now + ms, true, &request);
    qm_auto_free(ra);
    return !asks;
}

TEST(test_soon)
{
    assert_false(waits(5));
    assert_true(waits(3000));
    assert_false(waits_ahead(5));
    assert_true(waits_ahead(3000));
}
