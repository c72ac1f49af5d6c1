/* SPDX-License-Identifier: BSD-3-Clause */
/* format.c - the formats by name, and what they share. */
#include "trace/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct qm_format *const formats[] = {
    &qm_format_native, &qm_format_blkparse, &qm_format_fio, &qm_format_blocks};

enum { FORMATS = sizeof formats / sizeof *formats };

const struct qm_format *qm_format_find(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

const char *qm_format_names(void)
{
    return "native, blkparse, fio, blocks";
}

void *qm_source_new(const struct qm_format *format, size_t size, const char *path,
                    const struct qm_format_options *options, char *err, size_t len)
{
    struct qm_source *source = calloc(1, size);

    if (!source) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    source->format = format;
    source->block_size = options->block_size ? options->block_size : 16384;
    source->in = qm_input_open(path, err, len);
    if (!source->in) {
        free(source);
        return NULL;
    }
    return source;
}

const char *qm_source_error(const struct qm_source *source)
{
    return qm_input_error(source->in);
}

void qm_source_position(const struct qm_source *source, uint64_t *at, uint64_t *size)
{
    qm_input_position(source->in, at, size);
}

void qm_source_free(struct qm_source *source)
{
    if (!source)
        return;
    qm_input_free(source->in);
    free(source);
}

void *qm_sink_new(const struct qm_format *format, size_t size, const char *path,
                  char *err, size_t len)
{
    struct qm_sink *sink = calloc(1, size);

    if (!sink) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    sink->format = format;
    sink->out = qm_output_replace(path, err, len);
    if (!sink->out) {
        free(sink);
        return NULL;
    }
    return sink;
}

int qm_sink_end(struct qm_sink *sink, bool complete)
{
    if (complete)
        return qm_output_close(sink->out);
    qm_output_abandon(sink->out);
    return 0;
}

unsigned qm_words(char *line, char **words, unsigned max)
{
    static const char blank[] = " \t";
    unsigned n = 0;

    line += strspn(line, blank);
    while (*line != '\0' && n < max) {
        words[n++] = line;
        if (n == max)
            break;
        line += strcspn(line, blank);
        if (*line != '\0')
            *line++ = '\0';
        line += strspn(line, blank);
    }
    return n;
}

bool qm_word_number(const char *word, uint64_t *value)
{
    uint64_t v = 0;
    const char *p = word;

    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');

        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return p != word && *p == '\0';
}
