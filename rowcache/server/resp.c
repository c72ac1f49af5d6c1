/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.c - Redis's protocol: commands from bytes; see resp.h. */
#include "rowcache/server/resp.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS_MAX = 1024 * 1024,
    WORDS_UNTRUSTED = 10,
    BULK_UNTRUSTED = 16384,
    WORDS_KEPT = 1024,
    INLINE_KEPT = 4096,
};

void qm_resp_init(struct qm_resp *resp, size_t max_bulk)
{
    *resp = (struct qm_resp){.max_bulk = max_bulk};
}

void qm_resp_free(struct qm_resp *resp)
{
    free(resp->word);
    free(resp->inline_words);
    *resp = (struct qm_resp){0};
}

void qm_resp_done(struct qm_resp *resp)
{
    resp->count = 0;
    if (resp->room > WORDS_KEPT) {
        free(resp->word);
        resp->word = NULL;
        resp->room = 0;
    }
    if (resp->inline_length > INLINE_KEPT) {
        free(resp->inline_words);
        resp->inline_words = NULL;
    }
    resp->inline_length = 0;
}

static int fail(struct qm_resp *resp, const char *error)
{
    resp->error = error;
    return -1;
}

static bool add_word(struct qm_resp *resp, size_t at, size_t length)
{
    if (resp->count == resp->room) {
        unsigned room = resp->room ? resp->room * 2 : 8;
        struct qm_word *more = realloc(resp->word, room * sizeof *more);

        if (!more)
            return false;
        resp->word = more;
        resp->room = room;
    }
    resp->word[resp->count++] = (struct qm_word){at, length};
    return true;
}

/* The number in a line behind its first byte.  1, 0: the line is not whole; -1. */
static int read_number(struct qm_resp *resp, const char *bytes, size_t length,
                       const char *too_big, int64_t *value)
{
    size_t from = resp->at + 1, i = from;
    const char *end = length > from ? memchr(bytes + from, '\r', length - from) : NULL;
    bool negative = false;

    if (!end) {
        if (length - resp->at > QM_RESP_INLINE_MAX)
            return fail(resp, too_big);
        return 0;
    }
    if ((size_t)(end - bytes) + 1 >= length)
        return 0;
    if (bytes[i] == '-') {
        negative = true;
        i++;
    }
    *value = 0;
    if (bytes + i == end || end - (bytes + i) > 18) {
        *value = INT64_MIN;
    } else {
        for (; bytes + i < end; i++) {
            if (!isdigit((unsigned char)bytes[i])) {
                *value = INT64_MIN;
                break;
            }
            *value = *value * 10 + (bytes[i] - '0');
        }
        if (negative && *value != INT64_MIN)
            *value = -*value;
    }
    resp->at = (size_t)(end - bytes) + 2;
    return 1;
}

/* --- inline commands: words with blanks between them, as sdssplitargs() has it --- */

static int hex(char c)
{
    if (isdigit((unsigned char)c))
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One character of a word in quotes. */
static char unescape(const char **at, const char *end)
{
    const char *p = *at;

    if (end - p >= 4 && p[1] == 'x' && hex(p[2]) >= 0 && hex(p[3]) >= 0) {
        *at += 4;
        return (char)(hex(p[2]) << 4 | hex(p[3]));
    }
    *at += 2;
    switch (p[1]) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return p[1];
    }
}

static bool split(struct qm_resp *resp, const char *at, const char *end)
{
    char *to = resp->inline_words;

    for (;;) {
        char *word = to, quote = '\0';

        while (at < end && isspace((unsigned char)*at))
            at++;
        if (at == end)
            break;
        while (at < end && (quote || !isspace((unsigned char)*at))) {
            if (quote == '"' && *at == '\\' && at + 1 < end) {
                *to++ = unescape(&at, end);
            } else if (quote == '\'' && *at == '\\' && at + 1 < end && at[1] == '\'') {
                *to++ = '\'';
                at += 2;
            } else if (quote && *at == quote) {
                at++;
                if (at < end && !isspace((unsigned char)*at))
                    return false;
                quote = '\0';
                break;
            } else if (!quote && (*at == '"' || *at == '\'')) {
                quote = *at++;
            } else {
                *to++ = *at++;
            }
        }
        if (quote ||
            !add_word(resp, (size_t)(word - resp->inline_words), (size_t)(to - word)))
            return false;
    }
    return true;
}

static int parse_inline(struct qm_resp *resp, const char *bytes, size_t length,
                        size_t *used)
{
    const char *newline = memchr(bytes, '\n', length);
    char *words;

    if (!newline)
        return length > QM_RESP_INLINE_MAX
                   ? fail(resp, "Protocol error: too big inline request")
                   : 0;
    *used = (size_t)(newline - bytes) + 1;
    words = realloc(resp->inline_words, *used);
    if (!words)
        return fail(resp, "Protocol error: out of memory");
    resp->inline_words = words;
    resp->inline_length = *used;
    resp->count = 0;
    return split(resp, bytes, newline)
               ? 1
               : fail(resp, "Protocol error: unbalanced quotes in request");
}

/* --- arrays of bulk strings --- */

static int parse_count(struct qm_resp *resp, const char *bytes, size_t length)
{
    int64_t value;
    int r = read_number(resp, bytes, length,
                        "Protocol error: too big mbulk count string", &value);

    if (r != 1)
        return r;
    if (value > WORDS_MAX || value == INT64_MIN)
        return fail(resp, "Protocol error: invalid multibulk length");
    if (value > WORDS_UNTRUSTED && !resp->trusted)
        return fail(resp, "Protocol error: unauthenticated multibulk length");
    resp->left = value > 0 ? (unsigned)value : 0;
    resp->count = 0;
    resp->in_array = true;
    return 1;
}

static int parse_bulk(struct qm_resp *resp, const char *bytes, size_t length)
{
    int64_t value;
    int r;

    if (!resp->in_bulk) {
        if (resp->at == length)
            return 0;
        if (bytes[resp->at] != '$') {
            char c = bytes[resp->at];

            snprintf(resp->error_text, sizeof resp->error_text,
                     "Protocol error: expected '$', got '%c'",
                     isprint((unsigned char)c) ? c : '?');
            return fail(resp, resp->error_text);
        }
        r = read_number(resp, bytes, length,
                        "Protocol error: too big bulk count string", &value);
        if (r != 1)
            return r;
        if (value < 0 || (uint64_t)value > resp->max_bulk)
            return fail(resp, "Protocol error: invalid bulk length");
        if (value > BULK_UNTRUSTED && !resp->trusted)
            return fail(resp, "Protocol error: unauthenticated bulk length");
        resp->bulk = (size_t)value;
        resp->in_bulk = true;
    }
    if (length - resp->at < resp->bulk + 2)
        return 0;
    if (!add_word(resp, resp->at, resp->bulk))
        return fail(resp, "Protocol error: out of memory");
    resp->at += resp->bulk + 2;
    resp->in_bulk = false;
    resp->left--;
    return 1;
}

int qm_resp_parse(struct qm_resp *resp, const char *bytes, size_t length, size_t *used)
{
    int r;

    if (length == 0)
        return 0;
    if (!resp->in_array) {
        resp->inline_length = 0;
        if (bytes[0] != '*')
            return parse_inline(resp, bytes, length, used);
        resp->at = 0;
        r = parse_count(resp, bytes, length);
        if (r != 1)
            return r;
    }
    while (resp->left > 0) {
        r = parse_bulk(resp, bytes, length);
        if (r != 1)
            return r;
    }
    *used = resp->at;
    resp->at = 0;
    resp->in_array = false;
    return 1;
}

const char *qm_resp_word(const struct qm_resp *resp, const char *bytes, unsigned i)
{
    return (resp->inline_length > 0 ? resp->inline_words : bytes) + resp->word[i].at;
}
