/* SPDX-License-Identifier: BSD-3-Clause */
/* test-pause.c - when no arm of a table has room for a row, few reads of it look for
 * any; as soon as one has, all do. */
#include "rowcache/readahead/auto.h"
#include "tests/harness.h"

enum { READS = 320, EACH = 16 };

static unsigned looked[3];

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    looked[item.table]++;
    *row = (struct qm_seer_row){.first = 1, .last = 100000000};
    return true;
}

/* Reads that miss, far from each other. */
static void read_rows(struct qm_auto *ra, uint64_t now, uint32_t table, unsigned n)
{
    static int64_t row = 1000;
    static struct qm_auto_request request;

    while (n-- > 0) {
        qm_auto_read(ra, now, (struct qm_item){table, row += 1000}, false, 1000);
        while (qm_auto_next(ra, 0, false, &request))
            qm_auto_fetched(ra, now, &request, NULL, 0, 0, 0);
    }
}

static struct qm_auto *new_auto_with(unsigned rules, bool watches)
{
    static const struct qm_auto_calls calls = {.describe = describe};
    struct qm_auto_settings settings;
    struct qm_auto *ra;

    qm_auto_settings_init(&settings);
    settings.rules = rules;
    settings.watches = watches;
    ra = qm_auto_new(&settings, &calls);
    assert_non_null(ra);
    looked[1] = looked[2] = 0;
    return ra;
}

static struct qm_auto *new_auto(unsigned rules)
{
    return new_auto_with(rules, true);
}

FIXTURE(sa, new_auto(1 << QM_AUTO_SA), qm_auto_free(it))

TEST_ON(test_no_room, sa, struct qm_auto *ra)
{
    /* Until as many rows are watched as can be, the widest band's last: 384 / 4. */
    read_rows(ra, 1000, 1, 96);
    assert_int_equal(looked[1], 96);
    read_rows(ra, 1000, 1, READS);
    assert_int_equal(looked[1], 96 + READS / EACH);
    /* Another table's reads are not left out, nor do they change that. */
    read_rows(ra, 1000, 1, 1);
    read_rows(ra, 1000, 2, 90);
    assert_int_equal(looked[2], 90);
    read_rows(ra, 1000, 1, READS - 1);
    assert_int_equal(looked[1], 96 + 2 * READS / EACH);
}

/* Nothing was used: after ten seconds the arms are watched again, which one of the next
 * reads finds out, and all look then. */
TEST_ON(test_room_again, sa, struct qm_auto *ra)
{
    read_rows(ra, 1000, 1, 96 + READS);
    qm_auto_tick(ra, 7000); /* all are judged, and off */
    looked[1] = 0;
    read_rows(ra, 8000, 1, READS);
    assert_int_equal(looked[1], READS / EACH);
    looked[1] = 0;
    read_rows(ra, 20000, 1, EACH - 1 + 50);
    assert_in_range(looked[1], 50, 50 + EACH - 1);
}

/* All rows of arms on trial are on their way: soon they may want more. */
TEST(test_on_their_way)
{
    struct qm_auto *ra = new_auto_with(1 << QM_AUTO_SA, false);
    struct qm_auto_request request;

    for (int64_t row = 1000; row <= 400000; row += 1000) {
        qm_auto_read(ra, 1000, (struct qm_item){1, row}, false, 1000);
        while (qm_auto_next(ra, 0, false, &request))
            ;
    }
    assert_int_equal(looked[1], 400);
    qm_auto_free(ra);
}
