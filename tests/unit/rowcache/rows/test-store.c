/* SPDX-License-Identifier: BSD-3-Clause */
/* test-store.c - rows over a store that fails: nothing old is found then; and at
 * another place, which is told all that the store would be, in the right order.  Both
 * are played here, and hold one key. */
#include <errno.h>
#include <stdio.h>

#include "tests/harness.h"

#include "rowcache/rows.h"

#define KEY "s.t:1"

static char kept[256];
static size_t kept_length;
static bool is_kept;
static int put_error, delete_error;
static struct qm_rows *rows;
static struct qm_follow_callbacks calls;
static const struct qm_gtid_list begin = {1, {{0, 1, 1}}};

int qmstore_clear(struct qmstore *store)
{
    is_kept = false;
    return 0;
}
int qmstore_get(struct qmstore *store, const void *key, size_t key_len, void **value,
                size_t *value_len, uint64_t *expires)
{
    if (!is_kept)
        return ENOENT;
    *value = malloc(kept_length + 1);
    memcpy(*value, kept, kept_length);
    *value_len = kept_length;
    return 0;
}
int qmstore_head(struct qmstore *store, const void *key, size_t key_len, void *head,
                 size_t size, size_t *value_len, uint64_t *expires)
{
    if (!is_kept)
        return ENOENT;
    memcpy(head, kept, kept_length < size ? kept_length : size);
    *value_len = kept_length;
    return 0;
}
/* A put that fails may have been made. */
int qmstore_put(struct qmstore *store, const void *key, size_t key_len,
                const void *value, size_t value_len, uint64_t expires)
{
    memcpy(kept, value, value_len);
    kept_length = value_len;
    is_kept = true;
    return put_error;
}
int qmstore_delete(struct qmstore *store, const void *key, size_t key_len)
{
    int error = delete_error ? delete_error : is_kept ? 0 : ENOENT;

    if (error == 0)
        is_kept = false;
    return error;
}

static int setup(void **state)
{
    put_error = delete_error = 0;
    rows = qm_rows_new(NULL, 1000);
    qm_rows_callbacks(rows, &calls);
    calls.following(calls.opaque, true, NULL);
    calls.fresh(calls.opaque, qm_rows_now());
    calls.applied(calls.opaque, 1, &begin);
    calls.settled(calls.opaque, 1);
    return 0;
}

static int leave(void **state)
{
    qm_rows_free(rows);
    return 0;
}

static void fill(const char *value)
{
    struct qm_rows_token token = qm_rows_begin(rows, KEY, 3, KEY, strlen(KEY));

    qm_rows_put(rows, &token, KEY, strlen(KEY), QM_ROWS_ROW, value, strlen(value),
                &begin);
}

static bool finds(struct qm_reader *reader, const char *want)
{
    struct qm_reader nobody = {0};
    const char *text;
    size_t n, bare;
    void *value;
    bool same;

    /* A look without a copy finds what a read finds. */
    if (qm_rows_get(rows, reader ? reader : &nobody, qm_rows_now(), KEY, strlen(KEY),
                    NULL, &text, &bare) == QM_ROWS_NONE)
        bare = SIZE_MAX;
    else
        assert_null(text);
    assert_true(reader || qm_rows_has(rows, KEY, strlen(KEY)) == (bare != SIZE_MAX));
    if (qm_rows_get(rows, reader ? reader : &nobody, qm_rows_now(), KEY, strlen(KEY),
                    &value, &text, &n) == QM_ROWS_NONE) {
        assert_true(bare == SIZE_MAX);
        return false;
    }
    assert_true(bare == n);
    same = n == strlen(want) && memcmp(text, want, n) == 0;
    free(value);
    assert_true(same);
    return true;
}

TEST_WITH(test_kept, setup, leave)
{
    fill("one");
    assert_true(finds(NULL, "one"));
    calls.changed(calls.opaque, 2, "s", "t", "1", 1);
    assert_false(finds(NULL, "one"));
}

/* A value that is shorter than what rows begin with is none, and nothing is read of it.
 */
TEST_WITH(test_short, setup, leave)
{
    fill("one");
    kept_length = 4;
    assert_false(finds(NULL, "one"));
}

/* What is settled last may be stored: of a row, and of a table. */
TEST_WITH(test_settled, setup, leave)
{
    calls.changed(calls.opaque, 2, "s", "t", "1", 1);
    calls.applied(calls.opaque, 2, &begin);
    fill("one");
    assert_false(finds(NULL, "one"));
    calls.settled(calls.opaque, 2);
    fill("one");
    assert_true(finds(NULL, "one"));
    calls.all_changed(calls.opaque, 3, "s", "t");
    calls.applied(calls.opaque, 3, &begin);
    fill("two");
    assert_false(finds(NULL, "two"));
    calls.settled(calls.opaque, 3);
    fill("two");
    assert_true(finds(NULL, "two"));
}

/* The row changes, and the store cannot remove it. */
TEST_WITH(test_not_removed, setup, leave)
{
    fill("one");
    delete_error = EIO;
    calls.changed(calls.opaque, 2, "s", "t", "1", 1);
    assert_true(is_kept);
    assert_false(finds(NULL, "one"));
    fill("one");
    assert_true(qm_rows_drop(rows, KEY, strlen(KEY)) == false);
    assert_false(finds(NULL, "one"));
}

/* A newer row cannot be stored, and what the store has then not be removed. */
TEST_WITH(test_not_stored, setup, leave)
{
    put_error = delete_error = ENOSPC;
    fill("one");
    assert_false(finds(NULL, "one"));
}

/* What a reader saw is of more domains than can be noted: it finds nothing older. */
TEST_WITH(test_too_many_domains, setup, leave)
{
    struct qm_reader reader = {0};
    struct qm_gtid_list one = {1, {{0, 1, 1}}};

    fill("one");
    assert_true(finds(&reader, "one"));
    for (uint32_t domain = 0; domain <= QM_GTID_DOMAINS; domain++) {
        one.last[0].domain = domain;
        qm_reader_saw(&reader, &one);
    }
    /* All that could be noted is applied. */
    for (uint32_t domain = 0; domain < QM_GTID_DOMAINS; domain++)
        one.last[domain] = (struct qm_gtid){domain, 1, 1};
    one.count = QM_GTID_DOMAINS;
    calls.applied(calls.opaque, 2, &one);
    assert_false(finds(&reader, "one"));
    free(reader.seen);
}

/* --- another place --- */

static char place[256]; /* "-": nothing is kept */
static unsigned cleared;

static bool place_put(void *opaque, const char *key, size_t key_length,
                      const char *value, size_t length, unsigned life_ms)
{
    snprintf(place, sizeof place, "%.*s=%.*s %u", (int)key_length, key, (int)length,
             value, life_ms);
    return true;
}
static void place_remove(void *opaque, const char *key, size_t length)
{
    strcpy(place, "-");
}
static void place_clear(void *opaque)
{
    cleared++;
    strcpy(place, "-");
}
static bool place_has(void *opaque, const char *key, size_t length)
{
    return strcmp(place, "-") != 0;
}

static int setup_place(void **state)
{
    static const struct qm_rows_place at = {NULL, place_put, place_remove, place_clear,
                                            place_has};

    strcpy(place, "-");
    cleared = 0;
    rows = qm_rows_new_at(&at, 1000);
    qm_rows_callbacks(rows, &calls);
    calls.following(calls.opaque, true, NULL);
    calls.fresh(calls.opaque, qm_rows_now());
    calls.applied(calls.opaque, 1, &begin);
    calls.settled(calls.opaque, 1);
    return 0;
}

/* The row as it is, without a header; and nothing of a row that is not there. */
TEST_WITH(test_place_put, setup_place, leave)
{
    struct qm_rows_token token = qm_rows_begin(rows, KEY, 3, KEY, strlen(KEY));

    fill("{}");
    assert_string_equal(place, KEY "={} 0");
    assert_true(qm_rows_has(rows, KEY, strlen(KEY)));
    token.life_ms = 7;
    assert_true(
        qm_rows_put(rows, &token, KEY, strlen(KEY), QM_ROWS_ABSENT, NULL, 0, &begin));
    assert_string_equal(place, KEY "= 7");
    assert_true(qm_rows_drop(rows, KEY, strlen(KEY)));
    assert_false(qm_rows_drop(rows, KEY, strlen(KEY)));
    assert_string_equal(place, "-");
}

/* A fill that began before a change does not come to the place after it. */
TEST_WITH(test_place_older, setup_place, leave)
{
    struct qm_rows_token token = qm_rows_begin(rows, KEY, 3, KEY, strlen(KEY));

    fill("old");
    calls.changed(calls.opaque, 1, "s", "t", "1", 1);
    assert_string_equal(place, "-");
    assert_false(
        qm_rows_put(rows, &token, KEY, strlen(KEY), QM_ROWS_ROW, "older", 5, &begin));
    assert_string_equal(place, "-");
    fill("new");
    assert_string_equal(place, KEY "=new 0");
}

/* Only a table of which rows may be there empties the place. */
TEST_WITH(test_place_tables, setup_place, leave)
{
    calls.all_changed(calls.opaque, 1, "s", "t");
    assert_int_equal(cleared, 0);
    fill("one");
    calls.all_changed(calls.opaque, 1, "s", "other");
    assert_int_equal(cleared, 0);
    assert_string_equal(place, KEY "=one 0");
    calls.all_changed(calls.opaque, 1, "s", "t");
    assert_int_equal(cleared, 1);
    assert_string_equal(place, "-");
    fill("two");
    calls.gap(calls.opaque, 1, "lost");
    assert_int_equal(cleared, 2);
    fill("three");
    qm_rows_drop_all(rows);
    assert_int_equal(cleared, 3);
    assert_string_equal(place, "-");
}
