/* SPDX-License-Identifier: BSD-3-Clause */
/* test-binlog.c - the parser, on a log of a real MariaDB, whole and damaged;
 * statements, positions and key text. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/harness.h"

#include "captured.h"
#include "rowcache/follow/binlog.h"

static char said[8192];
static bool known = true;

static void say(const char *form, ...)
{
    size_t n = strlen(said);
    va_list args;

    va_start(args, form);
    vsnprintf(said + n, sizeof said - n, form, args);
    va_end(args);
}

static const struct qm_table *table(void *opaque, const char *schema, const char *name)
{
    static struct qm_name child = {"s", "child"};
    static const struct qm_table t = {
        .columns = 3,
        .key_count = 1,
        .key = {{.ordinal = 1, .print = QM_PRINT_SIGNED}},
        .on_delete_count = 1,
        .on_delete = &child,
    };

    return known && strcmp(name, "t") == 0 ? &t : NULL;
}

static void changed(void *opaque, const char *schema, const char *name, const char *key,
                    size_t length)
{
    say("%s.%s:%.*s ", schema, name, (int)length, key);
}

static void all_changed(void *opaque, const char *schema, const char *name)
{
    say("all(%s.%s) ", schema ? schema : "*", name ? name : "*");
}

static void defined(void *opaque, const char *schema, const char *name)
{
    say("defined(%s.%s) ", schema ? schema : "*", name ? name : "*");
}

static void begin(void *opaque, struct qm_gtid gtid)
{
    say("[%" PRIu64 " ", gtid.sequence);
}

static void end(void *opaque, struct qm_gtid gtid, const char *file, uint64_t position)
{
    assert_true(position > 0 && position <= sizeof captured + 4);
    say("%" PRIu64 "] ", gtid.sequence);
}

static uint32_t made;

static void file(void *opaque, const char *name, uint32_t seconds)
{
    made = seconds;
}

static void idle(void *opaque)
{
}

static struct qm_binlog *parser(void)
{
    static const struct qm_binlog_calls calls = {
        .table = table,
        .changed = changed,
        .all_changed = all_changed,
        .defined = defined,
        .begin = begin,
        .end = end,
        .file = file,
        .idle = idle,
    };
    struct qm_binlog *binlog = qm_binlog_new(&calls);

    assert_non_null(binlog);
    qm_binlog_reset(binlog, true, false);
    said[0] = '\0';
    return binlog;
}

static size_t event_size(const uint8_t *event)
{
    return qm_little(event + 9, 4);
}

static const char *read_all(const uint8_t *log, size_t size)
{
    struct qm_binlog *binlog = parser();
    const char *wrong = NULL;

    for (size_t at = 0; at + 19 <= size && !wrong; at += event_size(log + at)) {
        assert_true(event_size(log + at) <= size - at);
        wrong = qm_binlog_event(binlog, log + at, event_size(log + at));
    }
    qm_binlog_free(binlog);
    return wrong;
}

TEST(test_captured)
{
    assert_null(read_all(captured, sizeof captured));
    assert_string_equal(said, "[1 s.t:1 s.t:-2 1] "
                              "[2 s.t:1 s.t:3 2] "
                              "[3 s.t:-2 s.t:3 3] "
                              "[4 all(s.child) s.t:3 4] "
                              "[5 s.t:9 5] "
                              "[6 all(s.t) defined(s.t) 6] ");
    assert_memory_equal(&made, captured, sizeof made); /* little-endian */
}

TEST(test_unknown_table)
{
    known = false;
    assert_null(read_all(captured, sizeof captured));
    known = true;
    assert_string_equal(said, "[1 all(s.t) 1] [2 all(s.t) 2] [3 all(s.t) 3] "
                              "[4 all(s.t) 4] [5 all(s.t) 5] "
                              "[6 all(s.t) defined(s.t) 6] ");
}

/* Each event in memory of its own, so that the sanitizer sees what is read beyond. */
TEST(test_damaged)
{
    for (size_t at = 0; at + 19 <= sizeof captured; at += event_size(captured + at)) {
        size_t size = event_size(captured + at);

        for (size_t i = 0; i < size; i++) {
            struct qm_binlog *binlog = parser();
            uint8_t *event = malloc(size);

            memcpy(event, captured + at, size);
            event[i] ^= 0x10;
            assert_non_null(qm_binlog_event(binlog, event, size));
            free(event);
            qm_binlog_free(binlog);
        }
    }
}

/* Without checksums, and shorter by any number of bytes. */
TEST(test_cut)
{
    for (size_t at = 0; at + 19 <= sizeof captured; at += event_size(captured + at)) {
        size_t size = event_size(captured + at);

        for (size_t left = 0; left < size - 4; left++) {
            struct qm_binlog *binlog = parser();
            uint8_t *event = malloc(left ? left : 1);

            qm_binlog_reset(binlog, false, false);
            memcpy(event, captured + at, left);
            if (left >= 13)
                for (int i = 0; i < 4; i++)
                    event[9 + i] = (uint8_t)(left >> 8 * i);
            qm_binlog_event(binlog, event, left);
            free(event);
            qm_binlog_free(binlog);
        }
    }
}

TEST(test_statements)
{
    static const struct {
        const char *text, *is;
    } tries[] = {
        {"BEGIN", "0"},
        {"COMMIT", "1"},
        {"rollback", "1"},
        {"ROLLBACK TO `p`", "0"},
        {"SAVEPOINT `p`", "0"},
        {"TRUNCATE t", "2 d.t"},
        {"TRUNCATE TABLE `a``b`.`c d`", "2 a`b.c d"},
        {"ALTER TABLE x.t ADD c INT", "2 x.t"},
        {"ALTER TABLE t RENAME u", "4"},
        {"ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "4"},
        {"CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", "2 d.t"},
        {"DROP TABLE IF EXISTS `t` , x.`u` /* generated by server */", "2 d.t x.u"},
        {"DROP TABLE a,b,c,d,e,f,g,h,i", "4"},
        {"RENAME TABLE t TO u, v TO x.w", "2 d.t d.u d.v x.w"},
        {"CREATE UNIQUE INDEX i ON t (a)", "2 d.t"},
        {"DROP INDEX i ON x.t", "2 x.t"},
        {"CREATE DATABASE e", "3 e."},
        {"DROP SCHEMA IF EXISTS e", "3 e."},
        {"CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW SET @a=1", "4"},
        {"INSERT INTO t VALUES (1)", "4"},
        {"/*!50000 TRUNCATE t */", "4"},
        {"/*M! TRUNCATE t */", "4"},
        {"/* a */ -- b\n# c\nTRUNCATE t", "2 d.t"},
        {"/* no end", "4"},
        {"TRUNCATE \"t\"", "4"},
        {"TRUNCATE `t", "4"},
        {"TRUNCATE t\xc3\xa4", "4"},
        {"XA START 'a'", "0"},
        {"XA COMMIT 'a'", "4"},
        {"XA ROLLBACK 'a'", "0"},
        {"", "4"},
    };

    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct qm_statement statement;
        char is[256];
        size_t n;

        qm_statement_read(&statement, tries[i].text, strlen(tries[i].text), "d");
        n = (size_t)snprintf(is, sizeof is, "%d", statement.kind);
        if (statement.kind == QM_STATEMENT_TABLES_CHANGED ||
            statement.kind == QM_STATEMENT_SCHEMA_CHANGED)
            for (unsigned j = 0; j < statement.count; j++)
                n +=
                    (size_t)snprintf(is + n, sizeof is - n, " %s.%s",
                                     statement.name[j].schema, statement.name[j].table);
        if (strcmp(is, tries[i].is) != 0)
            fail_msg("%s: %s, not %s", tries[i].text, is, tries[i].is);
    }
}

static bool covers(const char *a, const char *b)
{
    struct qm_gtid_list one, other;

    assert_true(qm_gtid_parse(&one, a, strlen(a)) &&
                qm_gtid_parse(&other, b, strlen(b)));
    return qm_gtid_covers(&one, &other);
}

static bool went_back(const char *before, const char *now)
{
    struct qm_gtid_list one, other;

    assert_true(qm_gtid_parse(&one, before, strlen(before)) &&
                qm_gtid_parse(&other, now, strlen(now)));
    return qm_gtid_went_back(&one, &other);
}

TEST(test_reset)
{
    assert_true(went_back("0-1-5", "") && went_back("0-1-5", "0-1-4") &&
                went_back("0-1-5,1-1-7", "0-1-6,2-1-9"));
    /* Another server may count anew in a domain. */
    assert_false(went_back("", "0-1-1") || went_back("0-1-5", "0-1-5") ||
                 went_back("0-1-5", "0-2-1") ||
                 went_back("0-1-5,2-1-7", "0-1-6,1-1-1,2-1-7"));
}

TEST(test_positions)
{
    static const char *const wrong[] = {"1",
                                        "1-2",
                                        "1-2-",
                                        "a-1-2",
                                        "1-2-3,",
                                        "1-2-3 4",
                                        "-1-2-3",
                                        "4294967296-1-1",
                                        ",",
                                        "1-2-3,,0-1-1",
                                        "1-1-18446744073709551616"};
    struct qm_gtid_list list;
    char text[QM_GTID_TEXT];

    assert_true(covers("0-1-5", "0-2-5") && covers("0-1-5", "") &&
                covers("0-1-5,3-1-1", "0-1-4"));
    assert_false(covers("0-1-5", "0-1-6") || covers("0-1-5", "0-1-4,1-1-1") ||
                 covers("", "0-1-1"));
    assert_true(qm_gtid_parse(&list, " 3-1-7,\n0-2-18446744073709551615", 32));
    assert_string_equal(qm_gtid_print(&list, text), "0-2-18446744073709551615,3-1-7");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(qm_gtid_parse(&list, wrong[i], strlen(wrong[i])));
    list.count = 0;
    for (uint32_t i = QM_GTID_DOMAINS; i-- > 0;)
        assert_true(qm_gtid_set(&list, (struct qm_gtid){i, 1, 1}));
    assert_false(qm_gtid_set(&list, (struct qm_gtid){QM_GTID_DOMAINS, 1, 1}));
    assert_true(qm_gtid_set(&list, (struct qm_gtid){0, UINT32_MAX, UINT64_MAX}));
    assert_true(strlen(qm_gtid_print(&list, text)) < QM_GTID_TEXT);
}

TEST(test_key_text)
{
    struct qm_keytext key;
    char value[8];

    qm_keytext_start(&key);
    qm_keytext_add(&key, "a:b%", 4);
    qm_keytext_add(&key, "", 0);
    qm_keytext_add(&key, " \n\0\x7f\xc3\xa4", 6);
    assert_false(key.failed);
    assert_int_equal(key.length, strlen("a%3Ab%25::%20%0A%00%7F\xc3\xa4"));
    assert_memory_equal(key.text, "a%3Ab%25::%20%0A%00%7F\xc3\xa4", key.length);
    assert_int_equal(qm_keytext_decode("a%3ab%25", 8, value, sizeof value), 4);
    assert_memory_equal(value, "a:b%", 4);
    assert_int_equal(qm_keytext_decode("a%", 2, value, sizeof value), -1);
    assert_int_equal(qm_keytext_decode("a%3", 3, value, sizeof value), -1);
    assert_int_equal(qm_keytext_decode("%g0", 3, value, sizeof value), -1);
    assert_int_equal(qm_keytext_decode("123456789", 9, value, sizeof value), -1);
    qm_keytext_start(&key);
    for (int i = 0; i <= QM_KEY_MAX; i++)
        qm_keytext_add(&key, "x", 1);
    assert_true(key.failed);
}
