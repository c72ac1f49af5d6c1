/* SPDX-License-Identifier: BSD-3-Clause */
/* dump.h - the collector's intervals as a file that quickmine lsm train reads.
 *
 * CSV with a line of names.  A row is a key range at the end of an interval, with the
 * 18 features of feature.h.  Ranges of different `ranges` are not the same.  Of many
 * ranges a fixed sample is written, so that what became of a row is in a later one.
 *
 * Threads: any but dump_close(). */
#ifndef QM_LSM_DUMP_H
#define QM_LSM_DUMP_H

#include "lsm/collector.h"

#define DUMP_ROWS 4096u /* of an interval, about */

struct dump;

/* A new file, of at most `bytes`; NULL: errno. */
struct dump *dump_open(const char *path, uint64_t bytes);
void dump_close(struct dump *d);
/* -1, once, if the file cannot be written. */
int dump_interval(struct dump *d, uint32_t family, uint64_t interval, struct table *t);

#endif
