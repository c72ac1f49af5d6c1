/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - a row as a JSON object; see json.h.
 *
 * Written here and not by a library: a library's numbers are doubles and 64-bit
 * integers, and MariaDB's have up to 65 digits. */
#include "rowcache/fill/json.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_room(struct qm_text *text, size_t more)
{
    size_t room = text->room ? text->room : 256;
    char *bytes;

    if (text->failed)
        return false;
    while (room < text->length + more)
        room *= 2;
    if (room == text->room)
        return true;
    bytes = realloc(text->bytes, room);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->room = room;
    return true;
}

void qm_text_add(struct qm_text *text, const void *bytes, size_t length)
{
    if (length > 0 && make_room(text, length)) {
        memcpy(text->bytes + text->length, bytes, length);
        text->length += length;
    }
}

void qm_text_free(struct qm_text *text)
{
    free(text->bytes);
    *text = (struct qm_text){0};
}

static void add_char(struct qm_text *text, char c)
{
    qm_text_add(text, &c, 1);
}

static void add_string(struct qm_text *text, const char *value, size_t length)
{
    size_t from = 0;

    add_char(text, '"');
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)value[i];
        char escape[8];

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        qm_text_add(text, value + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        qm_text_add(text, escape, strlen(escape));
    }
    qm_text_add(text, value + from, length - from);
    add_char(text, '"');
}

static void add_base64(struct qm_text *text, const char *value, size_t length)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)value;

    add_char(text, '"');
    for (size_t i = 0; i < length; i += 3) {
        size_t n = length - i < 3 ? length - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (n > 2 ? p[i + 2] : 0);
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        n > 1 ? digits[bits >> 6 & 63] : '=',
                        n > 2 ? digits[bits & 63] : '='};

        qm_text_add(text, four, sizeof four);
    }
    add_char(text, '"');
}

/* ZEROFILL puts zeros before a number, which JSON forbids. */
static void add_number(struct qm_text *text, const char *value, size_t length)
{
    if (length > 0 && *value == '-') {
        add_char(text, '-');
        value++, length--;
    }
    while (length > 1 && value[0] == '0' && value[1] >= '0' && value[1] <= '9')
        value++, length--;
    qm_text_add(text, value, length);
}

static void add_bits(struct qm_text *text, const char *value, size_t length)
{
    uint64_t number = 0;
    char digits[24];

    for (size_t i = 0; i < length; i++)
        number = number << 8 | (unsigned char)value[i];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    qm_text_add(text, digits, strlen(digits));
}

void qm_json_start(struct qm_text *text)
{
    add_char(text, '{');
}

void qm_json_add(struct qm_text *text, const char *name, size_t name_length,
                 enum qm_json_kind kind, const char *value, size_t length)
{
    if (text->length > 1)
        add_char(text, ',');
    add_string(text, name, name_length);
    add_char(text, ':');
    if (!value)
        qm_text_add(text, "null", 4);
    else if (kind == QM_JSON_NUMBER)
        add_number(text, value, length);
    else if (kind == QM_JSON_BITS)
        add_bits(text, value, length);
    else if (kind == QM_JSON_BYTES)
        add_base64(text, value, length);
    else
        add_string(text, value, length);
}

void qm_json_end(struct qm_text *text)
{
    add_char(text, '}');
}

/* --- reading --- */

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* *at is behind the opening quote; goes behind the closing one. */
static bool read_string(const char **at, const char *end, struct qm_text *to)
{
    to->length = 0;
    while (*at < end && **at != '"') {
        const char *from = *at;

        while (*at < end && **at != '"' && **at != '\\')
            ++*at;
        qm_text_add(to, from, (size_t)(*at - from));
        if (*at == end || **at == '"')
            continue;
        if (end - *at >= 6 && (*at)[1] == 'u') {
            add_char(to, (char)(hex((*at)[4]) << 4 | hex((*at)[5])));
            *at += 6;
        } else if (end - *at >= 2) {
            add_char(to, (*at)[1]);
            *at += 2;
        } else {
            return false;
        }
    }
    if (*at == end)
        return false;
    ++*at;
    return !to->failed;
}

int qm_json_next(const char **at, const char *end, struct qm_member *member)
{
    const char *from;

    if (*at == end)
        return -1;
    if (**at == '}')
        return 0;
    ++*at; /* '{' or ',' */
    if (*at < end && **at == '}')
        return 0;
    if (*at == end || *(*at)++ != '"' || !read_string(at, end, &member->name) ||
        *at == end || *(*at)++ != ':' || *at == end)
        return -1;
    member->null = **at == 'n';
    if (**at == '"') {
        ++*at;
        return read_string(at, end, &member->value) ? 1 : -1;
    }
    from = *at;
    while (*at < end && **at != ',' && **at != '}')
        ++*at;
    member->value.length = 0;
    if (!member->null)
        qm_text_add(&member->value, from, (size_t)(*at - from));
    return *at == end || member->value.failed ? -1 : 1;
}

void qm_member_free(struct qm_member *member)
{
    qm_text_free(&member->name);
    qm_text_free(&member->value);
}
