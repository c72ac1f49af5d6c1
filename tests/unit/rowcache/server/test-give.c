/* SPDX-License-Identifier: BSD-3-Clause */
/* test-give.c - when the rows that auto asks for are given to the pool. */
#include "tests/harness.h"

#include "rowcache/fill/internal.h"
#include "rowcache/server/readahead-internal.h"

static struct qm_config config = {.connections = 8};
static struct server server;
static struct client client = {.server = &server};

static bool describe(void *opaque, struct qm_item item, struct qm_seer_row *row)
{
    *row = (struct qm_seer_row){.first = 1, .last = 100000};
    return true;
}

static bool put(void *opaque, const char *key, size_t key_length, const char *value,
                size_t length, unsigned life_ms)
{
    return false;
}

/* Read-ahead of one table that is known, and a pool without threads. */
static int start(void **state)
{
    static const struct qm_auto_calls calls = {.describe = describe};
    static const struct qm_rows_place place = {.put = put};
    struct readahead *ra = calloc(1, sizeof *ra);
    struct qm_auto_settings settings;
    struct qm_seer_settings seer;
    const struct qm_seer_calls seer_calls = {ra, describe};
    struct qm_follow_callbacks follow = {0};

    qm_auto_settings_init(&settings);
    settings.rules = 1 << QM_AUTO_SA;
    settings.watches = false;
    qm_seer_settings_init(&seer);
    ra->server = &server;
    ra->preset = READAHEAD_AUTO;
    ra->rules = settings.rules;
    pthread_mutex_init(&ra->lock, NULL);
    ra->learner = qm_auto_new(&settings, &calls);
    ra->seer = qm_seer_new(&seer, &seer_calls);
    ra->ahead = qm_items_new(16);
    readahead_get_table(ra, 0, "shop.t", 6)->known = true;
    server.config = &config;
    server.readahead = ra;
    server.rows = qm_rows_new_at(&place, 10000);
    qm_rows_callbacks(server.rows, &follow);
    follow.following(follow.opaque, true, NULL);
    follow.fresh(follow.opaque, qm_rows_now());
    server.fill = calloc(1, sizeof *server.fill);
    server.fill->rows = server.rows;
    server.fill->ahead_last = &server.fill->ahead_first;
    pthread_mutex_init(&server.fill->lock, NULL);
    pthread_cond_init(&server.fill->wake, NULL);
    *state = ra;
    return 0;
}

static int end(void **state)
{
    struct readahead *ra = *state;

    while (server.fill->ahead_first) {
        struct job *job = (struct job *)server.fill->ahead_first;

        server.fill->ahead_first = job->fill.next;
        readahead_free_job(job);
    }
    pthread_mutex_destroy(&server.fill->lock);
    pthread_cond_destroy(&server.fill->wake);
    free(server.fill);
    qm_rows_free(server.rows);
    HASH_CLEAR(hh, ra->tables);
    free(ra->by_id[0]);
    qm_auto_free(ra->learner);
    qm_seer_free(ra->seer);
    qm_items_free(ra->ahead);
    pthread_mutex_destroy(&ra->lock);
    free(ra);
    return 0;
}

static void miss(const char *key)
{
    readahead_read(&client, key, strlen(key), "{}", 2, false, qm_rows_now());
}

/* Rows that are wanted while reads wait for the pool are read when none does, by one
 * SELECT. */
TEST_WITH(test_waits, start, end)
{
    struct readahead *ra = *state;

    server.fill->load.waiting = 1;
    miss("shop.t:1000");
    miss("shop.t:2000");
    assert_null(server.fill->ahead_first);
    assert_int_equal(ra->stats.dropped, 0);
    server.fill->load.waiting = 0;
    miss("shop.t:1001"); /* which asks for 1051, too */
    assert_int_equal(ra->stats.dropped, 0);
    assert_non_null(server.fill->ahead_first);
    assert_int_equal(server.fill->ahead_first->count, 201);
    assert_null(server.fill->ahead_first->next);
}

/* What nobody could read for long is dropped. */
TEST_WITH(test_late, start, end)
{
    struct readahead *ra = *state;

    server.fill->load.waiting = 1;
    qm_auto_read(ra->learner, readahead_clock_ms() - 2 * QM_AUTO_PATIENCE_MS,
                 (struct qm_item){0, 1000}, false, 1000);
    miss("shop.t:50000");
    assert_null(server.fill->ahead_first);
    assert_true(ra->stats.dropped >= 100);
    assert_false(qm_auto_is_late(ra->learner, readahead_clock_ms()));
}

/* Nor is anything kept for another preset. */
TEST_WITH(test_off, start, end)
{
    struct readahead *ra = *state;
    struct qm_auto_stats stats;

    server.fill->load.waiting = 1;
    miss("shop.t:1000");
    assert_true(readahead_set(&server, "off"));
    qm_auto_get_stats(ra->learner, &stats);
    assert_true(stats.dropped >= 96);
    assert_null(server.fill->ahead_first);
}
