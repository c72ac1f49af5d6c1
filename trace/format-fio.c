/* SPDX-License-Identifier: BSD-3-Clause */
/* format-fio.c - fio's I/O log: version 2 and 3 are read, version 3 is written.
 *
 *   fio version 2 iolog               fio version 3 iolog
 *   <file> add|open|close             <us> <file> add|open|close
 *   <file> read|write <offset> <n>    <us> <file> read|write <offset> <n>
 *   <file> wait <us> 0
 *
 * A wait counts from the one before.  fio 3.33 writes version 3, and with version 2
 * hangs at the second wait, which leaves no choice.  There are no contexts.
 */
#include "trace/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fio_source {
    struct qm_source source;
    unsigned version;
    uint64_t us;
    const char *asked; /* --device */
    char *device;      /* the file whose requests are read; NULL: none was named yet */
};

struct fio_sink {
    struct qm_sink sink;
    const char *device;
    uint64_t us; /* of the last event */
};

static void free_fio(struct qm_source *source)
{
    if (source)
        free(((struct fio_source *)source)->device);
    qm_source_free(source);
}

static struct qm_source *open_fio(const char *path,
                                  const struct qm_format_options *options, char *err,
                                  size_t len)
{
    struct fio_source *s =
        qm_source_new(&qm_format_fio, sizeof *s, path, options, err, len);
    char *line;
    size_t length;
    int n;

    if (!s)
        return NULL;
    n = qm_input_line(s->source.in, &line, &length);
    if (n == 1 && strcmp(line, "fio version 2 iolog") == 0)
        s->version = 2;
    else if (n == 1 && strcmp(line, "fio version 3 iolog") == 0)
        s->version = 3;
    else if (n != -1)
        qm_input_fail(s->source.in,
                      "not 'fio version 2 iolog' nor 'fio version 3 iolog'");
    if (s->version != 0) {
        s->asked = options->device;
        return &s->source;
    }
    snprintf(err, len, "%s", qm_input_error(s->source.in));
    free_fio(&s->source);
    return NULL;
}

/* Whether file's requests are read.  Returns 1, 0, or -1: two files. */
static int is_ours(struct fio_source *s, const char *file)
{
    if (s->asked)
        return strcmp(file, s->asked) == 0;
    if (!s->device) {
        s->device = strdup(file);
        if (!s->device)
            return qm_input_fail(s->source.in, "out of memory");
    }
    if (strcmp(file, s->device) != 0)
        return qm_input_fail(s->source.in,
                             "a second file, %s beside %s: choose one by --device",
                             file, s->device);
    return 1;
}

/* One line.  Returns 1: *event is a request; 0: it is none; -1: an error. */
static int parse(struct fio_source *s, char *line, struct qm_event *event)
{
    char *words[6];
    unsigned n = qm_words(line, words, 6), first = s->version == 3 ? 1 : 0;
    const char *action = n > first + 1 ? words[first + 1] : "";
    uint64_t offset = 0, length = 0;
    int ours;

    if (n != first + 2 && n != first + 4)
        return qm_input_fail(s->source.in, "does not have %u or %u fields", first + 2,
                             first + 4);
    if (first == 1 && !qm_word_number(words[0], &s->us))
        return qm_input_fail(s->source.in, "the time is not a number");
    if (n == first + 4 && (!qm_word_number(words[first + 2], &offset) ||
                           !qm_word_number(words[first + 3], &length)))
        return qm_input_fail(s->source.in, "offset or length is not a number");
    if (strcmp(action, "wait") == 0) {
        if (s->version == 2)
            s->us += offset;
        return 0;
    }
    if (n == first + 2)
        return 0; /* add, open, close */
    ours = is_ours(s, words[first]);
    if (ours == 0)
        s->source.skipped++;
    if (ours != 1)
        return ours;
    if (strcmp(action, "read") == 0) {
        event->type = QM_TRACE_READ;
    } else if (strcmp(action, "write") == 0) {
        event->type = QM_TRACE_WRITE;
    } else { /* sync, datasync, trim */
        s->source.skipped++;
        return 0;
    }
    if (length == 0 || length > QM_TRACE_LENGTH_MAX ||
        offset > QM_TRACE_END_MAX - length)
        return qm_input_fail(s->source.in, "offset or length is out of range");
    event->us = s->us;
    event->ctx = 0;
    event->slot = 0;
    event->offset = offset;
    event->length = length;
    return 1;
}

static int next(struct qm_source *source, struct qm_event *event)
{
    char *line;
    size_t length;
    int n;

    while ((n = qm_input_line(source->in, &line, &length)) == 1) {
        n = parse((struct fio_source *)source, line, event);
        if (n != 0)
            return n;
    }
    return n;
}

static struct qm_sink *create(const char *path, const struct qm_format_options *options,
                              char *err, size_t len)
{
    struct fio_sink *s = qm_sink_new(&qm_format_fio, sizeof *s, path, err, len);

    if (!s)
        return NULL;
    s->device = options->device ? options->device : "device";
    qm_output_printf(s->sink.out, "fio version 3 iolog\n0 %s add\n0 %s open\n",
                     s->device, s->device);
    return &s->sink;
}

static int write_fio(struct qm_sink *sink, const struct qm_event *event)
{
    struct fio_sink *s = (struct fio_sink *)sink;

    if (event->type != QM_TRACE_READ && event->type != QM_TRACE_WRITE)
        return 0;
    /* fio takes a step back in time for a very long wait. */
    if (event->us > s->us)
        s->us = event->us;
    return qm_output_printf(
        sink->out, "%llu %s %s %llu %llu\n", (unsigned long long)s->us, s->device,
        event->type == QM_TRACE_READ ? "read" : "write",
        (unsigned long long)event->offset, (unsigned long long)event->length);
}

static int close_fio(struct qm_sink *sink, bool complete)
{
    struct fio_sink *s = (struct fio_sink *)sink;
    int error;

    qm_output_printf(sink->out, "%llu %s close\n", (unsigned long long)s->us,
                     s->device);
    error = qm_sink_end(sink, complete);
    free(sink);
    return error;
}

const struct qm_format qm_format_fio = {
    .name = "fio",
    .summary = "fio's I/O log",
    .open = open_fio,
    .next = next,
    .error = qm_source_error,
    .position = qm_source_position,
    .free = free_fio,
    .create = create,
    .write = write_fio,
    .close = close_fio,
};
