/* SPDX-License-Identifier: BSD-3-Clause */
/* writer.c - writes a trace.
 *
 * A line is put together by hand: a server records hundreds of thousands a second.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/output.h"

struct qm_trace_writer {
    struct qm_output *out;
    int error; /* of the output, for good; 0: none */
};

#define NUMBER_MAX 20 /* digits of 2^64 - 1 */

/* Writes v and a space at p; returns what follows. */
static char *number(char *p, uint64_t v)
{
    char digits[NUMBER_MAX];
    size_t n = sizeof digits;

    do
        digits[--n] = (char)('0' + v % 10);
    while (v /= 10);
    memcpy(p, digits + n, sizeof digits - n);
    p += sizeof digits - n;
    *p++ = ' ';
    return p;
}

static char *word(char *p, const char *text)
{
    size_t n = strlen(text);

    memcpy(p, text, n);
    p[n] = ' ';
    return p + n + 1;
}

static bool class_is_valid(const char *klass)
{
    const char *p = klass;

    if (!p)
        return false;
    while ((unsigned char)*p > ' ' && *p != 0x7f)
        p++;
    return *p == '\0' && p != klass && p - klass <= QM_TRACE_CLASS_MAX;
}

int qm_trace_write(struct qm_trace_writer *w, const struct qm_event *e)
{
    /* type, five fields at most, each with a space */
    char line[2 + 4 * (NUMBER_MAX + 1) + 16 + QM_TRACE_CLASS_MAX + 1], *p = line;
    const char *kind;

    if (w->error)
        return w->error;
    *p++ = e->type;
    *p++ = ' ';
    p = number(p, e->us);
    p = number(p, e->ctx);
    switch (e->type) {
    case QM_TRACE_BEGIN:
        kind = qm_kind_name(e->kind);
        if (e->ctx == 0 || !kind || !class_is_valid(e->klass))
            return EINVAL;
        p = word(p, kind);
        p = word(p, e->klass);
        p = number(p, e->parent);
        break;
    case QM_TRACE_READ:
    case QM_TRACE_WRITE:
        if (e->length == 0 || e->length > QM_TRACE_LENGTH_MAX ||
            e->offset > QM_TRACE_END_MAX - e->length)
            return EINVAL;
        p = number(p, e->offset);
        p = number(p, e->length);
        break;
    case QM_TRACE_END:
        if (e->ctx == 0)
            return EINVAL;
        break;
    default:
        return EINVAL;
    }
    p[-1] = '\n';
    w->error = qm_output_write(w->out, line, (size_t)(p - line));
    return w->error;
}

int qm_trace_flush(struct qm_trace_writer *w)
{
    if (!w->error)
        w->error = qm_output_flush(w->out);
    return w->error;
}

static struct qm_trace_writer *
open_writer(struct qm_output *(*open_output)(const char *path, char *err, size_t len),
            const char *path, uint64_t block_size, char *err, size_t len)
{
    struct qm_trace_writer *w;

    if (block_size < QM_TRACE_BLOCK_MIN || block_size > QM_TRACE_BLOCK_MAX ||
        (block_size & (block_size - 1)) != 0) {
        snprintf(err, len,
                 "a trace's block size must be a power of two from %llu to %llu",
                 (unsigned long long)QM_TRACE_BLOCK_MIN,
                 (unsigned long long)QM_TRACE_BLOCK_MAX);
        return NULL;
    }
    w = calloc(1, sizeof *w);
    if (!w) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    w->out = open_output(path, err, len);
    if (!w->out) {
        free(w);
        return NULL;
    }
    qm_output_printf(w->out, "#quickmine-trace 1 block=%llu\n",
                     (unsigned long long)block_size);
    return w;
}

struct qm_trace_writer *qm_trace_create(const char *path, uint64_t block_size,
                                        char *err, size_t len)
{
    return open_writer(qm_output_create, path, block_size, err, len);
}

struct qm_trace_writer *qm_trace_record(const char *path, uint64_t block_size,
                                        char *err, size_t len)
{
    return open_writer(qm_output_record, path, block_size, err, len);
}

struct qm_trace_writer *qm_trace_keep(const char *path, uint64_t block_size, char *err,
                                      size_t len)
{
    return open_writer(qm_output_keep, path, block_size, err, len);
}

struct qm_trace_writer *qm_trace_replace(const char *path, uint64_t block_size,
                                         char *err, size_t len)
{
    return open_writer(qm_output_replace, path, block_size, err, len);
}

int qm_trace_move(struct qm_trace_writer *w, int least)
{
    return qm_output_move(w->out, least);
}

int qm_trace_close(struct qm_trace_writer *w)
{
    int error = qm_output_close(w->out);

    if (w->error)
        error = w->error;
    free(w);
    return error;
}

void qm_trace_abandon(struct qm_trace_writer *w)
{
    qm_output_abandon(w->out);
    free(w);
}
