/* SPDX-License-Identifier: BSD-3-Clause */
/* test-tables.c - the tables that read-ahead knows: more than it has room for, one
 * after the other. */
#include <stdio.h>

#include "tests/harness.h"

#include "rowcache/server/readahead-internal.h"

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){.first = 1, .last = 100000};
    return true;
}

static int start(void **state)
{
    static const struct qm_auto_calls calls = {.describe = describe};
    struct readahead *ra = calloc(1, sizeof *ra);
    struct qm_auto_settings settings;

    qm_auto_settings_init(&settings);
    settings.rules = 1 << QM_AUTO_SA;
    settings.watches = false;
    ra->learner = qm_auto_new(&settings, &calls);
    ra->ahead = qm_items_new(16);
    *state = ra;
    return 0;
}

static int end(void **state)
{
    struct readahead *ra = *state;

    HASH_CLEAR(hh, ra->tables);
    for (unsigned i = 0; i < ra->count; i++)
        free(ra->by_id[i]);
    qm_auto_free(ra->learner);
    qm_items_free(ra->ahead);
    free(ra);
    return 0;
}

static struct table *get(struct readahead *ra, uint64_t ms, unsigned number)
{
    char key[32];
    int n = snprintf(key, sizeof key, "shop.t%u", number);

    return readahead_get_table(ra, ms, key, (size_t)n);
}

/* As many as there may be, whose definitions are known. */
static void fill(struct readahead *ra, uint64_t ms)
{
    for (unsigned i = 0; i < READAHEAD_TABLES; i++) {
        struct table *t = get(ra, ms, i);

        assert_int_equal(t->id, i);
        t->known = true;
    }
}

static const struct qm_rule_yield_arm *first_arm(const struct readahead *ra,
                                                 uint32_t table)
{
    const struct qm_rule_yield *yield = qm_auto_yield(ra->learner);
    const struct qm_rule_yield_arm *arm;

    for (unsigned i = 1; (arm = qm_rule_yield_get(yield, i)); i++)
        if (arm->table == table)
            return arm;
    return NULL;
}

/* What is gone makes room, with all that was learned of it. */
TEST_WITH(test_gone, start, end)
{
    static struct qm_auto_request request;
    struct readahead *ra = *state;
    uint64_t now = 1000000;
    struct table *t;

    fill(ra, now);
    *qm_items_add(ra->ahead, (struct qm_item){5, 17}) = 0;
    *qm_items_add(ra->ahead, (struct qm_item){6, 17}) = 0;
    qm_auto_read(ra->learner, now, (struct qm_item){5, 500}, false, 1000);
    assert_true(qm_auto_next(ra->learner, 0, false, &request));
    qm_auto_fetched(ra->learner, now, &request, request.row, request.count, 100, 10);
    qm_auto_tick(ra->learner, now += 5000);
    assert_true(first_arm(ra, 5)->judged > 0);
    assert_true(first_arm(ra, 5)->cost_us > 0);
    get(ra, now, 5)->known = false;
    assert_null(get(ra, now, 2000)); /* it may be defined anew */
    now += READAHEAD_GONE_MS - 1;
    assert_null(get(ra, now, 2000));
    now += 1000; /* for so long, no table is looked for */
    t = get(ra, now, 2000);
    assert_non_null(t);
    assert_int_equal(t->id, 5);
    assert_string_equal(t->table, "t2000");
    assert_ptr_equal(ra->by_id[5], t);
    assert_ptr_equal(get(ra, now, 2000), t);
    assert_null(readahead_find_table(ra, "shop.t5", 7));
    assert_null(qm_items_find(ra->ahead, (struct qm_item){5, 17}));
    assert_non_null(qm_items_find(ra->ahead, (struct qm_item){6, 17}));
    assert_true(first_arm(ra, 5)->judged == 0 && first_arm(ra, 5)->cost_us == 0);
    assert_int_equal(first_arm(ra, 5)->state, QM_RULE_YIELD_TRIAL);
    assert_false(qm_auto_may_be_ahead(ra->learner, 501));
    assert_int_equal(ra->count, READAHEAD_TABLES);
}

/* The table that was unused for longest makes room, but not while the pool reads rows
 * of it. */
TEST_WITH(test_unused, start, end)
{
    struct readahead *ra = *state;
    uint64_t now = 1000000;
    struct job *job;
    struct table *t;

    fill(ra, now);
    for (unsigned i = 0; i < READAHEAD_TABLES; i++)
        if (i != 7 && i != 9)
            get(ra, now + 2000, i);
    get(ra, now + 1000, 9);
    job = readahead_new_job(ra, ra->by_id[7], sizeof *job, NULL);
    assert_non_null(job);
    assert_null(get(ra, now + READAHEAD_IDLE_MS - 1, 2000));
    now += READAHEAD_IDLE_MS + 1000;
    t = get(ra, now, 2000);
    assert_int_equal(t->id, 9);
    t->known = true;
    assert_null(get(ra, now, 2001));
    readahead_free_job(job);
    assert_null(get(ra, now + 999, 2001));
    assert_int_equal(get(ra, now + 1000, 2001)->id, 7);
}
