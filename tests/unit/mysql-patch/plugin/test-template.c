/* SPDX-License-Identifier: BSD-3-Clause */
/* test-template.c - statements to templates: what is the same, what is not, and that no
 * text whatever is read or written beyond its ends. */
#include <stdio.h>
#include "tests/harness.h"

#include "mysql-patch/plugin/template.h"

/* The template of a text that ends where its allocation does, so that a sanitizer sees
 * what is read beyond. */
static struct qm_template *make(const char *sql, size_t len)
{
    static struct qm_template t;
    char *copy = malloc(len + !len);

    assert_non_null(copy);
    memcpy(copy, sql, len);
    qm_template_make(copy, len, &t);
    free(copy);
    assert_true(t.len <= QM_TEMPLATE_MAX);
    assert_int_equal(t.text[t.len], '\0');
    return &t;
}

static void check(const char *sql, const char *expected)
{
    assert_string_equal(make(sql, strlen(sql))->text, expected);
    /* A template is its own template. */
    assert_string_equal(make(expected, strlen(expected))->text, expected);
}

TEST(test_literals)
{
    check("SELECT * FROM item WHERE i_id = 42", "select * from item where i_id = ?");
    check("select * from item where i_id=?", "select * from item where i_id = ?");
    check("select 'it''s', \"a \"\"b\"\"\", 'back\\'slash'", "select ?, ?, ?");
    check("select 'a' 'b'\n'c'", "select ?");
    check("select 1 'alias'", "select ? ?");
    check("select 0x1F, 0b101, x'4D', X'4d', b'01', n'text', N'text'",
          "select ?, ?, ?, ?, ?, ?, ?");
    check("select _utf8mb4'x', _latin1 'x', _utf8", "select ?, ?, _utf8");
    check("select 1.5, .5, 5., 1e10, 1.5e-3, 2E+4, 1e", "select ?, ?, ?, ?, ?, ?, 1e");
    check("select 1.5e3abc", "select ? abc");
    check("select 'unterminated", "select ?");
    check("select 'unterminated \\", "select ?");
    check("select date '2008-06-25', interval 3 day", "select date ?, interval ? day");
}

TEST(test_signs)
{
    check("select -1, +1, - 1, a-1, a - 1, -a", "select ?, ?, ?, a - ?, a - ?, - a");
    check("select a=-1 and b in (-1)", "select a = ? and b in (?)");
    check("select a=-? and b", "select a = ? and b");
    check("select a between -1 and -2", "select a between ? and ?");
    check("select (1)-1, 3*-4, `a`-1", "select (?) - ?, ? * ?, `a` - ?");
    check("limit -0.5", "limit ?");
    check("select 1--1", "select ? - ?");
}

TEST(test_null)
{
    check("insert into t values (NULL, 'a', TRUE, false)",
          "insert into t values (?, ?, ?, ?)");
    check("update t set a = null where b is null and c is not NULL",
          "update t set a = ? where b is null and c is not null");
    check("select null, case when a is true then null else false end",
          "select ?, case when a is true then ? else ? end");
    check("create table t (a int null, b int not null default 7)",
          "create table t(a int null, b int not null default ?)");
}

TEST(test_identifiers)
{
    check("SELECT C1.c_2x, t.1st, `Back``Quoted 1`.`X` FROM 2nd, _x$9",
          "select c1.c_2x, t.1st, `Back``Quoted 1`.`X` from 2nd, _x$9");
    check("select 0xZZ, 0b2, 1e5x", "select 0xzz, 0b2, 1e5x");
    check("select t.true, t.null, t.x'a'", "select t.true, t.null, t.x ?");
    check("set @a := 1, @`b c`=2, @'d'=3, @@global.x=4, @@y = -5",
          "set @a := ?, @`b c` = ?, @'d' = ?, @@global.x = ?, @@y = ?");
    check("select stra\xc3\x9f"
          "e, A\xc3\x84",
          "select stra\xc3\x9f"
          "e, a\xc3\x84");
    check("select `unterminated", "select `unterminated");
    /* In an identifier a backslash is a character as any. */
    check("select `a\\`, 'x' from `b\\\\`, c", "select `a\\`, ? from `b\\\\`, c");
}

TEST(test_spacing)
{
    check("  select\t a , b\r\n\vfrom\f t  ;  ", "select a, b from t");
    check("select count( * ),max( a)from t", "select count(*), max(a) from t");
    check("select a+b, a +b, a+ b, a<=b, a<>b, a||b, not(a), (a)",
          "select a + b, a + b, a + b, a <= b, a <> b, a || b, not (a), (a)");
    check("select a -> '$.x', b->>'$.y'", "select a -> ?, b ->> ?");
    check("", "");
    check(" \n", "");
    check(";;", "");
}

TEST(test_comments)
{
    check("select /* a ' comment */ 1 -- the rest '\n, 2 # and '\n, 3",
          "select ?, ?, ?");
    check("select 1/**/+/***/2/*/ */", "select ? + ?");
    check("select 1 --", "select ?");
    check("select 1 --2", "select ? - ?");
    check("select /*!50100 straight_join */ 1, /*M! 2 */ /*!*/",
          "select straight_join ?, ?");
    check("select /*+ hint */ 1 /* unterminated", "select ?");
    check("select 1 */ 2", "select ? * / ?");
}

TEST(test_lists)
{
    check("select 1 from t where a in (1,2, 3) and b in(?)",
          "select ? from t where a in (?) and b in (?)");
    check("select a in (1, b, 2, 2, 3, c+1, c+2)", "select a in (?, b, ?, c + ?)");
    check("select (a, b) in ((1,2),(3,4),(5,6))", "select (a, b) in ((?, ?))");
    check("select a in (select b from t where c in (1,2)), 3",
          "select a in (select b from t where c in (?)), ?");
    check("select f(1,2), g(1,1)", "select f(?, ?), g(?, ?)");
    check("insert into t(a,b) values (1,now()),(2,now()),(3,now())",
          "insert into t(a, b) values (?, now())");
    check("insert into t values (1,2),(3,default),(4,default) returning a",
          "insert into t values (?, ?), (?, default) returning a");
    check("insert t value (1),(2) on duplicate key update a = values(a), b = values(b)",
          "insert t value (?) on duplicate key update a = values (a), b = values (b)");
    check("insert into t values (1,2),(3,4);", "insert into t values (?, ?)");
    check("select * from (values (1,2),(3,4)) v, (values (1),(2)) w",
          "select * from (values (?, ?)) v, (values (?)) w");
    check("select a in (1,,,,2) or in (,) or in () or values (,,),(,,)",
          "select a in (?,, ?) or in () or in () or values (,,)");
    /* What comes after a list is none. */
    check("select a in (1, 1), f(2, 2, 2)", "select a in (?), f(?, ?, ?)");
    check("values (1), (2) union select (1), (1)", "values (?) union select (?), (?)");
    check("values (1) (2) , (3)", "values (?) (?), (?)");
    check("in (1,2", "in (?, ?");
    check("in (1))) , in (2,2)", "in (?))), in (?)");
}

TEST(test_several)
{
    check("select 1; select 2", "select ?; select ?");
    assert_true(make("select 1; select 2", 18)->several);
    assert_true(make("; begin not atomic select 1; end", 32)->several);
    assert_false(make("select 1;", 9)->several);
    assert_false(make(";select 1;;", 11)->several);
    check("select a in (1,2; ) , 2", "select a in (?, ?;), ?");
}

TEST(test_begins)
{
    struct qm_template *t = make(" START\nTransaction read only", 28);

    assert_true(qm_template_begins(t, "start transaction"));
    assert_true(qm_template_begins(t, "start"));
    assert_false(qm_template_begins(t, "star"));
    assert_false(qm_template_begins(t, "start transaction read only now"));
    assert_true(qm_template_begins(make("commit", 6), "commit"));
    assert_false(qm_template_begins(make("commits", 7), "commit"));
}

TEST(test_class)
{
    static const char *const same[] = {
        "SELECT i_title FROM item WHERE i_id=17 AND i_subject='ARTS' LIMIT 50",
        "select i_title from item where i_id = ? and i_subject = ? limit ?",
        "/**/ select i_title\n from item where i_id=-1 and i_subject=\"x\" limit 1",
    };
    static const char *const other[] = {
        "select i_title from item where i_id = ? and i_subject = ?",
        "select i_title from `item` where i_id = ? and i_subject = ? limit ?",
        "select i_title from item2 where i_id = ? and i_subject = ? limit ?",
        "",
    };
    uint64_t klass = qm_template_class(make(same[0], strlen(same[0])));

    for (size_t i = 1; i < sizeof same / sizeof same[0]; i++)
        assert_int_equal(qm_template_class(make(same[i], strlen(same[i]))), klass);
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_int_not_equal(qm_template_class(make(other[i], strlen(other[i]))),
                             klass);
    /* Classes are kept by servers and in traces: they must not change. */
    assert_int_equal(qm_template_class(make("select 1", 8)),
                     UINT64_C(0x5cebf5a72fb4640c));
}

/* Long statements: a list takes no room; else whole tokens up to the limit. */
TEST(test_long)
{
    size_t size = 2000000, len = 0;
    char *sql = malloc(size);
    struct qm_template *t;

    assert_non_null(sql);
    len = (size_t)sprintf(sql, "select a from t where a in (0");
    for (int i = 1; i < 100000; i++)
        len += (size_t)sprintf(sql + len, ",%d", i);
    len += (size_t)sprintf(sql + len, ") order by b");
    t = make(sql, len);
    assert_string_equal(t->text, "select a from t where a in (?) order by b");

    len = (size_t)sprintf(sql, "insert into t values ");
    for (int i = 0; i < 50000; i++)
        len += (size_t)sprintf(sql + len, "%s(%d,'x',now())", i ? "," : "", i);
    t = make(sql, len);
    assert_string_equal(t->text, "insert into t values (?, ?, now())");

    len = (size_t)sprintf(sql, "select ");
    for (int i = 0; i < 50000; i++)
        len += (size_t)sprintf(sql + len, "%sidentifier%05d", i ? "," : "", i);
    t = make(sql, len);
    assert_in_range(t->len, QM_TEMPLATE_MAX - 17, QM_TEMPLATE_MAX);
    assert_true(t->text[t->len - 1] == ',' ||
                (t->text[t->len - 1] >= '0' && t->text[t->len - 1] <= '9'));

    memset(sql, '(', size);
    t = make(sql, size);
    assert_int_equal(t->len, QM_TEMPLATE_MAX);

    /* One token that is longer than any template. */
    memset(sql, 'a', size);
    t = make(sql, size);
    assert_int_equal(t->len, 0);

    /* Lists within lists, more than are kept track of. */
    len = 0;
    for (int i = 0; i < 40; i++)
        len += (size_t)sprintf(sql + len, "in (1,1,");
    for (int i = 0; i < 40; i++)
        len += (size_t)sprintf(sql + len, "2,2)");
    make(sql, len);
    free(sql);
}

TEST(test_name)
{
    char name[64];
    struct qm_template *t;

    t = make("select `\xe2\x82\xac` from t", 19);
    assert_int_equal(qm_template_name(t, name, 63), t->len);
    assert_string_equal(name, "select `\xe2\x82\xac` from t");
    assert_int_equal(qm_template_name(t, name, 10), 8); /* not within a character */
    assert_string_equal(name, "select `");
    assert_int_equal(qm_template_name(t, name, 11), 11);
    assert_int_equal(qm_template_name(t, name, 0), 0);
    assert_string_equal(name, "");

    /* A lone byte, an overlong form, a surrogate, too large, cut off, unprintable. */
    static const struct {
        const char *sql, *name;
    } bad[] = {
        {"`\xff`", "`?`"},           {"`\xc0\x80`", "`??`"},
        {"`\xed\xa0\x80`", "`???`"}, {"`\xf4\x90\x80\x80`", "`????`"},
        {"`\xe2\x82`", "`??`"},      {"`\xe2\x82", "`??"},
        {"`a\nb\x7f`", "`a?b?`"},    {"`\xf0\x9f\x98\x80`", "`\xf0\x9f\x98\x80`"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        qm_template_name(make(bad[i].sql, strlen(bad[i].sql)), name, 63);
        assert_string_equal(name, bad[i].name);
    }
    t = make("`a\0b`", 5);
    qm_template_name(t, name, 63);
    assert_string_equal(name, "`a?b`");
}

static uint64_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Texts of random pieces: nothing but the checks in make() and of the sanitizers; and
 * that a template of fewer bytes than the limit is its own template, when it has no
 * NUL. */
TEST(test_random)
{
    static const char *const pieces[] = {
        "select ", "in",    "values", "(",     ")",      ",",    "'",    "\"", "`",
        "\\",      "--",    "-- ",    "/*",    "*/",     "/*!",  "/*M!", "#",  "\n",
        "1",       "0x",    "0b",     "1e",    ".",      "e5",   "+",    "-",  "?",
        "null",    "_utf8", "@",      ";",     " ",      "x'",   "a",    "B",  "::",
        "->>",     "=",     "\xe2",   "\xff",  "(?, ?)", "in (", "),(",  "%",  "\x80",
        "$",       "true",  "then",   "then ", "0",
    };
    const size_t n = sizeof pieces / sizeof pieces[0];
    uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    static struct qm_template first;
    char sql[8192], name[441];

    for (int i = 0; i < 60000; i++) {
        size_t len = 0, parts = random_next(&x) % (i % 100 ? 24 : 1200);
        while (parts--) {
            uint64_t r = random_next(&x);
            if (r % 16 == 0) {
                sql[len++] = (char)(r >> 32);
            } else {
                const char *piece = pieces[(r >> 8) % n];
                memcpy(sql + len, piece, strlen(piece));
                len += strlen(piece);
            }
        }
        first = *make(sql, len);
        assert_true(first.len <= 2 * len);
        size_t limit = (size_t)(x % sizeof name);
        assert_true(qm_template_name(&first, name, limit) <= limit);
        assert_int_equal(name[strlen(name)], '\0');
    }
}
