/* SPDX-License-Identifier: BSD-3-Clause */
/* lately.h - which rows were read or asked for lately: a bounded map from rows to
 * times, to a QM_LATELY_STEPS-th of the time for which a row is recent.
 *
 * Rows are kept in blocks of QM_LATELY_BLOCK neighbours, so that a range of rows takes
 * one look for each block, which waits for memory once.  A new block takes the place of
 * one that was noted longest ago of the two that could be there. */
#ifndef QM_ROWCACHE_LATELY_H
#define QM_ROWCACHE_LATELY_H

#include "rowcache/readahead/items.h"

enum { QM_LATELY_BLOCK = 14, QM_LATELY_STEPS = 64 };

struct qm_lately;

/* At most the next power of two from that many blocks on.  A row is recent for
 * again_ms.  NULL: out of memory. */
struct qm_lately *qm_lately_new(unsigned blocks, unsigned again_ms);
void qm_lately_free(struct qm_lately *recent);
void qm_lately_clear(struct qm_lately *recent);
/* The row is recent from now on; is not any more; no row of that table is. */
void qm_lately_note(struct qm_lately *recent, uint64_t now_ms, struct qm_item item);
void qm_lately_forget(struct qm_lately *recent, struct qm_item item);
void qm_lately_forget_table(struct qm_lately *recent, uint32_t table);
bool qm_lately_has(const struct qm_lately *recent, uint64_t now_ms,
                   struct qm_item item);
/* Those of the rows from first to last that are not recent, at most that many; down:
 * the last of them first. */
unsigned qm_lately_others(const struct qm_lately *recent, uint64_t now_ms,
                          uint32_t table, int64_t first, int64_t last, bool down,
                          int64_t *rows, unsigned most);

#endif
