/* SPDX-License-Identifier: BSD-3-Clause */
/* format.h - converts between our traces and those of other programs.
 *
 * One format per file (format-fio.c, ...), found by name.  A source yields events, a
 * sink takes them; each belongs to one thread at a time.
 */
#ifndef QM_TRACE_FORMAT_H
#define QM_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/input.h"
#include "trace/output.h"
#include "trace/trace.h"

struct qm_format_options {
    uint64_t block_size; /* bytes; for a source, 0: the file's, or 16 KiB */
    const char *device;  /* the device to read (NULL: the file must have only one), or
                            its  name when writing */
    char action;         /* blkparse: which of a request's actions counts; 'Q' */
};

/* The beginning of every source, which its format's open() makes. */
struct qm_source {
    const struct qm_format *format;
    struct qm_input *in; /* NULL for the native format */
    uint64_t block_size;
    uint64_t skipped; /* events skipped so far: not a read or write to deliver */
};

struct qm_sink {
    const struct qm_format *format;
    struct qm_output *out; /* NULL for the native format */
    uint64_t skipped;      /* events left out so far: the format cannot express them */
};

struct qm_format {
    const char *name;
    const char *summary; /* one line, for --help */

    /* Returns NULL with a sentence in err. */
    struct qm_source *(*open)(const char *path, const struct qm_format_options *options,
                              char *err, size_t len);
    /* As qm_trace_next(), slots included. */
    int (*next)(struct qm_source *source, struct qm_event *event);
    const char *(*error)(const struct qm_source *source);
    void (*position)(const struct qm_source *source, uint64_t *at, uint64_t *size);
    void (*free)(struct qm_source *source);

    struct qm_sink *(*create)(const char *path, const struct qm_format_options *options,
                              char *err, size_t len);
    /* Both return 0 or an errno value; close() frees sink in any case.  Unless it is
     * complete, what was there before create() stays (qm_output_replace()). */
    int (*write)(struct qm_sink *sink, const struct qm_event *event);
    int (*close)(struct qm_sink *sink, bool complete);
};

/* The format of that name ("native", "blkparse", "fio", "blocks"), or NULL; and all
 * names, separated by ", ", for messages. */
const struct qm_format *qm_format_find(const char *name);
const char *qm_format_names(void);

/* For the formats. */
extern const struct qm_format qm_format_native, qm_format_blkparse, qm_format_fio,
    qm_format_blocks;

/* Allocates size bytes, zeroed, that begin with a source or a sink, and opens its file.
 */
void *qm_source_new(const struct qm_format *format, size_t size, const char *path,
                    const struct qm_format_options *options, char *err, size_t len);
void *qm_sink_new(const struct qm_format *format, size_t size, const char *path,
                  char *err, size_t len);
/* Closes its file, for close(); does not free it. */
int qm_sink_end(struct qm_sink *sink, bool complete);
/* Implementations that most formats share. */
const char *qm_source_error(const struct qm_source *source);
void qm_source_position(const struct qm_source *source, uint64_t *at, uint64_t *size);
void qm_source_free(struct qm_source *source);

/* Splits line at spaces and tabs, in place, into at most max words; returns how many.
 * The last word is the rest of the line. */
unsigned qm_words(char *line, char **words, unsigned max);
/* Whether all of word is a decimal number below 2^64. */
bool qm_word_number(const char *word, uint64_t *value);

#endif
