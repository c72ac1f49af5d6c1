/* SPDX-License-Identifier: BSD-3-Clause */
/* statement.c - what a statement may have changed; see statement.h. */
#include "rowcache/follow/statement.h"

#include <string.h>
#include <strings.h>

enum kind { END, WORD, QUOTED, SIGN, UNSURE };

struct scanner {
    const char *at, *end;
    enum kind kind; /* of the token */
    char sign;
    size_t length;
    char token[QM_NAME_MAX];
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '$';
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void until_line_end(struct scanner *s)
{
    while (s->at < s->end && *s->at != '\n')
        s->at++;
}

/* False: a comment that may be executed, or has no end. */
static bool skip_blanks(struct scanner *s)
{
    for (;;) {
        while (s->at < s->end && is_blank(*s->at))
            s->at++;
        if (s->at == s->end)
            return true;
        if (*s->at == '#') {
            until_line_end(s);
        } else if (s->end - s->at >= 3 && s->at[0] == '-' && s->at[1] == '-' &&
                   is_blank(s->at[2])) {
            until_line_end(s);
        } else if (s->end - s->at >= 2 && s->at[0] == '/' && s->at[1] == '*') {
            const char *close;

            if (s->end - s->at < 4 || s->at[2] == '!' ||
                (s->at[2] == 'M' && s->at[3] == '!'))
                return false;
            close = memmem(s->at + 2, (size_t)(s->end - s->at) - 2, "*/", 2);
            if (!close)
                return false;
            s->at = close + 2;
        } else {
            return true;
        }
    }
}

static void put(struct scanner *s, char c)
{
    if (s->length + 1 >= sizeof s->token || (unsigned char)c >= 0x80 || c == '\0')
        s->kind = UNSURE;
    else
        s->token[s->length++] = c;
}

static void next(struct scanner *s)
{
    s->length = 0;
    s->sign = '\0';
    if (s->kind == UNSURE || !skip_blanks(s)) {
        s->kind = UNSURE;
    } else if (s->at == s->end) {
        s->kind = END;
    } else if (is_word(*s->at) || (unsigned char)*s->at >= 0x80) {
        s->kind = WORD;
        while (s->at < s->end && (is_word(*s->at) || (unsigned char)*s->at >= 0x80))
            put(s, *s->at++);
    } else if (*s->at == '`') {
        s->kind = QUOTED;
        for (s->at++;; put(s, *s->at++)) {
            if (s->at == s->end) {
                s->kind = UNSURE;
                break;
            }
            if (*s->at == '`' && (++s->at == s->end || *s->at != '`'))
                break;
        }
    } else {
        s->kind = SIGN;
        s->sign = *s->at++;
    }
    s->token[s->length] = '\0';
}

static bool is(const struct scanner *s, const char *word)
{
    return s->kind == WORD && strcasecmp(s->token, word) == 0;
}

static bool skip(struct scanner *s, const char *word)
{
    if (!is(s, word))
        return false;
    next(s);
    return true;
}

static bool skip_if_exists(struct scanner *s)
{
    if (!skip(s, "IF"))
        return true;
    skip(s, "NOT");
    return skip(s, "EXISTS");
}

/* The name at the scanner. */
static bool name(struct scanner *s, struct qm_statement *statement, const char *schema)
{
    struct qm_name *to = statement->name + statement->count;

    if (statement->count == QM_STATEMENT_TABLES ||
        (s->kind != WORD && s->kind != QUOTED) || s->length == 0)
        return false;
    memcpy(to->table, s->token, s->length + 1);
    next(s);
    if (s->kind == SIGN && s->sign == '.') {
        next(s);
        if ((s->kind != WORD && s->kind != QUOTED) || s->length == 0)
            return false;
        memcpy(to->schema, to->table, sizeof to->schema);
        memcpy(to->table, s->token, s->length + 1);
        next(s);
    } else {
        if (!schema[0] || strlen(schema) >= sizeof to->schema)
            return false;
        strcpy(to->schema, schema);
    }
    statement->count++;
    return s->kind != UNSURE;
}

static bool comma(struct scanner *s)
{
    if (s->kind != SIGN || s->sign != ',')
        return false;
    next(s);
    return true;
}

/* After the name there may be anything, but what names another table; such a word
 * counts in a string, too. */
static bool no_other_table(struct scanner *s)
{
    for (; s->kind != END; next(s))
        if (s->kind == UNSURE || is(s, "RENAME") || is(s, "EXCHANGE") ||
            is(s, "CONVERT"))
            return false;
    return true;
}

static bool alter_table(struct scanner *s, struct qm_statement *to, const char *schema)
{
    skip(s, "ONLINE");
    skip(s, "IGNORE");
    return skip(s, "TABLE") && skip_if_exists(s) && name(s, to, schema) &&
           no_other_table(s);
}

/* The name of an index, and ON. */
static bool index_on(struct scanner *s)
{
    if (!skip_if_exists(s) || (s->kind != WORD && s->kind != QUOTED))
        return false;
    next(s);
    if (skip(s, "USING"))
        next(s);
    return skip(s, "ON");
}

static bool create(struct scanner *s, struct qm_statement *to, const char *schema)
{
    if (skip(s, "OR") && !skip(s, "REPLACE"))
        return false;
    skip(s, "TEMPORARY");
    skip(s, "ONLINE");
    if (skip(s, "TABLE"))
        return skip_if_exists(s) && name(s, to, schema);
    if (!skip(s, "UNIQUE") && !skip(s, "FULLTEXT"))
        skip(s, "SPATIAL");
    return skip(s, "INDEX") && index_on(s) && name(s, to, schema);
}

static bool drop(struct scanner *s, struct qm_statement *to, const char *schema)
{
    skip(s, "TEMPORARY");
    if (skip(s, "INDEX"))
        return index_on(s) && name(s, to, schema);
    if ((!skip(s, "TABLE") && !skip(s, "TABLES")) || !skip_if_exists(s))
        return false;
    do {
        if (!name(s, to, schema))
            return false;
    } while (comma(s));
    return true;
}

static bool rename_tables(struct scanner *s, struct qm_statement *to,
                          const char *schema)
{
    if ((!skip(s, "TABLE") && !skip(s, "TABLES")) || !skip_if_exists(s))
        return false;
    do {
        if (!name(s, to, schema))
            return false;
        if (!skip(s, "NOWAIT") && skip(s, "WAIT"))
            next(s);
        if (!skip(s, "TO") || !name(s, to, schema))
            return false;
    } while (comma(s));
    return s->kind == END;
}

/* CREATE, ALTER or DROP of a schema. */
static bool schema_named(struct scanner *s, struct qm_statement *to)
{
    if (skip(s, "OR") && !skip(s, "REPLACE"))
        return false;
    if ((!skip(s, "DATABASE") && !skip(s, "SCHEMA")) || !skip_if_exists(s) ||
        (s->kind != WORD && s->kind != QUOTED) || s->length == 0)
        return false;
    memcpy(to->name[0].schema, s->token, s->length + 1);
    to->name[0].table[0] = '\0';
    to->count = 1;
    next(s);
    return s->kind != UNSURE;
}

/* ANALYZE of a table; of a statement it carries it out. */
static bool analyzes_table(struct scanner s)
{
    if (!skip(&s, "ANALYZE"))
        return false;
    if (!skip(&s, "NO_WRITE_TO_BINLOG"))
        skip(&s, "LOCAL");
    return is(&s, "TABLE") || is(&s, "TABLES");
}

static bool is_harmless(const struct scanner *s)
{
    static const char *const words[] = {"BEGIN", "START",  "SAVEPOINT", "RELEASE",
                                        "GRANT", "REVOKE", "FLUSH",     "OPTIMIZE"};

    if (analyzes_table(*s))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is(s, words[i]))
            return true;
    return false;
}

/* What a prepared transaction changed is seen only from XA COMMIT on, and which rows
 * that were may have been told before this program started. */
static enum qm_statement_kind distributed(struct scanner *s)
{
    next(s);
    if (is(s, "START") || is(s, "BEGIN") || is(s, "END") || is(s, "PREPARE") ||
        is(s, "ROLLBACK"))
        return QM_STATEMENT_NOTHING;
    return QM_STATEMENT_ALL_CHANGED;
}

/* The tables of a definition; false: not sure. */
static bool tables_named(struct scanner *s, struct qm_statement *to, const char *schema)
{
    if (skip(s, "ALTER"))
        return alter_table(s, to, schema);
    if (skip(s, "CREATE"))
        return create(s, to, schema);
    if (skip(s, "DROP"))
        return drop(s, to, schema);
    if (skip(s, "RENAME"))
        return rename_tables(s, to, schema);
    if (!skip(s, "TRUNCATE"))
        return false;
    skip(s, "TABLE");
    return name(s, to, schema);
}

void qm_statement_read(struct qm_statement *to, const char *text, size_t length,
                       const char *schema)
{
    struct scanner s = {.at = text, .end = text + length}, again;

    to->kind = QM_STATEMENT_NOTHING;
    to->definition = false;
    to->count = 0;
    next(&s);
    if (is_harmless(&s))
        return;
    if (is(&s, "COMMIT") || is(&s, "ROLLBACK")) {
        next(&s);
        if (!is(&s, "TO"))
            to->kind = QM_STATEMENT_END;
        return;
    }
    if (is(&s, "XA")) {
        to->kind = distributed(&s);
        return;
    }
    to->definition = true;
    again = s;
    if ((skip(&again, "CREATE") || skip(&again, "ALTER") || skip(&again, "DROP")) &&
        schema_named(&again, to)) {
        to->kind = QM_STATEMENT_SCHEMA_CHANGED;
        return;
    }
    to->count = 0;
    to->kind = tables_named(&s, to, schema) ? QM_STATEMENT_TABLES_CHANGED
                                            : QM_STATEMENT_ALL_CHANGED;
}
