/* output.h - a text file that is compressed if its name says so (.gz, .zst).
 *
 * An output belongs to one thread at a time.
 */
#ifndef QM_TRACE_OUTPUT_H
#define QM_TRACE_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

struct qm_output;

/* Creates path, for its owner alone, or opens what is there, whose mode stays as it is
 * and whose contents go when something is first written ("-": standard output, plain).
 * It is locked (flock): a second program that writes to it is refused.  The caller
 * frees it with qm_output_close() or _abandon().  Returns NULL with a sentence in err.
 */
struct qm_output *qm_output_create(const char *path, char *err, size_t len);

/* Adds text.  All return 0 or an errno value; after the first error, that one. */
int qm_output_write(struct qm_output *out, const void *text, size_t count);
int qm_output_printf(struct qm_output *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* So far as written, the file can be read by others from now on. */
int qm_output_flush(struct qm_output *out);
/* Completes the file, and frees out in any case. */
int qm_output_close(struct qm_output *out);
/* Frees out without writing what is left.  If nothing was written at all, the file is
 * as it was before qm_output_create(). */
void qm_output_abandon(struct qm_output *out);

#endif
