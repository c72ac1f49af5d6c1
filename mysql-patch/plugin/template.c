/* SPDX-License-Identifier: BSD-3-Clause */
/* template.c - statements to templates; see template.h.
 *
 * A scanner cuts the text into tokens, a writer puts them down again with canonical
 * spacing.  Between the two stand the rules for lists: a list's element is compared
 * with its predecessor as soon as it is written, and taken back if it is equal, so that
 * a list of a thousand literals never takes more memory than two of them.
 *
 * Invariant of the writer: text[0..len) is made of whole tokens, and len never exceeds
 * QM_TEMPLATE_MAX; once a token did not fit, nothing more is written.
 */
#include "mysql-patch/plugin/template.h"

#include <string.h>
#include <xxhash.h>

enum kind {
    START,   /* before the first token */
    WORD,    /* an identifier, or a keyword that is not special here */
    KEYWORD, /* one of keywords[] */
    QUOTED,  /* an identifier in backquotes, or the quoted name of a user variable */
    LITERAL,
    OPERATOR,
    OPEN,
    CLOSE,
    COMMA,
    DOT,
    AT,
    SEMICOLON,
    END,
};

struct token {
    enum kind kind;
    bool string; /* of a LITERAL */
    const char *text;
    size_t len;
};

struct scanner {
    const char *at, *end;
    enum kind prev;       /* of the token before */
    bool value_next;      /* that token was a keyword after which NULL is a value */
    unsigned executables; /* open executable comments */
};

/* A list whose elements are compared: those within IN (...), or the rows of VALUES. */
struct list {
    bool rows;
    bool has_prev;
    unsigned depth; /* of parentheses around its elements */
    size_t prev_start, prev_end, start;
};

#define MAX_LISTS 16 /* nested; those further in are left as they are */

struct writer {
    struct qm_template *t;
    bool full;
    struct token prev;
    unsigned depth;
    unsigned lists;
    struct list list[MAX_LISTS];
};

/* Keywords after which a sign belongs to the number that follows, and "(" is not that
 * of a call.  By length, so that most words are ruled out at once. */
static const char *const keywords[][12] = {
    [2] = {"as", "by", "in", "is", "on", "or"},
    [3] = {"all", "and", "div", "mod", "not", "set", "xor"},
    [4] = {"case", "else", "from", "into", "join", "like", "over", "then", "when"},
    [5] = {"limit", "union", "using", "value", "where", "rlike"},
    [6] = {"except", "exists", "having", "offset", "regexp", "return", "select",
           "values"},
    [7] = {"between"},
    [8] = {"distinct", "interval"},
    [9] = {"intersect"},
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool is_hex(char c)
{
    return is_digit(c) || (fold(c) >= 'a' && fold(c) <= 'f');
}

/* What an identifier without quotes is made of. */
static bool is_word(char c)
{
    return (fold(c) >= 'a' && fold(c) <= 'z') || is_digit(c) || c == '_' || c == '$' ||
           (unsigned char)c >= 0x80;
}

static bool equals(const char *text, size_t len, const char *word)
{
    for (size_t i = 0; i < len; i++)
        if (fold(text[i]) != word[i]) /* stops at the latest at word's end */
            return false;
    return word[len] == '\0';
}

static bool is_keyword(const char *text, size_t len)
{
    if (len >= sizeof keywords / sizeof keywords[0])
        return false;
    char first = fold(*text);
    for (unsigned i = 0; i < 12 && keywords[len][i]; i++)
        if (keywords[len][i][0] == first && equals(text, len, keywords[len][i]))
            return true;
    return false;
}

/* The character n after the scanner's place, NUL beyond the end. */
static char peek(const struct scanner *s, size_t n)
{
    return (size_t)(s->end - s->at) > n ? s->at[n] : '\0';
}

static const char *after(const char *at, const char *end, char c)
{
    const char *found = memchr(at, c, (size_t)(end - at));
    return found ? found + 1 : end;
}

/* Past spaces and comments. */
static void skip_blank(struct scanner *s)
{
    while (s->at < s->end) {
        char c = *s->at;
        if (is_space(c)) {
            s->at++;
        } else if (c == '#') {
            s->at = after(s->at, s->end, '\n');
        } else if (c == '-' && peek(s, 1) == '-' &&
                   (s->end - s->at == 2 || (unsigned char)peek(s, 2) <= ' ')) {
            s->at = after(s->at, s->end, '\n');
        } else if (c == '/' && peek(s, 1) == '*') {
            if (peek(s, 2) == '!' || (peek(s, 2) == 'M' && peek(s, 3) == '!')) {
                s->at += peek(s, 2) == '!' ? 3 : 4;
                while (is_digit(peek(s, 0)))
                    s->at++;
                s->executables++;
                continue;
            }
            s->at += 2;
            do
                s->at = after(s->at, s->end, '*');
            while (s->at < s->end && *s->at != '/');
            if (s->at < s->end)
                s->at++;
        } else if (s->executables && c == '*' && peek(s, 1) == '/') {
            s->at += 2;
            s->executables--;
        } else {
            return;
        }
    }
}

/* Past what is quoted by the character at at; a text that ends within ends it. */
static const char *skip_quoted(const char *at, const char *end)
{
    char quote = *at++;
    while (at < end) {
        if (*at == '\\' && quote != '`') {
            at += end - at > 1 ? 2 : 1;
        } else if (*at == quote) {
            if (end - at < 2 || at[1] != quote)
                return at + 1;
            at += 2;
        } else {
            at++;
        }
    }
    return end;
}

/* The end of an exponent that starts at at, or at if there is none. */
static const char *skip_exponent(const char *at, const char *end)
{
    const char *p = at;
    if (p == end || fold(*p) != 'e')
        return at;
    p++;
    if (p < end && (*p == '+' || *p == '-'))
        p++;
    if (p == end || !is_digit(*p))
        return at;
    while (p < end && is_digit(*p))
        p++;
    return p;
}

/* The end of a number that starts at at, or at if what is there is none: an identifier
 * may begin with digits. */
static const char *skip_number(const char *at, const char *end)
{
    const char *p = at;
    if (end - p > 2 && *p == '0' && (fold(p[1]) == 'x' || fold(p[1]) == 'b')) {
        bool hex = fold(p[1]) == 'x';
        p += 2;
        while (p < end && (hex ? is_hex(*p) : *p == '0' || *p == '1'))
            p++;
        if (p > at + 2 && (p == end || !is_word(*p)))
            return p;
        p = at;
    }
    while (p < end && is_digit(*p))
        p++;
    if (p < end && *p == '.') {
        bool digits = p > at;
        p++;
        if (!digits && (p == end || !is_digit(*p)))
            return at;
        while (p < end && is_digit(*p))
            p++;
        return skip_exponent(p, end);
    }
    p = skip_exponent(p, end);
    return p < end && is_word(*p) ? at : p;
}

/* Whether a sign, or NULL, that stands after the token before is (part of) a value. */
static bool operand_expected(const struct scanner *s)
{
    return s->prev == START || s->prev == OPERATOR || s->prev == OPEN ||
           s->prev == COMMA || s->prev == KEYWORD;
}

static void scan_word(struct scanner *s, struct token *t)
{
    const char *start = s->at;
    while (s->at < s->end && is_word(*s->at))
        s->at++;
    t->text = start;
    t->len = (size_t)(s->at - start);
    t->kind = WORD;
    if (s->prev == DOT || s->prev == AT)
        return;

    /* x'4d', b'0110', n'text', _utf8mb4 'text' */
    if (t->len == 1 && peek(s, 0) == '\'' && strchr("xbn", fold(*start))) {
        s->at = skip_quoted(s->at, s->end);
        t->kind = LITERAL;
        t->string = true;
        return;
    }
    if (*start == '_') {
        struct scanner ahead = *s;
        skip_blank(&ahead);
        char c = peek(&ahead, 0);
        if (c == '\'' || c == '"') {
            ahead.at = skip_quoted(ahead.at, ahead.end);
            *s = ahead;
            t->kind = LITERAL;
            t->string = true;
            return;
        }
    }
    if (is_keyword(start, t->len)) {
        t->kind = KEYWORD;
    } else if (equals(start, t->len, "null") || equals(start, t->len, "true") ||
               equals(start, t->len, "false")) {
        /* "IS NULL", "NOT NULL", "SET NULL" are grammar. */
        if (operand_expected(s) && (s->prev != KEYWORD || s->value_next))
            t->kind = LITERAL;
    }
}

static void scan_operator(struct scanner *s, struct token *t)
{
    t->kind = OPERATOR;
    t->text = s->at++;
    if (strchr("<>=!:|&", *t->text))
        while (s->at < s->end && *s->at && strchr("<>=!:|&", *s->at))
            s->at++;
    else if (*t->text == '-' && peek(s, 0) == '>') /* column->'$.path', ->> */
        s->at += peek(s, 1) == '>' ? 2 : 1;
    t->len = (size_t)(s->at - t->text);
}

/* A sign that belongs to the literal that follows; leaves the scanner before that. */
static bool is_sign(struct scanner *s)
{
    if (!operand_expected(s))
        return false;
    struct scanner ahead = *s;
    ahead.at++;
    skip_blank(&ahead);
    char c = peek(&ahead, 0);
    if (c != '?' &&
        (!(is_digit(c) || c == '.') || skip_number(ahead.at, ahead.end) == ahead.at))
        return false;
    *s = ahead;
    return true;
}

static void scan(struct scanner *s, struct token *t)
{
    skip_blank(s);
    t->string = false;
    if (s->at == s->end) {
        t->kind = END;
        return;
    }
    char c = *s->at;
    if ((c == '-' || c == '+') && is_sign(s))
        c = *s->at;

    t->text = s->at;
    t->len = 1;
    const char *end;
    if (c == '\'' || c == '"') {
        s->at = skip_quoted(s->at, s->end);
        t->kind = s->prev == AT ? QUOTED : LITERAL;
        t->string = true;
        t->len = (size_t)(s->at - t->text);
    } else if (c == '`') {
        s->at = skip_quoted(s->at, s->end);
        t->kind = QUOTED;
        t->len = (size_t)(s->at - t->text);
    } else if ((is_digit(c) || c == '.') && s->prev != DOT && s->prev != AT &&
               (c != '.' || (s->prev != WORD && s->prev != QUOTED)) &&
               (end = skip_number(s->at, s->end)) > s->at) {
        s->at = end;
        t->kind = LITERAL;
    } else if (is_word(c)) {
        scan_word(s, t);
    } else {
        switch (c) {
        case '?':
            t->kind = LITERAL;
            break;
        case '(':
            t->kind = OPEN;
            break;
        case ')':
            t->kind = CLOSE;
            break;
        case ',':
            t->kind = COMMA;
            break;
        case '.':
            t->kind = DOT;
            break;
        case '@':
            t->kind = AT;
            break;
        case ';':
            t->kind = SEMICOLON;
            break;
        default:
            scan_operator(s, t);
            s->prev = OPERATOR;
            return;
        }
        s->at++;
    }
    s->prev = t->kind;
    s->value_next =
        t->kind == KEYWORD &&
        (equals(t->text, t->len, "then") || equals(t->text, t->len, "else") ||
         equals(t->text, t->len, "select") || equals(t->text, t->len, "return"));
}

static bool wants_space(enum kind prev, enum kind next)
{
    if (prev == START || prev == OPEN || prev == DOT || prev == AT)
        return false;
    if (next == COMMA || next == DOT || next == CLOSE || next == SEMICOLON)
        return false;
    return !(next == OPEN && (prev == WORD || prev == QUOTED));
}

static void put(struct writer *w, const struct token *t)
{
    struct qm_template *out = w->t;
    bool space = wants_space(w->prev.kind, t->kind);
    const char *text = t->kind == LITERAL ? "?" : t->text;
    size_t len = t->kind == LITERAL ? 1 : t->len;

    if (w->full || len + space > QM_TEMPLATE_MAX - out->len) {
        w->full = true;
        return;
    }
    if (space)
        out->text[out->len++] = ' ';
    if (t->kind == WORD || t->kind == KEYWORD)
        for (size_t i = 0; i < len; i++)
            out->text[out->len + i] = fold(text[i]);
    else
        memcpy(out->text + out->len, text, len);
    out->len += len;
    w->prev = *t;
}

/* An element of the innermost list is complete: takes it back if it equals the one
 * before. */
static void end_element(struct writer *w)
{
    struct list *l = &w->list[w->lists - 1];
    char *text = w->t->text;

    if (l->start > w->t->len) /* it is empty: the space was not written */
        l->start = w->t->len;

    size_t len = w->t->len - l->start;
    if (l->has_prev && len == l->prev_end - l->prev_start &&
        !memcmp(text + l->start, text + l->prev_start, len)) {
        w->t->len = l->prev_end;
        return;
    }
    l->has_prev = true;
    l->prev_start = l->start;
    l->prev_end = w->t->len;
}

static void begin_list(struct writer *w, bool rows, size_t start)
{
    if (w->lists == MAX_LISTS)
        return;
    w->list[w->lists++] =
        (struct list){.rows = rows, .depth = w->depth, .start = start};
}

/* The list whose elements stand at the present depth; NULL if there is none. */
static struct list *list_here(struct writer *w)
{
    struct list *l = w->lists ? &w->list[w->lists - 1] : NULL;
    return l && l->depth == w->depth ? l : NULL;
}

/* Rows are a list without parentheses of its own: anything but another row ends it. */
static void end_rows(struct writer *w, enum kind next)
{
    struct list *l = list_here(w);
    if (!l || !l->rows)
        return;
    bool row_before = w->prev.kind == CLOSE;
    if (row_before && next == COMMA)
        return;
    if (w->prev.kind == COMMA && next == OPEN)
        return;
    if (row_before)
        end_element(w);
    w->lists--;
}

static void write_token(struct writer *w, const struct token *t)
{
    end_rows(w, t->kind);
    struct list *l = list_here(w);
    bool keyword = w->prev.kind == KEYWORD;

    switch (t->kind) {
    case OPEN: {
        bool in = keyword && equals(w->prev.text, w->prev.len, "in");
        bool rows = keyword && (equals(w->prev.text, w->prev.len, "values") ||
                                equals(w->prev.text, w->prev.len, "value"));
        put(w, t);
        if (w->full)
            return;
        if (rows)
            begin_list(w, true, w->t->len - 1);
        else if (l && w->prev.kind == OPEN && l->rows)
            l->start = w->t->len - 1;
        w->depth++;
        if (in)
            begin_list(w, false, w->t->len);
        return;
    }
    case CLOSE:
        if (l) {
            end_element(w);
            w->lists--;
        }
        if (w->depth)
            w->depth--;
        break;
    case COMMA:
        if (l) {
            end_element(w);
            put(w, t);
            l->start = w->t->len + 1; /* past the space that follows */
            return;
        }
        break;
    case LITERAL:
        /* 'a' 'b' is one string. */
        if (t->string && w->prev.kind == LITERAL && w->prev.string)
            return;
        break;
    default:
        break;
    }
    put(w, t);
}

void qm_template_make(const char *sql, size_t len, struct qm_template *out)
{
    struct scanner s = {.at = sql, .end = sql + len, .prev = START};
    struct writer w = {.t = out, .prev = {.kind = START}};
    struct token t, semicolon = {.kind = END};

    out->len = 0;
    out->several = false;
    while (!w.full) {
        scan(&s, &t);
        if (t.kind == SEMICOLON || t.kind == END) {
            end_rows(&w, t.kind);
            w.depth = w.lists = 0;
        }
        if (t.kind == END)
            break;
        if (t.kind == SEMICOLON) {
            semicolon = t; /* written if anything follows */
            continue;
        }
        if (semicolon.kind == SEMICOLON && w.prev.kind != START) {
            write_token(&w, &semicolon);
            out->several = true;
        }
        semicolon.kind = END;
        write_token(&w, &t);
    }
    out->text[out->len] = '\0';
}

uint64_t qm_template_class(const struct qm_template *t)
{
    uint64_t h = XXH64(t->text, t->len, 0);
    return h ? h : 1;
}

bool qm_template_begins(const struct qm_template *t, const char *words)
{
    /* Each statement is compared with a dozen, nearly always in vain. */
    if (t->text[0] != words[0])
        return false;
    size_t len = strlen(words);
    return t->len >= len && !memcmp(t->text, words, len) &&
           (t->len == len || !is_word(t->text[len]));
}

/* The length of the valid UTF-8 character at text, or 0. */
static size_t utf8_length(const unsigned char *text, size_t len)
{
    size_t n = text[0] < 0x80                       ? 1
               : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
               : (text[0] & 0xf0) == 0xe0           ? 3
               : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                    : 0;
    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0; /* overlong, a surrogate, or beyond Unicode */
    return n;
}

size_t qm_template_name(const struct qm_template *t, char *name, size_t max)
{
    const unsigned char *text = (const unsigned char *)t->text;
    size_t len = 0;

    for (size_t i = 0; i < t->len;) {
        size_t n = utf8_length(text + i, t->len - i);
        bool bad = n == 0 || text[i] < ' ' || text[i] == 0x7f;
        if (bad)
            n = 1;
        if (n > max - len)
            break;
        if (bad)
            name[len] = '?';
        else
            memcpy(name + len, text + i, n);
        len += n;
        i += n;
    }
    name[len] = '\0';
    return len;
}
