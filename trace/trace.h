/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h - reads and writes traces (quickmine-trace(5)), compressed or not.
 *
 *   #quickmine-trace 1 block=16384
 *   B <us> <ctx> <kind> <class> <parent>
 *   R <us> <ctx> <offset> <length>
 *   W <us> <ctx> <offset> <length>
 *   E <us> <ctx>
 *
 * A file whose name ends in .gz or .zst is compressed; on reading, the file's first
 * bytes decide.  A reader or writer belongs to one thread at a time.
 */
#ifndef QM_TRACE_H
#define QM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "mining/core/context.h" /* enum qm_kind */

enum {
    QM_TRACE_BEGIN = 'B',
    QM_TRACE_READ = 'R',
    QM_TRACE_WRITE = 'W',
    QM_TRACE_END = 'E'
};

struct qm_event {
    char type;
    uint64_t us;  /* microseconds since the trace began */
    uint64_t ctx; /* 0: no context (R, W only) */
    /* Set by the reader: a small number for ctx (0: none), unique among the open
     * contexts and reused after they end.  It is at most the largest number of contexts
     * open at the same time, so it can index an array. */
    uint32_t slot;
    union {
        struct {
            enum qm_kind kind;
            uint64_t parent; /* 0: none */
            uint32_t parent_slot;
            const char *klass; /* no spaces, not empty; on reading, valid until the next
                                  call */
        };
        struct {
            uint64_t offset, length; /* bytes; length > 0 */
        };
    };
};

struct qm_trace_reader;
struct qm_trace_writer;

/* Limits of reader and writer. */
#define QM_TRACE_BLOCK_MIN  UINT64_C(512)
#define QM_TRACE_BLOCK_MAX  (UINT64_C(16) << 20)
#define QM_TRACE_CLASS_MAX  1023                   /* bytes of a class */
#define QM_TRACE_LENGTH_MAX ((uint64_t)UINT32_MAX) /* of a request, as NBD's */
#define QM_TRACE_END_MAX    ((uint64_t)INT64_MAX)  /* offset + length */

/* Opens path ("-": standard input).  Memory grows with the number of open contexts;
 * since a number may be used only once, ended ones take some, too, but little if they
 * are numbered in sequence.  Returns NULL with a sentence in err. */
struct qm_trace_reader *qm_trace_open(const char *path, char *err, size_t len);

/* The block size in the trace's first line, in bytes: a power of two. */
uint64_t qm_trace_block_size(const struct qm_trace_reader *r);

/* The next event.  Returns 1; 0 at the end; -1 for a malformed line, or one that names
 * a context that is not open (qm_trace_error() names the line and the reason).  An E is
 * delivered only for the context that the line names.  Contexts nested in it have
 * ended, too; naming them afterwards is an error. */
int qm_trace_next(struct qm_trace_reader *r, struct qm_event *event);
const char *qm_trace_error(const struct qm_trace_reader *r);
/* The number of the line that was read last. */
uint64_t qm_trace_line(const struct qm_trace_reader *r);

/* For progress: bytes of the file consumed, and its size (0 if it has none). */
void qm_trace_position(const struct qm_trace_reader *r, uint64_t *at, uint64_t *size);
void qm_trace_free(struct qm_trace_reader *r);

/* Creates path ("-": standard output; see qm_output_create()).  Returns NULL with a
 * sentence in err. */
struct qm_trace_writer *qm_trace_create(const char *path, uint64_t block_size,
                                        char *err, size_t len);
/* The same for a recording: see qm_output_record() and _keep(). */
struct qm_trace_writer *qm_trace_record(const char *path, uint64_t block_size,
                                        char *err, size_t len);
struct qm_trace_writer *qm_trace_keep(const char *path, uint64_t block_size, char *err,
                                      size_t len);
/* The same for what replaces a file only when it is complete: qm_output_replace(). */
struct qm_trace_writer *qm_trace_replace(const char *path, uint64_t block_size,
                                         char *err, size_t len);
/* All return 0 or an errno value.  EINVAL: a reader would refuse the event (a class
 * with spaces, no length, ...), and it is not written; but the caller must see to it
 * that contexts are open when they are named.  After an I/O error, always that error.
 * flush(): others can read everything written so far.  close() and abandon() free w in
 * any case; after abandon(), a file to which nothing was flushed is as it was before,
 * and that of replace() in any case. */
int qm_trace_write(struct qm_trace_writer *w, const struct qm_event *event);
int qm_trace_flush(struct qm_trace_writer *w);
int qm_trace_close(struct qm_trace_writer *w);
/* As qm_output_move(). */
int qm_trace_move(struct qm_trace_writer *w, int least);
void qm_trace_abandon(struct qm_trace_writer *w);

#endif
