/* SPDX-License-Identifier: BSD-3-Clause */
/* reply.c - Redis's protocol: replies to bytes; see resp.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rowcache/server/resp.h"

static void add_number(struct qm_text *out, char type, int64_t value)
{
    char text[32], *p = text + sizeof text;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    *--p = '\n';
    *--p = '\r';
    do
        *--p = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0)
        *--p = '-';
    *--p = type;
    qm_text_add(out, p, (size_t)(text + sizeof text - p));
}

void qm_reply_simple(struct qm_text *out, const char *text)
{
    qm_text_add(out, "+", 1);
    qm_text_add(out, text, strlen(text));
    qm_text_add(out, "\r\n", 2);
}

void qm_reply_error(struct qm_text *out, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++) /* a line break would end the reply */
        if (*p == '\r' || *p == '\n')
            *p = ' ';
    qm_text_add(out, "-", 1);
    qm_text_add(out, text, strlen(text));
    qm_text_add(out, "\r\n", 2);
}

void qm_reply_integer(struct qm_text *out, int64_t value)
{
    add_number(out, ':', value);
}

void qm_reply_bulk(struct qm_text *out, const void *bytes, size_t length)
{
    add_number(out, '$', (int64_t)length);
    qm_text_add(out, bytes, length);
    qm_text_add(out, "\r\n", 2);
}

void qm_reply_string(struct qm_text *out, const char *text)
{
    qm_reply_bulk(out, text, strlen(text));
}

void qm_reply_null(struct qm_text *out, bool resp3)
{
    if (resp3)
        qm_text_add(out, "_\r\n", 3);
    else
        qm_text_add(out, "$-1\r\n", 5);
}

void qm_reply_array(struct qm_text *out, size_t count)
{
    add_number(out, '*', (int64_t)count);
}

void qm_reply_map(struct qm_text *out, size_t pairs, bool resp3)
{
    add_number(out, resp3 ? '%' : '*', (int64_t)(resp3 ? pairs : 2 * pairs));
}
