/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - records requests and contexts as a trace (quickmine-trace(5)).
 *
 * Events go through a bounded queue to a thread that writes them, so recording costs a
 * reader neither I/O nor a lock.  An event that finds the queue full is dropped and
 * counted.  A trace must not name a context that it did not begin, so the last part of
 * the queue is reserved for begins and ends, and qms_record_begin() returns whether the
 * begin was queued.
 *
 * When the disk is full, recording ends with what was written; I/O goes on.
 */
#ifndef QMS_RECORD_H
#define QMS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace.h"

struct qms_recorder;

struct qms_record_stats {
    uint64_t recorded; /* events written */
    uint64_t dropped;  /* events that are missing: queue full, or writing failed */
    int error;         /* errno value that ended the recording; 0: none */
};

/* Creates or opens the file, before the server forks; starts nothing, and writes
 * nothing to it.  NULL with a sentence in err. */
struct qms_recorder *qms_record_open(const char *path, uint64_t block_size, char *err,
                                     size_t len);
/* Before the start: events are taken for `seconds` and up to `events`; what comes after
 * is left out, and not counted as dropped. */
void qms_record_limit(struct qms_recorder *recorder, unsigned seconds, uint64_t events);
/* Whether nothing is taken any more. */
bool qms_record_over(struct qms_recorder *recorder);
/* Before the start: failed is called once, by the thread, when writing has failed. */
void qms_record_on_error(struct qms_recorder *recorder,
                         void (*failed)(void *opaque, int error), void *opaque);
/* Starts the thread.  Returns 0 or an errno value. */
int qms_record_start(struct qms_recorder *recorder);
/* Writes what is queued, ends the thread and closes the file.  No other thread may be
 * recording.  Returns 0, or the errno value that ended the recording.  If it was not
 * started, the file is left as it was before qms_record_open(). */
int qms_record_close(struct qms_recorder *recorder);
/* The same, and what it came to. */
int qms_record_close_with(struct qms_recorder *recorder,
                          struct qms_record_stats *stats);

/* Any thread, any time between start and close.  The order of events is that of the
 * calls; klass must stay valid until the recorder is closed. */
bool qms_record_begin(struct qms_recorder *recorder, uint64_t ctx, enum qm_kind kind,
                      const char *klass, uint64_t parent);
void qms_record_end(struct qms_recorder *recorder, uint64_t ctx);
/* type: QM_TRACE_READ or QM_TRACE_WRITE. */
void qms_record_io(struct qms_recorder *recorder, char type, uint64_t ctx,
                   uint64_t offset, uint64_t length);

void qms_record_stats(struct qms_recorder *recorder, struct qms_record_stats *stats);

#endif
