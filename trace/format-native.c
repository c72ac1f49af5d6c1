/* SPDX-License-Identifier: BSD-3-Clause */
/* format-native.c - our own format, as one among others. */
#include "trace/format.h"

#include <stdio.h>
#include <stdlib.h>

struct native_source {
    struct qm_source source;
    struct qm_trace_reader *reader;
};

struct native_sink {
    struct qm_sink sink;
    struct qm_trace_writer *writer;
};

static struct qm_source *open_native(const char *path,
                                     const struct qm_format_options *options, char *err,
                                     size_t len)
{
    struct native_source *s = calloc(1, sizeof *s);

    if (!s) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    s->source.format = &qm_format_native;
    s->reader = qm_trace_open(path, err, len);
    if (!s->reader) {
        free(s);
        return NULL;
    }
    s->source.block_size =
        options->block_size ? options->block_size : qm_trace_block_size(s->reader);
    return &s->source;
}

static int next(struct qm_source *source, struct qm_event *event)
{
    return qm_trace_next(((struct native_source *)source)->reader, event);
}

static const char *error(const struct qm_source *source)
{
    return qm_trace_error(((const struct native_source *)source)->reader);
}

static void position(const struct qm_source *source, uint64_t *at, uint64_t *size)
{
    qm_trace_position(((const struct native_source *)source)->reader, at, size);
}

static void free_native(struct qm_source *source)
{
    if (source)
        qm_trace_free(((struct native_source *)source)->reader);
    free(source);
}

static struct qm_sink *create(const char *path, const struct qm_format_options *options,
                              char *err, size_t len)
{
    struct native_sink *s = calloc(1, sizeof *s);

    if (!s) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    s->sink.format = &qm_format_native;
    s->writer = qm_trace_replace(path, options->block_size, err, len);
    if (!s->writer) {
        free(s);
        return NULL;
    }
    return &s->sink;
}

static int write_native(struct qm_sink *sink, const struct qm_event *event)
{
    return qm_trace_write(((struct native_sink *)sink)->writer, event);
}

static int close_native(struct qm_sink *sink, bool complete)
{
    struct qm_trace_writer *writer = ((struct native_sink *)sink)->writer;
    int r = complete ? qm_trace_close(writer) : 0;

    if (!complete)
        qm_trace_abandon(writer);

    free(sink);
    return r;
}

const struct qm_format qm_format_native = {
    .name = "native",
    .summary = "quickmine-trace(5)",
    .open = open_native,
    .next = next,
    .error = error,
    .position = position,
    .free = free_native,
    .create = create,
    .write = write_native,
    .close = close_native,
};
