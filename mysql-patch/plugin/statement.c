/* SPDX-License-Identifier: BSD-3-Clause */
/* statement.c - see statement.h. */
#include "mysql-patch/plugin/statement.h"

#include <stdbool.h>
#include <string.h>

static bool begins(const struct qm_template *t, const char *words)
{
    return qm_template_begins(t, words);
}

/* Most statements are ruled out by their first letter. */
static unsigned flags_of(const struct qm_template *t)
{
    const unsigned commits = QM_STATEMENT_COMMITS | QM_STATEMENT_CONTROLS;

    switch (t->text[0]) {
    case 'a':
        return begins(t, "alter") || begins(t, "analyze") ? commits : 0;
    case 'b':
        /* One of several statements is that of a compound one. */
        return begins(t, "begin") && !t->several
                   ? QM_STATEMENT_STARTS | QM_STATEMENT_CONTROLS
                   : 0;
    case 'c':
        return begins(t, "commit") ||
                       (begins(t, "create") && !begins(t, "create temporary") &&
                        !begins(t, "create or replace temporary"))
                   ? commits
                   : 0;
    case 'd':
        return begins(t, "drop") && !begins(t, "drop temporary") ? commits : 0;
    case 'e':
        return begins(t, "execute") ? QM_STATEMENT_EXECUTE : 0;
    case 'g':
        return begins(t, "grant") ? commits : 0;
    case 'l':
        return begins(t, "lock") ? commits : 0;
    case 'o':
        return begins(t, "optimize") ? commits : 0;
    case 'r':
        if (begins(t, "rollback"))
            return begins(t, "rollback to") || begins(t, "rollback work to")
                       ? QM_STATEMENT_CONTROLS
                       : commits;
        return begins(t, "rename") || begins(t, "revoke") || begins(t, "repair")
                   ? commits
                   : 0;
    case 's':
        if (begins(t, "start transaction"))
            return QM_STATEMENT_STARTS | QM_STATEMENT_CONTROLS;
        return begins(t, "set") && !begins(t, "set statement") ? QM_STATEMENT_CONTROLS
                                                               : 0;
    case 't':
        return begins(t, "truncate") ? commits : 0;
    default:
        return 0;
    }
}

struct qm_statement qm_statement_of_template(const struct qm_template *t)
{
    return (struct qm_statement){.klass = qm_template_class(t),
                                 .flags = flags_of(t) |
                                          (t->several ? QM_STATEMENT_SEVERAL : 0)};
}

static uint64_t word_at(const char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

/* Where a text is kept, if it is: by its length, middle and end.  Texts that agree in
 * these take the place from each other. */
static struct qm_kept_statement *place_of(struct qm_kept_statement *kept,
                                          const char *sql, size_t len)
{
    uint64_t h = len;

    if (len >= sizeof h)
        h ^= word_at(sql + len - sizeof h) ^ word_at(sql + len / 2 - sizeof h / 2) * 3;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return &kept[(h >> 32) % QM_STATEMENTS_KEPT];
}

static bool is(const struct qm_kept_statement *kept, const char *sql, size_t len)
{
    return len > 0 && kept->len == len && memcmp(kept->text, sql, len) == 0;
}

static void keep(struct qm_kept_statement *kept, const char *sql, size_t len,
                 const struct qm_statement *statement)
{
    if (len == 0 || len > sizeof kept->text)
        return;
    kept->len = len;
    kept->statement = *statement;
    memcpy(kept->text, sql, len);
}

enum { DIGIT = 1, JOINS = 2, NAMES = 4, POINT = 8 };

/* What may make a number beside it something else than a number: letters, and a point.
 * What digits are names within; and behind a
 * point, also with something between, what would be a number is one, too. */
static const unsigned char sorts[256] = {
    ['0' ... '9'] = DIGIT | JOINS, ['A' ... 'Z'] = JOINS, ['a' ... 'z'] = JOINS,
    [0x80 ... 0xff] = JOINS,       ['_'] = JOINS,         ['$'] = JOINS,
    ['.'] = JOINS | POINT,         ['`'] = NAMES,         ['@'] = NAMES,
};

/* Copies a text with 0 in place of each decimal number that stands alone: whatever the
 * number, the template has ? for it, or nothing (in strings and comments).  Returns how
 * long it is, or 0: it cannot be told so, or it is too long. */
static size_t mask(const char *sql, size_t len, char to[QM_STATEMENT_KEPT])
{
    unsigned before = 0, sort;
    size_t n = 0;

    if (len > QM_STATEMENT_KEPT)
        return 0;
    for (size_t i = 0; i < len; before = sort) {
        sort = sorts[(unsigned char)sql[i]];
        if ((sort & NAMES) || ((before & POINT) && !(sort & JOINS)))
            return 0;
        if ((sort & DIGIT) && !(before & JOINS)) {
            size_t first = i;

            while (i < len && (sorts[(unsigned char)sql[i]] & DIGIT))
                i++;
            if (i < len && (sorts[(unsigned char)sql[i]] & JOINS)) {
                memcpy(to + n, sql + first, i - first);
                n += i - first;
            } else {
                to[n++] = '0';
            }
        } else {
            to[n++] = sql[i++];
        }
    }
    return n;
}

struct qm_statement qm_statement_of(struct qm_statements *s, const char *sql,
                                    size_t len)
{
    struct qm_kept_statement *text = place_of(s->texts, sql, len), *masked;
    struct qm_statement statement;
    char buffer[QM_STATEMENT_KEPT];
    struct qm_template t;
    size_t masked_len;

    if (is(text, sql, len)) {
        s->same++;
        return text->statement;
    }
    masked_len = mask(sql, len, buffer);
    masked = place_of(s->masked, buffer, masked_len);
    if (is(masked, buffer, masked_len)) {
        s->alike++;
        statement = masked->statement;
    } else {
        qm_template_make(sql, len, &t);
        statement = qm_statement_of_template(&t);
        keep(masked, buffer, masked_len, &statement);
    }
    keep(text, sql, len, &statement);
    return statement;
}
