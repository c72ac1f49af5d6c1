/* SPDX-License-Identifier: BSD-3-Clause */
/* test-statement.c - what is known of statements: by their texts, and by texts that
 * were seen before, which must say the same. */
#include <stdio.h>

#include "tests/harness.h"

#include "mysql-patch/plugin/statement.h"

#define ROUNDS 300000
#define LONG   2048

static struct qm_statements kept;

static int set_up(void **state)
{
    memset(&kept, 0, sizeof kept);
    return 0;
}

/* A text in memory of its size, so that a sanitizer sees what is read beyond. */
static struct qm_statement of(const char *sql)
{
    size_t len = strlen(sql);
    char *copy = malloc(len + !len);
    struct qm_statement s;

    assert_non_null(copy);
    memcpy(copy, sql, len);
    s = qm_statement_of(&kept, copy, len);
    free(copy);
    return s;
}

static struct qm_statement fresh(const char *sql)
{
    static struct qm_template t;

    qm_template_make(sql, strlen(sql), &t);
    return qm_statement_of_template(&t);
}

static void check(const char *sql, unsigned flags)
{
    if (fresh(sql).flags != flags)
        fail_msg("%s: %x, not %x", sql, fresh(sql).flags, flags);
    assert_int_equal(of(sql).flags, flags);
    assert_int_equal(of(sql).flags, flags);
}

TEST_WITH(test_flags, set_up, NULL)
{
    const unsigned commits = QM_STATEMENT_COMMITS | QM_STATEMENT_CONTROLS;
    const unsigned starts = QM_STATEMENT_STARTS | QM_STATEMENT_CONTROLS;
    static const char *const committing[] = {"COMMIT",
                                             "commit and chain",
                                             "ROLLBACK",
                                             "rollback work",
                                             "alter table t",
                                             "Rename table a to b",
                                             "truncate t",
                                             "lock tables t read",
                                             "grant all on a to b",
                                             "revoke all",
                                             "analyze table t",
                                             "optimize table t",
                                             "repair table t",
                                             "create table t (a int)",
                                             "drop table t",
                                             "create or replace table t"};

    for (size_t i = 0; i < sizeof committing / sizeof *committing; i++)
        check(committing[i], commits);
    check("begin", starts);
    check("BEGIN work", starts);
    check("start  transaction read only", starts);
    check("begin not atomic select 1; end", QM_STATEMENT_SEVERAL);
    check("start slave", 0);
    check("rollback to a", QM_STATEMENT_CONTROLS);
    check("rollback work to savepoint a", QM_STATEMENT_CONTROLS);
    check("set autocommit=0", QM_STATEMENT_CONTROLS);
    check("set statement max_statement_time=1 for select 1", 0);
    check("execute s using @a", QM_STATEMENT_EXECUTE);
    check("/* why */ EXECUTE immediate 'select 1'", QM_STATEMENT_EXECUTE);
    check("create temporary table t (a int)", 0);
    check("create or replace temporary table t (a int)", 0);
    check("drop temporary table t", 0);
    check("select 1; select 2", QM_STATEMENT_SEVERAL);
    check("commit; select 2", commits | QM_STATEMENT_SEVERAL);
    check("select 1;", 0);
    check("insert into t values (1)", 0);
    check("setup()", 0);
    check("commitment", 0);
    check("", 0);
}

TEST_WITH(test_kept, set_up, NULL)
{
    uint64_t klass = of("SELECT c FROM sbtest1 WHERE id=?").klass;

    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(of("SELECT c FROM sbtest1 WHERE id=?").klass, klass);
    assert_int_equal(kept.same, 10);
    /* Numbers of any length; the first is passed over. */
    assert_int_equal(of("SELECT c FROM sbtest1 WHERE id=12").klass, klass);
    assert_int_equal(kept.alike, 0);
    assert_int_equal(of("SELECT c FROM sbtest1 WHERE id=7").klass, klass);
    assert_int_equal(of("SELECT c FROM sbtest1 WHERE id=123456789012345678").klass,
                     klass);
    assert_int_equal(kept.alike, 2);
    /* Another table is another class. */
    assert_int_not_equal(of("SELECT c FROM sbtest2 WHERE id=?").klass, klass);
    assert_int_not_equal(of("SELECT c FROM sbtest2 WHERE id=7").klass, klass);
}

/* Digits that are no numbers. */
TEST_WITH(test_names, set_up, NULL)
{
    static const char *const pairs[][2] = {
        {"select a from `t 1`", "select a from `t 2`"},
        {"select a from t1 where b = 3", "select a from t2 where b = 3"},
        {"select @1", "select @2"},
        {"select @'a 1'", "select @'a 2'"},
        {"select t.1a", "select t.2a"},
        {"select t. 1a", "select t. 2a"},
        {"select 1a", "select 2a"},
        {"select a.1 from t", "select a.2 from t"},
        {"select \xc3\xa4"
         "1",
         "select \xc3\xa4"
         "2"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(of(pairs[i][0]).klass, fresh(pairs[i][0]).klass);
        assert_int_equal(of(pairs[i][1]).klass, fresh(pairs[i][1]).klass);
        assert_int_equal(of(pairs[i][0]).klass, fresh(pairs[i][0]).klass);
    }
}

TEST_WITH(test_long, set_up, NULL)
{
    static char sql[LONG + 1];

    for (size_t len = 1; len <= LONG; len += len < 400 ? 1 : 97) {
        memset(sql, 'a', len);
        sql[len] = '\0';
        sql[len / 2] = ' ';
        assert_int_equal(of(sql).klass, fresh(sql).klass);
        assert_int_equal(of(sql).klass, fresh(sql).klass);
        memset(sql, '7', len);
        assert_int_equal(of(sql).klass, fresh(sql).klass);
    }
}

/* Texts of such pieces, each with its numbers changed again and again. */
static const char *const pieces[] = {
    "select", "a",     "1",        "23", "456", " ",       " ",        "'",
    "''",     "\"",    "\\",       "`",  "@",   ".",       ",",        "(",
    ")",      " in (", "values (", "-",  "--",  "-- ",     "#",        "/*",
    "/*!",    "*/",    "\n",       "e",  "0x",  "x'",      "b'",       "_utf8'",
    "null",   "+",     "=",        ";",  "$",   "_",       "\xc3\xa4", "?",
    "commit", "begin", "7e",       "8.", ".9",  " limit ", " as ",     "t1"};

static size_t random_text(char *sql)
{
    size_t n = 0;

    for (unsigned i = (unsigned)random() % 14 + 1; i > 0; i--) {
        const char *piece = pieces[(size_t)random() % (sizeof pieces / sizeof *pieces)];

        n += (size_t)snprintf(sql + n, 32, "%s", piece);
    }
    return n;
}

/* Other digits in place of these, now and then one more or fewer. */
static void change_numbers(const char *from, char *to)
{
    for (; *from; from++) {
        if (*from < '0' || *from > '9') {
            *to++ = *from;
            continue;
        }
        if (random() % 8 != 0)
            *to++ = (char)('0' + random() % 10);
        if (random() % 8 == 0)
            *to++ = (char)('0' + random() % 10);
    }
    *to = '\0';
}

TEST_WITH(test_what_is_kept_says_what_the_text_says, set_up, NULL)
{
    char sql[LONG], other[2 * LONG];

    srandom(1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct qm_statement a, b;

        random_text(sql);
        of(sql);
        change_numbers(sql, other);
        a = of(other);
        b = fresh(other);
        if (a.klass != b.klass || a.flags != b.flags)
            fail_msg("'%s' after '%s'", other, sql);
    }
    /* Most of the texts have a quote, a point or so that is odd. */
    assert_true(kept.alike > ROUNDS / 30);
}
