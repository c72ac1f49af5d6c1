/* SPDX-License-Identifier: BSD-3-Clause */
/* input.h - reads the lines of a text file that may be compressed.
 *
 * The file's first bytes decide: gzip, zstd, or plain text.  Memory is two buffers of
 * fixed size.  An input belongs to one thread at a time.
 */
#ifndef QM_TRACE_INPUT_H
#define QM_TRACE_INPUT_H

#include <stddef.h>
#include <stdint.h>

#define QM_LINE_MAX 4095 /* bytes of a line, without its newline */

struct qm_input;

/* Opens path ("-": standard input).  The caller frees it with qm_input_free().  Returns
 * NULL with a sentence in err (at most len bytes, always terminated). */
struct qm_input *qm_input_open(const char *path, char *err, size_t len);

/* The next line, without its newline, terminated by a NUL in place: *line may be
 * written to and is valid until the next call.  Returns 1; 0 at the end; -1 on an
 * error, for good (qm_input_error()): I/O, damaged or truncated compression, a line
 * that is too long, a last line without a newline (a digit of it may be missing). */
int qm_input_line(struct qm_input *in, char **line, size_t *length);

/* The number of the line that qm_input_line() returned last, from 1. */
uint64_t qm_input_line_number(const struct qm_input *in);

/* Sets the error: "NAME: line N: " (before the first line: "NAME: ") and what the
 * format says.  Returns -1. */
int qm_input_fail(struct qm_input *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *qm_input_error(const struct qm_input *in);

/* For progress: bytes of the file consumed, and its size (0 if it has none). */
void qm_input_position(const struct qm_input *in, uint64_t *at, uint64_t *size);

void qm_input_free(struct qm_input *in); /* NULL is fine */

#endif
