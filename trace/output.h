/* SPDX-License-Identifier: BSD-3-Clause */
/* output.h - writes a text file, compressed if its name ends in .gz or .zst.
 *
 * An output belongs to one thread at a time.
 */
#ifndef QM_TRACE_OUTPUT_H
#define QM_TRACE_OUTPUT_H

#include <stddef.h>

struct qm_output;

/* Creates path with mode 0600, or opens an existing file, whose mode stays and whose
 * contents are discarded at the first write ("-": standard output, plain).  The file is
 * locked (flock), so a second program that writes to it is refused.  The caller frees
 * the result with qm_output_close() or _abandon().  Returns NULL with a sentence in
 * err.
 */
struct qm_output *qm_output_create(const char *path, char *err, size_t len);
/* The same for a recording, which a program writes unwatched: refuses a file that is
 * neither empty nor a trace (plain or compressed), and a block device.  A pipe need not
 * have a reader, but one that takes nothing for ten seconds ends the recording
 * (ETIMEDOUT).  _keep(): also keeps a trace that is there, as qm_old_keep() does; after
 * qm_output_abandon() before the first flush it has its name again. */
struct qm_output *qm_output_record(const char *path, char *err, size_t len);
struct qm_output *qm_output_keep(const char *path, char *err, size_t len);

/* The same for what takes its place only when it is complete: it is written to a file
 * beside, of the same mode, owner and group, which qm_output_close() renames unless
 * something failed.  A symbolic link stays, and what it leads to is replaced.  Where no
 * such file can be made beside, it is as qm_output_create(), and an output that is not
 * completed is emptied. */
struct qm_output *qm_output_replace(const char *path, char *err, size_t len);

/* Append text.  All return 0 or an errno value; after the first error, always that.
 * EBADF: other code closed the descriptor, which may be another file's by now; nothing
 * is written to that. */
int qm_output_write(struct qm_output *out, const void *text, size_t count);
int qm_output_printf(struct qm_output *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes everything written so far readable by others. */
int qm_output_flush(struct qm_output *out);
/* Gives the file, which is not standard output, another descriptor, at least this one,
 * and returns it; -1: there is none, or other code has closed the file's. */
int qm_output_move(struct qm_output *out, int least);
/* Completes the file, and frees out in any case. */
int qm_output_close(struct qm_output *out);
/* Frees out without writing the rest.  If nothing was written at all, the file is as it
 * was before qm_output_create(); after qm_output_replace() it is in any case, and what
 * is no file gets the rest. */
void qm_output_abandon(struct qm_output *out);

#endif
